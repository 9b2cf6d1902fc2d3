"""File of a privacy ledger: lines that are only ever added, chained by checksums.

``NAME`` holds a row a line, as JSON. Each carries BLAKE2b over the row before it and its own
content, so an edit, a lost row or rows in another order are found. ``NAME.lock`` is locked while a
writer has the ledger open.

`append` returns when the row is on the disk, and nothing happens before. A last row that is not
whole is of a write that a crash cut short, and is dropped. An older copy is not found here, but by
what is newer (`streamlda.privacy.ledger.documents`, `Evidence`).
"""

import hashlib
import json
import os
import secrets
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from streamlda.container import check_version, sync_folder, whole_file
from streamlda.errors import LedgerError, StreamLDAError, failure, require
from streamlda.utils.lock import FileLock, LockedError

FORMAT_VERSION = 3

#: Remedy in every message about a ledger that cannot be trusted.
EXHAUSTED = (
    "its budget counts as used up: bring the newest copy back, together with its .documents file"
)

#: Called with the name of each step; a test of crashes ends the process there.
OnStep = Callable[[str], None]

#: Ends of the names of all that lies beside a ledger: the last of the folder of artefacts.
_ENDS = ".lock", ".documents", ".releases"


class Row(NamedTuple):
    """One entry: its kind, its content, its checksum."""

    kind: str
    body: dict[str, Any]
    chain: str


def beside(ledger: Path) -> list[Path]:
    """Return the paths of all files beside a ledger, present or not."""
    return [ledger.with_name(ledger.name + end) for end in _ENDS]


def has_ledger(path: Path) -> bool:
    """Tell whether a path is a ledger, a file beside one, or a file in its folder."""
    named = [str(path).removesuffix(end) for end in _ENDS]
    if path.parent.name.endswith(_ENDS[2]):
        named.append(str(path.parent).removesuffix(_ENDS[2]))
    return any(Path(f"{ledger}{_ENDS[1]}").exists() for ledger in named)


class LedgerFile:
    """Rows on disk, read by anyone and written by the holder of the lock.

    A symbolic link is followed, so that all names share one lock. `on_step` is for tests of
    crashes.
    """

    def __init__(self, path: str | os.PathLike[str], on_step: OnStep | None = None) -> None:
        self.path = Path(os.path.realpath(path))
        self._lock_file, self.documents, self.releases = beside(self.path)
        self.step: OnStep = on_step or (lambda name: None)
        self._lock: FileLock | None = None
        self._trusted = False
        #: The last row: its checksum, its line, and where that ends.
        self._chain, self._last, self._end = "", b"", 0

    def lock(self) -> None:
        """Become the only writer, or raise a `LedgerError` that names the process that is."""
        with translate_errors(self.path):
            try:
                self._lock = FileLock(self._lock_file)
            except LockedError as error:
                raise failure(
                    "another writer has the ledger open",
                    path=str(self.path),
                    pid=error.pid,
                    remedy="stop that process, or read without writing",
                    error=LedgerError,
                ) from error

    def unlock(self) -> None:
        """Let another writer in. Doing so twice is allowed."""
        if self._lock is not None:
            self._lock.free()

    def check_writable(self) -> None:
        """Raise a `LedgerError` unless this process still is the only writer."""
        lock = self._lock
        require(
            lock is not None and lock.is_held and lock.in_place and self._trusted,
            "the ledger is not open for writing here: it was closed, the process was forked, the "
            "lock file is gone, or a write failed",
            path=str(self.path),
            remedy="close it, remove the cause and open it again",
            error=LedgerError,
        )

    def create(self, body: Mapping[str, Any]) -> None:
        """Make the ledger with its first row, whole or not at all; the lock must be held."""
        values = {"ledger_id": secrets.token_hex(16), "format_version": FORMAT_VERSION, **body}
        with translate_errors(self.path):
            # For its owner only: slots in it may be private.
            with whole_file(self.path, 0o600) as file:
                file.write(_make_row("", "created", values)[1])
                self.step("create:written")
            sync_folder(self.path.parent)
        self.step("create:synced")

    def load(self, visit: Callable[[Row], None]) -> None:
        """Check all of the ledger and show every row to `visit`, in order. Memory O(1) rows."""
        if not (os.path.lexists(self.path) or os.path.lexists(self.documents)):
            rule = "there is no ledger of that name"
            remedy = "name the file that a private run had as its ledger"
            raise failure(rule, path=str(self.path), remedy=remedy, error=LedgerError)
        # A pipe would be waited for.
        if not self.path.is_file():
            raise self._refusal("it is gone, or no regular file")
        row = None
        with translate_errors(self.path), self.path.open("rb") as file:
            for line in file:
                row = _read_row(self._chain, line)
                if row is None:
                    break
                if not self._end:
                    self._check_format(row.body["format_version"])
                self._chain, self._last, self._end = row.chain, line, self._end + len(line)
                visit(row)
            # What follows a row may be the next one, cut short by a crash.
            if row is None and self._end and file.read(1):
                raise self._refusal("the chain of checksums breaks")
            if not self._end:
                file.seek(0)
                # Ledgers of 0.1.0 and 0.2.0 are databases, with their version at byte 60.
                if (header := file.read(64)).startswith(b"SQLite format 3\0"):
                    self._check_format(int.from_bytes(header[60:], "big"))
                raise self._refusal("it is not a whole ledger file")

    def _check_format(self, version: int) -> None:
        remedy = (
            "its budget counts as used up here: continue with the version of streamlda that wrote "
            "it, or take other documents and another ledger"
        )
        how: Any = {"remedy": remedy, "error": LedgerError}
        check_version(version, FORMAT_VERSION, "ledger", self.path, **how)

    def _refusal(self, reason: str) -> StreamLDAError:
        """Return the error of a file that is no ledger, or of a ledger that cannot be trusted."""
        was = os.path.lexists(self.documents) or self._end
        remedy = EXHAUSTED if was else "name the file that a private run had as its ledger"
        rule = f"the ledger cannot be trusted: {reason}"
        return failure(rule, path=str(self.path), remedy=remedy, error=LedgerError)

    def open_to_write(self) -> None:
        """Drop a row that was cut short; after `load`."""
        self._trusted = True
        self.check_writable()
        with translate_errors(self.path):
            os.truncate(self.path, self._end)

    def append(self, kind: str, body: dict[str, Any]) -> Row:
        """Add a row; it is on the disk when this returns.

        After an error it may be there all the same; nothing more is written until the ledger is
        opened again.
        """
        self.check_writable()
        self._trusted = False
        row, line = _make_row(self._chain, kind, body)
        with translate_errors(self.path):
            self.step(f"{kind}:begin")
            with self.path.open("r+b", buffering=0) as file:
                file.seek(self._end - len(self._last))
                if file.readall() != self._last:
                    raise self._refusal("another writer changed or replaced the file")
                if file.write(line) != len(line):
                    raise OSError("a row was cut short")
                self.step(f"{kind}:inserted")
                os.fsync(file.fileno())
            self.step(f"{kind}:durable")
            self._chain, self._last, self._end = row.chain, line, self._end + len(line)
        self._trusted = True
        return row


def _make_row(before: str, kind: str, body: dict[str, Any]) -> tuple[Row, bytes]:
    """Return the row that follows the one of a checksum, and its line."""
    content = (before + _canonical([kind, body])).encode("ascii")
    chain = hashlib.blake2b(content, digest_size=32).hexdigest()
    return Row(kind, body, chain), _canonical([kind, body, chain]).encode("ascii") + b"\n"


def _read_row(before: str, line: bytes) -> Row | None:
    """Return the row that follows one, or None if the line is not this one, to the byte."""
    try:
        kind, body, _ = json.loads(line)
        row, same = _make_row(before, kind, body)
    except (ValueError, TypeError, RecursionError):
        return None
    return row if line == same else None


@contextmanager
def translate_errors(path: Path) -> Iterator[None]:
    """Turn errors of the system into `LedgerError`."""
    try:
        yield
    except OSError as error:
        raise failure(
            "a ledger, or what lies beside it, cannot be read or written",
            path=str(path),
            cause=f"{type(error).__name__}({error})",
            remedy="release nothing until the cause is gone; then open it again for writing",
            error=LedgerError,
        ) from error


def _canonical(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
