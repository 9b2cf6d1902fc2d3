"""Shards: their files and partitions, and their rows."""

import gzip
import tempfile
from contextlib import closing
from itertools import chain
from pathlib import Path

import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import settings as examples
from hypothesis import strategies as st

from streamlda.errors import InvalidDocumentsError, InvalidSettingError, SourceError
from streamlda.scaleout.shards import FirstRecords, Shard, of_files, of_partitions, rows_of
from streamlda.scaleout.store import read_first
from streamlda.scaleout.sums import Census
from streamlda.stream.counts import RecordCounts
from streamlda.stream.source import open_source
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.vocabulary import Vocabulary
from tests.service.daemon_process import write_documents


def texts_of(corpus):
    pairs = zip(corpus.shards, corpus.values, strict=True)
    return [text for pair in pairs for rows in rows_of(*pair) for text in rows.texts]


def poll_texts(path, **options):
    texts, exhausted = [], False
    with closing(open_source("files", [path], **options)) as source:
        while not exhausted:
            poll = source.poll(5000)
            texts += poll.texts
            exhausted = poll.exhausted
    return texts


def test_shards_read_what_one_source_reads_in_its_order(tmp_path):
    """Files in folders, hidden ones among them, named so that order is not that of writing."""
    folder = tmp_path / "in"
    for path in (folder / "b", folder / ".hidden"):
        path.mkdir(parents=True)
    for number, name in enumerate(["b/2.jsonl", "a.jsonl", "b/10.jsonl", "c.txt", "b/.no.jsonl"]):
        write_documents(folder / name, [f"text {number} {i}" for i in range(3 * number + 1)])
    write_documents(folder / ".hidden" / "x.jsonl", ["never read"])
    for pattern, shards in (("", 1), ("", 3), ("", 64), ("b/*.jsonl", 3), ("c.txt", 3)):
        path = str(folder / pattern)
        corpus = of_files(path, shards=shards)
        assert texts_of(corpus) == poll_texts(path)
        assert 1 <= len(corpus.shards) <= shards
        assert len({shard.name for shard in corpus.shards}) == len(corpus.shards)
    assert texts_of(of_files((folder / "a.jsonl").as_uri())) == poll_texts(str(folder / "a.jsonl"))
    with pytest.raises(SourceError, match="path does not exist"):
        of_files(folder / "missing.jsonl")
    with pytest.raises(InvalidSettingError, match="shards=0"):
        of_files(folder, shards=0)


LINES = st.lists(st.sampled_from(["", "a", "bb cc", "é" * 9, "x" * 40, "\r"]), max_size=30)


@examples(max_examples=15)
@given(lines=LINES, ended=st.booleans(), most=st.integers(1, 60))
def test_every_line_is_in_one_part_wherever_files_are_cut(lines, ended, most):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a.txt")
        path.write_bytes(("\n".join(lines) + "\n" * ended).encode())
        with closing(open_source("files", [path])) as source:
            parts = [part for _, part, _ in source.parts(most)]
        whole = poll_texts(path)
        assert parts == [None] or len(parts) > 1
        assert [text for part in parts for text in poll_texts(path, part=part)] == whole
        assert texts_of(of_files(path, shards=1 + most % 5)) == whole


def test_rows_of_parquet_are_cut_by_their_groups(tmp_path):
    texts = [f"text {i}" for i in range(50)]
    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": texts}), path, row_group_size=7)
    corpus = of_files(path, shards=3)
    assert len(corpus.shards) == 3
    assert texts_of(corpus) == texts
    assert corpus.shards[0].readings[0].part[0] == 0
    # The last row goes with the group before it.
    assert len(of_files(path, shards=20).shards) == 7
    # What is damaged is one part, and says so when it is read.
    path.write_bytes(path.read_bytes()[:-9])
    (shard,) = of_files(path, shards=3).shards
    (rows,) = rows_of(shard, None)
    assert f"{path} broke off (broken-parquet)" in rows.notes[0]


def test_first_records_are_not_read_again(tmp_path):
    """Behind them the shard continues, in files that are alike, compressed or damaged."""
    for number in range(4):
        write_documents(tmp_path / f"{number}.jsonl", [f"text {number} {i}" for i in range(4000)])
    data = (tmp_path / "3.jsonl").read_bytes()
    (tmp_path / "3.jsonl.gz").write_bytes(gzip.compress(data)[:-60])
    (tmp_path / "3.jsonl").unlink()
    (shard,) = of_files(tmp_path, shards=1).shards
    polls = [*rows_of(shard, None)]
    assert sum(rows.n_records for rows in polls) > 12_000
    assert "broke off" in polls[-1].notes[0]
    for number in range(len(polls) + 1):
        again = [*rows_of(shard, FirstRecords(polls[:number]))]
        # A poll that is late ends before it is full.
        for name in ("texts", "notes"):
            found, wanted = ([*chain(*(getattr(r, name) for r in each))] for each in (again, polls))
            assert found == wanted
    write_documents(tmp_path / "0.jsonl", ["longer"])
    with pytest.raises(SourceError, match=r"changed.*0\.jsonl.*files=4 bytes="):
        list(rows_of(shard, None))


def test_partitions_of_more_texts_than_words_are_learned_from_are_whole():
    words = VocabularyLearner.by(None, 2)
    texts = [f"text {number}" for number in range(2 * words.documents)]
    first = read_first(Shard("p"), texts, words)
    blocks = [rows.texts for rows in rows_of(Shard("p"), first)]
    assert len(blocks) > 1
    assert [*chain.from_iterable(blocks)] == texts


def test_records_are_documents_or_slots(tmp_path):
    lines = ['{"text": "one"}', "bad", "", '{"text": "two one one"}', ""]
    (tmp_path / "x.jsonl").write_text("\n".join(lines) + "\n")
    (shard,) = of_files(tmp_path / "x.jsonl").shards
    words, wanted = Vocabulary.given(["one", "two"]), RecordCounts(5, 2, 1, 4, 0)
    wanted.rejects["not-json"] = 1
    for slots, lengths in ((False, [1, 3]), (True, [1, 0, 0, 3, 0])):
        counts, how = RecordCounts(), {"slots": slots, "learns_short": not slots}
        census = Census(spans=((0, 1),), n_features=2, vocabulary=words, **how)
        ((batch, _),) = census.batches(shard, None, counts)
        wanted.few_words = 0 if slots else 1
        assert batch.lengths.tolist() == lengths
        assert counts == wanted


def test_other_partitions_are_refused_without_their_text():
    for value in ("secret", [1, 2], ["secret", 5], 7, [b"secret"]):
        with pytest.raises(InvalidDocumentsError, match=" no ") as caught:
            list(rows_of(Shard("p"), value))
        assert "secret" not in str(caught.value)
    census = Census(spans=(), n_features=2)
    frame = pd.DataFrame({"id": ["1"], "text": ["secret"]})
    for rule, read in (
        ("choose the column of the text", lambda: rows_of(Shard("p"), frame)),
        ("no vocabulary", lambda: census.batches(Shard("p"), ["secret words"], RecordCounts())),
    ):
        with pytest.raises(InvalidDocumentsError, match=rule) as caught:
            list(read())
        assert "secret" not in str(caught.value)
    for value in ([], "text", None, 5):
        with pytest.raises(InvalidDocumentsError, match="at least 1"):
            of_partitions(value)
