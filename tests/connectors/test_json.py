"""JSON files: one record for each item of an array, or each line, and what breaks off."""

import gzip
import math
from contextlib import closing

import pytest

from streamlda.stream.source import Reject
from streamlda_connectors.files import FileSource
from tests.connectors.checks import SOURCE_CHECKS, Case


@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
def test_a_folder_passes(check, tmp_path):
    files = {
        "a.json": b' [{"text": "a]b,"}, \n{"text": "c\\"}", "of": [1, {}]},7,{"no": 1}]\n',
        "b.json": b'\n{\n "text": "over\\nlines"\n}\n',
        "c.json.gz": gzip.compress(b'["a", "b"]')[:-9],
        "d.json": b'["cut", "off',
        "i.json": b"[]",
        "j.json": b'{"text": "a line"}\n{"text": "\n{"text": "more"}\n',
        "k.json": b'{"text": "\n{"text": "again"}\n',
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    reasons = [
        *(("a.json", 3, "not-an-object"), ("a.json", 4, "missing-field")),
        ("c.json.gz", 1, "broken-compression"),
        *(("d.json", 1, "not-json"), ("j.json", 2, "not-json"), ("k.json", 1, "not-json")),
    ]
    check(
        Case(
            lambda: FileSource(tmp_path),
            ["a]b,", 'c"}', "over\nlines", "a line", "more", "again"],
            [Reject(str(tmp_path / name), record, reason) for name, record, reason in reasons],
        )
    )


def test_private_files_are_lines_as_one_record_must_not_decide_how_others_are_read(tmp_path):
    (tmp_path / "a.json").write_text('["a", "b"]\n{"text": "a"}\n{\n"text": "b"\n}\n')
    with closing(FileSource(tmp_path, encoding=None)) as source:
        assert source.poll(9).texts == [None, "a", None, None, None]


@pytest.mark.parametrize(
    ("name", "data", "texts", "lost"),
    [
        ("a.json", b'["a", {"text": "b"}]', ["a", "b"], None),
        ("a.json", b'["a", "b', [], 8),
        ("a.csv", b'text\na\n"b', ["a"], 2),
        ("a.csv", b'text\na\n"b\nc\nd"\n', ["a", "b\nc\nd"], None),
    ],
)
def test_what_a_file_loses_by_its_end_is_known(tmp_path, name, data, texts, lost):
    path = tmp_path / name
    path.write_bytes(data)
    with closing(FileSource(path)) as source:
        batch = source.poll(9)
    assert batch.documents == texts
    assert (batch.lost_bytes, len(batch.notes)) == ((0, 0) if lost is None else (lost, 1))
    with gzip.open(f"{path}.gz", "wb") as file:
        file.write(data)
    with closing(FileSource(f"{path}.gz")) as source:
        batch = source.poll(9)
    assert batch.documents == texts
    size = (tmp_path / f"{name}.gz").stat().st_size
    if lost is None:
        assert not batch.lost_bytes
    else:
        part = 1 if lost == len(data) else lost / len(data)
        assert batch.lost_bytes == math.ceil(part * size)
