"""Record slots: replacing one record of a stream leaves every other document at its row."""

import json
import os
import tempfile
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from streamlda.stream.ingest import Ingestion

from streamlda.stream import ingest
from streamlda.text.vocabulary import Vocabulary
from streamlda_connectors import compressed
from streamlda_connectors.files import FileSource
from streamlda_connectors.stdin import StdinSource

#: Document i is its own word, three times.
WORDS = [a + b for a in "abcd" for b in "efgh"]
LONGEST = 40

TOO_LONG = b"word " * LONGEST
BAD_RECORDS = {
    "txt": [b"", b" ", b"\r", b"\xff", b"short", TOO_LONG],
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


def write(path, form, records):
    if form == "parquet":
        table = pa.table({"text": pa.array(records, pa.binary())})
        pq.write_table(table, path, row_group_size=3)
    else:
        header = b"id,text\n" if form == "csv" else b""
        path.write_bytes(header + b"".join(line + b"\n" for line in records))


class Rows:
    """A learner that only notes which document each row holds."""

    def __init__(self):
        self.rows = []

    @property
    def documents_seen(self):
        return len(self.rows)

    def add(self, batch):
        self.rows += [batch.word_ids[a:b].tolist() for a, b in pairwise(batch.row_pointers)]


class InPolls:
    """A source polled in other sizes than it is asked for."""

    def __init__(self, source, sizes):
        self.source, self.sizes = source, sizes

    def poll(self, max_records, timeout_seconds=1.0):
        self.sizes.append(self.sizes.pop(0))
        return self.source.poll(min(max_records, self.sizes[-1]), timeout_seconds)


def rows_of(source, sizes, blanks=True, **options):
    words, learner = Vocabulary.given(WORDS), Rows()
    polls = InPolls(source, list(sizes))
    ingestion = Ingestion(polls, words, lambda _: learner, blanks=blanks, **options)
    ingestion.run()
    source.close()
    return learner.rows, ingestion.counts


def rows_of_files(form, files, sizes, **options):
    with tempfile.TemporaryDirectory() as folder:
        for i, records in enumerate(files):
            write(Path(folder, f"{i}.{form}"), form, records)
        return rows_of(FileSource(folder, max_document_bytes=LONGEST), sizes, **options)


def rows_of_pipe(form, files, sizes, **options):
    with ExitStack() as opened:
        reading, writing = os.pipe()
        stream = opened.enter_context(os.fdopen(reading, "rb"))
        with os.fdopen(writing, "wb") as writer:
            writer.write(b"".join(line + b"\n" for records in files for line in records))
        name = "text" if form == "txt" else form
        source = StdinSource(stream, format=name, max_document_bytes=LONGEST)
        return rows_of(source, sizes, **options)


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
    [*((rows_of_files, form) for form in BAD_RECORDS), (rows_of_pipe, "txt"),
     (rows_of_pipe, "jsonl")],
)  # fmt: skip
@given(data=st.data())
def test_replacing_a_record_moves_no_other(read, form, data):
    (records, replaced), at = data.draw(streams(form))
    with (
        patch.object(compressed, "BLOCK_BYTES", data.draw(st.integers(1, 60), "block")),
        patch.object(ingest, "BLOCK_DOCUMENTS", data.draw(st.integers(1, 9), "documents")),
        patch.object(ingest, "BLOCK_CHARACTERS", data.draw(st.integers(1, 60), "characters")),
    ):
        before, counts = read(form, records, data.draw(sizes_of_polls, "sizes"))
        after, counts_after = read(form, replaced, data.draw(sizes_of_polls, "other sizes"))
    assert len(before) == len(after) == sum(map(len, records))
    assert before[at] == [at]
    assert after[at] == []
    assert before[:at] + before[at + 1 :] == after[:at] + after[at + 1 :]
    # A row that holds a document holds the one of its own number.
    assert all(row in ([], [i]) for i, row in enumerate(before))
    assert counts.places == counts_after.places == len(before)


def test_without_blanks_documents_do_move():
    files = [[record("jsonl", f"{word} {word} {word}") for word in WORDS]]
    replaced = [[b"{", *files[0][1:]]]
    assert rows_of_files("jsonl", files, [9], blanks=False)[0][1] == [1]
    assert rows_of_files("jsonl", replaced, [9], blanks=False)[0][1] == [2]
    assert rows_of_files("jsonl", replaced, [9])[0][1] == [1]


@pytest.mark.parametrize("size", [1, 2, 3, 100])
@pytest.mark.parametrize("form", BAD_RECORDS)
def test_max_documents_counts_records(form, size):
    good = [record(form, f"{word} {word} {word}") for word in WORDS]
    for bad in BAD_RECORDS[form]:
        files = [[good[0], bad, bad], [bad, good[4], good[5], good[6]]]
        rows, counts = rows_of_files(form, files, [size], max_documents=5)
        assert rows == [[0], [], [], [], [4]]
        assert counts.places == 5
        assert counts.documents == 2 + counts.short
        assert counts.blanks + counts.short == 3
        assert counts.rejects.total() <= counts.blanks
