"""The partitions that this daemon learns: each an ordinary pipeline with checkpoints of its own.

To the worker they look like one pipeline. A state takes the records of its own batches alone:
these name it, so that what was polled before a partition moved away, or came back, is dropped.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from threading import Event
from typing import Any, ClassVar, NamedTuple, TypeVar

from streamlda.errors import AccountError, FencedError, InvalidSettingError, StreamLDAError
from streamlda.run.opening import capture, open_pipeline
from streamlda.run.parts import open_stream
from streamlda.service import messages as m
from streamlda.service.lease import Lease
from streamlda.service.letters import Letters
from streamlda.service.logs import log, log_failure, name_reason
from streamlda.service.rules import Retry
from streamlda.service.status import Status
from streamlda.service.worker import Worker
from streamlda.settings.table import RunSettings
from streamlda.storage.checkpoint import PendingCheckpoint
from streamlda.storage.merge import read_turned
from streamlda.storage.partitions import PROJECTION, Agreement
from streamlda.storage.store import Claim, Store
from streamlda.stream.pipeline import Pipeline
from streamlda.stream.source import Behind, RecordBatch
from streamlda.utils.lock import LockedError

_T = TypeVar("_T")


#: How often a partition is tried that another still has open, in seconds.
RETRY_SECONDS = 0.5


@dataclass(slots=True, eq=False)
class LearnedPartition:
    """One partition: its state, which stands at the position of its pipeline."""

    number: int
    store: Store
    pipeline: Pipeline[Any]
    #: Records that its newest checkpoint is made of.
    saved: int
    #: Another has it by now, or may have it.
    closed: bool = False


@dataclass(frozen=True, slots=True)
class PartitionedBatch(RecordBatch):
    """Records by the partition that takes them; each batch says where that stands behind it."""

    parts: Sequence[tuple[LearnedPartition, RecordBatch]] = ()


class PendingPartitions(NamedTuple):
    """Checkpoints that are not written yet, and the records that each is of."""

    parts: list[tuple[LearnedPartition, PendingCheckpoint, int]]

    @property
    def size_bytes(self) -> int:
        """Bytes of the arrays of all."""
        return sum(pending.size_bytes for _, pending, _ in self.parts)

    @property
    def metadata(self) -> dict[str, Any]:
        """Return what is shown of them, as of one checkpoint."""
        found = [pending.metadata["position"]["offsets"] for _, pending, _ in self.parts]
        offsets = {number: at for each in found for number, at in each.items()}
        return {"position": {"offsets": offsets}, "run": None}


@dataclass(slots=True)
class Partitions:
    """Opens, learns, saves and closes partitions.

    The thread that polls opens them; all else is for the worker. Counters are of what this process
    has read.
    """

    settings: RunSettings
    folder: Path
    beginning: Agreement
    lease: Lease
    #: Called with the word for an account that was refused.
    on_account: Callable[[str], None] = lambda reason: None
    #: Called with the store of each partition that is opened.
    on_open: Callable[[Store, int], None] = lambda store, number: None
    worker: "PartitionsWorker | None" = None
    open_now: dict[int, LearnedPartition] = field(default_factory=dict)
    #: What became of the records that this process has read, and why of rejects.
    outcomes: Counter[str] = field(default_factory=Counter)
    rejects: Counter[str] = field(default_factory=Counter)

    #: As of a pipeline whose topics were given.
    has_words: ClassVar[bool] = True

    def __post_init__(self) -> None:
        topics = replace(self.settings.topics, projection_file=str(self.folder / PROJECTION))
        self.settings = replace(self.settings, topics=topics)

    # What polls.

    def open(self, number: int, claim: Claim) -> LearnedPartition:
        """Take the state of a partition where its newest checkpoint stands, or a new one.

        Raises `InvalidSettingError` from `LockedError` while another has it open, `FencedError` if
        a later generation has claimed it; else as `open_pipeline`.
        """
        store = Store.open(self.folder, partition=number, claim=claim)
        try:
            self.on_open(store, number)
            found = open_pipeline(self.settings, store, releases=False)
        except BaseException:
            store.close()
            raise
        pipeline, saved = found.pipeline, found.checkpoint
        for problem in () if saved is None else saved.skipped:
            log("error", "checkpoint-skipped", partition=number, message=problem)
        if saved is None and (first := self.beginning.find_position(number)) is not None:
            pipeline.behind = Behind(first, {})
        part = LearnedPartition(number, store, pipeline, pipeline.records)
        self.open_now[number] = part
        log("info", "partition-opened", partition=number, records=part.saved)
        return part

    def leave(self, numbers: Iterable[int], save: bool, done: Event | None = None) -> None:
        """Save partitions or not, close them, and set the event; returns at once."""
        assert self.worker is not None
        self.worker.in_order(lambda: self._leave(list(numbers), save), done or Event())

    def _leave(self, numbers: list[int], save: bool) -> Callable[[], None]:
        parts = [self.open_now.pop(number) for number in numbers if number in self.open_now]
        pending = self._unless_failed(lambda: self.capture(parts)) if save else None

        def finish() -> None:
            for each in [] if pending is None else pending.parts:
                self._unless_failed(partial(self.write, PendingPartitions([each])))
            for part in parts:
                self._close(part)

        return finish

    def _unless_failed(self, do: Callable[[], _T]) -> _T | None:
        # Whoever has the partition next continues where its last checkpoint stands.
        try:
            return do()
        except Exception as error:
            log_failure("checkpoint-failed", error)
            return None

    def _close(self, part: LearnedPartition) -> None:
        part.closed = True
        if self.open_now.get(part.number) is part:
            del self.open_now[part.number]
        part.store.close()
        log("info", "partition-closed", partition=part.number, records=part.saved)

    # What the worker asks of a pipeline.

    def add(self, batch: RecordBatch) -> None:
        """Learn the records of a batch whose partitions are still open."""
        assert isinstance(batch, PartitionedBatch)
        for part, records in batch.parts:
            if self.open_now.get(part.number) is not part:
                continue
            pipeline = part.pipeline
            outcomes, rejects = pipeline.outcomes, pipeline.counts.rejects.copy()
            pipeline.add(records)
            self.outcomes.update(pipeline.outcomes)
            self.outcomes.subtract(outcomes)
            self.rejects += pipeline.counts.rejects - rejects

    @property
    def records(self) -> int:
        """Records in the states held now."""
        return sum(part.pipeline.records for part in self._parts())

    def figures(self) -> dict[str, Any]:
        """As of a pipeline: of what this process has read, and of the states held now."""
        found = [part.pipeline.figures() for part in self._parts()]
        bins = [each["in_no_bin"] for each in found if each["in_no_bin"] is not None]
        accounts = [each["account"] for each in found]
        account = None
        if accounts and None not in accounts:
            account = {name: sum(each[name] for each in accounts) for name in accounts[0]}
        return {
            "documents": dict(self.outcomes),
            "rejects": dict(self.rejects),
            "releases": self.lease.snapshots,
            "rounds": 1,
            "places": self.records,
            "places_left": None,
            "warmup": None,
            "in_no_bin": tuple(map(sum, zip(*bins, strict=True))) if bins else None,
            "account": account,
        }

    def _parts(self) -> list[LearnedPartition]:
        return list(self.open_now.values())

    def _follow_turns(self) -> None:
        """Begin again from the start that the holder of the lease has made, if there is one."""
        try:
            start = read_turned(self.folder)
        except (StreamLDAError, OSError) as error:
            log_failure("turn-failed", error)
            return
        if start is None:
            return
        for part in self._parts():
            if part.pipeline.learner is not None and part.pipeline.learner.begin_again(start):
                log("info", "turn-taken", partition=part.number, turn=start.turn)

    # What it asks of checkpoints.

    def capture(self, of: list[LearnedPartition] | None = None) -> PendingPartitions | None:
        """Copy the states, or those of some, that are ahead of their checkpoints; None of none."""
        self._follow_turns()
        parts = self._parts() if of is None else of
        found = []
        for part in parts:
            if part.pipeline.records > part.saved:
                try:
                    pending = capture(part.pipeline, part.store)
                except AccountError as error:
                    # Its last checkpoint is opened again, as of a partition that came back.
                    log_failure("account-failed", error, partition=part.number)
                    self.on_account(name_reason(error))
                    self._close(part)
                    continue
                assert pending is not None, "words are given, so that there is a learner"
                found.append((part, pending, part.pipeline.records))
        return PendingPartitions(found) if found else None

    def write(self, partitions: PendingPartitions) -> int:
        """Write checkpoints; return the highest number of their generations.

        A state that another has taken over is not written, nor used any more.
        """
        newest = 0
        for part, captured, records in partitions.parts:
            if part.closed:
                continue
            try:
                newest = max(newest, part.store.write(captured))
            except FencedError as error:
                log_failure("fenced", error, partition=part.number)
                self._close(part)
            else:
                part.saved = records
        return newest


class PartitionsWorker(Worker):
    """A worker whose pipeline, and its checkpoints, are those of partitions."""

    def __init__(
        self, partitions: Partitions, status: Status, tell: Callable[[m.Event], None]
    ) -> None:
        as_one: Any = partitions
        super().__init__(as_one, as_one, status, tell)
        self._partitions, partitions.worker = partitions, self

    def _capture(self) -> Any:
        return self._partitions.capture()

    def in_order(self, do: Callable[[], Callable[[], None]], done: Event) -> None:
        """Call `do` after all learning, and what it returns after all writing; then set `done`."""

        def work() -> None:
            self._writes.put(do())
            self._writes.put(done.set)

        self._tasks.put(work)


class SharedSource:
    """A source whose partitions are opened when they are ours, and closed when they are not.

    Polled from one thread.
    """

    def __init__(
        self, settings: RunSettings, partitions: Partitions, status: Status, letters: Letters
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
        return self._divide(self._source.poll(max_records, timeout_seconds))

    def _drop(self, numbers: set[int]) -> None:
        known = numbers & self._ours.keys()
        if known:
            self._source.give_up(known)
            for number in known:
                del self._ours[number]

    def _take_up(self) -> None:
        """Open partitions that are ours, as far as those who had them have closed them."""
        assignment = self._source.member.get_assignment()
        self._joined = self._joined or assignment.generation is not None
        wanted, now = assignment.partitions - self._ours.keys(), time.monotonic()
        self._known |= self._source.get_partitions()
        self._status.note_group(
            partitions=sorted(self._ours),
            waiting=sorted(wanted),
            elsewhere=sorted(self._known - assignment.partitions - self._ours.keys()),
            generation=assignment.generation,
        )
        # Also where nothing is learned: partitions bring their records, and take them along.
        self._status.note(places=self._partitions.records, places_left=None)
        if not wanted:
            self._show(self._waiting.note_success(now))
        # Without a generation nothing would hold back one that the group does not know any more.
        if not wanted or now < self._try_at or assignment.generation is None:
            return
        opened = [
            part
            for number in sorted(wanted)
            if (part := self._try_to_open(number, assignment.generation)) is not None
        ]
        try:
            self._source.take({part.number: part.pipeline.position for part in opened})
        except BaseException:
            for part in opened:
                self._partitions.leave([part.number], False)
            raise
        standing = self._get_positions()
        for part in opened:
            part.pipeline.begin_at(standing(part.number))
            self._ours[part.number] = part
        if len(opened) < len(wanted):
            self._try_at = now + RETRY_SECONDS

    def _try_to_open(self, number: int, generation: int | None) -> LearnedPartition | None:
        try:
            try:
                return self._partitions.open(number, Claim(generation))
            except FencedError:
                # Groups that were empty for long begin again with generation 1.
                if not self._source.member.confirm(number):
                    raise
                return self._partitions.open(number, Claim(generation, reset=True))
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
            reason = name_reason(error)
        self._show(self._waiting.note_stall(time.monotonic(), reason))
        return None

    def _get_positions(self) -> Callable[[int], Behind]:
        """Return what tells where each partition stands now."""
        passed = {name.rpartition("/")[2]: (name, n) for name, n in self._source.passed().items()}

        def get_position(number: int) -> Behind:
            return Behind(self._source.get_position(number), dict([passed[str(number)]]))

        return get_position

    def _divide(self, batch: RecordBatch) -> PartitionedBatch:
        """Return the records by the partition that takes them."""
        names = [at.location for at in batch.locations]
        parts, standing = [], self._get_positions()
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
