"""The index of a folder of checkpoints: an SQLite database with a row for each generation.

A row has the number of its generation, a JSON body and a checksum over both. After a commit the
index is on the disk.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from streamlda.checks import failure
from streamlda.container import check_version, sync_folder, to_json
from streamlda.errors import MISPLACED, FencedError, ModelFileError, StreamLDAError

#: Marks the index as one of this program ("sCKP"), and counts the formats.
APPLICATION_ID = 0x73434B50
FORMAT_VERSION = 3

BUSY_SECONDS = 30.0
#: Modes of files and folders that hold raw data, whatever the umask allows.
OWNER_ONLY, PRIVATE_FOLDER = 0o600, 0o700

#: `fence` has the last process that claimed the folder, and the generation of its group by then;
#: `letters` up to where dead letters were written of records that no generation is behind.
SCHEMA = (
    "CREATE TABLE generations (number INTEGER PRIMARY KEY, body TEXT NOT NULL, digest TEXT)",
    "CREATE TABLE fence (only INTEGER PRIMARY KEY, owner TEXT, number INTEGER)",
    "CREATE TABLE letters (only INTEGER PRIMARY KEY, body TEXT NOT NULL)",
)


def make_folder(path: Path, setting: str, *, mode: int = 0o777, parents: bool = False) -> None:
    """Make a folder of a setting if it is missing; refuse what a new start cannot heal."""
    try:
        path.mkdir(mode=mode, parents=parents, exist_ok=True)
    except MISPLACED as error:
        raise failure(
            f"{setting} must be a folder, or one that can be made in its parent",
            path=str(path),
            cause=error.strerror,
            remedy=f"choose another {setting}, or make its parent",
        ) from error


class Row(NamedTuple):
    """A generation: number, JSON body, and checksum over both."""

    number: int
    text: str
    digest: str

    @property
    def is_whole(self) -> bool:
        """True if the row is as it was written."""
        return self.digest == _digest(self.number, self.text)


class CheckpointIndex:
    """The index in a folder. `step` is called with the name of each step, for tests of crashes."""

    def __init__(self, folder: Path, step: Callable[[str], object] = str) -> None:
        self._folder, self._path, self._step = folder, folder / "index", step

    def make(self) -> None:
        """Make the index, whole or not at all, unless it is there; refuse a state without one."""
        if self._path.exists():
            return
        states = sorted(self._folder.glob("state-*"))
        if states:
            raise failure(
                "a folder of checkpoints must have its index",
                state=states[-1].name,
                path=str(self._folder),
                remedy="restore the index from a copy, or start in an empty folder",
                error=ModelFileError,
            )
        fresh = self._folder / "index.new"
        for leftover in (fresh, self._folder / "index.new-journal"):
            leftover.unlink(missing_ok=True)
        self._step("open:begin")
        os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY))
        with self._connect(fresh) as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute(f"PRAGMA application_id={APPLICATION_ID}")
            database.execute(f"PRAGMA user_version={FORMAT_VERSION}")
            for table in SCHEMA:
                database.execute(table)
            database.execute("COMMIT")
        self._step("open:written")
        fresh.rename(self._path)
        sync_folder(self._folder)
        sync_folder(self._folder.parent)
        self._step("open:made")

    def rows(self) -> list[Row]:
        """Return all generations, newest first."""
        with self._open() as database:
            query = "SELECT number, body, digest FROM generations ORDER BY number DESC"
            return [Row(*found) for found in database.execute(query)]

    def newest_number(self) -> int:
        """Return the number of the newest generation, 0 if there is none."""
        return max((row.number for row in self.rows()), default=0)

    def claim(self, owner: str, number: int | None, *, reset: bool = False) -> None:
        """Let nobody but this owner write; `FencedError` for a lower number, unless `reset`."""
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            found = database.execute("SELECT number FROM fence").fetchone()
            newest = None if found is None or reset else found[0]
            if number is not None and newest is not None and newest > number:
                raise self._fenced(number, newest)
            database.execute("INSERT OR REPLACE INTO fence VALUES (0, ?, ?)", (owner, number))
            database.execute("COMMIT")

    def make_current(
        self, generation: int, body: Mapping[str, Any], kept: int, owner: str | None = None
    ) -> None:
        """Add a generation and drop all but the newest `kept`, in one transaction."""
        text = to_json(body)
        with self._open() as database:
            self._begin(database, owner)
            row = (generation, text, _digest(generation, text))
            database.execute("INSERT INTO generations VALUES (?, ?, ?)", row)
            self._step("save:inserted")
            database.execute("DELETE FROM generations WHERE number <= ?", (generation - kept,))
            self._step("save:dropped")
            database.execute("COMMIT")

    def note_letters(self, note: Mapping[str, Any], owner: str | None = None) -> None:
        """Keep a note on dead letters in place of the last one; `FencedError` as `make_current`."""
        with self._open() as database:
            self._begin(database, owner)
            database.execute("INSERT OR REPLACE INTO letters VALUES (0, ?)", (to_json(note),))
            database.execute("COMMIT")

    def letters(self) -> dict[str, Any] | None:
        """Return the note on dead letters, or None if there is none."""
        with self._open() as database:
            found = database.execute("SELECT body FROM letters").fetchone()
        note: dict[str, Any] | None = None if found is None else json.loads(found[0])
        return note

    def _begin(self, database: sqlite3.Connection, owner: str | None) -> None:
        """Begin to write; refuse an owner after which another has claimed the folder."""
        database.execute("BEGIN IMMEDIATE")
        if owner is not None:
            found = database.execute("SELECT owner, number FROM fence").fetchone()
            if found is None or found[0] != owner:
                raise self._fenced(None, found and found[1])

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the index once its kind and version are checked."""
        with self._connect(self._path) as database:
            if database.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
                raise sqlite3.DatabaseError("it is a database of another program")
            version = database.execute("PRAGMA user_version").fetchone()[0]
            check_version(version, FORMAT_VERSION, "checkpoints", self._folder)
            yield database

    @contextmanager
    def _connect(self, path: Path) -> Iterator[sqlite3.Connection]:
        uri = f"file:{quote(os.fsencode(path))}?mode=rw"
        try:
            database = sqlite3.connect(uri, uri=True, isolation_level=None, timeout=BUSY_SECONDS)
            with closing(database):
                # As in the ledger: after a commit the one file holds everything, on the disk.
                database.execute("PRAGMA synchronous=EXTRA")
                database.execute("PRAGMA trusted_schema=OFF")
                yield database
        except sqlite3.OperationalError as error:
            # A full or failing disk: the index may well be whole.
            raise OSError(f"the index of checkpoints cannot be used: {error}") from error
        except sqlite3.Error as error:
            raise failure(
                f"the index of checkpoints must be whole: {error}",
                path=str(self._path),
                remedy="restore it from a copy, or start in an empty folder",
                error=ModelFileError,
            ) from error

    def _fenced(self, number: int | None, newest: int | None) -> StreamLDAError:
        return failure(
            "another daemon has taken over this partition",
            path=str(self._folder),
            generation=number,
            taken_in=newest,
            remedy="nothing was written; the other daemon resumes it",
            error=FencedError,
        )


def _digest(number: int, text: str) -> str:
    return blake2b(f"{number} {text}".encode(), digest_size=32).hexdigest()
