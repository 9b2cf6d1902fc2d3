"""Copies of documents, against what they stand for."""

import numpy as np
import pytest

from streamlda.kernels.words import copy_documents


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
