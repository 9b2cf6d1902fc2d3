"""Removal of encoded attachments, markup and addresses from texts."""

import re
from collections import Counter
from collections.abc import Callable, Collection
from html import unescape

from streamlda.texts import TokenizedText

# Whole lines of uuencode, and of base64; a line of text this long has small letters, or a space.
_UUENCODED = r"M[ -`]{60}$"
_ENCODED = re.compile(rf"^(?:{_UUENCODED}|[A-Za-z0-9+/]{{60,}}={{0,2}}$)", re.MULTILINE)
_find_uuencoded = re.compile(rf"\n{_UUENCODED}", re.MULTILINE).search

_SCHEMES = ("https", "http", "ftp")
_url_at = re.compile(rf"(?:(?:{'|'.join(_SCHEMES)})://|www\.)[^\s<>\"]+").match
# The host of an address is found first: it begins with a sign of its own, so that this takes a
# tenth of the time of an expression for the whole address.
_NAME = r"[\w.+%-]"
_HOST = re.compile(r"@[\w-]+(?:\.[\w-]+)+")
_name_backwards = re.compile(rf"{_NAME}+").match
_LONGEST_NAME = 64

# Texts have placeholders such as <file>, so elements of HTML are known by name.
_ELEMENTS = (
    "a|abbr|acronym|address|article|aside|b|base|big|blockquote|body|br|button|caption|center|"
    "cite|code|col|dd|del|details|div|dl|dt|em|fieldset|figure|font|footer|form|h1|h2|h3|h4|h5|h6|"
    "head|header|hr|html|i|img|ins|kbd|legend|li|link|main|mark|meta|nav|nobr|noscript|ol|p|pre|q|"
    "s|samp|section|small|span|strike|strong|style|sub|summary|sup|table|tbody|td|tfoot|th|thead|"
    "title|tr|tt|u|ul"
)
_markup_at = re.compile(
    rf"<(?:{_ELEMENTS})\s*>|</[a-z][a-z0-9]*\s*>"
    r"|<[a-z][a-z0-9]*(?:\s(?=[^<>=]*=)[^<>]*|\s*/|\s[^<>]*/)>"
    r"|&(?:[a-z][a-z0-9]{1,30}|#[0-9]{1,7}|#x[0-9a-f]{1,6});",
    re.IGNORECASE | re.DOTALL,
).match

# The end of a span is sought only before the last sign of its kind, else time would be quadratic.
_SPAN = re.compile(r"<(?:(script|style)\b.*?</\1\s*>|!--.*?-->)", re.IGNORECASE | re.DOTALL)
_ENDS = {
    sign: re.compile(end, re.IGNORECASE)
    for sign, end in (("<sc", r"</script\s*>"), ("<st", r"</style\s*>"), ("<!-", "-->"))
}

# Dots between single capitals: an expression that begins with a sign is fast.
_INITIALISM = re.compile(r"\.(?<=(?<![\w.])[A-Z]\.)[A-Z](?:\.[A-Z])*\b")

# Signs are searched for first, in a hundredth of the time of an expression, and a rare letter of a
# sign before it, in a twentieth of that.


def _remove_attachments(text: str) -> tuple[str, int]:
    encoded = "6" in text and "base64" in text
    encoded = encoded or ("\n" in text and "\nM" in text and _find_uuencoded(text) is not None)
    return _ENCODED.subn(" ", text) if encoded else (text, 0)


def _remove_urls(text: str) -> tuple[str, int]:
    if "://" not in text and "www." not in text:
        return text, 0
    return _replace_pieces(text, ("://", "www."), _match_url, lambda found: " ")


def _match_url(text: str, at: int, end: int) -> re.Match[str] | None:
    if text[at] == "w":
        return _url_at(text, at)
    scheme = next((each for each in _SCHEMES if text.endswith(each, end, at)), "")
    return _url_at(text, at - len(scheme))


def _remove_emails(text: str) -> tuple[str, int]:
    if "@" not in text:
        return text, 0
    kept, end = [], 0
    for host in _HOST.finditer(text):
        at = host.start()
        name = _name_backwards(text[max(0, at - _LONGEST_NAME - 1) : at][::-1])
        start = at - len(name[0]) if name else at
        if end <= start < at <= start + _LONGEST_NAME:
            kept.append(text[end:start])
            end = host.end()
    return " ".join([*kept, text[end:]]), len(kept)


def _remove_markup(text: str) -> tuple[str, int]:
    if "<" not in text and "&" not in text:
        return text, 0
    last: dict[str, int] = {}

    def piece_at(text: str, at: int, end: int) -> re.Match[str] | None:
        sign = text[at : at + 3].lower()
        if sign in _ENDS:
            if sign not in last:
                ends = (found.start() for found in _ENDS[sign].finditer(text))
                last[sign] = max(ends, default=-1)
            if at < last[sign] and (span := _SPAN.match(text, at)):
                return span
        return _markup_at(text, at)

    return _replace_pieces(
        text, ("<", "&"), piece_at, lambda m: unescape(m[0]) if m[0][0] == "&" else " "
    )


def _replace_pieces(
    text: str,
    signs: tuple[str, str],
    piece_at: Callable[[str, int, int], re.Match[str] | None],
    put: Callable[[re.Match[str]], str],
) -> tuple[str, int]:
    """Put other text for pieces, each found by a sign in it: a tenth of an expression's time.

    `piece_at` gets the place of the sign, and the end of the piece before.
    """
    kept: list[str] = []
    end = 0
    one, two = map(text.find, signs)
    while one >= 0 or two >= 0:
        at = one if two < 0 or 0 <= one < two else two
        if found := piece_at(text, at, end):
            kept += text[end : found.start()], put(found)
            at = end = found.end()
        else:
            at += 1
        if 0 <= one < at:
            one = text.find(signs[0], at)
        if 0 <= two < at:
            two = text.find(signs[1], at)
    return ("".join([*kept, text[end:]]), len(kept) // 2) if kept else (text, 0)


#: Steps in the order they are taken.
_STEPS: dict[str, Callable[[str], tuple[str, int]]] = {
    "attachments": _remove_attachments,
    "urls": _remove_urls,
    "emails": _remove_emails,
    "html": _remove_markup,
    "initialisms": lambda text: (_INITIALISM.sub(lambda m: m[0].replace(".", "_"), text), 0),
}

STEPS = tuple(_STEPS)


def clean_text(text: str, steps: Collection[str], removals: Counter[str] | None = None) -> str:
    """Return a text without the pieces that these steps remove; `removals` counts them by step.

    A space replaces a piece; an HTML entity is replaced by its character. Initialisms become one
    word: ``U.S.A.`` is ``U_S_A``, which no pronoun or stop word is.
    Words that are given stay.
    """
    if isinstance(text, TokenizedText):
        return text
    for name in steps:
        text, pieces = _STEPS[name](text)
        if pieces and removals is not None:
            removals[name] += pieces
    return text
