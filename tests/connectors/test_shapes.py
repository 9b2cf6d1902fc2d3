"""Shapes of exports: several fields of text, records inside an object, names that are not there."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamlda.errors import SourceError
from streamlda_connectors import compressed
from streamlda_connectors.files import FileSource
from tests.connectors.test_files import drain, reopen

ROWS = [
    {"id": "1", "title": "red", "body": "cat and dog"},
    {"id": "2", "title": None, "body": "sea"},
    {"id": "3", "title": None, "body": None},
]
TEXTS = ["red\ncat and dog", "sea"]


def write_rows(path, rows):
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    elif path.suffix == ".csv":
        lines = [",".join(rows[0]), *(",".join(v or "" for v in row.values()) for row in rows)]
        path.write_text("\n".join(lines))
    else:
        path.write_text("\n".join(map(json.dumps, rows)))


@pytest.mark.parametrize("ending", ["csv", "jsonl", "json", "parquet"])
def test_several_fields_are_one_text(ending, tmp_path):
    path = tmp_path / f"a.{ending}"
    write_rows(path, ROWS)
    texts, rejects = drain(FileSource(path, text_field="title,body"))
    assert ([text for text in texts if text], rejects) == (TEXTS, [])
    write_rows(path, [{"title,body": "whole", "body": "x"}])
    assert ending == "csv" or drain(FileSource(path, text_field="title,body"))[0] == ["whole"]


@pytest.mark.parametrize(
    ("content", "field"),
    [
        ({"meta": {"data": [1]}, "data": ROWS[:2], "next": [1, {"data": 3}]}, "data"),
        ({"response": {"n": 2, "docs": ROWS[:2], "more": []}, "status": "ok"}, "response.docs"),
    ],
)
@pytest.mark.parametrize("indent", [None, 1])
def test_records_inside_an_object_are_read(content, field, indent, tmp_path):
    path = tmp_path / "a.json"
    path.write_text(json.dumps(content, indent=indent))
    options = {"text_field": "body", "records_field": field}
    source = FileSource(path, **options)
    assert source.poll(1, 60).texts == ["cat and dog"]
    assert drain(reopen(source, path, **options)) == (["sea"], [])
    none = [(1, "no-records")]
    assert drain(FileSource(path, **options | {"records_field": "docs"}))[1] == none
    top = field.partition(".")[0]
    notes = FileSource(path, **options | {"records_field": top.title()}).poll(9).notes
    assert f"has no such array (--records-field): did you mean '{top}'?" in "; ".join(notes)
    path.write_text(json.dumps(content)[:-1])
    assert drain(FileSource(path, **options)) == ([], none)
    assert "no such array" not in str(FileSource(path, **options).poll(9).notes)


OBJECTS = [{"body": 'one "\\" {', "of": [{}, "]"]}, {"body": "x" * 300}, {"body": "two"}]


@pytest.mark.parametrize("block", [1, 2, 7, 64])
@pytest.mark.parametrize("between", ["\n", "", "\r\n,\n"])
def test_objects_that_follow_each_other_are_cut_and_resumed_anywhere(
    block, between, tmp_path, monkeypatch
):
    monkeypatch.setattr(compressed, "BLOCK_BYTES", block)
    path, options = tmp_path / "a.json", {"text_field": "body", "max_document_bytes": 200}
    for in_array in (False, True):
        text = between.join(json.dumps(row, indent=2) for row in OBJECTS)
        path.write_text(json.dumps(OBJECTS, indent=2) if in_array else text)
        whole = ['one "\\" {', "two"], [(2, "too-long")]
        assert drain(FileSource(path, **options)) == whole
        first = FileSource(path, **options)
        assert first.poll(1).texts == whole[0][:1]
        again = FileSource(path, **options)
        again.seek(first.position())
        assert drain(again) == (whole[0][1:], whole[1])


def test_a_fault_in_an_object_is_its_own_and_a_cut_is_said(tmp_path):
    path, rows = tmp_path / "a.json", [json.dumps({"body": str(n)}, indent=1) for n in range(9)]
    path.write_text("\n".join([*rows[:4], rows[4].replace(":", ""), *rows[5:]]))
    texts = [str(n) for n in range(9) if n != 4]
    assert drain(FileSource(path, text_field="body")) == (texts, [(5, "not-json")])
    path.write_text("\n".join(rows)[:-1])
    poll = FileSource(path, text_field="body").poll(99)
    assert (poll.documents, [each.record for each in poll.rejects]) == ([*"01234567"], [9])
    assert "broke off (not-json), with at most 1" in poll.notes[0]
    path.rename(tmp_path / "a.jsonl")
    assert "--format json" in FileSource(tmp_path / "a.jsonl").poll(9).notes[0]


#: Tables of CSV as offices and databases write them.
WRITTEN = {
    "short rows": "id,body,note\n1,one,x\n2,two\n",
    "more commas": "id,body,note\n1,one,x,,\n2,two,,,,\n",
    "spark": 'id,body,note\n1,one,"a \\"b\\", c \\\\"\n2,two,"\\\\\\""\n',
    "numbers": "1,one,x\n2,two,y\n",
    "sep": "sep=;\nid;body;note\n1;one;x\n2;two;y\n",
    "blanks": "\n" * 30 + "id,body,note\n1,one,x\n2,two,y\n",
    "titles": '"Tickets, all",,\n,,\nid,body,note\n1,one,x\n2,two,y\n',
}


@pytest.mark.parametrize("kind", WRITTEN)
def test_csv_as_it_is_written_is_read(kind, tmp_path):
    (tmp_path / "a.csv").write_text(WRITTEN[kind])
    fields = ("2", "1") if kind == "numbers" else ("body", "id")
    given = {"text_field": fields[0], "id_field": fields[1]}
    source = FileSource(tmp_path / "a.csv", **given)
    first = source.poll(1)
    poll = reopen(source, tmp_path / "a.csv", **given).poll(9)
    texts = [text for text in first.texts + poll.texts if text]
    assert (texts, poll.rejects) == (["one", "two"], [])
    assert [at.id for at in first.locations + poll.locations if at.id][:2] == ["1", "2"]
    rows = FileSource(tmp_path / "a.csv", text_field=fields[0], as_rows=True).poll(9).texts
    assert [json.loads(row)[2] for row in rows][:2] == [fields[0], "one"]
    assert len(rows) == 1 + len(first.texts + poll.texts)


def test_classes_are_any_numbers_and_users_are_not(tmp_path):
    rows = [{"text": "x", "user": value} for value in (4, 4.0, 4.5, True, None, "7")]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    names = ("NA", "None", "nan", "", "\\N")
    (tmp_path / "a.csv").write_text("text,user\n" + "".join(f"x,{name}\n" for name in names))
    columns = {"text": [["x", "y"], None], "user": [4.0, None]}
    pq.write_table(pa.table(columns), tmp_path / "b.parquet")
    classes, users = (
        [
            FileSource(tmp_path / name, user_field="user", has_classes=are).poll(9).users
            for name in ("a.jsonl", "b.parquet", "a.csv")
        ]
        for are in (True, False)
    )
    null = ["NA", "None", "nan", None, None]
    assert classes == [["4", "4", "4.5", "True", None, "7"], ["4", None], null]
    assert users == [["4", None, None, None, None, "7"], [None, None], null]
    assert FileSource(tmp_path / "b.parquet").poll(9).texts == ["x y", None]


def test_files_of_folders_are_chosen_by_patterns(tmp_path):
    for name in ("a.json", "b.md", "sub/c.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"text": "one"}')
    (tmp_path / "d.pkl").write_bytes(b"\x80\x04\x95\0")
    assert len(drain(FileSource(tmp_path, include=["*.json"]))[0]) == 2
    assert len(drain(FileSource(tmp_path, include=["sub/*", "*.md"]))[0]) == 2
    with pytest.raises(SourceError, match=r"include=\['\*.csv'\]"):
        FileSource(tmp_path, include=["*.csv"])


def test_a_column_that_is_missing_is_said_with_what_to_do(tmp_path):
    for header, says in (
        ("id,Text", "did you mean 'Text'"),
        ("id, txt ", "did you mean 'txt'"),
        ("T1,ok lets meet at nine", "remove lines above the header"),
        ("My export,,", "columns=['My export', '<0 char"),
        ("sep=;\nid;texts", "remove lines above the header"),
    ):
        (tmp_path / "a.csv").write_text(f"{header}\n1,one\n")
        with pytest.raises(SourceError, match="text_field") as told:
            FileSource(tmp_path / "a.csv")
        assert says in str(told.value)
        assert "meet" not in str(told.value)


LISTS = [["late", "parcel"], ["a link ", {"type": "link", "text": "to a page"}], [], ["x", 7]]
POSTS = json.dumps([{"tweet": {"full_text": "one"}}, {"tweet": {"full_text": "two"}}], indent=1)
ARCHIVE = f"window.YTD.tweets.part0 = {POSTS};\n"
BODY, TWEETS = {"text_field": "body"}, {"text_field": "tweet.full_text"}

#: Name and content of a file, options, and its documents and rejects.
READ = {
    "none of the fields": (
        *("a.jsonl", '{"title": "one"}\n{"other": "two"}\n{"title": 7}'),
        *({"text_field": "title,body"}, ["one"], [(2, "missing-field"), (3, "not-text")]),
    ),
    "lists of words or pieces": (
        *("a.json", json.dumps([{"text": each} for each in LISTS]), {}),
        *(["late parcel", "a link  to a page", ""], [(4, "not-text")]),
    ),
    "an archive of Javascript": ("a.js", ARCHIVE, TWEETS | {"format": "json"}, ["one", "two"], []),
    "words for a null": ("a.csv", "text\nNA\nNone\nnan\n\\N\n", {}, [""] * 4, []),
    "escaped and doubled quotes": (
        *("a.csv", 'body\n"a \\""b"\n"c ""d"" e\\"\n', BODY),
        *(['a \\"b', 'c "d" e\\'], []),
    ),
    # An object that is no table is one record.
    "no table": ("a.json", '{"body": "one", "tags": {"body": {"a": "b"}}}', BODY, ["one"], []),
    "no table of lists": ("a.json", '{"body": ["one", "two"], "n": 7}', BODY, ["one two"], []),
    "no table of texts": ("a.json", '{"title": "x"}', BODY, [], [(1, "missing-field")]),
    # The first delimiter that has the text is taken.
    "comma": ("a.csv", "text,x;text\n1,2;3\n", {}, ["1"], []),
    "tab": ("a.csv", "x\ttext\ty;z\n1\t2,5;6\t7\n", {}, ["2,5;6"], []),
    "tab of tsv": ("a.tsv", "text,x\ttext\n1,2\t3\n", {}, ["3"], []),
    "bar": ("a.csv", "x;y|text\n1;2|3\n", {}, ["3"], []),
    # Backslashes that escape nothing stay.
    **{
        text: ("a.tsv", f"text\tid\n{text}\t1\nmore\t\\\n{text}\t3\n", {}, [text, "more", text], [])
        for text in ("C:\\", "C:\\Users\\new", "C:\\temp\\new", "\\\\nas\\b: \\nu")
    },
    # A comma in a row is no header below titles.
    **{
        f"{above!r} with {sign!r}": (
            *("a.csv", above.format(sign) + f"0{sign}one here\n1{sign}two, there\n"),
            *({} if above else {"text_field": "2"}, ["one here", "two, there"], []),
        )
        for above in ("id{}text\n", "A title\n\nid{}text\n", "")
        for sign in ";\t|"
    },
}


@pytest.mark.parametrize("case", READ)
def test_files_are_read_as_they_are_written(case, tmp_path):
    name, content, options, texts, rejects = READ[case]
    (tmp_path / name).write_text(content)
    assert drain(FileSource(tmp_path / name, **options)) == (texts, rejects)


DATED = {"id": "1", "text": "one", "Date": "2025"}
NO_COLUMNS = {"time_field": "date", "user_field": "who", "id_field": "id"}
NOT_THERE = " has no column who and has no column date: did you mean 'Date'?"
AS_LINES = "is read as lines of text"
#: Name and content of a file, options, and what is said of it, or nothing.
SAID = [
    ("a.json", {"meta": {}, "data": ROWS[:2]}, BODY, "--records-field data"),
    ("a.json", {"response": {"n": 2, "of": ROWS[:2]}}, BODY, "--records-field response.of"),
    ("a.json", {"two words of a text": ROWS[:2]}, BODY, "--records-field <19 characters>"),
    ("a.json", {"body": "sea", "comments": ROWS[:2]}, BODY, None),
    ("a.json", {"data": [1, 2], "more": []}, BODY, None),
    ("a.js", ARCHIVE, TWEETS, f"{AS_LINES}: name the format"),
    *(
        ("a.txt", f"{head}\n1,one\n", {}, AS_LINES)
        for head in ("id\ttext", '"text";"id"', "text,id")
    ),
    ("a.txt", "a text, of course\n", {}, None),
    ("a.csv", "id;numéro à vérifier;text\n1;2;x\n".encode("cp1252"), {}, "cp1252"),
    ("a.csv", "text, text ,id,text\none,two,3,four\n", {}, "has 2 columns text, of which"),
    *((f"a.{ending}", [DATED], NO_COLUMNS, NOT_THERE) for ending in ("csv", "parquet")),
]


@pytest.mark.parametrize(("name", "content", "options", "said"), SAID)
def test_what_may_not_be_meant_is_said(name, content, options, said, tmp_path):
    path = tmp_path / name
    if isinstance(content, list):
        write_rows(path, content)
    elif isinstance(content, dict):
        path.write_text(json.dumps(content, indent=1))
    else:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    notes = FileSource(path, **options).poll(99, 60).notes
    assert (len(notes) == 0) if said is None else said in "; ".join(notes)
