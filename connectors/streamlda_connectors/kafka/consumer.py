"""Reading by the package kafka-python; its types stay here, in `writing` and in `connection`.

Two faults of the package shape the client. After an error in ``poll`` the next call can spin
endlessly, so the client is then given up (`Broken`). A deserializer that raises leads there, so
none is set.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import closing
from typing import Any

from streamlda.errors import MissingExtraError
from streamlda_connectors.checks import fault, with_reason
from streamlda_connectors.kafka.connection import (
    CLOSE_SECONDS,
    TOPIC_MISSING,
    Endings,
    asking,
    connecting,
    is_away,
    load,
    milliseconds,
    refused,
)
from streamlda_connectors.kafka.partitions import Broken, Identity, Run, Truncated
from streamlda_connectors.kafka.security import ClientSettings

#: Most that one broker sends at once, and most of one partition in it. Memory is about the number
#: of brokers times this, and one batch decompressed; a single larger record is still read.
FETCH_BYTES, PARTITION_BYTES = 8 * 2**20, 2**20


class Client:
    """One ``KafkaConsumer`` of one topic, connected when it is made; used from one thread."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._timeout = milliseconds(settings.request_timeout_seconds)
        self._kafka = kafka = load("reading from Kafka")
        self._assigned: dict[int, Any] = {}
        self._paused = False
        #: Whether the brokers named the topic when they were last asked; not yet at the beginning.
        self._was_there = False
        self._endings = Endings()
        with connecting(kafka, settings, self._endings) as shared:
            # A consumer cannot distinguish a missing topic from one that is still to come.
            #: The topic when connecting.
            self.identity, self._first_partitions = described(kafka, shared, settings.topic)
            #: The consumer of the package.
            self.consumer = kafka.KafkaConsumer(
                **shared,
                group_id=settings.group,
                enable_auto_commit=False,
                metrics_enabled=False,
                isolation_level="read_committed",
                fetch_max_bytes=FETCH_BYTES,
                max_partition_fetch_bytes=PARTITION_BYTES,
                fetch_max_wait_ms=min(500, self._timeout // 2),
                auto_offset_reset="none",
            )
        from streamlda_connectors.kafka.unpacking import Unpacked

        self.consumer._fetcher.PartitionRecords = Unpacked
        self._manager = self.consumer._client._manager

    def answered(self) -> dict[int, float | None]:
        """Return when the broker of each partition was heard last; None while it is not connected.

        The connection itself counts, and so does any answer: the package tells nobody of a fetch
        that brought nothing.
        """
        found: dict[int, float | None] = {}
        for number, part in self._assigned.items():
            node = self._manager._conns.get(self._manager.cluster.leader_for_partition(part))
            transport = node.transport if node is not None and node.connected else None
            found[number] = None if transport is None else transport.last_read
        return found

    def reason(self) -> str:
        """Return why no broker has answered since the last answer."""
        return self._endings.reason(max(filter(None, self.answered().values()), default=0.0))

    def partitions(self) -> set[int]:
        """Return the partitions known now, without waiting; new ones appear later."""
        # The consumer's own would ask the brokers, and raise what they answer.
        found = self._manager.cluster.partitions_for_topic(self._settings.topic)
        return set(self._first_partitions if found is None else found)

    def bounds(self, partitions: set[int]) -> dict[int, range]:
        """Return the offsets that the log of each partition holds now, up to the last stable."""
        parts = [self._partition(number) for number in sorted(partitions)]
        with asking(self._settings, "tell the offsets", self._endings):
            first = self.consumer.beginning_offsets(parts, timeout_ms=self._timeout)
            end = self.consumer.end_offsets(parts, timeout_ms=self._timeout)
        return {part.partition: range(first[part], end[part]) for part in parts}

    def _partition(self, number: int) -> Any:
        return self._kafka.TopicPartition(self._settings.topic, number)

    def assign(self, offsets: Mapping[int, int]) -> None:
        """Read these partitions from these offsets on, and no others."""
        self._assigned = {number: self._partition(number) for number in offsets}
        self.consumer.assign(list(self._assigned.values()))
        for number, offset in offsets.items():
            self.consumer.seek(self._assigned[number], offset)
        self.pause(self._paused)

    def poll(self, timeout_seconds: float, max_records: int) -> list[Run]:
        """Return up to `max_records` (at least 1) as they come, or nothing in time.

        Raises `Truncated`, or `Broken` if the client is of no use any more.
        """
        errors = self._kafka.errors
        try:
            found = self.consumer.poll(milliseconds(timeout_seconds), max_records)
        except errors.LogTruncationError as error:
            raise Truncated from error
        except errors.UnsupportedCodecError as error:
            raise MissingExtraError(
                "lz4, python-snappy or zstandard", "kafka", "reading compressed records"
            ) from error
        except Exception as error:
            if isinstance(error, errors.AuthorizationError) or is_away(errors, error):
                raise refused(self._settings, "allow reading", error, self._endings) from error
            # Damaged batches raise whatever their decompressor does. The source decides.
            raise Broken(type(error).__name__) from error
        # Of a topic that was replaced, and has grown beyond our offset, nothing else tells; of one
        # that was deleted, nothing at all.
        cluster, name = self._manager.cluster, self._settings.topic
        topic_id, is_there = cluster.topic_id(name), cluster.partitions_for_topic(name) is not None
        if topic_id is not None and is_there and str(topic_id) != self.identity.topic_id:
            raise Broken("another topic of this name")
        if self._was_there and not is_there:
            raise Broken("no topic of this name")
        self._was_there = is_there
        return [Run(part.partition, rows) for part, rows in found.items()]

    def pause(self, paused: bool, held: Collection[int] = ()) -> None:
        """Stop or continue fetching all partitions but those `held`; polls keep connections."""
        self._paused = paused
        change = self.consumer.pause if paused else self.consumer.resume
        change(*self._assigned.values())
        self.consumer.pause(*(self._assigned[number] for number in held))
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
                    found[number] = self.consumer.position(part, timeout_ms=self._timeout)
        except self._kafka.errors.KafkaError as error:
            raise Broken(type(error).__name__) from error
        return found

    def notes(self, partitions: set[int]) -> list[str]:
        """Return the notes that are shown under the group beside offsets of these partitions."""
        found = []
        with asking(self._settings, "tell what the group shows", self._endings):
            for part in map(self._partition, sorted(partitions)):
                try:
                    entry = self.consumer.committed(part, metadata=True, timeout_ms=self._timeout)
                except self._kafka.errors.GroupIdNotFoundError:
                    return []
                found += [] if entry is None else [str(entry.metadata)]
        return found

    def close(self) -> None:
        """Close all connections. Closing twice is allowed."""
        self.consumer.close(autocommit=False, timeout_ms=milliseconds(CLOSE_SECONDS))


def described(kafka: Any, shared: dict[str, Any], name: str) -> tuple[Identity, set[int]]:
    """Return which topic has a name, and its partitions; raise `SourceError` if none has."""
    with closing(kafka.KafkaAdminClient(**shared)) as admin:
        (topic,) = admin.describe_topics([name])
        cluster = admin.describe_cluster()["cluster_id"]
    code = topic["error_code"] or (0 if topic["partitions"] else 3)
    if code == kafka.errors.UnknownTopicOrPartitionError.errno:
        raise with_reason(fault("topic", topic=name), TOPIC_MISSING)
    if code:
        raise kafka.errors.for_code(code)
    partitions = {partition["partition_index"] for partition in topic["partitions"]}
    return Identity(str(cluster), name, str(topic.get("topic_id"))), partitions
