"""Decompressed blocks of stored files and workbooks, with bounded memory."""

import bz2
import csv
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from itertools import chain
from typing import IO, Any
from zipfile import BadZipFile

from fsspec.utils import seek_delimiter

from streamlda.stream.listing import StoredFile
from streamlda_connectors.checks import import_extra
from streamlda_connectors.encodings import HEAD_BYTES, Encoding, Recoder, find_encoding, recode
from streamlda_connectors.records import Rejection

#: Most bytes of a block.
BLOCK_BYTES = 256 * 1024

#: Stored bytes read at once: 128 KiB of zstd may be stored in 4 of them.
SLICE_BYTES = 512


#: Name of workbooks among the compressions.
WORKBOOK = "workbook"

#: Package, extra and purpose of compressions that need one.
EXTRAS = {
    "zstd": ("zstandard", "zstd", "reading zstd-compressed files"),
    WORKBOOK: ("openpyxl", "excel", "reading Excel workbooks"),
}


def _read_plain(raw: IO[bytes], end: int | None) -> Iterator[bytes]:
    try:
        while block := raw.read(BLOCK_BYTES if end is None else min(BLOCK_BYTES, end - raw.tell())):
            yield block
    except (BadZipFile, zlib.error, EOFError) as error:  # of a file within an archive
        raise Rejection("broken-compression") from error


def _decompress(raw: IO[bytes], compression: str) -> Iterator[bytes]:
    try:
        if compression == "gzip":
            with gzip.open(raw) as file:
                while block := file.read1(BLOCK_BYTES):
                    yield block
        else:
            yield from _read_streams(raw, compression)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Rejection("broken-compression") from error


def _read_streams(raw: IO[bytes], compression: str) -> Iterator[bytes]:
    """Yield what one stream after the other holds; file objects end silently at damage."""
    make: Any = {"bz2": bz2.BZ2Decompressor, "xz": lzma.LZMADecompressor}.get(compression)
    damage: Any = (OSError, lzma.LZMAError)
    limit, stream = [BLOCK_BYTES], None
    if compression == "zstd":
        zstandard = import_extra(*EXTRAS["zstd"])
        make, damage = zstandard.ZstdDecompressor().decompressobj, zstandard.ZstdError
        limit = []
    while part := raw.read(SLICE_BYTES):
        # Zeros may follow a stream.
        while stream is not None or (part := part.lstrip(b"\0")):
            stream = stream or make()
            try:
                block = stream.decompress(part, *limit)
            except damage as error:
                raise EOFError from error
            if block:
                yield block
            part, needs_more = stream.unused_data, getattr(stream, "needs_input", True)
            if stream.eof:
                stream = None
            elif needs_more:
                break
    if stream is not None:
        raise EOFError


def gather_head(blocks: Iterator[bytes], most: int) -> tuple[bytes, bool, Iterator[bytes]]:
    """Return the first bytes of blocks, whether they are all, and the blocks from the first on."""
    first, size, rest = list[bytes](), 0, blocks
    try:
        while size <= most and (block := next(blocks, b"")):
            first.append(block)
            size += len(block)
    except (Rejection, OSError) as error:
        # It is met where it is: behind all that can be read.
        rest = _fail(error)
    # A block may be far larger.
    head = b"".join(block[:most] for block in first)[:most]
    return head, size <= most and rest is blocks, chain(first, rest)


def _fail(error: Exception) -> Iterator[bytes]:
    raise error
    yield b""


class BlockReader:
    """The decompressed blocks of one open file, in UTF-8; without an `encoding` as they are.

    `head` are its first bytes, all of them if it `is_whole`. Of a part there is none.
    """

    def __init__(self, file: StoredFile, encoding: str | None) -> None:
        self._raw, self._is_plain = file.open(), file.compression is None
        self.begin, self.head, self.is_whole = 0, b"", False
        self._end: int | None = None
        self.encoding = Encoding()
        #: How the file is read, if that has to be said.
        self.notes: list[str] = []
        try:
            self._open(file, encoding)
        except BaseException:
            self._raw.close()
            raise

    def _open(self, file: StoredFile, encoding: str | None) -> None:
        if file.part is not None:
            # Only files whose bytes are read as they are stored have parts.
            bounds = []
            for at in file.part:
                self._raw.seek(at)
                seek_delimiter(self._raw, b"\n", BLOCK_BYTES)
                bounds.append(self._raw.tell())
            self.begin, self._end = bounds  # Each line is in one part.
            self._raw.seek(self.begin)
            self._blocks = _read_plain(self._raw, self._end)
            return
        if file.compression is None or file.size == 0:
            blocks = _read_plain(self._raw, None)
        elif file.compression == WORKBOOK:
            blocks, self.notes = read_workbook(self._raw)
            encoding = None
        else:
            blocks = _decompress(self._raw, file.compression)
        self.head, self.is_whole, self._blocks = gather_head(blocks, HEAD_BYTES)
        if encoding is not None:
            is_csv = file.format == "csv"
            self.encoding, self.notes = find_encoding(self.head, encoding, is_csv=is_csv)
            if not self.encoding.is_stored:
                self.head = Recoder(self.encoding).feed(self.head, final=self.is_whole)
                self._blocks = recode(self._blocks, self.encoding)

    def gather(self, most: int) -> bytes | None:
        """Return all bytes, which stay to be read; None where they are more, or damaged."""
        found, is_whole, self._blocks = gather_head(self._blocks, most)
        return found if is_whole else None

    def transform(self, function: Callable[[Iterator[bytes]], Iterator[bytes]]) -> None:
        """Read what a function makes of the blocks, none of which was read."""
        self._blocks, self._is_plain = filter(None, function(self._blocks)), False

    def skip(self, n_bytes: int) -> int:
        """Skip `n_bytes` at the start if that needs no reading; return how many are left."""
        if not self._is_plain or n_bytes == 0 or not self.encoding.is_stored:
            return n_bytes
        stored = self._raw.seek(0, io.SEEK_END)
        self._raw.seek(min(n_bytes, stored))
        self._blocks = _read_plain(self._raw, self._end)
        return max(0, n_bytes - stored)

    def read(self) -> bytes:
        """Return the next block, empty at the end; raise `Rejection` where damage begins."""
        return next(self._blocks, b"")

    def count_bytes(self) -> int:
        """Return how many bytes of the file, or of its part, were read."""
        return self._raw.tell() - self.begin

    def close(self) -> None:
        """Close the file."""
        self._raw.close()


#: What openpyxl raises for a file that is damaged, or is something else (SyntaxError: of XML).
_DAMAGED = (BadZipFile, zlib.error, SyntaxError, LookupError, ValueError, EOFError, RuntimeError)


def read_workbook(raw: IO[bytes]) -> tuple[Iterator[bytes], list[str]]:
    """Return blocks of CSV, and what must be said where there is more than one sheet."""
    openpyxl = import_extra(*EXTRAS[WORKBOOK])
    try:
        book = openpyxl.load_workbook(raw, read_only=True, data_only=True)
        sheet, *others = book.worksheets
    except (*_DAMAGED, AttributeError, TypeError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise Rejection("broken-workbook") from error
    note = f"is read from its first sheet; {len(others)} more are skipped"
    return _write_rows(sheet), [note] * bool(others)


def _write_rows(sheet: Any) -> Iterator[bytes]:
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    try:
        for row in sheet.iter_rows(values_only=True):
            lines.writerow(["" if value is None else str(value) for value in row])
            if written.tell() >= BLOCK_BYTES:
                yield written.getvalue().encode()
                written.seek(0)
                written.truncate()
    except (*_DAMAGED, AttributeError, TypeError) as error:
        raise Rejection("broken-workbook") from error
    yield written.getvalue().encode()
