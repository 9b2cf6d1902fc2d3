"""Answers to the documents of a topic that the members of a group share, exactly once."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from streamlda.stream.source import Answer, Received
from streamlda_connectors.checks import check_open, fault, with_reason
from streamlda_connectors.kafka.connection import (
    CLOSE_SECONDS,
    connecting,
    load,
    milliseconds,
    refused,
)
from streamlda_connectors.kafka.consumer import described
from streamlda_connectors.kafka.group import GroupMember
from streamlda_connectors.kafka.partitions import Broken
from streamlda_connectors.kafka.source import GROUP, KafkaSource
from streamlda_connectors.kafka.writing import BATCH_BYTES, LINGER_SECONDS, close_producer

#: For how long the open transaction of a member that was killed holds readers up.
TRANSACTION_SECONDS = 15.0


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
        self._topic, self._output, self._group = topic, output_topic, group
        self._kafka = load("writing to Kafka")
        self._in_transaction = self._closed = False
        self._producer: Any = None
        self._start = options.get("start", "earliest")
        self._source = KafkaSource(topic, partitions=GROUP, group=group, **options)
        self._settings = self._source.settings
        try:
            self._open_producer()
        except BaseException:
            self.close()
            raise

    def _open_producer(self) -> None:
        kafka = self._kafka
        with connecting(kafka, self._settings) as shared:
            self._n_partitions = len(described(kafka, shared, self._output)[1])
            self._producer = kafka.KafkaProducer(
                **shared,
                # Stale members are fenced by their generation, so each process has its own.
                transactional_id=f"{self._group}-{uuid.uuid4().hex}",
                transaction_timeout_ms=milliseconds(TRANSACTION_SECONDS),
                delivery_timeout_ms=milliseconds(TRANSACTION_SECONDS),
                linger_ms=milliseconds(LINGER_SECONDS),
                batch_size=BATCH_BYTES,
                max_block_ms=milliseconds(self._settings.request_timeout_seconds),
                metrics_enabled=False,
            )
            self._producer.init_transactions()

    @property
    def _member(self) -> GroupMember:
        assert self._source.member is not None
        return self._source.member

    def poll(self, max_records: int, timeout_seconds: float = 1.0) -> Received:
        """Return the records that have come, waiting at most `timeout_seconds` for one."""
        check_open(self._closed)
        for numbers, done in self._member.handovers():  # 1
            self._source.give_up(numbers)
            done.set()
        read = {int(number) for number in self._source.position()["offsets"]}
        new = set(self._member.assigned().partitions - read)
        if new:
            begins = dict.fromkeys(new) | self._member.committed(new)
            self._source.take(begins, self._start)  # 2
        batch = self._source.gather(max_records, timeout_seconds)
        return Received(batch.build(exhausted=False), batch.keys)

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
            raise refused(self._settings, "take answers", error) from error
        self.close()
        return False

    def _write(self, answers: Sequence[Answer], membership: Any) -> None:
        kafka, producer = self._kafka, self._producer
        entry = kafka.structs.OffsetAndMetadata
        offsets = {
            kafka.TopicPartition(self._topic, number): entry(at, "", -1)
            for number, at in self._source.offsets().items()
        }
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
        manager, seconds = producer._transaction_manager, self._settings.request_timeout_seconds
        self._wait_for(manager.send_offsets_to_transaction(offsets, membership), seconds)
        self._wait_for(manager.begin_commit(), seconds)
        self._in_transaction = False

    def _wait_for(self, result: Any, seconds: float) -> None:
        """Wait for a step of a transaction; the package's own methods wait without end."""
        self._producer._sender.wakeup()
        if not result.wait(milliseconds(seconds)):
            raise self._kafka.errors.KafkaTimeoutError("transaction")

    def check_answers(self) -> None:
        """Raise `SourceAwayError` if the brokers have not answered for long."""
        if seconds := self._source.silent():
            away = fault("answer", topic=self._topic, silent_seconds=round(seconds, 1))
            raise with_reason(away, self._source.reason())

    def lag(self) -> dict[int, int | None]:
        """Return how many offsets each partition held is behind its end; None if not known."""
        return self._source.lag()

    def lost(self) -> int:
        """Return how many records were gone before they were read."""
        return self._source.lost()["records"]

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
                        self._wait_for(manager.begin_abort(), CLOSE_SECONDS)
                close_producer(self._kafka, self._producer)
        finally:
            self._source.close()
