"""Shares: the masked and signed sums of one site in one round, and the files of what is signed.

The arrays of the file of a share are the blocks of the stage, modulo 2^64; the metadata are the
attributes of `Share`. `streamlda.sites.site` has how a share is made.
"""

import os
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.container import ArraysFile, digest_content, read_arrays, write_arrays
from streamlda.errors import at_least
from streamlda.sites.announcement import Announcement
from streamlda.sites.faults import check
from streamlda.sites.federation import FederationConfig
from streamlda.sites.files import check_members, parse_content
from streamlda.sites.keys import SignedRecord, Words, check_name

#: Names of fields in files, where they differ.
_WRITTEN = {"config": "roster", "number": "round"}


class SignedFile(SignedRecord):
    """Base of dataclasses of arrays, and of other fields as metadata, that are signed in a file."""

    #: Kind and version of the file, and who sends it.
    kind: ClassVar[str]
    version: ClassVar[int]
    sender: ClassVar[str]
    arrays: Mapping[str, NDArray[Any]]

    @abstractmethod
    def check_fields(self) -> None:
        """Refuse values of a file that the fields cannot have."""

    @property
    def content(self) -> bytes:
        """The digest that is signed."""
        return digest_content(self._metadata(), self.arrays)

    def _metadata(self) -> dict[str, Any]:
        names = (name for name in _names(type(self)) if name != "signature")
        return {_WRITTEN.get(name, name): _to_plain(getattr(self, name)) for name in names}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, whole or not at all."""
        metadata = {**self._metadata(), "signature": self.signature}
        write_arrays(path, f"streamlda-{self.kind}", self.version, self.arrays, metadata)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of `save`; who signed it is checked where it is used."""
        file = read_arrays(path, f"streamlda-{cls.kind}", cls.version)
        rule, remedy = f"a {cls.kind} file is not whole", f"ask the {cls.sender} for it again"
        return parse_content(lambda: cls._parse(file), path, rule, remedy)

    @classmethod
    def _parse(cls, file: ArraysFile) -> Self:
        written = {name: file.metadata[_WRITTEN.get(name, name)] for name in _names(cls)}
        values = {name: _from_plain(value) for name, value in written.items()}
        make: Any = cls
        made: Self = make(arrays=file.arrays, **values)
        check_members(file.metadata, {**made._metadata(), "signature": made.signature})
        if not isinstance(made.signature, str):
            raise ValueError("its signature is no text")
        made.check_fields()
        return made


def _names(kind: Any) -> list[str]:
    """Return the names of all fields but the arrays."""
    return [each.name for each in fields(kind) if each.name != "arrays"]


def _to_plain(value: Any) -> Any:
    """Return a field as plain JSON values; announcements are mappings there, and nothing else."""
    if isinstance(value, tuple):
        return [*map(_to_plain, value)]
    return asdict(value) if isinstance(value, Announcement) else value


def _from_plain(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(map(_from_plain, value))
    return Announcement.from_json(value) if isinstance(value, dict) else value


@dataclass(frozen=True, eq=False)
class Share(SignedFile):
    """Message of one site in one round.

    `config` is the digest of the federation config. `secure`: whether the noise may be called
    private. `following` announces the site's key of the round after; None in the last. `arrays`:
    the masked blocks. `signature`: Ed25519 over all the others, in hex.
    """

    purpose, kind, version, sender = b"streamlda site share 2", "share", 3, "site"

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

    def check(self, config: FederationConfig) -> None:
        """Refuse it unless its site is a member of the config and has signed it."""
        is_signed = self.is_signed_by(config.member(self.site).key)
        check(is_signed, "signature of share", site=self.site, round=self.round)

    def check_fields(self) -> None:
        """Refuse values of a file that a share cannot have."""
        check_name(self.site)
        at_least(1, round=self.round, attempt=self.attempt)
        if any(array.dtype != np.uint64 for array in self.arrays.values()):
            raise ValueError("its blocks are not uint64")
        if not isinstance(self.following, Announcement | None) or not isinstance(self.secure, bool):
            raise ValueError("its announcement is none, or it does not say what its noise is")
