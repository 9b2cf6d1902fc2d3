"""One order of the records of several partitions, whatever order they are fetched in."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from streamlda_connectors.checks import not_a_position
from streamlda_connectors.kafka.client import Record, Run
from streamlda_connectors.kafka.share import numbers_of

#: Offsets of a partition that follow each other. The more there are, the longer a partition waits
#: for the one before it. In rounds a record costs 0.3 us beside the 1.5 of decoding it; with 16 or
#: 256 that is the same within what can be measured.
BLOCK = 64


class Rounds:
    """Rounds of a block of offsets of each partition, in the order of their numbers.

    Which offset comes n-th follows from `begins`, the first offset of each, from `block` and n: not
    from when records come, how long they are, or what they say. An offset without a record (removed
    by compaction, aborted, a mark of a transaction) has its place in it as a blank.

    Memory: what is held of partitions whose turn is not yet; those are not fetched meanwhile, so at
    most one fetch of each.
    """

    def __init__(self, begins: Mapping[int, int], block: int = BLOCK) -> None:
        self.begins, self.block = dict(sorted(begins.items())), block
        self._numbers = list(self.begins)
        self.go_on(self.begins)

    @classmethod
    def of(cls, values: object, offsets: Mapping[int, int]) -> Rounds:
        """Return the rounds that `to_json` described, at these offsets; `SourceError` if none."""
        block = values.get("block") if isinstance(values, Mapping) else None
        if not isinstance(values, Mapping) or type(block) is not int or block < 1:
            raise not_a_position("rounds")
        begins = numbers_of(values, "begins")
        n_records = sum(offsets.values()) - sum(begins.values())
        if not begins or n_records < 0:
            raise not_a_position("rounds")
        found = cls(begins, block)
        if found.behind(n_records) != offsets:
            raise not_a_position("offsets")
        found.go_on(offsets)
        return found

    def to_json(self) -> dict[str, Any]:
        """Return the order as plain JSON values."""
        begins = {str(number): begin for number, begin in self.begins.items()}
        return {"block": self.block, "begins": begins}

    def behind(self, n_records: int) -> dict[int, int]:
        """Return the next offset of each partition after the first records of all."""
        rounds, rest = divmod(n_records, self.block * len(self.begins))
        return {
            number: begin + rounds * self.block + min(max(rest - i * self.block, 0), self.block)
            for i, (number, begin) in enumerate(self.begins.items())
        }

    def ahead(self, offsets: Mapping[int, int], n_records: int) -> dict[int, int]:
        """Return the next offset of each partition, `n_records` after these."""
        return self.behind(sum(offsets.values()) - sum(self.begins.values()) + n_records)

    def go_on(self, offsets: Mapping[int, int]) -> None:
        """Drop what is held, and go on at these offsets."""
        self._at = dict(offsets)
        self._held: dict[int, deque[Run]] = {number: deque() for number in self._numbers}
        blocks = [(self._at[n] - self.begins[n]) // self.block for n in self._numbers]
        self._turn = blocks.index(min(blocks))

    @property
    def turn(self) -> int:
        """The partition whose record comes next."""
        return self._numbers[self._turn]

    @property
    def held(self) -> set[int]:
        """Partitions of which records wait for their turn."""
        return {number for number, runs in self._held.items() if runs}

    def add(self, run: Run) -> None:
        """Take fetched records of a partition, in the order of its log."""
        self._held[run.partition].append(run)

    def passed(self, offset: int) -> None:
        """Note that the partition whose turn it is has no more records before an offset."""
        if not self._held[self.turn] and offset > self._at[self.turn]:
            self.add(_blank(self.turn, offset - 1))

    def in_order(self) -> Iterator[Run]:
        """Yield the records that come next, as far as they were fetched."""
        while self._held[self.turn]:
            number = self.turn
            runs, at = self._held[number], self._at[number]
            end = at + self.block - (at - self.begins[number]) % self.block
            run = runs[0]
            start = bisect_left(run.offsets, at, run.taken)
            run.taken = bisect_left(run.offsets, end, start)
            if run.taken > start:
                yield _part(run, start, run.taken)
                self._at[number] = run.offsets[run.taken - 1] + 1
            if run.taken == len(run.offsets):
                runs.popleft()
            elif self._at[number] < end:
                # What comes next is of a later round: there is nothing up to there.
                yield _blank(number, end - 1)
                self._at[number] = end
            if self._at[number] == end:
                self._turn = (self._turn + 1) % len(self._numbers)


def _part(run: Run, start: int, stop: int) -> Run:
    def record(index: int) -> Record:
        return run.record(start + index)

    columns = (run.offsets[start:stop], run.values[start:stop], run.times[start:stop])
    return Run(run.partition, *columns, record)


def _blank(partition: int, offset: int) -> Run:
    def record(index: int) -> Record:
        return Record("", partition, offset, -1, None, None, ())

    return Run(partition, [offset], [None], [-1], record)
