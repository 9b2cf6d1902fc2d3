"""Regular files under the paths that are followed, as one listing finds them."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator
from fnmatch import fnmatchcase
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


class Listing:
    """Files under full paths of files, directories (with all below) and patterns, unopened.

    A path that does not exist is no error: it may come later.
    """

    def __init__(self, paths: Iterable[str]) -> None:
        #: By path, then by name; a file with several names is in it once, under the first one.
        self.files: dict[Identity, StreamFile] = {}
        #: The device of each directory that was listed.
        self.folders: dict[str, int] = {}
        #: Whether files were renamed or removed meanwhile, so that others may have been missed.
        self.torn = False
        self._entries: dict[str, list[os.DirEntry[str]]] = {}
        for path in paths:
            found: list[StreamFile] = []
            for folder, accepts in self._find_folders(path):
                found += self._find(path, folder, accepts)
            for file in sorted(found, key=lambda file: file.name):
                before = self.files.get(file.identity)
                # A name that a path stands for goes before one that may be rotated.
                if before is None or (file.named and not before.named):
                    self.files[file.identity] = file

    def _find_folders(self, path: str) -> Iterator[tuple[str, Callable[[str], bool]]]:
        """Yield the directories to list for `path`, and a test of names that it stands for."""
        (folder, name), there = posixpath.split(path), Path(path)
        if there.is_dir():
            yield from ((below, _is_visible) for below in self._walk(path))
        elif there.exists() and not there.is_file():
            raise not_a_file(path)
        elif there.exists() or not has_magic(path):
            yield folder, name.__eq__
        else:
            visible = str if name.startswith(".") else _is_visible
            for match in _find_matching_folders(folder):
                yield match, lambda other: fnmatchcase(other, name) and bool(visible(other))

    def _walk(self, top: str) -> Iterator[str]:
        waiting = [top]
        while waiting:
            yield (folder := waiting.pop())
            for entry in self._list(folder):
                if _is_visible(entry.name) and entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)

    def _list(self, folder: str) -> list[os.DirEntry[str]]:
        if folder not in self._entries:
            self._entries[folder] = []
            try:
                device = Path(folder).stat().st_dev
                with os.scandir(folder) as entries:
                    self._entries[folder] = list(entries)
                self.folders[folder] = device
            except (FileNotFoundError, NotADirectoryError):
                pass  # it may come later
        return self._entries[folder]

    def _find(self, path: str, folder: str, accepts: Callable[[str], bool]) -> Iterator[StreamFile]:
        for entry in self._list(folder):
            if posixpath.splitext(entry.name.lower())[1] in COMPRESSION_SUFFIXES:
                continue
            named = accepts(entry.name)
            bases = tuple(base for base in get_bases(entry.name) if named or accepts(base))
            if not named and not bases:
                continue
            try:
                status = entry.stat()
            except (FileNotFoundError, NotADirectoryError):
                self.torn |= not entry.is_symlink()
                continue
            self.torn |= entry.inode() != status.st_ino and not entry.is_symlink()
            if S_ISREG(status.st_mode):
                identity = status.st_dev, status.st_ino
                facts = identity, status.st_size, status.st_mtime_ns, path, named
                # A position is JSON, which has no bytes that are not UTF-8.
                utf8 = not any("\ud800" <= character <= "\udfff" for character in entry.name)
                check(utf8, "name", name=entry.path)
                full = (posixpath.join(folder, base) for base in bases)
                yield StreamFile(entry.path, *facts, tuple(full))


def _is_visible(name: str) -> bool:
    return not name.startswith(".")


def _find_matching_folders(pattern: str) -> list[str]:
    if not has_magic(pattern):
        return [pattern]
    matches = (str(match) for match in Path("/").glob(pattern.lstrip("/")) if match.is_dir())
    return sorted(match for match in matches if "/." in pattern or "/." not in match)
