"""Snapshots: whole values under keys, durable one by one, in a compacted topic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from time import monotonic
from typing import Any, ClassVar

from streamlda.checks import failure, require
from streamlda.errors import SourceAwayError, SourceError, SourceRefusedError
from streamlda_connectors.kafka.client import (
    Bounds,
    Broken,
    ClientSettings,
    Message,
    NotWritten,
    OutOfRange,
    Record,
    TooLarge,
)
from streamlda_connectors.kafka.consumer import Client
from streamlda_connectors.kafka.producer import Producer
from streamlda_connectors.kafka.security import Security

#: How many records `SnapshotTopic.newest` looks at first, from the end back.
FIRST_REACH = 16

#: Longest that one poll waits, and the most records it brings.
POLL_SECONDS, POLL_RECORDS = 0.5, 100


class TopicWriter:
    """Writes to one topic by a producer that can be given up and made again.

    `request_timeout_seconds` is the longest time to wait for the brokers: when connecting, and for
    each value. `security`: `Security`, or a mapping of its attributes. `client_id`: name in the
    brokers' logs and quotas.
    """

    #: What is written, as messages name it.
    what: ClassVar[str]

    def __init__(
        self,
        topic: str,
        *,
        bootstrap_servers: str,
        security: Security | Mapping[str, Any] | None = None,
        client_id: str = "streamlda",
        request_timeout_seconds: float = 30.0,
    ) -> None:
        self._settings = ClientSettings(
            bootstrap_servers,
            topic,
            client_id=client_id,
            request_timeout_seconds=request_timeout_seconds,
            security=Security.of(security),
        )
        self._closed = False
        self._producer: Producer | None = None

    def close(self) -> None:
        """Close the connection; what is not durable may be lost. Closing twice is allowed."""
        self._closed = True
        self._drop_producer()

    def _check_open(self) -> None:
        require(
            not self._closed,
            f"a topic of {self.what}s must be open",
            closed=True,
            remedy="make a new one",
            error=SourceError,
        )

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()


class SnapshotTopic(TopicWriter):
    """Publish values under keys, durable one by one; connected from the beginning.

    The topic is made with one partition and ``cleanup.policy=compact`` if it is missing; the
    options are those of `TopicWriter`. Compaction runs behind, at the brokers' leisure: a reader
    takes the last value of a key. Not safe for several threads.
    """

    what = "snapshot"

    def __init__(self, topic: str, **options: Any) -> None:
        super().__init__(topic, **options)
        self.connect()

    def connect(self) -> None:
        """Connect for writing, and make the topic if it is missing; `publish` does it too.

        Raises `SourceError` if the brokers cannot be reached or refuse, or the topic has the wrong
        ``cleanup.policy``, or is closed.
        """
        self._check_open()
        if self._producer is not None:
            return
        producer = Producer(self._settings, {"cleanup.policy": "compact"})
        try:
            self._check_policy(producer.settings().get("cleanup.policy", "unknown"))
        except SourceError:
            producer.close()
            raise
        self._producer = producer

    def publish(self, key: str, value: bytes, headers: Mapping[str, str]) -> None:
        """Write `value` under `key`; on return all in-sync replicas have it.

        After a crash or an error, publish again what was to be published: the same bytes under the
        same key mean the same twice. Time and memory O(bytes), the value twice.

        Up to the ``max.message.bytes`` of the topic, and 100 MiB; key and headers are in UTF-8.
        Raises `SourceError` if the topic is closed, the value is larger than the brokers take, or
        they refuse or do not answer within `request_timeout_seconds`; it is not known then whether
        they have the value.
        """
        encoded = tuple((name, text.encode()) for name, text in headers.items())
        message = Message(key.encode(), value, encoded)
        self.connect()
        assert self._producer is not None
        try:
            if self._producer.send(message).acknowledged(self._settings.request_timeout_seconds):
                return
            problem = f"no answer in {self._settings.request_timeout_seconds:g} s"
        except TooLarge as error:
            self._drop_producer()
            raise failure(
                f"a {self.what} must fit into one message",
                topic=self._settings.topic,
                bytes=message.n_bytes,
                limit=error.limit,
                remedy="raise max.message.bytes of the topic (and socket.request.max.bytes of the "
                "brokers above 100 MiB), or choose fewer topics or words",
                error=SourceError,
            ) from error
        except NotWritten as error:
            problem = str(error)
        # What waits would pile up, value by value, while the brokers are away.
        self._drop_producer()
        raise failure(
            f"the brokers must take a {self.what}",
            topic=self._settings.topic,
            bytes=message.n_bytes,
            problem=problem,
            remedy="check that they run and that all in-sync replicas answer, then publish again",
            error=SourceError,
        )

    @contextmanager
    def _reading(self) -> Iterator[tuple[Client, dict[int, Bounds]]]:
        """Give a client, and what the partitions hold now."""
        try:
            with closing(Client(self._settings)) as client:
                yield client, client.bounds(client.partitions())
        except (Broken, OutOfRange) as error:
            raise failure(
                f"a topic of {self.what}s must be readable to its end",
                topic=self._settings.topic,
                error_type=type(error).__name__,
                remedy="check the disks of the brokers and the retention of the topic, then read "
                "again",
                error=SourceError,
            ) from error

    def _until(self, client: Client, bounds: Mapping[int, Bounds]) -> Iterator[Record]:
        """Yield the records within the bounds, partition by partition in the order of the log."""
        bounds = {number: bound for number, bound in bounds.items() if bound.first < bound.end}
        if not bounds:
            return
        client.assign({number: bound.first for number, bound in bounds.items()})
        timeout = self._settings.request_timeout_seconds
        ends = {number: bound.end for number, bound in bounds.items()}
        at, deadline = client.positions(), monotonic() + timeout
        while any(at[number] < end for number, end in ends.items()):
            runs = client.poll(min(POLL_SECONDS, timeout), POLL_RECORDS)
            for run in runs:
                end = ends[run.partition]
                yield from (run.record(i) for i, offset in enumerate(run.offsets) if offset < end)
            # A log may end with marks of transactions, which are no records: offsets tell the end.
            before, at = at, client.positions()
            if runs or at != before:
                deadline = monotonic() + timeout
            elif monotonic() > deadline:
                raise failure(
                    "the brokers must send what they have in time",
                    timeout_seconds=timeout,
                    topic=self._settings.topic,
                    offsets=at,
                    ends=ends,
                    remedy="check that they run, then read again",
                    error=SourceAwayError,
                )

    def newest(self, key: str) -> bytes | None:
        """Return the last value of a key, or None if there is none.

        Reads from the end back, until the key comes: time O(bytes after its last value), memory
        that of a few values. Raises `SourceError` if the topic cannot be read.
        """
        wanted, reach = key.encode(), FIRST_REACH
        with self._reading() as (client, bounds):
            while True:
                reached = {n: Bounds(max(b.first, b.end - reach), b.end) for n, b in bounds.items()}
                last: Record | None = None
                for record in self._until(client, reached):
                    if record.key == wanted and (last is None or _is_later(record, last)):
                        last = record
                if last is not None or reached == bounds:
                    return None if last is None else last.value
                reach *= 8

    def _check_policy(self, policy: str) -> None:
        require(
            "compact" in policy.split(","),
            "the topic of snapshots must be compacted",
            topic=self._settings.topic,
            **{"cleanup.policy": policy},
            remedy="set it to compact with kafka-configs, or name a topic that is not there yet "
            "(to see the policy, the access right DescribeConfigs is needed)",
            error=SourceRefusedError,
        )


def _is_later(record: Record, other: Record) -> bool:
    """Whether a record of a key came after another; in several partitions their times tell."""
    if record.partition == other.partition:
        return record.offset > other.offset
    return record.timestamp_ms >= other.timestamp_ms
