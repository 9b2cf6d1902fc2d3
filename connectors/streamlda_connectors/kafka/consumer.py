"""Reading by the package kafka-python, and membership of the group that shares a topic.

Two faults of the package shape the client. After an error in ``poll`` the next call can spin
endlessly, so the client is then given up (`Broken`). A deserializer that raises leads there, so
none is set.
"""

import logging
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from queue import SimpleQueue
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any, NamedTuple

from streamlda.errors import MissingExtraError
from streamlda_connectors.kafka.connection import CLOSE_SECONDS, Brokers, milliseconds
from streamlda_connectors.kafka.partitions import Broken, LogTruncation, Run
from streamlda_connectors.kafka.security import ClientSettings

logger = logging.getLogger(__name__)

#: Most that one broker sends at once, and most of one partition in it. Memory is about the number
#: of brokers times this, and one batch decompressed; a single larger record is still read.
FETCH_BYTES, PARTITION_BYTES = 8 * 2**20, 2**20

#: A member that was not heard of for so long is dead: its partitions move.
SESSION_SECONDS = 10.0

#: How often a member says that it is alive, and hears whether partitions are to move.
HEARTBEAT_SECONDS = 2.5

#: How long a member may take to give partitions up, and between two polls.
REBALANCE_SECONDS = 60.0

#: How often the member that assigns looks for new partitions of the topic.
REFRESH_SECONDS = 10.0

#: How long a poll waits. What an answer to joining says is lost if it comes between two polls, and
#: the client joins once more: so they follow each other at once, in a thread of their own.
POLL_SECONDS = 0.5

#: How often it is looked whether partitions were given up, in seconds.
STEP_SECONDS = 0.02


class Consumer(Brokers):
    """A ``KafkaConsumer`` for one topic, of which sub-classes say the options."""

    def _connect(self, shared: dict[str, Any], **options: Any) -> None:
        #: The consumer of the package.
        self.consumer = self.kafka.KafkaConsumer(
            **{**shared, **options},
            group_id=self.settings.group,
            enable_auto_commit=False,
            metrics_enabled=False,
            # Offsets of the group wait for open transactions by it, too.
            isolation_level="read_committed",
        )

    def find_entries(self, partitions: set[int]) -> dict[int, Any]:
        """Return offset and metadata of partitions under the group, of those that have them."""
        found, missing = {}, self.kafka.errors.GroupIdNotFoundError
        with self.name_errors("do not tell the offsets of the group"), suppress(missing):
            for number in sorted(partitions):
                part = self.partition(number)
                entry = self.consumer.committed(part, metadata=True, timeout_ms=self.timeout_ms)
                if entry is not None:
                    found[number] = entry
        return found

    def close(self) -> None:
        """Close all connections, and leave the group. Closing twice is allowed."""
        self.consumer.close(autocommit=False, timeout_ms=milliseconds(CLOSE_SECONDS))


class Client(Consumer):
    """One consumer of one topic, connected when it is made; used from one thread."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings, "reading from Kafka")
        self._assigned: dict[int, Any] = {}
        self._paused = False
        #: Whether the brokers named the topic when they were last asked; not yet at the beginning.
        self._was_there = False
        with self.open_connection() as shared:
            # A consumer cannot distinguish a missing topic from one that is still to come.
            self.identity, self._first_partitions = self.describe(shared, settings.topic)
            self._connect(
                shared,
                fetch_max_bytes=FETCH_BYTES,
                max_partition_fetch_bytes=PARTITION_BYTES,
                fetch_max_wait_ms=min(500, self.timeout_ms // 2),
                auto_offset_reset="none",
            )
        from streamlda_connectors.kafka.unpacking import UnpackedRecords

        self.consumer._fetcher.PartitionRecords = UnpackedRecords
        self._manager = self.consumer._client._manager

    def get_answer_times(self) -> dict[int, float | None]:
        """Return when the broker of each partition was heard last; None while not connected."""
        # Any answer counts: the package tells nobody of a fetch that brought nothing.
        found: dict[int, float | None] = {}
        for number, part in self._assigned.items():
            node = self._manager._conns.get(self._manager.cluster.leader_for_partition(part))
            transport = node.transport if node is not None and node.connected else None
            found[number] = None if transport is None else transport.last_read
        return found

    def reason(self) -> str:
        """Return why no broker has answered since the last answer."""
        return self.reason_since(max(filter(None, self.get_answer_times().values()), default=0.0))

    def partitions(self) -> set[int]:
        """Return the partitions known now, without waiting; new ones appear later."""
        # The consumer's own would ask the brokers, and raise what they answer.
        found = self._manager.cluster.partitions_for_topic(self.settings.topic)
        return set(self._first_partitions if found is None else found)

    def bounds(self, partitions: set[int]) -> dict[int, range]:
        """Return the offsets that the log of each partition holds now, up to the last stable."""
        parts = [self.partition(number) for number in sorted(partitions)]
        with self.name_errors("do not tell the offsets"):
            first = self.consumer.beginning_offsets(parts, timeout_ms=self.timeout_ms)
            end = self.consumer.end_offsets(parts, timeout_ms=self.timeout_ms)
        return {part.partition: range(first[part], end[part]) for part in parts}

    def assign(self, offsets: Mapping[int, int]) -> None:
        """Read these partitions from these offsets on, and no others."""
        self._assigned = {number: self.partition(number) for number in offsets}
        self.consumer.assign(list(self._assigned.values()))
        for number, offset in offsets.items():
            self.consumer.seek(self._assigned[number], offset)
        self.pause(self._paused)

    def poll(self, timeout_seconds: float, max_records: int) -> list[Run]:
        """Return up to `max_records` in time, or raise `Broken` if it is of no use any more."""
        errors = self.kafka.errors
        try:
            found = self.consumer.poll(milliseconds(timeout_seconds), max_records)
        except errors.LogTruncationError as error:
            raise LogTruncation from error
        except errors.UnsupportedCodecError as error:
            raise MissingExtraError(
                "lz4, python-snappy or zstandard", "kafka", "reading compressed records"
            ) from error
        except Exception as error:
            if isinstance(error, errors.AuthorizationError) or getattr(error, "retriable", False):
                raise self.make_error("do not allow reading", error) from error
            # Damaged batches raise whatever their decompressor does. The source decides.
            raise Broken(type(error).__name__) from error
        # Of a topic that was replaced, and has grown beyond our offset, nothing else tells; of one
        # that was deleted, nothing at all.
        cluster, name = self._manager.cluster, self.settings.topic
        topic_id, is_there = cluster.topic_id(name), cluster.partitions_for_topic(name) is not None
        if topic_id is not None and is_there and str(topic_id) != self.identity.topic_id:
            raise Broken("another topic of this name")
        if self._was_there and not is_there:
            raise Broken("no topic of this name")
        self._was_there = is_there
        return [Run(part.partition, rows) for part, rows in found.items()]

    def pause(self, paused: bool, partitions: Collection[int] = ()) -> None:
        """Stop or continue fetching all other partitions than these; polls keep connections."""
        self._paused = paused
        change = self.consumer.pause if paused else self.consumer.resume
        change(*self._assigned.values())
        self.consumer.pause(*(self._assigned[number] for number in partitions))
        # The package keeps what it has read of a paused partition aside, and brings it back only
        # where nothing lies in its place: there, what was read to its end stays, and it would wait
        # without end.
        fetcher = self.consumer._fetcher
        if not fetcher._next_partition_records:
            fetcher._next_partition_records = None

    def ends(self) -> dict[int, int]:
        """Return the last known end of each partition fetched so far, without waiting."""
        ends = {number: self.consumer.highwater(part) for number, part in self._assigned.items()}
        return {number: end for number, end in ends.items() if end is not None}

    def positions(self) -> dict[int, int]:
        """Return where each assigned partition continues, behind marks of transactions too."""
        known, found = self.consumer._subscription.assignment, {}
        try:
            for number, part in self._assigned.items():
                state = known.get(part)
                if state is not None and state.has_valid_position:
                    # The package's own `position` would ask the brokers, for each partition in
                    # turn, if the log was cut. Polls do that without waiting.
                    found[number] = state.position.offset
                else:
                    found[number] = self.consumer.position(part, timeout_ms=self.timeout_ms)
        except self.kafka.errors.KafkaError as error:
            raise Broken(type(error).__name__) from error
        return found


class Assignment(NamedTuple):
    """The partitions that are ours, and the generation of the group that says so, if one does."""

    partitions: frozenset[int] = frozenset()
    generation: int | None = None


class GroupMember(Consumer):
    """Joins the group by the cooperative protocol, in a thread; a `Client` reads its records.

    A client that has to be replaced so moves no partition. While brokers are away, what is ours
    stays ours. Others wait for what `handovers` yields, unless the group takes us for dead.
    """

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(settings, "reading from Kafka")
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

        self._assignment = Assignment()
        self._handovers: SimpleQueue[tuple[set[int], Event]] = SimpleQueue()
        self._error: Exception | None = None
        self._closed = False
        self._answered = monotonic()
        refresh = min(REFRESH_SECONDS, settings.refresh_seconds)
        with self.open_connection() as shared:
            self._connect(
                shared,
                metadata_max_age_ms=max(1, milliseconds(refresh)),
                auto_offset_reset="latest",
                partition_assignment_strategy=[CooperativeStickyAssignor],
                session_timeout_ms=milliseconds(SESSION_SECONDS),
                heartbeat_interval_ms=milliseconds(HEARTBEAT_SECONDS),
                max_poll_interval_ms=milliseconds(REBALANCE_SECONDS),
            )
            self.consumer.subscribe([settings.topic], listener=self._listener())
        self._thread = Thread(target=self._stay, name="streamlda-member", daemon=True)
        self._thread.start()

    def _listener(self) -> Any:
        member, wait = self, self.consumer._client._manager._net.sleep

        class Listener(self.kafka.AsyncConsumerRebalanceListener):  # type: ignore[misc, name-defined]
            # Of partitions that are lost too.
            async def on_partitions_revoked(self, revoked: Any) -> None:
                numbers, done = {part.partition for part in revoked}, Event()
                member._note(member._assignment.partitions - numbers)
                member._handovers.put((numbers, done))
                # The loop of the package continues to say that this member is alive.
                while not (done.is_set() or member._closed):
                    await wait(STEP_SECONDS)

            async def on_partitions_assigned(self, assigned: Any) -> None:
                for part in assigned:
                    # Where it stands does not matter, but without a place it is looked for.
                    member.consumer.seek(part, 0)
                member.consumer.pause(*assigned)
                numbers = {part.partition for part in assigned}
                member._note(member._assignment.partitions | numbers)

        return Listener()

    def handovers(self) -> Iterator[tuple[set[int], Event]]:
        """Yield partitions that others are to have, and what is to be set once they can."""
        while not self._handovers.empty():
            yield self._handovers.get()

    def _note(self, partitions: frozenset[int]) -> None:
        generation = self.consumer.group_metadata().generation_id
        self._assignment = Assignment(partitions, generation if generation >= 0 else None)

    def _stay(self) -> None:
        """Look after the membership until the end."""
        coordinator = self.consumer._coordinator
        while not self._closed:
            try:
                self.consumer.poll(milliseconds(POLL_SECONDS), 1)
                # The package forgets that it is joining again for new partitions once it has
                # assigned them: if that poll ends before the answer, no later one would take it.
                if coordinator.rejoining:
                    coordinator.request_rejoin()
                self._note(self._assignment.partitions)
            except Exception as error:
                if self._closed or not getattr(error, "retriable", False):
                    self._error = error
                    return
                sleep(POLL_SECONDS)
            if coordinator.coordinator_id is not None:
                self._answered = monotonic()

    def silent(self) -> float:
        """Return for how many seconds no broker has looked after the group; 0 if one does."""
        silent = monotonic() - self._answered
        return silent if silent > self.settings.request_timeout_seconds else 0.0

    def reason(self) -> str:
        """Return why no broker looks after the group."""
        return self.reason_since(self._answered)

    def get_assignment(self) -> Assignment:
        """Return our partitions. Raises `SourceError` if the brokers do not let us join."""
        if self._error is not None:
            raise self.make_error("do not let it join the group", self._error) from self._error
        return self._assignment

    def confirm(self, partition: int) -> bool:
        """Return whether the group takes offsets of a partition from our generation."""
        try:
            self.consumer.commit(self.entries({partition: 0}), timeout_ms=self.timeout_ms)
        except self.kafka.errors.KafkaError as error:
            logger.warning("the group does not confirm a partition (%s)", type(error).__name__)
            return False
        return True

    def close(self) -> None:
        """Leave the group. Closing twice is allowed."""
        self._closed = True
        self._thread.join(CLOSE_SECONDS)
        super().close()
