"""Kernel that counts in how many sliding windows words and pairs of words occur."""

from __future__ import annotations

from typing import Any

from numba import types

from streamlda.kernels import I32_1D, I64_1D, OUT_I64_1D, OUT_I64_2D, kernel


@kernel(
    types.int64(
        I32_1D,
        I64_1D,
        types.int64,
        I32_1D,
        I32_1D,
        I64_1D,
        I64_1D,
        OUT_I64_1D,
        OUT_I64_1D,
        OUT_I64_2D,
    )
)
def count_windows(
    token_ids: Any,
    offsets: Any,
    window: int,
    slot_of_word: Any,
    slot_of_place: Any,
    place_pointers: Any,
    places: Any,
    since: Any,
    occurrences: Any,
    pairs: Any,
) -> int:
    """Count the windows that hold each watched word, and each pair within a topic.

    Equivalent to ``tests.oracle_text.count_windows``: slide a window over every document, one
    token at a time; a word is present from the window it enters to the window before the next
    token of that word leaves (even when the window holds it a second time: that is the rule of
    the implementation that published numbers come from). A shorter document, empty ones
    included, is one window. Instead of visiting every window, a word is accounted for when it
    leaves, with the windows since it came. Time O(tokens + departures * n); no memory.

    Parameters
    ----------
    token_ids, offsets
        Ordered words of the documents, document d from ``offsets[d]`` to ``offsets[d + 1]``.
        Any id outside `slot_of_word` fills a place in the window and is not counted.
    window : int
        Tokens of a window.
    slot_of_word : array of shape (largest watched id + 1,)
        Slot of a watched word, -1 for the others.
    slot_of_place : array of shape (K * n,)
        Slot of the word at place ``topic * n + rank``.
    place_pointers, places
        The places of slot s stand in ``places[place_pointers[s] : place_pointers[s + 1]]``.
    since : array of shape (n_slots,), scratch
        All -1 before and after.
    occurrences : array of shape (n_slots,), output, added to
        Windows that hold the word.
    pairs : array of shape (K * n, n), output, added to
        Windows that hold both words of a topic; a pair's count is split over its two cells.

    Returns
    -------
    int
        Number of windows.
    """
    per_topic = pairs.shape[1]
    n_windows = 0
    for d in range(len(offsets) - 1):
        start = offsets[d]
        length = offsets[d + 1] - start
        width = min(length, window)
        windows_here = length - width + 1
        n_windows += windows_here
        # The last `width` steps only let the words of the last window leave.
        for step in range(length + width):
            leaving = step - width
            if leaving >= 0:
                word = token_ids[start + leaving]
                slot = -1
                if 0 <= word < len(slot_of_word):
                    slot = slot_of_word[word]
                if slot >= 0 and since[slot] >= 0:
                    now = min(leaving + 1, windows_here)
                    came = since[slot]
                    occurrences[slot] += now - came
                    since[slot] = -1
                    for p in range(place_pointers[slot], place_pointers[slot + 1]):
                        place = places[p]
                        first = place - place % per_topic
                        for rank in range(per_topic):
                            other = since[slot_of_place[first + rank]]
                            if other >= 0:
                                pairs[place, rank] += now - max(came, other)
            if step < length:
                word = token_ids[start + step]
                slot = -1
                if 0 <= word < len(slot_of_word):
                    slot = slot_of_word[word]
                if slot >= 0 and since[slot] < 0:
                    since[slot] = max(0, step - width + 1)
    return n_windows
