"""Shares: the masked and signed sums of one site in one round, and their file.

The arrays of the file are the blocks of the stage, modulo 2^64; the metadata are the attributes of
`Share`, `config` under the name ``roster``. `streamlda.sites.site` has how a share is made.
"""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

import numpy as np

from streamlda.container import ArraysFile, digest_content, read_arrays, write_arrays
from streamlda.errors import at_least
from streamlda.sites.announcement import Announcement
from streamlda.sites.faults import check
from streamlda.sites.federation import FederationConfig
from streamlda.sites.files import check_members, parse_content
from streamlda.sites.keys import SHARE, Words, check_name

SHARE_FORMAT, SHARE_VERSION = "streamlda-share", 3


@dataclass(frozen=True, eq=False)
class Share:
    """Message of one site in one round.

    `config` is the digest of the federation config. `secure`: whether the noise may be called
    private. `following` announces the site's key of the round after; None in the last. `arrays`:
    the masked blocks. `signature`: Ed25519 over all the others, in hex.
    """

    site: str
    config: str
    round: int
    attempt: int
    round_digest: str
    stage: str
    secure: bool
    following: Announcement | None
    arrays: dict[str, Words] = field(repr=False)
    signature: str = ""

    @property
    def content(self) -> bytes:
        """The digest that is signed."""
        return digest_content(self._metadata(), self.arrays)

    def check(self, config: FederationConfig) -> None:
        """Refuse it unless its site is a member of the config and has signed it."""
        key = config.member(self.site).key
        check(
            key.check_signature(SHARE, self.signature, self.content),
            "signature of share",
            site=self.site,
            round=self.round,
        )

    def _metadata(self) -> dict[str, Any]:
        names = [f.name for f in fields(self) if f.name not in ("arrays", "signature")]
        values = {"roster" if n == "config" else n: getattr(self, n) for n in names}
        following = self.following
        return values | {"following": None if following is None else asdict(following)}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the share to a file, whole or not at all."""
        metadata = {**self._metadata(), "signature": self.signature}
        write_arrays(path, SHARE_FORMAT, SHARE_VERSION, self.arrays, metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of `save`; `aggregate` checks by the signature whose it is."""
        file = read_arrays(path, SHARE_FORMAT, SHARE_VERSION)
        rule, remedy = "a share file must be whole", "ask the site to send it again"
        return parse_content(lambda: cls._parse(file), path, rule, remedy)

    @classmethod
    def _parse(cls, file: ArraysFile) -> Self:
        metadata = dict(file.metadata)
        if metadata["following"] is not None:
            metadata["following"] = Announcement.from_json(metadata["following"])
        share = cls(config=metadata.pop("roster"), arrays=file.arrays, **metadata)
        check_members(file.metadata, {**share._metadata(), "signature": share.signature})
        check_name(share.site)
        at_least(1, round=share.round, attempt=share.attempt)
        if any(array.dtype != np.uint64 for array in share.arrays.values()):
            raise ValueError("its blocks are not uint64")
        if not isinstance(share.signature, str) or not isinstance(share.secure, bool):
            raise ValueError("its signature is no text, or it does not say what its noise is")
        return share
