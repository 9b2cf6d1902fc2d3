"""Checkpoints: the state of an engine and the positions of its source, of one moment, or none.

A folder of checkpoints belongs to one daemon, which holds a lock on it. In it lie

``index``
    An SQLite database with a row for each generation that is kept: names, sizes and digests of its
    two files, the positions of all partitions, the epoch of the ledger, and a checksum over all
    that. It is made with the folder, before any state, so that a lost index is noticed.
``state-000007``
    A state file (`streamlda.storage.state`): raw, readable by its owner only.
``rows-000007``
    Documents that wait for their block, as counts; only if there are any.
``words-DIGEST``
    The vocabulary of it, which generations share.

A checkpoint is copied in memory, written whole under new names and forced to the disk; then one
transaction makes it the current one and drops the third newest. Killed at any moment, the next
start finds the last generation or the one before, each with its own positions: a document is in
the sums if and only if the position is behind it. Files that no row names are removed at the next
start.

In a private run a generation from before a release is refused, the second newest too: its
documents would take part twice. The epoch of the ledger, stored with each, tells. One release
between the last checkpoint and a crash can be made up for, if its documents are left out
(`PrivateLearner.catch_up`).

All of it is as secret as the documents.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from streamlda.container import read_arrays, to_json, write_arrays
from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Arrays, Engine
from streamlda.errors import InvalidSettingError, ModelFileError, NewerFormatError
from streamlda.privacy.ledger import LedgerReader, OnStep, digest_file, sync_folder
from streamlda.private.learner import PrivateLearner
from streamlda.storage.state import OWNER_ONLY, load_state, state_of, write_state
from streamlda.stream.source import Position
from streamlda.text.vocabulary import Vocabulary

#: Marks the index as one of ours ("sCKP"), and counts the formats.
APPLICATION_ID = 0x73434B50
FORMAT_VERSION = 1

#: Generations that are kept.
KEPT = 2

WORDS_FORMAT, WORDS_VERSION = "streamlda-checkpoint-words", 1
ROWS_FORMAT, ROWS_VERSION = "streamlda-checkpoint-rows", 1
BUSY_SECONDS = 30.0
SCHEMA = "CREATE TABLE generations (number INTEGER PRIMARY KEY, body TEXT NOT NULL, digest TEXT)"
OURS = re.compile(r"((state|rows)-\d{6,}|words-[0-9a-f]{32}|\.streamlda-[0-9a-f]{16}\.tmp)\Z")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A whole generation: what to go on from.

    Attributes
    ----------
    generation : int
        From 1.
    position : mapping
        Where the source goes on, for `Source.seek`: of the moment of the state.
    vocabulary : Vocabulary
    about : dict
        What was stored beside it: plain JSON values.
    ledger_id, epoch : str or None, int or None
        Of the ledger when it was made; None if the run is not private.
    passed_over : tuple of str
        Why newer generations were not taken; empty for the newest. To be logged as an error.
    releases_behind : int
        Releases begun since then, for which somebody must make up: 0, or 1 if that was allowed.
    """

    generation: int
    position: Position
    vocabulary: Vocabulary = field(repr=False)
    about: dict[str, Any]
    ledger_id: str | None
    epoch: int | None
    passed_over: tuple[str, ...]
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
        if self._rows is None:
            return None
        found = read_arrays(self._rows, ROWS_FORMAT, ROWS_VERSION)
        return DocumentBatch(**found.arrays, n_features=self.vocabulary.n_features, integral=False)


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

    def __init__(self, folder: Path, lock: int, on_step: OnStep | None) -> None:
        self.folder = folder
        self._lock: int | None = lock
        self._step: OnStep = on_step or (lambda name: None)
        self._index = folder / "index"
        # Arrays of a capture that was written: memory for the next.
        self._spare: Arrays = {}

    @classmethod
    def open(cls, folder: str | os.PathLike[str], *, on_step: OnStep | None = None) -> Self:
        """Open a folder of checkpoints as its only user, or make it.

        Parameters
        ----------
        folder : str or path-like
            Made if it is not there, for its owner only; its parent must be there.
        on_step : callable or None
            Called with the name of each step, for tests of crashes.

        Raises
        ------
        InvalidSettingError
            If another process has it open.
        ModelFileError
            If there is state without an index, or the index is damaged or foreign.
        NewerFormatError
            If a later version of streamlda made it.
        OSError
            If the folder cannot be made or locked.
        """
        path = Path(os.path.realpath(folder))
        path.mkdir(mode=0o700, exist_ok=True)
        lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise InvalidSettingError(
                    "a folder of checkpoints must have one daemon, got one that is in use: "
                    f"path={str(path)!r}; stop the other, or choose another folder"
                ) from error
            store = cls(path, lock, on_step)
            store._make_index()
            store._remove_leftovers()
        except BaseException:
            os.close(lock)
            raise
        return store

    def close(self) -> None:
        """Let another process in. Closing twice is allowed."""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def save(
        self,
        learner: Engine | PrivateLearner,
        position: Position,
        vocabulary: Vocabulary,
        about: Mapping[str, Any] | None = None,
        rows: DocumentBatch | None = None,
    ) -> int:
        """Make the state and the position behind its last document the current generation.

        `capture` and `write`, one after the other, with their parameters and errors.
        """
        return self.write(self.capture(learner, position, vocabulary, about, rows))

    def capture(
        self,
        learner: Engine | PrivateLearner,
        position: Position,
        vocabulary: Vocabulary,
        about: Mapping[str, Any] | None = None,
        rows: DocumentBatch | None = None,
    ) -> PendingCheckpoint:
        """Copy what a checkpoint holds; then the learner may go on.

        Nothing may be learned or released meanwhile. Time and memory O(bytes of the state).

        Parameters
        ----------
        learner : Engine or PrivateLearner
        position : mapping
            Of all partitions: plain JSON values.
        vocabulary : Vocabulary
            Of the learner.
        about : mapping, optional
            Plain JSON values to keep beside it, such as counters. Never document text.
        rows : DocumentBatch, optional
            Documents before the position that the learner has not been given yet.

        Raises
        ------
        InvalidSettingError
            If a private learner has no ledger, or a value is not plain JSON.
        """
        arrays, metadata = state_of(learner)
        body: dict[str, Any] = {
            "position": dict(position),
            "about": dict(about or {}),
            "ledger_id": None,
            "epoch": None,
        }
        if metadata["run"] is not None:
            body |= {name: metadata["run"][name] for name in ("ledger_id", "epoch")}
        # Here and not when it is written: what has no JSON form costs no time then.
        to_json(body)
        kept: Arrays = {}
        if rows is not None and rows.n_documents:
            names = ("counts", "word_ids", "row_pointers")
            kept = {name: getattr(rows, name).copy() for name in names}
        # Memory that was written to before is filled several times as fast as new memory.
        spare, self._spare = self._spare, {}
        copied = {name: _copied(array, spare.get(name)) for name, array in arrays.items()}
        return PendingCheckpoint(copied, metadata, kept, vocabulary, body)

    def write(self, captured: PendingCheckpoint) -> int:
        """Make a captured checkpoint the current generation; it may run in a thread.

        No release may be begun meanwhile, and nothing captured. Time O(bytes), memory O(1); the
        memory of the copy is kept for the next one.

        Returns
        -------
        int
            The generation. It is on the disk.

        Raises
        ------
        InvalidSettingError
            If the store is closed.
        OSError
            If it cannot be written; the generation before stays the current one.
        """
        if self._lock is None:
            raise InvalidSettingError(
                "checkpoints must be open to be saved, got a closed folder "
                f"path={str(self.folder)!r}; open it again"
            )
        body = dict(captured.body)
        generation = self._newest_number() + 1
        self._step("save:begin")
        body["words"] = self._write_words(captured.vocabulary)
        self._step("save:words")
        body["rows"] = None
        if captured.rows:
            path = self.folder / f"rows-{generation:06d}"
            write_arrays(path, ROWS_FORMAT, ROWS_VERSION, captured.rows, {}, mode=OWNER_ONLY)
            body["rows"] = _described(path)
        path = self.folder / f"state-{generation:06d}"
        write_state(path, captured.arrays, captured.metadata)
        body["state"] = _described(path)
        self._step("save:state")
        self._make_current(generation, body)
        self._step("save:current")
        self._remove_leftovers()
        self._step("save:cleaned")
        self._spare = captured.arrays
        return generation

    def newest(
        self, ledger: LedgerReader | None = None, *, catch_up: bool = False
    ) -> Checkpoint | None:
        """Return the newest whole generation, or None if none was ever made.

        Time O(bytes of the state): its digest is checked.

        Parameters
        ----------
        ledger : LedgerReader, optional
            That of a private run.
        catch_up : bool, default False
            Allow one release since then, for which the caller makes up (`releases_behind`).

        Raises
        ------
        ModelFileError
            If no generation is whole.
        LedgerError
            If the newest whole one is from before a release, or from another ledger: drop the
            state then, and go on behind the last cohort of the ledger.
        InvalidSettingError
            If the generation is private and no ledger was given, or the other way round.
        """
        with self._reading() as database:
            rows = database.execute(
                "SELECT number, body, digest FROM generations ORDER BY number DESC"
            ).fetchall()
        if not rows:
            return None
        problems: list[str] = []
        for number, text, digest in rows:
            try:
                return self._opened(number, text, digest, ledger, tuple(problems), catch_up)
            except (ModelFileError, FileNotFoundError) as error:
                if isinstance(error, NewerFormatError):
                    raise
                problems.append(f"generation {number}: {error}")
        raise ModelFileError(
            f"a checkpoint must be whole, got none of {len(rows)} whole in "
            f"path={str(self.folder)!r}: {'; '.join(problems)}; restore the folder from a copy, or "
            "begin anew in an empty one"
        )

    def _opened(
        self,
        number: int,
        text: str,
        digest: str,
        ledger: LedgerReader | None,
        passed_over: tuple[str, ...],
        catch_up: bool,
    ) -> Checkpoint:
        if digest != _digest(number, text):
            raise ModelFileError(f"the checksum of row {number} of the index differs")
        body = json.loads(text)
        for part in ("state", "words", "rows"):
            if body[part] is None:
                continue
            found, stored = _described(self.folder / body[part]["name"]), body[part]
            if found != stored:
                raise ModelFileError(
                    f"a file of a checkpoint must be unaltered, got name={stored['name']} "
                    f"size_bytes={found['size_bytes']} stored={stored['size_bytes']}; "
                    "restore it from a copy"
                )
        if (body["epoch"] is None) != (ledger is None):
            raise InvalidSettingError(
                "a private checkpoint must be loaded with its ledger, and another without, got "
                f"epoch={body['epoch']} ledger={ledger and str(ledger.path)!r}; run with the "
                "settings it was made with, or in an empty folder"
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
            passed_over=passed_over,
            releases_behind=behind,
            _rows=None if body["rows"] is None else self.folder / body["rows"]["name"],
            _path=self.folder / body["state"]["name"],
        )

    # The index.

    def _make_index(self) -> None:
        if self._index.exists():
            return
        states = sorted(self.folder.glob("state-*"))
        if states:
            raise ModelFileError(
                "a folder of checkpoints must have its index, got none beside "
                f"state={states[-1].name} path={str(self.folder)!r}; restore the index from a "
                "copy, or begin anew in an empty folder"
            )
        fresh = self.folder / "index.new"
        for leftover in (fresh, self.folder / "index.new-journal"):
            leftover.unlink(missing_ok=True)
        self._step("open:begin")
        os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, OWNER_ONLY))
        with closing(_connect(fresh)) as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute(f"PRAGMA application_id={APPLICATION_ID}")
            database.execute(f"PRAGMA user_version={FORMAT_VERSION}")
            database.execute(SCHEMA)
            database.execute("COMMIT")
        self._step("open:written")
        fresh.rename(self._index)
        sync_folder(self.folder)
        sync_folder(self.folder.parent)
        self._step("open:made")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Open the index, for reading and writing, once it was looked at."""
        try:
            with closing(_connect(self._index)) as database:
                ours = database.execute("PRAGMA application_id").fetchone()[0]
                version = database.execute("PRAGMA user_version").fetchone()[0]
                if ours == APPLICATION_ID and version > FORMAT_VERSION:
                    raise NewerFormatError(
                        "checkpoints must not be in a later format than this streamlda reads, got "
                        f"format_version={version} readable={FORMAT_VERSION} "
                        f"path={str(self.folder)!r}; upgrade streamlda, or use another folder"
                    )
                if ours != APPLICATION_ID or version != FORMAT_VERSION:
                    raise sqlite3.DatabaseError("it is a database of another program")
                yield database
        except sqlite3.OperationalError as error:
            # Of a full or failing disk, say: what is there may well be whole.
            raise OSError(f"the index of checkpoints cannot be used: {error}") from error
        except sqlite3.Error as error:
            raise ModelFileError(
                f"the index of checkpoints must be whole, got error={error} "
                f"path={str(self._index)!r}; restore it from a copy, or begin anew in an empty "
                "folder"
            ) from error

    def _newest_number(self) -> int:
        with self._reading() as database:
            found = database.execute("SELECT max(number) FROM generations").fetchone()[0]
            return int(found or 0)

    def _make_current(self, generation: int, body: Mapping[str, Any]) -> None:
        text = to_json(body)
        with self._reading() as database:
            database.execute("BEGIN IMMEDIATE")
            row = (generation, text, _digest(generation, text))
            database.execute("INSERT INTO generations VALUES (?, ?, ?)", row)
            self._step("save:inserted")
            database.execute("DELETE FROM generations WHERE number <= ?", (generation - KEPT,))
            self._step("save:dropped")
            database.execute("COMMIT")

    # Files.

    def _write_words(self, vocabulary: Vocabulary) -> dict[str, Any]:
        text = to_json({"metadata": vocabulary.metadata(), "words": vocabulary.words})
        data = np.frombuffer(text.encode("ascii"), dtype=np.uint8)
        path = self.folder / f"words-{blake2b(data.tobytes(), digest_size=16).hexdigest()}"
        # Not trusted because of its name: it may be damaged, and this repairs it.
        if not path.exists() or _text_of(path) != text:
            write_arrays(path, WORDS_FORMAT, WORDS_VERSION, {"text": data}, {}, mode=OWNER_ONLY)
        return _described(path)

    def _remove_leftovers(self) -> None:
        """Remove what a crash left behind, and what belonged to the third newest."""
        named = set()
        with self._reading() as database:
            for _, text in database.execute("SELECT number, body FROM generations"):
                try:
                    body = json.loads(text)
                    parts = (body["state"], body["words"], body["rows"])
                    named |= {part["name"] for part in parts if part is not None}
                except (ValueError, LookupError, TypeError):
                    return  # Whose files these are cannot be told: nothing is removed.
        for path in self.folder.iterdir():
            if OURS.match(path.name) and path.name not in named:
                path.unlink()


def _copied(array: NDArray[Any], spare: NDArray[Any] | None) -> NDArray[Any]:
    """Return a copy, in the spare array if it has the same form."""
    if spare is None or spare.shape != array.shape or spare.dtype != array.dtype:
        return np.array(array, order="C")
    np.copyto(spare, array)
    return spare


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


def _described(path: Path) -> dict[str, Any]:
    digest, size_bytes = digest_file(path)
    return {"name": path.name, "digest": digest, "size_bytes": size_bytes}


def _text_of(path: Path) -> str | None:
    try:
        file = read_arrays(path, WORDS_FORMAT, WORDS_VERSION)
    except ModelFileError:
        return None
    return file.arrays["text"].tobytes().decode("ascii")


def _read_words(path: Path) -> Vocabulary:
    values = json.loads(_text_of(path) or "null")
    return Vocabulary.from_metadata(values["metadata"], values["words"])
