"""Which files a list of paths, directories, globs and URLs stands for."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from glob import has_magic
from typing import IO, Any

import fsspec

from streamlda.errors import InvalidSettingError, SourceError
from streamlda_connectors.compressed import COMPRESSIONS, SUFFIXES

#: File name endings (without that of a compression) and the format they stand for.
FORMAT_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}

FORMATS = ("text", "jsonl", "csv", "parquet")

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file to read.

    Attributes
    ----------
    file_system : fsspec.AbstractFileSystem
        Where it is.
    path : str
        As `file_system` knows it.
    name : str
        The path of a local file, the URL of any other.
    size : int or None
        Stored bytes, where known.
    format : str
        One of `FORMATS`.
    compression : str or None
        One of `COMPRESSIONS`.
    delimiter : str
        Of CSV: a tab in .tsv files.
    local : bool
        Whether opening it is cheap.
    """

    file_system: Any
    path: str
    name: str
    size: int | None
    format: str
    compression: str | None
    delimiter: str
    local: bool

    def open(self) -> IO[bytes]:
        """Open the stored bytes for reading."""
        raw: IO[bytes] = self.file_system.open(self.path, "rb", compression=None)
        return raw


def find_files(paths: Paths, format: str, compression: str | None) -> list[StoredFile]:
    """Return the files that `paths` stand for, in reading order.

    The order is that of `paths`; within a directory or a glob, that of the sorted names. Hidden
    files, and those in hidden directories below the one given, are left out.

    Parameters
    ----------
    paths : str, path or iterable of them
        Files, directories (with everything below), globs, or fsspec URLs of any of these.
    format : str
        ``"auto"`` or one of `FORMATS`.
    compression : str or None
        ``"infer"``, None or one of `COMPRESSIONS`.

    Raises
    ------
    InvalidSettingError
        For an unknown `format` or `compression`, or a Parquet file compressed as a whole.
    SourceError
        For a path without files behind it, or a file that is named twice.
    """
    if format not in ("auto", *FORMATS):
        raise InvalidSettingError(
            f"format must be one of auto, {', '.join(FORMATS)}, got format={format!r}; "
            "leave it out to go by the file names"
        )
    if compression not in ("infer", None, *COMPRESSIONS):
        raise InvalidSettingError(
            f"compression must be one of infer, None, {', '.join(COMPRESSIONS)}, "
            f"got compression={compression!r}; leave it out to go by the file names"
        )
    listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not listed:
        raise SourceError(
            "a file source must be given at least 1 path, got paths=[]; name a file or directory"
        )
    files: list[StoredFile] = []
    seen: set[str] = set()
    for given in listed:
        for file in _expand(os.fspath(given), format, compression):
            if file.name in seen:
                raise SourceError(
                    f"each file must be read once, got name={file.name!r} twice; "
                    "leave out one of the paths that lead to it"
                )
            seen.add(file.name)
            files.append(file)
    return files


def _expand(given: str, format: str, compression: str | None) -> Iterator[StoredFile]:
    try:
        file_system, path = fsspec.core.url_to_fs(given)
    except (ImportError, ValueError) as error:
        raise SourceError(
            f"a URL must have a protocol that fsspec can open, got path={given!r} "
            f"({type(error).__name__}: {error}); install the package of that file system"
        ) from error
    try:
        found = _list(file_system, path)
    except FileNotFoundError as error:
        raise SourceError(
            f"a path must exist, got path={given!r}; check the spelling, or use the full path"
        ) from error
    except SourceError:
        raise
    except OSError as error:
        raise SourceError(
            f"a path must be readable, got path={given!r} ({error.strerror or error}); "
            "check its permissions"
        ) from error
    if not found:
        raise SourceError(
            f"a directory or glob must contain files, got path={given!r} with none (hidden files "
            "do not count); check the spelling"
        )
    for info in found:
        yield _stored(file_system, info, format, compression)


def _list(file_system: Any, path: str) -> list[dict[str, Any]]:
    """Return fsspec's entries of the files at `path`, sorted."""
    # A name that exists is never taken for a pattern, whatever characters it has.
    if has_magic(path) and not file_system.exists(path):
        matches = file_system.glob(path, detail=True)
        hidden = posixpath.basename(path).startswith(".")
        found = {
            name: info
            for name, info in matches.items()
            if hidden or not posixpath.basename(name).startswith(".")
        }
    else:
        info = file_system.info(path)
        if info["type"] == "file":
            return [info]
        if info["type"] != "directory":
            raise SourceError(
                f"a path must be a regular file or a directory, got path={path!r}; "
                "read a pipe with the connector stdin"
            )
        # Only local listings can be told not to pass over what they may not read.
        options = {"on_error": "raise"} if _is_local(file_system) else {}
        found = {
            name: info
            for name, info in file_system.find(path, detail=True, **options).items()
            if not any(part.startswith(".") for part in _below(path, name).split("/"))
        }
    files = []
    for name in sorted(found):
        info = found[name]
        if info.get("islink"):
            info = file_system.info(name)
        if info["type"] == "file":
            files.append(info)
    return files


def _below(directory: str, name: str) -> str:
    return name.removeprefix(directory.rstrip("/")).lstrip("/")


def _is_local(file_system: Any) -> bool:
    return "file" in _protocols(file_system)


def _protocols(file_system: Any) -> tuple[str, ...]:
    protocol = file_system.protocol
    return (protocol,) if isinstance(protocol, str) else tuple(protocol)


def _stored(
    file_system: Any, info: dict[str, Any], format: str, compression: str | None
) -> StoredFile:
    path = str(info["name"])
    local = _is_local(file_system)
    name = path if local else str(file_system.unstrip_protocol(path))
    stem, suffix = posixpath.splitext(path.lower())
    by_name = SUFFIXES.get(suffix)
    if by_name is not None:
        suffix = posixpath.splitext(stem)[1]
    found_format = FORMAT_SUFFIXES.get(suffix, "text") if format == "auto" else format
    found_compression = by_name if compression == "infer" else compression
    if found_format == "parquet" and found_compression is not None:
        raise InvalidSettingError(
            f"a Parquet file must not be compressed as a whole, got name={name!r} "
            f"compression={found_compression!r}; decompress it first"
        )
    size = info.get("size")
    return StoredFile(
        file_system=file_system,
        path=path,
        name=name,
        size=None if size is None else int(size),
        format=found_format,
        compression=found_compression,
        delimiter="\t" if suffix == ".tsv" else ",",
        local=local,
    )
