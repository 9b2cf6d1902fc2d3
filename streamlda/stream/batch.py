"""A poll as the daemon keeps it until it is learned: a row for every record, and where it ends."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice, pairwise
from sys import getsizeof
from typing import TypeVar

from streamlda.stream.source import Poll, Position

#: Memory of a record beside its text: its place and user, and the row itself.
ROW_BYTES = 200

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Batch:
    """Records of one poll.

    Attributes
    ----------
    rows : list of str
        A text for every record, empty where there is no document.
    users : list of str or None, or None
        Whose each row is; None if the source does not say.
    position : mapping
        Behind the last record.
    blanks, rejects : int
        Records without a text; those of them that were passed over for a fault.
    size_bytes : int
        Memory that it takes.
    """

    rows: list[str]
    users: list[str | None] | None
    position: Position
    blanks: int
    rejects: int
    size_bytes: int

    @property
    def records(self) -> int:
        """Places that it takes."""
        return len(self.rows)


def batch_of(poll: Poll, position: Position) -> Batch:
    """Return the records of a poll that counts them all (`Poll.check`). Time O(records)."""
    rows, users = poll.texts, poll.users or None
    if poll.gaps:
        rows = _with_blanks(poll.texts, poll.gaps, "")
        users = users and _with_blanks(users, poll.gaps, None)
    size = sum(map(getsizeof, poll.texts)) + ROW_BYTES * len(rows)
    return Batch(rows, users, position, len(poll.gaps), len(poll.rejects), size)


def _with_blanks(found: list[T], gaps: list[int], blank: T) -> list[T]:
    rows: list[T] = []
    rest = iter(found)
    for before, gap in pairwise([0, *gaps]):
        rows += islice(rest, gap - before)
        rows.append(blank)
    rows += rest
    return rows
