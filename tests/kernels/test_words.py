"""Sums of words, against the NumPy line that they stand for."""

import numpy as np

from streamlda.kernels.words import add_words


def test_sums_of_words_are_those_of_numpy_to_the_last_bit():
    draw = np.random.default_rng(0)
    counts, words = draw.random(2000), draw.integers(0, 90, 2000).astype(np.int32)
    found = draw.random(100)
    expected = found.copy()
    np.add.at(expected, words, counts)
    add_words(counts, words, found)
    np.testing.assert_array_equal(found, expected)
