"""Lines and rows of CSV are the same wherever blocks end."""

import bz2
import csv
import gzip
import lzma
from itertools import pairwise

import zstandard
from hypothesis import given
from hypothesis import strategies as st

from streamlda_connectors.lines import CsvSplitter, LineSplitter, RecordStream
from streamlda_connectors.records import BatchBuilder, Skipped

COMPRESS = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstandard.compress,
}


def pieces(data, cuts):
    bounds = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[start:stop] for start, stop in pairwise(bounds)]


def fed_in_pieces(splitter, data, cuts):
    records = [record for piece in pieces(data, cuts) for record in splitter.feed(piece)]
    return [*records, *splitter.finish()]


cuts = st.lists(st.integers(0, 60), max_size=6)


@given(data=st.binary(max_size=60) | st.text("a\n\r", max_size=60).map(str.encode), cuts=cuts)
def test_lines_equal_split_for_any_blocks(data, cuts):
    limit = 4
    lines = data.removesuffix(b"\n").split(b"\n") if data else []
    expected = [x if len(x) <= limit else Skipped(len(x), "too-long") for x in lines]
    assert fed_in_pieces(LineSplitter(limit), data, cuts) == expected


@given(text=st.text('ab",\n', max_size=60), cuts=cuts)
def test_csv_records_equal_the_standard_reader_for_any_blocks(text, cuts):
    # The standard reader is handed lines; those it takes for one row make up one record.
    lines = text.splitlines(keepends=True)
    reader = csv.reader(lines)
    expected, taken = [], 0
    for _ in reader:
        expected.append("".join(lines[taken : reader.line_num]).removesuffix("\n"))
        taken = reader.line_num
    records = fed_in_pieces(CsvSplitter(1000, ","), text.encode(), cuts)
    # Only where a last quote never closes do they differ: in its line end.
    assert [r.decode().removesuffix("\n") for r in records] == [
        x.removesuffix("\n") for x in expected
    ]


@given(data=st.binary(max_size=40), cuts=cuts)
def test_offset_reaches_the_end_of_what_was_fed(data, cuts):
    stream, fed = RecordStream("x", LineSplitter(5), lambda line: None), 0
    for piece in pieces(data, cuts):
        stream.feed(piece)
        fed += len(piece)
        stream.take(BatchBuilder(1000, 1.0))
        assert stream.offset <= fed
    stream.finish()
    stream.take(BatchBuilder(1000, 1.0))
    assert stream.offset == len(data)
