"""Kernel that counts in how many documents words and pairs of words occur."""

from __future__ import annotations

import numpy as np

from streamlda.kernels import I32_1D, I64, I64_1D, OUT_I64_1D, OUT_I64_2D, U64, kernel

U1, U2, U4, U8, U16, U32 = (np.uint64(1 << n) for n in range(6))


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

    ``slot_of_word`` has the slot of each watched word, -1 for the others. ``slot_of_place``, of
    shape (K * n,), has that of the word at ``topic * n + rank``. ``occurrences`` (one a slot) and
    ``pairs``, of shape (K * n, n), are added to; a pair is counted where the later place has it. Of
    `BLOCK` documents each watched word has the set as bits, and a pair is in those of both.
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
