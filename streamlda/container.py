"""Arrays and metadata in one checked file: a safetensors file with a checksum over all of it.

``docs/reference-model-file.md`` describes the bytes. Equal content gives equal bytes.
"""

import hashlib
import json
import os
import secrets
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray
from safetensors import SafetensorError

from streamlda import errors

#: Longest header that is written or read; it bounds the memory that parsing one can take.
MAX_HEADER_BYTES = 16 * 2**20

#: Types that may be stored, in the reverse of their order in the file.
DTYPES = ("uint8", "int32", "uint32", "float32", "float64", "int64", "uint64")

Buffer = bytes | memoryview

_FAULTS = errors.Faults(
    {
        errors.InvalidSettingError: {
            "array": f"an array has no name of its own, or is none of {', '.join(DTYPES)}; "
            "rename or convert it first",
        },
        errors.ModelFileError: {
            "damaged": "a streamlda file is damaged; restore it from a copy, or write it again",
            "no file": "a streamlda file is no regular file; pass a file",
            "other file": "a file was not written by streamlda; name a file of that kind",
            "other kind": "a file is of another kind; name a file of the wanted kind",
        },
    }
)
_check = _FAULTS.check


class ArraysFile(NamedTuple):
    """Content of a file: writable arrays, the metadata, and the version of its format."""

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
    """Write arrays and metadata to a file, whole or not at all (`whole_file`).

    Arrays are of the `DTYPES`, metadata plain JSON values without NaN and infinity; tuples come
    back as lists. An `OSError` has the errno of the cause. Row-major arrays are not copied.
    """
    pieces = _encode(kind, format_version, arrays, metadata)
    target = Path(os.path.realpath(path))
    try:
        with whole_file(target, mode) as file:
            for piece in pieces:
                file.write(piece)
    except OSError as error:
        message = (
            f"a file cannot be written ({error.strerror or error}), got "
            f"kind={kind} size_bytes={sum(map(len, pieces))}; nothing has changed there: make room "
            "or choose another folder, then write again"
        )
        raise OSError(error.errno, message, str(path)) from error
    # The new name must survive a power cut too, and it is the folder that holds names.
    sync_folder(target.parent)


def read_arrays(
    path: str | os.PathLike[str], kind: str, format_version: int, oldest: int | None = None
) -> ArraysFile:
    """Read a file of `write_arrays`, all of it checked before any of it is used.

    Memory twice the size of the file. Raises `ModelFileError` if it is none of that kind, and as
    `check_version`.
    """
    # Before opening: to open a named pipe waits for a writer.
    _check(stat.S_ISREG(Path(path).stat().st_mode), "no file", path=str(path))
    return parse_arrays(Path(path).read_bytes(), kind, format_version, path, oldest)


def parse_arrays(
    data: bytes,
    kind: str,
    format_version: int,
    path: str | os.PathLike[str],
    oldest: int | None = None,
) -> ArraysFile:
    """Read arrays as `read_arrays` does, from the bytes of a file; `path` is for messages."""
    try:
        arrays, about = _decode(data)
    except (SafetensorError, LookupError, TypeError, ValueError, RecursionError) as error:
        found = {"size_bytes": len(data), "path": str(path)}
        _check(data[8:9] == b"{" or not data, "other file", wanted=kind, **found)
        why = f"{type(error).__name__}: {str(error)[:100]}"
        raise _FAULTS.make("damaged", why=why, **found) from error
    name, version = about["format"], about["format_version"]
    _check(name == kind, "other kind", format=name[:60], wanted=kind, path=str(path))
    check_version(version, format_version, kind, path, oldest=oldest)
    return ArraysFile(arrays, about["metadata"], version)


def check_version(
    found: int,
    readable: int,
    kind: str,
    path: str | os.PathLike[str],
    *,
    oldest: int | None = None,
    remedy: str | None = None,
    error: type[errors.StreamLDAError] | None = None,
) -> None:
    """Refuse formats later than `readable`, or earlier than `oldest` (the same if left out).

    Raises `NewerFormatError` or `OlderFormatError`, or `error` in place of both.
    """
    if (oldest or readable) <= found <= readable:
        return
    kinds: type[errors.StreamLDAError] = errors.NewerFormatError
    when, to_do = "a later", "upgrade streamlda, or write the file with the older version"
    if found < readable:
        kinds, when = errors.OlderFormatError, "an earlier"
        to_do = "continue with the version of streamlda that wrote it, or start anew without it"
    values = {"format_version": found, "readable": readable, "kind": kind, "path": str(path)}
    rule = f"a file is in {when} format than this streamlda reads"
    raise errors.failure(rule, **values, remedy=remedy or to_do, error=error or kinds)


@contextmanager
def valid_content(
    kind: str, path: str | os.PathLike[str], *, remedy: str, but: tuple[type[Exception], ...] = ()
) -> Iterator[None]:
    """Turn errors of the content of a whole file, `but` those, into `ModelFileError`."""
    try:
        yield
    except but:
        raise
    except (errors.StreamLDAError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise errors.failure(
            f"a {kind} file holds no valid {kind}",
            why=f"{type(error).__name__}: {str(error)[:200]}",
            path=str(path),
            remedy=f"it was not written by this streamlda: {remedy}",
            error=errors.ModelFileError,
        ) from error


def to_json(value: Any) -> str:
    """Return compact ASCII JSON with sorted keys; parsed and written again, it stays the same."""
    try:
        # Sorted once all keys are text: 9 comes before 10, but "10" before "9".
        plain = json.loads(json.dumps(value, allow_nan=False))
        return json.dumps(plain, sort_keys=True, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        rule = f"metadata is not plain JSON values, finite numbers and string keys: {error}"
        remedy = "convert NumPy values first and store None for what is not finite"
        raise errors.failure(rule, remedy=remedy) from error


def _encode(
    kind: str, version: int, arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any]
) -> list[Buffer]:
    """Return the header as the library would write it, and the bytes of each array in its order."""
    stored = {}
    for name, array in arrays.items():
        is_plain = array.dtype.name in DTYPES and name != "__metadata__"
        _check(is_plain, "array", name=name, dtype=array.dtype)
        # Bytes are written as they lie, and read as little-endian and row-major.
        stored[name] = np.asarray(array, dtype=array.dtype.newbyteorder("<"), order="C")
    text = _seal({"format": kind, "format_version": version, "metadata": dict(metadata)}, stored)
    # Wide items first, so that each array is aligned; the library breaks ties of dtypes likewise.
    order = sorted(stored, key=lambda name: (-DTYPES.index(stored[name].dtype.name), name))
    header: dict[str, Any] = {"__metadata__": {"streamlda": text}}
    at = 0
    for name in order:
        array = stored[name]
        code = f"{array.dtype.kind.upper()}{8 * array.itemsize}"
        described = {"dtype": code, "shape": list(array.shape)}
        header[name] = {**described, "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    written = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode("utf-8")
    written += b" " * (-len(written) % 8)
    content = len(written).to_bytes(8, "little") + written
    _header_length(content)
    return [content, *(stored[name].reshape(-1).view(np.uint8).data for name in order)]


def _decode(data: bytes) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    length = _header_length(data)
    arrays = safetensors.numpy.load(data)
    text = json.loads(data[8 : 8 + length])["__metadata__"]["streamlda"]
    parsed = json.loads(text)
    about = {name: parsed[name] for name in ("format", "format_version", "metadata")}
    types = [type(value) for value in about.values()]
    if text != _seal(about, arrays) or types != [str, int, dict]:
        raise ValueError("the checksum differs")
    return arrays, about


def _header_length(data: bytes) -> int:
    length = int.from_bytes(data[:8], "little")
    if length > MAX_HEADER_BYTES:
        raise ValueError(f"a header of {length} bytes is too large")
    return length


def _seal(about: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> str:
    """Return the metadata string of a file, with the checksum over all there is."""
    return to_json({**about, "blake2b": digest_content(about, arrays).hex()})


def digest_content(
    values: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]] | None = None
) -> bytes:
    """Return BLAKE2b of 32 bytes over plain JSON values and arrays.

    Over the JSON text ``[VALUES, [[name, dtype, shape], ...]]``, a line feed, and the bytes of the
    arrays in the order of their names, row-major and little-endian.
    """
    ordered = sorted((arrays or {}).items())
    listed = [[name, array.dtype.name, array.shape] for name, array in ordered]
    digest = hashlib.blake2b(f"{to_json([dict(values), listed])}\n".encode(), digest_size=32)
    for _, array in ordered:
        digest.update(np.asarray(array, array.dtype.newbyteorder("<")).ravel().data)
    return digest.digest()


def temporary_name(token: str) -> str:
    """Return the name of a file until it is whole."""
    return f".streamlda-{token}.tmp"


@contextmanager
def whole_file(path: str | os.PathLike[str], mode: int = 0o666) -> Iterator[BinaryIO]:
    """Open a file that takes its name in one step, once all of it is on the disk.

    A symbolic link is followed; permissions are `mode` less the umask. An error leaves no file.
    """
    target = Path(os.path.realpath(path))
    temporary = target.parent / temporary_name(secrets.token_hex(8))
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
