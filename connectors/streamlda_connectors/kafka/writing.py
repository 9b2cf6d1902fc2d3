"""Topics that are written, by one idempotent producer each: snapshots, and dead letters."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing, suppress
from time import monotonic
from typing import Any, ClassVar

import orjson

from streamlda.errors import StreamLDAError
from streamlda_connectors.checks import check, check_open, fault, with_reason
from streamlda_connectors.kafka.connection import (
    CLOSE_SECONDS,
    NO_ANSWER,
    connecting,
    load,
    milliseconds,
    refused,
)
from streamlda_connectors.kafka.consumer import Client
from streamlda_connectors.kafka.partitions import Broken, Record
from streamlda_connectors.kafka.security import ClientSettings, Security

#: Longest time to wait for more messages to send together, in seconds, and their size together.
LINGER_SECONDS, BATCH_BYTES = 0.02, 2**16

#: Largest request: below the socket.request.max.bytes that brokers have by default. What a topic
#: takes, its brokers say.
MAX_REQUEST_BYTES = 100 * 2**20 - 2**10

#: Without end, as far as the package can count: 24 days of milliseconds.
ENDLESS_MS = 2**31 - 1

#: How many records `SnapshotTopic.newest` looks at first, from the end back.
FIRST_REACH = 16

#: Longest that one poll of them waits, and the most records it brings.
POLL_SECONDS, POLL_RECORDS = 0.5, 100

#: Most letters that wait for the brokers; one takes 2 KB, unless the name of its topic is long.
MOST_PENDING = 4096

#: Arguments of the package for one record: messages of one key go to one partition.
Message = dict[str, Any]


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
        security: Mapping[str, Any] | None = None,
        request_timeout_seconds: float = 10.0,
    ) -> None:
        self._settings = ClientSettings(
            bootstrap_servers,
            topic,
            request_timeout_seconds=request_timeout_seconds,
            security=Security(**(security or {})),
        )
        self._kafka = load("writing to Kafka")
        self._closed = False
        self._producer: Any = None
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
            self._prepare(shared)
            producer = kafka.KafkaProducer(
                **shared,
                acks="all",
                enable_idempotence=True,
                delivery_timeout_ms=ENDLESS_MS,
                linger_ms=milliseconds(LINGER_SECONDS),
                batch_size=BATCH_BYTES,
                max_request_size=MAX_REQUEST_BYTES,
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

    def _prepare(self, shared: dict[str, Any]) -> None:
        """Make the topic if it is missing; refuse one that keeps only some of what is written."""
        from kafka.admin import ConfigResource, ConfigResourceType

        errors, name = self._kafka.errors, self._settings.topic
        with closing(self._kafka.KafkaAdminClient(**shared)) as admin:
            (topic,) = admin.describe_topics([name])
            if topic["error_code"] == errors.UnknownTopicOrPartitionError.errno:
                made = {name: {"num_partitions": 1, "configs": dict(self.made_with)}}
                # Another process may make it at the same time.
                with suppress(errors.TopicAlreadyExistsError):
                    admin.create_topics(made)
                admin.wait_for_topics([name])
            elif topic["error_code"]:
                raise errors.for_code(topic["error_code"])
            if (policy := self.made_with.get(POLICY)) is not None:
                wanted = ConfigResource(ConfigResourceType.TOPIC, name, [POLICY])
                found = admin.describe_configs([wanted], config_filter="all")
                known = found.get("topic", {}).get(name, {}).get(POLICY, {"value": "unknown"})
                about = {"topic": name, POLICY: known["value"]}
                check(policy in known["value"].split(","), "compacted", **about)

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


POLICY = "cleanup.policy"


class SnapshotTopic(TopicWriter):
    """Publish values under keys, durable one by one; connected from the beginning.

    The topic is made with one partition and ``cleanup.policy=compact`` if it is missing. Options
    are those of `TopicWriter`. Not safe for several threads.
    """

    made_with = {POLICY: "compact"}  # noqa: RUF012 - the base says ClassVar

    def publish(self, key: str, value: bytes, headers: Mapping[str, str]) -> None:
        """Write `value` under `key`; on return all in-sync replicas have it.

        After a crash or an error publish it again: the same bytes under a key mean the same twice.
        """
        encoded = [(name, text.encode()) for name, text in headers.items()]
        message = {"key": key.encode(), "value": value, "headers": encoded}
        seconds, errors = self._settings.request_timeout_seconds, self._kafka.errors
        rule, problem = "snapshot refused", f"no answer in {seconds:g} s"
        self._open_producer()
        try:
            if self._is_written(self._send(message), seconds):
                return
        except errors.KafkaError as error:
            problem = type(error).__name__
            if isinstance(error, errors.MessageSizeTooLargeError | errors.RecordListTooLargeError):
                rule = "snapshot size"
        # What waits would pile up, value by value, while the brokers are away.
        self._drop_producer()
        raise fault(rule, topic=self._settings.topic, bytes=len(value), problem=problem)

    def newest(self, key: str) -> bytes | None:
        """Return the last value of a key, or None if there is none; reads from the end back."""
        wanted, reach = key.encode(), FIRST_REACH
        try:
            with closing(Client(self._settings)) as client:
                logs = client.bounds(client.partitions())
                while True:
                    begins = {n: max(log.start, log.stop - reach) for n, log in logs.items()}
                    ends = {n: log.stop for n, log in logs.items() if begins[n] < log.stop}
                    rows = (row for row in self._read(client, begins, ends) if row.key == wanted)
                    # Of a partition the last in its order; of several, times tell which is it.
                    last = {row.partition: row for row in rows}.values()
                    if last:
                        return max(last, key=lambda row: row.timestamp_ms).value
                    if all(begins[n] == log.start for n, log in logs.items()):
                        return None
                    reach *= 8
        except Broken as error:
            problem = type(error).__name__
            raise fault("snapshots", topic=self._settings.topic, problem=problem) from error

    def _read(
        self, client: Client, begins: Mapping[int, int], ends: Mapping[int, int]
    ) -> Iterator[Record]:
        """Yield the records up to before the ends of partitions."""
        client.assign({number: begins[number] for number in ends})
        timeout = self._settings.request_timeout_seconds
        at, deadline = client.positions(), monotonic() + timeout
        while any(at[number] < end for number, end in ends.items()):
            runs = client.poll(min(POLL_SECONDS, timeout), POLL_RECORDS)
            for run in runs:
                yield from (row for row in run.records if row.offset < ends[run.partition])
            # A log may end with marks of transactions, which are no records: offsets tell the end.
            before, at = at, client.positions()
            if runs or at != before:
                deadline = monotonic() + timeout
            elif monotonic() > deadline:
                about = {"topic": self._settings.topic, "timeout_seconds": timeout}
                raise fault("reading", **about, offsets=at)


class DeadLetters(TopicWriter):
    """Write a reference to each record that was skipped; fits ``KafkaSource(on_reject=...)``.

    A letter has the key ``topic/partition/offset``, a value in JSON (the same three, the time of
    the record in milliseconds, the reason, the size in bytes and the SHA-256 of its value) and
    headers named as in Kafka Connect. Its timestamp is that of the record: brokers refuse one that
    is far ahead of their clock. The text is not in it, but the hash of a short value can be
    guessed, so who may read the topic matters.

    Letters are durable when `flush` returns. A letter is written once unless the connection has
    to be replaced or the process ends before `flush`: then it may be there twice, with the same
    key. After an error nothing that was put is lost: the next call tries again. At most 4096
    letters wait. Not safe for several threads.

    The topic is made with ``message.timestamp.type=LogAppendTime`` if it is missing: brokers then
    keep letters about old records as long as others. The options are those of
    `streamlda_connectors.kafka.writing.TopicWriter`.
    """

    made_with = {"message.timestamp.type": "LogAppendTime"}  # noqa: RUF012 - the base says ClassVar

    def __init__(self, topic: str, **options: Any) -> None:
        #: Messages that wait for the brokers, and the future of the package of each.
        self._pending: deque[tuple[Message, Any]] = deque()
        super().__init__(topic, **options)

    def put(self, record: Record, reason: str) -> None:
        """Write a letter about `record`; `SinkAwayError` if it is refused or many wait."""
        self._settle(MOST_PENDING - 1, self._settings.request_timeout_seconds)
        message = _write_letter(record, reason)
        try:
            # A new producer has a new queue of what is pending.
            future = self._send(message)
        except self._kafka.errors.KafkaError as error:
            raise self._give_up(error) from error
        self._pending.append((message, future))

    def flush(self, timeout_seconds: float) -> None:
        """Wait until all in-sync replicas have every letter; call it again after an error."""
        self._settle(0, timeout_seconds)

    def _settle(self, most: int, seconds: float) -> None:
        """Forget what the brokers have; wait until at most so many letters are pending."""
        check_open(self._closed)
        deadline = monotonic() + seconds
        try:
            while self._pending:
                self._open_producer()
                wait = 0.0 if len(self._pending) <= most else deadline - monotonic()
                if not self._is_written(self._pending[0][1], wait):
                    break
                self._pending.popleft()
        except self._kafka.errors.KafkaError as error:
            raise self._give_up(error) from error
        if (n_pending := len(self._pending)) > most:
            late = fault("letters late", topic=self._settings.topic, pending=n_pending)
            raise with_reason(late, NO_ANSWER)

    def _open_producer(self) -> Any:
        """Return the producer, or a new one with all that is pending if it was given up."""
        if self._producer is None:
            super()._open_producer()
            try:
                again = [(message, self._send(message)) for message, _ in self._pending]
            except BaseException:
                self._drop_producer()
                raise
            self._pending = deque(again)
        return self._producer

    def _give_up(self, error: Exception) -> StreamLDAError:
        self._drop_producer()
        about = {"topic": self._settings.topic, "pending": len(self._pending)}
        return fault("letters refused", **about, problem=type(error).__name__)


def _write_letter(record: Record, reason: str) -> Message:
    """Return the letter about a record."""
    value = record.value or b""
    digest = hashlib.sha256(value).hexdigest()
    at = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
    about = {"reason": reason, "bytes": len(value), "sha256": digest}
    headers = {f"__connect.errors.{name}": str(part) for name, part in at.items()}
    headers |= {"__connect.errors.exception.message": reason, "streamlda.sha256": digest}
    return {
        "key": f"{record.topic}/{record.partition}/{record.offset}".encode(),
        "value": orjson.dumps({**at, "timestamp_ms": record.timestamp_ms, **about}),
        "headers": [(name, text.encode()) for name, text in headers.items()],
        "timestamp_ms": None if record.timestamp_ms < 0 else record.timestamp_ms,
    }
