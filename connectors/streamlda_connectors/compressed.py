"""Decompressed blocks of stored files and workbooks, with bounded memory.

The decompressors are driven directly: the file objects of the libraries end silently where bz2 or
xz is damaged between two streams, or where zstd is cut off.
"""

from __future__ import annotations

import bz2
import csv
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from datetime import date, time
from functools import partial
from typing import IO, Any
from zipfile import BadZipFile

from fsspec.utils import seek_delimiter

from streamlda.stream.listing import StoredFile
from streamlda_connectors.checks import import_extra
from streamlda_connectors.encodings import (
    HEAD_BYTES,
    Encoding,
    Recoder,
    find_encoding,
    gather_head,
    recode,
)
from streamlda_connectors.records import Rejected

#: Stored bytes read at once.
READ_BYTES = 64 * 1024

#: Most bytes of a block, but for data that is one byte repeated.
BLOCK_BYTES = 256 * 1024

#: Input in small slices bounds the output: 128 KiB of zstd may be stored in 4 bytes.
SLICE_BYTES = 512


def _get_decompressor(
    compression: str,
) -> tuple[Callable[[], Any], tuple[type[Exception], ...]]:
    """Return the class that opens one stream, and the errors that mean damaged data."""
    if compression == "gzip":
        return partial(zlib.decompressobj, wbits=16 + zlib.MAX_WBITS), (zlib.error,)
    if compression == "bz2":
        return bz2.BZ2Decompressor, (OSError,)
    if compression == "xz":
        return lzma.LZMADecompressor, (lzma.LZMAError,)
    zstandard = import_extra("zstandard", "zstd", "reading zstd-compressed files")
    return zstandard.ZstdDecompressor().decompressobj, (zstandard.ZstdError,)


def check_installed(compression: str | None) -> None:
    """Raise `MissingExtraError` if `compression` needs a package that is not installed."""
    if compression == WORKBOOK:
        _import_openpyxl()
    elif compression is not None:
        _get_decompressor(compression)


def _read_plain(raw: IO[bytes], end: int | None) -> Iterator[bytes]:
    try:
        while block := raw.read(BLOCK_BYTES if end is None else min(BLOCK_BYTES, end - raw.tell())):
            yield block
    except (BadZipFile, zlib.error, EOFError) as error:  # of a file within an archive
        raise Rejected("broken-compression") from error


def _decompress_part(stream: Any, part: bytes) -> Iterator[bytes]:
    """Yield what a slice of a stream holds, in bounded pieces where the package can bound them."""
    if not hasattr(stream, "needs_input"):
        yield stream.decompress(part)
        return
    yield stream.decompress(part, BLOCK_BYTES)
    while not (stream.needs_input or stream.eof):
        yield stream.decompress(b"", BLOCK_BYTES)


def _decompress(raw: IO[bytes], compression: str) -> Iterator[bytes]:
    make, damaged = _get_decompressor(compression)
    stream, begun, found = make(), False, bytearray()
    while stored := raw.read(READ_BYTES):
        data = memoryview(stored)
        while data:
            part, data = bytes(data[:SLICE_BYTES]), data[SLICE_BYTES:]
            # A file may hold several streams one after the other, and zeros after any of them.
            part = part if begun else part.lstrip(b"\0")
            if not part:
                continue
            try:
                for piece in _decompress_part(stream, part):
                    found += piece
                    if len(found) >= BLOCK_BYTES:
                        yield bytes(found)
                        found.clear()
            except damaged as error:
                if found:
                    yield bytes(found)
                raise Rejected("broken-compression") from error
            begun = not stream.eof
            if stream.eof:
                data = memoryview(stream.unused_data + bytes(data))
                stream = make()
    if found:
        yield bytes(found)
    if begun:
        raise Rejected("broken-compression")


class BlockReader:
    """The decompressed blocks of one open file, in UTF-8; without an `encoding` as they are.

    `head` are its first bytes, all of them if it `is_whole`. Of a part there is none.
    """

    def __init__(self, file: StoredFile, encoding: str | None) -> None:
        self._raw, self._compression = file.open(), file.compression
        self.begin, self.head, self.is_whole = 0, b"", False
        self._end: int | None = None
        self.encoding = Encoding()
        try:
            self._open(file, encoding)
        except BaseException:
            self._raw.close()
            raise

    def _open(self, file: StoredFile, encoding: str | None) -> None:
        if file.part is not None:
            # Only files whose bytes are read as they are stored have parts.
            self.begin, self._end = _find_line_bounds(self._raw, file.part)
            self._raw.seek(self.begin)
            self._blocks = _read_plain(self._raw, self._end)
            return
        if file.compression is None:
            blocks = _read_plain(self._raw, None)
        elif file.compression == WORKBOOK:
            blocks, note = read_workbook(self._raw, BLOCK_BYTES)
            self.encoding, encoding = Encoding(note=note), None
        else:
            blocks = _decompress(self._raw, file.compression)
        self.head, self.is_whole, self._blocks = gather_head(blocks, HEAD_BYTES)
        if encoding is not None:
            self.encoding = find_encoding(self.head, encoding)
            if not self.encoding.is_stored:
                self.head = Recoder(self.encoding).feed(self.head, final=self.is_whole)
                self._blocks = recode(self._blocks, self.encoding)

    def gather(self, most: int) -> bytes | None:
        """Return all bytes, which stay to be read; None where they are more, or damaged."""
        found, is_whole, self._blocks = gather_head(self._blocks, most)
        return found if is_whole else None

    def replace(self, blocks: Iterator[bytes]) -> None:
        """Read `blocks` in place of the bytes of the file, which were read."""
        self._raw.seek(0, io.SEEK_END)
        self._blocks, self.encoding = blocks, self.encoding._replace(is_replaced=True)

    def skip(self, n_bytes: int) -> int:
        """Skip `n_bytes` at the start if that needs no reading; return how many are left."""
        if self._compression is not None or n_bytes == 0 or not self.encoding.is_stored:
            return n_bytes
        stored = self._raw.seek(0, io.SEEK_END)
        self._raw.seek(min(n_bytes, stored))
        self._blocks = _read_plain(self._raw, self._end)
        return max(0, n_bytes - stored)

    def read(self) -> bytes:
        """Return the next block, empty at the end; raise `Rejected` where damage begins."""
        return next(self._blocks, b"")

    def stored_bytes(self) -> int:
        """Return how many bytes of the file, or of its part, were read."""
        return self._raw.tell() - self.begin

    def close(self) -> None:
        """Close the file."""
        self._raw.close()


def _find_line_bounds(raw: IO[bytes], part: tuple[int, int]) -> tuple[int, int]:
    """Return the bytes where the lines of a part begin and end: each line is in one part."""
    found = []
    for at in part:
        raw.seek(at)
        seek_delimiter(raw, b"\n", BLOCK_BYTES)
        found.append(raw.tell())
    return found[0], found[1]


#: Name of this kind of file among the compressions.
WORKBOOK = "workbook"

#: What openpyxl raises for a file that is damaged, or is something else.
_DAMAGED = (BadZipFile, KeyError, ValueError, EOFError, AttributeError, TypeError)


def _import_openpyxl() -> Any:
    return import_extra("openpyxl", "excel", "reading Excel workbooks")


def read_workbook(raw: IO[bytes], block_bytes: int) -> tuple[Iterator[bytes], str]:
    """Return blocks of CSV, and what must be said where there is more than one sheet."""
    openpyxl = _import_openpyxl()
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
