"""Checkpoints: the state of an engine and the positions of its source, of one moment, or none.

A folder of checkpoints belongs to one daemon, which holds a lock on it. In it lie

``index``
    Of each generation that is kept (`streamlda.storage.index`): names, sizes and digests of its
    files, the positions of all partitions, the epoch of the ledger. It is made with the folder,
    before any state, so that a lost index is noticed.
``state-000007``
    A state file (`streamlda.storage.state`): raw, readable by its owner only.
``rows-000007``
    Documents that wait for their block, as counts, and, after `BESIDE`, what the pipeline keeps
    for models to show; only if there is any of it.
``words-000007``
    Its vocabulary.

No generation shares a file with another: damage to one leaves the other whole.

A checkpoint is copied in memory, written whole under new names and forced to the disk; then one
transaction makes it the current one and drops the third newest. Killed at any moment, the next
start finds the last generation or the one before, each with its own positions: a document is in
the sums if and only if the position is after it. Files that no row names are removed at the next
start.

In a private run a generation from before a release is refused, the second newest too: its
documents would take part twice. The epoch of the ledger, stored with each, tells. One release
between the last checkpoint and a crash can be made up for, if its documents are left out
(`PrivateLearner.catch_up`).

All of it is as secret as the documents.
"""

from __future__ import annotations

import json
import os
import re
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import failure, require
from streamlda.container import read_arrays, to_json, write_arrays
from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.errors import ModelFileError, NewerFormatError, OlderFormatError
from streamlda.privacy.ledger import LedgerReader, digest_file
from streamlda.privacy.ledger.file import OnStep
from streamlda.private.learner import PrivateLearner
from streamlda.storage.index import CheckpointIndex, Row, has_checksum
from streamlda.storage.shared_folder import SharedFolder, make_own_folder
from streamlda.storage.state import OWNER_ONLY, load_state, state_of, write_state
from streamlda.stream.source import Position
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import Arrays, named, with_prefix
from streamlda.utils.lock import FileLock, LockedError

#: Generations that are kept.
KEPT = 2

WORDS_FORMAT, WORDS_VERSION = "streamlda-checkpoint-words", 1
ROWS_FORMAT, ROWS_VERSION = "streamlda-checkpoint-rows", 1

#: Begins the names of arrays that are no documents, in ``rows``.
BESIDE = "beside."
#: Names of the files that belong to this folder, or are left over from a crash.
OURS = re.compile(r"((state|rows|words)-\d{6,}(-[0-9a-f]{16})?|\.streamlda-[0-9a-f]{16}\.tmp)\Z")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole generation: what to go on from."""

    #: From 1.
    generation: int
    #: Where the source goes on, for `Source.seek`: of the moment of the state.
    position: Position
    vocabulary: Vocabulary = field(repr=False)
    #: What was stored beside it: plain JSON values.
    about: dict[str, Any]
    #: Of the ledger when it was made; None if the run is not private.
    ledger_id: str | None
    epoch: int | None
    #: Why newer generations were not taken; empty for the newest. To be logged as an error.
    skipped: tuple[str, ...]
    #: Releases begun since then, for which the caller must make up: 0, or 1 if that was allowed.
    releases_behind: int
    _path: Path
    _rows: Path | None

    def restore(self, learner: PrivateLearner | None = None) -> Engine | PrivateLearner:
        """Return the engine, or fill a new private learner, as `load_state`.

        Time O(bytes), memory twice the size of the state.
        """
        if learner is None:
            return load_state(self._path)
        return load_state(self._path, learner, releases_behind=self.releases_behind)

    def rows(self) -> DocumentBatch | None:
        """Return the documents that waited for their block, or None."""
        arrays = {k: v for k, v in self._stored_rows().items() if not k.startswith(BESIDE)}
        if not arrays:
            return None
        return DocumentBatch(**arrays, n_features=self.vocabulary.n_features, integral=False)

    def beside(self) -> Arrays:
        """Return what the pipeline kept for models to show, as `Pipeline.beside` gave it."""
        return named(self._stored_rows(), BESIDE)

    def _stored_rows(self) -> Mapping[str, NDArray[Any]]:
        if self._rows is None:
            return {}
        return read_arrays(self._rows, ROWS_FORMAT, ROWS_VERSION).arrays


class Claim(NamedTuple):
    """A partition of a group that was assigned to this process, in a generation of the group.

    None where no group assigns it. Generations only grow, unless the group was `reset`.
    """

    generation: int | None
    reset: bool = False


class PendingCheckpoint(NamedTuple):
    """A checkpoint that is not written yet: a copy of its own. Made by `Checkpoints.capture`."""

    arrays: Arrays
    metadata: dict[str, Any]
    rows: Arrays
    vocabulary: Vocabulary
    body: dict[str, Any]

    @property
    def size_bytes(self) -> int:
        """Bytes of its arrays."""
        return sum(a.nbytes for a in (*self.arrays.values(), *self.rows.values()))


class Checkpoints:
    """The checkpoints of one daemon. Make it with `Checkpoints.open`; close it, or use ``with``."""

    def __init__(self, folder: Path, lock: FileLock | None, on_step: OnStep | None) -> None:
        self.folder = folder
        self._lock = lock
        self._step: OnStep = on_step or (lambda name: None)
        self._index = CheckpointIndex(folder, self._step)
        #: Tells this opening from all others, once the folder was claimed.
        self._owner: str | None = None
        # Arrays of a capture that was written: memory for the next.
        self._spare: Arrays = {}

    @classmethod
    def open(
        cls,
        folder: str | os.PathLike[str],
        *,
        on_step: OnStep | None = None,
        claim: Claim | None = None,
    ) -> Self:
        """Open a folder of checkpoints as its only user, or make it, for its owner only.

        With a `claim`, no earlier opening can write from now on, whatever became of its lock;
        raises `FencedError` if a later one has claimed the folder.
        """
        path = Path(os.path.realpath(folder))
        require(
            not SharedFolder.is_one(path),
            "a folder with a state for each partition must be used by those who share partitions",
            path=str(path),
            remedy="set kafka.partitions to group or a share i/n, or choose another folder",
        )
        make_own_folder(path)
        try:
            lock = FileLock(path / "lock")
        except LockedError as error:
            raise failure(
                "a folder of checkpoints must have one daemon, and one has it in use",
                path=str(path),
                pid=error.pid,
                remedy="stop the other, or choose another folder",
            ) from error
        try:
            store = cls(path, lock, on_step)
            store._index.make()
            if claim is not None:
                store._owner = secrets.token_hex(8)
                store._index.claim(store._owner, claim.generation, reset=claim.reset)
            store._remove_leftovers()
        except BaseException:
            lock.free()
            raise
        return store

    @property
    def empty(self) -> bool:
        """Whether nothing was saved yet."""
        return self._index.newest_number() == 0

    def close(self) -> None:
        """Let another process in. Closing twice is allowed."""
        if self._lock is not None:
            self._lock.free()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def capture(
        self,
        learner: Engine | PrivateLearner,
        position: Position,
        vocabulary: Vocabulary,
        about: Mapping[str, Any] | None = None,
        rows: DocumentBatch | None = None,
        beside: Mapping[str, NDArray[Any]] | None = None,
    ) -> PendingCheckpoint:
        """Copy what a checkpoint holds; then the learner may go on.

        `position` (of all partitions) and `about` (such as counters; never document text) are plain
        JSON values; `rows` are documents before the position that the learner does not have yet,
        and `beside` arrays, taken over, that are kept for models to show. Nothing may be learned or
        released meanwhile. Time and memory O(bytes of the state).
        """
        arrays, metadata = state_of(learner)
        run = metadata["run"] or {"ledger_id": None, "epoch": None}
        body = {"position": dict(position), "about": dict(about or {})}
        body |= {name: run[name] for name in ("ledger_id", "epoch")}
        # Here and not when it is written: what has no JSON form costs no time then.
        to_json(body)
        kept: Arrays = {}
        if rows is not None and rows.n_documents:
            kept = {name: array.copy() for name, array in rows.arrays.items()}
        kept |= with_prefix(beside or {}, BESIDE)
        # Memory that was written to before is filled several times as fast as new memory.
        spare, self._spare = self._spare, {}
        copied = {name: _copied(array, spare.get(name)) for name, array in arrays.items()}
        return PendingCheckpoint(copied, metadata, kept, vocabulary, body)

    def write(self, captured: PendingCheckpoint) -> int:
        """Make a captured checkpoint the current generation; it may run in a thread.

        No release may be begun meanwhile, and nothing captured. Raises `FencedError` if another
        has claimed the folder. Time O(bytes), memory O(1); the
        memory of the copy is kept for the next one. The generation that is returned is on the disk;
        after an `OSError` the one before stays the current one.
        """
        require(
            self._lock is not None and self._lock.held,
            "checkpoints must be open to be saved",
            path=str(self.folder),
            remedy="open it again",
        )
        body = dict(captured.body)
        generation = self._index.newest_number() + 1
        self._step("save:begin")
        # What two write at once has two names.
        name = f"{generation:06d}" + (f"-{self._owner}" if self._owner else "")
        path = self.folder / f"words-{name}"
        _write_words(path, captured.vocabulary)
        body["words"] = _described(path)
        self._step("save:words")
        body["rows"] = None
        if captured.rows:
            path = self.folder / f"rows-{name}"
            write_arrays(path, ROWS_FORMAT, ROWS_VERSION, captured.rows, {}, mode=OWNER_ONLY)
            body["rows"] = _described(path)
        path = self.folder / f"state-{name}"
        write_state(path, captured.arrays, captured.metadata)
        body["state"] = _described(path)
        self._step("save:state")
        self._index.make_current(generation, body, KEPT, self._owner)
        self._step("save:current")
        self._remove_leftovers()
        self._step("save:cleaned")
        self._spare = captured.arrays
        return generation

    def newest(
        self, ledger: LedgerReader | None = None, *, catch_up: bool = False
    ) -> Checkpoint | None:
        """Return the newest whole generation, or None if none was ever made.

        `catch_up` allows one release since then, for which the caller makes up
        (`Checkpoint.releases_behind`). Time O(bytes of the state): its digest is checked.

        A generation from before a release, or of another ledger, is refused.
        """
        rows = self._index.rows()
        if not rows:
            return None
        problems: list[str] = []
        for row in rows:
            try:
                return self._opened(row, ledger, tuple(problems), catch_up)
            except (ModelFileError, FileNotFoundError) as error:
                if isinstance(error, NewerFormatError | OlderFormatError):
                    raise
                problems.append(f"generation {row[0]}: {error}")
        raise failure(
            f"one of {len(rows)} checkpoints must be whole, and none is: {'; '.join(problems)}",
            path=str(self.folder),
            remedy="restore the folder from a copy, or start in an empty one",
            error=ModelFileError,
        )

    def _opened(
        self, row: Row, ledger: LedgerReader | None, skipped: tuple[str, ...], catch_up: bool
    ) -> Checkpoint:
        number, text, _ = row
        if not has_checksum(row):
            raise ModelFileError(f"the checksum of row {number} of the index differs")
        body = json.loads(text)
        for part in ("state", "words", "rows"):
            if body[part] is None:
                continue
            found, stored = _described(self.folder / body[part]["name"]), body[part]
            require(
                found == stored,
                "a file of a checkpoint must be unaltered",
                name=stored["name"],
                size_bytes=found["size_bytes"],
                stored=stored["size_bytes"],
                remedy="restore it from a copy",
                error=ModelFileError,
            )
        require(
            (body["epoch"] is None) == (ledger is None),
            "a private checkpoint must be loaded with its ledger, and another without",
            epoch=body["epoch"],
            ledger=ledger and str(ledger.path),
            remedy="run with the settings it was made with, or in an empty folder",
        )
        behind = 0
        if ledger is not None:
            behind = int(catch_up and body["epoch"] == ledger.generation - 1)
            ledger.check_epoch(body["epoch"] + behind, body["ledger_id"])
        return Checkpoint(
            generation=number,
            position=body["position"],
            vocabulary=_read_words(self.folder / body["words"]["name"]),
            about=body["about"],
            ledger_id=body["ledger_id"],
            epoch=body["epoch"],
            skipped=skipped,
            releases_behind=behind,
            _rows=None if body["rows"] is None else self.folder / body["rows"]["name"],
            _path=self.folder / body["state"]["name"],
        )

    def _remove_leftovers(self) -> None:
        """Remove what a crash left behind, and what belonged to the third newest."""
        named = set()
        for _, text, _ in self._index.rows():
            try:
                body = json.loads(text)
                parts = (body["state"], body["words"], body["rows"])
                named |= {part["name"] for part in parts if part is not None}
            except (ValueError, LookupError, TypeError):
                return  # Whose files these are is not known: nothing is removed.
        for path in self.folder.iterdir():
            if OURS.match(path.name) and path.name not in named:
                path.unlink()


def _copied(array: NDArray[Any], spare: NDArray[Any] | None) -> NDArray[Any]:
    """Return a copy, in the spare array if it has the same form."""
    if spare is None or spare.shape != array.shape or spare.dtype != array.dtype:
        return np.array(array, order="C")
    np.copyto(spare, array)
    return spare


def _described(path: Path) -> dict[str, Any]:
    digest, size_bytes = digest_file(path)
    return {"name": path.name, "digest": digest, "size_bytes": size_bytes}


def _write_words(path: Path, vocabulary: Vocabulary) -> None:
    text = to_json({"metadata": vocabulary.metadata(), "words": vocabulary.words})
    data = np.frombuffer(text.encode("ascii"), dtype=np.uint8)
    write_arrays(path, WORDS_FORMAT, WORDS_VERSION, {"text": data}, {}, mode=OWNER_ONLY)


def _read_words(path: Path) -> Vocabulary:
    data = read_arrays(path, WORDS_FORMAT, WORDS_VERSION).arrays["text"]
    values = json.loads(data.tobytes())
    return Vocabulary.from_metadata(values["metadata"], values["words"])
