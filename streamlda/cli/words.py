"""Which words a command takes, and the options that say so; no document is read."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from streamlda.text.analysis import TextAnalyzer
    from streamlda.text.vocabulary import Vocabulary

Command = TypeVar("Command", bound=Callable[..., Any])


def ngram_range(value: str) -> tuple[int, int]:
    """Return shortest and longest run for ``2`` (1 to 2) or ``2..3``."""
    found = re.fullmatch(r"(?:(\d+)\.\.)?(\d+)", value)
    if found is None:
        raise click.BadParameter(f"{value!r} is not a number n or a range m..n.")
    return int(found[1] or 1), int(found[2])


def text_options(command: Command) -> Command:
    """Add the options that `text_analyzer` reads."""
    for decorate in reversed(
        (
            click.option(
                "--stop-words",
                default="english",
                show_default=True,
                metavar="english|none|FILE",
                help="Words to leave out: scikit-learn's English list, none, or a file with one a "
                "line.",
            ),
            click.option(
                "--token-pattern",
                help="Regular expression of a word. [default: two or more letters of any script]",
            ),
            click.option(
                "--ngrams",
                type=ngram_range,
                metavar="N|M..N",
                default="1",
                show_default=True,
                help="Longest run of words that counts as one, or shortest..longest.",
            ),
        )
    ):
        command = decorate(command)
    return command


def public_words(settings: dict[str, Any]) -> Vocabulary | None:
    """Return the words that were given, or hashed ones; None if they are to be chosen."""
    from streamlda.text.vocabulary import Vocabulary

    analyzer = text_analyzer(settings)
    if settings["vocabulary"] is not None:
        return Vocabulary.from_file(settings["vocabulary"], analyzer)
    if settings["hash_bits"] is not None:
        return Vocabulary.hashed(settings["hash_bits"], analyzer)
    return None


def text_analyzer(settings: dict[str, Any]) -> TextAnalyzer:
    """Return how texts are split into words."""
    from streamlda.text.analysis import TextAnalyzer
    from streamlda.text.vocabulary import Vocabulary

    stop: Any = settings["stop_words"]
    if stop == "none":
        stop = None
    elif stop != "english":
        stop = Vocabulary.from_file(stop).words
    options: dict[str, Any] = {"stop_words": stop, "ngram_range": settings["ngrams"]}
    if settings["token_pattern"] is not None:
        options["token_pattern"] = settings["token_pattern"]
    return TextAnalyzer(**options)
