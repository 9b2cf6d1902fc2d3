"""What is read from Kafka and written to it, and how to reach the brokers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import NamedTuple, Protocol

from streamlda.checks import one_of, require
from streamlda.stream.credentials import CLIENTS
from streamlda_connectors.kafka.security import Security


class Record(NamedTuple):
    """One record as the broker keeps it: bytes, never decoded by the client.

    `timestamp_ms` counts from the epoch, set by the producer or the broker; -1 if unknown. A record
    without a value is a tombstone. `headers` are as produced; a name may come more than once.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(slots=True)
class Run:
    """Fetched records of one partition in the order of the log, as columns of equal length.

    A `Record` costs as much as parsing a short one, so it is made only where it is needed.
    """

    partition: int
    #: Rising, not always by one.
    offsets: Sequence[int]
    values: Sequence[bytes | None]
    #: In milliseconds since 1970, -1 where unknown.
    times: Sequence[int]
    #: Makes the `Record` of an index.
    record: Callable[[int], Record]
    #: How many of them were handed out.
    taken: int = 0


class Bounds(NamedTuple):
    """What a partition holds: records from `first` to before `end` (the last stable one)."""

    first: int
    end: int


class Identity(NamedTuple):
    """Which topic it is, even if another one had the same name before it."""

    cluster: str
    topic: str
    topic_id: str


class OutOfRange(Exception):
    """The log does not hold the offset where the client was to go on."""


class Truncated(OutOfRange):
    """The log was cut before that offset, and may hold other records there by now."""


class Broken(Exception):
    """The client cannot go on and has to be replaced by another at the same offsets."""


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """How to reach the brokers, and how much to take from them at once."""

    #: ``host:port``, several with commas.
    bootstrap_servers: str
    #: The one topic to read.
    topic: str
    #: Consumer group under which offsets are shown; none is ever read from it.
    group: str | None = None
    #: Name in the brokers' logs and quotas.
    client_id: str = "streamlda"
    #: Leave out records of aborted or open transactions.
    read_committed: bool = True
    #: Most that one broker sends at once. Memory is about the number of brokers times this, and one
    #: batch decompressed; a single larger record is still read.
    fetch_max_bytes: int = 8 * 2**20
    #: Most of one partition in it.
    max_partition_fetch_bytes: int = 2**20
    #: How often to look for new partitions.
    refresh_seconds: float = 60.0
    #: How long to wait for an answer when connecting and when asking for offsets.
    request_timeout_seconds: float = 10.0
    #: TLS and SASL.
    security: Security = field(default_factory=Security)
    #: The package that reads: one of `CLIENTS`.
    client: str = "kafka-python"

    def __post_init__(self) -> None:
        one_of(CLIENTS, client=self.client)
        for name, value in asdict(self).items():
            if name in ("bootstrap_servers", "topic"):
                require(value, f"{name} must not be empty", **{name: value}, remedy="name it")
            elif name.endswith(("_bytes", "_seconds")):
                rule = f"{name} must be above 0 and below 2**31"
                require(0 < value < 2**31, rule, **{name: value})


class Client(Protocol):
    """One connected consumer of one topic, used from one thread; nothing is assigned at first.

    Every method raises `SourceError` if the broker refuses or does not answer in time.
    """

    def identity(self) -> Identity:
        """Return which topic this was when connecting."""

    def partitions(self) -> set[int]:
        """Return the partitions known now, without waiting; new ones appear later."""

    def bounds(self, partitions: set[int]) -> dict[int, Bounds]:
        """Return what the log of each partition holds now."""

    def assign(self, offsets: Mapping[int, int]) -> None:
        """Read these partitions from these offsets on, and no others."""

    def poll(self, timeout_seconds: float, max_records: int) -> list[Run]:
        """Return up to `max_records` (at least 1) as they come, or nothing in time.

        Raises `OutOfRange` if the log does not hold the offset to go on from, `Truncated` if it was
        cut, and `Broken` if the client is of no use any more.
        """

    def pause(self, paused: bool, held: Collection[int] = ()) -> None:
        """Stop or go on fetching all assigned partitions; polling keeps the connection alive.

        Those that are `held` are not fetched either.
        """

    def answered(self) -> dict[int, float | None]:
        """Return when a fetch of each assigned partition was answered last, by `monotonic`.

        None if that was never, or the partition has no leader.
        """

    def ends(self) -> dict[int, int]:
        """Return the last known end of each partition fetched so far, without waiting."""

    def positions(self) -> dict[int, int]:
        """Return where each assigned partition goes on, after what `poll` has returned.

        Behind what is no record too, such as the marks of transactions. May raise `Broken`.
        """

    def notes(self, partitions: set[int]) -> list[str]:
        """Return what `commit` left under the group beside the offsets of these partitions."""

    def commit(self, offsets: Mapping[int, int], note: str) -> None:
        """Show `offsets` and a note under the group, without waiting; a failure is only logged."""

    def close(self) -> None:
        """Close all connections. Closing twice is allowed."""


#: Makes a client that is connected and has nothing assigned.
Connect = Callable[[ClientSettings], Client]


class Message(NamedTuple):
    """What is written as one record; messages of one key go to one partition."""

    key: bytes
    value: bytes
    headers: tuple[tuple[str, bytes], ...] = ()

    @property
    def n_bytes(self) -> int:
        """Size without what the log adds."""
        headers = sum(len(name) + len(value) for name, value in self.headers)
        return len(self.key) + len(self.value) + headers


class TooLarge(Exception):
    """A message larger than the brokers take: `limit` bytes, if that is known."""

    def __init__(self, limit: int | None = None) -> None:
        super().__init__(f"limit={limit}")
        self.limit = limit


class NotWritten(Exception):
    """The brokers refused."""
