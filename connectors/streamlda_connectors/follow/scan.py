"""What stands under the paths that are followed: one scan, nothing remembered."""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from glob import has_magic
from pathlib import Path
from typing import NamedTuple

from streamlda.checks import require
from streamlda.errors import SourceError
from streamlda.stream.listing import (
    COMPRESSION_SUFFIXES,
    FORMAT_SUFFIXES,
    UNREAD_SUFFIXES,
    Paths,
    named_paths,
    not_a_file,
)

#: Device and inode: what a file keeps when it is renamed.
Identity = tuple[int, int]

#: Says whether a path stands for a file name; None for a directory that is listed for inodes.
Accepts = Callable[[str], bool] | None

#: What rotation puts into a name, after a dot, dash or underscore: a number, a date, or a word.
_MARK = re.compile(r"[._-](?=(\d(?:[\dTZ:._-]*[\dZ])?|old|bak)(\.[A-Za-z]\w*)?\Z)")


class StreamFile(NamedTuple):
    """A regular file that is there, found under `path`.

    `named` is whether `path` stands for it. Otherwise it is there because it may have been rotated
    away from a name that `path` stands for, or because of its inode. `bases` are the full names
    from which it may have been rotated away.
    """

    name: str
    identity: Identity
    size: int
    modified_ns: int
    path: str
    named: bool
    bases: tuple[str, ...]


def bases(name: str) -> Iterator[str]:
    """Yield the file names that rotation may have turned into `name`.

    ``app.log.1``, ``app.log-20250131``, ``app.log.old`` and ``app.1.log`` come from ``app.log``.
    """
    for mark in _MARK.finditer(name):
        if mark.start() > 0:
            yield name[: mark.start()] + (mark[2] or "")


def check_paths(paths: Paths) -> list[str]:
    """Return the full paths, each once, or raise if one cannot be followed."""
    names = named_paths(paths)
    for name in names:
        other = "read other formats from files (connector files)"
        require("://" not in name, "only local files can be followed", path=name, remedy=other)
        compressed = _is_compressed(name)
        require(not compressed, "compressed files cannot be followed", path=name, remedy=other)
    return list(dict.fromkeys(posixpath.abspath(name) for name in names))


def check_has_lines(names: Sequence[str]) -> None:
    """Raise if there are files and the name of each says that it is no JSON Lines, as .html."""
    known = {**FORMAT_SUFFIXES, **UNREAD_SUFFIXES}
    formats = {known.get(posixpath.splitext(name)[1].lower(), "jsonl") for name in names}
    require(
        not formats or not formats.isdisjoint(("jsonl", "json")),
        "files that are followed must hold a document a line",
        files=len(names),
        formats=", ".join(sorted(formats)),
        remedy="read these from files (--source-kind files), or say that a line is a document "
        "(--format text)",
    )


class DirectoryScan:
    """The files under full paths of files, directories (with everything below) or patterns.

    What does not exist is left out: it may come later. So are hidden and compressed files. Besides,
    files with one of `inodes` are found whatever they are called, in `folders` too. Time O(files in
    the directories), one stat for each that counts; nothing is opened. Raises `OSError` if a
    directory cannot be read (a missing one only stays out of `folders`).
    """

    def __init__(self, paths: Iterable[str], inodes: set[int], folders: Iterable[str]) -> None:
        #: In the order of the paths, and by name within one. A file with several names is in it
        #: once, under the first one.
        self.files: dict[Identity, StreamFile] = {}
        #: The directories that were listed, and the device of each.
        self.folders: dict[str, int] = {}
        #: Every name that leads to one of the files.
        self.links: dict[str, Identity] = {}
        self._inodes = inodes
        self._listings: dict[str, list[os.DirEntry[str]]] = {}
        for path in paths:
            found: list[StreamFile] = []
            for folder, accepts in self._folders_of(path):
                for entry in self._list(folder):
                    found += self._file_of(entry, folder, path, accepts)
            self._note(sorted(found, key=lambda file: file.name))
        for folder in folders:
            if folder not in self.folders:
                for entry in self._list(folder):
                    self._note(self._file_of(entry, folder, "", None))

    def _note(self, found: Iterable[StreamFile]) -> None:
        for file in found:
            self.links[file.name] = file.identity
            before = self.files.get(file.identity)
            # A name that a path stands for goes before one that was only met on the way.
            if before is None or (file.named and not before.named):
                self.files[file.identity] = file

    def _folders_of(self, path: str) -> Iterator[tuple[str, Accepts]]:
        """Yield the directories to list for `path`, and which of their files it stands for."""
        folder, name = posixpath.split(path)
        try:
            mode = Path(path).stat().st_mode
        except (FileNotFoundError, NotADirectoryError):
            mode = 0
        if stat.S_ISDIR(mode):
            yield from ((below, _is_visible) for below in self._tree(path))
            return
        if mode and not stat.S_ISREG(mode):
            raise not_a_file(path)
        if mode or not has_magic(path):
            yield folder, lambda other: other == name
            return
        hidden = name.startswith(".")
        for match in _folders_matching(folder):
            yield (match, lambda other: fnmatchcase(other, name) and (hidden or _is_visible(other)))

    def _tree(self, top: str) -> Iterator[str]:
        waiting = [top]
        while waiting:
            folder = waiting.pop()
            yield folder
            waiting += [
                entry.path
                for entry in self._list(folder)
                if _is_visible(entry.name) and entry.is_dir(follow_symlinks=False)
            ]

    def _list(self, folder: str) -> list[os.DirEntry[str]]:
        if folder not in self._listings:
            try:
                device = Path(folder).stat().st_dev
                with os.scandir(folder) as entries:
                    self._listings[folder] = list(entries)
                self.folders[folder] = device
            except (FileNotFoundError, NotADirectoryError):
                self._listings[folder] = []
        return self._listings[folder]

    def _file_of(
        self, entry: os.DirEntry[str], folder: str, path: str, accepts: Accepts
    ) -> Iterator[StreamFile]:
        """Yield the file of `entry`, if it is one and counts."""
        name, named = entry.name, False
        rotated: tuple[str, ...] = ()
        if accepts is not None and not _is_compressed(name):
            named = accepts(name)
            rotated = tuple(base for base in bases(name) if named or accepts(base))
        if not named and not rotated and entry.inode() not in self._inodes:
            return
        try:
            status = entry.stat()
        except (FileNotFoundError, NotADirectoryError):
            # Renamed or removed since the directory was listed.
            return
        if not stat.S_ISREG(status.st_mode):
            return
        require(
            name.isprintable() or _is_utf8(name),
            "the name of a file must be UTF-8",
            name=entry.path,
            remedy="rename the file",
            error=SourceError,
        )
        yield StreamFile(
            entry.path,
            (status.st_dev, status.st_ino),
            status.st_size,
            status.st_mtime_ns,
            path,
            named,
            tuple(posixpath.join(folder, base) for base in rotated),
        )


def _is_visible(name: str) -> bool:
    return not name.startswith(".")


def _folders_matching(pattern: str) -> list[str]:
    if not has_magic(pattern):
        return [pattern]
    hidden = "/." in pattern
    matches = (str(match) for match in Path("/").glob(pattern.lstrip("/")) if match.is_dir())
    return sorted(match for match in matches if hidden or "/." not in match)


def _is_compressed(name: str) -> bool:
    return posixpath.splitext(name.lower())[1] in COMPRESSION_SUFFIXES


def _is_utf8(name: str) -> bool:
    # The file system's undecodable bytes are lone surrogates, which not all of JSON can hold.
    return not any("\ud800" <= character <= "\udfff" for character in name)
