"""Round keys of a site on the disk: ``KEY.rounds/CONFIG/ROUND-ATTEMPT``, beside its key file.

A round key is made when it is announced and destroyed when it is taken, for one share. So a mask
serves one share whatever ledger is used, and keys that are stolen later open no mask of the past.

*Order.* 1. The key is on the disk before its announcement leaves. 2. The ledger holds the price.
3. The key is read, overwritten and cut to nothing, on the disk. 4. Noise is drawn, and the share is
made. A crash before 3 leaves a key that no share was made with, one after it a share that is lost
and paid for: the round is begun again, under other keys. An empty file stays: there is one key for
an attempt, ever.

*Links and copies.* The file is overwritten in place: a hard link of it holds zeros afterwards. A
link or copy of the identity has no round keys. Who copies ``KEY.rounds`` while a key waits has a
second share's mask: keep it on one machine, and out of backups. A file system that keeps old blocks
(snapshots, flash) may keep an overwritten key until it reuses them.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from streamlda.checks import failure, require
from streamlda.container import sync_folder
from streamlda.errors import LedgerError
from streamlda.sites.announcement import Announcement
from streamlda.sites.keys import RoundKey, SiteKey

_BYTES = 32

#: Name of the file that says which ledger pays for the shares of a config.
_LEDGER = "ledger"


class RoundKeys:
    """The round keys that belong to a key file.

    A folder of a config stands for this site's signature of it: the config is *pinned*. So is the
    ledger of the first share: another one would not know which documents were in rounds before.
    """

    def __init__(self, key: str | os.PathLike[str]) -> None:
        found = Path(key).resolve()
        self.path = found.with_name(found.name + ".rounds")

    def check_pinned(self, config: str) -> None:
        """Refuse a config, by its digest, that was not signed under this key."""
        require(
            (self.path / config).is_dir(),
            "a site must sign a federation config before it answers, and has not signed this one",
            config=config,
            record=str(self.path),
            remedy="look at it (streamlda site show), compare the digest with the other sites, and "
            "sign it (streamlda site sign --expect DIGEST)",
        )

    def ledger(self, config: str) -> str | None:
        """Return the random name of the ledger of the first share; None before there was one."""
        path = self.path / config / _LEDGER
        return path.read_text("ascii").strip() if path.exists() else None

    def check_ledger(self, config: str, ledger_id: str) -> None:
        """Refuse a ledger that is not the one of the shares so far."""
        known = self.ledger(config)
        require(
            known in (None, ledger_id),
            "a site must keep to one ledger, which knows the documents of its rounds",
            ledger_id=ledger_id,
            expected=known,
            record=str(self.path),
            remedy="give the --ledger of the shares before; if it is gone, its documents count as "
            "used up: agree on a new config, for others",
            error=LedgerError,
        )

    def keep_ledger(self, config: str, ledger_id: str) -> None:
        """Let all shares of a config be paid from one ledger; on return that is on the disk."""
        self.check_ledger(config, ledger_id)
        if self.ledger(config) is None:
            _write(self.path / config / _LEDGER, ledger_id.encode("ascii"))

    def announce(self, key: SiteKey, config: str, number: int, attempt: int) -> Announcement:
        """Return the signed announcement of an attempt, whose round key is made by the first call.

        Refused if the key was used. Time a few forced writes.
        """
        folder = self.path / config
        for made in (self.path, folder):
            made.mkdir(mode=0o700, exist_ok=True)
            sync_folder(made.parent)
        with _locked(folder):
            path = folder / _name(number, attempt)
            if not path.exists():
                _write(path, RoundKey.random())
            secret = path.read_bytes()
        self._check(secret, number, attempt)
        exchange = RoundKey(key.public.name, secret).exchange
        return Announcement(key.public.name, config, number, attempt, exchange).signed(key)

    def check(self, announced: Announcement) -> None:
        """Refuse a round in which this site is announced under a key that is not there."""
        path = self._file(announced)
        self._match(path.read_bytes() if path.exists() else b"", announced)

    def take(self, announced: Announcement) -> RoundKey:
        """Return the round key of an announcement; on return it is gone from the disk."""
        path = self._file(announced)
        with _locked(path.parent):
            key = self._match(path.read_bytes() if path.exists() else b"", announced)
            with path.open("r+b", buffering=0) as file:
                file.write(bytes(_BYTES))
                os.fsync(file.fileno())
                file.truncate(0)
                os.fsync(file.fileno())
        return key

    def _file(self, announced: Announcement) -> Path:
        return self.path / announced.config / _name(announced.round, announced.attempt)

    def _match(self, secret: bytes, announced: Announcement) -> RoundKey:
        self._check(secret, announced.round, announced.attempt)
        key = RoundKey(announced.site, secret)
        require(
            key.exchange == announced.exchange,
            "a round must name this site's own round key, and names another",
            site=announced.site,
            round=announced.round,
            attempt=announced.attempt,
            record=str(self.path),
            remedy="two copies of one key are in use: keep one, make new keys and a new config",
            error=LedgerError,
        )
        return key

    def _check(self, secret: bytes, number: int, attempt: int) -> None:
        # A crash may leave zeros in place of nothing.
        if len(secret) != _BYTES or not any(secret):
            raise failure(
                "a round key must mask one share, and that of this round was used or is not here",
                round=number,
                attempt=attempt,
                record=str(self.path),
                remedy="send the share that was made, or begin the round again "
                "(streamlda site redo, at all sites)",
                error=LedgerError,
            )


def _name(number: int, attempt: int) -> str:
    return f"{number:06d}-{attempt}"


def _write(path: Path, secret: bytes) -> None:
    """Write a key, or a name, to a new file, whole or not at all."""
    temporary = path.with_name(path.name + ".new")
    temporary.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(temporary, flags, 0o600), "wb", buffering=0) as file:
        file.write(secret)
        os.fsync(file.fileno())
    temporary.rename(path)
    sync_folder(path.parent)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Let one process at a time make or take keys of a folder."""
    if not folder.is_dir():
        yield
        return
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
