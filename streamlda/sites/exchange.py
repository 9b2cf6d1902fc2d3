"""Messages of sites by way of a topic, in place of files.

A record is the file of a share, under the key ``SITE/DIGEST``, DIGEST that of the round; or that
of an announcement, DIGEST then that of its config, round and attempt (`Announcement.occasion`). A
topic holds many rounds, attempts and configs: what lies under other keys is skipped and counted,
without a look at it. Keys and headers are not signed. They choose what is looked at, and what is
found there must be signed by the site and be of the round that its key says.

What counts for a key is what was written since the last record without a value, a tombstone as
Kafka calls it: the way to withdraw what was damaged on its way. The same bytes sent twice are one
message. Whoever may write to the topic can so keep a round from ending, but cannot change
what it gives, nor learn more than a reader of the topic: a share is masked.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from streamlda.errors import InvalidSettingError, ModelFileError
from streamlda.sites.announcement import ANNOUNCEMENT_FORMAT, Announcement
from streamlda.sites.faults import check, fault
from streamlda.sites.federation import FederationConfig
from streamlda.sites.rounds import Round
from streamlda.sites.share import SHARE_FORMAT, Share
from streamlda.stream.sink import SnapshotSink

#: Entry point of a topic of shares, in the group of `streamlda.stream.sink`.
SINK = "kafka-shares"

#: What records are counted as whose key names no member, or is none; no site's name.
OTHERS = "(others)"

T = TypeVar("T", Share, Announcement)

_KEY = re.compile(rb"([A-Za-z0-9][A-Za-z0-9._-]{0,62})/([0-9a-f]{64})")


class Entry(Protocol):
    """A record of a topic: its key (`make_key`), the file of a share, and where it stands.

    A value of None withdraws what was under the key before.
    """

    key: bytes | None
    value: bytes | None
    partition: int
    offset: int


class ShareTopic(SnapshotSink, Protocol):
    """A sink of shares that reads them back; `SINK` announces one."""

    def connect(self) -> None:
        """Connect for writing; else raise `SourceError`."""

    def read(self) -> Iterator[Entry]:
        """Yield what there is, from the beginning, those of one key in their order."""


@dataclass(frozen=True)
class Received(Generic[T]):
    """Messages of one occasion, at most one of each site, as their sites have signed them.

    `skipped` counts records of other rounds, attempts and configs, by site, and `OTHERS`.
    """

    messages: list[T]
    skipped: Counter[str]


def make_key(site: str, digest: str) -> str:
    """Return the key under which a message of a site lies: of a round, or of an occasion."""
    return f"{site}/{digest}"


def publish_announcement(topic: ShareTopic, announced: Announcement) -> None:
    """Publish an announcement; on return the brokers have it."""
    about = {"content-type": ANNOUNCEMENT_FORMAT, "streamlda.roster": announced.config}
    topic.publish(make_key(announced.site, announced.occasion), announced.to_bytes(), about)


def publish_share(topic: ShareTopic, path: Path) -> Share:
    """Publish the file of a share; on return the brokers have it.

    Time and memory O(bytes). Publishing it again, after an error, changes nothing.
    """
    data = path.read_bytes()
    share = Share.parse(data, str(path))
    # For people who look at the topic; nothing here reads them.
    about = {
        "content-type": SHARE_FORMAT,
        "streamlda.roster": share.config,
        "streamlda.round": str(share.round),
        "streamlda.attempt": str(share.attempt),
        "streamlda.stage": share.stage,
    }
    topic.publish(make_key(share.site, share.round_digest), data, about)
    return share


def read_shares(entries: Iterable[Entry], config: FederationConfig, this: Round) -> Received[Share]:
    """Return the shares of a round from all records of a topic; see the module.

    Records of one key come in the order in which they were written. Time O(bytes of the topic),
    most of it to fetch them: only those of this round are parsed. Memory that of the shares of this
    round, one of each site.
    """
    return _read(entries, config, this.digest, Share)


def read_announcements(
    entries: Iterable[Entry], config: FederationConfig, digest: str
) -> Received[Announcement]:
    """Return the announcements of an `occasion` from all records of a topic, as `read_shares`."""
    return _read(entries, config, digest, Announcement)


def _read(
    entries: Iterable[Entry], config: FederationConfig, digest: str, kind: type[T]
) -> Received[T]:
    skipped: Counter[str] = Counter()
    sent: dict[str, _Sent[T]] = {}
    for entry in entries:
        found = _KEY.fullmatch(entry.key or b"")
        site = found[1].decode() if found else OTHERS
        if found is None or found[2].decode() != digest:
            if entry.value is not None:
                skipped[site if site in config.names else OTHERS] += 1
        elif entry.value is None:
            sent.pop(site, None)
        else:
            sent.setdefault(site, _Sent(site)).take(entry, entry.value, config, digest, kind)
    for one in sent.values():
        if one.error is not None:
            raise one.error
    return Received([one.message for one in sent.values() if one.message], skipped)


@dataclass
class _Sent(Generic[T]):
    """Message under the key of a site and this occasion.

    Errors wait until the topic has ended, as the message may be withdrawn there.
    """

    site: str
    message: T | None = None
    error: InvalidSettingError | ModelFileError | None = None
    digest: bytes = field(default=b"", repr=False)

    def take(
        self, entry: Entry, value: bytes, config: FederationConfig, of: str, kind: type[T]
    ) -> None:
        """Take a record of the key: parse and check its message, or keep the error."""
        if self.error is not None:
            return
        digest = hashlib.blake2b(value, digest_size=32).digest()
        if digest == self.digest:
            return
        where = f"partition={entry.partition} offset={entry.offset}"
        key = make_key(self.site, of)
        try:
            config.member(self.site)
            message = kind.parse(value, f"topic {where}")
            if (message.site, message.occasion) != (self.site, of):
                raise fault("key of message", site=message.site, round=message.round, key=key)
            message.check(config)
            check(self.message is None, "messages differ", site=self.site, round=message.round)
        except (InvalidSettingError, ModelFileError) as error:
            self.message = None
            self.error = type(error)(
                f"{error}; it is at {where} of the topic: to withdraw what site={self.site!r} has "
                f"there for this round, write a record without value under key={key!r}; the site "
                "may then send it again"
            )
            self.error.__cause__ = error
            return
        self.message, self.digest = message, digest
