"""Shares of several sites in a topic that keeps all: written one by one, and read back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from time import monotonic
from typing import Any

from streamlda.checks import failure, require
from streamlda.errors import SourceError
from streamlda_connectors.kafka.client import Bounds, Broken, Client, Connect, OutOfRange, Record
from streamlda_connectors.kafka.kafka_python import KafkaPythonClient
from streamlda_connectors.kafka.kafka_python_producer import MAX_REQUEST_BYTES
from streamlda_connectors.kafka.values import ValueTopic

#: Longest that one poll waits, and the most records it brings.
POLL_SECONDS, POLL_RECORDS = 0.5, 100


class ShareTopic(ValueTopic):
    """Publish values under keys, and read all that a topic has; connected when it is used.

    If the topic is missing, `publish` makes it with one partition, ``retention.ms=-1`` (nothing is
    removed by age) and ``max.message.bytes`` of 100 MiB. `request_timeout_seconds` is the longest
    wait for the brokers: when connecting, for each value that is written, and for the next one that
    is read. `connect_client` makes a client to read with; the other options are those of
    `streamlda_connectors.kafka.values.TopicWriter`.

    A compacted topic is refused: of two values under one key it would hide the older one, and a
    reader could not tell that there were two. Not safe for several threads.
    """

    what = "share"
    if_too_large = "or hand the share over as a file"
    made_with = {  # noqa: RUF012 - the base says ClassVar
        "cleanup.policy": "delete",
        "retention.ms": "-1",
        "max.message.bytes": str(MAX_REQUEST_BYTES),
    }

    def __init__(
        self,
        topic: str,
        *,
        request_timeout_seconds: float = 60.0,
        connect_client: Connect = KafkaPythonClient,
        **options: Any,
    ) -> None:
        super().__init__(topic, request_timeout_seconds=request_timeout_seconds, **options)
        self._connect_client = connect_client

    def _check_policy(self, policy: str) -> None:
        # Without the right to see the policy, the topic is taken as it is: nothing is lost by it.
        require(
            "compact" not in policy.split(","),
            "a topic of shares must keep all of them",
            topic=self._settings.topic,
            **{"cleanup.policy": policy},
            remedy="set it to delete with kafka-configs, or name a topic that is not there yet",
            error=SourceError,
        )

    def read(self) -> Iterator[Record]:
        """Yield the records of all partitions, from the beginning to what is their end now.

        In the order of the log within a partition; those of one key are in one partition. Time
        O(bytes); memory that of the largest record, or of 8 MiB of smaller ones.

        Raises `SourceError` if the topic is missing, the brokers cannot be reached, refuse or fall
        silent, or a record is damaged or was removed meanwhile.
        """
        try:
            with closing(self._connect_client(self._settings)) as client:
                bounds = client.bounds(client.partitions())
                yield from self._until(client, {n: b for n, b in bounds.items() if b.first < b.end})
        except (Broken, OutOfRange) as error:
            raise failure(
                "a topic of shares must be readable to its end",
                topic=self._settings.topic,
                error_type=type(error).__name__,
                remedy="check the disks of the brokers and the retention of the topic, then read "
                "again",
                error=SourceError,
            ) from error

    def _until(self, client: Client, bounds: Mapping[int, Bounds]) -> Iterator[Record]:
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
                    error=SourceError,
                )
