"""Snapshots to their folder, once each, and from there to a topic."""

from __future__ import annotations

import json

from streamlda.container import to_json
from streamlda.model.topic_model import TopicModel
from streamlda.service.snapshots import Snapshots
from streamlda.stream.sink import SnapshotSink

#: Words of each topic that go into a message.
MESSAGE_WORDS = 50


class Publisher:
    """Publishes what an engine released.

    A release may be made a second time, after a crash before the next checkpoint: from the same
    records, so it is known by its settings, the stream and the place where it ends, and what is out
    stays.

    Parameters
    ----------
    snapshots : Snapshots
    sink : SnapshotSink, optional
        Where messages go.
    """

    def __init__(self, snapshots: Snapshots, sink: SnapshotSink | None = None) -> None:
        self.snapshots = snapshots
        self._sink = sink

    def store(self, model: TopicModel) -> int:
        """Write a snapshot under the next number, unless it is there; return its number.

        Time and memory as `Snapshots.publish`.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        newest = self.snapshots.latest()
        if newest is not None and _made_of(self.snapshots.model(newest)) == _made_of(model):
            return newest
        number = (newest or 0) + 1
        self.snapshots.publish(number, model)
        return number

    def send(self) -> None:
        """Send the newest snapshot as a message: the same bytes, however often.

        Raises
        ------
        SourceError
            If it did not arrive.
        """
        newest = self.snapshots.latest()
        if self._sink is None or newest is None:
            return
        about = self.snapshots.topics(newest, MESSAGE_WORDS)
        settings = self.snapshots.model(newest).settings
        value = json.dumps(about, sort_keys=True, ensure_ascii=False).encode("utf-8")
        headers = {"streamlda.snapshot": str(newest), "content-type": "application/json"}
        self._sink.publish(str(settings.get("stream", "")), value, headers)


def _made_of(model: TopicModel) -> str:
    # The settings name the stream and the place; the statement, the ledger. As they are in a file.
    return to_json([model.settings, model.privacy])
