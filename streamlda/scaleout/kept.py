"""Counts of documents in files of the worker that read them: ranges of rows are read from there.

A file is 12 bytes for each distinct word of a document, and is removed when nobody refers to it.
What is sent to another worker is the range that is asked for, which gets a file there.
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


class _Run:
    """Rows of a file, by the entry that each one begins with; the file goes with the last run."""

    def __init__(self, file: _File, pointers: NDArray[np.int64], n_features: int) -> None:
        self.file, self.pointers, self.n_features = file, pointers, n_features

    def __len__(self) -> int:
        return len(self.pointers) - 1

    def rows(self, first: int, last: int) -> _Run:
        return _Run(self.file, self.pointers[first : last + 1], self.n_features)

    def read(self) -> DocumentBatch:
        begin, end = int(self.pointers[0]), int(self.pointers[-1])
        found: NDArray[Any] = np.fromfile(
            self.file.path, ENTRY, end - begin, offset=ENTRY.itemsize * begin
        )
        counts, words = (np.ascontiguousarray(found[name]) for name in ("count", "word"))
        return DocumentBatch(counts, words, self.pointers - begin, self.n_features)

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, (self.read(),)


class _File:
    def __init__(self) -> None:
        handle, name = tempfile.mkstemp(prefix="streamlda-counts-", dir=_folder)
        os.close(handle)
        self.path = Path(name)
        self._end = weakref.finalize(self, self.path.unlink, missing_ok=True)


def _arrived(batch: DocumentBatch) -> _Run:
    with Writer(batch.n_features) as writer:
        writer.add(batch)
    return writer.kept.runs[0]


class Kept:
    """Documents on disk, in runs of rows."""

    def __init__(self, runs: Sequence[_Run]) -> None:
        self.runs = [run for run in runs if len(run)] or [*runs[:1]]

    @classmethod
    def joined(cls, *parts: Kept) -> Self:
        """Return all of the documents of several, without reading them."""
        return cls([run for part in parts for run in part.runs])

    def __len__(self) -> int:
        return sum(map(len, self.runs))

    def __sizeof__(self) -> int:
        entries = sum(int(run.pointers[-1] - run.pointers[0]) for run in self.runs)
        return 8 * len(self) + ENTRY.itemsize * entries // DISK_SHARE

    def rows(self, first: int, last: int) -> Kept:
        """Return documents `first` to `last` (not included), without reading them."""
        found, begin = [], 0
        for run in self.runs:
            low, high = max(first - begin, 0), min(last - begin, len(run))
            if low < high:
                found.append(run.rows(low, high))
            begin += len(run)
        return Kept(found or [self.runs[0].rows(0, 0)])

    def batches(self) -> Iterator[DocumentBatch]:
        """Read the documents block by block."""
        for run in self.runs:
            at = 0
            while at < len(run):
                full = int(np.searchsorted(run.pointers, run.pointers[at] + BLOCK_COUNTS))
                end = min(max(full, at + 1), at + BLOCK_ROWS, len(run))
                yield run.rows(at, end).read()
                at = end


class Writer:
    """Writes documents to a file as they come; `kept` has them at the end of the block."""

    def __init__(self, n_features: int) -> None:
        self._file, self._n_features = _File(), n_features
        self._pointers, self._entries = [np.zeros(1, np.int64)], 0

    def __enter__(self) -> Self:
        self._open = self._file.path.open("wb")
        return self

    def add(self, batch: DocumentBatch) -> None:
        """Write the documents of a batch."""
        entries = np.empty(batch.n_entries, ENTRY)
        entries["count"], entries["word"] = batch.counts, batch.word_ids
        entries.tofile(self._open)
        self._pointers.append(self._entries + batch.row_pointers[1:])
        self._entries += batch.n_entries

    def __exit__(self, *error: object) -> None:
        self._open.close()

    @property
    def kept(self) -> Kept:
        """The documents that were written."""
        return Kept([_Run(self._file, np.concatenate(self._pointers), self._n_features)])
