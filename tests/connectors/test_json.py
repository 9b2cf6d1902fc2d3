"""JSON in arrays or over several lines: one record for each item, wherever blocks end."""

import gzip
import json
import math
from contextlib import closing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.stream.source import Reject
from streamlda_connectors.files import FileSource
from streamlda_connectors.json_files import JsonSplitter
from tests.connectors.checks import SOURCE_CHECKS, Case


@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
def test_a_folder_passes(check, tmp_path):
    files = {
        "a.json": b' [{"text": "a]b,"}, \n{"text": "c\\"}", "of": [1, {}]},7,{"no": 1}]\n',
        "b.json": b'\n{\n "text": "over\\nlines"\n}\n{"text":\n"again"}\n',
        "i.json": b"[]",
        "j.json": b'{"text": "a line"}\n{"text": "',
    }
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    reasons = [
        *(("a.json", 3, "not-an-object"), ("a.json", 4, "missing-field")),
        ("j.json", 2, "not-json"),
    ]
    check(
        Case(
            lambda: FileSource(tmp_path),
            ["a]b,", 'c"}', "over\nlines", "again", "a line"],
            [Reject(str(tmp_path / name), record, reason) for name, record, reason in reasons],
            blank_lines=2,
        )
    )


@pytest.mark.parametrize(
    ("name", "data", "texts", "lost"),
    [
        ("a.json", b'["a", {"text": "b"}]', ["a", "b"], None),
        ("a.json", b'["a", "b"]\n', ["a", "b"], None),
        ("a.json", b'["a"]]', ["a"], 1),
        ("a.json", b'["a"] more', ["a"], 5),
        ("a.json", b'["a", "b', ["a"], 3),
        ("a.json", b'["a", ', ["a"], 1),
        ("a.json", b'[{"text": "a"}, {"text": "b", {"text": "c"}]', ["a"], 29),
        ("a.json", b'{\n"text": "a"}\n{"text":', ["a"], 8),
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


def pieces(splitter, data, cuts):
    """Feed data in pieces; return the records."""
    ends = sorted({min(cut, len(data)) for cut in cuts} | {len(data)})
    found = []
    for start, end in zip([0, *ends], ends, strict=False):
        found += splitter.feed(data[start:end]) if end > start else []
    return found + list(splitter.finish())


NAMES = st.sampled_from(["a", '"', "]}", "\\"])
JSON = st.recursive(
    st.text(st.sampled_from('a"\\]}[{,\n'), max_size=5) | st.integers(),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(NAMES, inner, max_size=2),
    max_leaves=6,
)
CUTS = st.lists(st.integers(0, 80), max_size=12)


@given(st.lists(JSON, min_size=1, max_size=4), CUTS, st.sampled_from([None, 0, 2]))
def test_an_array_is_cut_into_its_items(items, cuts, indent):
    data = json.dumps(items, indent=indent).encode()[1:] + b"\n"
    for ends in (cuts, range(len(data))):
        found = pieces(JsonSplitter(10**6, array=True), data, ends)
        assert [json.loads(item) for item in found] == items


@given(st.lists(st.dictionaries(NAMES, JSON, max_size=2), min_size=1, max_size=3), CUTS)
def test_objects_over_lines_are_cut_between_them(items, cuts):
    data = b"".join(json.dumps(item, indent=1).encode() + b"\n" for item in items)
    found = pieces(JsonSplitter(10**6, array=False), data, cuts)
    assert [json.loads(item) for item in found] == items
