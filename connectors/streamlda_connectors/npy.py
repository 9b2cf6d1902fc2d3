"""Rows of an array in NumPy's format (.npy), each as a line of numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamlda.checks import failure, require
from streamlda.errors import InvalidDocumentsError
from streamlda.stream.listing import StoredFile
from streamlda_connectors.checks import shortened
from streamlda_connectors.lines import text_parser
from streamlda_connectors.records import RecordQueue, StoredRecords

#: Numbers that are read at once, some 5 MB of text.
RUN_NUMBERS = 2**18

_RULE = "a .npy file must hold the rows of one array of numbers"
_REMEDY = "write it by numpy.save, of a matrix of integers or floats"


class NpyReader(StoredRecords):
    """Reads the rows of a local file; their text has all digits. Memory: a bounded run of rows."""

    def __init__(self, file: StoredFile, record: int) -> None:
        self._size, self._rows = file.size or 0, _mapped(file)
        if record > len(self._rows):
            raise shortened(file.name, rows=len(self._rows), rows_read=record)
        self.records = RecordQueue(file.location, text_parser(), record)
        self._read, self._ended = record, record == len(self._rows)
        self._run = max(1, RUN_NUMBERS // max(1, self._rows.shape[1]))

    def _fill(self) -> None:
        run = self._rows[self._read : self._read + self._run].tolist()
        self.records.put([",".join(map(repr, row)).encode("ascii") for row in run])
        self._read += len(run)
        self._ended = self._read == len(self._rows)

    def stored_bytes(self) -> int:
        """See `StoredRecords`."""
        return self._size * self.records.record // max(1, len(self._rows))

    def close(self) -> None:
        """See `StoredRecords`."""
        del self._rows


def _mapped(file: StoredFile) -> Any:
    """Return the array of a file, which stays there; refuse another than of rows of numbers."""
    try:
        rows = np.load(file.path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise failure(
            _RULE, name=file.name, cause=str(error), remedy=_REMEDY, error=InvalidDocumentsError
        ) from error
    require(
        isinstance(rows, np.ndarray) and rows.ndim == 2 and rows.dtype.kind in "iuf",
        _RULE,
        name=file.name,
        shape=getattr(rows, "shape", None),
        type=str(getattr(rows, "dtype", "several arrays")),
        remedy=_REMEDY,
        error=InvalidDocumentsError,
    )
    return rows
