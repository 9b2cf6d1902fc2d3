"""A share: what one site sends in one round, masked and signed, and its file.

A share file is a checked file of `streamlda.container` of kind ``streamlda-share``, version 1.
The arrays are the blocks of the stage, modulo 2^64; the metadata are the attributes of `Share`,
`config` under the name ``roster``. How a share is made, and what it shows, is in
`streamlda.sites.site`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np

from streamlda.container import ArraysFile, parse_arrays, read_arrays, write_arrays
from streamlda.sites.files import parsed
from streamlda.sites.keys import Words, check_name
from streamlda.sites.rounds import content_digest

SHARE_FORMAT, SHARE_VERSION = "streamlda-share", 1


@dataclass(frozen=True, eq=False)
class Share:
    """What one site sends in one round.

    `config` is the digest of the federation config; `settings` and `vocabulary` are those of two of
    its parts, to name what differs. `secure`: whether the noise may be called private. `arrays`:
    the masked blocks. `signature`: Ed25519 over all the others, in hex.
    """

    site: str
    config: str
    settings: str
    vocabulary: str
    round: int
    attempt: int
    round_digest: str
    stage: str
    secure: bool
    arrays: dict[str, Words] = field(repr=False)
    signature: str = ""

    @property
    def content(self) -> bytes:
        """The digest that is signed."""
        return content_digest(self._metadata(), self.arrays)

    def _metadata(self) -> dict[str, Any]:
        names = [f.name for f in fields(self) if f.name not in ("arrays", "signature")]
        return {"roster" if n == "config" else n: getattr(self, n) for n in names}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the share to a file, whole or not at all."""
        metadata = {**self._metadata(), "signature": self.signature}
        write_arrays(path, SHARE_FORMAT, SHARE_VERSION, self.arrays, metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of `save`; `aggregate` checks by the signature whose it is."""
        return cls._of(read_arrays(path, SHARE_FORMAT, SHARE_VERSION), path)

    @classmethod
    def parse(cls, data: bytes, path: str) -> Self:
        """Return the share of which `data` is the file; `path` says in errors where it is from."""
        return cls._of(parse_arrays(data, SHARE_FORMAT, SHARE_VERSION, path), path)

    @classmethod
    def _of(cls, file: ArraysFile, path: str | os.PathLike[str]) -> Self:
        rule, remedy = "a share file must be whole", "ask the site to send it again"
        return parsed(lambda: cls._checked(file), path, rule, remedy)

    @classmethod
    def _checked(cls, file: ArraysFile) -> Self:
        metadata = dict(file.metadata)
        share = cls(config=metadata.pop("roster"), arrays=file.arrays, **metadata)
        check_name(share.site)
        if any(array.dtype != np.uint64 for array in share.arrays.values()):
            raise ValueError("its blocks are not uint64")
        if not isinstance(share.signature, str):
            raise ValueError("its signature is no text")
        _ = share.content
        return share
