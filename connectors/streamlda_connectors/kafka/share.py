"""Partitions of a topic that are ours, and what an old position says about them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from streamlda.checks import failure, require
from streamlda.errors import SourceRefusedError
from streamlda.stream.source import Position
from streamlda_connectors.checks import check_same, not_a_position
from streamlda_connectors.kafka.client import Bounds, Identity


class Share:
    """A choice of partitions that holds for partitions still to come.

    ``"all"``, ``"i/n"`` (those whose number leaves the rest i when divided by n, so that n
    processes with i = 0 ... n - 1 have each partition once), or a sequence of numbers.
    """

    def __init__(self, partitions: str | Sequence[int]) -> None:
        self.listed: set[int] | None = None
        self._rest, self._of = 0, 1
        #: The choice as a JSON value, the same for the same choice.
        self.name: str | list[int] = "all"
        if partitions == "all":
            return
        if isinstance(partitions, str):
            parts = re.fullmatch("([0-9]+)/([0-9]+)", partitions)
            if parts and int(parts[1]) < int(parts[2]):
                self._rest, self._of = int(parts[1]), int(parts[2])
                self.name = f"{self._rest}/{self._of}"
                return
        elif partitions and all(type(number) is int and number >= 0 for number in partitions):
            self.listed = set(partitions)
            self.name = sorted(self.listed)
            return
        raise failure(
            "partitions must be 'all', numbers, or 'i/n' with 0 <= i < n",
            partitions=partitions,
            remedy="write '0/2' and '1/2' for the halves of a topic",
        )

    def of(self, known: set[int]) -> set[int]:
        """Return those of the `known` partitions that are ours."""
        if self.listed is not None:
            return self.listed & known
        return {number for number in known if number % self._of == self._rest}

    def first(self, known: set[int], topic: str) -> set[int]:
        """Return what is ours when starting; `SourceRefusedError` if a partition is missing."""
        ours = self.of(known)
        require(
            ours and (self.listed is None or ours == self.listed),
            "the chosen partitions must exist",
            partitions=self.name,
            topic=topic,
            n_partitions=len(known),
            remedy="name others, or add partitions to the topic",
            error=SourceRefusedError,
        )
        return ours


class Standing(NamedTuple):
    """Next offset, lost records and gaps of each partition."""

    offsets: dict[int, int]
    lost: dict[int, int]
    gaps: dict[int, int]


def read_position(
    position: Position, identity: Identity, share: Share, ours: set[int], *, fixed: bool = False
) -> Standing:
    """Return where each partition of a position stands.

    A partition that has come since starts at 0; one of a `fixed` order, which says its rounds, has
    no more than it began with. Raises `SourceRefusedError` if it is no position, or one of another
    topic, cluster or choice of partitions.
    """
    keys = {*identity._fields, "partitions", *Standing._fields, *["rounds"] * fixed}
    if set(position) != keys:
        raise not_a_position("keys")
    same = {**identity._asdict(), "partitions": share.name}
    remedy = "connect to the same topic with the same partitions"
    check_same("topic and the partitions", remedy, position, **same)
    offsets, lost = numbers_of(position, "offsets"), numbers_of(position, "lost")
    # The offset goes back where a log was cut.
    gaps = numbers_of(position, "gaps", least=None)
    if not {*offsets, *lost, *gaps} <= ours:
        raise not_a_position("offsets")
    return Standing(offsets if fixed else dict.fromkeys(ours, 0) | offsets, lost, gaps)


def numbers_of(position: Mapping[str, Any], key: str, least: int | None = 0) -> dict[int, int]:
    """Return a number of each partition that a position says; `SourceError` if it does not."""
    value = position.get(key)
    if not isinstance(value, Mapping) or not all(
        re.fullmatch("[0-9]+", str(number))
        and type(count) is int
        and (least is None or count >= least)
        for number, count in value.items()
    ):
        raise not_a_position(key)
    return {int(number): count for number, count in value.items()}


def after_gap(offset: int, bounds: Bounds) -> tuple[int, int]:
    """Return where to go on if `offset` is not in the log, and how many records are lost.

    Behind the log, that is its first record. Beyond it, the log was truncated; it goes on at the
    end, so that nothing is counted twice, and how much was lost cannot be known (0).
    """
    at = min(max(offset, bounds.first), bounds.end)
    return at, max(0, at - offset)
