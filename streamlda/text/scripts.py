"""Words of any script: Unicode forms, letters with their marks, and scripts without spaces."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import cache
from unicodedata import category, is_normalized, normalize

#: Joiners of Persian, Hindi and others, which stand inside words.
JOINERS = "\u200c\u200d"

#: The value of ``lowercase`` for languages whose I and \u0131 are one letter, and \u0130 and i.
TURKISH = "turkish"
_TURKISH = str.maketrans("I\u0130", "\u0131i")

#: Scripts that put no spaces between words, by ranges of characters, and how many letters a piece
#: between spaces has at least, on average, where it is no word: words have about 2 in Han and
#: kana, and 4 to 6 in the others; phrases between spaces or punctuation 7 to 20.
UNSPACED = (
    ("Chinese or Japanese", "\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff", 4.0),
    ("Thai, Lao, Khmer or Burmese", "\u0e01-\u0eff\u1000-\u109f\u1780-\u17ff", 9.0),
)

#: Share of tokens from which pieces of sentences in place of words are warned of.
UNSEGMENTED_SHARE = 0.1


def folded(text: str, lowercase: bool | str) -> str:
    """Return a text in composed form (NFC), without soft hyphens; in small letters, if wanted.

    The small form of a dotted capital I is ``i``, as that of others, not ``i`` and a dot; that of
    one without a dot is ``\u0131`` in Turkish.
    """
    if lowercase == TURKISH:
        text = normalize("NFC", text).translate(_TURKISH)
    if lowercase:
        text = text.lower()
    if text.isascii():
        return text
    if not is_normalized("NFC", text):
        text = normalize("NFC", text)
    text = text.replace("\u00ad", "")
    return text.replace("i\u0307", "i") if lowercase else text


def letter_words(text: str) -> list[str]:
    r"""Return the words of a text: at least two letters and marks, first a letter.

    A run that touches a number or an underscore is no word. Where there are neither marks nor
    numbers that are no digits, these are the words of ``[^\W\d_]{2,}`` between word borders.
    """
    find_runs = _runs(2 if _beyond_first_plane(text) else 1)
    return [run for run in find_runs(text) if len(run) > 1 and (run.isalpha() or _lettered(run))]


def _lettered(run: str) -> bool:
    return run[0].isalpha() and all(category(each)[0] in "LMC" for each in run)


@cache
def _runs(planes: int) -> Callable[[str], list[str]]:
    # The set of characters of the first plane alone is looked up ten times as fast.
    points = range(0x10000 if planes == 1 else 0xE0200)
    marks = "".join(chr(point) for point in points if category(chr(point))[0] == "M")
    return re.compile(f"[\\w{marks}{JOINERS}]+").findall


_beyond_first_plane = re.compile("[^\\x00-\uffff]").search


def unsegmented(words: Mapping[str, int]) -> str | None:
    """Return which scripts look as if their sentences were not cut into words, or None.

    `words` are tokens by word. Time O(words).
    """
    tokens = sum(words.values())
    for scripts, characters, least in UNSPACED:
        of_script = re.compile(f"[{characters}]").match
        found = [(len(word), count) for word, count in words.items() if of_script(word)]
        met = sum(count for _, count in found)
        letters = sum(length * count for length, count in found)
        if met > UNSEGMENTED_SHARE * tokens and letters > least * met:
            return scripts
    return None
