"""Word prior of seeded topics."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from streamlda.spectral.seeds import MOST_SHARE, WORD_SHARE

Array = NDArray[np.float64]


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
        found: Array = self.parts * mass[self.topics]
        return found

    def on(self, totals: Array) -> Array:
        """Return tokens by word and topic with it; a copy, if there are seeds at all."""
        if len(self.columns):
            added = self.tokens(totals.sum(axis=0))
            totals = totals.copy()
            totals[self.columns, self.topics] += added
        return totals

    def add_to(self, topics: NDArray[np.float32], words: NDArray[np.int64], mass: Array) -> None:
        """Add it to the rows of some words, rising, of topics with these masses."""
        if not len(self.columns):
            return
        rows = np.searchsorted(words, self.columns)
        there = np.isin(self.columns, words)
        ks = self.topics[there]
        topics[rows[there], ks] += self.tokens(mass)[there].astype(np.float32)
