"""The first sheet of an Excel workbook, as a file of CSV in UTF-8."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from datetime import date, time
from typing import IO, Any
from zipfile import BadZipFile

from streamlda.errors import MissingExtraError
from streamlda_connectors.records import Rejected

#: Name of this kind of file among the compressions.
WORKBOOK = "workbook"

#: What openpyxl raises for a file that is damaged, or is something else.
_DAMAGED = (BadZipFile, KeyError, ValueError, EOFError, AttributeError, TypeError)


def import_openpyxl() -> Any:
    """Return the package that reads workbooks."""
    try:
        import openpyxl
    except ImportError as error:
        raise MissingExtraError("openpyxl", "excel", "reading Excel workbooks") from error
    return openpyxl


def read_workbook(raw: IO[bytes], block_bytes: int) -> tuple[Iterator[bytes], str]:
    """Return blocks of CSV, and what must be said where there is more than one sheet."""
    openpyxl = import_openpyxl()
    try:
        book = openpyxl.load_workbook(raw, read_only=True, data_only=True)
        sheet, *others = book.worksheets
    except _DAMAGED as error:
        raise Rejected("broken-workbook") from error
    note = f"is read from its first sheet; {len(others)} more are skipped" if others else ""
    return _write_rows(sheet, block_bytes), note


def _write_rows(sheet: Any, block_bytes: int) -> Iterator[bytes]:
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    try:
        for row in sheet.iter_rows(values_only=True):
            lines.writerow([_get_text(value) for value in row])
            if written.tell() >= block_bytes:
                yield written.getvalue().encode()
                written.seek(0)
                written.truncate()
    except _DAMAGED as error:
        raise Rejected("broken-workbook") from error
    yield written.getvalue().encode()


def _get_text(value: Any) -> str:
    if value is None:
        return ""
    return value.isoformat() if isinstance(value, date | time) else str(value)
