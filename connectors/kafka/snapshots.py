"""Snapshots in a compacted topic: the newest value of each key stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from connectors.kafka.client import ClientSettings
from connectors.kafka.kafka_python_producer import KafkaPythonProducer
from connectors.kafka.producer import ConnectProducer, Message, NotWritten, Producer, TooLarge
from connectors.kafka.security import Security
from streamlda.errors import SourceError


class SnapshotTopic:
    """Publish values under keys, durable one by one.

    Parameters
    ----------
    topic : str
        Where to publish. Made with one partition and ``cleanup.policy=compact`` if it is missing.
    bootstrap_servers : str
        ``host:port``, several with commas.
    security : Security or mapping of its attributes, optional
        TLS and SASL.
    client_id : str, default "streamlda"
        Name in the brokers' logs and quotas.
    request_timeout_seconds : float, default 30
        Longest time to wait for the brokers: when connecting, and for each value.
    connect : callable, optional
        Makes a producer; another library than kafka-python.

    Raises
    ------
    SourceError
        If the brokers cannot be reached or refuse, or the topic is not compacted.
    InvalidSettingError
        For an option out of range.
    MissingExtraError
        If ``streamlda[kafka]`` is not installed.

    Notes
    -----
    Compaction runs behind, at the brokers' leisure: a reader takes the last value of a key. Not
    safe for several threads.
    """

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
        self._producer: Producer | None = self._connected()

    def publish(self, key: str, value: bytes, headers: Mapping[str, str]) -> None:
        """Write `value` under `key`; on return all in-sync replicas have it.

        Publishing again writes the same bytes again, of which compaction keeps one: after a crash
        or an error, publish again what was to be published. Time and memory O(bytes), the value
        twice.

        Parameters
        ----------
        key : str
            Of the record, in UTF-8.
        value : bytes
            Up to the ``max.message.bytes`` of the topic, and 100 MiB.
        headers : mapping of str to str
            In UTF-8, in the order of the mapping.

        Raises
        ------
        SourceError
            If the topic is closed, the value is larger than the brokers take, or they refuse or
            do not answer within `request_timeout_seconds`; it is not known then whether they have
            the value.
        """
        if self._closed:
            raise SourceError("a snapshot topic must be open, got closed=True; make a new one")
        encoded = tuple((name, text.encode()) for name, text in headers.items())
        message = Message(key.encode(), value, encoded)
        try:
            if self._producer is None:
                self._producer = self._connected()
            if self._producer.send(message).acknowledged(self._settings.request_timeout_seconds):
                return
            problem = f"timeout_seconds={self._settings.request_timeout_seconds}"
        except TooLarge as error:
            self._drop_producer()
            raise SourceError(
                "a snapshot must fit into one message, got "
                f"topic={self._settings.topic!r} bytes={message.n_bytes} {error}; "
                "raise max.message.bytes of the topic (and socket.request.max.bytes of the "
                "brokers above 100 MiB), or choose fewer topics or words"
            ) from error
        except NotWritten as error:
            problem = str(error)
        # What waits would pile up, value by value, while the brokers are away.
        self._drop_producer()
        raise SourceError(
            "the brokers must take a snapshot, got "
            f"topic={self._settings.topic!r} bytes={message.n_bytes} {problem}; check that they "
            "run and that all in-sync replicas answer, then publish it again"
        )

    def close(self) -> None:
        """Close the connection. Closing twice is allowed."""
        self._closed = True
        self._drop_producer()

    def _connected(self) -> Producer:
        producer = self._connect(self._settings, {"cleanup.policy": "compact"})
        policy = producer.settings().get("cleanup.policy", "unknown")
        if "compact" not in policy.split(","):
            producer.close()
            raise SourceError(
                "the topic of snapshots must be compacted, got "
                f"topic={self._settings.topic!r} cleanup.policy={policy}; set it to compact with "
                "kafka-configs, or name a topic that is not there yet (to see the policy, the "
                "access right DescribeConfigs is needed)"
            )
        return producer

    def _drop_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close()
