"""Rounds for which a site's keys have made a mask, in a file beside the key: ``KEY.used``.

A mask must serve one share: the difference of two shares under one mask has no mask. The ledger
holds this, and is one file; a site that was given another ledger, or an old copy of it, would make
a second share. So the keys have a record of their own: one line a round, the digest, on the disk
before noise is drawn. No line is ever taken out. It cannot help where the key was copied to another
machine, or comes back from a snapshot together with its record.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from streamlda.errors import LedgerError

#: What stands behind the name of a key file.
SUFFIX = ".used"


class UsedRounds:
    """The record of one key file.

    Parameters
    ----------
    key : path-like
        The key file; the record lies beside it and is made by the first `record`.

    Attributes
    ----------
    path : Path
    """

    def __init__(self, key: str | os.PathLike[str]) -> None:
        found = Path(key).resolve()
        self.path = found.with_name(found.name + SUFFIX)

    def check(self, digest: str) -> None:
        """Refuse a round that is in the record. Time O(rounds).

        Raises
        ------
        LedgerError
            If it is.
        OSError
            If the record cannot be read.
        """
        if self.path.exists():
            self._refuse(digest, self.path.read_bytes())

    def record(self, digest: str) -> None:
        """Write a round down, on the disk on return, if it was not; else refuse it.

        Two processes that try at a time are told apart by a lock. Time O(rounds).

        Raises
        ------
        LedgerError
            If it was there.
        OSError
            If the record cannot be written; then no mask must be made.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        with os.fdopen(os.open(self.path, flags, 0o600), "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            held = self.path.read_bytes()
            self._refuse(digest, held)
            # A line that a crash cut off: its round has drawn no noise.
            begin = b"" if held.endswith(b"\n") or not held else b"\n"
            file.write(begin + digest.encode() + b"\n")
            os.fsync(file.fileno())
        folder = os.open(self.path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def _refuse(self, digest: str, held: bytes) -> None:
        if digest.encode() in held.split(b"\n"):
            raise LedgerError(
                "keys must mask one share of a round, and have masked one of this round, got "
                f"round digest={digest[:16]} record={str(self.path)!r}; send the share that was "
                "made, or begin the round again at all sites (streamlda site redo)"
            )
