"""Identity of files from one listing to the next: grown, renamed, cut, copied, gone or new."""

from __future__ import annotations

import logging
import os
import posixpath
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from glob import has_magic
from hashlib import blake2b
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

from streamlda.stream.source import Position
from streamlda_connectors.checks import check, count_at, not_a_position
from streamlda_connectors.follow.listing import Identity, Listing, StreamFile

#: First bytes by which files are told apart where inodes are reused.
HEAD_BYTES = 256

#: Files kept open, so that they can be read to their end after they were removed.
MAX_OPEN = 128


class Head(NamedTuple):
    """A fingerprint of the first bytes of a file: how many, and their digest."""

    size: int = 0
    digest: str = ""

    @classmethod
    def of(cls, data: bytes) -> Head:
        """Return the fingerprint of `data`, the beginning of a file."""
        first = data[:HEAD_BYTES]
        return cls(len(first), blake2b(first, digest_size=8).hexdigest()) if first else cls()

    def begins(self, data: bytes) -> bool:
        """Return whether `data`, the first bytes of a file, begins with the same bytes."""
        return len(data) >= self.size and Head.of(data[: self.size]) == self


@dataclass(slots=True, eq=False)
class TrackedFile:
    """A file that is followed; the fields up to `ignored` are stored in a position."""

    #: Full path, as last seen.
    name: str
    #: Full path of the name that it is, or was, written under.
    family: str
    identity: Identity
    #: Fingerprint from a position, until this process has read the first bytes.
    stored: Head = field(default_factory=Head)
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
    #: Whether the last listing did not find it, and whether it has no name at all.
    away: bool = False
    unlinked: bool = False
    #: Since when it has not grown, in the seconds of `time.monotonic`.
    still_since: float = 0.0

    @property
    def unread(self) -> int:
        """Bytes known to have been in it that were not handed out."""
        return 0 if self.ignored else max(0, self.seen - self.offset)

    @property
    def head(self) -> Head:
        """The fingerprint of its first bytes as far as handed out or, before that, as seen."""
        return Head.of(self.first[: self.offset or HEAD_BYTES]) if self.first else self.stored

    def grow(self, size: int, time: float) -> None:
        """Note that it holds `size` bytes at `time`."""
        if size != self.size:
            self.size, self.still_since, self.flush = size, time, False
        self.seen = max(self.seen, size)


class Descriptors:
    """Open files, at most `MAX_OPEN` of them besides those that could not be opened again."""

    def __init__(self) -> None:
        self._open: OrderedDict[TrackedFile, int] = OrderedDict()

    def has(self, file: TrackedFile) -> bool:
        """Return whether `file` is open."""
        return file in self._open

    def get(self, file: TrackedFile) -> int:
        """Return a descriptor; `FileNotFoundError` also if the name leads to another file."""
        held = self._open.get(file)
        if held is not None:
            self._open.move_to_end(file)
            return held
        # Without O_NONBLOCK, a pipe that has taken the name would hold this up.
        descriptor = os.open(file.name, os.O_RDONLY | os.O_NONBLOCK)
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != file.identity:
            os.close(descriptor)
            raise FileNotFoundError(file.name)
        if len(self._open) >= MAX_OPEN:
            self.drop(next((other for other in self._open if not other.away), file))
        self._open[file] = descriptor
        return descriptor

    def look(self, file: TrackedFile) -> tuple[bytes, int]:
        """Return the first bytes of `file`, and its size at the same time."""
        descriptor = self.get(file)
        while True:
            first = os.pread(descriptor, HEAD_BYTES, 0)
            size = os.fstat(descriptor).st_size
            if os.pread(descriptor, HEAD_BYTES, 0) == first and size >= len(first):
                return first, size

    def read(self, file: TrackedFile, max_bytes: int) -> bytes:
        """Return the bytes that follow in `file`; none if it was cut, for the next scan to see."""
        block = os.pread(self.get(file), max_bytes, file.read_to)
        # Looked at after the block was read: if the beginning is as before, so was the block.
        first, _ = self.look(file)
        if not file.head.begins(first):
            file.modified_ns = 0
            return b""
        file.first = first
        return block

    def drop(self, file: TrackedFile) -> None:
        """Close `file`, if it is open."""
        descriptor = self._open.pop(file, None)
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        """Close all."""
        while self._open:
            os.close(self._open.popitem()[1])


def _read_row(row: Any) -> TrackedFile:
    kinds = (str, str, int, int, int, str, int, int, int, bool)
    if not isinstance(row, list) or tuple(map(type, row)) != kinds:
        raise not_a_position("files")
    name, family, device, inode, size, digest, offset, record, unread, ignored = row
    if min(device, inode, size, offset, record, unread) < 0:
        raise not_a_position("files")
    file = TrackedFile(name, family, (device, inode), Head(size, digest), offset, record)
    file.seen, file.ignored, file.read_to = offset + unread, ignored, offset
    return file


logger = logging.getLogger(__name__)

#: How long the unfinished last line of a rotated file must have stayed as it is to be a record.
SETTLE_SECONDS = 1.0

#: Most listings of a scan, which are made until two agree: one that is made while files are renamed
#: may miss some.
LISTINGS = 5


class Watch:
    """Follows the files under some paths through rotation; `files` are oldest first."""

    def __init__(self, paths: Sequence[str], allow_gaps: bool, position: Position | None) -> None:
        self.paths, self.allow_gaps = paths, allow_gaps
        self.files: list[TrackedFile] = []
        self.gaps = self.lost_bytes = 0
        self._scanned: set[str] = set()
        #: Of a file, the one that was written before it under the same name.
        self._older: dict[TrackedFile, TrackedFile] = {}
        if position is not None:
            self._go_to(position)
            before = sorted(self._scanned)
            check(set(before) <= {*paths}, "paths", paths=paths, paths_of_position=before)
        self.descriptors = Descriptors()

    def _go_to(self, position: Position) -> None:
        for key in ("paths", "files"):
            if not isinstance(position.get(key), list):
                raise not_a_position(key)
        self._scanned = set(map(str, position["paths"]))
        self.files = [_read_row(row) for row in position["files"]]
        if len({file.identity for file in self.files}) != len(self.files):
            raise not_a_position("files")
        self.gaps, self.lost_bytes = count_at(position, "gaps"), count_at(position, "lost_bytes")

    def scan(self) -> None:
        """Find changes of files, and new ones. Noted changes survive an error.

        1. List the paths, and look at files that have changed. If one was cut or is gone, list
           again: its copy or new name may be younger.
        2. Continue with such a file in its copy or descriptor, or record a gap.
        3. Track new files, and settle files that were read to their end.
        """
        moved = {file for file in self.files if file.away}
        for _ in range(LISTINGS):  # 1
            before, listing = moved, Listing(self.paths)
            moved = {file for file in self.files if not self._recognize(file, listing)}
            if moved <= before and not (moved and listing.torn):
                break
        for file in [file for file in self.files if file in moved]:
            self._follow_moved(file, listing)  # 2
        self._add_new(listing)  # 3
        self._scanned = set(self.paths)
        self._older, newest = {}, dict[str, TrackedFile]()
        for file in reversed(list(self.files)):
            if not file.ignored:
                newer = newest.get(file.family)
                if newer is not None:
                    self._older[newer] = file
                self._settle(file, newer)
                newest[file.family] = file

    def _recognize(self, file: TrackedFile, listing: Listing) -> bool:
        """Note where `file` stands; return False if its inode is gone or holds something else."""
        here = listing.files.get(file.identity)
        if here is None or here.size < file.offset:
            return False
        size, before, renamed = here.size, file.name, here.name != file.name
        changed = (size, here.modified_ns) != (file.size, file.modified_ns)
        if changed or renamed or not file.verified:
            file.name = here.name
            try:
                first, size = self.descriptors.look(file)
            except OSError:
                return True  # reading it will meet the same, and say so
            if size < file.offset or not file.head.begins(first):
                file.name = before
                if renamed:
                    self.descriptors.drop(file)
                return False
            file.first = first
        if file.unread and size < file.seen:
            if file.read_to < file.seen:  # more is gone than an unfinished line
                self._note_gap(file, file.seen - size)
            file.seen, file.read_to = size, file.offset
        file.verified, file.away, file.modified_ns = True, False, here.modified_ns
        file.grow(size, monotonic())
        return True

    def _follow_moved(self, file: TrackedFile, listing: Listing) -> None:
        """Continue with a file that was cut, or is not listed."""
        here = listing.files.get(file.identity)
        cut = here is not None and here.name == file.name
        # An empty mount point is no sign that the files were removed.
        there = listing.folders.get(posixpath.dirname(file.name)) == file.identity[0]
        if here is None and self.descriptors.has(file):
            status = os.fstat(self.descriptors.get(file))
            file.away, file.unlinked = there, status.st_nlink == 0
            file.grow(status.st_size, monotonic())
            return
        if not file.ignored and (copy := self._find_copy(file, listing)) is not None:
            self._continue_in(file, copy)
            return
        if not cut and not there:
            at = {"name": file.name, "offset": file.offset, "unread_bytes": file.unread}
            check(not file.unread, "directory", **at)
            return
        # Another process may have written to it before it was cut, replaced or removed.
        replaced = any(other.name == file.family for other in listing.files.values())
        may_lack = cut or replaced or self._is_plain(file)
        known = file.verified or file.name != file.family
        if not file.ignored and (file.unread or (may_lack and not known)):
            self._note_gap(file, file.unread)
        self._forget(file)

    def _find_copy(self, file: TrackedFile, listing: Listing) -> StreamFile | None:
        """Return the newest copy of a file that was cut, if one has with its unread lines."""
        taken = {each.identity for each in self.files if not each.ignored}
        fits = [
            other
            for other in listing.files.values()
            if other.identity not in taken
            and file.family in other.bases
            and file.head.size
            and file.head.begins(_read_head(other.name))
        ]
        return max(fits, key=lambda f: (f.size >= file.offset, f.modified_ns), default=None)

    def _continue_in(self, file: TrackedFile, copy: StreamFile) -> None:
        lost = file.seen - max(copy.size, file.offset)
        if lost > 0:
            self._note_gap(file, lost)
        logger.info("file %s continues in its copy %s", file.name, copy.name)
        self.descriptors.drop(file)
        self.files = [other for other in self.files if other.identity != copy.identity]
        file.identity, file.name, file.modified_ns = copy.identity, copy.name, copy.modified_ns
        file.offset = file.read_to = min(file.offset, copy.size)
        file.verified, file.away = True, False
        file.size = file.goal = 0
        file.grow(copy.size, monotonic())
        file.seen = copy.size

    def _note_gap(self, file: TrackedFile, lost: int) -> None:
        at = {"name": file.name, "offset": file.offset, "least_unread_bytes": lost}
        check(self.allow_gaps, "gap", **at)
        logger.warning("gap: file %s ends at %d, %d bytes lost", file.name, file.offset, lost)
        self.gaps += 1
        self.lost_bytes += lost

    def _forget(self, file: TrackedFile) -> None:
        self.descriptors.drop(file)
        self.files.remove(file)
        # Work that still has it in hand must not read on.
        file.ignored = True

    def _add_new(self, listing: Listing) -> None:
        """Track new files: oldest first where names tell, by name otherwise."""
        tracked = {file.identity for file in self.files}
        standing = {file.name: file for file in self.files if file.name == file.family}
        first_scans = set(self.paths) - self._scanned
        new = [found for found in listing.files.values() if found.identity not in tracked]
        for found, family in _sort_by_age(new, {file.family for file in self.files}, self.paths):
            file = TrackedFile(found.name, family, found.identity)
            file.verified, file.modified_ns = True, found.modified_ns
            rotated, size = family != found.name, found.size
            try:
                file.first, size = self.descriptors.look(file)
            except FileNotFoundError:
                continue
            except OSError:
                pass  # reading it will meet the same, and say so
            if rotated and not size:
                self.descriptors.drop(file)
                continue  # perhaps a copy that is being made
            file.grow(size, monotonic())
            if found.path in first_scans:
                ignored = not found.named
            else:
                ignored = rotated and _is_copy(file, standing.get(family))
            if ignored:
                file.ignored = True
                self.descriptors.drop(file)
            # A rotated file is older than the file that stands under its name, and is read first.
            first = self.files.index(standing[family]) if rotated and family in standing else None
            self.files.insert(len(self.files) if first is None else first, file)

    def _settle(self, file: TrackedFile, newer: TrackedFile | None) -> None:
        """Forget a file that is gone and was read; or let its rest be a record without a line end.

        The rest is one if a newer file has begun, and it has not grown for `SETTLE_SECONDS`.
        """
        left = file.unlinked or (file.away and not self._is_plain(file))
        if not left and newer is None:
            return
        self._look_at_size(file)
        if file.offset < file.size:
            begun = left or (newer is not None and newer.size > 0)
            still = monotonic() - file.still_since >= SETTLE_SECONDS
            file.flush = file.read_to >= file.size and begun and still
        elif file.away:
            self._forget(file)

    def _look_at_size(self, file: TrackedFile) -> None:
        if self.descriptors.has(file):
            file.grow(os.fstat(self.descriptors.get(file)).st_size, monotonic())

    def is_blocked(self, file: TrackedFile) -> bool:
        """Return whether an older file of the same name has to be finished first."""
        older = self._older.get(file)
        while older is not None:
            self._look_at_size(older)
            if not older.ignored and older.offset < older.size:
                return True
            older = self._older.get(older)
        return False

    def _is_plain(self, file: TrackedFile) -> bool:
        """Return whether a path names the file alone, so that its successor is still expected."""
        return file.family in self.paths and not has_magic(file.family)

    def plan_reading(self) -> list[TrackedFile]:
        """Return the files with something to read, oldest first, and set how far to read each."""
        ready = [
            file
            for file in self.files
            if not file.ignored and (file.read_to < file.size or file.flush)
        ]
        for file in ready:
            file.goal = file.size
        return ready

    def lag(self) -> int | None:
        """Return how many bytes wait to be handed out, None before the first scan."""
        if not self._scanned:
            return None
        waiting = (f.size - f.offset for f in self.files if not f.ignored)
        return sum(max(0, size) for size in waiting)

    def position(self) -> Position:
        """Return where reading resumes, as plain JSON."""
        rows = [
            [
                *(f.name, f.family),
                *f.identity,
                *f.head,
                *(f.offset, f.record, f.unread, f.ignored),
            ]
            for f in self.files
        ]
        lost = {"gaps": self.gaps, "lost_bytes": self.lost_bytes}
        return {"paths": sorted(self._scanned), "files": rows, **lost}


def _sort_by_age(
    new: Iterable[StreamFile], families: set[str], paths: Sequence[str]
) -> list[tuple[StreamFile, str]]:
    """Return new files with their families, in reading order.

    That is the order of `paths`, then by name, but files rotated from a file come before it, in
    the order of the last write. A name that looks rotated is so if the other one is known.
    """
    known = families | {found.name for found in new}
    rank = {path: i for i, path in enumerate(paths)}

    def get_age(row: tuple[StreamFile, str]) -> tuple[int, str, bool, int, str]:
        found, family = row
        return rank[found.path], family, family == found.name, found.modified_ns, found.name

    rows = []
    for found in new:
        bases = (base for base in found.bases if not found.named or base in known)
        rows.append((found, next(bases, found.name)))
    return sorted(rows, key=get_age)


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
