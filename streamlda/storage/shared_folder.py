"""A folder that several daemons learn into: a checkpoint folder for each partition, one beginning.

``partition-3``
    The checkpoints of one partition (`streamlda.storage.checkpoint`), of whoever has it.
``projection``
    The projection that all sum through (`streamlda.storage.projection`).
``beginning``
    JSON: what all must agree on (settings, words, topic), and offsets to begin at. It comes last:
    once it is there, all that daemons share is there.
``lease``
    Locked by the daemon that makes the beginning, and then the snapshots of all partitions.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from streamlda.checks import failure, require
from streamlda.container import sync_folder, to_json, valid_content
from streamlda.errors import SourceRefusedError
from streamlda.storage.index import CheckpointIndex, has_checksum
from streamlda.storage.state import OWNER_ONLY
from streamlda.stream.source import Position
from streamlda.utils.lock import FileLock, LockedError

#: What tells a topic from all others, in a position.
LOG = ("cluster", "topic", "topic_id")

_PARTITION = re.compile(r"partition-(0|[1-9][0-9]*)\Z")


def make_own_folder(path: Path) -> None:
    """Make a folder for its owner only, if it is missing; refuse what a new start cannot heal."""
    try:
        path.mkdir(mode=0o700, exist_ok=True)
    except (FileExistsError, FileNotFoundError, NotADirectoryError, PermissionError) as error:
        raise failure(
            "checkpoint.folder must be a folder, or one that can be made where it is to be",
            path=str(path),
            cause=error.strerror,
            remedy="choose another, or make the folder that it is to be in",
        ) from error


class SharedFolder:
    """The folder, made if it is missing, for its owner only."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(os.path.realpath(path))
        if (self.path / "index").exists():
            raise failure(
                "daemons that share partitions must have a folder with a state for each of them, "
                "and one state of several is here",
                path=str(self.path),
                remedy="go on with the kafka.partitions it was made with, or begin in an empty "
                "checkpoint.folder",
            )
        make_own_folder(self.path)
        self.projection = self.path / "projection"
        self._beginning = self.path / "beginning"

    @staticmethod
    def is_one(path: str | os.PathLike[str]) -> bool:
        """Return whether there is such a folder."""
        return any(_PARTITION.match(each.name) for each in Path(path).glob("partition-*"))

    def partition(self, number: int) -> Path:
        """Return the folder of the checkpoints of a partition."""
        return self.path / f"partition-{number}"

    def saved(self) -> dict[Path, int]:
        """Return the folders of partitions that have a checkpoint, and the records it is of."""
        found = [match for each in self.path.iterdir() if (match := _PARTITION.match(each.name))]
        folders = [self.partition(number) for number in sorted(int(match[1]) for match in found)]
        newest = {folder: _newest(folder) for folder in folders}
        return {
            folder: int(body["about"]["places"])
            for folder, body in newest.items()
            if body is not None
        }

    def lease(self) -> FileLock | None:
        """Return the lease, or None while another process has it."""
        try:
            return FileLock(self.path / "lease")
        except LockedError:
            return None

    def beginning(self) -> dict[str, Any] | None:
        """Return what `begin` was called with, or None before."""
        try:
            text = self._beginning.read_bytes()
        except FileNotFoundError:
            return None
        with valid_content("beginning", self._beginning, remedy="restore it from a copy"):
            found: dict[str, Any] = json.loads(text)
        return found

    def check_log(self, position: Position) -> None:
        """Raise `SourceRefusedError` if partitions are of another topic than the beginning."""
        beginning = self.beginning()
        assert beginning is not None
        found, saved = ({name: each[name] for name in LOG} for each in (position, beginning["log"]))
        require(
            found == saved,
            "a folder of partitions must be of one topic",
            **found,
            saved=saved,
            remedy="connect to the topic that it was begun with, or begin in an empty "
            "checkpoint.folder",
            error=SourceRefusedError,
        )

    def first_position(self, number: int) -> Position | None:
        """Return where a partition without a checkpoint begins; None at its first record."""
        beginning = self.beginning()
        assert beginning is not None
        at = beginning["offsets"].get(str(number))
        own = {"partitions": [number], "offsets": {str(number): at}, "lost": {}, "gaps": {}}
        return None if at is None else beginning["log"] | own

    def begin(self, beginning: Mapping[str, Any]) -> None:
        """Let all begin; by the holder of the lease, once the projection is there."""
        fresh = self.path / "beginning.new"
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWNER_ONLY)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(to_json(dict(beginning)))
            file.flush()
            os.fsync(descriptor)
        fresh.rename(self._beginning)
        sync_folder(self.path)


def _newest(folder: Path) -> dict[str, Any] | None:
    """Return what the index says of the newest generation; None if there is none."""
    if not (folder / "index").exists():
        return None
    rows = CheckpointIndex(folder, lambda name: None).rows()
    return next((json.loads(row[1]) for row in rows if has_checksum(row)), None)
