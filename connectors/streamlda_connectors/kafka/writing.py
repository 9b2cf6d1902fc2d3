"""Topics that are written: dead letters, and answers to documents of a group."""

import hashlib
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

import orjson

from streamlda.errors import SinkAwayError, SourceAwayError
from streamlda.stream.source import Answer, KeyedBatch
from streamlda_connectors.checks import check_open, fault, with_reason
from streamlda_connectors.kafka.connection import CLOSE_SECONDS, NO_ANSWER, Brokers, milliseconds
from streamlda_connectors.kafka.partitions import Broken, Record
from streamlda_connectors.kafka.security import ClientSettings, Security
from streamlda_connectors.kafka.source import GROUP, KafkaSource

#: Most letters that wait for the brokers; one takes 2 KB, unless the name of its topic is long.
MOST_PENDING = 4096

#: For how long the open transaction of a member that was killed holds readers up.
TRANSACTION_SECONDS = 15.0

#: Arguments of the package for one record: messages of one key go to one partition.
Message = dict[str, Any]


class DeadLetters:
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

    With ``message.timestamp.type=LogAppendTime`` brokers keep letters about old records as long as
    others. The topic must exist. Options are `bootstrap_servers` and `request_timeout_seconds`, the
    longest wait for them.

    A delivery never times out, so a broker that comes back gets each letter once.
    """

    def __init__(
        self, topic: str, *, security: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        by = Security(**(security or {}))
        self._settings = ClientSettings(topic=topic, security=by, **options)
        self._brokers = Brokers(self._settings, "writing to Kafka")
        self._kafka = self._brokers.kafka
        self._closed = False
        #: Messages that wait for the brokers, and the future of the package of each.
        self._pending: deque[tuple[Message, Any]] = deque()
        self._producer: Any = None
        self._connect()

    def close(self) -> None:
        """Close the connection; what is not durable may be lost. Closing twice is allowed."""
        self._closed = True
        self._drop_producer()

    def put(self, record: Record, reason: str) -> None:
        """Write a letter about `record`; `SinkAwayError` if it is refused or many wait."""
        value = record.value or b""
        digest = hashlib.sha256(value).hexdigest()
        at = {"topic": record.topic, "partition": record.partition, "offset": record.offset}
        about = {"reason": reason, "bytes": len(value), "sha256": digest}
        headers = {f"__connect.errors.{name}": str(part) for name, part in at.items()}
        headers |= {"__connect.errors.exception.message": reason, "streamlda.sha256": digest}
        letter = {
            "key": f"{record.topic}/{record.partition}/{record.offset}".encode(),
            "value": orjson.dumps({**at, "timestamp_ms": record.timestamp_ms, **about}),
            "headers": [(name, text.encode()) for name, text in headers.items()],
            "timestamp_ms": None if record.timestamp_ms < 0 else record.timestamp_ms,
        }
        self._write(MOST_PENDING - 1, self._settings.request_timeout_seconds, [letter])

    def flush(self, timeout_seconds: float) -> None:
        """Wait until all in-sync replicas have every letter; call it again after an error."""
        self._write(0, timeout_seconds, [])

    def _write(self, most: int, seconds: float, letters: Sequence[Message]) -> None:
        topic = self._settings.topic
        try:
            if (n_pending := self._settle(most, seconds)) > most:
                raise with_reason(fault("letters late", topic=topic, pending=n_pending), NO_ANSWER)
            for letter in letters:
                self._connect()
                self._pending.append((letter, self._producer.send(topic, **letter)))
        except SinkAwayError:
            raise
        except (self._kafka.errors.KafkaError, SourceAwayError) as error:
            # It is the letters that are away, and not the source whose poll puts them.
            self._drop_producer()
            problem = getattr(error, "reason", "") or type(error).__name__
            about = {"pending": len(self._pending), "problem": problem}
            raise fault("letters refused", topic=topic, **about) from error

    def _connect(self) -> None:
        """Without a producer, make one, and send what is pending."""
        check_open(self._closed)
        if self._producer is not None:
            return
        topic = self._settings.topic
        with self._brokers.open_connection() as shared:
            self._brokers.describe(shared, topic)
            producer = self._brokers.make_producer(
                shared,
                acks="all",
                enable_idempotence=True,
                delivery_timeout_ms=2**31 - 1,  # The longest: 24 days.
            )
        try:
            with self._brokers.name_errors("do not name the partitions of the topic"):
                # Else the first message would wait for this.
                producer.partitions_for(topic)
            again = [(row, producer.send(topic, **row)) for row, _ in self._pending]
        except BaseException:
            close_producer(self._kafka, producer)
            raise
        self._producer, self._pending = producer, deque(again)

    def _settle(self, most: int, seconds: float) -> int:
        """Wait until at most `most` messages are pending; return how many, or raise a refusal."""
        check_open(self._closed)
        deadline = monotonic() + seconds
        while self._pending:
            self._connect()
            _, future = self._pending[0]
            wait = 0.0 if len(self._pending) <= most else deadline - monotonic()
            try:
                future.get(max(0.0, wait))
            except self._kafka.errors.KafkaError:
                # It may be done since a time-out. Of a refusal the package fails all that waits.
                if future.failed():
                    raise
                if not future.is_done:
                    break
            self._pending.popleft()
        return len(self._pending)

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


class KafkaExchange:
    """Read documents from a topic as a member of a consumer group, and write answers to another.

    Answers and the offsets of the group after their documents are written in one transaction: who
    reads the answers with ``isolation.level=read_committed`` sees one of each document, whatever
    dies. Members share the partitions. An answer has the key of its document, and goes to its
    partition (modulo those of `output_topic`), in the order of the documents.

    1. Partitions that others are to have stay with this member until the next poll, so until the
       answers to all that was read of them are written.
    2. Partitions that are new here are read from the offset of the group on.
    3. The brokers refuse a transaction of a member that they have put out of the group.

    After an error, and where `commit` returns False, it is of no use any more: open another, which
    resumes where the group stands. Not safe for several threads.

    Parameters
    ----------
    topic, output_topic : str
        The topics to read and to write; both must exist.
    group : str
        The consumer group.
    **options
        As of `KafkaSource`; `start` says where a group begins that has no offset.

    Raises
    ------
    SourceError
        If the brokers cannot be reached or refuse, or a topic does not exist.
    InvalidSettingError, MissingExtraError
        For an option out of range; if the extra `kafka` is not installed.
    """

    def __init__(self, topic: str, output_topic: str, *, group: str, **options: Any) -> None:
        self._topic, self._output = topic, output_topic
        self._in_transaction = self._closed = False
        self._producer: Any = None
        self._start = options.get("start", "earliest")
        #: What is read; its `lag` and `lost` are for display.
        self.source = KafkaSource(topic, partitions=GROUP, group=group, **options)
        self._member: Any = self.source.member
        self._brokers = Brokers(self.source.settings, "writing to Kafka")
        self._kafka = self._brokers.kafka
        try:
            with self._brokers.open_connection() as shared:
                self._n_partitions = len(self._brokers.describe(shared, output_topic)[1])
                self._producer = self._brokers.make_producer(
                    shared,
                    # Stale members are fenced by their generation, so each process has its own.
                    transactional_id=f"{group}-{uuid.uuid4().hex}",
                    transaction_timeout_ms=milliseconds(TRANSACTION_SECONDS),
                    delivery_timeout_ms=milliseconds(TRANSACTION_SECONDS),
                )
                self._producer.init_transactions()
        except BaseException:
            self.close()
            raise

    def poll(self, max_records: int, timeout_seconds: float = 1.0) -> KeyedBatch:
        """Return the records that have come, waiting at most `timeout_seconds` for one.

        Raises `SourceAwayError` if none came, and the brokers have not answered for long.
        """
        check_open(self._closed)
        for numbers, done in self._member.handovers():  # 1
            self.source.give_up(numbers)
            done.set()
        read = {int(number) for number in self.source.position()["offsets"]}
        new = set(self._member.get_assignment().partitions - read)
        if new:
            of_group = self._member.find_entries(new)
            begins = {n: of_group[n].offset if n in of_group else None for n in new}
            self.source.take(begins, self._start)  # 2
        batch = self.source.gather(max_records, timeout_seconds)
        if batch.empty and (seconds := self.source.silent()):
            away = fault("answer", topic=self._topic, silent_seconds=round(seconds, 1))
            raise with_reason(away, self.source.reason())
        return KeyedBatch(batch.build(self.source.options), batch.keys)

    def commit(self, answers: Sequence[Answer]) -> bool:
        """Write answers, and the offsets after all that `poll` returned, in one transaction.

        Returns False, with nothing written, if the partitions belong to another member by now.
        """
        check_open(self._closed)
        errors, membership = self._kafka.errors, self._member.consumer.group_metadata()
        try:
            if membership.generation_id >= 0 and membership.member_id:
                self._write(answers, membership)  # 3
                return True
        except errors.CommitFailedError:
            pass
        except (errors.KafkaError, ValueError, Broken) as error:
            self.close()
            raise self._brokers.make_error("do not take answers", error) from error
        self.close()
        return False

    def _write(self, answers: Sequence[Answer], membership: Any) -> None:
        producer, offsets = self._producer, self._brokers.entries(self.source.offsets())
        producer.begin_transaction()
        self._in_transaction = True
        sent = []
        for each in answers:
            partition = each.partition % self._n_partitions
            sent.append(producer.send(self._output, each.value, key=each.key, partition=partition))
        producer.flush(TRANSACTION_SECONDS)
        for future in sent:
            # A transaction may be committed though the package dropped a message of it.
            future.get(0)
        manager, most_ms = producer._transaction_manager, self._brokers.timeout_ms
        self._wait_for(manager.send_offsets_to_transaction(offsets, membership), most_ms)
        self._wait_for(manager.begin_commit(), most_ms)
        self._in_transaction = False

    def _wait_for(self, result: Any, most_ms: int) -> None:
        """Wait for a step of a transaction; the package's own methods wait without end."""
        self._producer._sender.wakeup()
        if not result.wait(most_ms):
            raise self._kafka.errors.KafkaTimeoutError("transaction")

    def close(self) -> None:
        """Close the connections, and leave the group. Closing twice is allowed."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._producer is not None:
                if self._in_transaction:
                    # So that no reader waits; else the brokers do it in TRANSACTION_SECONDS.
                    manager = self._producer._transaction_manager
                    with suppress(self._kafka.errors.KafkaError):
                        self._wait_for(manager.begin_abort(), milliseconds(CLOSE_SECONDS))
                close_producer(self._kafka, self._producer)
        finally:
            self.source.close()
