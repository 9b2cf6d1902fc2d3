"""Whole values under keys, written one by one: what topics of snapshots and of shares share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from streamlda.checks import failure, require
from streamlda.errors import SourceError
from streamlda_connectors.kafka.client import ClientSettings
from streamlda_connectors.kafka.kafka_python_producer import KafkaPythonProducer
from streamlda_connectors.kafka.producer import (
    ConnectProducer,
    Message,
    NotWritten,
    Producer,
    TooLarge,
)
from streamlda_connectors.kafka.security import Security


class TopicWriter:
    """Writes to one topic by a producer that can be given up and made again.

    `request_timeout_seconds` is the longest time to wait for the brokers: when connecting, and for
    each value. `security`: `Security`, or a mapping of its attributes. `client_id`: name in the
    brokers' logs and quotas. `connect` makes a producer; another library than kafka-python.
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
        connect: ConnectProducer = KafkaPythonProducer,
    ) -> None:
        self._settings = ClientSettings(
            bootstrap_servers,
            topic,
            client_id=client_id,
            request_timeout_seconds=request_timeout_seconds,
            security=Security.of(security),
        )
        self._connect = connect
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


class ValueTopic(TopicWriter, ABC):
    """Publishes values under keys, durable one by one; a base of topics of one kind of value.

    The parameters are those of `TopicWriter`. Not safe for several threads.
    """

    #: What helps if a value is too large, and what a topic is made with.
    if_too_large: ClassVar[str]
    made_with: ClassVar[Mapping[str, str]]

    def connect(self) -> None:
        """Connect for writing, and make the topic if it is missing; `publish` does it too.

        Raises `SourceError` if the brokers cannot be reached or refuse, or the topic has the wrong
        ``cleanup.policy``, or is closed.
        """
        self._check_open()
        if self._producer is not None:
            return
        producer = self._connect(self._settings, self.made_with)
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
                f"brokers above 100 MiB), {self.if_too_large}",
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

    @abstractmethod
    def _check_policy(self, policy: str) -> None:
        """Raise `SourceError` if a topic of that ``cleanup.policy`` (or "unknown") will not do."""
