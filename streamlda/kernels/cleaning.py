"""Kernels of cleaning: which texts hold what is no text; URLs and e-mail addresses among them."""

from __future__ import annotations

import numpy as np

from streamlda.kernels import I64, I64_1D, OUT_I64_1D, OUT_U8_1D, U8, U8_1D, kernel

#: Marks of what a text may hold, by what is removed: bits.
ATTACHMENTS, URLS, EMAILS, HTML = 1, 2, 4, 8


#: What a character may be part of: the host of an address, its name; a URL. Bits.
IN_HOST, IN_NAME, IN_URL = 1, 2, 4

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
    letters: U8_1D,
    starts: I64_1D,
    marks: U8_1D,
    kinds: U8_1D,
    blanked: OUT_U8_1D,
    pieces: OUT_I64_1D,
) -> None:
    """Put spaces for URLs into a copy of ASCII texts with their mark; count them.

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
            blanked[at - size : behind] = ord(" ")
            pieces[text] += 1
            at = end = behind


@kernel
def blank_emails(
    letters: U8_1D,
    starts: I64_1D,
    marks: U8_1D,
    kinds: U8_1D,
    longest: int,
    blanked: OUT_U8_1D,
    pieces: OUT_I64_1D,
) -> None:
    """Put spaces for e-mail addresses into a copy of ASCII texts with their mark; count them.

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
            # Looked for in many characters at a time, as marks are.
            found = np.uint8(0)
            for place in range(at, min(at + AHEAD, last)):
                found |= np.uint8(letters[place] == ord("@"))
            if not found:
                at += AHEAD
                continue
            while letters[at] != ord("@"):
                at += 1
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
            if end <= start and start < at and start >= at - longest:
                blanked[start:behind] = ord(" ")
                pieces[text] += 1
                end = behind
            at = behind
