"""File of a privacy ledger: lines that are only ever added, chained by checksums.

``NAME`` holds a row a line, as JSON. Each carries BLAKE2b over the row before it and its own
content, so an edit, a lost row or rows in another order are found. ``NAME.marker`` holds the number
and checksum of the last row (or of the one before it, after a crash): it shows that a ledger was
here, and finds an older copy put back. ``NAME.lock`` is locked while a writer has the ledger open.

`append` returns when row and marker are on the disk, and nothing happens before. So a row that the
marker does not name is of a write that a crash cut short: it counts if it is whole, and is dropped
if it is not.

Not found: an older copy of *both* files (`Ledger.check_epoch` and
`streamlda.privacy.ledger.evidence` find it by what is newer), a forgery with recomputed checksums,
two copies that are both spent from, two ledgers for the same documents.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from streamlda.container import check_version, sync_folder
from streamlda.errors import LedgerError, StreamLDAError, failure, require
from streamlda.utils.lock import FileLock, LockedError

FORMAT_VERSION = 3

#: Ledgers of 0.1.0 and 0.2.0 are databases, with this number of theirs and a version in the header.
_DATABASE, _APPLICATION_ID = b"SQLite format 3\0", 0x734C4447

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

#: Called with the name of each step; a test of crashes ends the process there.
OnStep = Callable[[str], None]


class Row(NamedTuple):
    """One entry: its number from 1, its kind, its content, its checksum."""

    seq: int
    kind: str
    body: dict[str, Any]
    chain: str


class Head(NamedTuple):
    """The last row of a ledger."""

    seq: int
    chain: str


START = Head(0, "0" * 64)

#: How the names of what lies beside a ledger continue.
MARKER, KEY, LOCK, RELEASES = ".marker", ".key", ".lock", ".releases"
DOCUMENTS = ".documents"
_ENDS = (MARKER, KEY, LOCK, DOCUMENTS, RELEASES)


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
        self.marker, self.key, self._lock_file, self.documents, _ = beside(self.path)
        self.head = START
        self.ledger_id = ""
        self.step: OnStep = on_step or (lambda name: None)
        self._lock: FileLock | None = None
        self._trusted = False
        #: The last row as it is on the disk, and where it ends.
        self._last, self._end = b"", 0

    def lock(self) -> None:
        """Become the only writer, or raise a `LedgerError` that names the process that is."""
        with reported(self.path, "a ledger must be lockable for its writer"):
            try:
                self._lock = FileLock(self._lock_file)
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

    def check_writable(self) -> None:
        """Raise a `LedgerError` unless this process still is the only writer."""
        locked = self._lock is not None and self._lock.held
        for holds, rule, remedy in (
            (
                locked,
                "a ledger must be open for writing, and not from before a fork",
                "open it in the process that writes",
            ),
            (
                locked and self._lock is not None and self._lock.in_place,
                "the lock file of a ledger must stay while it is open: there is another lock file",
                "close it and open it again",
            ),
            (
                self._trusted,
                "a ledger must be opened again after a failed write",
                "close it, remove the cause and open it again",
            ),
        ):
            require(holds, rule, path=str(self.path), remedy=remedy, error=LedgerError)

    def exists(self) -> bool:
        """Tell whether there is or was a ledger of this name."""
        return os.path.lexists(self.path) or os.path.lexists(self.marker)

    def create(self, body: Mapping[str, Any]) -> None:
        """Make the ledger with its first row, whole or not at all; the lock must be held."""
        fresh = self.path.with_name(self.path.name + ".new")
        values = {"ledger_id": secrets.token_hex(16), "format_version": FORMAT_VERSION, **body}
        with reported(self.path, "a ledger must be created whole"):
            self.step("create:begin")
            _write_whole(fresh, _line_of(START, "created", values))
            self.step("create:written")
            fresh.rename(self.path)
            self.step("create:renamed")
            sync_folder(self.path.parent)
        self.step("create:synced")

    def load(self, visit: Callable[[Row], None]) -> None:
        """Check all of the ledger and show every row to `visit`, in order."""
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
        head, is_met = START, False
        for row in self.rows():
            if row.seq == 1:
                self.ledger_id = str(row.body.get("ledger_id"))
            head = Head(row.seq, row.chain)
            is_met = is_met or marked == (self.ledger_id, *head)
            visit(row)
        # Without a marker, only a ledger that was made and never used is believed: its creation
        # may have been cut short.
        if not (is_met or (marked is None and head.seq == 1)):
            raise _untrusted(self.path, f"row {head.seq} does not go with the .marker file")
        self.head = head
        self._trusted = True

    def rows(self) -> Iterator[Row]:
        """Yield all whole rows in order; the chain is checked. Memory O(1) rows."""
        # A pipe would be waited for.
        if self.path.exists() and not self.path.is_file():
            raise _foreign(self.path, "it is no regular file")
        head, end, last = START, 0, b""
        with (
            reported(self.path, "a ledger must be readable and whole"),
            self.path.open("rb") as file,
        ):
            for line in file:
                row = _read_row(head, line)
                if row is None:
                    self._check_cut(head, line, is_last=not file.read(1))
                    break
                head, end, last = Head(row.seq, row.chain), end + len(line), line
                yield row
            if not head.seq:
                raise _foreign(self.path, "it is not a whole ledger file")
        self._last, self._end = last, end

    def _check_cut(self, head: Head, line: bytes, *, is_last: bool) -> None:
        """Refuse what follows a row, unless it is the next one, cut short by a crash."""
        if head.seq:
            if not is_last:
                raise _untrusted(self.path, f"the chain of checksums breaks after row {head.seq}")
            return
        version = _version_of(line, self.path)
        if version is None:
            raise _foreign(self.path, "it is not a whole ledger file")
        how: dict[str, Any] = {"remedy": OTHER_FORMAT, "error": LedgerError}
        check_version(version, FORMAT_VERSION, "ledger", self.path, **how)
        raise _untrusted(self.path, "its first row is damaged")

    def mark(self) -> None:
        """Bring the marker up to date if it lags behind; the lock must be held."""
        self.check_writable()
        if self._read_marker() != (self.ledger_id, *self.head):
            with reported(self.path, "a ledger must be writable"):
                self._write_marker()

    def append(self, kind: str, body: Mapping[str, Any]) -> Row:
        """Add a row; it is on the disk when this returns.

        After an error it may be there all the same; nothing more is written until the ledger is
        opened again.
        """
        self.check_writable()
        self._trusted = False
        line = _line_of(self.head, kind, body)
        row = _read_row(self.head, line)
        assert row is not None
        with reported(self.path, "a ledger must be writable"):
            self.step(f"{kind}:begin")
            with self.path.open("r+b", buffering=0) as file:
                file.seek(self._end - len(self._last))
                if file.read(len(self._last)) != self._last or _read_row(
                    self.head, file.readline()
                ):
                    raise _untrusted(self.path, "another writer changed or replaced the file")
                # A crash may have cut the row of an earlier writer short.
                file.truncate(self._end)
                file.seek(self._end)
                if file.write(line) != len(line):
                    raise OSError("a row was cut short")
                self.step(f"{kind}:inserted")
                os.fsync(file.fileno())
            self.step(f"{kind}:durable")
            self.head = Head(row.seq, row.chain)
            self._last, self._end = line, self._end + len(line)
            self._write_marker()
        self.step(f"{kind}:marked")
        self._trusted = True
        return row

    def _write_marker(self) -> None:
        values = {"ledger_id": self.ledger_id, "seq": self.head.seq, "chain": self.head.chain}
        text = _canonical({**values, "check": _digest(_canonical(values))}) + "\n"
        fresh = self.marker.with_name(self.marker.name + ".new")
        _write_whole(fresh, text.encode("ascii"))
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


def _write_whole(path: Path, content: bytes) -> None:
    """Write a file for its owner only, on the disk: record slots in it may be private."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _line_of(head: Head, kind: str, body: Mapping[str, Any]) -> bytes:
    """Return the row that follows `head` as a line."""
    fields = [head.seq + 1, kind, body]
    chain = _digest(head.chain + _canonical(fields))
    return _canonical([*fields, chain]).encode("ascii") + b"\n"


def _read_row(head: Head, line: bytes) -> Row | None:
    """Return the row that follows `head`, or None if the line is not this one, to the byte."""
    try:
        _, kind, body, chain = json.loads(line)
        if line != _line_of(head, kind, body):
            return None
    except (ValueError, TypeError, RecursionError):
        return None
    return Row(head.seq + 1, kind, body, chain)


def _version_of(line: bytes, path: Path) -> int | None:
    """Return the format of a ledger whose first line is no row; None if it is none."""
    if line.startswith(_DATABASE):
        with path.open("rb") as file:
            header = file.read(100)
        is_ours = int.from_bytes(header[68:72], "big") == _APPLICATION_ID
        return int.from_bytes(header[60:64], "big") if is_ours else None
    try:
        found = json.loads(line)[2]["format_version"]
    except (ValueError, LookupError, TypeError, RecursionError):
        return None
    return found if type(found) is int else None


@contextmanager
def reported(path: Path, rule: str) -> Iterator[None]:
    """Turn errors of the system into `LedgerError`."""
    try:
        yield
    except OSError as error:
        raise failure(
            rule,
            path=str(path),
            cause=f"{type(error).__name__}({error})",
            remedy="release nothing until the cause is gone; then open it again for writing",
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


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("ascii"), digest_size=32).hexdigest()
