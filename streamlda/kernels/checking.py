"""Kernel that looks at every entry of some documents once, for all that can be wrong with it."""

from __future__ import annotations

import numpy as np

from streamlda.kernels import F64_1D, I32_1D, I64_1D, OUT_I32_1D, kernel

#: What can be wrong with a document; its faults are added up.
OUTSIDE, FALLING, NOT_FINITE, NEGATIVE, ZERO, LONG, FRACTIONAL = 1, 2, 4, 8, 16, 32, 64


@kernel
def find_faults(
    counts: F64_1D,
    word_ids: I32_1D,
    row_pointers: I64_1D,
    n_features: int,
    most_tokens: float,
    faults: OUT_I32_1D,
) -> None:
    """Find what is wrong with each document; 0 where nothing is.

    Equivalent to ``tests.oracle.find_faults``: `OUTSIDE` if a word is not in 0..n_features-1,
    `FALLING` if words do not rise strictly, `NOT_FINITE`, `NEGATIVE`, `ZERO` and `FRACTIONAL` if a
    count is so, `LONG` if the finite counts, taken in order, come to more than `most_tokens`.
    Row pointers rise from 0 to nnz. Time O(nnz), serial; no memory.
    """
    for n in range(len(row_pointers) - 1):
        found = 0
        tokens = 0.0
        before = np.int64(-1)
        for e in range(row_pointers[n], row_pointers[n + 1]):
            word = np.int64(word_ids[e])
            if word < 0 or word >= n_features:
                found |= OUTSIDE
            if word <= before and e > row_pointers[n]:
                found |= FALLING
            before = word
            count = counts[e]
            if not np.isfinite(count):
                found |= NOT_FINITE
                continue
            if tokens <= most_tokens:
                tokens += count
            if count < 0:
                found |= NEGATIVE
            elif count == 0:
                found |= ZERO
            elif count != np.rint(count):
                found |= FRACTIONAL
        if tokens > most_tokens:
            found |= LONG
        faults[n] = found
