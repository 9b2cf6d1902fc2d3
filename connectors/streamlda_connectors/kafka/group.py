"""A member of the consumer group that shares a topic: its partitions, and offsets of the group.

Only the membership goes through the group. Records are fetched by another client, from offsets of
our own, so that a client that has to be replaced moves no partition.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from threading import Event, Thread
from time import monotonic, sleep
from typing import Any, NamedTuple

from streamlda_connectors.kafka.connection import (
    CLOSE_SECONDS,
    Endings,
    asking,
    connecting,
    is_away,
    load,
    milliseconds,
    refused,
)
from streamlda_connectors.kafka.security import ClientSettings

logger = logging.getLogger(__name__)

#: A member that was not heard of for so long is dead: its partitions move.
SESSION_SECONDS = 10.0

#: How long a member may take to give partitions up, and between two polls.
REBALANCE_SECONDS = 60.0

#: How often the member that assigns looks for new partitions of the topic.
REFRESH_SECONDS = 10.0

#: How long a poll waits. What an answer to joining says is lost if it comes between two polls, and
#: the client joins once more: so they follow each other at once, in a thread of their own.
POLL_SECONDS = 0.5

#: How often it is looked whether partitions were given up, in seconds.
STEP_SECONDS = 0.02


class Assignment(NamedTuple):
    """The partitions that are ours, and the generation of the group that says so, if one does."""

    partitions: frozenset[int] = frozenset()
    generation: int | None = None


class GroupMember:
    """Joins the group of the settings, by the cooperative protocol, in a thread of its own.

    While brokers are away, what is ours stays ours. Partitions that others are to have come from
    `handovers`: they wait until that is done, unless the group takes us for dead.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        self._timeout = milliseconds(settings.request_timeout_seconds)
        self._kafka = kafka = load("reading from Kafka")
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor

        self._assignment = Assignment()
        self._handovers: SimpleQueue[tuple[set[int], Event]] = SimpleQueue()
        self._error: Exception | None = None
        self._closed = False
        self._answered = monotonic()
        self._endings = Endings()
        with connecting(kafka, settings, self._endings) as shared:
            refresh = min(REFRESH_SECONDS, settings.refresh_seconds)
            #: The consumer of the package, which fetches nothing.
            self.consumer = kafka.KafkaConsumer(
                **{**shared, "metadata_max_age_ms": max(1, milliseconds(refresh))},
                group_id=settings.group,
                enable_auto_commit=False,
                metrics_enabled=False,
                # So that offsets of the group wait for open transactions.
                isolation_level="read_committed",
                auto_offset_reset="latest",
                partition_assignment_strategy=[CooperativeStickyAssignor],
                session_timeout_ms=milliseconds(SESSION_SECONDS),
                heartbeat_interval_ms=milliseconds(SESSION_SECONDS / 4),
                max_poll_interval_ms=milliseconds(REBALANCE_SECONDS),
            )
            self.consumer.subscribe([settings.topic], listener=self._listener())
        self._thread = Thread(target=self._stay, name="streamlda-member", daemon=True)
        self._thread.start()

    def _listener(self) -> Any:
        member, wait = self, self.consumer._client._manager._net.sleep

        class Listener(self._kafka.AsyncConsumerRebalanceListener):  # type: ignore[misc, name-defined]
            # Of partitions that are lost too.
            async def on_partitions_revoked(self, revoked: Any) -> None:
                numbers, done = {part.partition for part in revoked}, Event()
                member._note(member._assignment.partitions - numbers)
                member._handovers.put((numbers, done))
                # The loop of the package continues to say that this member is alive.
                while not (done.is_set() or member._closed):
                    await wait(STEP_SECONDS)

            async def on_partitions_assigned(self, assigned: Any) -> None:
                for part in assigned:
                    # Where it stands does not matter, but without a place it is looked for.
                    member.consumer.seek(part, 0)
                member.consumer.pause(*assigned)
                numbers = {part.partition for part in assigned}
                member._note(member._assignment.partitions | numbers)

        return Listener()

    def handovers(self) -> Iterator[tuple[set[int], Event]]:
        """Yield partitions that others are to have, and what is to be set once they can."""
        while True:
            try:
                yield self._handovers.get_nowait()
            except Empty:
                return

    def _note(self, partitions: frozenset[int]) -> None:
        generation = self.consumer.group_metadata().generation_id
        self._assignment = Assignment(partitions, generation if generation >= 0 else None)

    def _stay(self) -> None:
        """Look after the membership until the end."""
        while not self._closed:
            try:
                self.consumer.poll(milliseconds(POLL_SECONDS), 1)
                self._note(self._assignment.partitions)
            except Exception as error:
                if self._closed:
                    return
                if not is_away(self._kafka.errors, error):
                    self._error = error
                    return
                sleep(POLL_SECONDS)
            if self.consumer._coordinator.coordinator_id is not None:
                self._answered = monotonic()

    def silent(self) -> float:
        """Return for how many seconds no broker has looked after the group; 0 if one does."""
        silent = monotonic() - self._answered
        return silent if silent > self._settings.request_timeout_seconds else 0.0

    def reason(self) -> str:
        """Return why no broker looks after the group."""
        return self._endings.reason(self._answered)

    def assigned(self) -> Assignment:
        """Return what is ours. Raises `SourceError` if the brokers do not let us join."""
        if self._error is not None:
            rule = "let it join the group"
            raise refused(self._settings, rule, self._error, self._endings) from self._error
        return self._assignment

    def committed(self, partitions: set[int]) -> dict[int, int]:
        """Return the next offset of each partition by the group, of those that have one."""
        parts = [self._kafka.TopicPartition(self._settings.topic, n) for n in partitions]
        with asking(self._settings, "tell the offsets of the group", self._endings):
            known = self.consumer.committed
            found = {p.partition: known(p, timeout_ms=self._timeout) for p in parts}
        return {number: at for number, at in found.items() if at is not None}

    def confirm(self, partition: int) -> bool:
        """Return whether the group takes offsets of a partition from our generation."""
        part = self._kafka.TopicPartition(self._settings.topic, partition)
        entry = self._kafka.structs.OffsetAndMetadata(0, "", -1)
        try:
            self.consumer.commit({part: entry}, timeout_ms=self._timeout)
        except self._kafka.errors.KafkaError as error:
            logger.warning("the group does not confirm a partition (%s)", type(error).__name__)
            return False
        return True

    def close(self) -> None:
        """Leave the group. Closing twice is allowed."""
        self._closed = True
        self._thread.join(CLOSE_SECONDS)
        self.consumer.close(autocommit=False, timeout_ms=milliseconds(CLOSE_SECONDS))
