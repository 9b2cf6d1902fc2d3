"""Files that paths, directories, globs and URLs stand for: one answer for every route."""

import os
import posixpath
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from glob import has_magic
from operator import itemgetter
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

import fsspec
from fsspec.implementations.local import LocalFileSystem

from streamlda.errors import Faults, InvalidSettingError, SourceError, StreamLDAError, one_of

#: File name endings and the compressions they stand for; a workbook is that of its first sheet.
COMPRESSION_SUFFIXES = {
    ".gz": "gzip",
    ".bz2": "bz2",
    ".xz": "xz",
    ".zst": "zstd",
    ".xlsx": "workbook",
    ".xlsm": "workbook",
}

#: File name endings (without that of a compression) and the format they stand for.
FORMAT_SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "csv",
    ".parquet": "parquet",
}

#: Endings of mail, HTML and XML, which are refused where the format goes by names.
UNREAD_SUFFIXES = frozenset({".mbox", ".eml", ".html", ".htm", ".xhtml", ".xml"})

#: The page that shows how to extract their text.
HOW_TO_EXTRACT = "streamlda/docs/howto/mail-and-html.md"

FORMATS = ("text", "file", "jsonl", "json", "csv", "parquet")

_FAULTS = Faults(
    {
        SourceError: {
            "empty": "a directory or glob has no files, or none that patterns to include match; "
            "check both; hidden files do not count",
            "gone": "the path does not exist; check the spelling, or use the full path",
            "none": "no path is given; name a file or directory",
            "special": "the path is no file or directory; read a pipe with the connector stdin",
            "twice": "a file is named twice; leave out one of the paths that lead to it",
            "unread": "the path cannot be read; check its permissions",
            "url": "fsspec cannot open the URL; check protocol and address, or install what "
            "it needs",
        },
        InvalidSettingError: {
            "mail": "mail, HTML and XML are not read; extract their text first "
            f"({HOW_TO_EXTRACT}), or leave these files out (--include)",
        },
    }
)
_fault, _check = _FAULTS.make, _FAULTS.check

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class FilePart(NamedTuple):
    """A file, or a `StoredFile.part` of it, and about how many stored bytes there are."""

    file: "StoredFile"
    part: tuple[int, int] | None
    size: int


@dataclass(frozen=True, slots=True)
class StoredFile:
    """One file to read, or a part of it."""

    file_system: Any
    path: str
    #: The path of a local file, the URL of any other.
    name: str
    #: Stored bytes, None if unknown.
    size: int | None
    format: str
    compression: str | None
    delimiter: str
    local: bool
    #: Lines between the first line ends after two bytes, or groups of rows.
    part: tuple[int, int] | None = None
    #: Whether a folder or a glob brought it, and not its name.
    listed: bool = False

    @property
    def location(self) -> str:
        """Location of its records: the name, with the part in which they are numbered."""
        return self.name if self.part is None else name_part(self.name, self.part)

    def open(self) -> IO[bytes]:
        """Open the stored bytes for reading."""
        with _name_faults(self.name):
            raw: IO[bytes] = self.file_system.open(self.path, "rb", compression=None)
            return raw

    def read_head(self) -> bytes:
        """Return the first bytes, which tell the kind; some systems cannot open what they list."""
        # Some file systems close by `close` alone.
        with _name_faults(self.name), closing(self.open()) as stored:
            return stored.read(32)


@contextmanager
def _name_faults(given: str) -> Iterator[None]:
    """Raise `SourceError` in place of errors of any kind, which the many file systems raise."""
    try:
        yield
    except (OSError, StreamLDAError, MemoryError):
        raise
    except Exception as error:
        said = " ".join(f"{type(error).__name__}: {error}".split())
        raise _fault("url", path=given, reason=said) from error


def name_part(name: str, part: tuple[int, int]) -> str:
    """Return the name of a part of a file."""
    return f"{name}[{part[0]}:{part[1]}]"


def find_files(paths: Paths, format: str, include: Collection[str] = ()) -> list[StoredFile]:
    """Return the files that `paths` stand for, in the order of `paths` and of sorted names.

    In a directory or a glob, hidden files, dangling links, pipes and sockets are skipped, as are
    files that match no pattern to `include`. A name that exists is no glob.
    """
    convert = f"leave it out to go by names, or convert files (mail and HTML: {HOW_TO_EXTRACT})"
    one_of(("auto", *FORMATS), format=format, remedy=convert)
    files: dict[str, StoredFile] = {}
    for given in name_paths(paths):
        with _name_faults(given):
            for file in _expand(given, format, include):
                _check(file.name not in files, "twice", name=file.name)
                files[file.name] = file
    return list(files.values())


def name_paths(paths: Paths) -> list[str]:
    """Return the paths as text."""
    listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    _check(listed, "none", paths=[])
    return [os.fspath(path) for path in listed]


def not_a_file(path: str) -> StreamLDAError:
    """Return the error for a path to a pipe, a socket or a device."""
    return _fault("special", path=path)


def _expand(given: str, format: str, include: Collection[str]) -> Iterator[StoredFile]:
    file_system, path = fsspec.core.url_to_fs(given)
    try:
        found = _list(file_system, path)
    except FileNotFoundError as error:
        raise _fault("gone", path=given) from error
    except OSError as error:
        if isinstance(error, SourceError):
            raise
        path = error.filename or given
        raise _fault("unread", path=path, reason=error.strerror or str(error)) from error
    # In a folder each file is a document, elsewhere each line.
    plain = "file" if format == "auto" and file_system.isdir(path) else "text"
    local = isinstance(file_system, LocalFileSystem)
    listed = [info["name"] for info in found] != [path]
    if listed and include:
        found = [info for info in found if any(map(PurePosixPath(info["name"]).match, include))]
    _check(found, "empty", path=given, include=[*include])
    for info in found:
        stem, suffix = posixpath.splitext(info["name"].lower())
        compression = COMPRESSION_SUFFIXES.get(suffix)
        suffix = suffix if compression is None else posixpath.splitext(stem)[1]
        name = info["name"] if local else str(file_system.unstrip_protocol(info["name"]))
        _check(format != "auto" or suffix not in UNREAD_SUFFIXES, "mail", name=name)
        found_format = FORMAT_SUFFIXES.get(suffix, plain) if format == "auto" else format
        yield StoredFile(
            file_system=file_system,
            path=info["name"],
            name=name,
            size=info.get("size"),
            format="csv" if compression == "workbook" else found_format,
            compression=compression,
            delimiter="\t" if suffix == ".tsv" else ",",
            local=local,
            listed=listed,
        )


def _list(file_system: Any, path: str) -> list[dict[str, Any]]:
    """Return fsspec's entries of the files at `path`, sorted by name."""
    if has_magic(path) and not file_system.exists(path):
        found = file_system.glob(path, detail=True).values()
        parts = path.split("/")
        root = "/".join(parts[: next(i for i, part in enumerate(parts) if has_magic(part))])
    else:
        info = file_system.info(path)
        if info["type"] == "file":
            return [info]
        if info["type"] != "directory":
            raise not_a_file(path)
        root = path
        # A listing by fsspec skips folders that it may not read.
        local = isinstance(file_system, LocalFileSystem)
        found = _walk(file_system, path) if local else file_system.find(path, detail=True).values()
    files = (
        _follow_link(file_system, info)
        for info in found
        if "/." not in info["name"].removeprefix(root.rstrip("/"))
    )
    return sorted((i for i in files if i["type"] == "file"), key=itemgetter("name"))


def _walk(file_system: Any, folder: str) -> Iterator[dict[str, Any]]:
    """Yield the entries of a local folder and all visible ones below it, but no folders."""
    for info in file_system.ls(folder, detail=True):
        if info["type"] != "directory":
            yield info
        elif not posixpath.basename(info["name"]).startswith("."):
            yield from _walk(file_system, info["name"])


def _follow_link(file_system: Any, info: dict[str, Any]) -> Any:
    """Return the entry that a link leads to, or itself if it is none or leads nowhere."""
    leads = info.get("islink") and Path(info["name"]).exists()
    return file_system.info(info["name"]) if leads else info
