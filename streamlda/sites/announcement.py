"""Announcements of sites for a round, and the round keys that they name.

An announcement says, under a site's signature, that the site takes part in an attempt of a round
with a public round key. The one for round 1 is the site's signature of the config; those of later
rounds go with the shares of the round before. A round that is begun again needs another
announcement of each site (`streamlda site sign --round`): nobody but a site can make it spend
documents twice. An announcement is public.

The secret half of a round key lies in ``KEY.rounds/CONFIG/ROUND-ATTEMPT`` beside the key file, from
its announcement to the share that it masks. So a mask serves one share whatever ledger is used, and
keys that are stolen later open no mask of the past; `RoundKeys` has the order of steps.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from streamlda.container import digest_content, sync_folder, whole_file
from streamlda.errors import at_least, between
from streamlda.sites.faults import check, fault
from streamlda.sites.federation import FederationConfig
from streamlda.sites.files import JsonKind, check_members
from streamlda.sites.keys import RoundKey, SignedRecord, SiteKey, check_exchange, check_name

_FILE = JsonKind(
    "streamlda-site-announcement",
    2,
    "an announcement is not whole",
    "ask the site to send it again",
)

#: Times that a round may be begun. Each costs every site the documents of a stage.
MAX_ATTEMPTS = 3

_BYTES = 32

#: Name of the file that says which ledger pays for the shares of a config.
_LEDGER = "ledger"


def check_attempt(attempt: Any) -> None:
    """Refuse an attempt beyond the last."""
    at_least(1, attempt=attempt)
    remedy = "find out why shares are lost, and agree on a new config"
    between(1, MAX_ATTEMPTS, attempt=attempt, remedy=remedy)


@dataclass(frozen=True)
class Announcement(SignedRecord):
    """Statement of a site before a round.

    `config` is the digest of the federation config, `exchange` the public key of X25519 that masks
    the site's share of this attempt, and no other. `signature`: Ed25519 over the others, in hex.
    """

    purpose = b"streamlda site announcement 2"

    site: str
    config: str
    round: int
    attempt: int
    exchange: str
    signature: str = ""

    def __post_init__(self) -> None:
        check_name(self.site)
        is_signed = isinstance(self.config, str) and isinstance(self.signature, str)
        check(is_signed, "unsigned", site=self.site)
        at_least(1, round=self.round)
        check_attempt(self.attempt)
        check_exchange(self.site, self.exchange)

    @property
    def content(self) -> bytes:
        """The digest that is signed."""
        return digest_content({**asdict(self), "signature": ""})

    def check(self, config: FederationConfig) -> None:
        """Refuse it unless it is of this config, and as a member has signed it."""
        config.check_digest("config of announcement", self.config, site=self.site)
        is_signed = self.is_signed_by(config.member(self.site).key)
        check(is_signed, "signature of announcement", site=self.site, round=self.round)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file."""
        Path(path).write_text(_FILE.write(asdict(self)), encoding="ascii")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of `save`."""
        return _FILE.read(path, cls.from_json)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Return the announcement of its values; unknown ones are refused."""
        made = cls(**values)
        check_members(values, asdict(made))
        return made


class RoundKeys:
    """The round keys that belong to a key file.

    A folder of a config stands for this site's signature of it: the config is *pinned*. So is the
    ledger of the first share: another one would not know which documents were in rounds before.

    1. A round key is on the disk before its announcement leaves. 2. The ledger holds the price.
    3. The key is read, overwritten and cut to nothing, on the disk. 4. Noise is drawn, and the
    share is made. A crash before 3 leaves a key that no share was made with. A crash after 3 leaves
    a share that is lost and paid for: the round is begun again, under other keys. The empty file
    stays: there is one key for an attempt, ever.

    The file is overwritten in place: a hard link of it holds zeros afterwards, and a link or copy
    of the identity has no round keys. Who copies ``KEY.rounds`` while a key waits has the mask of a
    second share: keep the folder on one machine, and out of backups. A file system that keeps old
    blocks (snapshots, flash) may keep an overwritten key until it reuses them.
    """

    def __init__(self, key: str | os.PathLike[str]) -> None:
        found = Path(key).resolve()
        self.path = found.with_name(found.name + ".rounds")

    def check_pinned(self, config: str) -> None:
        """Refuse a config, by its digest, that was not signed under this key."""
        check(
            (self.path / config).is_dir(), "unsigned config", config=config, record=str(self.path)
        )

    def ledger(self, config: str) -> str | None:
        """Return the random name of the ledger of the first share; None before there was one."""
        path = self.path / config / _LEDGER
        return path.read_text("ascii").strip() if path.exists() else None

    def check_ledger(self, config: str, ledger_id: str) -> None:
        """Refuse a ledger that is not the one of the shares so far."""
        known = self.ledger(config)
        found = {"ledger_id": ledger_id, "expected": known, "record": str(self.path)}
        check(known in (None, ledger_id), "ledger", **found)

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
        with _lock(folder):
            path = folder / _name(number, attempt)
            if not path.exists():
                _write(path, RoundKey.random())
            secret = path.read_bytes()
        self._check(secret, number, attempt)
        exchange = RoundKey(key.public.name, secret).exchange
        return Announcement(key.public.name, config, number, attempt, exchange).sign(key)

    def check(self, announcement: Announcement) -> None:
        """Refuse a round in which this site is announced under a key that is not there."""
        self._read(announcement)

    def take(self, announcement: Announcement) -> RoundKey:
        """Return the round key of an announcement; on return it is gone from the disk."""
        path = self._file(announcement)
        with _lock(path.parent):
            key = self._read(announcement)
            with path.open("r+b", buffering=0) as file:
                file.write(bytes(_BYTES))
                os.fsync(file.fileno())
                file.truncate(0)
                os.fsync(file.fileno())
        return key

    def _file(self, announcement: Announcement) -> Path:
        return self.path / announcement.config / _name(announcement.round, announcement.attempt)

    def _read(self, message: Announcement) -> RoundKey:
        path = self._file(message)
        secret = path.read_bytes() if path.exists() else b""
        self._check(secret, message.round, message.attempt)
        key = RoundKey(message.site, secret)
        found = {"site": message.site, "round": message.round, "attempt": message.attempt}
        check(key.exchange == message.exchange, "round key", **found, record=str(self.path))
        return key

    def _check(self, secret: bytes, number: int, attempt: int) -> None:
        # A crash may leave zeros in place of nothing.
        if len(secret) != _BYTES or not any(secret):
            raise fault("round key used", round=number, attempt=attempt, record=str(self.path))


def _name(number: int, attempt: int) -> str:
    return f"{number:06d}-{attempt}"


def _write(path: Path, secret: bytes) -> None:
    """Write a key, or a name, to a new file, whole or not at all."""
    with whole_file(path, 0o600) as file:
        file.write(secret)
    sync_folder(path.parent)


@contextmanager
def _lock(folder: Path) -> Iterator[None]:
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
