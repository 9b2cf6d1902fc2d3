"""The documents that a ledger knows: which records of a container were in releases, by content."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.privacy.ledger.fingerprints import Fingerprints, values_of
from streamlda.privacy.ledger.terms import Cohort


class Met(NamedTuple):
    """Records that were met before: the release, and the origin there; "" for one of many files."""

    release: int
    origin: str


class KnownDocuments:
    """What is known of the documents of some releases, to be asked while records are read.

    Memory: 8 bytes for each of many files and 512 for each release, and once `find` was called
    some 150 for each mark and each of many files.
    """

    def __init__(self) -> None:
        #: Every origin of documents, and those of releases without fingerprints.
        self.origins: set[str] = set()
        self.unmarked: set[str] = set()
        #: Names of the keys that fingerprints were made with.
        self.keys: set[str] = set()
        self._met: dict[int, Met] = {}
        self._to_index: list[tuple[int, Fingerprints]] = []
        self._sketches: list[NDArray[np.uint64]] = [np.array([], dtype=np.uint64)]

    def add(self, release: int, cohort: Cohort) -> None:
        """Take the documents of a release."""
        origins = {part.stream for part in cohort.documents}
        self.origins |= origins
        found = cohort.fingerprints
        if found is None:
            self.unmarked |= origins
            return
        self.keys.add(found.key)
        self._sketches.append(np.array(found.sketch, dtype=np.uint64))
        self._to_index.append((release, replace(found, sketch=())))

    def find(self, value: int) -> Met | None:
        """Return where the first records of a container were met first, if this is their value."""
        for release, found in self._to_index:
            for mark in found.marks:
                self._met.setdefault(mark.value, Met(release, mark.origin))
            for each in values_of(found.files).tolist():
                self._met.setdefault(each, Met(release, ""))
        self._to_index.clear()
        return self._met.get(value)

    def repeated(self, sketch: Sequence[int]) -> int:
        """Return how many documents of a sketch are in those of releases. Time O(releases)."""
        if len(self._sketches) > 1:
            self._sketches = [np.unique(np.concatenate(self._sketches))]
        return int(np.isin(np.array(sketch, dtype=np.uint64), self._sketches[0]).sum())
