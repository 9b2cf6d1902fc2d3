"""Shares by way of a topic, in place of files: how they lie there, and which of them count.

A record is the file of a share, under the key ``SITE/DIGEST``, DIGEST that of the round. A topic
holds many rounds, attempts and configs: what lies under other keys is skipped and counted,
without a look at it. Keys and headers are not signed. They choose what is looked at, and what is
found there must be signed by the site and be of the round that its key says.

What counts for a key is what was written since the last record without a value, a tombstone as
Kafka calls it: the way to withdraw a share that was damaged on its way. The same bytes sent twice
are one share. Whoever may write to the topic can so keep a round from ending, but cannot change
what it gives, nor learn more than a reader of the topic: a share is masked.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from streamlda.checks import failure, require
from streamlda.errors import InvalidSettingError, ModelFileError
from streamlda.sites.aggregate import check_origin
from streamlda.sites.federation import FederationConfig
from streamlda.sites.rounds import Round
from streamlda.sites.share import SHARE_FORMAT, Share
from streamlda.stream.sink import SnapshotSink

#: Entry point of a topic of shares, in the group of `streamlda.stream.sink`.
SINK = "kafka-shares"

#: What records are counted as whose key names no member, or is none; no site's name.
OTHERS = "(others)"

_KEY = re.compile(rb"([A-Za-z0-9][A-Za-z0-9._-]{0,62})/([0-9a-f]{64})")


class Entry(Protocol):
    """A record of a topic: its key (`key_of`), the file of a share, and where it stands.

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
class ReceivedShares:
    """Shares of a round, at most one of each site, as their sites have signed them.

    `skipped` counts records of other rounds, attempts and configs, by site, and `OTHERS`.
    """

    shares: list[Share]
    skipped: Counter[str]


def key_of(site: str, round_digest: str) -> str:
    """Return the key under which the share of a site in a round lies."""
    return f"{site}/{round_digest}"


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
    topic.publish(key_of(share.site, share.round_digest), data, about)
    return share


def read_shares(entries: Iterable[Entry], config: FederationConfig, this: Round) -> ReceivedShares:
    """Return the shares of a round from all records of a topic; see the module.

    Records of one key come in the order in which they were written. Time O(bytes of the topic),
    most of it to fetch them: only those of this round are parsed. Memory that of the shares of this
    round, one of each site.
    """
    skipped: Counter[str] = Counter()
    sent: dict[str, _SentShare] = {}
    for entry in entries:
        found = _KEY.fullmatch(entry.key or b"")
        site = found[1].decode() if found else OTHERS
        if found is None or found[2].decode() != this.digest:
            if entry.value is not None:
                skipped[site if site in config.names else OTHERS] += 1
        elif entry.value is None:
            sent.pop(site, None)
        else:
            sent.setdefault(site, _SentShare(site)).take(entry, entry.value, config, this)
    for one in sent.values():
        if one.error is not None:
            raise one.error
    return ReceivedShares([one.share for one in sent.values() if one.share], skipped)


@dataclass
class _SentShare:
    """What lies under the key of a site and this round.

    Errors wait until the topic has ended, as what they are about may be withdrawn there.
    """

    site: str
    share: Share | None = None
    error: InvalidSettingError | ModelFileError | None = None
    digest: bytes = field(default=b"", repr=False)

    def take(self, entry: Entry, value: bytes, config: FederationConfig, this: Round) -> None:
        if self.error is not None:
            return
        digest = hashlib.blake2b(value, digest_size=32).digest()
        if digest == self.digest:
            return
        where = f"partition={entry.partition} offset={entry.offset}"
        key = key_of(self.site, this.digest)
        try:
            config.member(self.site)
            share = Share.parse(value, f"topic {where}")
            if (share.site, share.round_digest) != (self.site, this.digest):
                raise failure(
                    "a share must lie under the key of its site and round",
                    site=share.site,
                    round=share.round,
                    key=key,
                    error=ModelFileError,
                )
            check_origin(config, share)
            require(
                self.share is None,
                "each site must have one share in a round, and two that differ were sent",
                site=self.site,
                round=share.round,
            )
        except (InvalidSettingError, ModelFileError) as error:
            self.share = None
            self.error = type(error)(
                f"{error}; it is at {where} of the topic: to withdraw what site={self.site!r} has "
                f"there for this round, write a record without value under key={key!r}; the site "
                "may then send its share again"
            )
            self.error.__cause__ = error
            return
        self.share, self.digest = share, digest
