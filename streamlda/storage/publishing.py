"""Models to a file, to a folder of snapshots, and from there to a topic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from streamlda.container import to_json
from streamlda.errors import ModelFileError
from streamlda.model.topic_model import TopicModel, load
from streamlda.privacy.statement import PRIVATE
from streamlda.stream.sink import SnapshotSink

if TYPE_CHECKING:
    from streamlda.storage.snapshots import Snapshots, Summary

#: Words of each topic that go into a message.
MESSAGE_WORDS = 50

#: Shares of the newest bins of a timeline that go into a message, about 400 kB.
MESSAGE_SHARES = 40_000


class Publisher:
    """Publishes what a run released: to a file that is the newest model, and under numbers.

    Without a folder, a private model that the file holds and that another one replaces is kept in
    the folder ``FILE.snapshots``: it was paid for.

    A release may be made a second time, after a crash before the next checkpoint: from the same
    records, so it is known by its settings, the stream and the record slot where it ends, and what
    is out stays.
    """

    def __init__(
        self,
        snapshots: Snapshots | None = None,
        sink: SnapshotSink | None = None,
        file: str | None = None,
    ) -> None:
        self.snapshots, self.sink = snapshots, sink
        self._file = file

    @classmethod
    def to(cls, folder: str | None, file: str | None) -> Publisher:
        """Return the publisher to a folder and to a file, where they are given."""
        if folder is None:
            return cls(file=file)
        from streamlda.storage.snapshots import Snapshots

        return cls(Snapshots(folder), file=file)

    def store(self, model: TopicModel) -> int:
        """Write a model; return its number in the folder, 0 without one.

        Time and memory as `TopicModel.save` and `Snapshots.publish`. Raises `OSError` if it cannot
        be written.
        """
        if self._file is not None:
            if self.snapshots is None:
                _keep_paid(Path(self._file), model)
            model.save(self._file)
        if self.snapshots is None:
            return 0
        newest = self.snapshots.latest()
        if newest is not None and _made_of(self.snapshots.model(newest)) == _made_of(model):
            return newest
        number = (newest or 0) + 1
        self.snapshots.publish(number, model)
        return number

    def newest(self) -> Summary | None:
        """Return what a list shows of the newest snapshot that is whole; None before the first."""
        listed = [] if self.snapshots is None else self.snapshots.summaries()
        return listed[-1] if listed else None

    def send(self) -> None:
        """Send the newest snapshot as a message, or raise `SourceError`; always the same bytes."""
        newest = None if self.snapshots is None else self.snapshots.latest()
        if self.snapshots is None or self.sink is None or newest is None:
            return
        about = self.snapshots.topics(newest, MESSAGE_WORDS)
        model = self.snapshots.model(newest)
        if about["timeline"] is not None:
            bins = max(1, MESSAGE_SHARES // model.n_components)
            about["timeline"] |= {
                name: about["timeline"][name][-bins:] for name in ("starts", "documents", "shares")
            }
        value = json.dumps(about, sort_keys=True, ensure_ascii=False).encode("utf-8")
        headers = {"streamlda.snapshot": str(newest), "content-type": "application/json"}
        self.sink.publish(str(model.settings.get("stream", "")), value, headers)


def earlier_snapshots(file: str) -> Path:
    """Return the folder of the private models that a file held before."""
    return Path(file + ".snapshots")


def _keep_paid(file: Path, model: TopicModel) -> None:
    """Put a private model of a file into a folder beside it, unless the new one is the same."""
    try:
        earlier = load(file)
    except (OSError, ModelFileError):
        return  # No model that could be kept.
    if earlier.privacy.get("statement") == PRIVATE and _made_of(earlier) != _made_of(model):
        Publisher.to(str(earlier_snapshots(str(file))), None).store(earlier)


def _made_of(model: TopicModel) -> str:
    # The settings name the stream and the slot; the statement, the ledger. As they are in a file.
    return to_json([model.settings, model.privacy])
