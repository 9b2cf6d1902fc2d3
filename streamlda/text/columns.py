"""Columns whose words change, in arrays and in documents as counts."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.utils.arrays import Array


@dataclass(frozen=True, slots=True, eq=False)
class ColumnChange:
    """Words that take the columns of others, and further columns after the last; all others stay.

    What was counted in a column whose word left is forgotten.
    """

    #: Columns that have another word from now on, rising.
    replaced: NDArray[np.int64]
    #: Columns until now, and from now on.
    before: int
    after: int
    #: Share of all tokens of each word that enters: those of `replaced`, then of further columns.
    shares: Array
    #: How each of these is divided among K topics, (words, K): rows sum to 1, or to 0 of a word of
    #: which nothing is known; None where that is so of all.
    parts: Array | None = None

    @property
    def entered_columns(self) -> NDArray[np.int64]:
        """Columns of words that enter, rising."""
        return np.concatenate([self.replaced, np.arange(self.before, self.after)])

    def rows(self, array: Array) -> Array:
        """Return an array with a row for each column, 0 for words that enter; O(its size)."""
        found = np.zeros((self.after, *array.shape[1:]))
        found[: self.before] = array
        found[self.replaced] = 0.0
        return found

    def distribution(self, array: Array) -> Array:
        """Return frequencies of words where those that enter have their shares; columns sum to 1.

        Of shape (V,) or (V, K); O(its size).
        """
        found = self.rows(array)
        found[self.entered_columns] = self.shares.reshape(-1, *[1] * (array.ndim - 1))
        scaled: Array = found / found.sum(axis=0)
        return scaled

    def masses(self, topics: Array) -> Array:
        """Return what words that enter begin with in topics of these masses, (words, K)."""
        of_every_topic = self.shares[:, None] * topics
        if self.parts is None:
            return of_every_topic
        known = self.parts.any(axis=1, keepdims=True)
        return np.where(known, self.shares[:, None] * self.parts * topics.sum(), of_every_topic)

    def documents(self, batch: DocumentBatch) -> DocumentBatch:
        """Return documents without the words that left; those may be empty now. O(nnz)."""
        gone = np.zeros(self.before, dtype=np.bool_)
        gone[self.replaced] = True
        return batch.without(gone, self.after)
