"""Documents that are read once and kept: those of the shards, in order, or read again."""

import itertools

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidDocumentsError
from streamlda.scaleout import connect, of_partitions
from streamlda.scaleout.shards import Piece, Shard
from streamlda.scaleout.store import (
    MOST_KEPT,
    contents_of,
    documents_of,
    joined,
    memory_for_documents,
    store_documents,
    together,
)
from tests.scaleout.conftest import D, cluster_of, wait_until_empty


@pytest.fixture(scope="module")
def usable(documents):
    return documents.where(documents.usable)


def assert_same_documents(one, other):
    for name in ("counts", "word_ids", "row_pointers"):
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), name)


def test_a_shard_gives_its_usable_documents_and_what_was_met(documents, cut, usable):
    kept, found = documents_of(Shard("a"), documents, None, D)
    assert_same_documents(kept, usable)
    assert found.usable == {"a": 4875}
    assert (found.counts.documents, found.counts.short) == (5000, 125)
    assert found.counts.tokens == documents.lengths.sum()
    assert found.nbytes >= 12 * len(usable.counts)
    wanted = (usable.to_csr() / usable.lengths[:, None]).sum(axis=0)
    np.testing.assert_allclose(found.frequencies, np.ravel(wanted), rtol=1e-12)
    parts = [contents_of(Shard(f"{i}"), part, None, D) for i, part in enumerate(cut)]
    total = together(*parts)
    assert [*total.usable] == [f"{i}" for i in range(len(cut))]
    assert sum(total.usable.values()) == 4875
    assert total.counts == found.counts
    np.testing.assert_allclose(total.frequencies, found.frequencies, rtol=1e-12)
    with pytest.raises(InvalidDocumentsError, match=rf"n_features={D} expected=7.*shard='x'"):
        documents_of(Shard("x"), documents, None, 7)


def test_pieces_are_joined_and_missing_documents_noticed(cut, usable):
    first = cut[0].where(cut[0].usable).n_documents
    shards = [Piece(Shard("a"), 600, first), Piece(Shard("b"), 0, 500)]
    found = joined(shards, None, cut[0], cut[2])
    rows = [cut[0].where(cut[0].usable).rows(600, first), cut[2].where(cut[2].usable).rows(0, 500)]
    assert_same_documents(found, DocumentBatch.joined(rows))
    with pytest.raises(InvalidDocumentsError, match=r"documents=\d+ at_least=9999"):
        joined([Piece(Shard("a"), 0, 9999)], None, cut[0])


@pytest.mark.parametrize("most_bytes", [None, 0, 50_000], ids=["kept", "read again", "too large"])
def test_any_run_of_documents_can_be_asked_for(client, cut, usable, most_bytes):
    with store_documents(client, of_partitions(cut), None, D, most_bytes=most_bytes) as kept:
        assert kept.in_memory == (most_bytes is None)
        assert kept.documents == 4875
        for first, last in ((0, 4875), (0, 1), (650, 1900), (2000, 2001), (4870, 4875)):
            found = kept.run.compute(kept.task("rows", first, last))
            assert_same_documents(found, usable.rows(first, last))


def test_parts_are_equal_runs_and_survive_the_shards_until_the_block_ends(client, cut, usable):
    def failing():
        with store_documents(client, of_partitions(cut), None, D) as kept:
            parts = client.gather(kept.parts(4))
            ends = [4875 * part // 4 for part in range(5)]
            for part, (first, last) in zip(parts, itertools.pairwise(ends), strict=True):
                assert_same_documents(part, usable.rows(first, last))
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    wait_until_empty(client)


def test_documents_may_take_a_share_of_the_memory_of_all_workers():
    with cluster_of(2, memory_limit="700MB") as own, connect(own.scheduler_address) as client:
        assert memory_for_documents(client) == pytest.approx(MOST_KEPT * 2 * 700e6)
