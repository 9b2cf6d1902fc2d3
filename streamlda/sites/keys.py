"""Identities, signatures, and pairwise masks derived by Diffie-Hellman.

A site has two key pairs: X25519, for a secret with each other site, and Ed25519, to sign shares.
From the secret of two sites, HKDF-SHA256 makes one key for each round, bound to the config, the
round and both sites; ChaCha20 makes of it a stream of 64-bit numbers. The site that comes first in
the order of names adds the stream, the other takes it off, modulo 2^64. So the masks of all sites
sum to zero.

Notes
-----
*Masks.* Let H be the sites whose keys the adversary does not have, h >= 2 of them. Streams between
them are h (h - 1) / 2 independent uniform vectors. For h = 2 the masks are (r, -r): uniform on the
vectors of sum zero. A further site adds one stream with each: its own mask is then uniform by any
of them, and the others' masks by induction. So the h shares show their sum and nothing else.
"Uniform" is computational: it takes the security of X25519 (the hashed Diffie-Hellman assumption),
HKDF and ChaCha20.

*Once.* A mask must serve one share. Keys are bound to the round, and a site's ledger holds the
digest of a round before the noise of its share is drawn (`streamlda.sites.site`).

*Later theft.* Keys are the same for all rounds. The key of a site shows its masks of the past, all
of them: what is left to its shares then is the noise of the site itself.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import failure, require
from streamlda.errors import MissingExtraError, ModelFileError
from streamlda.sites.files import parsed, read_json

try:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )
    from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF
except ImportError as error:
    raise MissingExtraError("cryptography", "sites", "learning at several sites") from error

KEY_FORMAT, PUBLIC_FORMAT, KEY_VERSION = "streamlda-site-key", "streamlda-site-public-keys", 1

Words = NDArray[np.uint64]

#: ChaCha20 counts blocks of 64 bytes with 32 bits.
MAX_VALUES = 2**32 * 8

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MASK = b"streamlda site mask 1"
_SHARE = b"streamlda site share 1"


def check_name(name: Any) -> None:
    """Refuse what cannot be the name of a site: it is part of file names and of messages."""
    require(
        isinstance(name, str) and _NAME.fullmatch(name),
        "the name of a site must be 1 to 63 letters, digits, points, hyphens or underscores and "
        "begin with a letter or digit",
        name=str(name)[:80],
    )


@dataclass(frozen=True, slots=True)
class PublicKeys:
    """What the others know of a site: public keys of X25519 and Ed25519, 64 hex digits each."""

    name: str
    exchange: str
    signing: str

    def __post_init__(self) -> None:
        check_name(self.name)
        for kind in ("exchange", "signing"):
            value = getattr(self, kind)
            require(
                isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value),
                f"a public key must be 64 hex digits, and that for {kind} is not",
                site=self.name,
                key=str(value)[:80],
                remedy="take what keygen wrote",
            )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write them to a new file, which is no secret."""
        values = {"format": PUBLIC_FORMAT, "format_version": KEY_VERSION, **asdict(self)}
        with Path(path).open("x", encoding="ascii") as file:
            file.write(json.dumps(values) + "\n")

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of `save`."""
        return parsed(
            lambda: cls(**read_json(path, PUBLIC_FORMAT, KEY_VERSION)),
            path,
            "a file of public keys must be as keygen wrote it",
            "ask the site for FILE.pub",
        )

    def check_signature(self, signature: str, digest: bytes) -> bool:
        """Return whether this site signed the digest of a share."""
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.signing))
        try:
            key.verify(bytes.fromhex(signature), _SHARE + digest)
        except (InvalidSignature, ValueError):
            return False
        return True


class SiteKeys:
    """The secret keys of a site; make them with `generate` or `load`.

    They cannot be pickled or copied, and are not shown.
    """

    __slots__ = ("__exchange", "__signing", "public")

    def __init__(self, name: str, exchange: bytes, signing: bytes) -> None:
        self.__exchange = X25519PrivateKey.from_private_bytes(exchange)
        self.__signing = Ed25519PrivateKey.from_private_bytes(signing)
        self.public = PublicKeys(
            name,
            self.__exchange.public_key().public_bytes_raw().hex(),
            self.__signing.public_key().public_bytes_raw().hex(),
        )

    @classmethod
    def generate(cls, name: str) -> Self:
        """Return new keys, from the randomness of the operating system."""
        check_name(name)
        exchange = X25519PrivateKey.generate().private_bytes_raw()
        return cls(name, exchange, Ed25519PrivateKey.generate().private_bytes_raw())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the keys to a new file that only its owner can read; none is ever replaced."""
        text = json.dumps(
            {
                "format": KEY_FORMAT,
                "format_version": KEY_VERSION,
                "name": self.public.name,
                "exchange": self.__exchange.private_bytes_raw().hex(),
                "signing": self.__signing.private_bytes_raw().hex(),
            }
        )
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(text + "\n")
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read keys of `save`; a file that others may read is refused."""
        mode = stat.S_IMODE(Path(path).stat().st_mode)
        require(
            not mode & 0o077,
            "a key file must be readable by its owner only",
            path=str(path),
            mode=f"{mode:o}",
            remedy="if nobody has read it: chmod 600, else make new keys",
            error=ModelFileError,
        )
        rule, remedy = "a key file must be as keygen wrote it", "restore it, or make new keys"
        return parsed(lambda: cls._read(path), path, rule, remedy, secret=True)

    @classmethod
    def _read(cls, path: str | os.PathLike[str]) -> Self:
        values = read_json(path, KEY_FORMAT, KEY_VERSION)
        secrets = [bytes.fromhex(values[kind]) for kind in ("exchange", "signing")]
        return cls(values["name"], *secrets)

    def sign(self, digest: bytes) -> str:
        """Return the signature of the digest of a share, in hex."""
        return self.__signing.sign(_SHARE + digest).hex()

    def mask(
        self,
        members: Sequence[PublicKeys],
        context: bytes,
        shapes: Mapping[str, tuple[int, ...]],
    ) -> dict[str, Words]:
        """Return this site's mask; those of all members sum to 0 modulo 2^64.

        `members`: all sites, this one included, with different names. `context` names config and
        round: equal at all sites, and never used for two shares. Blocks take, in the order of their
        names, the numbers of one stream. Time O(members * values), some 3 ns each; memory 16 bytes
        a value.
        """
        cells = {name: int(np.prod(shapes[name], dtype=np.int64)) for name in sorted(shapes)}
        total = sum(cells.values())
        require(
            total <= MAX_VALUES,
            f"a share must have at most {MAX_VALUES} values",
            values=total,
            remedy="use fewer words or columns",
        )
        flat = np.zeros(total, dtype=np.uint64)
        for other in members:
            if other.name == self.public.name:
                continue
            stream = _stream(self._pair_key(other, context), total)
            # Unsigned numbers of NumPy wrap without a warning.
            if self.public.name < other.name:
                flat += stream
            else:
                flat -= stream
        pieces = np.split(flat, np.cumsum(list(cells.values()))[:-1])
        return {name: part.reshape(shapes[name]) for name, part in zip(cells, pieces, strict=True)}

    def _pair_key(self, other: PublicKeys, context: bytes) -> bytes:
        try:
            public = X25519PublicKey.from_public_bytes(bytes.fromhex(other.exchange))
            secret = self.__exchange.exchange(public)
        except ValueError as error:
            raise failure(
                "the exchange key of a site must be one of X25519",
                site=other.name,
                remedy="ask that site for the file that keygen wrote",
            ) from error
        pair = sorted([self.public, other], key=lambda keys: keys.name)
        info = b"\0".join([_MASK, *(f"{p.name}:{p.exchange}".encode() for p in pair)])
        return HKDF(SHA256(), 32, salt=context, info=info).derive(secret)

    def __repr__(self) -> str:
        return f"SiteKeys(name={self.public.name!r})"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("secret keys must not be copied or pickled; load them where they are used")


def _stream(key: bytes, n: int) -> Words:
    """Return n numbers of 64 bits, little-endian, of the ChaCha20 stream of a key used once."""
    encryptor = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    # Encrypting zeros gives the stream itself.
    return np.frombuffer(encryptor.update(bytes(8 * n)), dtype="<u8").astype(np.uint64, copy=False)
