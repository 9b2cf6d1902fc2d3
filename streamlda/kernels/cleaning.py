"""Kernels of cleaning: where joined texts may hold what is no text; URLs and e-mail addresses.

Texts are joined to one array of ASCII letters: text n is ``letters[starts[n]:starts[n + 1] - 1]``,
with a line end after it, and `PADDING` spaces after the last. The array is looked at by blocks of
`BLOCK` letters, whatever text they are of: `find_marks` says what may begin in each, and what
removes one kind looks only at the blocks with its mark. Inside a block the next sign is found in
all letters at once, without a branch, which takes as long as a few letters one by one.
"""

from __future__ import annotations

import numpy as np

from streamlda.kernels import I64, I64_1D, OUT_U8_1D, U8, U8_1D, kernel

#: Marks of what may begin in a block, by what is removed: bits.
ATTACHMENTS, URLS, EMAILS, HTML = 1, 2, 4, 8

#: What a character may be part of: the host of an address, its name; a URL; a name of markup, the
#: space in a tag, and all that is in a tag. Bits.
IN_HOST, IN_NAME, IN_URL, IN_ELEMENT, IN_SPACE, IN_TAG = 1, 2, 4, 8, 16, 32

#: Letters of a block, and the spaces after the last text: a search from inside the last block ends
#: in them.
BLOCK = 64
PADDING = 3 * BLOCK

#: From the line end before a whole line of uuencode to that after it.
_LINE = 62


@kernel
def is_html_sign(a: U8, b: U8) -> U8:
    """Return 1 for ``<`` and ``&`` before what a tag or an entity may begin with, else 0."""
    # Letters come after @; of other signs these are ! # / and five more.
    opens = np.uint8(b > ord("@")) | np.uint8((b | np.uint8(14)) == ord("/"))
    return np.uint8((np.uint8(a == ord("<")) | np.uint8(a == ord("&"))) & opens)


@kernel
def _is_url_sign(a: U8, b: U8, c: U8, d: U8) -> U8:
    """Return 1 for ``://`` and ``www.``, else 0."""
    scheme = np.uint8(a == ord(":")) & np.uint8(b == ord("/")) & np.uint8(c == ord("/"))
    www = np.uint8(a == ord("w")) & np.uint8(b == ord("w")) & np.uint8(c == ord("w"))
    return np.uint8(scheme | (www & np.uint8(d == ord("."))))


@kernel
def _is_attachment_sign(a: U8, b: U8, c: U8, e: U8) -> U8:
    """Return 1 for ``e64``, and for a line that begins with M and ends where uuencode's do."""
    line = np.uint8(a == ord("\n")) & np.uint8(b == ord("M")) & np.uint8(e == ord("\n"))
    name = np.uint8(a == ord("e")) & np.uint8(b == ord("6")) & np.uint8(c == ord("4"))
    return np.uint8(name | line)


@kernel
def find_marks(letters: U8_1D, marks: OUT_U8_1D) -> None:
    """Write of each block what may begin in it: nothing is to be removed where nothing may.

    Marks are of ``@``, of ``<`` and ``&`` before what a tag or an entity may begin with, of ``://``
    and ``www.``, of ``e64`` and lines of 61 characters that begin with M. Time O(letters), 0.15
    nanoseconds each; no memory.
    """
    n, size = len(marks), BLOCK * len(marks)
    # By two numbers, so that no place can be negative: one that may be is looked at alone.
    one, two = letters[:size].reshape(n, BLOCK), letters[1 : size + 1].reshape(n, BLOCK)
    three, four = letters[2 : size + 2].reshape(n, BLOCK), letters[3 : size + 3].reshape(n, BLOCK)
    line = letters[_LINE : size + _LINE].reshape(n, BLOCK)
    for block in range(n):
        found = np.uint8(0)
        for i in range(BLOCK):
            a, b, c = one[block, i], two[block, i], three[block, i]
            urls, html = _is_url_sign(a, b, c, four[block, i]), is_html_sign(a, b)
            emails, encoded = np.uint8(a == ord("@")), _is_attachment_sign(a, b, c, line[block, i])
            found |= np.uint8((html << 3) | (emails << 2) | (urls << 1) | encoded)
        marks[block] = found


@kernel
def next_letter(letters: U8_1D, letter: U8, first: int) -> I64:
    """Return the place of a letter among the `BLOCK` from `first` on, or that after them."""
    one, ahead = letters[first:], np.uint8(BLOCK)
    for i in range(BLOCK):
        ahead = min(ahead, np.uint8(i) if one[i] == letter else np.uint8(BLOCK))
    return np.int64(first + np.int64(ahead))


@kernel
def _next_url(letters: U8_1D, first: int) -> I64:
    """Return the place of a sign of URLs as `next_letter`."""
    one, two, three = letters[first:], letters[first + 1 :], letters[first + 2 :]
    four, ahead = letters[first + 3 :], np.uint8(BLOCK)
    for i in range(BLOCK):
        sign = _is_url_sign(one[i], two[i], three[i], four[i])
        ahead = min(ahead, np.uint8(i) if sign else np.uint8(BLOCK))
    return np.int64(first + np.int64(ahead))


@kernel
def run_length(letters: U8_1D, kinds: U8_1D, kind: int, first: int, stop: int, step: int) -> I64:
    """Return how many characters of a kind follow one another from `first`, up to `stop`."""
    place = first
    while place != stop and kinds[letters[place]] & kind:
        place += step
    return np.int64(abs(place - first))


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
def blank_urls(starts: I64_1D, marks: U8_1D, kinds: U8_1D, done: U8_1D, letters: OUT_U8_1D) -> I64:
    """Put spaces for the URLs of texts; return how many there were.

    Equivalent to the step ``"urls"`` of `streamlda.text.cleaning`. A URL is ``https://``,
    ``http://``, ``ftp://`` or ``www.``, and all characters of `IN_URL` that follow, one at least;
    none reaches into the one before. A line end is not of `IN_URL`. Texts that are `done` stay.
    Time O(letters), no memory.
    """
    pieces = at = end = last = text = np.int64(0)
    for block in range(len(marks)):
        if not marks[block] & URLS:
            continue
        at = max(at, np.int64(BLOCK * block))
        while at < BLOCK * (block + 1):
            sought, at = at, _next_url(letters, at)
            if at == sought + BLOCK:
                continue
            if at >= last:
                while starts[text + 1] <= at:
                    text += 1
                end, last = starts[text], starts[text + 1]
            is_scheme = letters[at] == ord(":")
            size = _scheme(letters, end, at) if is_scheme else np.int64(0)
            first, run = at + (3 if is_scheme else 4), np.int64(0)
            if size > 0 or not is_scheme:
                run = run_length(letters, kinds, IN_URL, first, last, 1)
            if run == 0 or done[text]:
                at += 1
                continue
            for place in range(at - size, first + run):
                letters[place] = ord(" ")
            pieces += 1
            at = end = first + run
    return pieces


@kernel
def blank_emails(
    starts: I64_1D, marks: U8_1D, kinds: U8_1D, longest: int, done: U8_1D, letters: OUT_U8_1D
) -> I64:
    """Put spaces for the e-mail addresses of texts; return how many there were.

    Equivalent to the step ``"emails"`` of `streamlda.text.cleaning`. An address is a name of up to
    `longest` characters, ``@``, and two runs or more of characters of hosts with a dot between
    them; it does not reach into the one before. ``kinds``, of shape (128,), says of each character
    whether it is `IN_HOST` and `IN_NAME`; a line end is neither. Texts that are `done` stay.
    Time O(letters + longest * addresses); no memory.
    """
    pieces = at = begun = end = last = text = np.int64(0)
    for block in range(len(marks)):
        if not marks[block] & EMAILS:
            continue
        at = max(at, np.int64(BLOCK * block))
        while at < BLOCK * (block + 1):
            sought, at = at, next_letter(letters, ord("@"), at)
            if at == sought + BLOCK:
                continue
            if at >= last:
                while starts[text + 1] <= at:
                    text += 1
                begun, last = starts[text], starts[text + 1]
                # The end of an address before: none yet.
                end = begun - 1
            run = run_length(letters, kinds, IN_HOST, at + 1, last, 1)
            behind, dots = at + 1 + run, 0
            while run > 0 and letters[behind] == ord("."):
                run = run_length(letters, kinds, IN_HOST, behind + 1, last, 1)
                if run > 0:
                    behind += 1 + run
                    dots += 1
            if dots == 0 or done[text]:
                at += 1
                continue
            least = max(begun, at - longest - 1)
            start = at - run_length(letters, kinds, IN_NAME, at - 1, least - 1, -1)
            # What touches the address before begins in it: that ended with a character of names.
            if end < start and start < at and start >= at - longest:
                for place in range(start, behind):
                    letters[place] = ord(" ")
                pieces += 1
                end = behind
            at = behind
    return pieces
