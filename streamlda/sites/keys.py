"""Identities, signatures, and pairwise masks derived by Diffie-Hellman.

A site has an *identity*, a key pair of Ed25519, which signs all that it sends, and for each round a
*round key* of X25519 that serves one share (`streamlda.sites.announcement`). HKDF-SHA256 makes one
key of the secret of two round keys, bound to the config, the round and both sites; ChaCha20 makes
of it a stream of 64-bit numbers. The site that comes first in the order of names adds the stream,
the other takes it off, modulo 2^64. So the masks of all sites sum to zero.

Notes
-----
*Masks.* Let H be the sites whose keys the adversary does not have, h >= 2 of them. Streams between
them are h (h - 1) / 2 independent uniform vectors. For h = 2 the masks are (r, -r): uniform on the
vectors of sum zero. A further site adds one stream with each: its own mask is then uniform by any
of them, and the others' masks by induction. So the h shares show their sum and nothing else.
"Uniform" is computational: it takes the security of X25519 (the hashed Diffie-Hellman assumption),
HKDF and ChaCha20.

*Later theft.* An identity can sign, and open nothing. A round key is destroyed before the noise of
its share is drawn, so whoever steals all keys of a site then cannot open a mask of the past.

*Low order.* With an exchange key of low order every secret is the same, and with such a signing key
everybody can sign. Both are refused where they are read.
"""

import hashlib
import os
import re
import stat
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import MissingExtraError
from streamlda.sites.faults import check
from streamlda.sites.files import JsonKind, check_members

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

_KEY_FILE = JsonKind(
    "streamlda-site-key", 2, "a key file is not as keygen wrote it", "restore it, or make new keys"
)
_PUBLIC_FILE = JsonKind(
    "streamlda-site-public-keys",
    2,
    "a file of a public key is not as keygen wrote it",
    "ask the site for FILE.pub",
)

Words = NDArray[np.uint64]

#: ChaCha20 counts blocks of 64 bytes with 32 bits.
MAX_VALUES = 2**35

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
_MASK = b"streamlda site mask 2"
_FIELD = 2**255 - 19


def check_name(name: Any) -> None:
    """Refuse what cannot be the name of a site: it is part of file names and of messages."""
    check(isinstance(name, str) and _NAME.fullmatch(name), "name of site", name=str(name)[:80])


def check_exchange(site: str, key: Any) -> None:
    """Refuse what is no public key of X25519, or is one of low order, by trying an exchange."""
    _check_hex(site, "exchange", key)
    u = int.from_bytes(bytes.fromhex(key), "little")
    _check_order(site, "exchange", key, u, whole=u < _FIELD)


def _check_signing(site: str, key: Any) -> None:
    """Refuse a signing key of low order: in the coordinates of X25519 it is one there, too."""
    _check_hex(site, "signing", key)
    y = int.from_bytes(bytes.fromhex(key), "little") & ((1 << 255) - 1)
    u = (1 + y) * pow(1 - y, -1, _FIELD) % _FIELD if y % _FIELD != 1 else 0
    _check_order(site, "signing", key, u, whole=y < _FIELD)


def _check_order(site: str, kind: str, key: str, u: int, *, whole: bool) -> None:
    """Refuse a point of X25519 of low order, with which an exchange fails."""
    try:
        public = X25519PublicKey.from_public_bytes(u.to_bytes(32, "little"))
        X25519PrivateKey.generate().exchange(public)
    except ValueError:
        whole = False
    check(whole, "curve", site=site, kind=kind, key=key[:16])


def _check_hex(site: str, kind: str, key: Any) -> None:
    is_hex = isinstance(key, str) and re.fullmatch("[0-9a-f]{64}", key)
    check(is_hex, "hex", site=site, kind=kind, key=str(key)[:80])


@dataclass(frozen=True, slots=True)
class PublicKey:
    """Public identity of a site: its name, and its key of Ed25519 in 64 hex digits."""

    name: str
    signing: str

    def __post_init__(self) -> None:
        check_name(self.name)
        _check_signing(self.name, self.signing)

    @property
    def fingerprint(self) -> str:
        """32 hex digits in groups of four, to compare by telephone."""
        digest = hashlib.blake2b(f"{self.name}:{self.signing}".encode(), digest_size=16).hexdigest()
        return " ".join(digest[i : i + 4] for i in range(0, 32, 4))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a new file, which is no secret."""
        with Path(path).open("x", encoding="ascii") as file:
            file.write(_PUBLIC_FILE.write(asdict(self)))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a file of `save`."""
        return _PUBLIC_FILE.read(path, lambda values: cls(**values))

    def check_signature(self, kind: bytes, signature: str, digest: bytes) -> bool:
        """Return whether this site signed the digest of something of that kind."""
        key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.signing))
        try:
            key.verify(bytes.fromhex(signature), kind + digest)
        except (InvalidSignature, ValueError):
            return False
        return True


class SignedRecord(ABC):
    """Base of dataclasses with a signature over all else that they hold.

    `purpose` goes into the signature: none of one kind passes for another.
    """

    purpose: ClassVar[bytes]
    signature: str

    @property
    @abstractmethod
    def content(self) -> bytes:
        """The digest that is signed."""

    def sign(self, key: "SiteKey") -> Self:
        """Return it under the signature of a key."""
        return replace(self, signature=key.sign(self.purpose, self.content))  # type: ignore[type-var]

    def is_signed_by(self, key: PublicKey) -> bool:
        """Return whether it is as the owner of a key has signed it."""
        return key.check_signature(self.purpose, self.signature, self.content)


class SiteKey:
    """The secret identity of a site, or of the aggregator; make one with `generate` or `load`.

    It cannot be pickled or copied, and is not shown.
    """

    __slots__ = ("__signing", "public")

    def __init__(self, name: str, signing: bytes) -> None:
        self.__signing = Ed25519PrivateKey.from_private_bytes(signing)
        self.public = PublicKey(name, self.__signing.public_key().public_bytes_raw().hex())

    @classmethod
    def generate(cls, name: str) -> Self:
        """Return a new key, from the randomness of the operating system."""
        check_name(name)
        return cls(name, Ed25519PrivateKey.generate().private_bytes_raw())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the key to a new file that only its owner can read; none is ever replaced."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            secret = self.__signing.private_bytes_raw().hex()
            file.write(_KEY_FILE.write({"name": self.public.name, "signing": secret}))
            file.flush()
            os.fsync(file.fileno())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read a key of `save`; a file that others may read is refused."""
        mode = stat.S_IMODE(Path(path).stat().st_mode)
        check(not mode & 0o077, "key file", path=str(path), mode=f"{mode:o}")
        return _KEY_FILE.read(path, cls._parse, secret=True)

    @classmethod
    def _parse(cls, values: dict[str, Any]) -> Self:
        check_members(dict.fromkeys(values), dict.fromkeys(("name", "signing")))
        return cls(values["name"], bytes.fromhex(values["signing"]))

    def sign(self, kind: bytes, digest: bytes) -> str:
        """Return the signature of the digest of something of that kind, in hex."""
        return self.__signing.sign(kind + digest).hex()

    def __repr__(self) -> str:
        return f"SiteKey(name={self.public.name!r})"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("secret keys cannot be copied or pickled; load them where they are used")


class RoundKey:
    """The secret half of a round key, in memory; `RoundKeys.take` gives one, for one share."""

    __slots__ = ("__secret", "exchange", "site")

    def __init__(self, site: str, secret: bytes) -> None:
        self.__secret = X25519PrivateKey.from_private_bytes(secret)
        self.site, self.exchange = site, self.__secret.public_key().public_bytes_raw().hex()

    @staticmethod
    def random() -> bytes:
        """Return the bytes of a new secret, from the randomness of the operating system."""
        return X25519PrivateKey.generate().private_bytes_raw()

    def mask(
        self, exchanges: Mapping[str, str], context: bytes, shapes: Mapping[str, tuple[int, ...]]
    ) -> dict[str, Words]:
        """Return this site's mask; those of all sites sum to 0 modulo 2^64.

        `exchanges` has the public round key of each site, this one included, in 64 hex digits.
        `context` names config and round: equal at all sites. Blocks take, in the order of their
        names, the numbers of one stream. Time O(sites * values), some 3 ns each; memory 16 bytes a
        value.
        """
        cells = {name: int(np.prod(shapes[name], dtype=np.int64)) for name in sorted(shapes)}
        total = sum(cells.values())
        check(total <= MAX_VALUES, "size of share", values=total)
        flat = np.zeros(total, dtype=np.uint64)
        for site, exchange in exchanges.items():
            if site == self.site:
                continue
            stream = _draw_stream(self._pair_key(site, exchange, context), total)
            # Unsigned numbers of NumPy wrap without a warning.
            if self.site < site:
                flat += stream
            else:
                flat -= stream
        pieces = np.split(flat, np.cumsum(list(cells.values()))[:-1])
        return {name: part.reshape(shapes[name]) for name, part in zip(cells, pieces, strict=True)}

    def _pair_key(self, site: str, exchange: str, context: bytes) -> bytes:
        public = X25519PublicKey.from_public_bytes(bytes.fromhex(exchange))
        pair = sorted([(self.site, self.exchange), (site, exchange)])
        info = b"\0".join([_MASK, *(f"{site}:{key}".encode() for site, key in pair)])
        return HKDF(SHA256(), 32, salt=context, info=info).derive(self.__secret.exchange(public))

    def __repr__(self) -> str:
        return f"RoundKey(site={self.site!r})"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("secret keys cannot be copied or pickled")


def _draw_stream(key: bytes, n: int) -> Words:
    """Return n numbers of 64 bits, little-endian, of the ChaCha20 stream of a key used once."""
    encryptor = Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor()
    # Encrypting zeros gives the stream itself.
    return np.frombuffer(encryptor.update(bytes(8 * n)), dtype="<u8").astype(np.uint64, copy=False)
