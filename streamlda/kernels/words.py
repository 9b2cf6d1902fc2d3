"""Kernels that add up the words of documents, and copy them."""

from __future__ import annotations

from streamlda.kernels import F64_1D, I32_1D, I64_1D, OUT_F64_1D, OUT_I32_1D, kernel


@kernel
def add_words(counts: F64_1D, word_ids: I32_1D, totals: OUT_F64_1D) -> None:
    """Add the tokens of each word to its total, one entry after the other.

    Equivalent to ``np.add.at(totals, word_ids, counts)``. Time O(nnz), serial; no memory.
    """
    for e in range(len(word_ids)):
        totals[word_ids[e]] += counts[e]


@kernel
def copy_documents(
    counts: F64_1D,
    word_ids: I32_1D,
    starts: I64_1D,
    row_pointers: I64_1D,
    copied_counts: OUT_F64_1D,
    copied_words: OUT_I32_1D,
) -> None:
    """Copy the entries of some documents one after the other; each begins at one of the `starts`.

    Equivalent to ``copied[row_pointers[d] + i] = of[starts[d] + i]`` for every entry i of document
    d, of counts and words. Time O(nnz), serial; no memory.
    """
    for d in range(len(starts)):
        first, begin = starts[d], row_pointers[d]
        for i in range(row_pointers[d + 1] - begin):
            copied_counts[begin + i] = counts[first + i]
            copied_words[begin + i] = word_ids[first + i]
