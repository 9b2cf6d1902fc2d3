"""Writing by the package kafka-python."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import Any

from streamlda_connectors.kafka.client import ClientSettings, Message, NotWritten, TooLarge
from streamlda_connectors.kafka.connection import (
    CLOSE_SECONDS,
    connecting,
    load,
    milliseconds,
    refused,
)

#: Longest time to wait for more messages to send together, in seconds.
LINGER_SECONDS = 0.02

#: Messages are sent together up to this size.
BATCH_BYTES = 2**16

#: Largest request: below the socket.request.max.bytes that brokers have by default.
MAX_REQUEST_BYTES = 100 * 2**20 - 2**10

#: Largest message where the brokers do not tell theirs: what they take by default.
USUAL_BYTES = 1_048_588

#: Without end, as far as the package can count: 24 days of milliseconds.
ENDLESS_MS = 2**31 - 1


class Producer:
    """One idempotent ``KafkaProducer`` with ``acks=all``; used from one thread.

    It tries again by itself, and limits nothing that waits. A delivery never times out, so a broker
    that comes back gets each message once: what was sent again after a time-out of ours could be
    there twice. A missing topic is made with one partition and `topic_settings`; raises
    `SourceError` if that fails.
    """

    def __init__(self, settings: ClientSettings, topic_settings: Mapping[str, str]) -> None:
        self._settings = settings
        self._kafka = kafka = load("writing to Kafka")
        self._closed = False
        with connecting(kafka, settings) as shared:
            self._topic = self._describe(shared, dict(topic_settings))
            limit = int(self._topic.get("max.message.bytes", USUAL_BYTES))
            self._limit = min(limit, MAX_REQUEST_BYTES)
            self._producer = kafka.KafkaProducer(
                **shared,
                acks="all",
                enable_idempotence=True,
                delivery_timeout_ms=ENDLESS_MS,
                linger_ms=milliseconds(LINGER_SECONDS),
                batch_size=min(BATCH_BYTES, self._limit),
                max_request_size=self._limit,
                max_block_ms=milliseconds(settings.request_timeout_seconds),
                metrics_enabled=False,
            )
        try:
            # Else the first message would wait for this.
            self._producer.partitions_for(settings.topic)
        except kafka.errors.KafkaError as error:
            self.close()
            raise refused(settings, "name the partitions of the topic", error) from error

    def _describe(self, shared: dict[str, Any], topic_settings: dict[str, str]) -> dict[str, str]:
        """Make the topic if it is missing, and return those of its settings that matter here."""
        from kafka.admin import ConfigResource, ConfigResourceType

        errors, name = self._kafka.errors, self._settings.topic
        with closing(self._kafka.KafkaAdminClient(**shared)) as admin:
            (topic,) = admin.describe_topics([name])
            if topic["error_code"] == errors.UnknownTopicOrPartitionError.errno:
                made = {name: {"num_partitions": 1, "configs": topic_settings}}
                try:
                    admin.create_topics(made, wait_for_metadata=True)
                except errors.TopicAlreadyExistsError:
                    # Another process made it since; what it is like is read below.
                    admin.wait_for_topics([name])
            elif topic["error_code"]:
                raise errors.for_code(topic["error_code"])
            wanted = ConfigResource(
                ConfigResourceType.TOPIC, name, ["cleanup.policy", "max.message.bytes"]
            )
            found = admin.describe_configs([wanted], config_filter="all")
        values = found.get("topic", {}).get(name, {})
        return {key: entry["value"] for key, entry in values.items()}

    def settings(self) -> Mapping[str, str]:
        """Return what the brokers said of the topic when connecting; empty if they would not."""
        return self._topic

    def send(self, message: Message) -> Delivery:
        """Write a message, without waiting.

        Raises `TooLarge` if it is plain at once, and the producer goes on; `NotWritten` if the
        producer is of no use any more.
        """
        errors = self._kafka.errors
        try:
            future = self._producer.send(
                self._settings.topic,
                message.value,
                key=message.key,
                headers=list(message.headers),
                timestamp_ms=message.timestamp_ms,
            )
        except errors.MessageSizeTooLargeError as error:
            raise TooLarge(self._limit) from error
        except errors.KafkaError as error:
            raise NotWritten(type(error).__name__) from error
        return Delivery(future, errors)

    def close(self) -> None:
        """Close all connections and drop what is not acknowledged. Closing twice is allowed."""
        if self._closed:
            return
        self._closed = True
        give_up(self._kafka, self._producer)


def give_up(kafka: Any, producer: Any) -> None:
    """Close a producer of the package and drop what is not acknowledged."""
    try:
        producer.close(timeout=CLOSE_SECONDS)
    except kafka.errors.KafkaTimeoutError:
        # The package stops there if messages wait, and leaves its thread behind. What waits is
        # given up, and it closes.
        producer._sender.force_close()
        producer.close(timeout=CLOSE_SECONDS)


@dataclass(frozen=True, slots=True)
class Delivery:
    """Delivery of one message: a future of the package, and the package's errors."""

    _future: Any
    _errors: Any

    def acknowledged(self, timeout_seconds: float = 0.0) -> bool:
        """Return whether all in-sync replicas have the message, waiting for it that long.

        Raises `TooLarge` or `NotWritten` if they refused this message or one that was sent with it.
        The producer is of no use then, and what waits has to be sent again by another one.
        """
        if not self._future.is_done and timeout_seconds > 0:
            # The future shows a time-out too.
            with suppress(self._errors.KafkaError):
                self._future.get(timeout_seconds)
        if not self._future.failed():
            return bool(self._future.succeeded())
        # After one refusal the package fails all that waits, and all that is sent later, with the
        # same error: the message itself may be innocent.
        error = self._future.exception
        too_large = (self._errors.MessageSizeTooLargeError, self._errors.RecordListTooLargeError)
        if isinstance(error, too_large):
            raise TooLarge from error
        raise NotWritten(type(error).__name__) from error
