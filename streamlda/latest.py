"""The latest documents of a stream, kept for a while."""

from __future__ import annotations

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.engine import WARMUP_MAX_ENTRIES

#: Documents are kept in parts of at most so many, so that no part outlives its use for long.
PART_DOCUMENTS = 1000


class Latest:
    """The latest documents of a stream: at most so many, and so many counts.

    Which ones they are depends on the stream alone, not on how it was cut into batches.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.parts: list[DocumentBatch] = []
        self._sizes = np.zeros(2, dtype=np.int64)

    def add(self, batch: DocumentBatch) -> None:
        """Keep a copy of the documents of at least 3 tokens, and drop the oldest ones."""
        documents = batch.where(batch.usable)
        for start in range(0, documents.n_documents, PART_DOCUMENTS):
            part = documents.rows(start, start + PART_DOCUMENTS).copy()
            self.parts.append(part)
            self._sizes += _size(part)
        while self.parts:
            without = self._sizes - _size(self.parts[0])
            if not np.any(without >= (self.most, WARMUP_MAX_ENTRIES)):
                break
            self._sizes = without
            self.parts.pop(0)

    def latest(self) -> DocumentBatch:
        """Return them as one batch; some document must be kept. Memory as much again."""
        whole = DocumentBatch.joined(self.parts)
        n, pointers = whole.n_documents, whole.row_pointers
        first = int(np.searchsorted(pointers, pointers[-1] - WARMUP_MAX_ENTRIES))
        return whole.rows(min(max(first, n - self.most), n - 1), n)

    def clear(self) -> None:
        """Keep none."""
        self.parts.clear()
        self._sizes[:] = 0


def _size(part: DocumentBatch) -> tuple[int, int]:
    return part.n_documents, len(part.counts)
