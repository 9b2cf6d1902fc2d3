"""What is known of one file that is followed, how it stands in a position, and what is its copy."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

from streamlda.stream.source import Position
from streamlda_connectors.checks import count_at, not_a_position
from streamlda_connectors.follow.scan import Identity, StreamFile

#: First bytes by which files are told apart where inodes are reused.
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
class TrackedFile:
    """A file that is followed; first what a position holds."""

    #: Full path, as last seen.
    name: str
    #: Full path of the name it is, or was, written under. The files of one family come one after
    #: the other: rotated ones first, in the order in which they were written.
    family: str
    identity: Identity
    #: Fingerprint of its first bytes, from a position; see `head`.
    stored: Head = field(default_factory=Head)
    #: Bytes and records handed out.
    offset: int = 0
    record: int = 0
    #: Bytes known to have been in it.
    seen: int = 0
    state: State = State.OPEN
    #: Its first bytes, as far as seen; empty until this process has read them.
    first: bytes = b""
    #: Bytes, and time of the last write, at the last scan.
    size: int = 0
    modified_ns: int = 0
    #: Up to where it was read; what lies between `offset` and here is no whole line.
    read_to: int = 0
    #: Up to where it is to be read before others have their turn.
    goal: int = 0
    #: Whether its last line is a record without a line end.
    flush: bool = False
    #: Whether this process has seen that it is the file it is taken for.
    verified: bool = False
    #: Whether its first bytes were seen to have changed.
    cut: bool = False
    #: Whether it has no name where it is looked for, and whether it has none at all.
    away: bool = False
    unlinked: bool = False
    #: Since when it has not grown, in the seconds of `time.monotonic`.
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
    paths: Iterable[str], files: Iterable[TrackedFile], gaps: int, lost_bytes: int
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


def read_position(position: Position) -> tuple[set[str], list[TrackedFile], int, int]:
    """Return the paths, files, gaps and lost bytes of a position."""
    if set(position) != POSITION_KEYS:
        raise not_a_position("keys")
    folders = _texts(position, "folders")
    rows = position["files"]
    if not isinstance(rows, list):
        raise not_a_position("files")
    files = [_read_row(row, folders) for row in rows]
    if len({file.identity for file in files}) != len(files):
        raise not_a_position("files")
    gaps, lost_bytes = count_at(position, "gaps"), count_at(position, "lost_bytes")
    return set(_texts(position, "paths")), files, gaps, lost_bytes


def _read_row(row: Any, folders: list[str]) -> TrackedFile:
    kinds = (int, str, str, int, int, int, str, int, int, int, int)
    if not isinstance(row, list) or tuple(map(type, row)) != kinds:
        raise not_a_position("files")
    numbers = [value for value in row if type(value) is int]
    folder, name, family, device, inode, size, digest, offset, record, unread, state = row
    if min(numbers) < 0 or folder >= len(folders) or size > HEAD_BYTES or state > max(State):
        raise not_a_position("files")
    full = posixpath.join(folders[folder], name)
    return TrackedFile(
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


def by_age(
    new: Iterable[StreamFile], families: set[str], paths: Sequence[str]
) -> list[tuple[StreamFile, str]]:
    """Return new files with their families, in reading order.

    That is the order of `paths`, then by name, but what was rotated from a file comes before it,
    in the order of the last write. A name that looks rotated is so if the other one is known.
    """
    listed = [found for found in new if found.named or found.bases]
    known = families | {found.name for found in listed}
    rank = {path: i for i, path in enumerate(paths)}
    rows = []
    for found in listed:
        named = (base for base in found.bases if not found.named or base in known)
        rows.append((found, next(named, found.name)))

    def age(row: tuple[StreamFile, str]) -> tuple[int, str, bool, int, str]:
        found, family = row
        return rank[found.path], family, family == found.name, found.modified_ns, found.name

    return sorted(rows, key=age)


def find_copy(
    file: TrackedFile, others: Iterable[StreamFile], *, anywhere: bool
) -> StreamFile | None:
    """Return one of `others` that begins as `file` did and holds what was not read of it.

    With `anywhere` it may be one that was put back under an old name, not only one that was left
    behind by copying and then cutting. A few bytes are no proof of that.
    """
    if file.head.size < (HEAD_BYTES if anywhere else 1):
        return None
    names = {file.name, file.family} if anywhere else set()
    fits = [
        other
        for other in others
        if other.identity != file.identity and (file.family in other.bases or other.name in names)
    ]
    for other in sorted(fits, key=lambda other: other.modified_ns, reverse=True):
        if other.size >= file.offset and file.head.begins(first_bytes(other.name, HEAD_BYTES)):
            return other
    return None


def is_copy(file: TrackedFile, standing: TrackedFile | None) -> bool | None:
    """Return whether `file` is a copy, maybe unfinished, of the one under its family's name.

    None if one of the two was empty when it was looked at, so that it cannot be told yet.
    """
    if standing is None:
        return False
    # What stands there by now may be something else already; so its beginning as it was seen.
    both = min(len(file.first), len(standing.first))
    return file.first[:both] == standing.first[:both] if both else None


def first_bytes(name: str, size: int) -> bytes:
    """Return up to `size` first bytes of a file, none if it is not there any more."""
    try:
        with Path(name).open("rb") as file:
            return file.read(size)
    except FileNotFoundError:
        return b""
