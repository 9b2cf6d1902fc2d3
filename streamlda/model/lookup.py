"""Topics of a word."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from streamlda.errors import VocabularyError, require
from streamlda.model.faults import fault

if TYPE_CHECKING:
    from streamlda.model.topics import Topics


class WordTopic(NamedTuple):
    """A topic, the probability of a word in it, and its share of the tokens of the word."""

    topic: int
    probability: float
    share: float


def find_topics(model: Topics, word: str) -> list[WordTopic]:
    """Return what `TopicModel.topics_of_word` describes."""
    column = _find_column(model, word)
    chances = model.components[:, column]
    tokens = model.weights * chances
    shares = tokens / max(tokens.sum(), np.finfo(float).tiny)
    return [
        WordTopic(k, float(chances[k]), float(shares[k]))
        for k in np.lexsort((-chances, -shares)).tolist()
    ]


def _find_column(model: Topics, word: str) -> int:
    """Return the column of a word as it is listed, or as the analyzer reads it."""
    if model.vocabulary is None:
        raise fault("no vocabulary")
    listed = model.vocabulary.listed or ()
    if word in listed:
        return listed.index(word)
    columns = model.encode([word]).word_ids.tolist()
    near = difflib.get_close_matches(word.lower(), listed, n=3)
    require(
        len(columns) == 1,
        "topics are looked up of one word that the model knows",
        word=word,
        known_words=len(columns),
        remedy=f"pass one of {', '.join(near)}" if near else "check how it is spelled",
        error=VocabularyError,
    )
    return int(columns[0])
