"""Rounds that a site's keys have answered, in a file beside the key: ``KEY.used``.

A mask must serve one share: the difference of two shares under one mask has no mask. The ledger
holds this, and is one file; a site that was given another ledger, or an old copy of it, would make
a second share. So the keys have a record of their own: one line a round, the digest, on the disk
before noise is drawn. No line is ever removed. The record cannot help where the key was copied to
another machine, or comes back from a snapshot together with its record.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from streamlda.checks import require
from streamlda.container import sync_folder
from streamlda.errors import LedgerError


class AnsweredRounds:
    """The record of one key file, beside it; the first `record` makes it."""

    def __init__(self, key: str | os.PathLike[str]) -> None:
        found = Path(key).resolve()
        self.path = found.with_name(found.name + ".used")

    def check(self, digest: str) -> None:
        """Refuse a round that is in the record (`LedgerError`). Time O(rounds)."""
        if self.path.exists():
            self._refuse(digest, self.path.read_bytes())

    def record(self, digest: str) -> None:
        """Write a round down, on the disk on return; refuse one that is there. Time O(rounds).

        A lock lets only one of two processes have a round. If the record cannot be written, no
        mask must be made.
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
        sync_folder(self.path.parent)

    def _refuse(self, digest: str, held: bytes) -> None:
        require(
            digest.encode() not in held.split(b"\n"),
            "keys must mask one share of a round, and have masked one of this round",
            round_digest=digest[:16],
            record=str(self.path),
            remedy="send the share that was made, or begin the round again at all sites "
            "(streamlda site redo)",
            error=LedgerError,
        )
