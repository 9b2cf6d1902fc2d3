"""The store of a run: its checkpoints, and the snapshots that it publishes.

A checkpoint is written in five steps:

1. Its file is written whole under a new name, and forced to the disk.
2. One transaction of the index adds the generation,
3. drops the third newest,
4. and commits: the new generation is the current one.
5. Files that no row of the index names are removed.

Killed at any moment, the next start finds the last generation or the one before, each with its own
positions: a document is in the sums if and only if the position is after it. In a private run a
generation from before a release is refused, for its documents would take part twice; the epoch of
the ledger, stored with each generation, tells.
"""

import os
import re
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, NamedTuple, Self

from streamlda.container import temporary_name, to_json
from streamlda.model.topic_model import TopicModel, load
from streamlda.privacy.ledger import Evidence, LedgerReader
from streamlda.privacy.ledger.file import OnStep
from streamlda.storage import checkpoint
from streamlda.storage.faults import FAULTS
from streamlda.storage.partitions import find_partitions
from streamlda.storage.snapshots import Snapshots, Summary, claims_privacy, unless_damaged
from streamlda.utils.lock import FileLock, LockedError

#: Generations that are kept.
KEPT = 2

#: Names of the files of checkpoints, and of what a crash leaves.
OURS = re.compile(r"(state-\d{6,}(-[0-9a-f]{16})?|\.streamlda-[0-9a-f]{16}\.tmp)\Z")

#: Age in seconds from which on a temporary file was left by a crash; systemd waits as long.
LEFTOVER_SECONDS = 5.0


class Claim(NamedTuple):
    """A partition that a generation of a group (None without one) assigned to this process."""

    generation: int | None
    reset: bool = False


class Store(AbstractContextManager["Store"]):
    """Checkpoints and snapshots of one run, which holds a lock on each folder until `close`."""

    def __init__(self, file: str | None, keep: float | None, on_step: OnStep | None) -> None:
        #: The folder of checkpoints; None if the run makes none.
        self.folder: Path | None = None
        self.snapshots: Snapshots | None = None
        self._file, self._keep = file, keep
        self._step: OnStep = on_step or (lambda name: None)
        self._locks: list[FileLock] = []

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str] | None = None,
        *,
        partition: int | None = None,
        claim: Claim | None = None,
        output: str | os.PathLike[str] | None = None,
        file: str | None = None,
        private: bool = False,
        keep: float | None = None,
        on_step: OnStep | None = None,
    ) -> Self:
        """Open the folders of a run as their only writer, or make them.

        A `claim` keeps earlier openings from writing, whatever became of their locks, or raises
        `FencedError`. `on_step` is called with the name of each step, for tests of crashes.
        """
        store = cls(file, keep, on_step)
        try:
            if folder is not None:
                store._open_checkpoints(Path(os.path.realpath(folder)), partition, claim)
            if output is not None:
                store.open_snapshots(Snapshots(output), private=private)
        except BaseException:
            store.close()
            raise
        return store

    def _open_checkpoints(self, path: Path, partition: int | None, claim: Claim | None) -> None:
        if partition is None:
            FAULTS.check(not find_partitions(path), "several states", path=str(path))
        else:
            path /= f"partition-{partition}"
        checkpoint.make_folder(path, "checkpoint.folder", mode=checkpoint.PRIVATE_FOLDER)
        self._take_lock(path, "checkpoint.folder")
        self.folder, self.index = path, checkpoint.CheckpointIndex(path, self._step)
        self.index.make()
        if claim is not None:
            self.index.claim(claim.generation, reset=claim.reset)
        self._remove_leftovers()

    def open_snapshots(self, snapshots: Snapshots, *, private: bool) -> None:
        """Take the lock of a folder of snapshots, for `publish`; as `open` with `output`."""
        path = snapshots.folder
        checkpoint.make_folder(path, "output.folder", parents=True)
        self._take_lock(path, "output.folder")
        # A command that names topics may be writing here for a moment.
        border = time.time() - LEFTOVER_SECONDS
        for left in filter(lambda each: OURS.match(each.name), path.glob(temporary_name("*"))):
            with suppress(FileNotFoundError):
                if left.stat().st_mtime < border:
                    left.unlink()
        self.snapshots = snapshots
        newest = self._newest_model()
        fits = newest is None or claims_privacy(newest.privacy) == private
        FAULTS.check(fits, "private beside others", folder=str(path), private=private)

    def _take_lock(self, folder: Path, setting: str) -> None:
        try:
            self._locks.append(FileLock(folder / "lock"))
        except LockedError as error:
            about = {"setting": setting, "path": str(folder), "pid": error.pid}
            raise FAULTS.make("locked", **about) from error
        except PermissionError as error:
            raise FAULTS.make("read-only", setting=setting, path=str(folder)) from error

    def close(self) -> None:
        """Let another process in. Closing twice is allowed."""
        for lock in self._locks:
            lock.free()

    def __exit__(self, *error: object) -> None:
        self.close()

    # Checkpoints.

    def newest(
        self, ledger: LedgerReader | None = None, *, catch_up: bool = False
    ) -> checkpoint.Checkpoint | None:
        """Return the newest whole checkpoint, or None if none was ever made.

        One from before a release is refused, unless `catch_up` allows one release since then.
        """
        if self.folder is None:
            return None
        return self.index.newest(ledger, catch_up=catch_up)

    capture = staticmethod(checkpoint.capture_state)

    def write(self, pending: checkpoint.PendingCheckpoint) -> int:
        """Make a captured checkpoint the current generation, and return its number.

        It may run in a thread; no release may be begun meanwhile.
        """
        assert self.folder is not None
        assert self._locks[0].is_held
        generation = max((row.number for row in self.index.rows()), default=0) + 1
        self._step("save:begin")
        # 1. Two processes that write at once use two names.
        owner = self.index.owner
        name = f"state-{generation:06d}" + (f"-{owner}" if owner else "")
        checkpoint.write_state(self.folder / name, pending.arrays, pending.metadata)
        self._step("save:state")
        # 2. to 4.
        row = checkpoint.Row(generation, name, pending.metadata["about"].get("places"))
        self.index.make_current(row, KEPT)
        self._step("save:current")
        # 5.
        self._remove_leftovers()
        self._step("save:cleaned")
        return generation

    def _remove_leftovers(self) -> None:
        """Remove what a crash left behind, and what belonged to the third newest."""
        assert self.folder is not None
        in_use = {row.name for row in self.index.rows()}
        found = {path.name for path in self.folder.iterdir()}
        # Where a file is missing, which ones are in use is not known: nothing is removed.
        for name in found - in_use if in_use <= found else ():
            if OURS.match(name):
                (self.folder / name).unlink()

    # Snapshots.

    def publish(self, model: TopicModel) -> int:
        """Write a model; return its number in the folder, 0 without one.

        A release that is made again after a crash changes no snapshot that is out.
        """
        if self._file is not None:
            model.save(self._file)
        if self.snapshots is None:
            return 0
        newest = self.snapshots.latest() or 0
        known = unless_damaged(self.snapshots.model, newest) if newest else None
        if known is None or _origin(known) != _origin(model):
            newest += 1
            self.snapshots.publish(newest, model)
            if self._keep is not None:
                self.snapshots.remove_old(self._keep)
        return newest

    def newest_summary(self) -> Summary | None:
        """Return the summary of the newest whole snapshot; None before the first."""
        listed = [] if self.snapshots is None else self.snapshots.summaries()
        return listed[-1] if listed else None

    def evidence(self) -> list[Evidence]:
        """Return the evidence of a ledger in the newest models of folder and file."""
        found: list[tuple[str, Mapping[str, Any]]] = []
        newest = self._newest_model()
        if self.snapshots is not None and newest is not None:
            found.append((str(self.snapshots.folder), newest.privacy))
        held = None if self._file is None else unless_damaged(load, Path(self._file))
        if held is not None:
            found.append((str(self._file), held.privacy))
        shown = (Evidence.of(privacy, where) for where, privacy in found if claims_privacy(privacy))
        return [each for each in shown if each is not None]

    def _newest_model(self) -> TopicModel | None:
        """Return the newest model of the folder that is whole."""
        if self.snapshots is None:
            return None
        read, numbers = self.snapshots.model, reversed(self.snapshots.numbers())
        models = (unless_damaged(read, number) for number in numbers)
        return next((model for model in models if model is not None), None)


def _origin(model: TopicModel) -> str:
    # The settings name the stream and the slot; the statement, the ledger. As they are in a file.
    return to_json([model.settings, model.privacy])
