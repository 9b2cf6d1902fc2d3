"""Kernels that count in how many windows, or documents, words and pairs of words occur."""

from __future__ import annotations

import numpy as np

from streamlda.kernels import I32_1D, I64, I64_1D, OUT_I64_1D, OUT_I64_2D, U64, kernel

U1, U2, U4, U8, U16, U32 = (np.uint64(1 << n) for n in range(6))


@kernel
def count_windows(
    token_ids: I32_1D,
    offsets: I64_1D,
    window: int,
    slot_of_word: I32_1D,
    slot_of_place: I32_1D,
    place_pointers: I64_1D,
    places: I64_1D,
    since: OUT_I64_1D,
    occurrences: OUT_I64_1D,
    pairs: OUT_I64_2D,
) -> int:
    """Count the windows that hold each watched word, and each pair within a topic.

    Equivalent to ``tests.oracle_text.count_windows``: slide a window over every document, one
    token at a time; a word is present from the window it enters to the window before the next
    token of that word leaves (even when the window holds it a second time: that is the rule of
    the implementation that published numbers come from). A shorter document, empty ones
    included, is one window. Instead of visiting every window, a word is accounted for when it
    leaves, with the windows since it came. Time O(tokens + departures * n); no memory.

    ``slot_of_word`` has the slot of each watched word, -1 for the others; an id outside it fills a
    place in the window and is not counted. ``slot_of_place``, of shape (K * n,), has that of the
    word at ``topic * n + rank``; the places of slot s stand in
    ``places[place_pointers[s] : place_pointers[s + 1]]``. ``since`` is scratch, one number a slot,
    all -1 before and after. ``occurrences`` (one a slot) and ``pairs``, of shape (K * n, n), are
    added to; a pair's count is split over its two cells. Returns the number of windows.
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


#: Documents that are counted together: a bit of each for every watched word.
BLOCK = 4096


@kernel
def bits_set(word: U64) -> I64:
    """Return how many bits of a number are 1, by sums of ever longer parts."""
    word -= (word >> U1) & np.uint64(0x5555555555555555)
    twos = np.uint64(0x3333333333333333)
    word = (word & twos) + ((word >> U2) & twos)
    word = (word + (word >> U4)) & np.uint64(0x0F0F0F0F0F0F0F0F)
    word += word >> U8
    word += word >> U16
    word += word >> U32
    return np.int64(word & np.uint64(0xFF))


@kernel
def count_documents(
    token_ids: I32_1D,
    offsets: I64_1D,
    slot_of_word: I32_1D,
    slot_of_place: I32_1D,
    occurrences: OUT_I64_1D,
    pairs: OUT_I64_2D,
) -> None:
    """Count the documents that hold each watched word, and each pair within a topic.

    Equivalent to `count_windows`, arguments alike, with a window that holds the longest document.
    Of `BLOCK` documents each watched word has the set as bits, and a pair is in those of both.
    Time O(tokens + K n^2 documents / 64); memory 512 bytes a watched word.
    """
    n_places, per_topic = pairs.shape
    n_documents = len(offsets) - 1
    n_words = (min(BLOCK, n_documents) + 63) // 64
    sets = np.zeros((len(occurrences), n_words), dtype=np.uint64)
    for start in range(0, n_documents, BLOCK):
        sets[:] = 0
        for d in range(start, min(start + BLOCK, n_documents)):
            at, bit = (d - start) // 64, np.uint64(1) << np.uint64((d - start) % 64)
            for t in range(offsets[d], offsets[d + 1]):
                word = token_ids[t]
                if 0 <= word < len(slot_of_word) and slot_of_word[word] >= 0:
                    sets[slot_of_word[word], at] |= bit
        for slot in range(len(occurrences)):
            for w in range(n_words):
                occurrences[slot] += bits_set(sets[slot, w])
        for place in range(n_places):
            one = sets[slot_of_place[place]]
            first = place - place % per_topic
            for other in range(first, place):
                both = sets[slot_of_place[other]]
                count = 0
                for w in range(n_words):
                    count += bits_set(one[w] & both[w])
                pairs[place, other - first] += count
