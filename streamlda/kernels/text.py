"""Kernels from bytes to words.

A word is taken in by eight letters at a time, packed into one number with the first letter lowest.
Two hashes are made of these numbers: a cheap one that names the slot of the table of words where
the search begins, and MurmurHash3 x86 32 with seed 0 (Appleby), which chooses the columns of a
hashed vocabulary. The search continues from slot to slot until the word or an empty one is met; a
hash alone decides nothing, the letters are compared.

All products are of 32-bit numbers held in 64 bits, so none overflows.
"""

from __future__ import annotations

import numpy as np

from streamlda.kernels import (
    I64,
    I64_1D,
    OUT_I32_1D,
    OUT_I64_1D,
    OUT_I64_2D,
    OUT_U8_1D,
    U8_1D,
    U64,
    kernel,
)

#: Classes of bytes: what ends a word, no byte of UTF-8; the last digit, and what joins two parts of
#: a word. Letters stand for themselves or for their small form, and digits for themselves.
ENDS, NINE, JOINS = 0xFF, ord("9"), ord("_")

_LOW_32 = np.uint64(0xFFFFFFFF)
_BLOCK_1, _BLOCK_2 = np.uint64(0xCC9E2D51), np.uint64(0x1B873593)
_ROUND_1, _ROUND_2 = np.uint64(5), np.uint64(0xE6546B64)
_FINAL_1, _FINAL_2 = np.uint64(0x85EBCA6B), np.uint64(0xC2B2AE35)
_SLOT_1, _SLOT_2 = np.uint64(0x9E3779B1), np.uint64(0x85EBCA77)
_0, _8, _13, _15, _16, _17, _19, _32, _64 = (
    np.uint64(n) for n in (0, 8, 13, 15, 16, 17, 19, 32, 64)
)


@kernel
def _mix(h: U64, block: U64) -> U64:
    """Take eight letters into the hash that names a slot."""
    h ^= ((block & _LOW_32) * _SLOT_1) ^ ((block >> _32) * _SLOT_2)
    return h ^ (h >> _32)


@kernel
def _scramble(half: U64) -> U64:
    half = (half * _BLOCK_1) & _LOW_32
    half = ((half << _15) | (half >> _17)) & _LOW_32
    return (half * _BLOCK_2) & _LOW_32


@kernel
def _stir(h: U64, half: U64) -> U64:
    """Take four letters into MurmurHash3."""
    h ^= _scramble(half)
    h = ((h << _13) | (h >> _19)) & _LOW_32
    return (h * _ROUND_1 + _ROUND_2) & _LOW_32


@kernel
def _finish(h: U64, block: U64, bits: U64, length: int) -> I64:
    """Take the last block, of up to 64 bits, and the number of all letters into MurmurHash3."""
    if bits >= _32:
        h = _stir(h, block & _LOW_32)
        block >>= _32
    if bits == _64:
        h = _stir(h, block)
        block = _0
    h ^= _scramble(block) ^ np.uint64(length)
    h = ((h ^ (h >> _16)) * _FINAL_1) & _LOW_32
    h = ((h ^ (h >> _13)) * _FINAL_2) & _LOW_32
    return np.int64(h ^ (h >> _16))


@kernel
def _column(h: U64, block: U64, bits: U64, length: int, mask: int) -> I64:
    """Return the hashed column of a word from its last block, as `_finish`."""
    hashed = _finish(h, block, bits, length)
    return (hashed if hashed < 2**31 else 2**32 - hashed) & mask


@kernel
def find_words(
    texts: U8_1D,
    starts: I64_1D,
    classes: U8_1D,
    whole: U8_1D,
    mask: int,
    most: int,
    slots: OUT_I64_2D,
    letters: OUT_U8_1D,
    sizes: OUT_I64_1D,
    ids: OUT_I32_1D,
    offsets: OUT_I64_1D,
) -> None:
    """Split texts into words, look each of them up, and let new ones into the table.

    Equivalent to ``tests.oracle_text.find_words``. Text n is ``texts[starts[n]:starts[n + 1]]``,
    its last byte of class `ENDS`. ``classes[whole[n] * 256 + byte]`` is the letter or digit that a
    byte stands for, or `JOINS` or `ENDS`. A word is a run of letters and digits, of two bytes or
    more with a letter among them; `JOINS` between two of them is part of it, and ends it elsewhere.
    If ``whole[n]`` is 1, a word is all between two ends, unless it is empty.

    A word becomes its number in the table, where words are numbered as they came. A new one enters
    while there are fewer than `most`; else it becomes ``-1 - (abs(hash) & mask)``, its MurmurHash3
    taken as a signed number of 32 bits, or -1 if `mask`, below 2^31, is negative. The numbers of
    text n stand in ``ids[offsets[n]:offsets[n + 1]]``; ``len(texts) // 2`` cells are enough, those
    after the last word are left alone.

    The table is empty where `slots` and `sizes` are 0. ``sizes`` are the number of words and of
    their bytes in `letters`, one more after each; as many more as the texts have are enough. A slot
    holds start, length, number and the first eight letters of its word, length 0 if it has none;
    the number of slots is a power of two above `most` and the number of words.

    Time O(characters); no memory. A search takes one step or two in a table that is half empty,
    but as many as there are words if all of them were made to share one hash.
    """
    last_slot = len(slots) - 1
    found = 0
    offsets[0] = 0
    for n in range(len(starts) - 1):
        place, is_whole = starts[n], whole[n] == 1
        of = np.int64(256 if is_whole else 0)
        while place < starts[n + 1]:
            first = place
            slot_hash, column_hash, head, block, shift = _0, _0, _0, _0, _0
            lettered = is_whole
            letter = classes[of + texts[place]]
            while letter != ENDS:
                if letter == JOINS and not is_whole:
                    after = classes[of + texts[place + 1]]
                    if place == first or after >= ENDS or after == JOINS:
                        break
                elif letter > NINE:
                    lettered = True
                if shift == _64:
                    if place == first + 8:
                        head = block
                    slot_hash = _mix(slot_hash, block)
                    if mask >= 0:
                        column_hash = _stir(column_hash, block & _LOW_32)
                        column_hash = _stir(column_hash, block >> _32)
                    block, shift = _0, _0
                block |= np.uint64(letter) << shift
                shift += _8
                place += 1
                letter = classes[of + texts[place]]
            length = place - first
            place += 1
            if length == 0 or not lettered or (length == 1 and not is_whole):
                continue

            number = -1
            if mask >= 0:
                number -= _column(column_hash, block, shift, length, mask)
            if length <= 8:
                head = block
            slot = np.int64(_mix(slot_hash, block)) & last_slot
            while slots[slot, 1] > 0:
                if slots[slot, 3] == np.int64(head) and slots[slot, 1] == length:
                    known, same = slots[slot, 0], 8
                    while same < length:
                        if letters[known + same] != classes[of + texts[first + same]]:
                            break
                        same += 1
                    if same >= length:
                        number = slots[slot, 2]
                        break
                slot = (slot + 1) & last_slot
            if slots[slot, 1] == 0 and sizes[0] < most:
                number, begin = sizes[0], sizes[1]
                for same in range(length):
                    letters[begin + same] = classes[of + texts[first + same]]
                letters[begin + length] = ENDS
                slots[slot, 0], slots[slot, 1] = begin, length
                slots[slot, 2], slots[slot, 3] = number, np.int64(head)
                sizes[0], sizes[1] = number + 1, begin + length + 1
            ids[found] = number
            found += 1
        offsets[n + 1] = found
