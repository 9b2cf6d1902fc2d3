"""Wherever reading stops and whatever the block and batch sizes: the rest is exactly the rest."""

import bz2
import csv
import gzip
import io
import json
import lzma
import tempfile
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from streamlda_connectors import compressed, parquet
from streamlda_connectors.csv_files import NULLS, CsvSplitter, Dialect
from streamlda_connectors.files import FileSource
from streamlda_connectors.records import Skip

COMPRESS = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}
FORMATS = [*(f"txt{ending}" for ending in COMPRESS), "jsonl.zst", "csv", "csv.gz", "tsv", "parquet"]

any_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
awkward_text = st.text(st.sampled_from('ab",\t\n\r \0é\ufeff'), max_size=12)
texts_of_files = st.lists(st.lists(any_text | awkward_text, max_size=12), min_size=1, max_size=3)


def write(path, texts):
    """Write `texts` in the format of the name; return the documents they must come back as."""
    format, _, ending = path.name.partition(".")[2].partition(".")
    if format == "parquet":
        pq.write_table(pa.table({"text": pa.array(texts, pa.string())}), path, row_group_size=3)
        return texts
    if format == "txt":
        texts = [text.replace("\n", " ").rstrip("\r") for text in texts]
        # A mark at the very start would be one of the file.
        data = "\n".join(texts).lstrip("\ufeff").encode()
        lines = data.decode().split("\n" if b"\n" in data else "\r")
        texts = [text for text in lines if text and not text.isspace()]
    elif format == "jsonl":
        data = "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()
    else:
        table = io.StringIO(newline="")
        delimiter = "\t" if format == "tsv" else ",;|"[len(texts) % 3]
        writer = csv.writer(table, delimiter=delimiter, quoting=csv.QUOTE_ALL)
        writer.writerow(["id", "text"])
        writer.writerows([i, text] for i, text in enumerate(texts))
        data = table.getvalue().encode()
        texts = ["" if text in NULLS else text for text in texts]
    # In two parts: compressed files may be made of several streams.
    half = len(data) // 2
    compress = COMPRESS["." + ending if ending else ""]
    path.write_bytes(compress(data[:half]) + compress(data[half:]))
    return texts


@pytest.mark.parametrize("format", FORMATS)
@given(contents=texts_of_files, data=st.data())
def test_resume_anywhere_gives_the_rest(format, contents, data):
    sizes = st.integers(1, 9)
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(compressed, "BLOCK_BYTES", data.draw(st.integers(1, 40), "block")),
        patch.object(compressed, "SLICE_BYTES", data.draw(st.integers(1, 9), "slice")),
        patch.object(parquet, "PARQUET_RUN_ROWS", data.draw(st.integers(1, 5), "rows")),
    ):
        expected = []
        for i, texts in enumerate(contents):
            expected += write(Path(folder, f"{i}.{format}"), texts)
        seen = []
        # NULs between other signs would be taken for UTF-16.
        source = FileSource(f"{folder}/*", encoding="utf-8")
        while not (poll := source.poll(data.draw(sizes, "batch"))).exhausted:
            seen += poll.documents
            assert poll.rejects == []
            if data.draw(st.booleans(), "reopen"):
                position = json.loads(json.dumps(source.position()))
                source.close()
                source = FileSource(f"{folder}/*", encoding="utf-8")
                source.seek(position)
        source.close()
        assert seen + poll.documents == expected


@given(text=st.text('ab",\n', max_size=60), cuts=st.lists(st.integers(0, 60), max_size=6))
def test_csv_records_equal_the_standard_reader_for_any_blocks(text, cuts):
    # The standard reader is handed lines; those it takes for one row make up one record.
    lines = text.splitlines(keepends=True)
    reader = csv.reader(lines)
    expected, taken = [], 0
    for _ in reader:
        expected.append("".join(lines[taken : reader.line_num]).removesuffix("\n"))
        taken = reader.line_num
    splitter, bounds = CsvSplitter(1000, Dialect(",")), [0, *sorted(cuts), 60]
    pieces = (text.encode()[start:stop] for start, stop in pairwise(bounds))
    records = [record for piece in pieces for record in splitter.feed(piece)]
    records += splitter.finish()
    # Only a last record whose quote never closes is none.
    if records and isinstance(records[-1], Skip):
        size, reason = records.pop()
        assert (size - len(expected.pop()) in (0, 1), reason) == (True, "broken-csv")
    assert [record.decode() for record in records] == expected


@pytest.mark.parametrize("ending", [".bz2", ".xz", ".zst"])
def test_streams_behind_zeros_are_read_and_damaged_ones_are_counted(ending, tmp_path):
    path, one, two = tmp_path / f"a.txt{ending}", *map(COMPRESS[ending], (b"one\n", b"two\n"))
    path.write_bytes(one + bytes(40) + two + bytes(20000))
    assert FileSource(path).poll(9).documents == ["one", "two"]
    path.write_bytes(one + b"?" + two)
    batch = FileSource(path).poll(9)
    assert batch.documents == ["one"]
    assert [each.reason for each in batch.rejects] == ["broken-compression"]
    assert batch.lost_bytes > 0
