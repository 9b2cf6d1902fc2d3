"""Kernel that adds up the words of documents."""

from __future__ import annotations

from streamlda.kernels import F64_1D, I32_1D, OUT_F64_1D, kernel


@kernel
def add_words(counts: F64_1D, word_ids: I32_1D, totals: OUT_F64_1D) -> None:
    """Add the tokens of each word to its total, one entry after the other.

    Equivalent to ``np.add.at(totals, word_ids, counts)``. Time O(nnz), serial; no memory.
    """
    for e in range(len(word_ids)):
        totals[word_ids[e]] += counts[e]
