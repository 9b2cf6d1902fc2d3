"""Snapshots in a compacted topic: the newest value of each key stays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamlda.errors import SourceError
from streamlda_connectors.kafka.kafka_python_producer import KafkaPythonProducer
from streamlda_connectors.kafka.producer import ConnectProducer
from streamlda_connectors.kafka.security import Security
from streamlda_connectors.kafka.values import ValueTopic


class SnapshotTopic(ValueTopic):
    """Publish values under keys, durable one by one; connected from the beginning.

    Parameters
    ----------
    topic : str
        Where to publish. Made with one partition and ``cleanup.policy=compact`` if it is missing.
    bootstrap_servers, security, client_id, request_timeout_seconds, connect
        See `ValueTopic`.

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

    what = "snapshot"
    if_too_large = "or choose fewer topics or words"
    made_with = {"cleanup.policy": "compact"}  # noqa: RUF012 - the base says ClassVar

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
        super().__init__(
            topic,
            bootstrap_servers=bootstrap_servers,
            security=security,
            client_id=client_id,
            request_timeout_seconds=request_timeout_seconds,
            connect=connect,
        )
        self.connect()

    def _check_policy(self, policy: str) -> None:
        if "compact" not in policy.split(","):
            raise SourceError(
                "the topic of snapshots must be compacted, got "
                f"topic={self._settings.topic!r} cleanup.policy={policy}; set it to compact with "
                "kafka-configs, or name a topic that is not there yet (to see the policy, the "
                "access right DescribeConfigs is needed)"
            )
