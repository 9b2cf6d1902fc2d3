"""Sums of words, copies of documents and samples of them, against what they stand for."""

import numpy as np
import pytest

from streamlda.kernels.words import add_words, copy_documents, drop_undue, keep_due
from tests import oracle


def test_sums_of_words_are_those_of_numpy_to_the_last_bit():
    draw = np.random.default_rng(0)
    counts, words = draw.random(2000), draw.integers(0, 90, 2000).astype(np.int32)
    found = draw.random(100)
    expected = found.copy()
    np.add.at(expected, words, counts)
    add_words(counts, words, found)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("dtype", ["float64", "uint8", "int32"])
def test_copies_of_documents_are_those_of_numpy(dtype):
    draw = np.random.default_rng(1)
    pointers = np.concatenate([[0], np.cumsum(draw.integers(0, 6, 50))])
    counts = (100 * draw.random(pointers[-1])).astype(dtype)
    words = draw.integers(0, 90, pointers[-1]).astype(np.int32)
    chosen = np.flatnonzero(draw.random(50) < 0.4)
    entries = [np.arange(pointers[d], pointers[d + 1]) for d in chosen]
    copied = np.concatenate([[0], np.cumsum([len(part) for part in entries])])
    found = np.full(copied[-1], 111, dtype), np.full(copied[-1], -1, dtype=np.int32)
    held, copies = counts.view(np.uint8), found[0].view(np.uint8)
    copy_documents(held, counts.itemsize, words, pointers[chosen], copied, copies, found[1])
    for array, of in zip(found, (counts, words), strict=True):
        np.testing.assert_array_equal(array, of[np.concatenate(entries)])


class Kept:
    """The documents that `keep_due` has kept, with room for some."""

    def __init__(self, most, entries):
        self.limits, self.held, self.end = (most, entries), 0, np.zeros(1)
        self.arrays = (
            *(np.zeros(entries), np.zeros(entries, dtype=np.int32)),
            *(np.zeros(most + 1, dtype=np.int64), np.zeros((most, 2))),
        )

    def add(self, documents, distance):
        found = keep_due(*documents, distance, self.held, *self.limits, self.end, *self.arrays)
        self.held = max(found, self.held)
        return found

    def listed(self):
        """Return (counts, words, first place, size) of each."""
        counts, words, pointers, places = self.arrays
        spans = [slice(*pointers[n : n + 2]) for n in range(self.held)]
        return [
            (counts[span].tolist(), words[span].tolist(), *places[n].tolist())
            for n, span in enumerate(spans)
        ]


def documents_of(seed, n):
    """Return documents as `keep_due` takes them, and as lists of counts and words; some empty."""
    draw = np.random.default_rng(seed)
    pointers = np.concatenate([[0], np.cumsum(draw.integers(0, 6, n))])
    counts = draw.random(pointers[-1])
    words = draw.integers(0, 90, pointers[-1]).astype(np.int32)
    sizes = draw.integers(0, 40, n) / 4
    spans = [slice(*pointers[d : d + 2]) for d in range(n)]
    listed = [(counts[span].tolist(), words[span].tolist()) for span in spans]
    return (counts, words, pointers, sizes), listed


def wanted(parts, distance):
    """Return what is kept of documents that came in some parts, as `Kept.listed`."""
    listed = [one for _, documents in parts for one in documents]
    sizes = [size for given, _ in parts for size in given[-1].tolist()]
    return [(*listed[n], place, sizes[n]) for n, place in oracle.due(sizes, 0, distance)]


@pytest.mark.parametrize("distance", [0.5, 8.0, 64.0])
def test_documents_that_are_due_are_kept_behind_the_others(distance):
    parts = [documents_of(2, 30), documents_of(3, 40)]
    kept = Kept(70, 400)
    for given, _ in parts:
        assert kept.add(given, distance) == kept.held
    assert kept.listed() == wanted(parts, distance)
    assert kept.end[0] == sum(given[-1].sum() for given, _ in parts)
    for larger in (distance, 4 * distance):
        kept.held = drop_undue(larger, kept.held, *kept.arrays)
        assert kept.listed() == wanted(parts, larger)


@pytest.mark.parametrize("limits", [(20, 400), (70, 50)])
def test_nothing_is_kept_of_documents_that_are_too_many(limits):
    (first, listed), (second, _) = documents_of(2, 15), documents_of(3, 40)
    kept = Kept(*limits)
    kept.add(first, 1.0)
    before = kept.listed(), kept.end[0]
    assert before[0] == wanted([(first, listed)], 1.0)
    assert kept.add(second, 1.0) == -1
    assert (kept.listed(), kept.end[0]) == before


def test_a_document_that_is_kept_alone_needs_room():
    counts, words = np.arange(1.0, 8), np.arange(7, dtype=np.int32)
    large = counts, words, np.array([0, 7]), np.array([28.0])
    kept = Kept(2, 5)
    assert kept.add(large, 1.0) == -8
    assert kept.end[0] == 0
    kept.arrays = np.zeros(7), np.zeros(7, dtype=np.int32), *kept.arrays[2:]
    assert kept.add(large, 1.0) == 1
    assert kept.listed() == [(counts.tolist(), words.tolist(), 0.0, 28.0)]
    # It may be more than the limit, but not beside another.
    small = np.ones(1), words[:1], np.array([0, 1]), np.ones(1)
    assert kept.add(small, 1.0) == -1
