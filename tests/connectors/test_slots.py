"""Record slots: replacing one record of a stream leaves every other document at its row."""

import json
import os
import tempfile
from contextlib import closing
from itertools import cycle, pairwise
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.learner import Learner
from streamlda.stream.pipeline import Pipeline
from streamlda.text.vocabulary import Vocabulary
from streamlda_connectors import compressed
from streamlda_connectors.files import FileSource
from streamlda_connectors.stdin import StdinSource

#: Document i is its own word, three times.
WORDS = [a + b for a in "abcd" for b in "efgh"]
LONGEST = 40

TOO_LONG = b"word " * LONGEST
BAD_RECORDS = {
    "text": [b"", b" ", b"\r", b"\xff", b"short", TOO_LONG],
    "jsonl": [
        *(b"", b" ", b"{", b"[]", b"{}", b'{"text": 3}', b'{"text": null}', b'{"text": ""}'),
        *(b'{"text": "short"}', b'{"text": "\xff"}', TOO_LONG),
    ],
    "csv": [b"", b" ", b"\r", b",", b"a,b,c", b"7,", b"\xff,1", b"7,short", TOO_LONG],
    "parquet": [None, b"", b"\xff", b"short", TOO_LONG],
}


def record(form, text):
    if form == "jsonl":
        return json.dumps({"text": text}).encode()
    return (f"7,{text}" if form == "csv" else text).encode()


def as_lines(records):
    return b"".join(line + b"\n" for line in records)


class Rows(Learner):
    def __init__(self, counts_slots):
        self.rows, self.counts_slots = [], counts_slots

    def add(self, batch, users=None, /):
        self.rows += [batch.word_ids[a:b].tolist() for a, b in pairwise(batch.row_pointers)]
        return batch.n_documents

    def release(self, vocabulary=None, settings=None):
        return None


def rows_of(source, sizes, counts_slots=True):
    learner = Rows(counts_slots)
    pipeline = Pipeline(Vocabulary.given(WORDS), lambda words, first: learner)
    with closing(source):
        for size in cycle(sizes):
            batch = source.poll(size)
            pipeline.add(batch)
            if batch.exhausted:
                break
    pipeline.flush()
    return learner.rows, pipeline.counts


def rows_of_files(form, files, sizes, **options):
    with tempfile.TemporaryDirectory() as folder:
        for i, records in enumerate(files):
            path = Path(folder, f"{i}.{form}")
            if form == "parquet":
                table = pa.table({"text": pa.array(records, pa.binary())})
                pq.write_table(table, path, row_group_size=3)
            else:
                path.write_bytes((b"id,text\n" if form == "csv" else b"") + as_lines(records))
        return rows_of(FileSource(f"{folder}/*", max_document_bytes=LONGEST), sizes, **options)


def rows_of_pipe(form, files, sizes):
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        with os.fdopen(writing, "wb") as writer:
            writer.write(as_lines(files[0] + files[1]))
        return rows_of(StdinSource(stream, format=form, max_document_bytes=LONGEST), sizes)


@st.composite
def streams(draw, form):
    """Records of one or more files, mostly documents, and where one of them is replaced."""
    bad = st.sampled_from(BAD_RECORDS[form])
    n = draw(st.integers(1, len(WORDS)))
    good = [record(form, f"{word} {word} {word}") for word in WORDS[:n]]
    records = [draw(bad) if draw(st.integers(0, 3)) == 0 else document for document in good]
    at = draw(st.integers(0, n - 1))
    records[at] = good[at]
    cut = draw(st.integers(0, n))
    replaced = [*records[:at], draw(bad), *records[at + 1 :]]
    return [[stream[:cut], stream[cut:]] for stream in (records, replaced)], at


sizes_of_polls = st.lists(st.integers(1, 20), min_size=1, max_size=5)


@pytest.mark.parametrize(
    ("read", "form"),
    [*((rows_of_files, form) for form in BAD_RECORDS), (rows_of_pipe, "text"),
     (rows_of_pipe, "jsonl")],
)  # fmt: skip
@given(data=st.data())
def test_replacing_a_record_moves_no_other(read, form, data):
    (records, replaced), at = data.draw(streams(form))
    with patch.object(compressed, "BLOCK_BYTES", data.draw(st.integers(1, 60), "block")):
        before, counts = read(form, records, data.draw(sizes_of_polls, "sizes"))
        after, counts_after = read(form, replaced, data.draw(sizes_of_polls, "other sizes"))
    assert len(before) == len(after) == sum(map(len, records))
    assert before[at] == [at]
    assert after[at] == []
    assert before[:at] + before[at + 1 :] == after[:at] + after[at + 1 :]
    # A row that holds a document holds the one of its own number.
    assert all(row in ([], [i]) for i, row in enumerate(before))
    assert counts.records == counts_after.records == len(before)


@pytest.mark.parametrize("form", ["text", "jsonl", "csv"])
def test_a_quote_that_is_not_closed_moves_records_of_csv_and_of_no_other_form(form):
    records = [record(form, f"{word} {word} {word}") for word in WORDS]
    for quote in (b'"', b'7,"', b'7,a"', b'{"text": "', b'{"text": "x", "'):
        rows, counts = rows_of_files(form, [[quote, *records[1:]]], [9])
        moves = rows != [[], *([i] for i in range(1, len(records)))]
        assert (
            moves == (counts.records != len(records)) == (form == "csv" and quote in (b'"', b'7,"'))
        )
