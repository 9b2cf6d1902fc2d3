"""Documents of releases by keyed values: exact counts for their owner, on which nothing rests.

``NAME.documents`` lies beside a ledger, for its owner only. It begins with the key of the values,
32 random bytes. Each release adds a segment once its price is on record, before its noise is drawn:
its number, the number of its values, and the values of its documents, sorted, 8 bytes each. So it
shows that a ledger was here, and how many releases it had: an older copy of the ledger is found.
Equal texts have one value (`streamlda.privacy.ledger.fingerprints`), so repeats are counted,
whatever names and order they came in.

Values refuse documents only where all of them are known before the first payment: elsewhere a
refusal would show whether a document was in an earlier release.
"""

from __future__ import annotations

import os
import secrets
from array import array
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.container import sync_folder, whole_file
from streamlda.errors import LedgerError, require
from streamlda.privacy.ledger.fingerprints import FingerprintKey

#: A third of the documents of a run must not have been in earlier releases.
REFUSED_OF = 3

#: A tenth of the documents of a release makes a warning.
WARNED_OF = 10

KEY_BYTES = 32

Values = NDArray[np.uint64]
NO_VALUES: Values = np.empty(0, dtype="<u8")


class ReleasedDocuments:
    """Values of the documents of releases, on disk; memory O(releases), and of one release."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._load()

    def _load(self) -> None:
        """Find the key of the values, None without a file, and the whole segments, by release."""
        size = self.path.stat().st_size // 8 if self.path.exists() else 0
        words = np.memmap(self.path, "<u8", mode="r", shape=(size,)) if size else NO_VALUES
        self._releases, self._end = dict[int, Values](), KEY_BYTES // 8
        secret = words[: self._end].tobytes()
        self.key = FingerprintKey(secret) if len(secret) == KEY_BYTES else None
        while self._end + 2 <= size:
            number, count = map(int, words[self._end : self._end + 2])
            start, stop = self._end + 2, self._end + 2 + count
            if number <= self.newest or stop > size:
                break
            self._releases[number], self._end = words[start:stop], stop

    @property
    def newest(self) -> int:
        """The number of the newest release, 0 before the first."""
        return next(reversed(self._releases), 0)

    def make(self) -> FingerprintKey:
        """Put a file with a new key there, for its owner only, before the ledger is made."""
        secret = secrets.token_bytes(KEY_BYTES)
        with whole_file(self.path, 0o600) as file:
            file.write(secret)
        sync_folder(self.path.parent)
        self._load()
        return FingerprintKey(secret)

    def add(self, number: int, values: Values) -> None:
        """Put the documents of a release on the disk, in place of a segment that was cut short."""
        words = np.concatenate([np.array([number, len(values)], "<u8"), np.sort(values)])
        with self.path.open("r+b") as file:
            file.truncate(8 * self._end)
            file.seek(0, os.SEEK_END)
            file.write(words.astype("<u8").tobytes())
            file.flush()
            os.fsync(file.fileno())
        self._load()

    def count_repeats(self, values: Values) -> int:
        """Count the documents that were in releases. Time O(releases documents log)."""
        known = np.zeros(len(values), dtype=np.bool_)
        for found in self._releases.values():
            if len(found):
                places = np.minimum(np.searchsorted(found, values), len(found) - 1)
                known |= found[places] == values
        return int(known.sum())

    def check_new(self, values: Values, *, remedy: str, **where: Any) -> None:
        """Refuse documents of a run before its first payment, if too many were in releases."""
        repeated = self.count_repeats(values)
        require(
            REFUSED_OF * repeated < max(1, len(values)),
            "documents must not be in two releases, and a third or more of these were in one",
            repeated=repeated,
            documents=len(values),
            **where,
            remedy=remedy,
            error=LedgerError,
        )

    def find_most_charged(
        self, prices: Mapping[int, float], power: int
    ) -> tuple[int, int, dict[int, int]]:
        """Count all records, those of equal texts, and those of the costliest text by release.

        r records of a text cost r times the price of one, to a power that makes releases add up.
        """
        every = np.concatenate([*self._releases.values(), NO_VALUES])
        texts, counts = np.unique(every, return_counts=True)
        charged = np.zeros(len(texts))
        for number, values in self._releases.items():
            own, times = np.unique(values, return_counts=True)
            charged[np.searchsorted(texts, own)] += (prices[number] * times) ** power
        most = texts[charged.argmax()] if len(texts) else None
        found = {n: int(np.count_nonzero(each == most)) for n, each in self._releases.items()}
        return len(every), int(counts[counts > 1].sum()), found


def values_of_fingerprints(fingerprints: Iterable[bytes]) -> Values:
    """Return the values of documents; blank ones have none."""
    found = array("Q", (int.from_bytes(each[:8], "little") for each in fingerprints if each))
    return np.array(found, dtype=np.uint64)
