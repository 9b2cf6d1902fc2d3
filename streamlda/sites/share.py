"""A share: what one site sends in one round, masked and signed, and its file.

A share file is a checked file of `streamlda.container` of kind ``streamlda-share``, version 1.
The arrays are the blocks of the stage, modulo 2^64; the metadata are the attributes of `Share`. How
a share is made, and what it tells, is in `streamlda.sites.site`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np

from streamlda.container import ArraysFile, parse_arrays, read_arrays, write_arrays
from streamlda.errors import InvalidSettingError, ModelFileError
from streamlda.sites.keys import Words, check_name
from streamlda.sites.rounds import content_digest

SHARE_FORMAT, SHARE_VERSION = "streamlda-share", 1


@dataclass(frozen=True, eq=False)
class Share:
    """What one site sends in one round.

    Attributes
    ----------
    site : str
    roster, settings, vocabulary : str
        Digests: of the roster, and of two of its parts, to name what differs.
    round : int
    attempt : int
    round_digest : str
    stage : str
    secure : bool
        Whether the noise may be called private.
    arrays : mapping of str to ndarray of uint64
        Masked blocks.
    signature : str
        Of all of the above, Ed25519, in hex.
    """

    site: str
    roster: str
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
        return content_digest(self._about(), self.arrays)

    def _about(self) -> dict[str, Any]:
        others = ("arrays", "signature")
        return {f.name: getattr(self, f.name) for f in fields(self) if f.name not in others}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the share to a file, whole or not at all.

        Raises
        ------
        OSError
            If it cannot be written.
        """
        about = {**self._about(), "signature": self.signature}
        write_arrays(path, SHARE_FORMAT, SHARE_VERSION, self.arrays, about)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of `save`; whose it is, the signature tells (`aggregate`).

        Raises
        ------
        OSError
            If it cannot be read.
        ModelFileError
            If it is not a whole, unaltered share.
        """
        return cls._of(read_arrays(path, SHARE_FORMAT, SHARE_VERSION), path)

    @classmethod
    def parse(cls, data: bytes, path: str) -> Self:
        """Return the share of which `data` is the file; `path` tells errors where it is from.

        Raises
        ------
        ModelFileError
            If it is not a whole, unaltered share.
        """
        return cls._of(parse_arrays(data, SHARE_FORMAT, SHARE_VERSION, path), path)

    @classmethod
    def _of(cls, file: ArraysFile, path: str | os.PathLike[str]) -> Self:
        try:
            share = cls(arrays=file.arrays, **file.metadata)
            check_name(share.site)
            if any(array.dtype != np.uint64 for array in share.arrays.values()):
                raise ValueError("its blocks are not uint64")
            if not isinstance(share.signature, str):
                raise ValueError("its signature is no text")
            _ = share.content
            return share
        except (InvalidSettingError, LookupError, TypeError, ValueError) as error:
            raise ModelFileError(
                f"a share file must be whole, got path={str(path)!r} error={str(error)[:100]}; "
                "ask the site to send it again"
            ) from error
