"""Arrays of the letters of ASCII texts, cleaned in place."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Collection
from itertools import count

import numpy as np
from numpy.typing import NDArray

from streamlda.kernels.cleaning import (
    ATTACHMENTS,
    BLOCK,
    EMAILS,
    HTML,
    IN_ELEMENT,
    IN_HOST,
    IN_NAME,
    IN_SPACE,
    IN_TAG,
    IN_URL,
    PADDING,
    URLS,
    blank_emails,
    blank_urls,
    find_marks,
)
from streamlda.kernels.markup import CODE_BITS, LEFT, blank_markup
from streamlda.text.cleaning import (
    ASCII_HOST,
    ASCII_NAME,
    ASCII_SPACE,
    ASCII_TAG,
    ASCII_URL,
    ELEMENTS,
    LONGEST_NAME,
    SCRIPTS,
    SIGNS,
    clean_text,
)

#: Texts that are encoded together.
TOGETHER = 32

#: Marks of texts from which a step of cleaning may remove something.
MARKS = {"attachments": ATTACHMENTS, "urls": URLS, "emails": EMAILS, "html": HTML}

#: Parts of pieces that each ASCII character may be in.
_ALPHANUMERIC = string.ascii_letters + string.digits
_PARTS = {
    **{IN_HOST: ASCII_HOST, IN_NAME: ASCII_NAME, IN_URL: ASCII_URL},
    **{IN_ELEMENT: _ALPHANUMERIC, IN_SPACE: ASCII_SPACE, IN_TAG: ASCII_TAG},
}
_KINDS = np.array(
    [sum(kind for kind in _PARTS if chr(i) in _PARTS[kind]) for i in range(128)], dtype=np.uint8
)

#: Numbers of characters in names of markup, and of the names.
_CODES = np.array([1 + _ALPHANUMERIC.find(chr(i)) for i in range(128)], dtype=np.uint8)


def _encode_name(name: str) -> int:
    return sum(int(_CODES[ord(letter)]) << CODE_BITS * n for n, letter in enumerate(reversed(name)))


def _hash_names(names: Collection[str]) -> NDArray[np.int64]:
    """Return the numbers of names, each at its remainder by the size; 0 elsewhere."""
    numbers = [*map(_encode_name, names)]
    # About one in seven of the sizes from here on has a place for each.
    sizes = count(len(numbers) ** 2 // 4)
    size = next(size for size in sizes if len({n % size for n in numbers}) == len(numbers))
    table = np.zeros(size, dtype=np.int64)
    for number in numbers:
        table[number % size] = number
    return table


_SCRIPTS = np.array([_encode_name(name) for name in SCRIPTS], dtype=np.int64)
_MARKUP = _KINDS, _CODES, _hash_names(ELEMENTS), _SCRIPTS, _hash_names(SIGNS)


def join_letters(texts: list[str]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return ASCII texts as one run of bytes, a line end after each, and where each begins.

    `PADDING` spaces follow, for the kernels of cleaning.
    """
    starts = np.zeros(len(texts) + 1, dtype=np.int64)
    np.cumsum(np.fromiter(map(str.__len__, texts), np.int64, len(texts)) + 1, out=starts[1:])
    # Some at a time: a block of memory as large as all of them takes longer to get than to fill.
    parts = ["\n".join(texts[n : n + TOGETHER]) for n in range(0, len(texts), TOGETHER)]
    joined = bytearray(b"\n").join([part.encode("ascii") for part in [*parts, " " * PADDING]])
    return np.frombuffer(joined, dtype=np.uint8), starts


def clean_letters(
    letters: NDArray[np.uint8],
    starts: NDArray[np.int64],
    texts: list[str],
    steps: tuple[str, ...],
    removed: Counter[str] | None,
) -> dict[int, str]:
    """Blank the pieces that these steps remove from joined texts; return texts not ASCII any more.

    Kernels remove all but attachments, and markup with letters in it.
    """
    found = Counter[str]()
    marks = np.empty(-(-int(starts[-1]) // BLOCK), dtype=np.uint8)
    find_marks(letters, marks)
    marked = int(np.bitwise_or.reduce(marks)) & sum(MARKS[step] for step in steps)
    done = np.zeros(len(texts), dtype=np.uint8)
    others: dict[int, str] = {}

    def put(n: int, text: str) -> None:
        letters[starts[n] : starts[n + 1] - 1] = ord(" ")
        if text.isascii():
            # Never longer: a piece leaves one character, or that of its entity.
            codes = np.frombuffer(text.encode("ascii"), np.uint8)
            letters[starts[n] : starts[n] + len(text)] = codes
        else:
            others[n] = text

    if marked & ATTACHMENTS:
        until = np.concatenate(([0], np.cumsum((marks & ATTACHMENTS) > 0)))
        signs = until[(starts[1:] - 1) // BLOCK + 1] - until[starts[:-1] // BLOCK]
        for n in np.flatnonzero(signs).tolist():
            own = Counter[str]()
            text = clean_text(texts[n], ("attachments",), own)
            if own:
                put(n, clean_text(text, steps[1:], own))
                found += own
                done[n] = 1
    if marked & URLS:
        found["urls"] += blank_urls(starts, marks, _KINDS, done, letters)
    if marked & EMAILS:
        found["emails"] += blank_emails(starts, marks, _KINDS, LONGEST_NAME, done, letters)
    if marked & HTML:
        found["html"] += blank_markup(starts, marks, *_MARKUP, done, letters)
        for n in np.flatnonzero(done == LEFT).tolist():
            # All steps again, for the letters are changed; the others are counted already.
            own = Counter[str]()
            put(n, clean_text(texts[n], steps, own))
            found["html"] += own["html"]
    if removed is not None:
        removed += found
    return others
