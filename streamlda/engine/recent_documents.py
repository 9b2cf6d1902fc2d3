"""The latest documents of a stream, kept for a while."""

from typing import Self

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.engine.projections import WARMUP_MAX_ENTRIES
from streamlda.text.columns import ColumnChange
from streamlda.utils.arrays import Arrays

#: Documents are kept in parts of a sixteenth of the most counts. Parts are dropped as a whole, so
#: this bounds what is kept beyond the limits.
PARTS = 16


class RecentDocuments:
    """The latest usable documents of a stream: at most `most`, of at most `entries` counts.

    Which ones they are depends on the stream alone, not on how it was cut into batches.
    Memory: those, and one part at most of older ones.
    """

    def __init__(self, most: int, entries: int = WARMUP_MAX_ENTRIES) -> None:
        self.most, self.entries = most, entries
        self.parts: list[DocumentBatch] = []

    def add(self, batch: DocumentBatch) -> None:
        """Keep a copy of the documents of at least 3 tokens, and drop the oldest parts."""
        for part in batch.where(batch.usable).blocks(max(1, self.entries // PARTS)):
            self.parts.append(part.copy())
            while len(self.parts) > 1 and self._is_full(self.parts[1:]):
                del self.parts[0]

    def _is_full(self, parts: list[DocumentBatch]) -> bool:
        documents = sum(part.n_documents for part in parts)
        return documents >= self.most or sum(part.n_entries for part in parts) >= self.entries

    def latest(self) -> DocumentBatch:
        """Return them as one batch, of one document at least. Memory as much again."""
        kept = DocumentBatch.joined(self.parts)
        n, pointers = kept.n_documents, kept.row_pointers
        first = max(int(np.searchsorted(pointers, pointers[-1] - self.entries)), n - self.most)
        return kept.rows(min(first, n - 1), n)

    def change_words(self, change: ColumnChange) -> None:
        """Forget words that left; documents of fewer than 3 tokens go."""
        if self.parts:
            # What lies beyond the limits is not in a state.
            kept, self.parts = change.documents(self.latest()), []
            self.add(kept)

    def state(self) -> Arrays:
        """Return them as named arrays; nothing if there are none."""
        return self.latest().arrays if self.parts else {}

    def restore(self, arrays: Arrays, n_features: int) -> Self:
        """Take back what `state` returned."""
        if arrays:
            self.add(DocumentBatch(**arrays, n_features=n_features, integral=False))
        return self
