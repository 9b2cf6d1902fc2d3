"""Files that are followed, from one listing to the next: grown, renamed, cut, gone or new."""

import logging
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from glob import escape, glob, has_magic
from hashlib import blake2b
from pathlib import Path
from stat import S_ISREG
from time import monotonic
from typing import IO, Any, NamedTuple

from streamlda.stream.listing import COMPRESSION_SUFFIXES, Paths, name_paths, not_a_file
from streamlda.stream.source import Position
from streamlda_connectors.checks import check, count_at, not_a_position

logger = logging.getLogger(__name__)

#: First bytes by which files are told apart where inodes are reused.
HEAD_BYTES = 256

#: How long the unfinished last line of a rotated file must have stayed as it is to be a record.
SETTLE_SECONDS = 1.0

#: Most listings of a scan, which are made until two agree: one that is made while files are renamed
#: may miss some.
LISTINGS = 5

#: Device and inode: a file keeps them when it is renamed.
Identity = tuple[int, int]

#: Rotation puts a number or a date behind a name, after a dot or dash.
_match_rotated = re.compile(r"(.+?)[.-]\d[\dTZ:._-]*", re.DOTALL).fullmatch


class StreamFile(NamedTuple):
    """A regular file found under `path`, which stands for it if it is `named`.

    `base` is the full name from which it may have been rotated, empty if none.
    """

    name: str
    identity: Identity
    size: int
    modified_ns: int
    path: str
    named: bool
    base: str


Listing = dict[Identity, StreamFile]


def check_paths(paths: Paths) -> list[str]:
    """Return the full paths, each once, or raise if one cannot be followed."""
    names = name_paths(paths)
    for name in names:
        check(not ("://" in name or _is_packed(name)), "url", path=name)
    return list(dict.fromkeys(posixpath.abspath(name) for name in names))


def _is_packed(name: str) -> bool:
    return posixpath.splitext(name.lower())[1] in COMPRESSION_SUFFIXES


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
    there, pattern = Path(path), escape(path)
    named, others = set[str](), set[str]()
    if there.is_dir():
        named = set(_walk(path))
    elif there.exists() and not there.is_file():
        raise not_a_file(path)
    else:
        if there.parent.is_dir():
            os.scandir(there.parent).close()  # a pattern just finds nothing where it may not look
        pattern = pattern if there.exists() else path
        named = set(glob(pattern))  # noqa: PTH207 (pathlib finds hidden names too)
        others = set(glob(pattern + "[.-][0-9]*"))  # noqa: PTH207
    for name in named | others:
        rotated = _match_rotated(name)
        base = rotated[1] if rotated else ""
        if _is_packed(name) or not (name in named or fnmatchcase(base, pattern)):
            continue
        try:
            status = Path(name).stat()
        except (FileNotFoundError, NotADirectoryError):
            continue
        if S_ISREG(status.st_mode):
            # A position is JSON, which has no bytes that are not UTF-8.
            check(name == name.encode(errors="replace").decode(), "name", name=name)
            identity = status.st_dev, status.st_ino
            facts = status.st_size, status.st_mtime_ns, path, name in named, base
            yield StreamFile(name, identity, *facts)


def _walk(top: str) -> Iterator[str]:
    """Yield the visible names under a directory and all visible ones below it."""

    def note(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    for folder, below, names in os.walk(top, onerror=note):
        below[:] = [name for name in below if not name.startswith(".")]
        yield from (posixpath.join(folder, name) for name in names if not name.startswith("."))


#: A fingerprint of the first bytes of a file: how many, and their digest.
Head = tuple[int, str]


def _fingerprint(data: bytes) -> Head:
    first = data[:HEAD_BYTES]
    return len(first), blake2b(first, digest_size=8).hexdigest() if first else ""


@dataclass(slots=True, eq=False)
class TrackedFile:
    """A file that is followed; the fields up to `ignored` are stored in a position."""

    #: Full path, as last seen.
    name: str
    #: Full path of the name that it is, or was, written under.
    family: str
    identity: Identity
    #: Fingerprint from a position, until this process has read the first bytes.
    stored: Head = (0, "")
    #: Bytes and records handed out, and bytes known to have been in it.
    offset: int = 0
    record: int = 0
    seen: int = 0
    #: Not to be read: a copy of another file, or rotated before the start.
    ignored: bool = False
    #: Its first bytes, its size and the time of its last write, when it was last looked at.
    first: bytes = b""
    size: int = 0
    modified_ns: int = 0
    #: Up to where it was read (an unfinished line lies between `offset` and here), and up to where
    #: it is to be read before other files have their turn.
    read_to: int = 0
    goal: int = 0
    #: Whether its last line is a record without a line end.
    flush: bool = False
    #: Whether this process has seen that it is the file of the position.
    verified: bool = False
    #: Since when it has not grown, in the seconds of `time.monotonic`.
    still_since: float = 0.0

    @property
    def unread(self) -> int:
        """Bytes known to have been in it that were not handed out."""
        return 0 if self.ignored else max(0, self.seen - self.offset)

    @property
    def head(self) -> Head:
        """The fingerprint of its first bytes as far as handed out or, before that, as seen."""
        return _fingerprint(self.first[: self.offset or None]) if self.first else self.stored

    def begins(self, data: bytes) -> bool:
        """Return whether `data`, the first bytes of a file, begins as this one."""
        size = self.head[0]
        return len(data) >= size and _fingerprint(data[:size]) == self.head

    def look(self) -> tuple[bytes, int]:
        """Return its first bytes, and its size just before."""
        with self._open() as file:
            size = os.fstat(file.fileno()).st_size
            return file.read(HEAD_BYTES), size

    def read(self, offset: int, max_bytes: int) -> bytes:
        """Return bytes from `offset` on; none if it was cut, for the next scan to see."""
        with self._open() as file:
            block = os.pread(file.fileno(), max_bytes, offset)
            # Looked at after the block was read: if the beginning is as before, so was the block.
            first = file.read(HEAD_BYTES)
        if not self.begins(first):
            self.modified_ns = 0
            return b""
        self.first = first
        return block

    def _open(self) -> IO[bytes]:
        """Open the file; `FileNotFoundError` also if the name leads to another one."""
        # Without O_NONBLOCK, a pipe that has taken the name would hold this up.
        file = os.fdopen(os.open(self.name, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0)
        status = os.fstat(file.fileno())
        if (status.st_dev, status.st_ino) == self.identity:
            return file
        file.close()
        raise FileNotFoundError(self.name)

    def grow(self, size: int) -> None:
        """Note that it holds `size` bytes now."""
        if size != self.size:
            self.size, self.still_since, self.flush = size, monotonic(), False
        self.seen = max(self.seen, size)


def _names_of(listing: Listing) -> dict[Identity, str]:
    return {identity: file.name for identity, file in listing.items()}


class Watch:
    """Follows the files under some paths through rotation; `files` are oldest first."""

    def __init__(self, paths: Sequence[str], allow_gaps: bool, position: Position | None) -> None:
        self.paths, self.allow_gaps = paths, allow_gaps
        self.files: list[TrackedFile] = []
        self.gaps = self.lost_bytes = 0
        self._scanned: set[str] = set()
        if position is None:
            return
        for key in ("paths", "files"):
            if not isinstance(position.get(key), list):
                raise not_a_position(key)
        self._scanned = set(map(str, position["paths"]))
        self.files = [_read_row(row) for row in position["files"]]
        self.gaps, self.lost_bytes = count_at(position, "gaps"), count_at(position, "lost_bytes")
        before = sorted(self._scanned)
        check(set(before) <= {*self.paths}, "paths", paths=self.paths, paths_of_position=before)

    def scan(self) -> None:
        """Find changes of files, and new ones. Noted changes survive an error.

        1. List the paths, and look at files that have changed. If one was cut or is gone, list
           again until two listings agree: its copy or new name may be younger, or just renamed.
        2. Continue with such a file in its copy, or record a gap.
        3. Track new files, and find last lines without a line end.
        """
        moved: set[TrackedFile] = set()
        listed: Listing = {}
        for _ in range(LISTINGS):  # 1
            before, names = moved, _names_of(listed)
            listed = list_files(self.paths)
            moved = {file for file in self.files if not self._recognize(file, listed)}
            if not moved or (moved <= before and _names_of(listed) == names):
                break
        for file in [file for file in self.files if file in moved]:
            self._follow_moved(file, listed)  # 2
        self._add_new(listed)  # 3
        self._scanned = set(self.paths)
        newer: dict[str, int] = {}
        for file in reversed(self.files):
            if not file.ignored:
                still = monotonic() - file.still_since >= SETTLE_SECONDS
                unfinished = file.offset < file.size <= file.read_to
                file.flush = unfinished and still and newer.get(file.family, 0) > 0
                newer[file.family] = file.size

    def _recognize(self, file: TrackedFile, listing: Listing) -> bool:
        """Note where `file` stands; return False if its inode is gone or holds something else."""
        here = listing.get(file.identity)
        if here is None or here.size < file.offset:
            return False
        size, before = here.size, file.name
        changed = (here.name, size, here.modified_ns) != (before, file.size, file.modified_ns)
        if changed or not file.verified:
            file.name = here.name
            try:
                first, size = file.look()
            except OSError:
                return True  # reading it will meet the same, and say so
            if size < file.offset or not file.begins(first):
                file.name = before
                return False
            file.first = first
        if file.unread and size < file.seen:
            if file.read_to < file.seen:  # more is gone than an unfinished line
                self._note_gap(file, file.seen - size)
            file.seen, file.read_to = size, file.offset
        file.verified, file.modified_ns = True, here.modified_ns
        file.grow(size)
        return True

    def _follow_moved(self, file: TrackedFile, listing: Listing) -> None:
        """Continue with a file that was cut, or is not listed."""
        if not file.ignored and (copy := self._find_copy(file, listing)) is not None:
            self._continue_in(file, copy)
            return
        here = listing.get(file.identity)
        cut = here is not None and here.name == file.name
        # An empty mount point is no sign that the files were removed.
        if not cut and _find_device(posixpath.dirname(file.name)) != file.identity[0]:
            at = {"name": file.name, "offset": file.offset, "unread_bytes": file.unread}
            check(not file.unread, "directory", **at)
            return
        # Another process may have written to it before it was cut, replaced or removed.
        plain = file.family in self.paths and not has_magic(file.family)
        replaced = any(other.name == file.family for other in listing.values())
        known = file.verified or file.name != file.family
        if not file.ignored and (file.unread or ((cut or replaced or plain) and not known)):
            self._note_gap(file, file.unread)
        self.files.remove(file)
        # Work that still has it in hand must not read on.
        file.ignored = True

    def _find_copy(self, file: TrackedFile, listing: Listing) -> StreamFile | None:
        """Return the newest copy of a file that was cut, if one has with its unread lines."""
        taken = {each.identity for each in self.files if not each.ignored}
        fits = [
            other
            for other in listing.values()
            if other.identity not in taken and file.family == other.base
            if file.head[0] and file.begins(_read_head(other.name))
        ]
        return max(fits, key=lambda f: (f.size >= file.offset, f.modified_ns), default=None)

    def _continue_in(self, file: TrackedFile, copy: StreamFile) -> None:
        lost = file.seen - max(copy.size, file.offset)
        if lost > 0:
            self._note_gap(file, lost)
        logger.info("file %s continues in its copy %s", file.name, copy.name)
        self.files = [other for other in self.files if other.identity != copy.identity]
        file.identity, file.name, file.modified_ns = copy.identity, copy.name, copy.modified_ns
        file.offset = file.read_to = min(file.offset, copy.size)
        file.verified = True
        file.size = file.goal = file.seen = 0
        file.grow(copy.size)

    def _note_gap(self, file: TrackedFile, lost: int) -> None:
        at = {"name": file.name, "offset": file.offset, "least_unread_bytes": lost}
        check(self.allow_gaps, "gap", **at)
        logger.warning("gap: file %s ends at %d, %d bytes lost", file.name, file.offset, lost)
        self.gaps += 1
        self.lost_bytes += lost

    def _add_new(self, listing: Listing) -> None:
        """Track new files: oldest first where names tell, by name otherwise."""
        tracked = {file.identity for file in self.files}
        families = {file.family for file in self.files}
        standing = {file.name: file for file in self.files if file.name == file.family}
        new = [found for found in listing.values() if found.identity not in tracked]
        for found, family in self._sort_by_age(new, families):
            file = TrackedFile(found.name, family, found.identity)
            file.verified, file.modified_ns = True, found.modified_ns
            rotated, size = family != found.name, found.size
            try:
                file.first, size = file.look()
            except FileNotFoundError:
                continue
            except OSError:
                pass  # reading it will meet the same, and say so
            if rotated and not size:
                continue  # perhaps a copy that is being made
            file.grow(size)
            if found.path not in self._scanned:
                file.ignored = not found.named
            else:
                file.ignored = rotated and _is_copy(file, standing.get(family))
            self.files.append(file)

    def _sort_by_age(
        self, new: Iterable[StreamFile], families: set[str]
    ) -> list[tuple[StreamFile, str]]:
        """Return new files with their families: by path and name, rotated ones by their last write.

        A name that looks rotated is so if the other one is known.
        """
        known = families | {found.name for found in new}

        rows = [
            (found, found.base if not found.named or found.base in known else found.name)
            for found in new
        ]
        rows.sort(key=lambda row: (row[1] == row[0].name, row[0].modified_ns, row[0].name))
        return sorted(rows, key=lambda row: (self.paths.index(row[0].path), row[1]))

    def plan_reading(self) -> list[TrackedFile]:
        """Return the files with something to read, oldest first, and set how far to read each.

        Of files that were written under one name the oldest is read to its end first.
        """
        ready, waited = [], set[str]()
        for file in self.files:
            if not file.ignored and file.family not in waited:
                if file.flush or file.read_to < file.size:
                    ready.append(file)
                    file.goal = file.size
                if file.offset < file.size:
                    waited.add(file.family)
        return ready

    def lag(self) -> int | None:
        """Return how many bytes wait to be handed out, None before the first scan."""
        if not self._scanned:
            return None
        return sum(max(0, f.size - f.offset) for f in self.files if not f.ignored)

    def position(self) -> Position:
        """Return where reading resumes, as plain JSON."""
        rows = [
            [f.name, f.family, *f.identity, *f.head, f.offset, f.record, f.unread, f.ignored]
            for f in self.files
        ]
        lost = {"gaps": self.gaps, "lost_bytes": self.lost_bytes}
        return {"paths": sorted(self._scanned), "files": rows, **lost}


def _read_row(row: Any) -> TrackedFile:
    try:
        name, family, device, inode, size, digest, offset, record, unread, ignored = row
    except (TypeError, ValueError) as error:
        raise not_a_position("files") from error
    file = TrackedFile(name, family, (device, inode), (size, digest), offset, record)
    file.seen, file.ignored, file.read_to = offset + unread, ignored, offset
    return file


def _find_device(folder: str) -> int | None:
    try:
        return Path(folder).stat().st_dev
    except (FileNotFoundError, NotADirectoryError):
        return None


def _is_copy(file: TrackedFile, standing: TrackedFile | None) -> bool:
    """Return whether a file is a copy of the one under its name, which may be cut by now."""
    first = (standing.first if standing else b"") or _read_head(file.family)
    both = min(len(file.first), len(first))
    return both > 0 and file.first[:both] == first[:both]


def _read_head(name: str) -> bytes:
    """Return the first bytes of a file, none if it is not there any more."""
    try:
        with Path(name).open("rb") as file:
            return file.read(HEAD_BYTES)
    except FileNotFoundError:
        return b""
