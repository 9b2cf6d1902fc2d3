"""Numbers and lists as the page writes them."""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any
from unicodedata import bidirectional

from streamlda.model.table import percent, plural


def short(value: float) -> str:
    """Return a number with one decimal at most: no eye sees more, and the page is smaller."""
    return f"{value:.1f}".removesuffix(".0")


def utc(moment: str) -> str:
    """Return an ISO time to the minute, in UTC."""
    return f"{datetime.fromisoformat(moment).astimezone(UTC):%Y-%m-%d %H:%M} UTC"


def pairs(values: Mapping[str, Any]) -> str:
    """Return settings or versions in a line, without those that are None."""
    return ", ".join(
        f"{name} {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in values.items()
        if value is not None
    )


def join_words(words: Iterable[str]) -> str:
    """Return words in a line, those that run from the right isolated, so that all stay in order."""
    from_right = {"R", "AL", "AN"}
    return " ".join(
        word if from_right.isdisjoint(map(bidirectional, word)) else f"\u2068{word}\u2069"
        for word in words
    )


def lines(value: Any) -> str:
    """Return a list in lines, and nothing for another type: diagnostics may hold anything."""
    return "\n".join(map(str, value)) if isinstance(value, list) else ""


FILTERS: dict[str, Callable[..., Any]] = {
    function.__name__: function
    for function in (percent, plural, short, utc, pairs, join_words, lines)
}
