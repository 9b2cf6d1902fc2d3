"""Documents of releases by keyed values: exact counts for their owner, on which nothing rests.

``NAME.documents`` lies beside a ledger, for its owner only. It begins with the key of the values,
32 random bytes. Each release adds a segment once its price is on record, before its noise is drawn:
its number, the number of its values, and the values of its documents, sorted, 8 bytes each. So it
shows that a ledger was here, and how many releases it had: an older copy of the ledger is found.
Equal texts have one value (`streamlda.privacy.ledger.fingerprints`), so repeats are counted,
whatever names and order they came in.

Names and offsets decide what a release costs and whether it is made. Values refuse documents only
where all of them are known before the first payment. Elsewhere a refusal would show whether a
document was in an earlier release; there the owner is warned, and the repeats are counted.
"""

from __future__ import annotations

import os
import secrets
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.container import sync_folder, whole_file
from streamlda.errors import LedgerError, require
from streamlda.privacy.ledger.fingerprints import FingerprintKey

#: A third of the documents of a run must not have been in earlier releases.
REFUSED_OF = 3

#: A tenth of the documents of a release makes a warning.
WARNED_OF = 10

Values = NDArray[np.uint64]
_WORD = np.dtype("<u8")
_KEY_WORDS = 4
NO_VALUES: Values = np.empty(0, dtype=np.uint64)


class Repeats(NamedTuple):
    """Documents that were in a release before, and all that were asked about."""

    repeated: int
    documents: int


class ReleasedDocuments:
    """Values of the documents of releases, on disk; memory O(releases), and of one release."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # Number, first word and last + 1 of the values of each release, oldest first.
        self._parts: list[tuple[int, int, int]] = []
        words = self._open()
        while self._end + 2 <= len(words):
            number, count = map(int, words[self._end : self._end + 2])
            start, stop = self._end + 2, self._end + 2 + count
            if number <= self.newest or stop > len(words):
                break
            self._parts.append((number, start, stop))

    @property
    def newest(self) -> int:
        """The number of the newest release, 0 before the first."""
        return self._parts[-1][0] if self._parts else 0

    @property
    def key(self) -> FingerprintKey | None:
        """The key of the values; None without a file."""
        secret = self._open()[:_KEY_WORDS].tobytes()
        return FingerprintKey(secret) if len(secret) == _KEY_WORDS * _WORD.itemsize else None

    def make(self) -> FingerprintKey:
        """Put a file with a new key where none lies, for its owner only."""
        secret = secrets.token_bytes(_KEY_WORDS * _WORD.itemsize)
        with whole_file(self.path, 0o600) as file:
            file.write(secret)
        sync_folder(self.path.parent)
        return FingerprintKey(secret)

    @property
    def _end(self) -> int:
        return self._parts[-1][2] if self._parts else _KEY_WORDS

    def _open(self) -> Values:
        whole = self.path.stat().st_size // _WORD.itemsize if self.path.exists() else 0
        return np.memmap(self.path, dtype=_WORD, mode="r", shape=(whole,)) if whole else NO_VALUES

    def _releases(self) -> Iterator[tuple[int, Values]]:
        """Yield the number and the values of each release."""
        words = self._open()
        return ((number, words[start:stop]) for number, start, stop in self._parts)

    def add(self, number: int, values: Values) -> None:
        """Put the documents of a release on the disk."""
        words = np.concatenate([np.array([number, len(values)], _WORD), np.sort(values)])
        with self.path.open("r+b") as file:
            file.truncate(self._end * _WORD.itemsize)
            file.seek(0, os.SEEK_END)
            file.write(words.astype(_WORD).tobytes())
            file.flush()
            os.fsync(file.fileno())
        start = self._end + 2
        self._parts.append((number, start, start + len(values)))

    def count_repeats(self, values: Values) -> Repeats:
        """Count the documents that were in releases. Time O(releases documents log)."""
        known = np.zeros(len(values), dtype=np.bool_)
        for _, found in self._releases():
            if len(found):
                places = np.minimum(np.searchsorted(found, values), len(found) - 1)
                known |= found[places] == values
        return Repeats(int(known.sum()), len(values))

    def check_new(self, values: Values, *, remedy: str, **where: Any) -> None:
        """Refuse documents of a run before its first payment, if too many were in releases."""
        found = self.count_repeats(values)
        require(
            REFUSED_OF * found.repeated < max(1, found.documents),
            "documents must not be in two releases, and a third or more of these were in one",
            **found._asdict(),
            **where,
            remedy=remedy,
            error=LedgerError,
        )

    def find_most_charged(self, prices: Mapping[int, float], power: int) -> dict[int, int]:
        """Return the records of the text that cost most, by the numbers of its releases.

        `prices` are those of a record in each release; r records of one text cost r to a `power`
        times as much. Memory O(records).
        """
        texts, found = np.unique(self._every()), Counter[int]()
        charged = np.zeros(len(texts))
        for number, values in self._releases():
            own, times = np.unique(values, return_counts=True)
            charged[np.searchsorted(texts, own)] += prices[number] * times.astype(float) ** power
        if len(texts):
            text = texts[charged.argmax()]
            for number, values in self._releases():
                found[number] = int(np.count_nonzero(values == text))
        return +found

    def count_records(self) -> Repeats:
        """Count the records whose text another record has too, and all records."""
        _, counts = np.unique(self._every(), return_counts=True)
        return Repeats(int(counts[counts > 1].sum()), int(counts.sum()))

    def _every(self) -> Values:
        return np.concatenate([*(values for _, values in self._releases()), NO_VALUES])


def values_of_fingerprints(fingerprints: Iterable[bytes]) -> Values:
    """Return the values of documents; blank ones have none."""
    found = array("Q", (int.from_bytes(each[:8], "little") for each in fingerprints if each))
    return np.array(found, dtype=np.uint64)
