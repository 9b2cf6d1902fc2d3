"""Counts of documents in files of the worker that read them: ranges are read from there.

A file is 12 bytes for each distinct word of a document, and is removed when nobody refers to it.
Sent to another worker, it becomes a file there. A range is of numbered documents: rows without a
number go with the document after them, the last ones of a file with the one before.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.stream.pipeline import BLOCK_COUNTS, BLOCK_ROWS

#: A word of a document in a file.
ENTRY = np.dtype([("count", np.float64), ("word", np.int32)])

#: What Dask takes a byte on disk for in memory: moving it costs, and keeping it does not.
DISK_SHARE = 8

#: Folder of files: of this process, set on workers of Dask; the usual one for temporary files else.
_folder: str | None = None


def keep_in(folder: str | None) -> None:
    """Write files of this process into a folder, or the usual one."""
    global _folder
    _folder = folder


class FileRows:
    """Rows of a file, by the entry that each begins with, and the row each number begins with."""

    def __init__(
        self,
        path: str,
        pointers: NDArray[np.int64],
        borders: NDArray[np.int64],
        n_features: int,
    ) -> None:
        self.path, self._pointers, self._borders = path, pointers, borders
        self._n_features = n_features
        self._end = weakref.finalize(self, Path(path).unlink, missing_ok=True)

    def __len__(self) -> int:
        return len(self._borders) - 1

    def __sizeof__(self) -> int:
        entries = ENTRY.itemsize * int(self._pointers[-1])
        return self._pointers.nbytes + self._borders.nbytes + entries // DISK_SHARE

    def _read(self, first: int, last: int) -> DocumentBatch:
        pointers = self._pointers[first : last + 1]
        begin, entries = int(pointers[0]), int(pointers[-1] - pointers[0])
        at = ENTRY.itemsize * begin
        found: NDArray[Any] = np.fromfile(self.path, ENTRY, entries, offset=at)
        counts, words = (np.ascontiguousarray(found[name]) for name in ("count", "word"))
        return DocumentBatch(counts, words, pointers - begin, self._n_features)

    def batches(self, first: int, last: int) -> Iterator[DocumentBatch]:
        """Read documents `first` to `last` (not included), block by block."""
        at, end = int(self._borders[first]), int(self._borders[last])
        while at < end:
            full = int(np.searchsorted(self._pointers, self._pointers[at] + BLOCK_COUNTS))
            stop = min(max(full, at + 1), at + BLOCK_ROWS, end)
            yield self._read(at, stop)
            at = stop

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self._read(0, len(self._pointers) - 1), self._borders)


def _arrived(batch: DocumentBatch, borders: NDArray[np.int64]) -> FileRows:
    with Writer(batch.n_features) as writer:
        writer.add(batch, batch.usable)
    return FileRows(writer.path, batch.row_pointers, borders, batch.n_features)


class Writer:
    """Writes documents to a file as they come; `rows` has them at the end of the block."""

    def __init__(self, n_features: int) -> None:
        self._n_features, self._entries = n_features, 0
        self._pointers, self._numbered = [np.zeros(1, np.int64)], [np.ones(1, np.bool_)]

    def __enter__(self) -> Self:
        handle, self.path = tempfile.mkstemp(prefix="streamlda-counts-", dir=_folder)
        self._open = os.fdopen(handle, "wb")
        return self

    def add(self, batch: DocumentBatch, numbered: NDArray[np.bool_]) -> None:
        """Write the documents of a batch, of which some are numbered."""
        entries = np.empty(batch.n_entries, ENTRY)
        entries["count"], entries["word"] = batch.counts, batch.word_ids
        entries.tofile(self._open)
        self._pointers.append(self._entries + batch.row_pointers[1:])
        self._numbered.append(numbered)
        self._entries += batch.n_entries

    def __exit__(self, error: object, *about: object) -> None:
        self._open.close()
        if error is not None:
            Path(self.path).unlink()

    def rows(self) -> FileRows:
        """Return the documents that were written, which own the file from now on."""
        pointers = np.concatenate(self._pointers)
        borders = np.flatnonzero(np.concatenate(self._numbered))
        if len(borders) > 1:
            borders[-1] = len(pointers) - 1
        return FileRows(self.path, pointers, borders, self._n_features)


def read_range(files: Sequence[FileRows], first: int, last: int) -> Iterator[DocumentBatch]:
    """Read documents `first` to `last` (not included) of several files, one after the other."""
    for rows in files:
        low, high = max(first, 0), min(last, len(rows))
        if low < high:
            yield from rows.batches(low, high)
        first, last = first - len(rows), last - len(rows)
