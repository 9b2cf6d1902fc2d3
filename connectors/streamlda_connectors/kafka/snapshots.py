"""Snapshots in a compacted topic: the newest value of each key stays."""

from __future__ import annotations

from typing import Any

from streamlda.checks import require
from streamlda.errors import SourceError
from streamlda_connectors.kafka.values import ValueTopic


class SnapshotTopic(ValueTopic):
    """Publish values under keys, durable one by one; connected from the beginning.

    The topic is made with one partition and ``cleanup.policy=compact`` if it is missing; the
    options are those of `streamlda_connectors.kafka.values.TopicWriter`. Compaction runs behind, at
    the brokers' leisure: a reader takes the last value of a key. Not safe for several threads.
    """

    what = "snapshot"
    if_too_large = "or choose fewer topics or words"
    made_with = {"cleanup.policy": "compact"}  # noqa: RUF012 - the base says ClassVar

    def __init__(self, topic: str, **options: Any) -> None:
        super().__init__(topic, **options)
        self.connect()

    def _check_policy(self, policy: str) -> None:
        require(
            "compact" in policy.split(","),
            "the topic of snapshots must be compacted",
            topic=self._settings.topic,
            **{"cleanup.policy": policy},
            remedy="set it to compact with kafka-configs, or name a topic that is not there yet "
            "(to see the policy, the access right DescribeConfigs is needed)",
            error=SourceError,
        )
