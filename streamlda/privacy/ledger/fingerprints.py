"""Keyed values by which a ledger knows documents again, whatever their source is called.

All are values of keyed BLAKE2b, 64 bits of them: to those without the key they are random numbers,
and no text can be tried against them. The key lies beside the ledger (`FingerprintKey`), so a
ledger may be shown, and its key may not. The ledger has *marks* of files: where a release ends in
one, the value of the file's name and d_n = F(d_(n-1), F(text of record n)), masked by a value of
the name, so that equal files do not show. Values of the texts themselves lie in a file of their own
(`streamlda.privacy.ledger.documents`).
"""

from __future__ import annotations

import base64
import html
import os
import re
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.container import sync_folder
from streamlda.documents import DocumentBatch
from streamlda.errors import LedgerError, failure
from streamlda.utils.unicode_forms import normalized

_KEY_BYTES, _VALUE_BYTES, _LINK_BYTES = 32, 8, 16
_WORDS = re.compile(r"[^\W_]+")
#: Accents, soft hyphens, and characters without a width: the same text has them or not.
_UNSEEN = re.compile("[\u0300-\u036f\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")
#: Of ASCII: letters without case, digits, and a space in place of all else.
_ASCII_WORDS = bytes(
    ord(chr(c).lower()) if c < 128 and chr(c).isalnum() else ord(" ") for c in range(256)
)
#: Tags and entities of HTML.
_MARKUP = re.compile(r"</?[a-z!][^<>]*>|&(?:#x?[0-9a-f]{1,7}|[a-z][a-z0-9]{1,30});", re.IGNORECASE)
_VALUES = np.dtype("<u8")


class FingerprintKey:
    """A random secret, and the functions that it chooses."""

    def __init__(self, secret: bytes) -> None:
        self._secret, self._keyed = secret, blake2b(key=secret, digest_size=_LINK_BYTES)
        #: Tells keys apart, and says nothing about this one.
        self.name = self._of(b"name").hex()[:16]

    def __reduce__(self) -> tuple[type[Self], tuple[bytes]]:
        """Travel to workers, who see documents too."""
        return type(self), (self._secret,)

    @classmethod
    def make(cls, path: Path) -> None:
        """Put a new key where none lies, for its owner only."""
        descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_bytes(_KEY_BYTES).hex() + "\n")
            file.flush()
            os.fsync(file.fileno())
        sync_folder(path.parent)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a key; `LedgerError` if it is none, `OSError` if it cannot be read."""
        text = path.read_text(encoding="ascii", errors="replace").strip()
        if len(text) != 2 * _KEY_BYTES or set(text) - set("0123456789abcdef"):
            raise failure(
                "the key of a ledger must be whole",
                path=str(path),
                remedy="restore it from a copy: without it, released documents are not recognised",
                error=LedgerError,
            )
        return cls(bytes.fromhex(text))

    def of_texts(self, texts: Iterable[str | None]) -> list[bytes]:
        """Return the fingerprints of documents: of their words, without case, accents and marks.

        Markup is no word. Blank ones and records without one are alike. Time some 3 microseconds
        a document of 100 words in ASCII.
        """
        return [self.of_text(text) for text in texts]

    def of_text(self, text: str | None) -> bytes:
        """Return the fingerprint of one document (`of_texts`)."""
        if text and ("<" in text or "&" in text):
            text = _MARKUP.sub(_character, text)
        if not text:
            return b""
        if text.isascii():
            found = text.encode("ascii").translate(_ASCII_WORDS).strip()
            while b"  " in found:
                found = found.replace(b"  ", b" ")
        else:
            text = _UNSEEN.sub("", normalized("NFKD", text))
            found = " ".join(_WORDS.findall(text.casefold())).encode("utf-8", "surrogatepass")
        found = found or " ".join(text.split()).encode("utf-8", "surrogatepass")
        return self._of(b"text", found) if found else b""

    def of_counts(self, columns: NDArray[np.int32], counts: NDArray[np.float64]) -> bytes:
        """Return the fingerprint of a row of counts: of its columns, increasing, and counts."""
        pairs = (columns.astype("<i8").tobytes(), counts.astype("<f8").tobytes())
        return self._of(b"row", *pairs) if len(columns) else b""

    def value_of_name(self, name: str) -> int:
        """Return the value of the name of a file."""
        return int.from_bytes(
            self._of(b"name", name.encode("utf-8", "surrogatepass"))[:8], "little"
        )

    def link(self, before: bytes, document: bytes) -> bytes:
        """Return the fingerprint of records, from that of all but the last, and of the last."""
        return self._of(b"link", before or bytes(_LINK_BYTES), document)

    def mark(self, name: str, records: int, link: bytes) -> Mark:
        """Return the mark of a file of which the first `records` records have this value."""
        mask = self._of(b"mark", name.encode("utf-8", "surrogatepass"))
        value = int.from_bytes(link[:8], "little") ^ int.from_bytes(mask[:8], "little")
        return Mark(self.value_of_name(name), records, value)

    def _of(self, *parts: bytes) -> bytes:
        state = self._keyed.copy()
        state.update(b"".join(parts))
        return state.digest()


def _character(markup: re.Match[str]) -> str:
    return html.unescape(markup[0]) if markup[0].startswith("&") else " "


class Mark(NamedTuple):
    """Where a release ends in a file: values of its name and of its records up to there."""

    name: int
    records: int
    value: int


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """Values by which the documents of one release are known; see the module.

    `key` is the name of the key. `documents` are values of the texts, which are kept elsewhere.
    """

    key: str
    marks: tuple[Mark, ...] = ()
    documents: bytes = b""

    def to_json(self) -> dict[str, Any]:
        """Return all but the documents as plain JSON values."""
        marks = np.array(self.marks, dtype=_VALUES).tobytes()
        return {"key": self.key, "marks": base64.b64encode(marks).decode("ascii")}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the fingerprints that `to_json` described."""
        marks = np.frombuffer(base64.b64decode(values["marks"]), dtype=_VALUES).reshape(-1, 3)
        return cls(values["key"], tuple(Mark(*mark) for mark in marks.tolist()))


def fingerprints_of(batch: DocumentBatch, key: FingerprintKey) -> list[bytes]:
    """Return the fingerprints of rows of counts. Time some 3 us a row."""
    ends = batch.row_pointers.tolist()
    return [
        key.of_counts(batch.word_ids[begin:end], batch.counts[begin:end])
        for begin, end in pairwise(ends)
    ]
