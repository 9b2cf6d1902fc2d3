"""Arrays and metadata in one checked file: how models and saved states lie on disk.

Every file is also a valid safetensors file, so that a reader in any language can open it, and a
later reader needs no more than this description. All numbers are little-endian.

::

    byte  0 ..  7    N, the length of the header in bytes, unsigned 64-bit
    byte  8 ..  35   {"__metadata__":{"blake2b":"
    byte 36 ..  99   checksum: 64 lower-case hex digits
    byte 100 .. 7+N  the rest of the header, JSON in ASCII, padded with spaces to a multiple of 8
    byte  8+N ..     the arrays, one after the other without gaps, to the end of the file

The checksum is BLAKE2b with a digest of 32 bytes over bytes 0..35 and then bytes 100 to the end,
that is, over all but itself. It finds damage; it is no signature and proves no origin.

The header is one JSON object. Its first member ``"__metadata__"`` holds four strings: ``blake2b``
(above), ``format`` (the kind of file, such as ``streamlda-topic-model``), ``format_version``
(decimal digits) and ``metadata`` (a JSON object once more, as text). Each other member is an
array: ``"name": {"dtype": "F64", "shape": [K, V], "data_offsets": [begin, end]}`` with offsets in
bytes after the header, elements in row-major (C) order, and one of the dtypes F64, F32 (IEEE 754),
I64, I32, U64, U32, U8. Arrays stand in the file in the order of their offsets.

This layout, these first 100 bytes and these four strings are the same in all later format
versions; what changes with the version is which arrays and metadata a kind of file holds. So an
old program can always tell a later file from a damaged one.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import os
import secrets
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import InvalidSettingError, ModelFileError, NewerFormatError

#: Longest header that is written or read; it bounds the memory that parsing one can take.
MAX_HEADER_BYTES = 16 * 2**20

_DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
    "I32": np.dtype("<i4"),
    "U64": np.dtype("<u8"),
    "U32": np.dtype("<u4"),
    "U8": np.dtype("|u1"),
}
_NAMES = {dtype: name for name, dtype in _DTYPES.items()}
_OPENING = b'{"__metadata__":{"blake2b":"'
_DIGITS = slice(8 + len(_OPENING), 8 + len(_OPENING) + 64)
_DAMAGED = "restore it from a copy, or write it again"


class ArraysFile(NamedTuple):
    """What `read_arrays` found.

    Attributes
    ----------
    arrays : dict of str to ndarray
        Writable views of one buffer of the file's size, which lives as long as any of them.
    metadata : dict
        The JSON object given to `write_arrays`.
    format_version : int
        The version the file was written in.
    """

    arrays: dict[str, NDArray[Any]]
    metadata: dict[str, Any]
    format_version: int


def write_arrays(
    path: str | os.PathLike[str],
    kind: str,
    format_version: int,
    arrays: Mapping[str, NDArray[Any]],
    metadata: Mapping[str, Any],
    *,
    mode: int = 0o666,
) -> None:
    """Write arrays and metadata to a file, whole or not at all.

    The bytes go to a temporary file in the same folder, are forced to the disk, and take the
    name in one step; until then a file of that name stays as it is. Equal content gives equal
    bytes. Time O(bytes), twice over the arrays; memory O(header), nothing is copied but arrays
    that are not contiguous or not little-endian.

    Parameters
    ----------
    path : str or path-like
        The file to write or replace. A symbolic link is followed.
    kind : str
        Name of the format, such as ``"streamlda-topic-model"``.
    format_version : int
        Version of what the kind holds, from 1.
    arrays : mapping of str to ndarray
        Arrays of float64, float32, int64, int32, uint64, uint32 or uint8, of any shape.
    metadata : mapping
        Plain JSON values: string keys, no NaN, no infinity. Tuples come back as lists.
    mode : int, default 0o666
        Permissions of the file, less the umask; 0o600 for raw state.

    Raises
    ------
    InvalidSettingError
        If an array or the metadata cannot be stored.
    OSError
        With the errno of the cause, if the file cannot be written; nothing is left behind.
    """
    header, parts = _encode(kind, format_version, arrays, metadata)
    target = Path(os.path.realpath(path))
    try:
        _write_atomically(target, [header, *(_bytes_of(part) for part in parts)], mode)
    except OSError as error:
        size = len(header) + sum(part.nbytes for part in parts)
        raise OSError(
            error.errno,
            f"a file must be written whole or not at all ({error.strerror or error}), got "
            f"kind={kind} size_bytes={size}; make room there or choose another folder, then "
            "write again; what had this name before is unchanged",
            str(path),
        ) from error
    # The new name must survive a power cut too, and it is the folder that holds names.
    _sync_folder(target.parent)


def read_arrays(path: str | os.PathLike[str], kind: str, format_version: int) -> ArraysFile:
    """Read a file of `write_arrays`, all of it checked before any of it is used.

    Time O(bytes); memory the size of the file, and O(`MAX_HEADER_BYTES`) at most for the header.

    Parameters
    ----------
    path : str or path-like
        The file to read.
    kind : str
        The kind of file that is expected.
    format_version : int
        The latest version of that kind that the caller reads.

    Raises
    ------
    FileNotFoundError, PermissionError, OSError
        As the system gives them, if the file cannot be opened or read.
    ModelFileError
        If it is not a whole, unaltered file of that kind.
    NewerFormatError
        If it is, but of a later version.
    """
    data = _read_whole(Path(path))
    length = _check_frame(path, data)
    header = _parse_object(path, data[8 : 8 + length])
    about = header.pop("__metadata__", None)
    if (
        not isinstance(about, dict)
        or set(about) != {"blake2b", "format", "format_version", "metadata"}
        or not all(isinstance(value, str) for value in about.values())
    ):
        raise _damaged(path, "a header must hold the four strings of the format", keys=_keys(about))
    if about["format"] != kind:
        raise ModelFileError(
            f"a file must be of the kind that is asked for, got format={about['format'][:60]!r} "
            f"wanted={kind!r} path={str(path)!r}; pass the right file"
        )
    version = _parse_version(path, about["format_version"])
    if version > format_version:
        raise NewerFormatError(
            "a file must not be in a later format than this streamlda reads, got "
            f"format_version={version} readable={format_version} kind={kind} path={str(path)!r}; "
            "upgrade streamlda, or write the file with the older version"
        )
    metadata = _parse_object(path, about["metadata"])
    return ArraysFile(_view_arrays(path, data[8 + length :], header), metadata, version)


def _encode(
    kind: str, format_version: int, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any]
) -> tuple[bytes, list[NDArray[Any]]]:
    """Return the header with its checksum, and the arrays in the order of the file."""
    parts = {name: _storable(name, array) for name, array in arrays.items()}
    # Wide elements first: with the padded header, every array is aligned in memory.
    names = sorted(parts, key=lambda name: (-parts[name].itemsize, name))
    about = {
        "blake2b": "0" * 64,
        "format": kind,
        "format_version": str(format_version),
        "metadata": to_json(dict(metadata)),
    }
    header: dict[str, Any] = {"__metadata__": about}
    offset = 0
    for name in names:
        end = offset + parts[name].nbytes
        header[name] = {
            "dtype": _NAMES[parts[name].dtype],
            "shape": list(parts[name].shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = to_json(header, sort_keys=False).encode("ascii")
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise InvalidSettingError(
            f"the metadata must fit {MAX_HEADER_BYTES} bytes, got bytes={len(text)}; "
            "store what is large as an array"
        )
    ordered = [parts[name] for name in names]
    framed = bytearray(len(text).to_bytes(8, "little") + text)
    framed[_DIGITS] = _checksum([framed, *(_bytes_of(part) for part in ordered)]).encode()
    return bytes(framed), ordered


def to_json(value: Any, *, sort_keys: bool = True) -> str:
    """Return compact ASCII JSON, or say what cannot be stored.

    Raises
    ------
    InvalidSettingError
        If the value holds something JSON has no exact form for, NaN and infinity included.
    """
    try:
        return json.dumps(value, allow_nan=False, sort_keys=sort_keys, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidSettingError(
            "metadata must be plain JSON values, finite numbers and string keys, got "
            f"error={error}; convert NumPy values first and store None for what is not finite"
        ) from error


def _storable(name: str, array: NDArray[Any]) -> NDArray[Any]:
    if name == "__metadata__" or not name:
        raise InvalidSettingError(f"an array needs a name of its own, got name={name!r}; rename it")
    little = array.dtype.newbyteorder("<")
    if little not in _NAMES:
        raise InvalidSettingError(
            f"a stored array must be one of {', '.join(_DTYPES)}, got name={name} "
            f"dtype={array.dtype}; convert it first"
        )
    return np.asarray(array, dtype=little, order="C")


def _bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)


def _checksum(blocks: Iterable[Any]) -> str:
    """Return the checksum of the blocks in order; the first one holds the digits to leave out."""
    digest = hashlib.blake2b(digest_size=32)
    first, *others = blocks
    view = memoryview(first)
    digest.update(view[: _DIGITS.start])
    digest.update(view[_DIGITS.stop :])
    for block in others:
        digest.update(block)
    return digest.hexdigest()


def _write_atomically(target: Path, blocks: Iterable[Any], mode: int) -> None:
    temporary = target.parent / f".streamlda-{secrets.token_hex(8)}.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            for block in blocks:
                file.write(block)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            temporary.unlink()
        raise


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _read_whole(path: Path) -> NDArray[np.uint8]:
    # Asked before opening: opening a named pipe would wait for a writer for ever.
    if not stat.S_ISREG(path.stat().st_mode):
        raise ModelFileError(
            f"a streamlda file must be a regular file, got path={str(path)!r}; pass a file"
        )
    with path.open("rb", buffering=0) as file:
        data = np.empty(os.fstat(file.fileno()).st_size, np.uint8)
        view, done = data.data, 0
        while done < len(data):
            count = file.readinto(view[done:])
            if not count:
                raise _damaged(path, "a file must not shrink while it is read", read_bytes=done)
            done += count
    return data


def _check_frame(path: Any, data: NDArray[np.uint8]) -> int:
    """Check length, opening and checksum; return the length of the header."""
    if len(data) < _DIGITS.stop or data[8 : _DIGITS.start].tobytes() != _OPENING:
        raise ModelFileError(
            "a streamlda file must begin with the header of its format, got "
            f"size_bytes={len(data)} path={str(path)!r}; it is another kind of file or is "
            f"damaged: {_DAMAGED}"
        )
    length = int.from_bytes(data[:8].tobytes(), "little")
    if not _DIGITS.stop - 8 <= length <= min(MAX_HEADER_BYTES, len(data) - 8):
        raise _damaged(
            path, "a header must lie inside the file", header=length, size_bytes=len(data)
        )
    stored = data[_DIGITS].tobytes()
    actual = _checksum([data])
    if stored != actual.encode():
        raise _damaged(
            path,
            "a file must have the checksum it was written with",
            size_bytes=len(data),
            found=actual[:16],
        )
    return length


def _parse_object(path: Any, source: NDArray[np.uint8] | str) -> dict[str, Any]:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            raise ValueError("a name occurs twice")
        return found

    def no_constant(name: str) -> Any:
        raise ValueError(f"{name} is not JSON")

    try:
        text = source if isinstance(source, str) else source.tobytes().decode("ascii")
        value = json.loads(text, object_pairs_hook=unique, parse_constant=no_constant)
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "a header must be JSON", error=type(error).__name__) from error
    if not isinstance(value, dict):
        raise _damaged(path, "a header must be a JSON object", type=type(value).__name__)
    return value


def _parse_version(path: Any, text: str) -> int:
    # At most 9 digits: int() of a longer text could be slow, or refused.
    if not (text.isascii() and text.isdigit() and len(text) <= 9 and int(text) >= 1):
        raise _damaged(path, "a format version must be a number from 1", format_version=text[:20])
    return int(text)


def _view_arrays(
    path: Any, data: NDArray[np.uint8], header: Mapping[str, Any]
) -> dict[str, NDArray[Any]]:
    arrays: dict[str, NDArray[Any]] = {}
    offset = 0
    for name, entry in header.items():
        if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
            raise _damaged(path, "an array must have dtype, shape and offsets", array=name[:60])
        dtype = _DTYPES.get(entry["dtype"]) if isinstance(entry["dtype"], str) else None
        shape, offsets = entry["shape"], entry["data_offsets"]
        if dtype is None or not _are_sizes(shape) or not _are_sizes(offsets) or len(offsets) != 2:
            raise _damaged(path, "an array must have a known dtype and sizes", array=name[:60])
        begin, end = offsets
        if begin != offset or end > len(data) or math.prod(shape) * dtype.itemsize != end - begin:
            raise _damaged(
                path,
                "an array must follow the one before it and have the bytes of its shape",
                array=name[:60],
                offset=offset,
            )
        try:
            arrays[name] = data[begin:end].view(dtype).reshape(shape)
        except ValueError as error:  # such as (0, 2**47, 2**47): empty, and still too large
            raise _damaged(path, "an array must fit the memory", array=name[:60]) from error
        offset = end
    if offset != len(data):
        raise _damaged(
            path, "the arrays must fill the file", used_bytes=offset, data_bytes=len(data)
        )
    return arrays


def _are_sizes(values: Any) -> bool:
    return isinstance(values, list) and all(type(v) is int and 0 <= v < 2**48 for v in values)


def _keys(value: Any) -> Any:
    return sorted(value)[:8] if isinstance(value, dict) else type(value).__name__


def _damaged(path: Any, rule: str, **found: Any) -> ModelFileError:
    pairs = " ".join(f"{name}={value!r}" for name, value in found.items())
    return ModelFileError(f"{rule}, got {pairs} path={str(path)!r}; {_DAMAGED}")
