"""A folder that daemons share: checkpoints of each partition, and one beginning for all.

``partition-3``
    The checkpoints of one partition (`Store.open` with `partition`), of whoever has it.
``projection``
    The projection that all sum through, or the start that all refine (`streamlda.storage.merge`),
    with the `Agreement`: settings and topic that all must agree on, and offsets to begin at.
``turned``
    The start that all have begun again from since the stream turned.
``lease``
    Locked by the daemon that makes the beginning, and then the snapshots of all partitions.
"""

import os
from pathlib import Path
from typing import Any, NamedTuple

from streamlda.storage.checkpoint import PRIVATE_FOLDER, CheckpointIndex, make_folder
from streamlda.storage.faults import FAULTS
from streamlda.stream.source import Position
from streamlda.utils.lock import FileLock, LockedError

#: Members of a position that tell a topic from all others.
LOG = ("cluster", "topic", "topic_id")

#: Name of the shared projection in the folder.
PROJECTION = "projection"

#: Name of the start since the last turn.
TURNED = "turned"


class Agreement(NamedTuple):
    """Everything that the daemons of a folder must agree on, beside the projection."""

    #: Tells it from all others.
    id: str
    settings: dict[str, Any]
    #: Members `LOG` of a position.
    log: dict[str, Any]
    #: Offsets of partitions that do not begin at their first record.
    offsets: dict[str, int]

    def check_log(self, position: Position) -> None:
        """Raise `SourceRefusedError` if partitions are of another topic."""
        found = {name: position[name] for name in LOG}
        FAULTS.check(found == self.log, "other log", **found, saved=self.log)

    def find_position(self, number: int) -> Position | None:
        """Return where a partition without a checkpoint begins; None at its first record."""
        at = self.offsets.get(str(number))
        own = {"partitions": [number], "offsets": {str(number): at}, "lost": {}, "gaps": {}}
        return None if at is None else self.log | own


def open_shared_folder(folder: str | os.PathLike[str]) -> Path:
    """Return the folder, made if it is missing; refuse one with one state of several partitions."""
    path = Path(os.path.realpath(folder))
    FAULTS.check(not (path / "index").exists(), "one state", path=str(path))
    make_folder(path, "checkpoint.folder", mode=PRIVATE_FOLDER)
    return path


def take_lease(folder: Path) -> FileLock | None:
    """Return the lease of a shared folder, or None while another process has it."""
    try:
        return FileLock(folder / "lease")
    except LockedError:
        return None


def find_partitions(folder: Path) -> list[Path]:
    """Return the folders of partitions, by number."""
    found = [path for path in folder.glob("partition-*") if path.name[10:].isdecimal()]
    return sorted(found, key=lambda path: int(path.name[10:]))


def count_saved(folder: Path) -> dict[Path, int]:
    """Return the folders of partitions that have a checkpoint, and the records of each state."""
    saved = {}
    for path in find_partitions(folder):
        rows = CheckpointIndex(path).rows() if (path / "index").exists() else []
        if rows:
            saved[path] = rows[0].places or 0
    return saved
