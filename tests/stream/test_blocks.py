"""Blocks depend on the rows alone, however they came."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlda.documents import DocumentBatch
from streamlda.stream import pipeline as blocks
from streamlda.stream.pipeline import Blocks


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK_ROWS", 7)
    monkeypatch.setattr(blocks, "BLOCK_COUNTS", 20)


def corpus(sizes):
    """Return documents of these numbers of distinct words."""
    pointers = np.cumsum([0, *sizes])
    word_ids = np.concatenate([np.empty(0, np.int32), *(np.arange(n) for n in sizes)])
    counts = np.asarray(1 + np.arange(len(word_ids)) % 5, dtype=np.float64)
    return DocumentBatch(counts, word_ids.astype(np.int32), pointers.astype(np.int64), 40)


def content(batch):
    arrays = (batch.counts, batch.word_ids, batch.row_pointers)
    return tuple(np.ascontiguousarray(array).tobytes() for array in arrays)


def fed(batch, cuts, restarts):
    """Return the blocks, and what waits behind them, of rows that come in parts."""
    taken, found = Blocks(), []
    ends = [*sorted(cut % (batch.n_documents + 1) for cut in cuts), batch.n_documents]
    start = 0
    for number, end in enumerate(ends):
        found += [content(block) for block in taken.add(batch.rows(start, end))]
        start = end
        if number in restarts:
            taken = Blocks(taken.waiting)
    if taken.waiting is not None:
        found.append(content(taken.flush()))
    return found


@given(
    sizes=st.lists(st.integers(0, 30), max_size=60),
    cuts=st.lists(st.integers(0, 10**6), max_size=12),
    restarts=st.sets(st.integers(0, 12)),
)
@settings(max_examples=60)
def test_any_split_of_the_rows_gives_the_same_blocks(sizes, cuts, restarts):
    batch = corpus(sizes)
    assert fed(batch, cuts, restarts) == fed(batch, [], set())


@given(sizes=st.lists(st.integers(0, 30), min_size=1, max_size=60))
def test_a_block_ends_with_the_row_that_fills_it(sizes):
    batch, taken = corpus(sizes), Blocks()
    found = list(taken.add(batch))
    for block in found:
        before = block.rows(0, block.n_documents - 1)
        assert block.n_documents == 7 or len(block.counts) >= 20
        assert before.n_documents < 7
        assert len(before.counts) < 20
    rest = taken.waiting
    rows = sum(block.n_documents for block in found) + (rest.n_documents if rest else 0)
    assert rows == batch.n_documents
    assert rest is None or (rest.n_documents < 7 and len(rest.counts) < 20)


def test_what_waits_is_a_copy_until_it_is_flushed():
    batch, taken = corpus([3, 3]), Blocks()
    wanted = content(batch)
    assert taken.waiting is None
    assert list(taken.add(batch)) == []
    batch.counts.setflags(write=True)
    batch.counts[:] = 99
    assert content(taken.waiting) == content(taken.flush()) == wanted
    assert taken.waiting is None
