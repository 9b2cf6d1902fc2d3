"""Regular files under the paths that are followed, as one listing finds them."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
from functools import partial
from glob import has_magic
from pathlib import Path
from stat import S_ISREG
from typing import NamedTuple

from streamlda.stream.listing import (
    COMPRESSION_SUFFIXES,
    UNREAD_SUFFIXES,
    Paths,
    named_paths,
    not_a_file,
)
from streamlda_connectors.checks import check

#: Device and inode: a file keeps them when it is renamed.
Identity = tuple[int, int]

#: Rotation puts a number, a date or a word into a name, after a dot, dash or underscore.
_MARK = re.compile(r"[._-](?=(\d(?:[\dTZ:._-]*[\dZ])?|old|bak)(\.[A-Za-z]\w*)?\Z)")


class StreamFile(NamedTuple):
    """A regular file found under `path`, which stands for it if it is `named`.

    `bases` are the full names from which it may have been rotated.
    """

    name: str
    identity: Identity
    size: int
    modified_ns: int
    path: str
    named: bool
    bases: tuple[str, ...]


Listing = dict[Identity, StreamFile]


def get_bases(name: str) -> Iterator[str]:
    """Yield names that rotation may have turned into `name`, as app.log into app.1.log."""
    for mark in _MARK.finditer(name):
        if mark.start() > 0:
            yield name[: mark.start()] + (mark[2] or "")


def check_paths(paths: Paths, format: str) -> list[str]:
    """Return the full paths, each once, or raise if one cannot be followed."""
    names = named_paths(paths)
    for name in names:
        suffix = posixpath.splitext(name.lower())[1]
        check("://" not in name, "url", path=name)
        check(suffix not in COMPRESSION_SUFFIXES, "compressed", path=name)
        check(format == "text" or suffix not in UNREAD_SUFFIXES, "mail", path=name)
    return list(dict.fromkeys(posixpath.abspath(name) for name in names))


def list_files(paths: Iterable[str]) -> Listing:
    """Return the files under full paths of files, directories (with all below) and patterns.

    They come by path, then by name; one with several names is there once, under the first. A path
    that does not exist is no error: it may come later.
    """
    files: Listing = {}
    for path in paths:
        for file in sorted(_find(path)):
            before = files.get(file.identity)
            # A name that a path stands for goes before one that may be rotated.
            if before is None or (file.named and not before.named):
                files[file.identity] = file
    return files


def _find(path: str) -> Iterator[StreamFile]:
    (folder, pattern), there = posixpath.split(path), Path(path)
    accepts: Callable[[str], bool] = pattern.__eq__
    folders: Iterable[str] = [folder]
    if there.is_dir():
        folders, accepts = _walk(path), _is_visible
    elif there.exists() and not there.is_file():
        raise not_a_file(path)
    elif has_magic(path) and not there.exists():
        accepts = partial(_matches, pattern)
        if has_magic(folder):
            # Hidden folders are found by name alone.
            matches = map(str, Path("/").glob(folder.lstrip("/")))
            folders = [match for match in matches if "/." in folder or "/." not in match]
    for each in folders:
        yield from _list_folder(path, each, accepts)


def _matches(pattern: str, name: str) -> bool:
    return fnmatchcase(name, pattern) and (_is_visible(name) or not _is_visible(pattern))


def _walk(top: str) -> Iterator[str]:
    def note(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    for folder, below, _ in os.walk(top, onerror=note):
        below[:] = filter(_is_visible, below)
        yield folder


def _list_folder(path: str, folder: str, accepts: Callable[[str], bool]) -> Iterator[StreamFile]:
    try:
        names = [entry.name for entry in Path(folder).iterdir()]
    except (FileNotFoundError, NotADirectoryError):
        return  # it may come later
    for name in names:
        if posixpath.splitext(name.lower())[1] in COMPRESSION_SUFFIXES:
            continue
        named = accepts(name)
        bases = [posixpath.join(folder, b) for b in get_bases(name) if named or accepts(b)]
        if named or bases:
            full = posixpath.join(folder, name)
            try:
                status = Path(full).stat()
            except (FileNotFoundError, NotADirectoryError):
                continue
            if S_ISREG(status.st_mode):
                # A position is JSON, which has no bytes that are not UTF-8.
                check(full == full.encode(errors="replace").decode(), "name", name=full)
                identity = status.st_dev, status.st_ino
                facts = status.st_size, status.st_mtime_ns, path, named, tuple(bases)
                yield StreamFile(full, identity, *facts)


def _is_visible(name: str) -> bool:
    return not name.startswith(".")
