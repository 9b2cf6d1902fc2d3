"""Counts of documents in files of the worker that read them: ranges are read from there.

A file is 12 bytes for each distinct word of a document, and is removed when nobody refers to it.
Sent to another worker, it becomes a file there. A range is of numbered documents: rows without a
number go with the document after them, the last ones of a file with the one before.
"""

import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.stream.pipeline import BLOCK_COUNTS, BLOCK_ROWS

#: A word of a document in a file.
ENTRY = np.dtype([("count", np.float64), ("word", np.int32)])

#: What Dask takes a byte on disk for in memory: moving it costs, and keeping it does not.
DISK_SHARE = 8

#: Folder of files: set on workers of Dask; None is the usual one for temporary files.
folder: str | None = None


def borders_of(mask: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the row that each numbered document begins with, and where the last one ends."""
    borders = np.append(0, 1 + np.flatnonzero(mask))
    if len(borders) > 1:
        borders[-1] = len(mask)
    return borders


@dataclass(eq=False)
class FileRows:
    """Rows of a file, by the entry that each begins with, and the row each number begins with."""

    path: str
    pointers: NDArray[np.int64]
    borders: NDArray[np.int64]
    n_features: int

    def __post_init__(self) -> None:
        weakref.finalize(self, Path(self.path).unlink, missing_ok=True)

    def __len__(self) -> int:
        return len(self.borders) - 1

    def __sizeof__(self) -> int:
        entries = ENTRY.itemsize * int(self.pointers[-1])
        return self.pointers.nbytes + self.borders.nbytes + entries // DISK_SHARE

    def _read(self, first: int, last: int) -> DocumentBatch:
        pointers = self.pointers[first : last + 1]
        begin, entries = int(pointers[0]), int(pointers[-1] - pointers[0])
        at = ENTRY.itemsize * begin
        found: NDArray[Any] = np.fromfile(self.path, ENTRY, entries, offset=at)
        counts, words = (np.ascontiguousarray(found[name]) for name in ("count", "word"))
        return DocumentBatch(counts, words, pointers - begin, self.n_features)

    def batches(self, first: int, last: int) -> Iterator[DocumentBatch]:
        """Read documents `first` to `last` (not included), block by block."""
        at, end = int(self.borders[first]), int(self.borders[last])
        while at < end:
            full = int(np.searchsorted(self.pointers, self.pointers[at] + BLOCK_COUNTS))
            stop = min(max(full, at + 1), at + BLOCK_ROWS, end)
            yield self._read(at, stop)
            at = stop

    def __reduce__(self) -> tuple[Any, ...]:
        return _write_batch, (self._read(0, len(self.pointers) - 1), self.borders)


def _write_batch(batch: DocumentBatch, borders: NDArray[np.int64]) -> FileRows:
    numbered = np.zeros(len(batch), np.bool_)
    numbered[borders[1:] - 1] = True
    return write([(batch, numbered)], batch.n_features)


def write(batches: Iterable[tuple[DocumentBatch, NDArray[np.bool_]]], n_features: int) -> FileRows:
    """Write documents to a file as they come, each batch with a mask of those with a number."""
    handle, path = tempfile.mkstemp(prefix="streamlda-counts-", dir=folder)
    pointers, numbers = [np.zeros(1, np.int64)], [np.zeros(0, np.bool_)]
    try:
        with os.fdopen(handle, "wb") as file:
            for batch, numbered in batches:
                entries = np.empty(batch.n_entries, ENTRY)
                entries["count"], entries["word"] = batch.counts, batch.word_ids
                entries.tofile(file)
                pointers.append(pointers[-1][-1] + batch.row_pointers[1:])
                numbers.append(numbered)
    except BaseException:
        Path(path).unlink()
        raise
    borders = borders_of(np.concatenate(numbers))
    return FileRows(path, np.concatenate(pointers), borders, n_features)
