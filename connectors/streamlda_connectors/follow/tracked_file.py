"""A file that is followed: its state, its place in a position, and its open descriptor."""

from __future__ import annotations

import os
import posixpath
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import blake2b
from typing import Any, NamedTuple

from streamlda.stream.source import Position
from streamlda_connectors.checks import count_at, not_a_position
from streamlda_connectors.follow.listing import Identity

#: First bytes by which files are told apart where inodes are reused.
HEAD_BYTES = 256

#: Files kept open, so that they can be read to their end after they were removed.
MAX_OPEN = 128

#: Bytes read at once when the end of the last line is sought.
BACKWARD_BYTES = 64 * 1024

POSITION_KEYS = {"paths", "folders", "files", "gaps", "lost_bytes"}


class State(IntEnum):
    """Expectation of a file."""

    #: It may grow.
    OPEN = 0
    #: A newer file has taken its place, and it was read to its end.
    DONE = 1
    #: It is not to be read: a copy of another file, or rotated before the start.
    IGNORED = 2


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
    """A file that is followed; the fields up to `state` are stored in a position."""

    #: Full path, as last seen.
    name: str
    #: Full path of the name that it is, or was, written under. The files of a family are read one
    #: after the other: rotated ones first, in the order in which they were written.
    family: str
    identity: Identity
    #: Fingerprint from a position, until this process has read the first bytes.
    stored: Head = field(default_factory=Head)
    #: Bytes and records handed out, and bytes known to have been in it.
    offset: int = 0
    record: int = 0
    seen: int = 0
    state: State = State.OPEN
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
        return 0 if self.state == State.IGNORED else max(0, self.seen - self.offset)

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

    def find_last_line_end(self, file: TrackedFile) -> int:
        r"""Return the offset after the last ``\n`` in `file`, 0 without one."""
        descriptor, end = self.get(file), file.size
        while end > 0:
            start = max(0, end - BACKWARD_BYTES)
            at = os.pread(descriptor, end - start, start).rfind(b"\n")
            if at >= 0:
                return start + at + 1
            end = start
        return 0

    def drop(self, file: TrackedFile) -> None:
        """Close `file`, if it is open."""
        descriptor = self._open.pop(file, None)
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        """Close all."""
        while self._open:
            os.close(self._open.popitem()[1])


def write_position(
    paths: Iterable[str], files: Iterable[TrackedFile], gaps: int, lost_bytes: int
) -> Position:
    """Return a position: plain JSON, about 100 bytes a file."""
    folders: dict[str, int] = {}
    rows = []
    for file in files:
        folder, name = posixpath.split(file.name)
        place = folders.setdefault(folder, len(folders)), name
        family = "" if file.family == file.name else file.family
        counts = file.offset, file.record, file.unread, int(file.state)
        rows.append([*place, family, *file.identity, *file.head, *counts])
    lost = {"gaps": gaps, "lost_bytes": lost_bytes}
    return {"paths": sorted(paths), "folders": list(folders), "files": rows, **lost}


def read_position(position: Position) -> tuple[set[str], list[TrackedFile], int, int]:
    """Return the paths, files, gaps and lost bytes of a position."""
    if set(position) != POSITION_KEYS:
        raise not_a_position("keys")
    folders, rows = _get_texts(position, "folders"), position["files"]
    if not isinstance(rows, list):
        raise not_a_position("files")
    files = [_read_row(row, folders) for row in rows]
    if len({file.identity for file in files}) != len(files):
        raise not_a_position("files")
    gaps, lost_bytes = count_at(position, "gaps"), count_at(position, "lost_bytes")
    return set(_get_texts(position, "paths")), files, gaps, lost_bytes


def _read_row(row: Any, folders: list[str]) -> TrackedFile:
    kinds = (int, str, str, int, int, int, str, int, int, int, int)
    if not isinstance(row, list) or tuple(map(type, row)) != kinds:
        raise not_a_position("files")
    folder, name, family, device, inode, size, digest, offset, record, unread, state = row
    least = min(value for value in row if type(value) is int)
    if least < 0 or folder >= len(folders) or size > HEAD_BYTES or state > max(State):
        raise not_a_position("files")
    full, head = posixpath.join(folders[folder], name), Head(size, digest)
    file = TrackedFile(full, family or full, (device, inode), head, offset, record, offset + unread)
    file.state, file.read_to = State(state), offset
    return file


def _get_texts(position: Mapping[str, Any], key: str) -> list[str]:
    value = position[key]
    if not isinstance(value, list) or not all(type(item) is str for item in value):
        raise not_a_position(key)
    return value
