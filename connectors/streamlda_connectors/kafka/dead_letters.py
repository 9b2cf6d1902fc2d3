"""References to records that could not be used, in a topic of their own."""

from __future__ import annotations

import hashlib
from collections import deque
from dataclasses import dataclass
from time import monotonic
from typing import Any

import orjson

from streamlda.checks import at_least, failure, require
from streamlda.errors import SinkAwayError, StreamLDAError
from streamlda_connectors.kafka.client import Record
from streamlda_connectors.kafka.endings import NO_ANSWER
from streamlda_connectors.kafka.writing import Message, TopicWriter

#: What one waiting letter takes in memory beside its bytes.
LETTER_BYTES = 1024


class DeadLetters(TopicWriter):
    """Write a reference to each record that was skipped; fits ``KafkaSource(on_reject=...)``.

    A letter has the key ``topic/partition/offset``, a value in JSON (the same three, the time of
    the record in milliseconds, the reason, the size in bytes and the SHA-256 of its value) and
    the headers ``__connect.errors.topic``, ``.partition``, ``.offset`` and ``.exception.message``
    (the reason; the names are those of Kafka Connect), and ``streamlda.sha256``. Its timestamp is
    that of the record, as in Kafka Connect: brokers refuse one that is far ahead of their clock.
    The text is not in it: it is private data. The hash of a short value can be guessed, so who may
    read the topic matters all the same.

    Letters are durable when `flush` returns. A letter is written once unless the connection has
    to be replaced or the process ends before `flush`: then it may be there twice, with the same
    key. Time O(bytes) a letter, about 50 us; memory at most about twice `max_pending_bytes`.

    The topic is made with one partition and the brokers' settings if it is missing.
    `request_timeout_seconds` is the longest wait for the brokers when connecting, and when too much
    is pending; the other options are those of `streamlda_connectors.kafka.writing.TopicWriter`.

    After an error nothing that was put is lost: the next call tries again. Not safe for several
    threads.
    """

    what = "dead letter"

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
        """Write a letter about `record`, without waiting unless too much is pending.

        Raises `SinkAwayError`, and does not put the record, if the brokers refuse, or too much
        is still pending after `request_timeout_seconds`; `SourceError` if the letters are closed.
        """
        # Letters about letters would never end.
        require(
            record.topic != self._settings.topic,
            "dead letters must have a topic of their own, which is not read as well",
            topic=self._settings.topic,
            remedy="name another one",
        )
        message = _write_letter(record, reason)
        n_bytes = message.n_bytes + LETTER_BYTES
        room = max(0, self._max_pending - n_bytes)
        self._settle(room, monotonic() + self._settings.request_timeout_seconds)
        try:
            delivery = self._send(message)
        except self._kafka.errors.KafkaError as error:
            raise self._give_up(error) from error
        self._pending.append(_Letter(message, n_bytes, delivery))
        self._pending_bytes += n_bytes

    def flush(self, timeout_seconds: float) -> None:
        """Wait until all in-sync replicas have every letter that was put.

        After a `SinkAwayError` (refused, or not in time) the next call goes on with the letters.
        """
        self._settle(0, monotonic() + timeout_seconds)

    def _settle(self, wanted_bytes: int, deadline: float) -> None:
        """Forget what the brokers have; wait until at most `wanted_bytes` are pending."""
        self._check_open()
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
            late = failure(
                "the brokers must take dead letters in time",
                topic=self._settings.topic,
                pending=len(self._pending),
                pending_bytes=self._pending_bytes,
                remedy="check that they run and that all in-sync replicas answer, then try again",
                error=SinkAwayError,
            )
            assert isinstance(late, SinkAwayError)
            late.reason = NO_ANSWER
            raise late

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
        return failure(
            "the brokers must take dead letters",
            topic=self._settings.topic,
            pending=len(self._pending),
            problem=type(error).__name__,
            remedy="check the topic, its max.message.bytes and the access rules, then try again",
            # Where no restart is needed, only somebody who corrects the topic.
            error=SinkAwayError,
        )


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
    headers = (
        ("__connect.errors.topic", record.topic.encode()),
        ("__connect.errors.partition", b"%d" % record.partition),
        ("__connect.errors.offset", b"%d" % record.offset),
        ("__connect.errors.exception.message", reason.encode()),
        ("streamlda.sha256", digest.encode()),
    )
    key = f"{record.topic}/{record.partition}/{record.offset}".encode()
    time = None if record.timestamp_ms < 0 else record.timestamp_ms
    return Message(key, orjson.dumps(reference), headers, time)


@dataclass(slots=True, eq=False)
class _Letter:
    """A message that waits for the brokers."""

    message: Message
    n_bytes: int
    #: Future of the package.
    delivery: Any
