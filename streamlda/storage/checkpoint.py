"""Checkpoints: the state of a learner and the positions of its source, of one moment, or none.

A folder of checkpoints has an ``index``, an SQLite database with a row for each generation, and a
file of each, ``state-000007``: the arrays of the learner, its words, documents that wait for their
block, as counts, arrays that the pipeline keeps for models to show, and the positions.

All of it has sums without noise: it is as secret as the documents. A private state is restored with
its ledger only: after a later release, the documents of the running stage would take part twice.
"""

import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from streamlda import container, errors
from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.model.model_file import STATE_FORMAT, vocabulary_from, vocabulary_parts
from streamlda.privacy.ledger import LedgerReader
from streamlda.private.learner import PrivateLearner
from streamlda.storage.faults import FAULTS
from streamlda.stream.source import Position
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import Arrays, Tree, join_state, split_state, take_named, with_prefix

#: Marks the index as one of this program ("sCKP"), and counts the formats.
APPLICATION_ID = 0x73434B50
FORMAT_VERSION = 5
#: Of the file of a state.
STATE_VERSION = 6

#: Begin the names of arrays in the file of a state.
LEARNER, ROWS, BESIDE = "learner.", "rows.", "beside."

BUSY_SECONDS = 30.0
#: Modes of files and folders that hold raw data, whatever the umask allows.
OWNER_ONLY, PRIVATE_FOLDER = 0o600, 0o700

#: `fence` has the last process that claimed the folder, and the generation of its group by then.
SCHEMA = (
    "CREATE TABLE generations (number INTEGER PRIMARY KEY, name TEXT NOT NULL, places INTEGER)",
    "CREATE TABLE fence (only INTEGER PRIMARY KEY, owner TEXT, number INTEGER)",
    "CREATE TABLE letters (only INTEGER PRIMARY KEY, note TEXT NOT NULL)",
)


def make_folder(path: Path, setting: str, *, mode: int = 0o777, parents: bool = False) -> None:
    """Make a folder of a setting if it is missing; refuse what a new start cannot heal."""
    try:
        path.mkdir(mode=mode, parents=parents, exist_ok=True)
    except errors.MISPLACED as error:
        about = {"setting": setting, "path": str(path), "cause": error.strerror}
        raise FAULTS.make("no folder", **about) from error


class Row(NamedTuple):
    """A generation: its number, its file, and the records that it is made of, for display."""

    number: int
    name: str
    places: int | None


class CheckpointIndex:
    """The index in a folder. `step` is called with the name of each step, for tests of crashes."""

    def __init__(self, folder: Path, step: Callable[[str], object] = str) -> None:
        self._folder, self._path, self._step = folder, folder / "index", step
        #: Tells this opening from all others, once it has claimed the folder.
        self.owner: str | None = None

    def make(self) -> None:
        """Make the index, whole or not at all, unless it is there; refuse a state without one."""
        if self._path.exists():
            return
        FAULTS.check(not any(self._folder.glob("state-*")), "no index", path=str(self._folder))
        self._step("open:begin")
        with closing(sqlite3.connect(":memory:")) as database:
            database.execute(f"PRAGMA application_id={APPLICATION_ID}")
            database.execute(f"PRAGMA user_version={FORMAT_VERSION}")
            for table in SCHEMA:
                database.execute(table)
            content = database.serialize()
        with container.whole_file(self._path, OWNER_ONLY) as file:
            file.write(content)
            self._step("open:written")
        container.sync_folder(self._folder)
        container.sync_folder(self._folder.parent)
        self._step("open:made")

    def rows(self) -> list[Row]:
        """Return all generations, newest first."""
        with self._open() as database:
            query = "SELECT number, name, places FROM generations ORDER BY number DESC"
            return [Row(*found) for found in database.execute(query)]

    def newest(
        self, ledger: LedgerReader | None = None, *, catch_up: bool = False
    ) -> "Checkpoint | None":
        """Return the newest whole generation, as `Store.newest`."""
        rows = self.rows()
        problems: list[str] = []
        for row in rows:
            try:
                path = self._folder / row.name
                return _read_generation(path, row.number, ledger, tuple(problems), catch_up)
            except (errors.ModelFileError, FileNotFoundError) as error:
                if isinstance(error, errors.NewerFormatError | errors.OlderFormatError):
                    raise
                problems.append(f"generation {row.number}: {error}")
        if not rows:
            return None
        raise errors.failure(
            f"none of {len(rows)} checkpoints is whole: {'; '.join(problems)}",
            path=str(self._folder),
            remedy="restore the folder from a copy, or start in an empty one",
            error=errors.ModelFileError,
        )

    def claim(self, number: int | None, *, reset: bool = False) -> None:
        """Let no opening before write; `FencedError` for a lower number, unless `reset`."""
        owner = secrets.token_hex(8)
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            found = database.execute("SELECT number FROM fence").fetchone()
            newest = None if found is None or reset else found[0]
            if number is not None and newest is not None and newest > number:
                raise self._make_fenced(number, newest)
            database.execute("INSERT OR REPLACE INTO fence VALUES (0, ?, ?)", (owner, number))
            database.execute("COMMIT")
        self.owner = owner

    def make_current(self, row: Row, most: int) -> None:
        """Add a generation and drop all but the newest `most`, in one transaction."""
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            self._check_owner(database)
            database.execute("INSERT INTO generations VALUES (?, ?, ?)", row)
            self._step("save:inserted")
            database.execute("DELETE FROM generations WHERE number <= ?", (row.number - most,))
            self._step("save:dropped")
            database.execute("COMMIT")

    def note_letters(self, note: Mapping[str, Any]) -> None:
        """Keep a note on the dead letters behind the newest checkpoint, in place of the last.

        `FencedError` where another opening has claimed the folder.
        """
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            self._check_owner(database)
            database.execute(
                "INSERT OR REPLACE INTO letters VALUES (0, ?)", (container.to_json(note),)
            )
            database.execute("COMMIT")

    def letters(self) -> dict[str, Any] | None:
        """Return the note on dead letters, or None if there is none."""
        with self._open() as database:
            found = database.execute("SELECT note FROM letters").fetchone()
        return None if found is None else dict(json.loads(found[0]))

    def _check_owner(self, database: sqlite3.Connection) -> None:
        if self.owner is None:
            return
        found = database.execute("SELECT owner, number FROM fence").fetchone()
        if found is None or found[0] != self.owner:
            raise self._make_fenced(None, found and found[1])

    def _make_fenced(self, number: int | None, newest: int | None) -> errors.StreamLDAError:
        about = {"path": str(self._folder), "generation": number, "taken_in": newest}
        return FAULTS.make("fenced", **about)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the index once its kind and version are checked."""
        uri = f"file:{quote(os.fsencode(self._path))}?mode=rw"
        try:
            database = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS)
            with closing(database):
                # As in the ledger: after a commit the one file holds everything, on the disk.
                database.execute("PRAGMA synchronous=EXTRA")
                database.execute("PRAGMA trusted_schema=OFF")
                if database.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                    raise sqlite3.DatabaseError("it is a database of another program")
                version = database.execute("PRAGMA user_version").fetchone()[0]
                container.check_version(version, FORMAT_VERSION, "checkpoints", self._folder)
                yield database
        except sqlite3.OperationalError as error:
            # A full or failing disk: the index may well be whole.
            raise OSError(f"the index of checkpoints cannot be used: {error}") from error
        except sqlite3.Error as error:
            raise FAULTS.make("broken index", path=str(self._path), cause=str(error)) from error


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole generation, from which a run resumes."""

    #: From 1.
    generation: int
    #: Position of the source at the moment of the state, for `Source.seek`.
    position: Position
    vocabulary: Vocabulary = field(repr=False)
    #: Plain JSON values that were stored beside the state.
    about: dict[str, Any]
    #: Documents that waited for their block, if any.
    rows: DocumentBatch | None = field(repr=False)
    #: That of `Pipeline.beside`.
    beside: Tree = field(repr=False)
    #: Problems of newer generations; empty for the newest. To be logged as errors.
    skipped: tuple[str, ...]
    #: Releases begun since then, for which the caller must make up: 0, or 1 if that was allowed.
    releases_behind: int
    _path: Path

    def restore(self, learner: PrivateLearner | None = None) -> Engine | PrivateLearner:
        """Return the engine, or fill a new private learner, as `load_state`."""
        return load_state(self._path, learner)


class PendingCheckpoint(NamedTuple):
    """A copy of what a checkpoint holds, not written yet. Made by `capture_state`."""

    arrays: Arrays
    metadata: dict[str, Any]

    @property
    def size_bytes(self) -> int:
        """Bytes of its arrays."""
        return sum(array.nbytes for array in self.arrays.values())


def capture_state(
    learner: Engine | PrivateLearner,
    position: Position,
    vocabulary: Vocabulary | None,
    about: Mapping[str, Any] | None = None,
    rows: DocumentBatch | None = None,
    beside: Tree | None = None,
) -> PendingCheckpoint:
    """Copy what a checkpoint holds; then the learner may continue. Time and memory O(state).

    A private learner ends its running group of documents: save at times that no text decides.
    """
    run = None
    if isinstance(learner, Engine):
        arrays, state = learner.state()
    else:
        ledger = learner.releaser.ledger
        if ledger is None:
            raise FAULTS.make("no ledger", ledger=None)
        arrays, state = learner.state()
        run = {
            **_describe_run(learner),
            "missed": learner.lost[-1] if learner.lost else None,
            "ledger_id": ledger.ledger_id,
            "epoch": ledger.generation,
        }
    described, words = vocabulary_parts(vocabulary)
    waiting = {} if rows is None or not rows.n_documents else rows.arrays
    arrays = with_prefix(arrays, LEARNER) | with_prefix(waiting, ROWS) | words
    shown, plain = split_state(beside or {})
    arrays |= with_prefix(shown, BESIDE)
    metadata = {"state": state, "run": run, "vocabulary": described, "beside": plain}
    metadata |= {"position": dict(position), "about": dict(about or {})}
    copied = {name: array.copy(order="C") for name, array in arrays.items()}
    # The learner changes lists of its own while the checkpoint is written.
    return PendingCheckpoint(copied, deepcopy(metadata))


def write_state(path: str | os.PathLike[str], arrays: Arrays, metadata: dict[str, Any]) -> None:
    """Write what `capture_state` returned for its owner only, whole or not at all."""
    container.write_arrays(path, STATE_FORMAT, STATE_VERSION, arrays, metadata, mode=OWNER_ONLY)


def read_state(path: str | os.PathLike[str]) -> container.ArraysFile:
    """Read a file of `write_state`, checked."""
    return container.read_arrays(path, STATE_FORMAT, STATE_VERSION)


def _read_generation(
    path: Path, number: int, ledger: LedgerReader | None, skipped: tuple[str, ...], catch_up: bool
) -> Checkpoint:
    arrays, metadata, _ = read_state(path)
    run, own = metadata["run"], ledger and str(ledger.path)
    epoch = run and run["epoch"]
    FAULTS.check((run is None) == (ledger is None), "ledger or none", epoch=epoch, ledger=own)
    behind = 0
    if ledger is not None:
        behind = int(catch_up and epoch == ledger.generation - 1)
        ledger.check_epoch(epoch + behind, run["ledger_id"])
    vocabulary = vocabulary_from(metadata["vocabulary"], arrays.get("words"))
    assert vocabulary is not None
    rows, width = take_named(arrays, ROWS), vocabulary.n_features
    return Checkpoint(
        generation=number,
        position=metadata["position"],
        vocabulary=vocabulary,
        about=metadata["about"],
        rows=DocumentBatch(**rows, n_features=width, integral=False) if rows else None,
        beside=join_state(take_named(arrays, BESIDE), metadata["beside"]),
        skipped=skipped,
        releases_behind=behind,
        _path=path,
    )


def load_state(
    path: str | os.PathLike[str], learner: PrivateLearner | None = None
) -> Engine | PrivateLearner:
    """Return the learner of a state file, bit for bit; a private state fills a new `learner`.

    The ledger of a private state is checked by `CheckpointIndex.newest`.
    """
    file = read_state(path)
    remedy = "start in an empty folder, after the last cohort of the ledger"
    with container.valid_content("state", path, remedy=remedy, but=(errors.InvalidSettingError,)):
        arrays, state = take_named(file.arrays, LEARNER), file.metadata["state"]
        run = file.metadata["run"]
        found = {"private": run is not None, "learner": learner is not None, "path": str(path)}
        FAULTS.check((run is None) == (learner is None), "learner or none", **found)
        if learner is None:
            return Engine.from_state(arrays, state)
        others = [
            f"{name}={found!r} (saved: {run[name]!r})"
            for name, found in _describe_run(learner).items()
            if found != run[name]
        ]
        others += learner.settings.list_differences(state["settings"])
        errors.require(
            not others,
            f"a state was made with other settings: {', '.join(others)}",
            path=str(path),
            remedy="use the saved ones, or drop the state and begin after the last cohort",
        )
        learner.restore(arrays, state)
    if run["missed"] is not None:
        learner.lost.append(str(run["missed"]))
    return learner


def _describe_run(learner: PrivateLearner) -> dict[str, Any]:
    return {
        "first_place": learner.first_slot,
        "vocabulary": learner.vocabulary,
        "delta": learner.delta,
        "secure": learner.releaser.noise.secure,
    }
