"""Reads a topic as a member of a group and writes an answer to each document, exactly once."""

from __future__ import annotations

import logging
import uuid
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import Any

from streamlda.checks import one_of, require
from streamlda.errors import SourceError, SourceRefusedError
from streamlda.stream.sink import Answer, Received
from streamlda_connectors.checks import check, check_open
from streamlda_connectors.kafka.client import Broken, ClientSettings, OutOfRange, Run
from streamlda_connectors.kafka.connection import (
    CLOSE_SECONDS,
    connecting,
    milliseconds,
    refused,
)
from streamlda_connectors.kafka.consumer import Client, described
from streamlda_connectors.kafka.decoding import Decoding, OnReject
from streamlda_connectors.kafka.partitions import after_gap
from streamlda_connectors.kafka.registry import Registry
from streamlda_connectors.kafka.security import Security
from streamlda_connectors.kafka.writing import BATCH_BYTES, LINGER_SECONDS, close_producer
from streamlda_connectors.records import MAX_DOCUMENT_BYTES, BatchBuilder, ReadOptions

logger = logging.getLogger(__name__)

#: After a kill, for how long its partitions stay with it, and its open transaction with readers.
SESSION_SECONDS, TRANSACTION_SECONDS = 10.0, 15.0

#: A broker that has not answered for this long is away.
SILENT_SECONDS = 10.0


class GroupMember(Client):
    """A client whose partitions are those that the group gives it."""

    def __init__(self, settings: ClientSettings) -> None:
        super().__init__(
            settings,
            # Also where the group begins at the end: what retention has removed is counted from
            # the first record that is left.
            auto_offset_reset="earliest",
            session_timeout_ms=milliseconds(SESSION_SECONDS),
            heartbeat_interval_ms=milliseconds(SESSION_SECONDS) // 3,
        )
        self._since: dict[int, float] = {}
        self._consumer.subscribe([settings.topic])

    def poll(self, timeout_seconds: float, max_records: int) -> list[Run]:
        """As that of a client; takes part in the group, so its partitions may be others then."""
        found = super().poll(timeout_seconds, max_records)
        now = monotonic()
        self._assigned = {part.partition: part for part in self._consumer.assignment()}
        self._since = {number: self._since.get(number, now) for number in self._assigned}
        return found

    def held(self) -> dict[int, float]:
        """Return the partitions that the group gave it, and since when."""
        return self._since

    def committed(self, number: int) -> int | None:
        """Return the next offset of a partition by the group; None if it has none."""
        timeout = milliseconds(self._settings.request_timeout_seconds)
        try:
            found: int | None = self._consumer.committed(
                self._partition(number), timeout_ms=timeout
            )
        except self._kafka.errors.KafkaError as error:
            raise refused(self._settings, "tell the offsets of the group", error) from error
        return found

    def go_to(self, number: int, offset: int) -> None:
        """Read a partition from an offset on."""
        self._consumer.seek(self._partition(number), offset)

    def silent(self) -> dict[int, float]:
        """Return for how many seconds the broker of each partition has not answered."""
        now, answers = monotonic(), self.answered()
        return {n: now - max(since, answers[n] or 0.0) for n, since in self._since.items()}

    def membership(self) -> Any:
        """Return what shows the brokers that this member still is one."""
        return self._consumer.group_metadata()

    @property
    def heard(self) -> float:
        """When any broker answered anything, by ``time.monotonic``."""
        return self._heard


class KafkaExchange:
    """Read documents from a topic as a member of a consumer group, and write answers to another.

    Answers and the offsets of the group after their documents are written in one transaction: who
    reads the answers with ``isolation.level=read_committed`` sees one of each document, whatever
    dies. Members share the partitions. An answer has the key of its document, and goes to its
    partition (modulo those of `output_topic`), in the order of the documents.

    After an error, and where `commit` returns False, it is of no use any more: open another, which
    goes on where the group stands. Memory O(brokers * 8 MiB + one poll and its answers). Not safe
    for several threads.

    Parameters
    ----------
    topic, output_topic : str
        What is read and written; both must exist, and be two.
    group : str
        The consumer group.
    bootstrap_servers, start, format, text_field, id_field, max_document_bytes, allow_gaps, \
on_reject, registry, security
        As of `KafkaSource`. `start` says where a group begins that has no offset.

    Raises
    ------
    SourceError
        If the brokers cannot be reached or refuse, or a topic does not exist.
    InvalidSettingError, MissingExtraError
        For an option out of range; if the extra `kafka` is not installed.
    """

    def __init__(
        self,
        topic: str,
        output_topic: str,
        *,
        group: str,
        bootstrap_servers: str,
        start: str = "earliest",
        format: str = "jsonl",
        text_field: str = "text",
        id_field: str | None = None,
        max_document_bytes: int = MAX_DOCUMENT_BYTES,
        allow_gaps: bool = False,
        on_reject: OnReject | None = None,
        registry: Registry | Mapping[str, Any] | None = None,
        security: Security | Mapping[str, Any] | None = None,
    ) -> None:
        one_of(("earliest", "latest"), start=start)
        check(topic != output_topic, "answers topic", topic=topic)
        options = ReadOptions(text_field, max_document_bytes, None, None, id_field)
        schemas = None if registry is None else Registry.of(registry)
        self._decoding = Decoding(topic, format, options, on_reject, schemas)
        self._settings = ClientSettings(
            bootstrap_servers, topic, group, security=Security.of(security)
        )
        self._output, self._allow_gaps, self._start = output_topic, allow_gaps, start
        self._pending: deque[Run] = deque()
        self._next: dict[int, int] = {}
        self._keys: dict[tuple[str, int], bytes | None] = {}
        self._held: dict[int, float] = {}
        self._membership: Any = None
        self._lost = 0
        self._in_transaction = self._closed = False
        self._member = GroupMember(self._settings)
        self._producer: Any = None
        try:
            self._open_producer()
        except BaseException:
            self.close()
            raise

    def _open_producer(self) -> None:
        kafka, settings = self._member._kafka, self._settings
        timeout = milliseconds(settings.request_timeout_seconds)
        with connecting(kafka, settings) as shared:
            self._n_partitions = len(described(kafka, shared, self._output)[1])
            self._producer = kafka.KafkaProducer(
                **shared,
                # Stale members are fenced by their generation, so each process has its own.
                transactional_id=f"{settings.group}-{uuid.uuid4().hex}",
                transaction_timeout_ms=milliseconds(TRANSACTION_SECONDS),
                delivery_timeout_ms=milliseconds(TRANSACTION_SECONDS),
                linger_ms=milliseconds(LINGER_SECONDS),
                batch_size=BATCH_BYTES,
                max_block_ms=timeout,
                metrics_enabled=False,
            )
            self._producer.init_transactions()

    def poll(self, max_records: int, timeout_seconds: float = 1.0) -> Received:
        """Return the records that have come, waiting at most `timeout_seconds` for one."""
        check_open(self._closed)
        batch = BatchBuilder(max_records, timeout_seconds)
        if not self._pending:
            self._fetch(max_records, timeout_seconds)
        self._decoding.take(batch, self._pending, self._next)
        found = batch.build(exhausted=False)
        keys = [self._keys.pop((at.location, at.record), None) for at in found.locations]
        return Received(found, keys)

    def _fetch(self, max_records: int, timeout_seconds: float) -> None:
        try:
            runs = self._member.poll(timeout_seconds, max_records)
        except (OutOfRange, Broken) as error:
            raise SourceError(
                f"records must be readable, got topic={self._settings.topic} "
                f"problem={type(error).__name__}; check the disks of the brokers"
            ) from error
        self._keys.clear()
        # As of this poll: one that was put out of the group since must not write as nobody.
        self._membership = self._member.membership()
        held = self._member.held()
        for number in held.keys() - self._held.keys():
            self._next.pop(number, None)
            if self._start == "latest" and self._member.committed(number) is None:
                self._next[number] = end = self._member.bounds({number})[number].end
                self._member.go_to(number, end)
                runs = [run for run in runs if run.partition != number]
        self._next = {n: at for n, at in self._next.items() if n in held}
        for run in runs:
            number, first = run.partition, run.offsets[0]
            at = self._next.get(number)
            # What the group has last, of a partition that is new here.
            at = self._member.committed(number) if at is None else at
            self._next[number] = first if at in (None, first) else self._check(number, at, first)
            location = f"{self._settings.topic}/{number}"
            for i, offset in enumerate(run.offsets):
                self._keys[location, offset + 1] = run.record(i).key
        self._held = dict(held)
        self._pending.extend(runs)

    def _check(self, number: int, at: int, read: int) -> int:
        """Return where to go on from `at`, where the client has read another offset.

        Records that were removed before they were read, or that a log lost, are refused or counted.
        """
        bounds = self._member.bounds({number})[number]
        if at < read and bounds.first <= at:
            return read  # Marks of transactions, or what compaction removed.
        cut = at > read
        rule = "not be cut before what was read of it" if cut else "hold the next record"
        require(
            self._allow_gaps,
            f"the log of a partition must {rule}",
            topic=self._settings.topic,
            partition=number,
            offset=at,
            log=f"{bounds.first}..{bounds.end}",
            remedy="records were removed: start with allow_gaps to go on without them",
            # The log may have what comes next: a new member asks the group again.
            error=SourceError if cut and at <= bounds.end else SourceRefusedError,
        )
        to, lost = after_gap(at, bounds)
        self._lost += lost
        if to != at:
            logger.warning(
                "gap: topic %s partition %d goes on at offset %d, %d records lost",
                *(self._settings.topic, number, to, lost),
            )
        return to

    def commit(self, answers: Sequence[Answer]) -> bool:
        """Write answers, and the offsets after all that `poll` returned, in one transaction.

        Returns False, with nothing written, if the partitions belong to another member by now.
        Raises `SourceError` if it is not known to be written: then it is, or will not be.
        """
        check_open(self._closed)
        errors = self._member._kafka.errors
        if self._membership.generation_id < 0 or not self._membership.member_id:
            self.close()
            return False
        try:
            self._write(answers)
        except errors.CommitFailedError:
            self.close()
            return False
        except (errors.KafkaError, ValueError, Broken) as error:
            self.close()
            raise refused(self._settings, "take answers", error) from error
        return True

    def _write(self, answers: Sequence[Answer]) -> None:
        kafka, producer = self._member._kafka, self._producer
        seconds = self._settings.request_timeout_seconds
        waiting, read = {run.partition for run in self._pending}, self._member.positions()
        entry = kafka.structs.OffsetAndMetadata
        offsets = {
            kafka.TopicPartition(self._settings.topic, n): entry(
                at if n in waiting else max(at, read.get(n, at)), "", -1
            )
            for n, at in self._next.items()
        }
        producer.begin_transaction()
        self._in_transaction = True
        sent = [
            producer.send(
                self._output,
                each.value,
                key=each.key,
                partition=each.partition % self._n_partitions,
            )
            for each in answers
        ]
        producer.flush(TRANSACTION_SECONDS)
        for future in sent:
            # A transaction may be committed though the package dropped a message of it.
            future.get(0)
        manager = producer._transaction_manager
        for begin in (
            lambda: manager.send_offsets_to_transaction(offsets, self._membership),
            manager.begin_commit,
        ):
            # The package's own methods wait without end.
            result = begin()
            producer._sender.wakeup()
            if not result.wait(milliseconds(seconds)):
                raise kafka.errors.KafkaTimeoutError("transaction")
        self._in_transaction = False

    def _abort(self) -> None:
        """Abort the open transaction, so that no reader waits for it."""
        if not self._in_transaction:
            return
        # Without an answer, the brokers do it in TRANSACTION_SECONDS.
        with suppress(self._member._kafka.errors.KafkaError):
            result = self._producer._transaction_manager.begin_abort()
            self._producer._sender.wakeup()
            result.wait(milliseconds(CLOSE_SECONDS))

    def check_answers(self) -> None:
        """Raise `SourceAwayError` if the brokers have not answered for `SILENT_SECONDS`."""
        silent = self._member.silent()
        seconds = max(silent.values(), default=monotonic() - self._member.heard)
        values = {"topic": self._settings.topic, "silent_seconds": round(seconds, 1)}
        check(seconds <= SILENT_SECONDS, "answer", **values)

    def lag(self) -> dict[int, int | None]:
        """Return how many offsets each partition held is behind its end; None if not known."""
        try:
            read, ends, silent = (
                *(self._member.positions(), self._member.ends()),
                self._member.silent(),
            )
        except Broken:
            return dict.fromkeys(self._held)
        waiting = {run.partition for run in self._pending}
        read |= {n: at for n, at in self._next.items() if n in waiting}
        return {
            n: max(0, ends[n] - at) if n in ends and silent[n] <= SILENT_SECONDS else None
            for n, at in read.items()
        }

    def lost(self) -> int:
        """Return how many records were gone before they were read."""
        return self._lost

    def close(self) -> None:
        """Close the connections, and leave the group. Closing twice is allowed."""
        if self._closed:
            return
        self._closed = True
        try:
            if self._producer is not None:
                self._abort()
                close_producer(self._member._kafka, self._producer)
        finally:
            self._member.close()
