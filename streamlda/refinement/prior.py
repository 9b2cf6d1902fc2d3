"""Word prior of seeded topics."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.spectral.seeds import MOST_SHARE, WORD_SHARE
from streamlda.utils.arrays import Array, frozen, row_blocks


class Prior:
    """Parts of the tokens of seeded topics that are on their words beforehand."""

    def __init__(self, seeds: Sequence[tuple[int, ...]], n_topics: int) -> None:
        sizes = np.array([len(columns) for columns in seeds], dtype=np.int64)
        #: One for each seed word of each topic.
        self.topics = np.repeat(np.arange(len(sizes)), sizes)
        self.columns = np.array([w for columns in seeds for w in columns], dtype=np.int64)
        self.parts = np.minimum(WORD_SHARE, MOST_SHARE / np.maximum(sizes, 1))[self.topics]
        #: One for each topic, 0 without seeds.
        self.sums = np.bincount(self.topics, self.parts, minlength=n_topics)

    def tokens(self, mass: Array) -> Array:
        """Return the tokens of each seed word in topics with these masses."""
        return self.parts * mass[self.topics]

    def add(self, totals: NDArray[Any]) -> None:
        """Add it to tokens by word and topic, (V, K)."""
        if len(self.columns):
            totals[self.columns, self.topics] += self.tokens(totals.sum(axis=0))

    def components(self, totals: Array, smoothing: float) -> Array:
        """Return topics, (K, V), of tokens by word and topic, and some more of each word.

        They are read-only, so that a model shares them. No other array of V K numbers is made.
        """
        found = np.empty(totals.T.shape)
        for words in row_blocks(len(totals)):
            found[:, words] = totals[words].T
        self.add(found.T)
        found += smoothing
        found /= found.sum(axis=1, keepdims=True)
        return frozen(found)

    def add_to(self, topics: NDArray[np.float32], words: NDArray[np.int64], mass: Array) -> None:
        """Add it to the rows of some words, rising, of topics with these masses."""
        if not len(self.columns):
            return
        rows = np.searchsorted(words, self.columns)
        there = np.isin(self.columns, words)
        ks = self.topics[there]
        topics[rows[there], ks] += self.tokens(mass)[there].astype(np.float32)
