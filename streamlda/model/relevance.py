"""Words of a topic by relevance: how probable they are there, and how much more so than elsewhere.

The relevance of a word with probability p in a topic, and q in all tokens, is
``weight log p + (1 - weight) log(p / q)`` (Sievert & Shirley 2014): at 1 it ranks by probability,
at 0 by lift.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Relevance:
    """Ranks the words of topics, (K, V), whose shares of all tokens are `weights`."""

    def __init__(self, components: Array, weights: Array) -> None:
        self._components = components
        #: Share of each word in all tokens, (V,), by the model: the mean of the topics. The word
        #: frequencies of a model are means over documents, to which a long one counts no more.
        self.usual: Array = (weights[:, None] * components).sum(axis=0)
        #: The topic looked at last: its columns that have a relevance, and logarithms of these.
        self._logs: tuple[int, NDArray[np.intp], Array, Array] | None = None

    def top(self, k: int, weight: float, n: int) -> list[int]:
        """Return the columns of the n most relevant words, or of all that have one. Time O(V)."""
        topic, usual = self._components[k], self.usual
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
