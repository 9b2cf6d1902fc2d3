"""The words of topics: by probability, and by what sets a topic apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamlda.model.evaluation import top_words
from streamlda.model.topic_model import TopicModel

Array = NDArray[np.float64]

#: Weight of a word's probability against its lift in what counts as distinctive: the value that
#: people could name topics by best (Sievert & Shirley 2014, section 4).
RELEVANCE = 0.6

#: Weights that the page offers. The words of each are on the page: for 30 words of a topic of
#: text, 70 to 110 in all.
WEIGHTS = np.linspace(0.0, 1.0, 21)

#: Words that label a circle of the map.
LABEL_WORDS = 3


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a topic, with its column."""

    text: str
    column: int
    probability: float


class Words:
    """The words of the topics of a model.

    The relevance of a word with probability p in a topic, and q in all tokens, is
    ``weight log p + (1 - weight) log(p / q)`` (Sievert & Shirley 2014).
    """

    def __init__(self, model: TopicModel, n: int) -> None:
        self._model = model
        #: Share of each word in all tokens, (V,), by the model: the mean of the topics. The word
        #: frequencies of a model are means over documents, to which a long one counts no more.
        self.usual: Array = (model.weights[:, None] * model.components).sum(axis=0)
        self.n = min(n, model.n_features)
        self._top = top_words(model.components, self.n)
        #: The topic looked at last: its columns that have a relevance, and logarithms of these.
        self._logs: tuple[int, NDArray[np.intp], Array, Array] | None = None

    def of(self, k: int) -> tuple[Word, ...]:
        """Return the words that are among the first n by any weight, the most probable first.

        Time O(V) a weight.
        """
        found = set(self._top[k].tolist())
        for weight in WEIGHTS:
            found.update(self._relevant(k, weight, self.n))
        columns = np.array(sorted(found), dtype=np.intp)
        columns = columns[np.argsort(-self._model.components[k, columns], kind="stable")]
        names = map(self._model.feature_name, columns.tolist())
        chances = self._model.components[k, columns].tolist()
        return tuple(map(Word, names, columns.tolist(), chances))

    def label(self, k: int) -> tuple[str, ...]:
        """Return the most relevant words at the weight `RELEVANCE`."""
        columns = self._relevant(k, RELEVANCE, LABEL_WORDS)
        return tuple(map(self._model.feature_name, columns))

    def _relevant(self, k: int, weight: float, n: int) -> list[int]:
        topic, usual = self._model.components[k], self.usual
        if self._logs is None or self._logs[0] != k:
            known = np.flatnonzero((topic > 0) & (usual > 0))
            self._logs = k, known, np.log(topic[known]), np.log(usual[known])
        _, known, p, q = self._logs
        rank = (1 - weight) * q - p
        if len(known) > n:
            best = np.flatnonzero(rank <= np.partition(rank, n - 1)[n - 1])
            known, rank = known[best], rank[best]
        found: list[int] = known[np.argsort(rank, kind="stable")[:n]].tolist()
        return found
