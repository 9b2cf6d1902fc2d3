"""Reads the partitions that are ours, as they come and go with the members of a consumer group."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any

from streamlda.errors import FencedError, InvalidSettingError, StreamLDAError
from streamlda.run.parts import open_stream
from streamlda.service.logs import reason_of
from streamlda.service.opening import Letters
from streamlda.service.partitions import LearnedPartition, PartitionedBatch, Partitions
from streamlda.service.rules import Retry
from streamlda.service.status import Status
from streamlda.settings.run_settings import RunSettings
from streamlda.storage.store import Claim
from streamlda.stream.source import Behind, RecordBatch
from streamlda.utils.lock import LockedError

#: How often a partition is tried that another still has open, in seconds.
RETRY_SECONDS = 0.5


class SharedSource:
    """A source whose partitions are opened when they are ours, and closed when they are not.

    Polled from one thread.
    """

    def __init__(
        self,
        settings: RunSettings,
        partitions: Partitions,
        status: Status,
        letters: Letters,
    ) -> None:
        self._partitions, self._status = partitions, status
        self._flush, self._show = letters.try_to_flush, status.show
        #: What is read, by partition; a partition that is given up is not, while it is closed.
        self._ours: dict[int, LearnedPartition] = {}
        self._waiting = Retry("partitions")
        self._try_at = 0.0
        #: Partitions of the topic, ours or not.
        self._known: set[int] = set()
        # Before, there is nothing to say of it.
        self._joined = False
        # Its methods beyond those of `Source` are those of the connector for Kafka.
        self._source: Any = open_stream(settings, letters.on_rejected)
        try:
            partitions.beginning.check_log(position := self._source.position())
            letters.begin(position)
        except BaseException:
            self._source.close()
            raise

    def poll(self, max_records: int, timeout_seconds: float = 1.0) -> RecordBatch:
        """Close what moves to others, open what is ours, and return what comes next of it."""
        for numbers, done in self._source.member.handovers():
            self._drop(numbers)
            self._partitions.leave(numbers, not self._flush(), done)
        self._partitions.lease.check()
        self._drop({n for n, part in self._ours.items() if part.closed})
        self._take_up()
        return self._divided(self._source.poll(max_records, timeout_seconds))

    def _drop(self, numbers: set[int]) -> None:
        known = numbers & self._ours.keys()
        if known:
            self._source.give_up(known)
            for number in known:
                del self._ours[number]

    def _take_up(self) -> None:
        """Open partitions that are ours, as far as those who had them have closed them."""
        assignment = self._source.member.assigned()
        self._joined = self._joined or assignment.generation is not None
        wanted, now = assignment.partitions - self._ours.keys(), time.monotonic()
        self._known |= self._source.known_partitions()
        self._status.note_group(
            partitions=sorted(self._ours),
            waiting=sorted(wanted),
            elsewhere=sorted(self._known - assignment.partitions - self._ours.keys()),
            generation=assignment.generation,
        )
        # Also where nothing is learned: partitions bring their records, and take them along.
        self._status.note(places=self._partitions.records, places_left=None)
        if not wanted:
            self._show(self._waiting.done(now))
        # Without a generation nothing would hold back one that the group does not know any more.
        if not wanted or now < self._try_at or assignment.generation is None:
            return
        opened = [
            part
            for number in sorted(wanted)
            if (part := self._opened(number, assignment.generation)) is not None
        ]
        try:
            self._source.take({part.number: part.pipeline.position for part in opened})
        except BaseException:
            for part in opened:
                self._partitions.leave([part.number], False)
            raise
        standing = self._standing()
        for part in opened:
            part.pipeline.begin_at(standing(part.number))
            self._ours[part.number] = part
        if len(opened) < len(wanted):
            self._try_at = now + RETRY_SECONDS

    def _opened(self, number: int, generation: int | None) -> LearnedPartition | None:
        try:
            return self._open(number, generation)
        except FencedError:
            reason = "fenced"
        except InvalidSettingError as error:
            if not isinstance(error.__cause__, LockedError):
                raise
            reason = "in-use"
        except OSError as error:
            if isinstance(error, StreamLDAError):
                raise
            # A full disk, say.
            reason = reason_of(error)
        self._show(self._waiting.stalled(time.monotonic(), reason))
        return None

    def _open(self, number: int, generation: int | None) -> LearnedPartition:
        try:
            return self._partitions.open(number, Claim(generation))
        except FencedError:
            # Groups that were empty for long begin again with generation 1.
            if not self._source.member.confirm(number):
                raise
            return self._partitions.open(number, Claim(generation, reset=True))

    def _standing(self) -> Callable[[int], Behind]:
        """Return what tells where each partition stands now."""
        passed = {name.rpartition("/")[2]: (name, n) for name, n in self._source.passed().items()}

        def standing(number: int) -> Behind:
            return Behind(self._source.position_of(number), dict([passed[str(number)]]))

        return standing

    def _divided(self, batch: RecordBatch) -> PartitionedBatch:
        """Return the records by the partition that takes them."""
        names = [at.location for at in batch.locations]
        parts, standing = [], self._standing()
        for name in dict.fromkeys(names):
            part = self._ours[int(name.rpartition("/")[2])]
            own = batch.select([each == name for each in names])
            parts.append((part, replace(own, behind=standing(part.number))))
        columns = {each.name: getattr(batch, each.name) for each in fields(batch)}
        return PartitionedBatch(**columns, parts=parts)

    def __getattr__(self, name: str) -> Any:
        """Return a method of the connector for Kafka; each state has its own position."""
        return getattr(self._source, name)

    def silent(self) -> float | None:
        """As of the connector; None before the group has answered, unless it is away."""
        found: float | None = self._source.silent()
        return found if self._joined or found else None

    def close(self) -> None:
        """Leave the group, and close all partitions as they were saved. Twice is allowed."""
        self._source.close()
        numbers = list(self._ours)
        self._ours.clear()
        if numbers:
            self._partitions.leave(numbers, False)
