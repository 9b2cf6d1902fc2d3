"""Shapes of exports: several fields of text, records inside an object, names that are not there."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamlda.errors import InvalidSettingError, SourceError
from streamlda_connectors.files import FileSource
from streamlda_connectors.lines import find_records
from tests.connectors.test_files import drain

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
    source = FileSource(path, text_field="body", records_field=field)
    assert source.poll(1, 10).texts == ["cat and dog"]
    position = source.position()
    source.close()
    source = FileSource(path, text_field="body", records_field=field)
    source.seek(position)
    assert drain(source) == (["sea"], [])
    assert drain(FileSource(path, text_field="body", records_field="docs"))[1] == [
        (1, "no-records")
    ]
    # An array that breaks off is damage.
    path.write_text(json.dumps(content)[: json.dumps(content).index("sea")])
    texts, rejects = drain(FileSource(path, text_field="body", records_field=field))
    assert (texts, [reason for _, reason in rejects]) == (["cat and dog"], ["not-json"])


def test_records_inside_lines_are_refused(tmp_path):
    (tmp_path / "a.jsonl").write_text("{}")
    with pytest.raises(InvalidSettingError, match="in the format json, got format='jsonl'"):
        FileSource(tmp_path / "a.jsonl", records_field="data")


def test_a_key_inside_a_string_begins_no_records():
    body = json.dumps({"a": 'x "data": [', "b": {"data": [7]}, "data": [1]}).encode()
    assert body[find_records(body, "data") :] == b"1]}"
    assert find_records(body, "c") == -1


@pytest.mark.parametrize(
    ("header", "says"),
    [
        ("id,Text", "did you mean 'Text'"),
        ("id, txt ", "did you mean ' txt '"),
        ("T1,ok lets meet at nine", "is there a header?"),
    ],
)
def test_a_column_that_is_missing_is_said_with_what_to_do(header, says, tmp_path):
    (tmp_path / "a.csv").write_text(f"{header}\n1,one\n")
    with pytest.raises(SourceError, match="text_field") as told:
        FileSource(tmp_path / "a.csv")
    assert says in str(told.value)
    assert "meet" not in str(told.value)
