"""Which words a command takes, from its options; no document is read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from streamlda.analysis import TextAnalyzer
    from streamlda.vocabulary import Vocabulary


def public_words(settings: dict[str, Any]) -> Vocabulary | None:
    """Return the words that were given, or hashed ones; None if they are to be chosen."""
    from streamlda.vocabulary import Vocabulary

    analyzer = text_analyzer(settings)
    if settings["vocabulary"] is not None:
        return Vocabulary.from_file(settings["vocabulary"], analyzer)
    if settings["hash_bits"] is not None:
        return Vocabulary.hashed(settings["hash_bits"], analyzer)
    return None


def text_analyzer(settings: dict[str, Any]) -> TextAnalyzer:
    """Return how texts are split into words."""
    from streamlda.analysis import TextAnalyzer
    from streamlda.vocabulary import Vocabulary

    stop: Any = settings["stop_words"]
    if stop == "none":
        stop = None
    elif stop != "english":
        stop = Vocabulary.from_file(stop).words
    options: dict[str, Any] = {"stop_words": stop, "ngram_range": settings["ngrams"]}
    if settings["token_pattern"] is not None:
        options["token_pattern"] = settings["token_pattern"]
    return TextAnalyzer(**options)
