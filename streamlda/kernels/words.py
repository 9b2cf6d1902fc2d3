"""Kernels that add up the words of documents, copy these, and sample them."""

from __future__ import annotations

import numpy as np

from streamlda.kernels import (
    F64_1D,
    I32_1D,
    I64_1D,
    OUT_F64_1D,
    OUT_F64_2D,
    OUT_I32_1D,
    OUT_I64_1D,
    OUT_U8_1D,
    U8_1D,
    kernel,
)


@kernel
def add_words(counts: F64_1D, word_ids: I32_1D, totals: OUT_F64_1D) -> None:
    """Add the tokens of each word to its total, one entry after the other.

    Equivalent to ``np.add.at(totals, word_ids, counts)``. Time O(nnz), serial; no memory.
    """
    for e in range(len(word_ids)):
        totals[word_ids[e]] += counts[e]


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
    for d in range(len(starts)):
        first, begin = starts[d], row_pointers[d]
        size = row_pointers[d + 1] - begin
        for i in range(size):
            copied_words[begin + i] = word_ids[first + i]
        for i in range(size * width):
            copied_counts[begin * width + i] = counts[first * width + i]


@kernel
def keep_due(
    counts: F64_1D,
    word_ids: I32_1D,
    row_pointers: I64_1D,
    sizes: F64_1D,
    distance: float,
    held: int,
    most: int,
    entries: int,
    end: OUT_F64_1D,
    kept_counts: OUT_F64_1D,
    kept_words: OUT_I32_1D,
    kept_pointers: OUT_I64_1D,
    kept_places: OUT_F64_2D,
) -> int:
    """Copy the documents that hold a multiple of a distance behind the `held` ones.

    Equivalent to ``tests.oracle.due``. Document d has the ``sizes[d]`` places behind those before
    it, the first from ``end[0]`` on, which is moved behind the last; `kept_places`, of shape
    (most, 2), has the first place and the size of each kept one. Returns how many are held then.

    -1 where these would be more than one, and more than `most` or of more than `entries` counts;
    and -1 - n where a single one has n counts and there is no room for these. Nothing that was
    held, nor the end, is changed then. Time O(documents + counts copied), serial; no memory.
    """
    place, before = end[0], np.ceil(end[0] / distance)
    for d in range(len(sizes)):
        start, place = place, place + sizes[d]
        after = np.ceil(place / distance)
        if after > before:
            before = after
            first, begin = row_pointers[d], kept_pointers[held]
            stop = begin + row_pointers[d + 1] - first
            if held and (held >= most or stop > entries):
                return -1
            if stop > len(kept_counts):
                return -1 - int(stop)
            for i in range(stop - begin):
                kept_counts[begin + i] = counts[first + i]
                kept_words[begin + i] = word_ids[first + i]
            kept_places[held, 0], kept_places[held, 1] = start, sizes[d]
            held += 1
            kept_pointers[held] = stop
    end[0] = place
    return held


@kernel
def drop_undue(
    distance: float,
    held: int,
    counts: OUT_F64_1D,
    word_ids: OUT_I32_1D,
    row_pointers: OUT_I64_1D,
    places: OUT_F64_2D,
) -> int:
    """Leave out the `held` documents that hold no multiple of a distance, in place.

    Arrays as those that `keep_due` fills; equivalent to ``tests.oracle.due``. Returns how many are
    left. Time O(counts), serial; no memory.
    """
    left = 0
    begin = row_pointers[0]
    for d in range(held):
        first, begin = begin, row_pointers[d + 1]
        start, size = places[d, 0], places[d, 1]
        if np.ceil((start + size) / distance) > np.ceil(start / distance):
            to = row_pointers[left]
            for i in range(begin - first):
                counts[to + i] = counts[first + i]
                word_ids[to + i] = word_ids[first + i]
            places[left, 0], places[left, 1] = start, size
            left += 1
            row_pointers[left] = to + begin - first
    return left
