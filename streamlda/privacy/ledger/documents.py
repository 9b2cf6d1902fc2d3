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

import os
import secrets
from array import array
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.container import sync_folder, whole_file
from streamlda.errors import LedgerError, require
from streamlda.privacy.ledger.file import translate_errors
from streamlda.privacy.ledger.fingerprints import FingerprintKey

#: A third of the documents of a run that were in releases refuse it, a tenth of a release warn.
REFUSED_OF, WARNED_OF = 3, 10

KEY_BYTES = 32

Values = NDArray[np.uint64]
NO_VALUES: Values = np.array([], dtype="<u8")


class ReleasedDocuments:
    """Values of the documents of releases, on disk; memory O(releases), and of one release."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._load()

    def _load(self) -> None:
        """Find the key of the values, None without a file, and the whole segments, by release."""
        words = self._words()
        self._segments, self._end = dict[int, slice](), KEY_BYTES // 8
        #: Sorted values of all releases, from when they are first asked; see `count_repeats`.
        self._runs: list[Values] | None = None
        secret = words[: self._end].tobytes()
        self.key = FingerprintKey(secret) if len(secret) == KEY_BYTES else None
        while self._end + 2 <= len(words):
            number, count = map(int, words[self._end : self._end + 2])
            if number <= self.newest or self._end + 2 + count > len(words):
                break
            self._take(number, count)

    def _words(self) -> Values:
        size = self.path.stat().st_size // 8 if self.path.exists() else 0
        return np.memmap(self.path, "<u8", mode="r", shape=(size,)) if size else NO_VALUES

    def _take(self, number: int, count: int) -> None:
        self._segments[number] = slice(self._end + 2, self._end + 2 + count)
        self._end += 2 + count

    @property
    def newest(self) -> int:
        """The number of the newest release, 0 before the first."""
        return next(reversed(self._segments), 0)

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
        values = np.sort(values)
        words = np.concatenate([np.array([number, len(values)], "<u8"), values])
        with self.path.open("r+b") as file:
            file.truncate(8 * self._end)
            file.seek(0, os.SEEK_END)
            file.write(words.astype("<u8").tobytes())
            file.flush()
            os.fsync(file.fileno())
        self._take(number, len(values))
        if self._runs is not None:
            self._runs.append(values)

    def count_repeats(self, values: Values) -> int:
        """Count the documents that were in releases. Time O(log^2) each; the first sorts all."""
        if self._runs is None:
            words = self._words()
            self._runs = [self._merge([words[part] for part in self._segments.values()])]
        # Lengths that fall by half or more: each value is merged O(log) times.
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            self._runs[-2:] = [self._merge(self._runs[-2:])]
        known = np.zeros(len(values), dtype=np.bool_)
        for run in self._runs:
            if len(run):
                known |= run[np.minimum(np.searchsorted(run, values), len(run) - 1)] == values
        return int(known.sum())

    def _merge(self, parts: Sequence[Values]) -> Values:
        """Return sorted values as one run, in a file without a name beside the documents.

        Its pages need no memory. It is written before it is mapped: a full disk is an error then,
        and does not kill the process.
        """
        if not any(map(len, parts)):
            return NO_VALUES
        with translate_errors(self.path), TemporaryFile(dir=self.path.parent) as file:
            for part in parts:
                file.write(part.data)
            file.flush()
            found = np.memmap(file, "<u8", mode="r+")
        found.sort(kind="stable")
        return found

    def check_new(self, values: Values, *, remedy: str, **where: Any) -> None:
        """Refuse documents of a run before its first payment, if too many were in releases."""
        repeated = self.count_repeats(values)
        require(
            REFUSED_OF * repeated < max(1, len(values)),
            "documents would be in two releases: a third or more of them were in one",
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
        words = self._words()
        releases = {number: words[part] for number, part in self._segments.items()}
        every = np.concatenate([*releases.values(), NO_VALUES])
        texts, counts = np.unique(every, return_counts=True)
        charged = np.zeros(len(texts))
        for number, values in releases.items():
            own, times = np.unique(values, return_counts=True)
            charged[np.searchsorted(texts, own)] += (prices[number] * times) ** power
        most = texts[charged.argmax()] if len(texts) else None
        found = {n: int(np.count_nonzero(each == most)) for n, each in releases.items()}
        return len(every), int(counts[counts > 1].sum()), found


def values_of_fingerprints(fingerprints: Iterable[bytes]) -> Values:
    """Return the values of documents; blank ones have none."""
    found = array("Q", (int.from_bytes(each[:8], "little") for each in fingerprints if each))
    return np.array(found, dtype=np.uint64)
