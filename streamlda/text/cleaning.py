"""What is no text inside texts: encoded attachments, markup, addresses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from html import unescape

#: Steps in the order they are taken; of each, one of these must be in a text that it changes (a
#: search for letters takes a hundredth of the time of an expression), and what it removes.
_STEPS = {
    "attachments": (
        ("\nM", "base64"),
        # Whole lines of uuencode, and of base64; a line of text this long has small letters, or
        # a space.
        re.compile(r"^(?:M[ -`]{60}|[A-Za-z0-9+/]{60,}={0,2})$", re.MULTILINE),
    ),
    "urls": (("://", "www."), re.compile(r"(?:https?|ftp)://[^\s<>\"]+|www\.[^\s<>\"]+")),
    "emails": (("@",), re.compile(r"(?<![\w.+%-])[\w.+%-]{1,64}@[\w-]+(?:\.[\w-]+)+")),
    "html": (
        (">", ";"),
        re.compile(
            r"<(script|style)\b.*?</\1\s*>|</?[a-z][a-z0-9]*(?:\s[^<>]*)?/?>|<!--.*?-->"
            r"|&(?:[a-z][a-z0-9]{1,30}|#[0-9]{1,7}|#x[0-9a-f]{1,6});",
            re.IGNORECASE | re.DOTALL,
        ),
    ),
}

STEPS = tuple(_STEPS)


def cleaned(text: str, steps: Collection[str], removed: Counter[str] | None = None) -> str:
    """Return a text without what these steps remove; `removed` counts the pieces by step.

    A space stands where something was; of an HTML entity its character.
    """
    for name in steps:
        signs, pattern = _STEPS[name]
        if any(sign in text for sign in signs):
            text, pieces = pattern.subn(_character if name == "html" else " ", text)
            if removed is not None and pieces:
                removed[name] += pieces
    return text


def _character(found: re.Match[str]) -> str:
    piece = found[0]
    return unescape(piece) if piece.startswith("&") else " "
