"""File of a privacy ledger: rows that are only ever added, chained by checksums.

Three files belong together. ``NAME`` is an SQLite database with one table. Each row carries
BLAKE2b over the row before it and its own content, so an edit, a lost row or rows in another order
are found. ``NAME.marker`` holds the number and checksum of the last row (or of the one before it,
after a crash); it shows that a ledger was here, and finds an older copy put back. ``NAME.lock`` is
locked for as long as a writer has the ledger open. Beside them lie ``NAME.key``, the secret of its
fingerprints of documents (`streamlda.privacy.ledger.fingerprints`), and ``NAME.documents``, which
may not be shown.

The journal mode is DELETE, not WAL: after each commit the one file holds everything, so it can be
copied and read from a folder that cannot be written. ``synchronous=EXTRA`` forces the database, the
journal and, after the journal is gone, the folder to the disk before a commit returns. The
database is opened for each operation and closed after it: no connection lives on across a fork, and
a file that was replaced meanwhile is noticed, because its last row is not the one expected.

What is not found: an older copy of *both* files (what is newer and lies elsewhere tells, see
`Ledger.check_epoch` and `streamlda.privacy.ledger.evidence`); a forgery with recomputed checksums
(no key is involved); two copies that are both spent from, or two ledgers for the same documents;
and a second name for the file by a hard link.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

from streamlda.checks import failure, require
from streamlda.container import check_version, sync_folder
from streamlda.errors import LedgerError, StreamLDAError
from streamlda.utils.lock import FileLock, LockedError

#: Marks the database as one of ours ("sLDG"), and counts the formats.
APPLICATION_ID = 0x734C4447
FORMAT_VERSION = 2

#: What every message about a ledger that cannot be trusted says.
EXHAUSTED = (
    "its budget counts as used up: bring the newest copy back, together with its .marker file"
)

#: What every message about a ledger in another format says.
OTHER_FORMAT = (
    "its budget counts as used up here: continue with the version of streamlda that wrote it, or "
    "take other documents and another ledger"
)

#: What every message about a file that never was a ledger says.
NAME_LEDGER = "name the file that a private run had as its ledger"

BUSY_SECONDS = 30.0

SCHEMA = (
    "CREATE TABLE entries (seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, subject TEXT NOT NULL,"
    " body TEXT NOT NULL, chain TEXT NOT NULL)",
    "CREATE INDEX entries_by_subject ON entries (kind, subject)",
    "CREATE TRIGGER entries_stay BEFORE DELETE ON entries"
    " BEGIN SELECT RAISE(ABORT, 'a ledger only grows'); END",
    "CREATE TRIGGER entries_keep BEFORE UPDATE ON entries"
    " BEGIN SELECT RAISE(ABORT, 'a ledger only grows'); END",
)

#: Called with the name of each step; a test of crashes ends the process there.
OnStep = Callable[[str], None]


class Row(NamedTuple):
    """One entry: its number from 1, its kind, what it is about, its content, its checksum."""

    seq: int
    kind: str
    subject: str
    body: dict[str, Any]
    chain: str


class Head(NamedTuple):
    """The last row of a ledger."""

    seq: int
    chain: str


START = Head(0, "0" * 64)


#: How the names of what lies beside a ledger go on.
MARKER, KEY, LOCK, RELEASES = ".marker", ".key", ".lock", ".releases"
DOCUMENTS = ".documents"
JOURNAL = "-journal"
_ENDS = (MARKER, KEY, LOCK, DOCUMENTS, RELEASES, JOURNAL)


def beside(ledger: Path) -> list[Path]:
    """Return the paths of all that lies beside a ledger, whether it is there or not."""
    return [ledger.with_name(ledger.name + end) for end in _ENDS]


def has_ledger(path: Path) -> bool:
    """Return whether a path is that of a ledger, or of what lies beside one or in its folder."""
    named = [path.name.removesuffix(end) for end in ("", *_ENDS) if path.name.endswith(end)]
    ledgers = [path.with_name(name) for name in named if name]
    if path.parent.name.endswith(RELEASES):
        ledgers.append(path.parent.with_name(path.parent.name.removesuffix(RELEASES)))
    return any(each.with_name(each.name + MARKER).exists() for each in ledgers)


class LedgerFile:
    """Rows on disk, read by anyone and written by the holder of the lock.

    A symbolic link is followed, so that all names share one lock. `on_step` is for tests of
    crashes.
    """

    def __init__(self, path: str | os.PathLike[str], on_step: OnStep | None = None) -> None:
        self.path = Path(os.path.realpath(path))
        self.marker = self.path.with_name(self.path.name + MARKER)
        self.key = self.path.with_name(self.path.name + KEY)
        self.documents = self.path.with_name(self.path.name + DOCUMENTS)
        self.head = START
        self.ledger_id = ""
        self.step: OnStep = on_step or (lambda name: None)
        self._lock: FileLock | None = None
        self._trusted = False

    # Locking.

    def lock(self) -> None:
        """Become the only writer, or raise a `LedgerError` that names the process that is."""
        with reported(self.path, "a ledger must be lockable for its writer"):
            try:
                self._lock = FileLock(self.path.with_name(self.path.name + LOCK))
            except LockedError as error:
                raise failure(
                    "a ledger must have one writer",
                    path=str(self.path),
                    pid=error.pid,
                    remedy="stop that process, or read without writing",
                    error=LedgerError,
                ) from error

    def unlock(self) -> None:
        """Let another writer in. Doing so twice is allowed."""
        if self._lock is not None:
            self._lock.free()
        self._trusted = False

    @property
    def _mode(self) -> str:
        # Only a writer may undo what a crash left half written; a reader reports it.
        return "ro" if self._lock is None or not self._lock.held else "rw"

    def check_writable(self) -> None:
        """Raise a `LedgerError` unless this process still is the only writer."""
        if self._lock is None or not self._lock.held:
            raise self._refusal(
                "a ledger must be open for writing, and not from before a fork",
                "open it in the process that writes",
            )
        if not self._lock.in_place:
            raise self._refusal(
                "the lock file of a ledger must stay while it is open: there is another lock file",
                "close it and open it again",
            )
        if not self._trusted:
            raise self._refusal(
                "a ledger must be opened again after a failed write",
                "close it, remove the cause and open it again",
            )

    def _refusal(self, rule: str, remedy: str) -> StreamLDAError:
        return failure(rule, path=str(self.path), remedy=remedy, error=LedgerError)

    # Making.

    def exists(self) -> bool:
        """Tell whether there is or was a ledger of this name."""
        return os.path.lexists(self.path) or os.path.lexists(self.marker)

    def create(self, body: Mapping[str, Any]) -> None:
        """Make the ledger with its first row, whole or not at all; the lock must be held."""
        fresh = self.path.with_name(self.path.name + ".new")
        values = {"ledger_id": secrets.token_hex(16), "format_version": FORMAT_VERSION, **body}
        with reported(self.path, "a ledger must be created whole"):
            # What a creation left behind that did not come to its end holds nothing.
            for leftover in (fresh, fresh.with_name(fresh.name + JOURNAL)):
                leftover.unlink(missing_ok=True)
            self.step("create:begin")
            # The record slots in it may be private: only the owner reads it.
            os.close(os.open(fresh, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            with closing(_connect(fresh)) as database:
                database.execute("BEGIN IMMEDIATE")
                database.execute(f"PRAGMA application_id={APPLICATION_ID}")
                database.execute(f"PRAGMA user_version={FORMAT_VERSION}")
                for statement in SCHEMA:
                    database.execute(statement)
                _insert(database, START, "created", "", values)
                database.execute("COMMIT")
            self.step("create:written")
            fresh.rename(self.path)
            self.step("create:renamed")
            sync_folder(self.path.parent)
        self.step("create:synced")

    # Reading.

    def load(self, visit: Callable[[Row], None]) -> None:
        """Check all of the ledger and show every row to `visit`, in order; memory O(1) rows."""
        # The marker first: a writer moves it after the row, so it can only lag behind.
        marked = self._read_marker()
        require(
            os.path.lexists(self.path),
            "a ledger must not go missing",
            path=str(self.path),
            marker="found" if marked else "none",
            remedy=EXHAUSTED,
            error=LedgerError,
        )
        head = START
        ledger_id = ""
        marker_met = False
        for row in self.rows(check=True):
            if row.seq == 1:
                ledger_id = str(row.body.get("ledger_id"))
            head = Head(row.seq, row.chain)
            marker_met = marker_met or marked == (ledger_id, *head)
            visit(row)
        # Without a marker, only a ledger that was made and never used is believed: its creation
        # may have been cut short.
        if not (marker_met or (marked is None and head.seq == 1)):
            raise _untrusted(self.path, f"row {head.seq} does not go with the .marker file")
        self.head = head
        self.ledger_id = ledger_id
        self._trusted = True

    def mark(self) -> None:
        """Bring the marker up to date if it lags behind; the lock must be held."""
        self.check_writable()
        if self._read_marker() != (self.ledger_id, *self.head):
            with reported(self.path, "a ledger must be writable"):
                self._write_marker()

    def rows(self, *, check: bool = False) -> Iterator[Row]:
        """Yield all rows in order, as one consistent reading; the chain is always checked."""
        with reported(self.path, "a ledger must be readable and whole"):
            _check_header(self.path)
            with closing(_connect(self.path, self._mode)) as database:
                database.execute("BEGIN")
                if check:
                    _check_database(self.path, database)
                head = START
                for values in database.execute(
                    "SELECT seq, kind, subject, body, chain FROM entries ORDER BY seq"
                ):
                    row = _checked(self.path, head, values)
                    head = Head(row.seq, row.chain)
                    yield row

    def latest(self, kind: str, subject: str) -> dict[str, Any] | None:
        """Return the content of the newest row of a kind about a subject. Time O(log rows)."""
        with (
            reported(self.path, "a ledger must be readable and whole"),
            closing(_connect(self.path, self._mode)) as database,
        ):
            found = database.execute(
                "SELECT body FROM entries WHERE kind = ? AND subject = ? ORDER BY seq DESC LIMIT 1",
                (kind, _encode(subject)),
            ).fetchone()
            return None if found is None else dict(json.loads(found[0]))

    def subjects(self, kind: str) -> set[str]:
        """Return what the rows of a kind are about. Time O(rows)."""
        with (
            reported(self.path, "a ledger must be readable and whole"),
            closing(_connect(self.path, self._mode)) as database,
        ):
            found = database.execute("SELECT subject FROM entries WHERE kind = ?", (kind,))
            return {str(json.loads(subject)) for (subject,) in found}

    # Writing.

    def append(self, kind: str, subject: str, body: Mapping[str, Any]) -> Row:
        """Add a row; it is on the disk when this returns.

        After an error it may be there all the same; nothing more is written until the ledger is
        opened again.
        """
        self.check_writable()
        self._trusted = False
        with reported(self.path, "a ledger must be writable"):
            self.step(f"{kind}:begin")
            with closing(_connect(self.path)) as database:
                database.execute("BEGIN IMMEDIATE")
                newest = database.execute(
                    "SELECT seq, chain FROM entries ORDER BY seq DESC LIMIT 1"
                ).fetchone()
                if newest != self.head:
                    raise _untrusted(self.path, "another writer changed or replaced the file")
                row = _insert(database, self.head, kind, subject, body)
                self.step(f"{kind}:inserted")
                database.execute("COMMIT")
            self.step(f"{kind}:durable")
            self.head = Head(row.seq, row.chain)
            self._write_marker()
        self.step(f"{kind}:marked")
        self._trusted = True
        return row

    # The marker.

    def _write_marker(self) -> None:
        values = {"ledger_id": self.ledger_id, "seq": self.head.seq, "chain": self.head.chain}
        text = _canonical({**values, "check": _digest(_canonical(values))}) + "\n"
        fresh = self.marker.with_name(self.marker.name + ".new")
        descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(text.encode("ascii"))
            file.flush()
            os.fsync(file.fileno())
        self.step("marker:written")
        fresh.replace(self.marker)
        sync_folder(self.marker.parent)

    def _read_marker(self) -> tuple[str, int, str] | None:
        """Return the ledger and the row that the marker names, or None without a marker."""
        with reported(self.path, "a ledger must have a readable .marker file"):
            try:
                text = self.marker.read_bytes()
            except FileNotFoundError:
                return None
        try:
            values = json.loads(text.decode("ascii"))
            check = values.pop("check")
            whole = check == _digest(_canonical(values)) and text.endswith(b"}\n")
            found = (values["ledger_id"], values["seq"], values["chain"])
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise _untrusted(self.path, "the .marker file is damaged") from error
        if not whole:
            raise _untrusted(self.path, "the .marker file is damaged")
        return found


def _connect(path: Path, mode: str = "rw") -> sqlite3.Connection:
    database = sqlite3.connect(
        f"file:{quote(os.fsencode(path))}?mode={mode}",
        uri=True,
        isolation_level=None,
        timeout=BUSY_SECONDS,
    )
    try:
        database.execute("PRAGMA trusted_schema=OFF")
        if mode == "rw":
            database.execute("PRAGMA synchronous=EXTRA")
            database.execute("PRAGMA fullfsync=ON")
    except BaseException:
        database.close()
        raise
    return database


def _insert(
    database: sqlite3.Connection, head: Head, kind: str, subject: str, body: Mapping[str, Any]
) -> Row:
    text = _canonical(body)
    fields = (head.seq + 1, kind, _encode(subject), text)
    chain = _link(head, fields)
    database.execute("INSERT INTO entries VALUES (?, ?, ?, ?, ?)", (*fields, chain))
    return Row(head.seq + 1, kind, subject, json.loads(text), chain)


def _checked(path: Path, head: Head, values: tuple[Any, ...]) -> Row:
    """Return the row that follows `head`, or raise a `LedgerError` if this is not it."""
    if tuple(map(type, values)) != (int, str, str, str, str):
        raise _untrusted(path, f"the row after {head.seq} is damaged")
    seq, kind, subject, text, chain = values
    if seq != head.seq + 1 or chain != _link(head, (seq, kind, subject, text)):
        raise _untrusted(path, f"the chain of checksums breaks after row {head.seq}")
    return Row(seq, kind, json.loads(subject), json.loads(text), chain)


def _check_header(path: Path) -> None:
    """Tell a foreign, a later and a cut file apart before SQLite looks at it."""
    if path.exists() and not path.is_file():
        # A pipe would be waited for.
        raise _foreign(path, "it is no regular file")
    with path.open("rb") as file:
        header = file.read(100)
    if len(header) < 100 or header[:16] != b"SQLite format 3\0":
        raise _foreign(path, "it is not a whole ledger file")
    if int.from_bytes(header[68:72], "big") != APPLICATION_ID:
        raise _foreign(path, "it is a database of another program")
    version = int.from_bytes(header[60:64], "big")
    check_version(version, FORMAT_VERSION, "ledger", path, remedy=OTHER_FORMAT, error=LedgerError)
    # Read and write version 1: a rollback journal. In WAL mode a second file would hold rows.
    if header[18:20] != b"\x01\x01":
        raise _untrusted(path, "its journal mode is not the one it was made with")


def _check_database(path: Path, database: sqlite3.Connection) -> None:
    found = [row[0] for row in database.execute("SELECT sql FROM sqlite_master ORDER BY rowid")]
    if found != list(SCHEMA):
        raise _untrusted(path, "its tables are not those of a ledger")
    problems = [row[0] for row in database.execute("PRAGMA integrity_check(1)")]
    if problems != ["ok"]:
        raise _untrusted(path, "the database is damaged")


@contextmanager
def reported(path: Path, rule: str) -> Iterator[None]:
    """Turn the errors of the system and of SQLite into `LedgerError`."""
    try:
        yield
    except (sqlite3.Error, OSError, UnicodeDecodeError) as error:
        # An operation may fail for a passing cause; any other error of a database is damage, also
        # one whose own message quotes damaged text.
        damaged = not isinstance(error, sqlite3.OperationalError | OSError)
        passing = "nothing may be released until the cause is gone; then open it again for writing"
        raise failure(
            rule,
            path=str(path),
            cause=f"{type(error).__name__}({error})",
            remedy=EXHAUSTED if damaged else passing,
            error=LedgerError,
        ) from error


def _foreign(path: Path, reason: str) -> StreamLDAError:
    """Return the error of what is no ledger; where a marker is beside it, it was one."""
    if os.path.lexists(path.with_name(path.name + MARKER)):
        return _untrusted(path, reason)
    rule = f"a ledger must be a file that a private run made, but {reason}"
    return failure(rule, path=str(path), remedy=NAME_LEDGER, error=LedgerError)


def _untrusted(path: Path, reason: str) -> StreamLDAError:
    rule = f"a ledger must be whole, unaltered and the newest, but {reason}"
    return failure(rule, path=str(path), remedy=EXHAUSTED, error=LedgerError)


def _link(head: Head, fields: tuple[Any, ...]) -> str:
    return _digest(head.chain + _canonical(list(fields)))


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _encode(subject: str) -> str:
    # As JSON, since a path may hold characters that a database does not take.
    return json.dumps(subject)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("ascii"), digest_size=32).hexdigest()
