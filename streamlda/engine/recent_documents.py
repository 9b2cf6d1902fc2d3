"""The latest documents of a stream, kept for a while."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.engine.warmup import WARMUP_MAX_ENTRIES
from streamlda.text.columns import ColumnChange
from streamlda.utils.arrays import Arrays, named, with_prefix

#: Documents are kept in parts of at most 1000, and of a sixteenth of the most counts: parts are
#: dropped as a whole, so this bounds what is kept beyond the limit.
PART_DOCUMENTS, PARTS = 1000, 16


class RecentDocuments:
    """The latest usable documents of a stream: at most `most`, of at most `entries` counts.

    Which ones they are depends on the stream alone, not on how it was cut into batches.
    Memory: those, and one part at most of older ones.
    """

    def __init__(self, most: int, entries: int = WARMUP_MAX_ENTRIES) -> None:
        self.most, self.entries = most, entries
        self.parts: list[DocumentBatch] = []
        self._sizes = np.zeros(2, dtype=np.int64)

    def add(self, batch: DocumentBatch) -> None:
        """Keep a copy of the documents of at least 3 tokens, and drop the oldest ones."""
        documents = batch.where(batch.usable)
        pointers, most = documents.row_pointers, max(1, self.entries // PARTS)
        start = 0
        while start < documents.n_documents:
            fitting = int(np.searchsorted(pointers, pointers[start] + most, side="right")) - 1
            # A document is never cut.
            stop = max(start + 1, min(fitting, start + PART_DOCUMENTS))
            part = documents.rows(start, stop).copy()
            self.parts.append(part)
            self._sizes += _size(part)
            self._drop()
            start = stop

    def _drop(self) -> None:
        while self.parts:
            without = self._sizes - _size(self.parts[0])
            if not np.any(without >= (self.most, self.entries)):
                break
            self._sizes = without
            self.parts.pop(0)

    def latest(self) -> DocumentBatch:
        """Return them as one batch, of one document at least. Memory as much again."""
        # Only the oldest part can exceed the limits: its beginning is left out.
        oldest, *others = self.parts
        documents, entries = (self.most, self.entries) - (self._sizes - _size(oldest))
        n, pointers = oldest.n_documents, oldest.row_pointers
        first = max(int(np.searchsorted(pointers, pointers[-1] - entries)), n - int(documents))
        if not others:
            first = min(first, n - 1)
        return DocumentBatch.joined([oldest.rows(first, n), *others])

    def change_words(self, change: ColumnChange) -> None:
        """Forget words that left; documents of fewer than 3 tokens go."""
        if self.parts:
            # What lies beyond the limits is not in a state.
            kept = change.documents(self.latest())
            self.clear()
            self.add(kept)

    def clear(self) -> None:
        """Keep none."""
        self.parts.clear()
        self._sizes[:] = 0

    def state(self, prefix: str = "kept.") -> Arrays:
        """Return them as named arrays; nothing if there are none."""
        return with_prefix(self.latest().arrays, prefix) if self.parts else {}

    def restore(
        self, arrays: Mapping[str, NDArray[Any]], n_features: int, prefix: str = "kept."
    ) -> Self:
        """Take back what `state` returned."""
        if kept := named(arrays, prefix):
            self.add(DocumentBatch(**kept, n_features=n_features, integral=False))
        return self


def _size(part: DocumentBatch) -> tuple[int, int]:
    return part.n_documents, len(part.counts)
