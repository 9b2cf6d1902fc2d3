"""What stands under the paths that are followed: one look, nothing remembered."""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from glob import has_magic
from pathlib import Path
from typing import NamedTuple

from streamlda.errors import InvalidSettingError, SourceError
from streamlda_connectors.compressed import SUFFIXES

#: Device and inode: what a file keeps when it is renamed.
Identity = tuple[int, int]

#: What rotation puts into a name, after a dot, dash or underscore: a number, a date, or a word.
_MARK = re.compile(r"[._-](?=(\d(?:[\dTZ:._-]*[\dZ])?|old|bak)(\.[A-Za-z]\w*)?\Z)")


class Found(NamedTuple):
    """A regular file that is there.

    Attributes
    ----------
    name : str
        Full path.
    identity : Identity
        Device and inode.
    size, modified_ns : int
        Bytes, and the time of the last write.
    path : str
        Which of the paths led to it.
    asked : bool
        Whether `path` stands for it. Otherwise it is there because it may have been rotated away
        from a name that `path` stands for, or because its inode was asked for.
    bases : tuple of str
        Full names from which it may have been rotated away.
    """

    name: str
    identity: Identity
    size: int
    modified_ns: int
    path: str
    asked: bool
    bases: tuple[str, ...]


@dataclass(slots=True)
class Sight:
    """What one look saw.

    Attributes
    ----------
    found : dict of Identity to Found
        In the order of the paths, and by name within one. A file with several names is in it
        once, under the first one.
    folders : dict of str to int
        The directories that were listed, and the device of each.
    links : dict of str to Identity
        Every name that leads to one of the files.
    """

    found: dict[Identity, Found] = field(default_factory=dict)
    folders: dict[str, int] = field(default_factory=dict)
    links: dict[str, Identity] = field(default_factory=dict)


def bases(name: str) -> Iterator[str]:
    """Yield the file names that rotation may have turned into `name`.

    ``app.log.1``, ``app.log-20250131``, ``app.log.old`` and ``app.1.log`` come from ``app.log``.
    """
    for mark in _MARK.finditer(name):
        if mark.start() > 0:
            yield name[: mark.start()] + (mark[2] or "")


def check_paths(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> list[str]:
    """Return the full paths, or raise `SourceError` or `InvalidSettingError`."""
    listed = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    if not listed:
        raise SourceError(
            "a file source must be given at least 1 path, got paths=[]; name a file or directory"
        )
    names = [os.fspath(path) for path in listed]
    for name in names:
        if "://" in name:
            raise InvalidSettingError(
                f"only local files can be followed, got path={name!r}; "
                "read remote files with the connector files"
            )
        if _is_compressed(name):
            raise InvalidSettingError(
                f"compressed files cannot be followed, got path={name!r}; "
                "read them with the connector files"
            )
    return list(dict.fromkeys(posixpath.abspath(name) for name in names))


def look(paths: Iterable[str], inodes: set[int], folders: Iterable[str]) -> Sight:
    """Return what is there now.

    Time O(files in the directories), one stat for each that counts; nothing is opened.

    Parameters
    ----------
    paths : iterable of str
        Full paths of files, directories (with everything below) or patterns. What does not
        exist is passed over: it may come later. Hidden and compressed files are left out.
    inodes : set of int
        Files to be found whatever they are called now.
    folders : iterable of str
        Where else to look for `inodes`.

    Raises
    ------
    OSError
        If a directory cannot be read; a missing one only stays out of `Sight.folders`.
    SourceError
        For a path that is neither file nor directory, or a file name that is not UTF-8.
    """
    sight = Sight()
    listings: dict[str, list[os.DirEntry[str]]] = {}
    for path in paths:
        found: list[Found] = []
        for folder, accepts in _places(path, sight, listings):
            for entry in _list(folder, sight, listings):
                found += _found(entry, folder, path, accepts, inodes)
        found.sort(key=lambda file: file.name)
        _note(sight, found)
    for folder in folders:
        if folder not in sight.folders:
            for entry in _list(folder, sight, listings):
                _note(sight, _found(entry, folder, "", None, inodes))
    return sight


def _note(sight: Sight, found: Iterable[Found]) -> None:
    for file in found:
        sight.links[file.name] = file.identity
        before = sight.found.get(file.identity)
        # A name that is asked for goes before one that was only looked through.
        if before is None or (file.asked and not before.asked):
            sight.found[file.identity] = file


#: Says whether a path stands for a file name; None for a directory that is listed for inodes.
Accepts = Callable[[str], bool] | None


def _places(
    path: str, sight: Sight, listings: dict[str, list[os.DirEntry[str]]]
) -> Iterator[tuple[str, Accepts]]:
    """Yield the directories to list for `path`, and which of their files it stands for."""
    folder, name = posixpath.split(path)
    try:
        mode = Path(path).stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        mode = 0
    if stat.S_ISDIR(mode):
        yield from ((below, _any_visible) for below in _tree(path, sight, listings))
    elif mode and not stat.S_ISREG(mode):
        raise SourceError(
            f"a path must be a regular file or a directory, got path={path!r}; "
            "read a pipe with the connector stdin"
        )
    elif mode or not has_magic(path):
        yield folder, lambda other: other == name
    else:
        hidden = name.startswith(".")
        for place in _folders(folder):
            yield (
                place,
                lambda other: fnmatchcase(other, name) and (hidden or _any_visible(other)),
            )


def _any_visible(name: str) -> bool:
    return not name.startswith(".")


def _folders(pattern: str) -> list[str]:
    if not has_magic(pattern):
        return [pattern]
    hidden = "/." in pattern
    matches = (str(match) for match in Path("/").glob(pattern.lstrip("/")) if match.is_dir())
    return sorted(match for match in matches if hidden or "/." not in match)


def _tree(top: str, sight: Sight, listings: dict[str, list[os.DirEntry[str]]]) -> Iterator[str]:
    waiting = [top]
    while waiting:
        folder = waiting.pop()
        yield folder
        waiting += [
            entry.path
            for entry in _list(folder, sight, listings)
            if _any_visible(entry.name) and entry.is_dir(follow_symlinks=False)
        ]


def _list(
    folder: str, sight: Sight, listings: dict[str, list[os.DirEntry[str]]]
) -> list[os.DirEntry[str]]:
    if folder not in listings:
        try:
            device = Path(folder).stat().st_dev
            with os.scandir(folder) as entries:
                listings[folder] = list(entries)
            sight.folders[folder] = device
        except (FileNotFoundError, NotADirectoryError):
            listings[folder] = []
    return listings[folder]


def _found(
    entry: os.DirEntry[str], folder: str, path: str, accepts: Accepts, inodes: set[int]
) -> Iterator[Found]:
    """Yield the file of `entry`, if it is one and counts."""
    name, asked = entry.name, False
    rotated: tuple[str, ...] = ()
    if accepts is not None and not _is_compressed(name):
        asked = accepts(name)
        rotated = tuple(base for base in bases(name) if asked or accepts(base))
    if not asked and not rotated and entry.inode() not in inodes:
        return
    try:
        status = entry.stat()
    except (FileNotFoundError, NotADirectoryError):
        # Renamed or removed since the directory was listed.
        return
    if not stat.S_ISREG(status.st_mode):
        return
    if not name.isprintable() and _not_utf8(name):
        raise SourceError(
            f"the name of a file must be UTF-8, got name={entry.path!a}; rename the file"
        )
    yield Found(
        entry.path,
        (status.st_dev, status.st_ino),
        status.st_size,
        status.st_mtime_ns,
        path,
        asked,
        tuple(posixpath.join(folder, base) for base in rotated),
    )


def _is_compressed(name: str) -> bool:
    return posixpath.splitext(name.lower())[1] in SUFFIXES


def _not_utf8(name: str) -> bool:
    # The file system's undecodable bytes are lone surrogates, which not all of JSON can hold.
    return any("\ud800" <= character <= "\udfff" for character in name)
