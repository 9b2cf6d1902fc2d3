"""Topics that are written, by one idempotent producer each: snapshots, and dead letters."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, ClassVar

import orjson

from streamlda.checks import at_least
from streamlda.errors import StreamLDAError
from streamlda_connectors.checks import check, check_open, fault, with_reason
from streamlda_connectors.kafka.client import Bounds, Broken, ClientSettings, OutOfRange, Record
from streamlda_connectors.kafka.connection import (
    CLOSE_SECONDS,
    NO_ANSWER,
    connecting,
    load,
    milliseconds,
    refused,
)
from streamlda_connectors.kafka.consumer import Client
from streamlda_connectors.kafka.security import Security

#: Longest time to wait for more messages to send together, in seconds, and their size together.
LINGER_SECONDS, BATCH_BYTES = 0.02, 2**16

#: Largest request: below the socket.request.max.bytes that brokers have by default.
MAX_REQUEST_BYTES = 100 * 2**20 - 2**10

#: Largest message where the brokers do not tell theirs: what they take by default.
USUAL_BYTES = 1_048_588

#: Without end, as far as the package can count: 24 days of milliseconds.
ENDLESS_MS = 2**31 - 1

#: How many records `SnapshotTopic.newest` looks at first, from the end back.
FIRST_REACH = 16

#: Longest that one poll of them waits, and the most records it brings.
POLL_SECONDS, POLL_RECORDS = 0.5, 100


#: Arguments of the package for one record: messages of one key go to one partition.
Message = dict[str, Any]


def count_bytes(message: Message) -> int:
    """Return the size of a message without what the log adds."""
    headers = sum(len(name) + len(value) for name, value in message["headers"])
    return len(message["key"]) + len(message["value"]) + headers


class TopicWriter:
    """Writes to one topic by a ``KafkaProducer`` with ``acks=all`` that can be made again.

    A delivery never times out, so a broker that comes back gets each message once. A missing topic
    is made with one partition. `request_timeout_seconds` is the longest wait for the brokers.
    """

    #: Settings of a topic that is made.
    made_with: ClassVar[Mapping[str, str]] = {}

    def __init__(
        self,
        topic: str,
        *,
        bootstrap_servers: str,
        security: Security | Mapping[str, Any] | None = None,
        request_timeout_seconds: float = 30.0,
    ) -> None:
        self._settings = ClientSettings(
            bootstrap_servers,
            topic,
            request_timeout_seconds=request_timeout_seconds,
            security=Security.of(security),
        )
        self._kafka = load("writing to Kafka")
        self._closed = False
        self._producer: Any = None
        #: Largest message, if the brokers have told it.
        self._limit: int | None = None
        self._open_producer()

    def close(self) -> None:
        """Close the connection; what is not durable may be lost. Closing twice is allowed."""
        self._closed = True
        self._drop_producer()

    def _open_producer(self) -> Any:
        """Return the producer; without one, connect, and make the topic if it is missing."""
        check_open(self._closed)
        if self._producer is not None:
            return self._producer
        kafka, settings = self._kafka, self._settings
        with connecting(kafka, settings) as shared:
            found = self._describe(shared)
            self._check_topic(found)
            told = found.get("max.message.bytes")
            self._limit = None if told is None else min(int(told), MAX_REQUEST_BYTES)
            largest = self._limit or USUAL_BYTES
            producer = kafka.KafkaProducer(
                **shared,
                acks="all",
                enable_idempotence=True,
                delivery_timeout_ms=ENDLESS_MS,
                linger_ms=milliseconds(LINGER_SECONDS),
                batch_size=min(BATCH_BYTES, largest),
                max_request_size=largest,
                max_block_ms=milliseconds(settings.request_timeout_seconds),
                metrics_enabled=False,
            )
        try:
            # Else the first message would wait for this.
            producer.partitions_for(settings.topic)
        except kafka.errors.KafkaError as error:
            close_producer(kafka, producer)
            raise refused(settings, "name the partitions of the topic", error) from error
        self._producer = producer
        return producer

    def _describe(self, shared: dict[str, Any]) -> dict[str, str]:
        """Make the topic if it is missing, and return its settings, as far as they are shown."""
        from kafka.admin import ConfigResource, ConfigResourceType

        errors, name = self._kafka.errors, self._settings.topic
        with closing(self._kafka.KafkaAdminClient(**shared)) as admin:
            (topic,) = admin.describe_topics([name])
            if topic["error_code"] == errors.UnknownTopicOrPartitionError.errno:
                made = {name: {"num_partitions": 1, "configs": dict(self.made_with)}}
                try:
                    admin.create_topics(made, wait_for_metadata=True)
                except errors.TopicAlreadyExistsError:
                    # Another process made it since; what it is like is read below.
                    admin.wait_for_topics([name])
            elif topic["error_code"]:
                raise errors.for_code(topic["error_code"])
            wanted = ConfigResource(
                ConfigResourceType.TOPIC, name, ["cleanup.policy", "max.message.bytes"]
            )
            found = admin.describe_configs([wanted], config_filter="all")
        values = found.get("topic", {}).get(name, {})
        return {key: entry["value"] for key, entry in values.items()}

    def _check_topic(self, settings: Mapping[str, str]) -> None:
        """Raise `SourceError` if a topic of such settings will not do."""

    def _send(self, message: Message) -> Any:
        """Send a message, without waiting; return the future of the package."""
        return self._open_producer().send(self._settings.topic, **message)

    def _is_written(self, future: Any, timeout_seconds: float) -> bool:
        """Return whether all in-sync replicas have a message, waiting for it that long.

        Raises the error of a refusal, with which the package then fails all that waits.
        """
        if not future.is_done and timeout_seconds > 0:
            # The future shows a time-out too.
            with suppress(self._kafka.errors.KafkaError):
                future.get(timeout_seconds)
        if future.failed():
            raise future.exception
        return bool(future.succeeded())

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            close_producer(self._kafka, producer)


def close_producer(kafka: Any, producer: Any) -> None:
    """Close a producer of the package and drop what is not acknowledged."""
    try:
        producer.close(timeout=CLOSE_SECONDS)
    except kafka.errors.KafkaTimeoutError:
        # The package stops there if messages wait, and leaves its thread behind. What waits is
        # given up, and it closes.
        producer._sender.force_close()
        producer.close(timeout=CLOSE_SECONDS)


class SnapshotTopic(TopicWriter):
    """Publish values under keys, durable one by one; connected from the beginning.

    The topic is made with one partition and ``cleanup.policy=compact`` if it is missing. Options
    are those of `TopicWriter`. Not safe for several threads.
    """

    made_with = {"cleanup.policy": "compact"}  # noqa: RUF012 - the base says ClassVar

    def publish(self, key: str, value: bytes, headers: Mapping[str, str]) -> None:
        """Write `value` under `key`; on return all in-sync replicas have it.

        After a crash or an error publish it again: the same bytes under a key mean the same twice.
        """
        encoded = [(name, text.encode()) for name, text in headers.items()]
        message = {"key": key.encode(), "value": value, "headers": encoded}
        seconds, n_bytes = self._settings.request_timeout_seconds, count_bytes(message)
        errors, problem = self._kafka.errors, f"no answer in {seconds:g} s"
        self._open_producer()
        try:
            if self._is_written(self._send(message), seconds):
                return
        except (errors.MessageSizeTooLargeError, errors.RecordListTooLargeError) as error:
            self._drop_producer()
            # The brokers' may be lower by now.
            known = self._limit is not None and n_bytes > self._limit
            about = {"topic": self._settings.topic, "bytes": n_bytes}
            raise fault("snapshot size", **about, limit=self._limit if known else None) from error
        except errors.KafkaError as error:
            problem = type(error).__name__
        # What waits would pile up, value by value, while the brokers are away.
        self._drop_producer()
        about = {"topic": self._settings.topic, "bytes": n_bytes}
        raise fault("snapshot refused", **about, problem=problem)

    def newest(self, key: str) -> bytes | None:
        """Return the last value of a key, or None if there is none; reads from the end back."""
        wanted, reach = key.encode(), FIRST_REACH
        try:
            with closing(Client(self._settings)) as client:
                bounds = client.bounds(client.partitions())
                while True:
                    reached = {
                        n: Bounds(max(b.first, b.end - reach), b.end) for n, b in bounds.items()
                    }
                    last: Record | None = None
                    for record in self._read(client, reached):
                        if record.key != wanted:
                            continue
                        # In several partitions times tell which is the last.
                        if last is None or (
                            record.offset > last.offset
                            if record.partition == last.partition
                            else record.timestamp_ms >= last.timestamp_ms
                        ):
                            last = record
                    if last is not None or reached == bounds:
                        return None if last is None else last.value
                    reach *= 8
        except (Broken, OutOfRange) as error:
            problem = type(error).__name__
            raise fault("snapshots", topic=self._settings.topic, problem=problem) from error

    def _read(self, client: Client, bounds: Mapping[int, Bounds]) -> Iterator[Record]:
        """Yield the records within the bounds, partition by partition in the order of the log."""
        bounds = {number: bound for number, bound in bounds.items() if bound.first < bound.end}
        if not bounds:
            return
        client.assign({number: bound.first for number, bound in bounds.items()})
        timeout = self._settings.request_timeout_seconds
        at, deadline = client.positions(), monotonic() + timeout
        while any(at[number] < bound.end for number, bound in bounds.items()):
            runs = client.poll(min(POLL_SECONDS, timeout), POLL_RECORDS)
            for run in runs:
                end = bounds[run.partition].end
                yield from (record for record in run.records if record.offset < end)
            # A log may end with marks of transactions, which are no records: offsets tell the end.
            before, at = at, client.positions()
            if runs or at != before:
                deadline = monotonic() + timeout
            elif monotonic() > deadline:
                about = {"topic": self._settings.topic, "timeout_seconds": timeout}
                raise fault("reading", **about, offsets=at)

    def _check_topic(self, settings: Mapping[str, str]) -> None:
        policy = settings.get("cleanup.policy", "unknown")
        about = {"topic": self._settings.topic, "cleanup.policy": policy}
        check("compact" in policy.split(","), "compacted", **about)


#: What one waiting letter takes in memory beside its bytes.
LETTER_BYTES = 1024


class DeadLetters(TopicWriter):
    """Write a reference to each record that was skipped; fits ``KafkaSource(on_reject=...)``.

    A letter has the key ``topic/partition/offset``, a value in JSON (the same three, the time of
    the record in milliseconds, the reason, the size in bytes and the SHA-256 of its value) and
    headers named as in Kafka Connect. Its timestamp is that of the record: brokers refuse one that
    is far ahead of their clock. The text is not in it, but the hash of a short value can be
    guessed, so who may read the topic matters.

    Letters are durable when `flush` returns. A letter is written once unless the connection has
    to be replaced or the process ends before `flush`: then it may be there twice, with the same
    key. After an error nothing that was put is lost: the next call tries again. Memory about twice
    `max_pending_bytes`. Not safe for several threads.

    The topic is made with ``message.timestamp.type=LogAppendTime`` if it is missing: brokers then
    keep letters about old records as long as others. The options are those of
    `streamlda_connectors.kafka.writing.TopicWriter`.
    """

    made_with = {"message.timestamp.type": "LogAppendTime"}  # noqa: RUF012 - the base says ClassVar

    def __init__(
        self,
        topic: str,
        *,
        request_timeout_seconds: float = 10.0,
        max_pending_bytes: int = 8 * 2**20,
        **options: Any,
    ) -> None:
        at_least(1, max_pending_bytes=max_pending_bytes)
        self._max_pending = max_pending_bytes
        self._pending: deque[_Letter] = deque()
        self._pending_bytes = 0
        super().__init__(topic, request_timeout_seconds=request_timeout_seconds, **options)

    def put(self, record: Record, reason: str) -> None:
        """Write a letter about `record`; `SinkAwayError` if it is refused or many wait."""
        # Letters about letters would never end.
        own = record.topic != self._settings.topic
        check(own, "letters topic", topic=self._settings.topic)
        message = _write_letter(record, reason)
        n_bytes = count_bytes(message) + LETTER_BYTES
        room = max(0, self._max_pending - n_bytes)
        self._settle(room, monotonic() + self._settings.request_timeout_seconds)
        try:
            delivery = self._send(message)
        except self._kafka.errors.KafkaError as error:
            raise self._give_up(error) from error
        self._pending.append(_Letter(message, n_bytes, delivery))
        self._pending_bytes += n_bytes

    def flush(self, timeout_seconds: float) -> None:
        """Wait until all in-sync replicas have every letter; call it again after an error."""
        self._settle(0, monotonic() + timeout_seconds)

    def _settle(self, wanted_bytes: int, deadline: float) -> None:
        """Forget what the brokers have; wait until at most `wanted_bytes` are pending."""
        check_open(self._closed)
        try:
            while self._pending:
                self._open_producer()
                letter, enough = self._pending[0], self._pending_bytes <= wanted_bytes
                seconds = 0.0 if enough else max(0.0, deadline - monotonic())
                if not self._is_written(letter.delivery, seconds):
                    break
                self._pending.popleft()
                self._pending_bytes -= letter.n_bytes
        except self._kafka.errors.KafkaError as error:
            raise self._give_up(error) from error
        if self._pending_bytes > wanted_bytes:
            about = {"topic": self._settings.topic, "pending": len(self._pending)}
            late = fault("letters late", **about, pending_bytes=self._pending_bytes)
            raise with_reason(late, NO_ANSWER)

    def _open_producer(self) -> Any:
        """Return the producer, or a new one with all that is pending if it was given up."""
        if self._producer is None:
            super()._open_producer()
            try:
                for letter in self._pending:
                    letter.delivery = self._send(letter.message)
            except BaseException:
                self._drop_producer()
                raise
        return self._producer

    def _give_up(self, error: Exception) -> StreamLDAError:
        self._drop_producer()
        about = {"topic": self._settings.topic, "pending": len(self._pending)}
        return fault("letters refused", **about, problem=type(error).__name__)


def _write_letter(record: Record, reason: str) -> Message:
    """Return the letter about a record."""
    value = b"" if record.value is None else record.value
    digest = hashlib.sha256(value).hexdigest()
    reference = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "reason": reason,
        "bytes": len(value),
        "sha256": digest,
    }
    headers = [
        ("__connect.errors.topic", record.topic.encode()),
        ("__connect.errors.partition", b"%d" % record.partition),
        ("__connect.errors.offset", b"%d" % record.offset),
        ("__connect.errors.exception.message", reason.encode()),
        ("streamlda.sha256", digest.encode()),
    ]
    key = f"{record.topic}/{record.partition}/{record.offset}".encode()
    time = None if record.timestamp_ms < 0 else record.timestamp_ms
    value = orjson.dumps(reference)
    return {"key": key, "value": value, "headers": headers, "timestamp_ms": time}


@dataclass(slots=True, eq=False)
class _Letter:
    """A message that waits for the brokers."""

    message: Message
    n_bytes: int
    #: Future of the package.
    delivery: Any
