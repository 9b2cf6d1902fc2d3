"""Records of the partitions of a topic, positions there, and one order of the records."""

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from streamlda.stream.source import Position
from streamlda_connectors.checks import check, not_a_position


class Record(NamedTuple):
    """One record as the broker keeps it: bytes, never decoded by the client.

    `timestamp_ms` counts from the epoch, set by the producer or the broker; -1 if unknown. A record
    without a value is a tombstone.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class Run:
    """Fetched records of one partition in the order of the log: offsets rise, not always by one."""

    partition: int
    records: Sequence[Record]
    #: How many of them were handed out.
    taken: int = 0


class Identity(NamedTuple):
    """Identity of a topic, even if another one had the same name before it."""

    cluster: str
    topic: str
    topic_id: str


class Broken(Exception):
    """The client cannot continue and has to be replaced by another at the same offsets."""


class LogTruncation(Broken):
    """The log was cut before the next offset, and may hold other records there by now."""


class Offsets(NamedTuple):
    """Next offset, lost records and gaps of each partition."""

    offsets: dict[int, int]
    lost: dict[int, int]
    #: How far offsets moved without records; below 0 where a log was cut.
    gaps: dict[int, int]


def read_position(position: Position, identity: Identity, name: str | list[int]) -> Offsets:
    """Return where each partition of a position stands; `name` is which partitions were chosen."""
    for key, value in {**identity._asdict(), "partitions": name}.items():
        made_with = position.get(key)
        check(made_with == value, "other log", **{key: value, f"{key}_of_position": made_with})
    return Offsets(*(read_numbers(position, key) for key in Offsets._fields))


def read_numbers(position: Mapping[str, Any], key: str) -> dict[int, int]:
    """Return a number of each partition that a position says; `SourceError` if it does not."""
    try:
        return {int(number): count.__index__() for number, count in position[key].items()}
    except (KeyError, ValueError, AttributeError, TypeError):
        raise not_a_position(key) from None


#: Offsets of a partition that follow each other. The more there are, the longer a partition waits
#: for the one before it. In rounds a record costs 0.3 us beside the 1.5 of decoding it; with 16 or
#: 256 that is the same within what can be measured.
BLOCK = 64


class Rounds:
    """Rounds of a block of offsets of each partition, in the order of their numbers.

    Which offset comes n-th follows from `begins`, from `block` and n alone: an offset without a
    record has its place as a blank. Partitions whose turn is not yet hold one fetch at most.
    """

    def __init__(
        self, begins: Mapping[int, int], block: int = BLOCK, at: Mapping[int, int] | None = None
    ) -> None:
        self.begins, self.block = dict(sorted(begins.items())), block
        self._numbers = list(self.begins)
        self.resume_at(at or self.begins)

    def to_json(self) -> dict[str, Any]:
        """Return the order as plain JSON values."""
        begins = {str(number): begin for number, begin in self.begins.items()}
        return {"block": self.block, "begins": begins}

    def ahead(self, offsets: Mapping[int, int], n_records: int) -> dict[int, int]:
        """Return the next offset of each partition, `n_records` after these."""
        n_passed = sum(offsets.values()) - sum(self.begins.values()) + n_records
        rounds, rest = divmod(n_passed, self.block * len(self.begins))
        return {
            number: begin + rounds * self.block + min(max(rest - i * self.block, 0), self.block)
            for i, (number, begin) in enumerate(self.begins.items())
        }

    def resume_at(self, offsets: Mapping[int, int]) -> None:
        """Drop what is held, and continue at these offsets."""
        self._at = dict(offsets)
        self._held: dict[int, Sequence[Record]] = dict.fromkeys(self._numbers, ())
        blocks = [(self._at[n] - self.begins[n]) // self.block for n in self._numbers]
        self._turn = blocks.index(min(blocks))

    @property
    def turn(self) -> int:
        """The partition whose record comes next."""
        return self._numbers[self._turn]

    @property
    def waiting(self) -> set[int]:
        """Partitions of which records wait for their turn."""
        return {number for number, rows in self._held.items() if rows}

    def add(self, run: Run) -> None:
        """Take fetched records of a partition, in the order of its log."""
        self._held[run.partition] = [*self._held[run.partition], *run.records]

    def skip_to(self, offset: int) -> None:
        """Note that the partition whose turn it is has no more records before an offset."""
        if not self._held[self.turn] and offset > self._at[self.turn]:
            self._held[self.turn] = [_blank(self.turn, offset - 1)]

    def in_order(self) -> Iterator[Run]:
        """Yield the records that come next, as far as they were fetched."""
        while rows := self._held[self.turn]:
            number, at = self.turn, self._at[self.turn]
            end = at + self.block - (at - self.begins[number]) % self.block
            first, behind = (bisect_left(rows, to, key=_get_offset) for to in (at, end))
            own, self._held[number] = rows[first:behind], rows[behind:]
            if self._held[number] and (not own or own[-1].offset + 1 < end):
                # What comes next is of a later round: there is nothing up to there.
                own = [*own, _blank(number, end - 1)]
            if own:
                yield Run(number, own)
                self._at[number] = own[-1].offset + 1
            if self._at[number] == end:
                self._turn = (self._turn + 1) % len(self._numbers)


_get_offset = attrgetter("offset")


def _blank(partition: int, offset: int) -> Record:
    return Record("", partition, offset, -1, None, None)
