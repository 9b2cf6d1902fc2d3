"""Decompressed blocks of stored files, with bounded memory.

The decompressors are driven directly: the file objects of the libraries end silently where bz2 or
xz is damaged between two streams, or where zstd is cut off.
"""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import IO
from zipfile import BadZipFile

from streamlda.errors import MissingExtraError
from streamlda_connectors.records import Rejected

#: Stored bytes read at once.
READ_BYTES = 64 * 1024

#: Most bytes of a decompressed block (zstd: up to 16 MiB, for data that is one byte repeated).
BLOCK_BYTES = 256 * 1024

#: A zstd block of 128 KiB may be stored in 4 bytes: input in small slices bounds the output.
ZSTD_SLICE_BYTES = 512


class _Gzip:
    """One gzip member."""

    def __init__(self) -> None:
        self._inflate = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS)
        self._tail = b""
        self.needs_input = True

    @property
    def eof(self) -> bool:
        return self._inflate.eof

    @property
    def unused_data(self) -> bytes:
        return self._inflate.unused_data

    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes:
        block = self._inflate.decompress(self._tail + data, max_length)
        self._tail = self._inflate.unconsumed_tail
        # A full block may leave output behind even when all input is taken.
        self.needs_input = not self._tail and len(block) < max_length
        return block


class _Zstd:
    """One zstd frame."""

    def __init__(self) -> None:
        import zstandard

        self._frame = zstandard.ZstdDecompressor().decompressobj()
        self._tail = memoryview(b"")

    @property
    def eof(self) -> bool:
        return bool(self._frame.eof)

    @property
    def needs_input(self) -> bool:
        return not self._tail

    @property
    def unused_data(self) -> bytes:
        return bytes(self._frame.unused_data) + bytes(self._tail)

    def decompress(self, data: bytes, max_length: int = -1, /) -> bytes:
        if data:
            self._tail = memoryview(bytes(self._tail) + data)
        parts: list[bytes] = []
        size = 0
        while self._tail and size < max_length and not self._frame.eof:
            part, self._tail = self._tail[:ZSTD_SLICE_BYTES], self._tail[ZSTD_SLICE_BYTES:]
            parts.append(self._frame.decompress(part))
            size += len(parts[-1])
        return b"".join(parts)


#: All have the interface of `bz2.BZ2Decompressor`.
_Decompressor = bz2.BZ2Decompressor | lzma.LZMADecompressor | _Gzip | _Zstd


def _get_decompressor(
    compression: str,
) -> tuple[Callable[[], _Decompressor], tuple[type[Exception], ...]]:
    """Return the class that opens one stream, and the errors that mean damaged data."""
    if compression == "gzip":
        return _Gzip, (zlib.error,)
    if compression == "bz2":
        return bz2.BZ2Decompressor, (OSError,)
    if compression == "xz":
        return lzma.LZMADecompressor, (lzma.LZMAError,)
    try:
        import zstandard
    except ImportError as error:
        raise MissingExtraError("zstandard", "zstd", "reading zstd-compressed files") from error
    return _Zstd, (zstandard.ZstdError,)


def check_installed(compression: str | None) -> None:
    """Raise `MissingExtraError` if `compression` needs a package that is not installed."""
    if compression is not None:
        _get_decompressor(compression)


def _read_plain(raw: IO[bytes], end: int | None) -> Iterator[bytes]:
    try:
        while block := raw.read(BLOCK_BYTES if end is None else min(BLOCK_BYTES, end - raw.tell())):
            yield block
    except (BadZipFile, zlib.error, EOFError) as error:  # of a file within an archive
        raise Rejected("broken-compression") from error


def _decompress(raw: IO[bytes], compression: str) -> Iterator[bytes]:
    make, damaged = _get_decompressor(compression)
    data = raw.read(READ_BYTES)
    # A file may hold several streams one after the other, and zeros after any of them.
    while data:
        stream = make()
        while not stream.eof:
            if stream.needs_input and not data:
                data = raw.read(READ_BYTES)
                if not data:
                    raise Rejected("broken-compression")
            try:
                block = stream.decompress(data, BLOCK_BYTES)
            except damaged as error:
                raise Rejected("broken-compression") from error
            data = b""
            if block:
                yield block
        data = (stream.unused_data or raw.read(READ_BYTES)).lstrip(b"\0")
        while not data and (more := raw.read(READ_BYTES)):
            data = more.lstrip(b"\0")


class BlockReader:
    """The decompressed blocks of one open file, which is owned.

    Memory O(`READ_BYTES` + `BLOCK_BYTES`) and the window of the compression. A file that is not
    compressed may be read up to a byte `end`.
    """

    def __init__(self, raw: IO[bytes], compression: str | None, end: int | None = None) -> None:
        self._raw, self._compression = raw, compression
        plain = compression is None
        self._blocks = _read_plain(raw, end) if plain else _decompress(raw, str(compression))

    def skip(self, n_bytes: int) -> int:
        """Skip `n_bytes` at the start if that needs no reading; return how many are left."""
        if self._compression is not None or n_bytes == 0:
            return n_bytes
        stored = self._raw.seek(0, io.SEEK_END)
        self._raw.seek(min(n_bytes, stored))
        return max(0, n_bytes - stored)

    def read(self) -> bytes:
        """Return the next block, empty at the end.

        `Rejected` is raised once everything before the damage was returned (for damage
        within a block: everything but the block).
        """
        return next(self._blocks, b"")

    def stored_bytes(self) -> int:
        """Return how many bytes of the file were read."""
        return self._raw.tell()

    def close(self) -> None:
        """Close the file."""
        self._raw.close()
