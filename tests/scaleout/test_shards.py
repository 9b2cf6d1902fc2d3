"""What is read: which files and partitions, in which shards, and their rows."""

import json
from contextlib import closing

import dask
import dask.array
import dask.bag
import numpy as np
import pytest
import scipy.sparse

from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidDocumentsError, InvalidSettingError, SourceError
from streamlda.scaleout.shards import (
    Shard,
    batches_of,
    count_rows,
    of_files,
    of_partitions,
    rows_of,
)
from streamlda.stream.blocks import BLOCK_ROWS
from streamlda.stream.counts import RecordCounts
from streamlda.stream.source import open_source
from streamlda.text.vocabulary import Vocabulary


def write_lines(path, texts):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), "utf-8")


@pytest.fixture
def folder(tmp_path):
    """Files in folders, hidden ones among them, named so that order is not that of writing."""
    for number, name in enumerate(["b/2.jsonl", "a.jsonl", "b/10.jsonl", "c.txt", "b/.no.jsonl"]):
        write_lines(tmp_path / name, [f"text {number} {i}" for i in range(3 * number + 1)])
    write_lines(tmp_path / ".hidden" / "x.jsonl", ["never read"])
    return tmp_path


def texts_of(corpus):
    pairs = zip(corpus.shards, corpus.values, strict=True)
    return [text for pair in pairs for rows in rows_of(*pair) for text in rows.texts]


def polled(path):
    with closing(open_source("files", [path])) as source:
        poll = source.poll(100)
        assert source.poll(1).exhausted
        return poll.documents


def test_shards_read_what_one_source_reads_in_its_order(folder):
    for pattern, shards in (("", 1), ("", 3), ("", 64), ("b/*.jsonl", 3), ("c.txt", 3)):
        path = str(folder / pattern)
        corpus = of_files(path, shards=shards)
        assert texts_of(corpus) == polled(path)
        assert 1 <= len(corpus.shards) <= shards
        assert len({shard.name for shard in corpus.shards}) == len(corpus.shards)
    assert texts_of(of_files((folder / "a.jsonl").as_uri())) == polled(str(folder / "a.jsonl"))
    with pytest.raises(SourceError, match="a path must exist"):
        of_files(folder / "missing.jsonl")
    with pytest.raises(InvalidSettingError, match="shards=0"):
        of_files(folder, shards=0)


def test_shards_are_about_equal_and_in_order(tmp_path):
    for number in range(30):
        write_lines(tmp_path / f"{number:02}.jsonl", ["x" * 50] * (1 + 7 * (number % 3)))
    corpus = of_files(tmp_path, shards=4)
    sizes = [sum((tmp_path / p).stat().st_size for p in shard.paths) for shard in corpus.shards]
    assert len(sizes) == 4
    assert max(sizes) < 1.4 * min(sizes)
    names = [name for shard in corpus.shards for name in shard.paths]
    assert names == sorted(names)
    assert len(names) == 30


def test_reading_options_reach_the_connector(tmp_path):
    (tmp_path / "x").write_text('{"a": {"b": "größe"}}\n{"a": {"b": "wide"}}\n', "latin-1")
    how = {"format": "jsonl", "text_field": "a.b", "encoding": "latin-1", "compression": None}
    assert texts_of(of_files(tmp_path / "x", how)) == ["größe", "wide"]
    how["max_document_bytes"] = 20
    assert texts_of(of_files(tmp_path / "x", how)) == [None, "wide"]


def test_records_are_documents_or_slots(tmp_path):
    """A blank row for each record without a document, or none."""
    lines = ['{"text": "one"}', "bad", "", '{"text": "two one one"}', ""]
    (tmp_path / "x.jsonl").write_text("\n".join(lines) + "\n")
    (shard,) = of_files(tmp_path / "x.jsonl").shards
    words, wanted = Vocabulary.given(["one", "two"]), RecordCounts(5, 2, 1, 4, 0)
    wanted.rejects["not-json"] = 1
    for slots, lengths in ((False, [1, 3]), (True, [1, 0, 0, 3, 0])):
        counts = RecordCounts()
        (batch,) = batches_of(shard, None, words, counts, slots=slots)
        assert batch.lengths.tolist() == lengths
        assert counts == wanted
    assert count_rows(shard, None) == 5
    # Any cut gives the same rows, and counts those alone.
    for cut in range(6):
        counts, found = RecordCounts(), []
        for first, last in ((0, cut), (cut, 5)):
            span = {"first": first, "last": last, "slots": True}
            found += batches_of(shard, None, words, counts, **span)
        assert DocumentBatch.joined(found).lengths.tolist() == [1, 0, 0, 3, 0]
        assert counts == wanted
    with pytest.raises(InvalidDocumentsError, match="rows=5 at_least=6"):
        list(rows_of(shard, None, 2, 6))


def test_partitions_of_texts_come_in_blocks():
    texts = [f"text {i}" for i in range(BLOCK_ROWS + 5)]
    for value in (texts, iter(texts)):
        blocks = list(rows_of(Shard("p"), value))
        assert [rows.n_records for rows in blocks] == [BLOCK_ROWS, 5]
        assert [text for rows in blocks for text in rows.texts] == texts


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csc_matrix, DocumentBatch.from_matrix])
def test_partitions_of_counts_are_taken(kind):
    value = kind(np.array([[1, 0, 2], [0, 0, 0], [0, 4, 0]]))
    counts = RecordCounts()
    (batch,) = batches_of(Shard("p"), value, None, counts)
    assert batch.lengths.tolist() == [3, 0, 4]
    assert counts == RecordCounts(3, 3, 1, 7)
    (part,) = rows_of(Shard("p"), value, 1, 3)
    assert part.lengths.tolist() == [0, 4]


def test_other_partitions_are_refused_without_their_text():
    for value in ("secret", [1, 2], ["secret", None], 7, [b"secret"]):
        with pytest.raises(InvalidDocumentsError, match="a list of texts or a matrix") as caught:
            list(rows_of(Shard("p"), value))
        assert "secret" not in str(caught.value)
    with pytest.raises(InvalidDocumentsError, match="read by a vocabulary") as caught:
        list(batches_of(Shard("p"), ["secret words"], None, RecordCounts()))
    assert "secret" not in str(caught.value)


def test_collections_become_a_shard_for_each_partition():
    bag = dask.bag.from_sequence(["a b", "c", "d e"], npartitions=3)
    assert [part.compute() for part in of_partitions(bag).values] == [["a b"], ["c"], ["d e"]]
    delayed = [dask.delayed(list)("ab"), ["c"]]
    corpus = of_partitions(delayed)
    assert [shard.name for shard in corpus.shards] == ["partition 0", "partition 1"]
    assert corpus.values == tuple(delayed)
    rows = of_partitions(dask.array.from_array(np.ones((6, 4)), chunks=(2, 4)))
    assert [part.compute().shape for part in rows.values] == [(2, 4)] * 3
    with pytest.raises(InvalidDocumentsError, match="whole rows"):
        of_partitions(dask.array.from_array(np.ones((6, 4)), chunks=(2, 2)))
    for value in ([], "text", None, 5):
        with pytest.raises(InvalidDocumentsError, match="at least 1"):
            of_partitions(value)
