"""What is no text inside texts: encoded attachments, markup, addresses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection
from html import unescape

# Whole lines of uuencode, and of base64; a line of text this long has small letters, or a space.
_UUENCODED = r"M[ -`]{60}$"
_ENCODED = re.compile(rf"^(?:{_UUENCODED}|[A-Za-z0-9+/]{{60,}}={{0,2}}$)", re.MULTILINE)
_find_uuencoded = re.compile(rf"\n{_UUENCODED}", re.MULTILINE).search

_URL = re.compile(r"(?:https?|ftp)://[^\s<>\"]+|www\.[^\s<>\"]+")

# Of addresses, what is behind the name is found first: it begins with a sign of its own, so that
# this takes a tenth of the time of an expression for all of it.
_NAME = r"[\w.+%-]"
_HOST = re.compile(r"@[\w-]+(?:\.[\w-]+)+")
_name_before = re.compile(rf"(?<!{_NAME}){_NAME}{{1,64}}\Z").search

_MARKUP = re.compile(
    r"<(script|style)\b.*?</\1\s*>|</?[a-z][a-z0-9]*(?:\s[^<>]*)?/?>|<!--.*?-->"
    r"|&(?:[a-z][a-z0-9]{1,30}|#[0-9]{1,7}|#x[0-9a-f]{1,6});",
    re.IGNORECASE | re.DOTALL,
)


# A search for letters takes a hundredth of the time of an expression.


def _without_attachments(text: str) -> tuple[str, int]:
    encoded = "base64" in text or ("\nM" in text and _find_uuencoded(text))
    return _ENCODED.subn(" ", text) if encoded else (text, 0)


def _without_urls(text: str) -> tuple[str, int]:
    return _URL.subn(" ", text) if "://" in text or "www." in text else (text, 0)


def _without_emails(text: str) -> tuple[str, int]:
    if "@" not in text:
        return text, 0
    kept, end = [], 0
    for host in _HOST.finditer(text):
        first = max(0, host.start() - 65)
        name = _name_before(text[first : host.start()])
        if name is not None and first + name.start() >= end:
            kept.append(text[end : first + name.start()])
            end = host.end()
    return " ".join([*kept, text[end:]]), len(kept)


def _without_markup(text: str) -> tuple[str, int]:
    return _MARKUP.subn(_character, text) if "<" in text or "&" in text else (text, 0)


def _character(found: re.Match[str]) -> str:
    piece = found[0]
    return unescape(piece) if piece.startswith("&") else " "


#: Steps in the order they are taken.
_STEPS: dict[str, Callable[[str], tuple[str, int]]] = {
    "attachments": _without_attachments,
    "urls": _without_urls,
    "emails": _without_emails,
    "html": _without_markup,
}

STEPS = tuple(_STEPS)


def cleaned(text: str, steps: Collection[str], removed: Counter[str] | None = None) -> str:
    """Return a text without what these steps remove; `removed` counts the pieces by step.

    A space stands where something was; of an HTML entity its character.
    """
    for name in steps:
        text, pieces = _STEPS[name](text)
        if pieces and removed is not None:
            removed[name] += pieces
    return text
