"""Words of any script: Unicode forms, letters with their marks, and scripts without spaces."""

import re
from collections.abc import Callable, Mapping
from functools import cache
from unicodedata import category, normalize

from streamlda.utils.unicode_forms import normalize_text

#: Joiners of Persian, Hindi and others, which stand inside words.
JOINERS = "\u200c\u200d"

#: Ligatures, letters of Arabic by their place, letters of full or half width and of formulas.
_COMPATIBLE = re.compile("[\ufb00-\ufdff\ufe70-\ufefc\uff00-\uffef\U0001d400-\U0001d7ff]")

#: Underscores that join nothing. An expression that begins with a character is searched for fast.
_split_underscores = re.compile(r"_(?:_+|(?=\s|$)|(?<=\s_)|(?<=^_))").sub

#: Points of Hebrew and Arabic, and the stroke between Arabic letters: a word is the same without.
_POINTS = re.compile("[\u0591-\u05bd\u05bf-\u05c7\u0640\u064b-\u0652\u0670]")

#: Signs inside words, as letters of Unicode that look like them, and as they are written in words.
_APOSTROPHE, _QUOTE, _DOT = "\u02bc", "\u02ee", "\ua78f"
_AS_LETTER = {
    **dict.fromkeys("'\u2019\u05f3", _APOSTROPHE),
    **dict.fromkeys('"\u201d\u05f4', _QUOTE),
    "\u00b7": _DOT,
}
_AS_SIGN = {ord(_APOSTROPHE): "'", ord(_QUOTE): '"', ord(_DOT): "\u00b7"}
_HEBREW = "\u05d0-\u05ea"
_OTHERS = f"\u0400-\u04ff{_HEBREW}"
# A set that comes first is searched for fast.
_INNER = re.compile(
    "['\u2019\u05f3\"\u201d\u05f4\u00b7]"
    f"(?:(?<=[{_OTHERS}]['\u2019\u05f3])(?=[{_OTHERS}])"
    f'|(?<=[{_HEBREW}]["\u201d\u05f4])(?=[{_HEBREW}](?![{_HEBREW}]))|(?<=[lL]\u00b7)(?=[lL]))'
)

#: Finds letters around such signs or points, and characters beyond the first plane.
_find_rare = re.compile("[\u00b7\u02bc\u0400-\u04ff\u0590-\u06ff\U00010000-\U0010ffff]").search

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


def fold_text(text: str, lowercase: bool | str) -> str:
    """Return a text in composed form (NFC), without soft hyphens; in small letters, if wanted.

    Ligatures and letters of another width become plain letters (NFKC), as letters of formulas do.
    The small form of a dotted capital I is ``i``, as that of others, not ``i`` and a dot; that of
    one without a dot is ``\u0131`` in Turkish.
    """
    if lowercase == TURKISH:
        text = normalize_text("NFC", text).translate(_TURKISH)
    if lowercase:
        text = text.lower()
    if text.isascii():
        return text
    text = _COMPATIBLE.sub(lambda found: normalize("NFKC", found[0]), text)
    text = normalize_text("NFC", text).replace("\u00ad", "")
    text = text.lower() if lowercase else text
    return text.replace("i\u0307", "i") if lowercase else text


def find_script_words(text: str) -> list[str]:
    """Return the words of a text: two or more letters, marks and digits, a letter among them.

    An underscore between two of them is part of the word, and two in a row end it. So is an
    apostrophe of Cyrillic or Hebrew, the quote of a Hebrew abbreviation and the dot of a Catalan
    l·l. The points of Arabic and Hebrew, and the stroke that makes Arabic words longer, are not.
    """
    inner, planes = 0, 1
    if _find_rare(text):
        text, inner = _INNER.subn(lambda found: _AS_LETTER[found[0]], _POINTS.sub("", text))
        inner += _APOSTROPHE in text
        text = _BEYOND.sub(_blank_sign, text)
        planes = 2 if any(category(each)[0] == "M" for each in _BEYOND.findall(text)) else 1
    find_runs = _compile_runs(planes)
    words: list[str] = []
    for run in find_runs(text):
        if run.isalpha():
            words.append(run)
        else:
            words += map(_trim_run, split_runs(run))
    words = [word for word in words if len(word) > 1]
    return [word.translate(_AS_SIGN) for word in words] if inner else words


def split_runs(text: str) -> list[str]:
    """Return the runs between spaces, and between underscores that do not join two of them."""
    return (_split_underscores(" ", text) if "_" in text else text).split()


def _trim_run(run: str) -> str:
    """Return a run from its first letter or number on, or nothing if it has no letter.

    A mark may follow another sign than a letter, such as the heart of an emoji.
    """
    kinds = [category(each)[0] for each in run]
    if "L" not in kinds:
        return ""
    first = next(n for n, kind in enumerate(kinds) if kind in "LN")
    return run[first:].rstrip(JOINERS)


@cache
def _compile_runs(planes: int) -> Callable[[str], list[str]]:
    # A set with marks beyond the first plane is looked up a tenth as fast.
    points = range(0x10000 if planes == 1 else 0xE0200)
    marks = "".join(chr(point) for point in points if category(chr(point))[0] == "M")
    return re.compile(f"[\\w{marks}{JOINERS}]+").findall


_BEYOND = re.compile("[^\\x00-\uffff]")


def _blank_sign(match: re.Match[str]) -> str:
    """Return a letter, mark or number as it is, and a space for any other sign, as an emoji."""
    return match[0] if category(match[0])[0] in "LMN" else " "


def find_unsegmented(words: Mapping[str, int]) -> str | None:
    """Return the scripts whose sentences look as if not cut into words, or None.

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
