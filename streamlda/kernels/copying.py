"""The kernel that copies documents."""

from __future__ import annotations

import numpy as np

from streamlda.kernels import I32_1D, I64_1D, OUT_I32_1D, OUT_U8_1D, U8_1D, kernel


@kernel
def copy_documents(
    counts: U8_1D,
    width: int,
    word_ids: I32_1D,
    starts: I64_1D,
    row_pointers: I64_1D,
    copied_counts: OUT_U8_1D,
    copied_words: OUT_I32_1D,
) -> None:
    """Copy the entries of some documents one after the other; each begins at one of the `starts`.

    Equivalent to ``copied[row_pointers[d] + i] = of[starts[d] + i]`` for every entry i of document
    d, of words and of counts, of any type of `width` bytes. Time O(nnz), serial; no memory.
    """
    # Without a sign, as in `project`: 16 times faster.
    wide = np.uint64(width)
    for d in range(len(starts)):
        first, begin = np.uint64(starts[d]), np.uint64(row_pointers[d])
        size = np.uint64(row_pointers[d + 1]) - begin
        for i in range(size):
            copied_words[begin + i] = word_ids[first + i]
        for i in range(size * wide):
            copied_counts[begin * wide + i] = counts[first * wide + i]
