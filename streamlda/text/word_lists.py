"""Lists of words: each word once, none empty."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from streamlda.checks import failure, require
from streamlda.errors import VocabularyError

_require = partial(require, error=VocabularyError)
_failure = partial(failure, error=VocabularyError)


def listed(words: Iterable[str]) -> tuple[str, ...]:
    """Return words as a tuple; a text is no list of words."""
    _require(not isinstance(words, str), "words must be a list of words, got one string")
    return tuple(words)


def checked_words(words: Sequence[str]) -> tuple[str, ...]:
    """Return words that are not empty and all different."""
    for position, word in enumerate(words):
        if not isinstance(word, str) or not word:
            rule = "each word must be a non-empty str"
            raise _failure(rule, type=type(word).__name__, position=position)
    return distinct(enumerate(words), "position")


def distinct(words: Iterable[tuple[int, str]], unit: str, **where: Any) -> tuple[str, ...]:
    """Return words that are given with their numbers, which `unit` names; at least one."""
    first: dict[str, int] = {}
    for number, word in words:
        if first.setdefault(word, number) != number:
            where_twice = where | {unit: number, f"first_{unit}": first[word]}
            rule = "a word list must have each word once"
            raise _failure(rule, **where_twice, remedy="remove one of them")
    remedy = "put one on each line" if unit == "line" else "give some"
    _require(first, "a word list must have at least one word", **where, words=0, remedy=remedy)
    return tuple(first)
