"""Kernels of cleaning: which texts hold what is no text; URLs, e-mail addresses and markup."""

from __future__ import annotations

import numpy as np

from streamlda.kernels import I64, I64_1D, OUT_I64_1D, OUT_U8_1D, U8, U8_1D, kernel

#: Marks of what a text may hold, by what is removed: bits.
ATTACHMENTS, URLS, EMAILS, HTML = 1, 2, 4, 8


#: What a character may be part of: the host of an address, its name; a URL; a name of markup, the
#: space in a tag, and all that is in a tag. Bits.
IN_HOST, IN_NAME, IN_URL, IN_ELEMENT, IN_SPACE, IN_TAG = 1, 2, 4, 8, 16, 32

#: The longest name of markup that is known, and the bits of a character in its number.
LONGEST_KNOWN, CODE_BITS = 10, 6

#: Characters that are looked at in one go.
BLOCK = 256

#: From the line end before a whole line of uuencode to that after it.
AHEAD = 62


@kernel
def _mark(a: U8, b: U8, c: U8, d: U8, e: U8) -> U8:
    """Return the marks of four characters, and of the one where a whole line of uuencode ends."""
    # Letters come after @; of other signs these are ! # / and five more.
    opens = np.uint8(b > ord("@")) | np.uint8((b | np.uint8(14)) == ord("/"))
    html = (np.uint8(a == ord("<")) | np.uint8(a == ord("&"))) & opens
    scheme = np.uint8(a == ord(":")) & np.uint8(b == ord("/")) & np.uint8(c == ord("/"))
    www = np.uint8(a == ord("w")) & np.uint8(b == ord("w")) & np.uint8(c == ord("w"))
    line = np.uint8(a == ord("\n")) & np.uint8(b == ord("M")) & np.uint8(e == ord("\n"))
    encoded = (np.uint8(a == ord("e")) & np.uint8(b == ord("6")) & np.uint8(c == ord("4"))) | line
    urls = scheme | (www & np.uint8(d == ord(".")))
    marks = (html << 3) | (np.uint8(a == ord("@")) << 2) | (urls << 1) | encoded
    return np.uint8(marks)


@kernel
def find_marks(letters: U8_1D, starts: I64_1D, marks: OUT_U8_1D) -> None:
    """Keep of ``marks[n]`` those that text n has: nothing is to be removed where none is left.

    Text n is ``letters[starts[n]:starts[n + 1]]``, a line end after it included, and `AHEAD` more
    characters stand after the last. Marks are of ``@``, of ``<`` and ``&`` before what a tag or an
    entity may begin with, ``://`` and ``www.``, ``e64`` and lines of 61 characters that begin with
    M. Time O(characters), an eighth of a nanosecond each: there is no branch, so that many are
    looked at in one step; no memory.
    """
    for text in range(len(marks)):
        if marks[text] == 0:
            continue
        first, size = starts[text], starts[text + 1] - starts[text]
        one, two, three = letters[first:], letters[first + 1 :], letters[first + 2 :]
        four, line = letters[first + 3 :], letters[first + AHEAD :]
        found = np.uint8(0)
        for place in range(size):
            found |= _mark(one[place], two[place], three[place], four[place], line[place])
        marks[text] &= found


@kernel
def _run(letters: U8_1D, kinds: U8_1D, kind: int, first: int, stop: int, step: int) -> I64:
    """Return how many characters of a kind follow one another from `first`, up to `stop`."""
    place = first
    while place != stop and kinds[letters[place]] & kind:
        place += step
    return np.int64(abs(place - first))


@kernel
def _next(letters: U8_1D, one: U8, other: U8, first: int, last: int) -> I64:
    """Return the place of the next of two characters, or `last`."""
    at = first
    while at < last:
        # Looked for in many characters at a time, as marks are.
        found, stop = np.uint8(0), min(at + BLOCK, last)
        for place in range(at, stop):
            found |= np.uint8(letters[place] == one) | np.uint8(letters[place] == other)
        if found:
            while letters[at] != one and letters[at] != other:
                at += 1
            return np.int64(at)
        at = stop
    return np.int64(last)


@kernel
def _url_sign(a: U8, b: U8, c: U8, d: U8) -> U8:
    """Return 2 for ``://``, 1 for ``www.``, 0 for other characters."""
    scheme = np.uint8(a == ord(":")) & np.uint8(b == ord("/")) & np.uint8(c == ord("/"))
    www = np.uint8(a == ord("w")) & np.uint8(b == ord("w")) & np.uint8(c == ord("w"))
    return np.uint8((scheme << 1) | (www & np.uint8(d == ord("."))))


@kernel
def _scheme(letters: U8_1D, first: int, at: int) -> I64:
    """Return the length of the scheme that ends before `at` and begins at `first` at the least."""
    if at - 3 >= first and letters[at - 3] == ord("f"):
        size, is_one = 3, letters[at - 2] == ord("t") and letters[at - 1] == ord("p")
    else:
        size = 5 if letters[at - 1] == ord("s") else 4
        is_one = at - size >= first and letters[at - size] == ord("h")
        is_one = is_one and letters[at - size + 1] == ord("t")
        is_one = is_one and letters[at - size + 2] == ord("t")
        is_one = is_one and letters[at - size + 3] == ord("p")
    return np.int64(size if is_one else 0)


@kernel
def blank_urls(
    starts: I64_1D,
    marks: U8_1D,
    kinds: U8_1D,
    letters: OUT_U8_1D,
    pieces: OUT_I64_1D,
) -> None:
    """Put spaces for the URLs of ASCII texts with their mark; count them.

    Equivalent to the step ``"urls"`` of `streamlda.text.cleaning`. A URL is ``https://``,
    ``http://``, ``ftp://`` or ``www.``, and all characters of `IN_URL` that follow, one at least;
    none reaches into the one before. Text n is ``letters[starts[n]:starts[n + 1]]``, its last
    character not of `IN_URL`, and `AHEAD` more stand after the last. Time O(characters), no memory.
    """
    for text in range(len(pieces)):
        end, last = starts[text], starts[text + 1]
        pieces[text], at = 0, end
        if not marks[text] & URLS:
            continue
        while at < last:
            # Looked for in many characters at a time, as marks are.
            found, ahead = np.uint8(0), min(BLOCK, last - at)
            one, two, three, four = (
                letters[at:],
                letters[at + 1 :],
                letters[at + 2 :],
                letters[at + 3 :],
            )
            for place in range(ahead):
                found |= _url_sign(one[place], two[place], three[place], four[place])
            if not found:
                at += ahead
                continue
            place, found = 0, np.uint8(0)
            while not found:
                found = _url_sign(one[place], two[place], three[place], four[place])
                place += 1
            at += place - 1
            size = 0 if found == 1 else _scheme(letters, end, at)
            run = _run(letters, kinds, IN_URL, at + (4 if found == 1 else 3), last, 1)
            if run == 0 or (found == 2 and size == 0):
                at += 1
                continue
            behind = at + (4 if found == 1 else 3) + run
            letters[at - size : behind] = ord(" ")
            pieces[text] += 1
            at = end = behind


@kernel
def blank_emails(
    starts: I64_1D,
    marks: U8_1D,
    kinds: U8_1D,
    longest: int,
    letters: OUT_U8_1D,
    pieces: OUT_I64_1D,
) -> None:
    """Put spaces for the e-mail addresses of ASCII texts with their mark; count them.

    Equivalent to the step ``"emails"`` of `streamlda.text.cleaning`. An address is a name of up to
    `longest` characters, ``@``, and two runs or more of characters of hosts with a dot between
    them; it does not reach into the one before. ``kinds``, of shape (128,), says of each character
    whether it is `IN_HOST` and `IN_NAME`. Text n is ``letters[starts[n]:starts[n + 1]]``, its last
    character in neither. Time O(characters + longest * addresses); no memory.
    """
    for text in range(len(pieces)):
        end, last = starts[text], starts[text + 1]
        pieces[text], at = 0, end
        if not marks[text] & EMAILS:
            continue
        while at < last:
            at = _next(letters, ord("@"), ord("@"), at, last)
            if at == last:
                break
            run = _run(letters, kinds, IN_HOST, at + 1, last, 1)
            behind, dots = at + 1 + run, 0
            while run > 0 and behind < last and letters[behind] == ord("."):
                run = _run(letters, kinds, IN_HOST, behind + 1, last, 1)
                if run > 0:
                    behind += 1 + run
                    dots += 1
            if dots == 0:
                at += 1
                continue
            least = max(starts[text], at - longest - 1)
            start = at - _run(letters, kinds, IN_NAME, at - 1, least - 1, -1)
            # What touches the address before begins in it: that ended with a character of names.
            apart = end < start or pieces[text] == 0
            if apart and start < at and start >= at - longest:
                letters[start:behind] = ord(" ")
                pieces[text] += 1
                end = behind
            at = behind


@kernel
def _number(letters: U8_1D, codes: U8_1D, small: int, first: int, size: int) -> I64:
    """Return the number of a name of markup, in small letters if `small`; 0 for a longer one."""
    number = np.int64(0)
    if size <= LONGEST_KNOWN:
        for place in range(first, first + size):
            code = codes[letters[place] | np.uint8(32 * small)]
            number = (number << CODE_BITS) | np.int64(code)
    return number


@kernel
def _place(number: I64, numbers: I64_1D) -> I64:
    """Return the place of a number among rising ones, or -1."""
    first, behind = 0, len(numbers)
    while first < behind:
        middle = (first + behind) // 2
        if numbers[middle] < number:
            first = middle + 1
        else:
            behind = middle
    return np.int64(first if first < len(numbers) and numbers[first] == number else -1)


@kernel
def _tag_end(
    letters: U8_1D, kinds: U8_1D, codes: U8_1D, elements: I64_1D, at: int, last: int
) -> I64:
    """Return where the tag that begins at `at` ends; `at` if there is none."""
    closing = np.int64(letters[at + 1] == ord("/"))
    first = at + 1 + closing
    size = _run(letters, kinds, IN_ELEMENT, first, last, 1)
    inner = first + size
    close = inner + _run(letters, kinds, IN_TAG, inner, last, 1)
    if size == 0 or letters[first] < ord("A") or close == last or letters[close] != ord(">"):
        return np.int64(at)
    spaces = _run(letters, kinds, IN_SPACE, inner, close, 1)
    if closing:
        is_tag = inner + spaces == close
    elif inner + spaces == close:
        is_tag = _place(_number(letters, codes, 1, first, size), elements) >= 0
    else:
        is_tag = letters[close - 1] == ord("/") and (spaces > 0 or inner + 1 == close)
        if spaces > 0 and not is_tag:
            for place in range(inner, close):
                is_tag = is_tag or letters[place] == ord("=")
    return np.int64(close + 1 if is_tag else at)


@kernel
def _span(letters: U8_1D, kinds: U8_1D, codes: U8_1D, scripts: I64_1D, at: int, last: int) -> I64:
    """Return what may begin at `at`: a script's number, that after them for a comment, or -1."""
    if letters[at + 1] == ord("!"):
        is_comment = letters[at + 2] == ord("-") and letters[at + 3] == ord("-")
        return np.int64(len(scripts) if is_comment else -1)
    size = _run(letters, kinds, IN_ELEMENT, at + 1, last, 1)
    ends = letters[at + 1 + size] != ord("_")
    return np.int64(_place(_number(letters, codes, 1, at + 1, size), scripts) if ends else -1)


@kernel
def _span_end(
    letters: U8_1D, kinds: U8_1D, codes: U8_1D, scripts: I64_1D, span: I64, at: int, last: int
) -> I64:
    """Return where what `_span` found at `at` ends; `at` if it has no end."""
    is_comment = span == len(scripts)
    sign, first = (ord("-"), at + 4) if is_comment else (ord("<"), at + 1)
    end = _next(letters, sign, sign, first, last)
    while end < last:
        if is_comment:
            if letters[end + 1] == ord("-") and letters[end + 2] == ord(">"):
                return np.int64(end + 3)
        elif letters[end + 1] == ord("/"):
            size = _run(letters, kinds, IN_ELEMENT, end + 2, last, 1)
            close = end + 2 + size
            close += _run(letters, kinds, IN_SPACE, close, last, 1)
            same = _number(letters, codes, 1, end + 2, size) == scripts[span]
            if same and close < last and letters[close] == ord(">"):
                return np.int64(close + 1)
        end = _next(letters, sign, sign, end + 1, last)
    return np.int64(at)


@kernel
def _entity_end(
    letters: U8_1D, kinds: U8_1D, codes: U8_1D, entities: I64_1D, at: int, last: int
) -> I64:
    """Return where the entity that begins at `at` ends; `at` if there is none.

    -1 if it may stand for a part of a word.
    """
    first = at + 1
    if letters[first] != ord("#"):
        size = _run(letters, kinds, IN_ELEMENT, first, last, 1)
        is_one = 2 <= size <= 31 and letters[first] >= ord("A")
        parts = _place(_number(letters, codes, 0, first, size), entities) < 0
    else:
        base = 16 if letters[first + 1] | np.uint8(32) == ord("x") else 10
        first = at + (2 if base == 10 else 3)
        size = _run(letters, kinds, IN_ELEMENT, first, last, 1)
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
        return np.int64(at)
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
    letters: OUT_U8_1D,
    pieces: OUT_I64_1D,
) -> None:
    """Put spaces for the markup of ASCII texts with their mark; count its pieces.

    For the words, equivalent to the step ``"html"`` of `streamlda.text.cleaning`. A text with an
    entity that may stand for a part of a word, as of a letter, is left half way, with -1 pieces.

    A name of markup has a number: ``codes`` of its characters, from 1 on, 0 for those that are not
    `IN_ELEMENT`, `CODE_BITS` each; `elements` rise, and so do `scripts`, which are removed with
    all up to their closing tag, both in small letters, and `entities`, which stand for a sign or a
    space. Text n is ``letters[starts[n]:starts[n + 1] - 1]``, with a line end and `AHEAD` more
    characters after it. Time O(characters), no memory.
    """
    for text in range(len(pieces)):
        first, last = starts[text], starts[text + 1] - 1
        pieces[text], at = 0, first
        # Bits of what has no end: an end that was sought in vain is not sought again.
        endless = np.int64(0)
        if not marks[text] & HTML:
            continue
        while pieces[text] >= 0:
            at = _next(letters, ord("<"), ord("&"), at, last)
            if at == last:
                break
            end = np.int64(at)
            if letters[at] == ord("&"):
                end = _entity_end(letters, kinds, codes, entities, at, last)
            else:
                span = _span(letters, kinds, codes, scripts, at, last)
                if span >= 0 and not (endless >> span) & 1:
                    end = _span_end(letters, kinds, codes, scripts, span, at, last)
                    endless |= np.int64(end == at) << span
                if end == at:
                    end = _tag_end(letters, kinds, codes, elements, at, last)
            if end < 0:
                pieces[text] = -1
            elif end == at:
                at += 1
            else:
                for place in range(at, end):
                    letters[place] = ord(" ")
                pieces[text] += 1
                at = end
