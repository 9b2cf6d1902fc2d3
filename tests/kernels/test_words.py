"""Sums of words and copies of documents, against the NumPy lines that they stand for."""

import numpy as np

from streamlda.kernels.words import add_words, copy_documents


def test_sums_of_words_are_those_of_numpy_to_the_last_bit():
    draw = np.random.default_rng(0)
    counts, words = draw.random(2000), draw.integers(0, 90, 2000).astype(np.int32)
    found = draw.random(100)
    expected = found.copy()
    np.add.at(expected, words, counts)
    add_words(counts, words, found)
    np.testing.assert_array_equal(found, expected)


def test_copies_of_documents_are_those_of_numpy():
    draw = np.random.default_rng(1)
    pointers = np.concatenate([[0], np.cumsum(draw.integers(0, 6, 50))])
    counts = draw.random(pointers[-1])
    words = draw.integers(0, 90, pointers[-1]).astype(np.int32)
    chosen = np.flatnonzero(draw.random(50) < 0.4)
    entries = [np.arange(pointers[d], pointers[d + 1]) for d in chosen]
    copied = np.concatenate([[0], np.cumsum([len(part) for part in entries])])
    found = np.full(copied[-1], -1.0), np.full(copied[-1], -1, dtype=np.int32)
    copy_documents(counts, words, pointers[chosen], copied, *found)
    for array, of in zip(found, (counts, words), strict=True):
        np.testing.assert_array_equal(array, of[np.concatenate(entries)])
