"""Shapes of exports: several fields of text, records inside an object, names that are not there."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamlda.errors import SourceError
from streamlda_connectors import compressed
from streamlda_connectors.files import FileSource
from tests.connectors.test_files import drain, resumed

ROWS = [
    {"id": "1", "title": "red", "body": "cat and dog"},
    {"id": "2", "title": None, "body": "sea"},
    {"id": "3", "title": None, "body": None},
]
TEXTS = ["red\ncat and dog", "sea"]


def write_rows(path, rows):
    """Write rows as the ending of a file says."""
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
    write_rows(path, [{"title,body": "a whole name", "body": "x"}])
    assert ending == "csv" or drain(FileSource(path, text_field="title,body"))[0] == [
        "a whole name"
    ]


def test_a_record_without_any_of_the_fields_is_rejected(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"title": "one"}\n{"other": "two"}\n{"title": 7}\n')
    source = FileSource(tmp_path / "a.jsonl", text_field="title,body")
    assert drain(source) == (["one"], [(2, "missing-field"), (3, "not-text")])


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
    assert source.poll(1, 10).texts == ["cat and dog"]
    assert drain(resumed(source, path, **options)) == (["sea"], [])
    none = [(1, "no-records")]
    assert drain(FileSource(path, **options | {"records_field": "docs"}))[1] == none
    top = field.partition(".")[0]
    notes = FileSource(path, **options | {"records_field": top.title()}).poll(9).notes
    assert f"has no such array (--records-field): did you mean '{top}'?" in "; ".join(notes)
    path.write_text(json.dumps(content)[:-1])
    assert drain(FileSource(path, **options)) == ([], none)
    assert "no such array" not in str(FileSource(path, **options).poll(9).notes)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ({"meta": {}, "data": ROWS[:2]}, "--records-field data"),
        ({"meta": {}, "response": {"n": 2, "items": ROWS[:2]}}, "--records-field response.items"),
        ({"two words of a text": ROWS[:2]}, "--records-field <19 characters>"),
        ({"body": "sea", "comments": ROWS[:2]}, ""),
        ({"data": [1, 2], "more": []}, ""),
    ],
)
def test_an_array_of_records_that_was_not_named_is_said(content, says, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(content, indent=1))
    notes = FileSource(tmp_path / "a.json", text_field="body").poll(9, 10).notes
    assert [says in note for note in notes if says] == [True] * bool(says)
    assert bool(notes) == bool(says)


OBJECTS = [
    {"body": 'one "\\" {', "of": [{}, "]"]},
    {"body": "x" * 300, "of": [{}]},
    {"body": "two"},
]


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


@pytest.mark.parametrize(
    "content",
    [
        {"body": "one", "tags": {"body": {"a": "b"}}},
        {"body": ["one", "two"], "title": "x"},
        {"title": "x", "more": "y"},
    ],
)
def test_an_object_that_is_no_table_is_one_record(content, tmp_path):
    (tmp_path / "a.json").write_text(json.dumps(content))
    assert FileSource(tmp_path / "a.json", text_field="body").poll(9).n_records == 1


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
    poll = resumed(source, tmp_path / "a.csv", **given).poll(9)
    texts = [text for text in first.texts + poll.texts if text]
    assert (texts, poll.rejects) == (["one", "two"], [])
    assert [at.id for at in first.locations + poll.locations if at.id][:2] == ["1", "2"]
    rows = FileSource(tmp_path / "a.csv", text_field=fields[0], as_rows=True).poll(9).texts
    assert [json.loads(row)[2] for row in rows][:2] == [fields[0], "one"]
    assert len(rows) == 1 + len(first.texts + poll.texts)


def test_classes_are_any_numbers_and_users_are_not(tmp_path):
    rows = [{"text": "x", "user": value} for value in (4, 4.0, 4.5, True, None, "7")]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))
    columns = {"text": ["x", "y"], "user": [4.0, None]}
    pq.write_table(pa.table(columns), tmp_path / "b.parquet")
    classes, users = (
        [
            FileSource(tmp_path / name, user_field="user", has_classes=are).poll(9).users
            for name in ("a.jsonl", "b.parquet")
        ]
        for are in (True, False)
    )
    assert classes == [["4", "4", "4.5", "True", None, "7"], ["4", None]]
    assert users == [["4", None, None, None, None, "7"], [None, None]]


def test_words_for_a_null_are_names_of_classes_and_no_texts(tmp_path):
    names = ("NA", "None", "nan", "", "\\N")
    (tmp_path / "a.csv").write_text("text,by\n" + "".join(f"{name},{name}\n" for name in names))
    poll = FileSource(tmp_path / "a.csv", user_field="by", id_field="by").poll(9)
    assert poll.texts == [""] * 5
    assert poll.users == [at.id for at in poll.locations] == ["NA", "None", "nan", None, None]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_columns_that_are_not_there_or_there_twice_are_said(ending, tmp_path):
    write_rows(tmp_path / f"a.{ending}", [{"id": "1", "text": "one", "Date": "2025"}])
    source = FileSource(tmp_path, time_field="date", user_field="who", id_field="id")
    note = source.poll(9).notes[0]
    assert note.endswith(" has no column who and has no column date: did you mean 'Date'?")
    (tmp_path / f"a.{ending}").unlink()
    (tmp_path / "b.csv").write_text("text, text ,id,text\none,two,3,four\n")
    poll = FileSource(tmp_path).poll(9)
    assert poll.texts == ["one"]
    assert poll.notes[0].endswith("has 2 columns text, of which the first is read")


LISTS = [["late", "parcel"], ["a link ", {"type": "link", "text": "to a page"}], [], ["x", 7]]


def test_lists_of_words_or_pieces_are_texts(tmp_path):
    (tmp_path / "a.json").write_text(json.dumps([{"text": each} for each in LISTS]))
    assert drain(FileSource(tmp_path / "a.json")) == (
        ["late parcel", "a link  to a page", ""],
        [(4, "not-text")],
    )
    pq.write_table(pa.table({"text": [LISTS[0], None]}), tmp_path / "b.parquet")
    assert drain(FileSource(tmp_path / "b.parquet")) == (["late parcel"], [])


def test_an_archive_of_javascript_is_json_if_that_is_named(tmp_path):
    posts = [{"tweet": {"full_text": "one"}}, {"tweet": {"full_text": "two"}}]
    (tmp_path / "a.js").write_text(f"window.YTD.tweets.part0 = {json.dumps(posts, indent=1)};\n")
    options = {"text_field": "tweet.full_text"}
    assert drain(FileSource(tmp_path / "a.js", format="json", **options)) == (["one", "two"], [])
    (note,) = FileSource(tmp_path / "a.js", **options).poll(99).notes
    assert "is read as lines of text: name the format" in note


@pytest.mark.parametrize("header", ["id\ttext", '"text";"id"', "text,id"])
def test_a_table_that_is_read_as_lines_is_said(header, tmp_path):
    (tmp_path / "a.txt").write_text(f"{header}\n1,one\n")
    (note,) = FileSource(tmp_path / "a.txt").poll(9).notes
    assert "is read as lines of text" in note
    (tmp_path / "a.txt").write_text("a text, of course\n")
    assert FileSource(tmp_path / "a.txt").poll(9).notes == ()


def test_a_header_of_an_encoding_that_is_not_known_is_said(tmp_path):
    (tmp_path / "a.csv").write_bytes("id;numéro à vérifier;text\n1;2;x\n".encode("cp1252"))
    poll = FileSource(tmp_path / "a.csv").poll(9)
    assert [each.reason for each in poll.rejects] == ["not-utf8"]
    assert "cp1252" in " ".join(poll.notes)


@pytest.mark.parametrize("text", ["C:\\", "C:\\Users\\new", "C:\\temp\\new", "\\\\nas\\b: \\nu"])
def test_backslashes_that_escape_nothing_stay(text, tmp_path):
    (tmp_path / "a.tsv").write_text(f"text\tid\n{text}\t1\nmore\t\\\n{text}\t3\n")
    assert drain(FileSource(tmp_path / "a.tsv")) == ([text, "more", text], [])


def test_quotes_that_are_escaped_and_doubled_are_not_mixed_up(tmp_path):
    (tmp_path / "a.csv").write_text('body\n"a \\""b"\n"c ""d"" e\\"\n')
    assert drain(FileSource(tmp_path / "a.csv", text_field="body")) == (['a \\"b', 'c "d" e\\'], [])


def test_files_of_folders_are_chosen_by_patterns(tmp_path):
    for name in ("a.json", "b.md", "sub/c.json"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text('{"text": "one"}')
    (tmp_path / "d.pkl").write_bytes(b"\x80\x04\x95\0")
    assert len(drain(FileSource(tmp_path, include=["*.json"]))[0]) == 2
    assert len(drain(FileSource(tmp_path, include=["sub/*", "*.md"]))[0]) == 2
    with pytest.raises(SourceError, match=r"include=\['\*.csv'\]"):
        FileSource(tmp_path, include=["*.csv"])


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("id,Text", "did you mean 'Text'"),
        ("id, txt ", "did you mean 'txt'"),
        ("T1,ok lets meet at nine", "remove lines above the header"),
        ("My export,,", "columns=['My export', '<0 char"),
        ("sep=;\nid;texts", "remove lines above the header"),
    ],
)
def test_a_column_that_is_missing_is_said_with_what_to_do(header, says, tmp_path):
    (tmp_path / "a.csv").write_text(f"{header}\n1,one\n")
    with pytest.raises(SourceError, match="text_field") as told:
        FileSource(tmp_path / "a.csv")
    assert says in str(told.value)
    assert "meet" not in str(told.value)


@pytest.mark.parametrize(
    ("name", "lines", "text"),
    [
        ("a.csv", "text,x;text\n1,2;3\n", "1"),
        ("a.csv", "x\ttext\ty;z\n1\t2,5;6\t7\n", "2,5;6"),
        ("a.tsv", "text,x\ttext\n1,2\t3\n", "3"),
        ("a.csv", "x;y|text\n1;2|3\n", "3"),
    ],
    ids=["comma", "tab", "tab of tsv", "bar"],
)
def test_the_first_delimiter_that_has_the_text_is_taken(tmp_path, name, lines, text):
    (tmp_path / name).write_text(lines, "ascii")
    assert drain(FileSource(tmp_path / name)) == ([text], [])


@pytest.mark.parametrize("sign", [";", "\t", "|"])
@pytest.mark.parametrize("above", ["id{}text\n", "A title\n\nid{}text\n", ""])
def test_a_comma_in_a_row_is_no_header_below_titles(tmp_path, sign, above):
    rows = "".join(f"{i}{sign}{text}\n" for i, text in enumerate(("one here", "two, there")))
    (tmp_path / "a.csv").write_text(above.format(sign) + rows)
    source = FileSource(tmp_path / "a.csv", text_field="text" if above else "2")
    assert drain(source) == (["one here", "two, there"], [])
