"""The client on top of the package kafka-python; its types stay in this module.

Two faults of the package shape it. After an error in ``poll`` the next call can spin endlessly, so
the client is then given up (`Broken`). A deserializer that raises leads there, so none is set.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from streamlda.checks import require
from streamlda.errors import MissingExtraError, SourceError
from streamlda_connectors.kafka.client import (
    Bounds,
    Broken,
    ClientSettings,
    Identity,
    OutOfRange,
    Record,
    Run,
    Truncated,
)
from streamlda_connectors.kafka.package import (
    CLOSE_SECONDS,
    connecting,
    load,
    milliseconds,
    refused,
)

logger = logging.getLogger(__name__)


class KafkaPythonClient:
    """A `Client` made of one ``KafkaConsumer``, connected when it is made."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._kafka = kafka = load("reading from Kafka")
        self._assigned: dict[int, Any] = {}
        self._paused = False
        self._closed = False
        with connecting(kafka, settings) as shared:
            self._identity, self._first_partitions = self._describe(shared)
            self._consumer = kafka.KafkaConsumer(
                **shared,
                group_id=settings.group,
                enable_auto_commit=False,
                metrics_enabled=False,
                auto_offset_reset="none",
                allow_auto_create_topics=False,
                isolation_level="read_committed" if settings.read_committed else "read_uncommitted",
                fetch_max_bytes=settings.fetch_max_bytes,
                max_partition_fetch_bytes=settings.max_partition_fetch_bytes,
                fetch_max_wait_ms=min(500, milliseconds(settings.request_timeout_seconds) // 2),
            )

    def _describe(self, shared: dict[str, Any]) -> tuple[Identity, set[int]]:
        # A consumer cannot distinguish a missing topic from one that is still to come.
        name = self._settings.topic
        with closing(self._kafka.KafkaAdminClient(**shared)) as admin:
            (topic,) = admin.describe_topics([name])
            cluster = admin.describe_cluster()["cluster_id"]
        require(
            topic["partitions"] and not topic["error_code"],
            "a topic must exist and be readable",
            topic=name,
            error_code=topic["error_code"],
            remedy="create it, or correct its name or access rules",
            error=SourceError,
        )
        partitions = {partition["partition_index"] for partition in topic["partitions"]}
        return Identity(str(cluster), name, str(topic.get("topic_id"))), partitions

    def identity(self) -> Identity:
        """See `Client`."""
        return self._identity

    def partitions(self) -> set[int]:
        """See `Client`."""
        if not self._assigned:
            return set(self._first_partitions)
        return set(self._consumer.partitions_for_topic(self._settings.topic))

    def bounds(self, partitions: set[int]) -> dict[int, Bounds]:
        """See `Client`."""
        parts = [self._partition(number) for number in sorted(partitions)]
        timeout = milliseconds(self._settings.request_timeout_seconds)
        try:
            first = self._consumer.beginning_offsets(parts, timeout_ms=timeout)
            end = self._consumer.end_offsets(parts, timeout_ms=timeout)
        except self._kafka.errors.KafkaError as error:
            raise refused(self._settings, "tell the offsets of the partitions", error) from error
        return {part.partition: Bounds(first[part], end[part]) for part in parts}

    def _partition(self, number: int) -> Any:
        return self._kafka.TopicPartition(self._settings.topic, number)

    def assign(self, offsets: Mapping[int, int]) -> None:
        """See `Client`."""
        self._assigned = {number: self._partition(number) for number in offsets}
        self._consumer.assign(list(self._assigned.values()))
        for number, offset in offsets.items():
            self._consumer.seek(self._assigned[number], offset)
        self.pause(self._paused)

    def poll(self, timeout_seconds: float, max_records: int) -> list[Run]:
        """See `Client`."""
        errors = self._kafka.errors
        try:
            found = self._consumer.poll(milliseconds(timeout_seconds), max_records)
        except errors.LogTruncationError as error:
            raise Truncated from error
        except errors.OffsetOutOfRangeError as error:
            raise OutOfRange from error
        except errors.UnsupportedCodecError as error:
            raise MissingExtraError(
                "lz4, python-snappy or zstandard", "kafka", "reading compressed records"
            ) from error
        except errors.AuthorizationError as error:
            raise refused(self._settings, "allow reading", error) from error
        except Exception as error:
            # Damaged batches raise whatever their decompressor does. The source decides.
            raise Broken(type(error).__name__) from error
        return [
            Run(
                part.partition,
                [row.offset for row in rows],
                [row.value for row in rows],
                partial(_record, rows),
            )
            for part, rows in found.items()
        ]

    def pause(self, paused: bool) -> None:
        """See `Client`."""
        self._paused = paused
        change = self._consumer.pause if paused else self._consumer.resume
        change(*self._assigned.values())

    def ends(self) -> dict[int, int]:
        """See `Client`."""
        ends = {number: self._consumer.highwater(part) for number, part in self._assigned.items()}
        return {number: end for number, end in ends.items() if end is not None}

    def positions(self) -> dict[int, int]:
        """See `Client`."""
        timeout = milliseconds(self._settings.request_timeout_seconds)
        try:
            return {
                number: self._consumer.position(part, timeout_ms=timeout)
                for number, part in self._assigned.items()
            }
        except self._kafka.errors.KafkaError as error:
            raise Broken(type(error).__name__) from error

    def commit(self, offsets: Mapping[int, int]) -> None:
        """See `Client`."""
        if self._settings.group is None:
            return
        entry = self._kafka.structs.OffsetAndMetadata
        rows = {self._partition(number): entry(at, "", -1) for number, at in offsets.items()}
        self._consumer.commit_async(rows, callback=_log_commit)

    def close(self) -> None:
        """See `Client`."""
        if not self._closed:
            self._closed = True
            self._consumer.close(autocommit=False, timeout_ms=milliseconds(CLOSE_SECONDS))


def _record(rows: Sequence[Any], index: int) -> Record:
    row = rows[index]
    headers = tuple(row.headers or ())
    return Record(row.topic, row.partition, row.offset, row.timestamp, row.key, row.value, headers)


def _log_commit(offsets: object, response: object) -> None:
    if isinstance(response, Exception):
        logger.warning(
            "offsets could not be shown to the group (%s); nothing is lost by it",
            type(response).__name__,
        )
