"""What is known of one file that is followed, and how it stands in a position."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import blake2b
from typing import Any, NamedTuple

from streamlda.errors import SourceError
from streamlda.stream.source import Position
from streamlda_connectors.follow.look import Identity

#: Files are told apart by so many of their first bytes, where inodes are reused.
HEAD_BYTES = 256

POSITION_KEYS = {"paths", "folders", "files", "gaps", "lost_bytes"}


class State(IntEnum):
    """Whether more is expected of a file."""

    #: It may grow.
    OPEN = 0
    #: A newer file has taken its place, and it was read to its end.
    DONE = 1
    #: It is not to be read: a copy of what is read elsewhere, or rotated before the start.
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
        """Whether `data`, the first bytes of a file, begins with what this was made of."""
        return len(data) >= self.size and Head.of(data[: self.size]) == self


@dataclass(slots=True, eq=False)
class Tracked:
    """A file that is followed; first what a position holds.

    Attributes
    ----------
    name : str
        Full path, as last seen.
    family : str
        Full path of the name it is, or was, written under. The files of one family come one
        after the other: rotated ones first, in the order in which they were written.
    identity : Identity
        Device and inode.
    stored : Head
        Of its first bytes, from a position; see `head`.
    offset, record : int
        Bytes and records handed out.
    seen : int
        Bytes known to have been in it.
    state : State
    first : bytes
        Its first bytes, as far as seen; empty until this process has looked into it.
    size : int
        Bytes in it when last looked at.
    modified_ns : int
        Time of the last write when last looked at.
    read_to : int
        Up to where it was read; what lies between `offset` and here is no whole line.
    goal : int
        Up to where it is to be read before others have their turn.
    flush : bool
        Whether its last line is a record without a line end.
    verified : bool
        Whether this process has seen that it is the file it is taken for.
    cut : bool
        Whether its first bytes were seen to have changed.
    away : bool
        Whether it has no name any more where it is looked for.
    unlinked : bool
        Whether it has no name at all.
    still_since : float
        Since when it has not grown, in the seconds of `time.monotonic`.
    """

    name: str
    family: str
    identity: Identity
    stored: Head = field(default_factory=Head)
    offset: int = 0
    record: int = 0
    seen: int = 0
    state: State = State.OPEN
    first: bytes = b""
    size: int = 0
    modified_ns: int = 0
    read_to: int = 0
    goal: int = 0
    flush: bool = False
    verified: bool = False
    cut: bool = False
    away: bool = False
    unlinked: bool = False
    still_since: float = 0.0

    @property
    def unread(self) -> int:
        """Bytes known to have been in it that were not handed out."""
        return max(0, self.seen - self.offset)

    @property
    def head(self) -> Head:
        """The fingerprint of what was handed out or, if that is nothing, of what was seen.

        An unfinished line may be taken back, so it must not count.
        """
        return Head.of(self.first[: self.offset or HEAD_BYTES]) if self.first else self.stored

    def grow(self, size: int, time: float) -> None:
        """Note that it holds `size` bytes at `time`."""
        if size != self.size:
            self.size, self.still_since, self.flush = size, time, False
        self.seen = max(self.seen, size)


def write_position(
    paths: Iterable[str], files: Iterable[Tracked], gaps: int, lost_bytes: int
) -> Position:
    """Return a position: plain JSON, about 100 bytes a file."""
    folders: dict[str, int] = {}
    rows = []
    for file in files:
        folder, name = posixpath.split(file.name)
        rows.append(
            [
                folders.setdefault(folder, len(folders)),
                name,
                "" if file.family == file.name else file.family,
                *file.identity,
                *file.head,
                file.offset,
                file.record,
                file.unread,
                int(file.state),
            ]
        )
    return {
        "paths": sorted(paths),
        "folders": list(folders),
        "files": rows,
        "gaps": gaps,
        "lost_bytes": lost_bytes,
    }


def read_position(position: Position) -> tuple[set[str], list[Tracked], int, int]:
    """Return the paths, files, gaps and lost bytes of a position.

    Raises
    ------
    SourceError
        If it is none.
    """
    if set(position) != POSITION_KEYS:
        raise not_a_position("keys")
    folders = _texts(position, "folders")
    rows = position["files"]
    if not isinstance(rows, list):
        raise not_a_position("files")
    files = [_read_row(row, folders) for row in rows]
    if len({file.identity for file in files}) != len(files):
        raise not_a_position("files")
    counts = [position["gaps"], position["lost_bytes"]]
    for key, count in zip(("gaps", "lost_bytes"), counts, strict=True):
        if type(count) is not int or count < 0:
            raise not_a_position(key)
    return set(_texts(position, "paths")), files, counts[0], counts[1]


def _read_row(row: Any, folders: list[str]) -> Tracked:
    kinds = (int, str, str, int, int, int, str, int, int, int, int)
    if not isinstance(row, list) or tuple(map(type, row)) != kinds:
        raise not_a_position("files")
    numbers = [value for value in row if type(value) is int]
    folder, name, family, device, inode, size, digest, offset, record, unread, state = row
    if min(numbers) < 0 or folder >= len(folders) or size > HEAD_BYTES or state > max(State):
        raise not_a_position("files")
    full = posixpath.join(folders[folder], name)
    return Tracked(
        full,
        family or full,
        (device, inode),
        Head(size, digest),
        offset,
        record,
        offset + unread,
        State(state),
        read_to=offset,
    )


def _texts(position: Mapping[str, Any], key: str) -> list[str]:
    value = position[key]
    if not isinstance(value, list) or not all(type(item) is str for item in value):
        raise not_a_position(key)
    return value


def not_a_position(key: str) -> SourceError:
    """Return the error for what `position` of this connector never returned."""
    return SourceError(
        f"a position must be one that position() of this connector returned, got a bad {key!r}; "
        "start anew"
    )
