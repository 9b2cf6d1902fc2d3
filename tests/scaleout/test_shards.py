"""What is read: which files and partitions, in which shards, and their rows."""

import json

import numpy as np
import pytest
import scipy.sparse
from streamlda.stream.ingest import BLOCK_DOCUMENTS, Counts

from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidDocumentsError, InvalidSettingError, SourceError
from streamlda.scaleout.shards import Reading, Shard, of_files, of_partitions, rows_of
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


def polled(paths):
    source = open_source("files", paths)
    texts, ended = [], False
    while not ended:
        poll = source.poll(100)
        texts += poll.documents
        ended = poll.exhausted
    source.close()
    return texts


@pytest.mark.parametrize("shards", [1, 2, 3, 64])
@pytest.mark.parametrize("pattern", ["", "b", "*", "b/*.jsonl", "c.txt"])
def test_shards_read_what_one_source_reads_in_its_order(folder, pattern, shards):
    path = str(folder / pattern)
    corpus = of_files(path, shards=shards)
    assert texts_of(corpus) == polled([path])
    assert 1 <= len(corpus.shards) <= shards
    assert len({shard.name for shard in corpus.shards}) == len(corpus.shards)


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


def test_a_file_url_is_read(folder):
    assert texts_of(of_files((folder / "a.jsonl").as_uri())) == polled([str(folder / "a.jsonl")])


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["missing.jsonl"], "a path must exist"),
        (["a.jsonl", "*.jsonl"], "each file must be named once"),
        (["*.nothing"], "must contain files"),
        ([], "at least 1 path"),
    ],
)
def test_bad_paths_are_refused(folder, names, wanted):
    with pytest.raises(SourceError, match=wanted):
        of_files([folder / name for name in names])


def test_no_shard_is_refused(folder):
    with pytest.raises(InvalidSettingError, match="shards=0"):
        of_files(folder, shards=0)


def test_reading_options_reach_the_connector(tmp_path):
    (tmp_path / "x").write_text('{"a": {"b": "größe"}}\n', "latin-1")
    how = Reading(format="jsonl", text_field="a.b", encoding="latin-1", compression=None)
    assert texts_of(of_files(tmp_path / "x", how)) == ["größe"]


def test_blanks_keep_every_record_at_its_place(tmp_path):
    (tmp_path / "x.jsonl").write_text('{"text": "one"}\nbad\n\n{"text": "two"}\n\n')
    corpus = of_files(tmp_path / "x.jsonl")
    (plain,) = rows_of(corpus.shards[0], None)
    (placed,) = rows_of(corpus.shards[0], None, blanks=True)
    assert plain.texts == ["one", "two"]
    assert placed.texts == ["one", "", "", "two", ""]
    assert (len(placed), placed.blanks) == (5, 3)
    assert plain.rejects == placed.rejects == {"not-json": 1}
    counts = Counts()
    batch = placed.encoded(Vocabulary.given(["one", "two"]), counts)
    assert batch.n_documents == 5
    assert (counts.documents, counts.blanks, counts.short, counts.tokens) == (2, 3, 2, 2)


def test_partitions_of_texts_come_in_blocks():
    texts = [f"text {i}" for i in range(BLOCK_DOCUMENTS + 5)]
    for value in (texts, iter(texts), tuple(texts)):
        blocks = list(rows_of(Shard("p"), value))
        assert [len(rows) for rows in blocks] == [BLOCK_DOCUMENTS, 5]
        assert [text for rows in blocks for text in rows.texts] == texts


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csc_matrix, DocumentBatch.from_matrix])
def test_partitions_of_counts_are_taken(kind):
    counts = np.array([[1, 0, 2], [0, 0, 0], [0, 4, 0]])
    (rows,) = rows_of(Shard("p"), kind(counts))
    counted = Counts()
    batch = rows.encoded(None, counted)
    assert batch.lengths.tolist() == [3, 0, 4]
    assert (counted.documents, counted.short, counted.tokens) == (3, 1, 7)
    assert rows.slice(1, 3).encoded(None, Counts()).lengths.tolist() == [0, 4]


@pytest.mark.parametrize("value", ["one text", [1, 2], ["a", None], 7, [b"x"]])
def test_other_partitions_are_refused_without_their_text(value):
    with pytest.raises(InvalidDocumentsError, match="a list of texts or a matrix") as caught:
        list(rows_of(Shard("p"), value))
    assert "one text" not in str(caught.value)


def test_texts_without_a_vocabulary_are_refused():
    (rows,) = rows_of(Shard("p"), ["secret words"])
    with pytest.raises(InvalidDocumentsError, match="read by a vocabulary") as caught:
        rows.encoded(None, Counts())
    assert "secret" not in str(caught.value)
    assert "secret" not in repr(rows)


def test_collections_become_a_shard_for_each_partition():
    import dask
    import dask.bag

    bag = dask.bag.from_sequence(["a b", "c", "d e"], npartitions=3)
    assert len(of_partitions(bag).shards) == 3
    assert [part.compute() for part in of_partitions(bag).values] == [["a b"], ["c"], ["d e"]]
    delayed = [dask.delayed(list)("ab"), ["c"]]
    corpus = of_partitions(delayed)
    assert [shard.name for shard in corpus.shards] == ["partition 0", "partition 1"]
    assert corpus.values == tuple(delayed)


def test_an_array_must_be_in_blocks_of_whole_rows():
    import dask.array as array

    counts = np.ones((6, 4))
    rows = of_partitions(array.from_array(counts, chunks=(2, 4)))
    assert [part.compute().shape for part in rows.values] == [(2, 4)] * 3
    with pytest.raises(InvalidDocumentsError, match="whole rows"):
        of_partitions(array.from_array(counts, chunks=(2, 2)))


@pytest.mark.parametrize("value", [[], "text", None, 5])
def test_no_partitions_are_refused(value):
    with pytest.raises(InvalidDocumentsError, match="at least 1"):
        of_partitions(value)
