"""The records of files, logs and streams that were in releases, by names and numbers."""

from __future__ import annotations

from typing import NamedTuple

from streamlda.privacy.ledger.fingerprints import FingerprintKey, Mark, value_of, values_of
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


class KnownRecords:
    """How far each file, log or stream was released, and what a file begins with.

    Memory: O(ranges) and 16 bytes for each of many files.
    """

    def __init__(self) -> None:
        #: Names of the keys that fingerprints were made with.
        self.keys: set[str] = set()
        #: How many of the first records of each origin were in releases, and of the longest of all
        #: containers at most.
        self.reach: dict[str, int] = {}
        self.longest = 0
        #: Opens what is sealed.
        self.key: FingerprintKey | None = None
        self._readings: set[str] = set()
        self._marks: set[Mark] = set()
        self._sealed: list[bytes] = []
        self._files: dict[int, int] = {}

    def add(self, cohort: Cohort) -> None:
        """Take the documents of a release."""
        for part in cohort.documents:
            self.reach[part.stream] = max(part.stop, self.reach.get(part.stream, 0))
            self.longest = max(part.stop, self.longest)
        found = cohort.fingerprints
        if found is not None:
            self._readings.add(found.reading)
            self.keys.add(found.key)
            self._marks.update(found.marks)
            self._sealed.append(found.files)

    @property
    def readings(self) -> set[Reading]:
        """The settings by which records became documents."""
        return {found for reading in self._readings if (found := Reading.of(reading)) is not None}

    def is_beginning(self, mark: Mark) -> bool:
        """Tell whether a release ended at a record of a file, with this value up to there."""
        assert self.key is not None
        return self.key.masked(mark) in self._marks

    def value_of_file(self, name: str) -> int | None:
        """Return the value of all records of a file that one release took whole among many."""
        assert self.key is not None
        for sealed in self._sealed:
            pairs = values_of(self.key.opened_files(sealed)).reshape(-1, 2)
            self._files.update(zip(pairs[:, 0].tolist(), pairs[:, 1].tolist(), strict=True))
        self._sealed.clear()
        return self._files.get(value_of(self.key.of_name(name)))


def fields_of(known: KnownRecords, reading: Reading | None) -> list[str]:
    """Return where texts may stand in lines of JSON that are read as plain text."""
    return sorted({each.text_field for each in (*known.readings, reading) if each is not None})
