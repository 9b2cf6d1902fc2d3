"""An announcement: a site takes part in a round of a config, under this public round key.

The first one of a site, for round 1, is its signature of the config: it holds the config's digest.
Those of later rounds go with the shares of the round before. A round that is begun again needs
another of each site (`streamlda site redo`): nobody can make a site spend documents twice but
itself. An announcement is public.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Self

from streamlda.checks import at_least, between, require
from streamlda.errors import ModelFileError
from streamlda.sites.federation import FederationConfig
from streamlda.sites.files import check_members, content_digest, read_json
from streamlda.sites.keys import ANNOUNCEMENT, SiteKey, check_exchange, check_name

ANNOUNCEMENT_FORMAT, ANNOUNCEMENT_VERSION = "streamlda-site-announcement", 2

#: Times that a round may be begun. Each costs every site the documents of a stage.
MAX_ATTEMPTS = 3


def check_attempt(attempt: Any) -> None:
    """Refuse an attempt beyond the last."""
    at_least(1, attempt=attempt)
    remedy = "find out why shares are lost, and agree on a new config"
    between(1, MAX_ATTEMPTS, attempt=attempt, remedy=remedy)


@dataclass(frozen=True, slots=True)
class Announcement:
    """What a site says before a round.

    `config` is the digest of the federation config, `exchange` the public key of X25519 that masks
    the site's share of this attempt, and no other. `signature`: Ed25519 over the others, in hex.
    """

    site: str
    config: str
    round: int
    attempt: int
    exchange: str
    signature: str = ""

    def __post_init__(self) -> None:
        check_name(self.site)
        require(
            isinstance(self.config, str) and isinstance(self.signature, str),
            "an announcement must name its config and be signed",
            site=self.site,
        )
        at_least(1, round=self.round)
        check_attempt(self.attempt)
        check_exchange(self.site, self.exchange)

    @property
    def content(self) -> bytes:
        """The digest that is signed."""
        return content_digest({**asdict(self), "signature": ""})

    @property
    def occasion(self) -> str:
        """Digest of config, round and attempt, in hex: what all announcements of it share."""
        return occasion(self.config, self.round, self.attempt)

    def signed(self, key: SiteKey) -> Self:
        """Return it under the signature of its site."""
        return replace(self, signature=key.sign(ANNOUNCEMENT, self.content))

    def check(self, config: FederationConfig) -> None:
        """Refuse it unless it is of this config, and as a member has signed it."""
        require(
            self.config == config.digest,
            "an announcement must be of the federation config, and this is of another",
            site=self.site,
            config=self.config[:16],
            expected=config.digest[:16],
            remedy="let all sites sign the same config",
        )
        key = config.member(self.site).key
        require(
            key.check_signature(ANNOUNCEMENT, self.signature, self.content),
            "an announcement must be as its site has signed it, and this one is another",
            site=self.site,
            round=self.round,
            remedy="ask the site to send it again",
            error=ModelFileError,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file."""
        Path(path).write_bytes(self.to_bytes())

    def to_bytes(self) -> bytes:
        """Return the content of a file of it."""
        made = {"format": ANNOUNCEMENT_FORMAT, "format_version": ANNOUNCEMENT_VERSION}
        return (json.dumps({**made, **asdict(self)}) + "\n").encode("ascii")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of `save`."""
        return cls.parse(Path(path).read_bytes(), str(path))

    @classmethod
    def parse(cls, data: bytes, path: str) -> Self:
        """Return the announcement of which `data` is the file; `path` says in errors where."""
        rule, remedy = "an announcement must be whole", "ask the site to send it again"
        kind = ANNOUNCEMENT_FORMAT, ANNOUNCEMENT_VERSION
        return read_json(data, *kind, cls.of, path, rule, remedy)

    @classmethod
    def of(cls, values: dict[str, Any]) -> Self:
        """Return the announcement of its values; unknown ones are refused."""
        made = cls(**values)
        check_members(values, asdict(made))
        return made


def occasion(config: str, number: int, attempt: int) -> str:
    """Return the digest that names an attempt of a round before it is made, in hex."""
    return content_digest({"config": config, "round": number, "attempt": attempt}).hex()
