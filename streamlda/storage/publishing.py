"""Models to a file, to a folder of snapshots, and from there to a topic."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from streamlda.checks import failure
from streamlda.container import to_json
from streamlda.errors import ModelFileError
from streamlda.model.topic_model import TopicModel, load
from streamlda.privacy.ledger.evidence import Evidence
from streamlda.privacy.statement import PRIVATE
from streamlda.stream.sink import SnapshotSink
from streamlda.utils.lock import FileLock, LockedError

if TYPE_CHECKING:
    from streamlda.storage.snapshots import Snapshots, Summary

#: Words of each topic that go into a message.
MESSAGE_WORDS = 50

#: Shares of the newest bins of a timeline that go into a message, about 400 kB.
MESSAGE_SHARES = 40_000


class Publisher:
    """Publishes what a run released: to a file that is the newest model, and under numbers.

    Without a folder, a private model that the file holds and that another one replaces is kept in
    the folder ``FILE.snapshots``: it was paid for. A folder has one publisher at a time, which
    holds a lock on it until it is closed. With `keep` it removes old snapshots after each new one
    (`Snapshots.remove_old`). `private` says what is published: private snapshots and others do not
    lie in one folder.

    A release may be made a second time, after a crash before the next checkpoint: from the same
    records, so it is known by its settings, the stream and the record slot where it ends, and what
    is out stays.
    """

    def __init__(
        self,
        folder: str | os.PathLike[str] | None,
        file: str | None,
        *,
        private: bool,
        sink: SnapshotSink | None = None,
        keep: float | None = None,
    ) -> None:
        self._file, self.sink, self._keep = file, sink, keep
        self.snapshots: Snapshots | None = None
        self._lock: FileLock | None = None
        if folder is None:
            return
        from streamlda.storage.snapshots import Snapshots

        self._lock = _locked(Path(folder))
        self.snapshots = Snapshots(folder)
        newest = self._newest_model()
        if newest is not None and (newest.privacy.get("statement") == PRIVATE) != private:
            self.close()
            raise failure(
                "private snapshots must not lie in one folder with others",
                folder=str(folder),
                private=private,
                newest=self.snapshots.latest(),
                remedy="choose another output.folder",
            )

    def close(self) -> None:
        """Let another publisher in. Closing twice is allowed."""
        if self._lock is not None:
            self._lock.free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def evidence(self, stream: str) -> list[Evidence]:
        """Return what the newest models that are published say of their ledger.

        In the folder, in the file and beside it, and in the topic under the name of the `stream`.
        Time and memory as to load each. Raises `SourceError` if the topic cannot be read.
        """
        found: list[tuple[str, Mapping[str, Any]]] = []
        newest = self._newest_model()
        if self.snapshots is not None and newest is not None:
            found.append((str(self.snapshots.folder), newest.privacy))
        if self._file is not None:
            earlier = earlier_snapshots(self._file)
            for path in (Path(self._file), *sorted(earlier.glob("snapshot-*[0-9]"))[-1:]):
                if (model := _unless_damaged(load, path)) is not None:
                    found.append((str(path), model.privacy))
        if self.sink is not None and (value := self.sink.newest(stream)) is not None:
            found.append((f"the topic of snapshots, key {stream!r}", _statement(value)))
        shown = (
            Evidence.of(statement, where)
            for where, statement in found
            if statement.get("statement") == PRIVATE
        )
        return [each for each in shown if each is not None]

    def _newest_model(self) -> TopicModel | None:
        """Return the newest model of the folder that is whole."""
        if self.snapshots is None:
            return None
        read, numbers = self.snapshots.model, reversed(self.snapshots.numbers())
        models = (_unless_damaged(read, number) for number in numbers)
        return next((model for model in models if model is not None), None)

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
        newest = self.snapshots.latest() or 0
        known = _unless_damaged(self.snapshots.model, newest) if newest else None
        if known is None or _made_of(known) != _made_of(model):
            newest += 1
            self.snapshots.publish(newest, model)
            if self._keep is not None:
                self.snapshots.remove_old(self._keep)
        return newest

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
    earlier = _unless_damaged(load, file)
    if earlier is None or earlier.privacy.get("statement") != PRIVATE:
        return
    if _made_of(earlier) != _made_of(model):
        with Publisher(str(earlier_snapshots(str(file))), None, private=True) as publisher:
            publisher.store(earlier)


def _unless_damaged(read: Callable[[Any], TopicModel], which: object) -> TopicModel | None:
    """Return the model that is read, or None if there is none that is whole."""
    try:
        return read(which)
    except (OSError, ModelFileError):
        return None


def _statement(value: bytes) -> Mapping[str, Any]:
    """Return the privacy statement of a message; empty if it is none of ours."""
    try:
        found = json.loads(value)["privacy"]
    except (ValueError, LookupError, TypeError):
        return {}
    return found if isinstance(found, dict) else {}


def _locked(folder: Path) -> FileLock:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return FileLock(folder / "lock")
    except LockedError as error:
        raise failure(
            "a folder of snapshots must have one process that writes, and one has it in use",
            folder=str(folder),
            pid=error.pid,
            remedy="stop the other, or choose another output.folder",
        ) from error
    except OSError as error:
        raise failure(
            "a folder of snapshots must be writable",
            folder=str(folder),
            cause=error.strerror,
            remedy="make it writable, or choose another output.folder",
        ) from error


def _made_of(model: TopicModel) -> str:
    # The settings name the stream and the slot; the statement, the ledger. As they are in a file.
    return to_json([model.settings, model.privacy])
