"""The client on top of the package kafka-python; its types stay in this module.

Two faults of the package shape it. After an error in ``poll`` the next call can spin for ever, so
the client is then given up (`Broken`). A deserializer that raises leads there, so none is set.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

from connectors.kafka.client import (
    Bounds,
    Broken,
    ClientSettings,
    Identity,
    OutOfRange,
    Record,
    Truncated,
)
from streamlda.errors import MissingExtraError, SourceError

logger = logging.getLogger(__name__)

#: Longest that letting go of a connection may take, in seconds.
CLOSE_SECONDS = 2.0


class KafkaPythonClient:
    """A `Client` made of one ``KafkaConsumer``.

    Parameters
    ----------
    settings : ClientSettings
        Where to connect.

    Raises
    ------
    MissingExtraError
        If kafka-python or crc32c is not installed. Without crc32c the package checks sums in
        Python, at a tenth of the speed.
    SourceError
        If the brokers cannot be reached, refuse, or do not know the topic.
    """

    def __init__(self, settings: ClientSettings) -> None:
        for package, distribution in (("kafka", "kafka-python"), ("crc32c", "crc32c")):
            if find_spec(package) is None:
                raise MissingExtraError(distribution, "kafka", "reading from Kafka")
        import kafka

        self._settings = settings
        self._kafka = kafka
        self._assigned: dict[int, Any] = {}
        self._paused = False
        self._closed = False
        made: list[Any] = []

        def keep(**options: Any) -> Any:
            made.append(kafka.KafkaConsumer.DEFAULT_CONFIG["kafka_client"](**options))
            return made[-1]

        shared = {**_connection(settings), "kafka_client": keep}
        try:
            self._identity, self._first_partitions = self._describe(shared)
            self._consumer = kafka.KafkaConsumer(
                **shared,
                bootstrap_timeout_ms=_ms(settings.request_timeout_seconds),
                group_id=settings.group,
                enable_auto_commit=False,
                metrics_enabled=False,
                auto_offset_reset="none",
                allow_auto_create_topics=False,
                isolation_level="read_committed" if settings.read_committed else "read_uncommitted",
                fetch_max_bytes=settings.fetch_max_bytes,
                max_partition_fetch_bytes=settings.max_partition_fetch_bytes,
                fetch_max_wait_ms=min(500, _ms(settings.request_timeout_seconds) // 2),
            )
        except (kafka.errors.KafkaError, OSError, ValueError, AssertionError) as error:
            # A consumer that cannot be made leaves its thread and sockets behind.
            for client in made:
                client.close()
            if isinstance(error, SourceError):
                raise
            raise self._refused("be reachable", error) from error

    def _describe(self, shared: dict[str, Any]) -> tuple[Identity, set[int]]:
        # A consumer would not tell a missing topic from one that is still to come.
        name = self._settings.topic
        admin = self._kafka.KafkaAdminClient(
            **shared, bootstrap_timeout_ms=_ms(self._settings.request_timeout_seconds)
        )
        try:
            (topic,) = admin.describe_topics([name])
            cluster = admin.describe_cluster()["cluster_id"]
        finally:
            admin.close()
        if topic["error_code"] or not topic["partitions"]:
            raise SourceError(
                f"a topic must exist and be readable, got topic={name!r} "
                f"error_code={topic['error_code']}; create it, or correct its name or access rules"
            )
        partitions = {partition["partition_index"] for partition in topic["partitions"]}
        return Identity(str(cluster), name, str(topic.get("topic_id"))), partitions

    def _refused(self, rule: str, error: BaseException) -> SourceError:
        # The text of the package's errors may quote settings; its class says enough.
        return SourceError(
            f"the brokers must {rule}, got "
            f"bootstrap_servers={self._settings.bootstrap_servers!r} "
            f"topic={self._settings.topic!r} ({type(error).__name__}); check that they run, "
            "the address, and the security settings"
        )

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
        asked = [self._partition(number) for number in sorted(partitions)]
        timeout = _ms(self._settings.request_timeout_seconds)
        try:
            first = self._consumer.beginning_offsets(asked, timeout_ms=timeout)
            end = self._consumer.end_offsets(asked, timeout_ms=timeout)
        except self._kafka.errors.KafkaError as error:
            raise self._refused("tell the offsets of the partitions", error) from error
        return {part.partition: Bounds(first[part], end[part]) for part in asked}

    def _partition(self, number: int) -> Any:
        return self._kafka.TopicPartition(self._settings.topic, number)

    def assign(self, offsets: Mapping[int, int]) -> None:
        """See `Client`."""
        self._assigned = {number: self._partition(number) for number in offsets}
        self._consumer.assign(list(self._assigned.values()))
        for number, offset in offsets.items():
            self._consumer.seek(self._assigned[number], offset)
        self.pause(self._paused)

    def poll(self, timeout_seconds: float, max_records: int) -> list[Record]:
        """See `Client`."""
        errors = self._kafka.errors
        try:
            found = self._consumer.poll(_ms(timeout_seconds), max_records)
        except errors.LogTruncationError as error:
            raise Truncated from error
        except errors.OffsetOutOfRangeError as error:
            raise OutOfRange from error
        except errors.UnsupportedCodecError as error:
            raise MissingExtraError(
                "lz4, python-snappy or zstandard", "kafka", "reading compressed records"
            ) from error
        except errors.AuthorizationError as error:
            raise self._refused("allow reading", error) from error
        except Exception as error:
            # Damaged batches raise whatever their decompressor does. The source decides.
            raise Broken(type(error).__name__) from error
        return [
            Record(
                row.topic,
                row.partition,
                row.offset,
                row.timestamp,
                row.key,
                row.value,
                tuple(row.headers or ()),
            )
            for rows in found.values()
            for row in rows
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
            self._consumer.close(autocommit=False, timeout_ms=_ms(CLOSE_SECONDS))


def _log_commit(offsets: object, response: object) -> None:
    if isinstance(response, Exception):
        logger.warning(
            "offsets could not be shown to the group (%s); nothing is lost by it",
            type(response).__name__,
        )


def _ms(seconds: float) -> int:
    return int(seconds * 1000)


def _connection(settings: ClientSettings) -> dict[str, Any]:
    security = settings.security
    options: dict[str, Any] = {
        "bootstrap_servers": settings.bootstrap_servers.split(","),
        "client_id": settings.client_id,
        "request_timeout_ms": max(2, _ms(settings.request_timeout_seconds)),
        "metadata_max_age_ms": max(1, _ms(settings.refresh_seconds)),
        "reconnect_backoff_max_ms": 1000,
        "security_protocol": security.protocol,
    }
    if security.tls:
        options |= {
            "ssl_cafile": security.ca_file,
            "ssl_certfile": security.certificate_file,
            "ssl_keyfile": security.key_file,
            "ssl_password": security.key_password(),
        }
    if security.sasl:
        options |= {
            "sasl_mechanism": security.mechanism,
            "sasl_plain_username": security.username,
            "sasl_plain_password": security.password(),
        }
    return options
