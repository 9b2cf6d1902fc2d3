"""Values that are read from Kafka and written to it, and settings for reaching the brokers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from streamlda.checks import require
from streamlda_connectors.kafka.security import Security


class Record(NamedTuple):
    """One record as the broker keeps it: bytes, never decoded by the client.

    `timestamp_ms` counts from the epoch, set by the producer or the broker; -1 if unknown. A record
    without a value is a tombstone.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None


@dataclass(slots=True)
class Run:
    """Fetched records of one partition in the order of the log: offsets rise, not always by one."""

    partition: int
    records: Sequence[Record]
    #: How many of them were handed out.
    taken: int = 0


class Bounds(NamedTuple):
    """Offsets of a partition: records from `first` to before `end` (the last stable one)."""

    first: int
    end: int


class Identity(NamedTuple):
    """Identity of a topic, even if another one had the same name before it."""

    cluster: str
    topic: str
    topic_id: str


class OutOfRange(Exception):
    """The log does not hold the offset where the client was to continue."""


class Truncated(OutOfRange):
    """The log was cut before that offset, and may hold other records there by now."""


class Broken(Exception):
    """The client cannot continue and has to be replaced by another at the same offsets."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """Settings for reaching the brokers."""

    #: ``host:port``, several with commas.
    bootstrap_servers: str
    #: The one topic to read or to write.
    topic: str
    #: Consumer group under which offsets are shown; none is ever read from it.
    group: str | None = None
    #: How often to look for new partitions.
    refresh_seconds: float = 60.0
    #: How long to wait for an answer when connecting and when asking for offsets.
    request_timeout_seconds: float = 10.0
    #: TLS and SASL.
    security: Security = field(default_factory=Security)

    def __post_init__(self) -> None:
        named = self.bootstrap_servers and self.topic
        require(named, "brokers and a topic must be named", topic=self.topic, remedy="name both")
