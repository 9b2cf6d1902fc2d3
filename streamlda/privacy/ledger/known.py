"""The documents that a ledger knows: which records of a container were in releases, by content."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from streamlda.privacy.ledger.fingerprints import FingerprintKey, Fingerprints, values_of
from streamlda.privacy.ledger.sketches import Repeats, Sample
from streamlda.privacy.ledger.terms import Cohort

#: The format "auto" since text in folders is a document a file; "auto" itself was lines.
FOLDERS = "auto-folders"


class Reading(NamedTuple):
    """The settings by which equal files give equal documents."""

    format: str
    text_field: str
    max_record: int
    delimiter: str | None = None

    @classmethod
    def of(cls, text: str) -> Reading | None:
        """Return what its text says; None of rows of a matrix, which are not read."""
        stored, _, rest = text.partition(" ")
        field, _, most = rest.rpartition(" ")
        stored, _, delimiter = stored.partition(":")
        return cls(stored, field, int(most), delimiter or None) if most.isdecimal() else None

    def __str__(self) -> str:
        stored = self.format if self.delimiter is None else f"{self.format}:{self.delimiter}"
        return f"{stored} {self.text_field} {self.max_record}"


class Whose(NamedTuple):
    """What a release is of: its run, and the origins of its documents."""

    run: str | None
    origins: frozenset[str]

    @classmethod
    def of(cls, cohort: Cohort) -> Whose:
        """Return that of a release."""
        return cls(cohort.run, frozenset(part.stream for part in cohort.documents))

    def among(self, other: Whose) -> bool:
        """Tell whether the ranges of both say which of the documents are the same."""
        return (self.run is not None and self.run == other.run) or self.origins <= other.origins


class KnownDocuments:
    """What is known of the documents of some releases, to be asked while records are read.

    Memory: 16 bytes for each of many files and 4 kB for each release, and once `find` was called
    some 250 for each mark and each of many files.
    """

    def __init__(self) -> None:
        #: Origins of releases without fingerprints.
        self.unmarked: set[str] = set()
        #: Names of the keys that fingerprints were made with.
        self.keys: set[str] = set()
        #: How many of the first records of each origin were in releases, and of the longest of all
        #: containers at most.
        self.reach: dict[str, int] = {}
        self.longest = 0
        self._readings: set[str] = set()
        self._met: dict[int, str] = {}
        self._values: dict[int, int] = {}
        self._to_index: list[Fingerprints] = []
        #: By run and origins.
        self._samples: dict[Whose, Sample] = {}
        self._to_open: list[tuple[Whose, tuple[int, ...]]] = []
        #: Opens sketches.
        self.key: FingerprintKey | None = None
        #: Runs whose documents were compared before the first was paid for.
        self.compared: set[str | None] = set()

    def add(self, cohort: Cohort) -> None:
        """Take the documents of a release."""
        origins = {part.stream for part in cohort.documents}
        found = cohort.fingerprints
        if found is None:
            self.unmarked |= origins
            return
        self._readings.add(found.reading)
        self.keys.add(found.key)
        self._to_open.append((Whose.of(cohort), found.sketch))
        for part in cohort.documents:
            self.reach[part.stream] = max(part.stop, self.reach.get(part.stream, 0))
            self.longest = max(part.stop, self.longest)
        self._to_index.append(replace(found, sketch=()))

    @property
    def readings(self) -> set[Reading]:
        """The settings by which records became documents."""
        return {found for reading in self._readings if (found := Reading.of(reading)) is not None}

    def find(self, value: int) -> str | None:
        """Return the origin of the first records of a container, if this is their value.

        "" for one of many files. None if they are not known.
        """
        if self._to_index:
            self._index()
        return self._met.get(value)

    @property
    def values(self) -> dict[int, int]:
        """Of many files that one release took, the value of each by that of its name."""
        self._index()
        return self._values

    def _index(self) -> None:
        for found in self._to_index:
            assert self.key is not None
            for mark in map(self.key.masked, found.marks):
                self._met.setdefault(mark.value, mark.origin)
            pairs = values_of(self.key.opened_files(found.files)).reshape(-1, 2).tolist()
            for name, value in pairs:
                self._met.setdefault(value, "")
                self._values[name] = value
        self._to_index.clear()

    def repeats(
        self, sample: Sample, own: Callable[[Whose], bool], *, judge_own: bool
    ) -> Repeats | None:
        """Return what is repeated of documents in releases, if too much. Time O(releases).

        Releases that are the documents' `own` are compared only if `judge_own`, and only where
        documents of both are nearly all different: their ranges hold different documents, however
        alike, and short texts come again and again in one stream.
        """
        self._open_sketches()
        anywhere = np.zeros(len(sample.values), dtype=np.bool_)
        for whose, known in self._samples.items():
            if own(whose):
                if not (judge_own and known.is_diverse and sample.is_diverse):
                    continue
            else:
                anywhere |= np.isin(sample.values, known.values, assume_unique=True)
            found = sample.repeats(known)
            if found.too_many:
                return found
        found = Repeats(int(anywhere.sum()), len(anywhere))
        return found if found.too_many else None

    def repeats_of(self, cohort: Cohort) -> Repeats | None:
        """Return what is repeated of a release to come in those of other runs and files."""
        found = cohort.fingerprints
        if found is None or cohort.run in self.compared:
            return None
        assert self.key is not None
        sample = Sample.of(self.key.opened(found.sketch))
        return self.repeats(sample, Whose.of(cohort).among, judge_own=False)

    def _open_sketches(self) -> None:
        """Put the samples of each run together, as they are asked for."""
        for whose, sealed in self._to_open:
            assert self.key is not None
            sample, before = Sample.of(self.key.opened(sealed)), self._samples.get(whose)
            self._samples[whose] = sample if before is None else before.with_(sample)
        self._to_open.clear()


def fields_of(known: KnownDocuments, reading: Reading | None) -> list[str]:
    """Return where texts may stand in lines of JSON that are read as plain text."""
    return sorted({each.text_field for each in (*known.readings, reading) if each is not None})
