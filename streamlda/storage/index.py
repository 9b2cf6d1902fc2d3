"""The index of a folder of checkpoints: which generations there are, and what is in each.

An SQLite database with a row for each generation that is kept: its number, a JSON body and a
checksum over both. What an index says is true after a commit, and on the disk.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any
from urllib.parse import quote

from streamlda.checks import failure
from streamlda.container import check_version, sync_folder, to_json
from streamlda.errors import FencedError, ModelFileError
from streamlda.storage.state import OWNER_ONLY

#: Marks the index as one of ours ("sCKP"), and counts the formats.
APPLICATION_ID = 0x73434B50
FORMAT_VERSION = 2

BUSY_SECONDS = 30.0
#: Who may write, if that changes: the last who came, and the number of its group by then.
FENCE = "CREATE TABLE IF NOT EXISTS fence (only INTEGER PRIMARY KEY, owner TEXT, number INTEGER)"
SCHEMA = "CREATE TABLE generations (number INTEGER PRIMARY KEY, body TEXT NOT NULL, digest TEXT)"

#: Number, body and digest of a generation.
Row = tuple[int, str, str]


class CheckpointIndex:
    """The index in a folder. `step` is called with the name of each step, for tests of crashes."""

    def __init__(self, folder: Path, step: Callable[[str], None]) -> None:
        self._folder, self._path, self._step = folder, folder / "index", step

    def make(self) -> None:
        """Make it, whole or not at all, if there is neither an index nor a state without one."""
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
        with self._connected(fresh) as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute(f"PRAGMA application_id={APPLICATION_ID}")
            database.execute(f"PRAGMA user_version={FORMAT_VERSION}")
            database.execute(SCHEMA)
            database.execute("COMMIT")
        self._step("open:written")
        fresh.rename(self._path)
        sync_folder(self._folder)
        sync_folder(self._folder.parent)
        self._step("open:made")

    def rows(self) -> list[Row]:
        """Return all generations, newest first; `has_checksum` tells which are whole."""
        with self._open() as database:
            query = "SELECT number, body, digest FROM generations ORDER BY number DESC"
            return database.execute(query).fetchall()

    def newest_number(self) -> int:
        """Return the number of the newest generation, 0 if there is none."""
        return max((number for number, *_ in self.rows()), default=0)

    def claim(self, owner: str, number: int | None, *, reset: bool = False) -> None:
        """Let none but this owner write, from now on.

        Owners that come by a group have its `number`, which only grows while the group lasts: an
        older one comes too late, unless it is known that numbers were `reset`. Raises
        `FencedError`.
        """
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute(FENCE)
            found = database.execute("SELECT number FROM fence").fetchone()
            newest = None if found is None or reset else found[0]
            if number is not None and newest is not None and newest > number:
                raise _fenced(self._folder, number, newest)
            database.execute("INSERT OR REPLACE INTO fence VALUES (0, ?, ?)", (owner, number))
            database.execute("COMMIT")

    def make_current(
        self, generation: int, body: Mapping[str, Any], kept: int, owner: str | None = None
    ) -> None:
        """Add a generation and drop all but the newest `kept`, in one transaction.

        Raises `FencedError` if there is an `owner`, and another has claimed the folder since.
        """
        text = to_json(body)
        with self._open() as database:
            database.execute("BEGIN IMMEDIATE")
            if owner is not None:
                found = database.execute("SELECT owner, number FROM fence").fetchone()
                if found is None or found[0] != owner:
                    raise _fenced(self._folder, None, found and found[1])
            row = (generation, text, _digest(generation, text))
            database.execute("INSERT INTO generations VALUES (?, ?, ?)", row)
            self._step("save:inserted")
            database.execute("DELETE FROM generations WHERE number <= ?", (generation - kept,))
            self._step("save:dropped")
            database.execute("COMMIT")

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Open the index, for reading and writing, once its kind and version are checked."""
        with self._connected(self._path) as database:
            ours = database.execute("PRAGMA application_id").fetchone()[0]
            version = database.execute("PRAGMA user_version").fetchone()[0]
            if ours != APPLICATION_ID:
                raise sqlite3.DatabaseError("it is a database of another program")
            check_version(version, FORMAT_VERSION, "checkpoints", self._folder)
            yield database

    @contextmanager
    def _connected(self, path: Path) -> Iterator[sqlite3.Connection]:
        try:
            with closing(_connect(path)) as database:
                yield database
        except sqlite3.OperationalError as error:
            # Of a full or failing disk, say: what is there may well be whole.
            raise OSError(f"the index of checkpoints cannot be used: {error}") from error
        except sqlite3.Error as error:
            raise failure(
                f"the index of checkpoints must be whole: {error}",
                path=str(self._path),
                remedy="restore it from a copy, or start in an empty folder",
                error=ModelFileError,
            ) from error


def _fenced(folder: Path, number: int | None, newest: int | None) -> FencedError:
    error = failure(
        "a partition must have one daemon, and another has taken it over",
        path=str(folder),
        generation=number,
        taken_in=newest,
        remedy="nothing was written; the other goes on with it",
        error=FencedError,
    )
    assert isinstance(error, FencedError)
    return error


def has_checksum(row: Row) -> bool:
    """Tell whether a row is as it was written."""
    number, text, digest = row
    return digest == _digest(number, text)


def _connect(path: Path) -> sqlite3.Connection:
    database = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?mode=rw",
        uri=True,
        isolation_level=None,
        timeout=BUSY_SECONDS,
    )
    # As in the ledger: after a commit the one file holds everything, and is on the disk.
    database.execute("PRAGMA synchronous=EXTRA")
    database.execute("PRAGMA trusted_schema=OFF")
    return database


def _digest(number: int, text: str) -> str:
    return blake2b(f"{number} {text}".encode(), digest_size=32).hexdigest()
