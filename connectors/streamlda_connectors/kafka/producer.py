"""What the connector needs of a Kafka client that writes; ``client`` is for reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, Protocol

from streamlda_connectors.kafka.client import ClientSettings


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


class Delivery(Protocol):
    """What becomes of one message."""

    def acknowledged(self, timeout_seconds: float = 0.0) -> bool:
        """Return whether all in-sync replicas have the message, waiting for it that long.

        Raises `TooLarge` or `NotWritten` if they refused this message or one that was sent with it.
        The producer is of no use then, and what waits has to be sent again by another one.
        """


class Producer(Protocol):
    """A connection that writes to one topic; used from one thread.

    It tries again by itself, without limit, while the brokers are away: a message is then written
    once and in order. It does not limit what waits.
    """

    def settings(self) -> Mapping[str, str]:
        """Return what the brokers said of the topic when connecting; empty if they would not."""

    def send(self, message: Message) -> Delivery:
        """Write a message, without waiting.

        Raises `TooLarge` if it is plain at once, and the producer goes on; `NotWritten` if the
        producer is of no use any more.
        """

    def close(self) -> None:
        """Close all connections and drop what is not acknowledged. Closing twice is allowed."""


#: Makes a connected producer for the topic of the settings. A topic that is missing is made with
#: one partition and the given settings. Raises `SourceError` if that fails.
ConnectProducer = Callable[[ClientSettings, Mapping[str, str]], Producer]
