"""Blocks of documents that depend on the documents alone, however polls were cut.

Floating-point sums depend on the grouping of documents. So an engine is given blocks that end at a
number of rows or of counts; a checkpoint keeps the rest, which waits, beside the state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from streamlda.documents import DocumentBatch

#: A block ends with the row that fills it, by number of rows or of counts (12 bytes each).
BLOCK_ROWS = 4096
BLOCK_COUNTS = 2**20

#: Characters encoded at once; tables of words take some 8 times as many bytes.
ENCODED_CHARACTERS = 2**23


class Blocks:
    """Rows that wait for their block, at first those of a checkpoint."""

    def __init__(self, waiting: DocumentBatch | None = None) -> None:
        self._parts: list[DocumentBatch] = []
        self._rows = self._counts = 0
        if waiting is not None:
            self._keep(waiting)

    def add(self, batch: DocumentBatch) -> Iterator[DocumentBatch]:
        """Take rows, and yield the blocks that they fill. Time O(counts)."""
        start = 0
        while start < batch.n_documents:
            part = batch.rows(start, self._end(batch, start))
            start += part.n_documents
            self._keep(part)
            if self._rows >= BLOCK_ROWS or self._counts >= BLOCK_COUNTS:
                yield self.flush()

    def _end(self, batch: DocumentBatch, start: int) -> int:
        """Return the row after the last that the running block takes."""
        pointers = batch.row_pointers
        full = pointers[start] + BLOCK_COUNTS - self._counts
        by_counts = int(np.searchsorted(pointers[start + 1 :], full)) + start + 1
        return min(batch.n_documents, start + BLOCK_ROWS - self._rows, by_counts)

    def _keep(self, part: DocumentBatch) -> None:
        # The batch of the rows may be far larger.
        self._parts.append(part.copy())
        self._rows += part.n_documents
        self._counts += len(part.counts)

    @property
    def waiting(self) -> DocumentBatch | None:
        """Rows that wait, or None. Time and memory O(counts)."""
        return DocumentBatch.joined(self._parts) if self._parts else None

    def flush(self) -> DocumentBatch:
        """Return the rows that wait, of which there must be some, and forget them."""
        block = DocumentBatch.joined(self._parts)
        self._parts = []
        self._rows = self._counts = 0
        return block


def find_cut(documents: Sequence[tuple[str, Any, Any]], start: int, stop: int) -> int:
    """Return where to cut documents into a part of about `ENCODED_CHARACTERS`, `stop` at most."""
    characters = 0
    for at in range(start, min(stop, len(documents))):
        characters += len(documents[at][0])
        if characters >= ENCODED_CHARACTERS:
            return at + 1
    return min(stop, len(documents))
