"""Reads the partitions that are ours, as they come and go with the members of a consumer group."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from queue import Empty, SimpleQueue
from threading import Event
from typing import Any, NamedTuple

from streamlda.errors import FencedError, InvalidSettingError, StreamLDAError
from streamlda.run.parts import open_stream
from streamlda.service import messages as m
from streamlda.service.logs import reason_of
from streamlda.service.opening import Letters
from streamlda.service.partitions import InOrder, LearnedPartition, PartitionedBatch, Partitions
from streamlda.service.rules import Retry
from streamlda.service.status import Status
from streamlda.settings.rules import GROUP
from streamlda.settings.run_settings import RunSettings
from streamlda.storage.store import Claim
from streamlda.stream.source import Behind, Position, RecordBatch
from streamlda.utils.lock import LockedError

#: How often a partition is tried that another still has open, in seconds.
RETRY_SECONDS = 0.5


class Handover(NamedTuple):
    """Partitions that others are to have, once it is done."""

    numbers: set[int]
    done: Event


class SharedSource:
    """A source whose partitions are opened when they are ours, and closed when they are not.

    `flush` makes dead letters durable, or returns why it cannot. `show` is called with what is
    waited for. Polled from one thread.
    """

    def __init__(
        self,
        settings: RunSettings,
        partitions: Partitions,
        status: Status,
        in_order: InOrder,
        *,
        letters: Letters,
        show: Callable[[list[m.Instruction]], None],
    ) -> None:
        self._partitions, self._status, self._in_order = partitions, status, in_order
        self._flush, self._show = letters.try_to_flush, show
        self._handovers: SimpleQueue[Handover] = SimpleQueue()
        #: What is read, by partition; a partition that is given up is not, while it is closed.
        self._ours: dict[int, LearnedPartition] = {}
        self._waiting = Retry("partitions")
        self._try_at = 0.0
        self._closed = False
        #: Partitions of the topic, ours or not.
        self._known: set[int] = set()
        self._by_group = settings.kafka.partitions == GROUP
        # Before, there is nothing to say of it.
        self._joined = not self._by_group
        # Its methods beyond those of `Source` are those of the connector for Kafka.
        self._source: Any = open_stream(settings, letters.on_rejected, self._give_up)
        try:
            partitions.beginning.check_log(position := self._source.position())
            letters.begin(position)
        except BaseException:
            self._source.close()
            raise
        for name in ("pause", "resume", "lag", "last_answer", "lost", "commit"):
            setattr(self, name, getattr(self._source, name))

    def _give_up(self, numbers: set[int]) -> None:
        """Wait until partitions are saved and closed; not called by the thread that polls."""
        handover = Handover(numbers, Event())
        self._handovers.put(handover)
        while not self._closed and not handover.done.wait(RETRY_SECONDS):
            pass

    def poll(self, max_records: int, timeout_seconds: float = 1.0) -> RecordBatch:
        """Close what moves to others, open what is ours, and return what comes next of it."""
        with_letters: bool | None = None
        while True:
            try:
                numbers, done = self._handovers.get_nowait()
            except Empty:
                break
            if with_letters is None:
                with_letters = not self._flush()
            self._drop(numbers)
            self._partitions.leave(numbers, with_letters, self._in_order, done)
        self._partitions.lease.check()
        self._drop({n for n, part in self._ours.items() if part.closed})
        self._take_up()
        batch = self._source.poll(max_records, timeout_seconds)
        return self._divided(batch)

    def _drop(self, numbers: set[int]) -> None:
        known = numbers & self._ours.keys()
        if known:
            self._source.give_up(known)
            for number in known:
                del self._ours[number]

    def _take_up(self) -> None:
        """Open partitions that are ours, as far as those who had them have closed them."""
        assignment = self._source.assigned()
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
        unknown = self._by_group and assignment.generation is None
        if not wanted or now < self._try_at or unknown:
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
                self._partitions.leave([part.number], False, self._in_order, Event())
            raise
        standing = self._standing()
        for part in opened:
            part.pipeline.begin_at(standing(part.number))
            self._ours[part.number] = part
        if len(opened) < len(wanted):
            self._try_at = now + RETRY_SECONDS

    def _opened(self, number: int, generation: int | None) -> LearnedPartition | None:
        try:
            part = self._open(number, generation)
        except FencedError:
            self._show(self._waiting.stalled(time.monotonic(), "fenced"))
            return None
        except InvalidSettingError as error:
            if not isinstance(error.__cause__, LockedError):
                raise
            self._show(self._waiting.stalled(time.monotonic(), "in-use"))
            return None
        except OSError as error:
            if isinstance(error, StreamLDAError):
                raise
            # A full disk, say.
            self._show(self._waiting.stalled(time.monotonic(), reason_of(error)))
            return None
        return part

    def _open(self, number: int, generation: int | None) -> LearnedPartition:
        try:
            return self._partitions.open(number, Claim(generation))
        except FencedError:
            # Groups that were empty for long begin again with generation 1.
            if not self._source.confirm(number):
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
        at, rejects = batch.locations, batch.rejects
        found: dict[str, RecordBatch] = {}
        first = 0
        for name, located in groupby(at, itemgetter(0)):
            last = first + sum(1 for _ in located)
            own = found.setdefault(name, RecordBatch())
            for column in ("texts", "locations", "users", "times"):
                getattr(own, column).extend(getattr(batch, column)[first:last])
            first = last
        for reject in rejects:
            found[reject.location].rejects.append(reject)
        parts, standing = [], self._standing()
        for name, own in found.items():
            part = self._ours[int(name.rpartition("/")[2])]
            parts.append((part, replace(own, behind=standing(part.number))))
        columns = (
            batch.texts,
            rejects,
            batch.exhausted,
            at,
            batch.users,
            batch.times,
            batch.fields,
        )
        return PartitionedBatch(*columns, newest=batch.newest, parts=parts)

    def silent(self) -> float | None:
        """As of the connector; None before the group has answered, unless it is away."""
        found: float | None = self._source.silent()
        return found if self._joined or found else None

    def reason(self) -> str:
        """As of the connector."""
        found: str = self._source.reason()
        return found

    def position(self) -> Position:
        """Return where all that is read goes on; each state has its own."""
        found: Position = self._source.position()
        return found

    def close(self) -> None:
        """Leave the group, and close all partitions as they were saved. Twice is allowed."""
        self._closed = True
        self._source.close()
        numbers = list(self._ours)
        self._ours.clear()
        if numbers:
            self._partitions.leave(numbers, False, self._in_order, Event())
