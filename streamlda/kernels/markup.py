"""Kernels of cleaning: tags, comments, scripts and entities of HTML."""

from __future__ import annotations

import numpy as np

from streamlda.kernels import I64, I64_1D, OUT_U8_1D, U8_1D, kernel
from streamlda.kernels.cleaning import (
    BLOCK,
    HTML,
    IN_ELEMENT,
    IN_SPACE,
    IN_TAG,
    is_html_sign,
    next_letter,
    run_length,
)

#: The longest name of markup that is known, and the bits of a character in its number.
LONGEST_KNOWN, CODE_BITS = 10, 6

#: What becomes of a text that a kernel cannot clean.
LEFT = 2


@kernel
def _next_sign(letters: U8_1D, first: int) -> I64:
    """Return the place of the next sign of markup, as `next_letter`."""
    one, two, ahead = letters[first:], letters[first + 1 :], np.uint8(BLOCK)
    for i in range(BLOCK):
        ahead = min(ahead, np.uint8(i) if is_html_sign(one[i], two[i]) else np.uint8(BLOCK))
    return np.int64(first + np.int64(ahead))


@kernel
def _number(letters: U8_1D, codes: U8_1D, small: int, first: int, behind: int) -> I64:
    """Return the number of a name of markup, in small letters if `small`; 0 for a longer one."""
    number = np.int64(0)
    if behind - first <= LONGEST_KNOWN:
        for place in range(first, behind):
            code = codes[letters[place] | np.uint8(32 * small)]
            number = (number << CODE_BITS) | np.int64(code)
    return number


@kernel
def _is_known(number: I64, names: I64_1D) -> I64:
    """Return 1 if a number is in a table, at its remainder by the size of that, else 0."""
    return np.int64(number > 0 and names[number % len(names)] == number)


@kernel
def _tag_end(letters: U8_1D, kinds: U8_1D, known: I64, inner: int, last: int) -> I64:
    """Return where the tag whose name ends at `inner` ends; 0 if it is none.

    `known` is 2 for elements, which may end at once, and 1 for a closing one, which must.
    """
    spaces = run_length(letters, kinds, IN_SPACE, inner, last, 1)
    close = inner + spaces
    if letters[close] != ord(">"):
        if known == 1:
            return np.int64(0)
        known = np.int64(0)
        while close < last and kinds[letters[close]] & IN_TAG:
            known |= np.int64(letters[close] == ord("=")) & np.int64(spaces > 0)
            close += 1
        known |= np.int64(letters[close - 1] == ord("/") and (spaces > 0 or inner + 1 == close))
    return np.int64(close + 1 if known > 0 and close < last and letters[close] == ord(">") else 0)


@kernel
def _span_end(
    letters: U8_1D, kinds: U8_1D, codes: U8_1D, scripts: I64_1D, span: I64, at: int, last: int
) -> I64:
    """Return where a script, by its place, or a comment, by that after them, ends; 0 if nowhere."""
    is_comment = span == len(scripts)
    sign, end = (ord("-"), at + 4) if is_comment else (ord("<"), at + 1)
    while end < last:
        sought, end = end, next_letter(letters, sign, end)
        if end == sought + BLOCK or end >= last:
            continue
        if is_comment:
            if letters[end + 1] == ord("-") and letters[end + 2] == ord(">"):
                return np.int64(end + 3)
        elif letters[end + 1] == ord("/"):
            inner = end + 2 + run_length(letters, kinds, IN_ELEMENT, end + 2, last, 1)
            close = inner + run_length(letters, kinds, IN_SPACE, inner, last, 1)
            same = _number(letters, codes, 1, end + 2, inner) == scripts[span]
            if same and close < last and letters[close] == ord(">"):
                return np.int64(close + 1)
        end += 1
    return np.int64(0)


@kernel
def _entity_end(
    letters: U8_1D, kinds: U8_1D, codes: U8_1D, entities: I64_1D, at: int, last: int
) -> I64:
    """Return where the entity that begins at `at` ends; 0 if there is none.

    -1 if it may stand for a part of a word.
    """
    first = at + 1
    if letters[first] != ord("#"):
        size = run_length(letters, kinds, IN_ELEMENT, first, last, 1)
        is_one = 2 <= size <= 31 and letters[first] >= ord("A")
        parts = not _is_known(_number(letters, codes, 0, first, first + size), entities)
    else:
        base = 16 if letters[first + 1] | np.uint8(32) == ord("x") else 10
        first = at + (2 if base == 10 else 3)
        size = run_length(letters, kinds, IN_ELEMENT, first, last, 1)
        point, is_one = np.int64(0), True
        for place in range(first, first + min(size, 8)):
            small = np.int64(letters[place] | np.uint8(32))
            digit = small - (ord("0") if small < ord("a") else ord("a") - 10)
            is_one = is_one and digit < base
            point = point * base + digit
        is_one = is_one and 1 <= size <= (7 if base == 10 else 6)
        sign = 32 <= point < 127 and codes[point] == 0 and point != ord("_")
        parts = not (sign or point == 0xA0 or 0x2010 <= point <= 0x2027)
    if not is_one or first + size >= last or letters[first + size] != ord(";"):
        return np.int64(0)
    return np.int64(-1 if parts else first + size + 1)


@kernel
def blank_markup(
    starts: I64_1D,
    marks: U8_1D,
    kinds: U8_1D,
    codes: U8_1D,
    elements: I64_1D,
    scripts: I64_1D,
    entities: I64_1D,
    done: OUT_U8_1D,
    letters: OUT_U8_1D,
) -> I64:
    """Put spaces for the markup of texts; return how many pieces there were.

    For the words, equivalent to the step ``"html"`` of `streamlda.text.cleaning`. Texts that are
    `done` (1) stay. One with an entity that may stand for a part of a word, as of a letter, is left
    half way, its pieces not counted, and becomes `LEFT`.

    A name of markup has a number: ``codes`` of its characters, from 1 on, 0 for those that are not
    `IN_ELEMENT`, `CODE_BITS` each. `elements`, and `entities`, which stand for a sign or a space,
    are tables of `_is_known`; `scripts` are removed with all up to their closing tag. Names are in
    small letters but for those of entities. Time O(letters), no memory.
    """
    pieces = before = at = text = np.int64(0)
    last = np.int64(-1)
    # Bits of what has no end: an end that was not found is not sought again.
    endless = np.int64(0)
    for block in range(len(marks)):
        if not marks[block] & HTML:
            continue
        at = max(at, np.int64(BLOCK * block))
        while at < BLOCK * (block + 1):
            sought, at = at, _next_sign(letters, at)
            if at == sought + BLOCK:
                continue
            if at > last:
                while starts[text + 1] <= at:
                    text += 1
                last, before, endless = starts[text + 1] - 1, pieces, np.int64(0)
            if done[text]:
                at = last
                continue
            end, span, known = np.int64(0), np.int64(-1), np.int64(letters[at + 1] == ord("/"))
            first = at + 1 + known
            inner = np.int64(first)
            if letters[at] == ord("&"):
                end = _entity_end(letters, kinds, codes, entities, at, last)
            elif letters[at + 1] == ord("!"):
                if letters[at + 2] == ord("-") and letters[at + 3] == ord("-"):
                    span = np.int64(len(scripts))
            elif letters[first] >= ord("A"):
                number = np.int64(0)
                while codes[letters[inner]]:
                    code = codes[letters[inner] | np.uint8(32)]
                    number = (number << CODE_BITS) | np.int64(code)
                    inner += 1
                if inner - first > LONGEST_KNOWN:
                    number = np.int64(0)
                known |= 2 * (1 - known) * _is_known(number, elements)
                for script in range(len(scripts)):
                    if number == scripts[script] and first == at + 1 and letters[inner] != ord("_"):
                        span = np.int64(script)
            if span >= 0 and not (endless >> span) & 1:
                end = _span_end(letters, kinds, codes, scripts, span, at, last)
                endless |= np.int64(end == 0) << span
            # Most tags end at once.
            if end == 0 and inner > first and known > 0 and letters[inner] == ord(">"):
                end = inner + 1
            elif end == 0 and inner > first:
                end = _tag_end(letters, kinds, known, inner, last)
            if end < 0:
                done[text], pieces = LEFT, before
            elif end == 0:
                at += 1
            else:
                for place in range(at, end):
                    letters[place] = ord(" ")
                pieces += 1
                at = end
    return pieces
