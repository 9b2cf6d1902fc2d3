"""Files of one run that hold the same documents, found in bounded space while they are read.

Kept are values of documents up to a limit that falls as there are more of them. Of all files the
same share is drawn, so two files show what share of the smaller one both hold, in whatever order.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from streamlda.checks import require
from streamlda.errors import LedgerError
from streamlda.privacy.ledger.fingerprints import is_mark
from streamlda.privacy.ledger.sketches import (
    LEAST_DISTINCT,
    LEAST_REPEATED,
    REPEATED_OF,
    Repeats,
    Sample,
    Sketch,
)

#: Values of documents that are kept at most, and files that each is known to be in.
MOST_VALUES, MOST_HOLDERS = 1 << 16, 8

#: A small file is a copy if this share of what was drawn of it is in one other: short ones are
#: alike by chance.
COPIED = 0.75

_LARGEST = 2**64 - 1


class _File(NamedTuple):
    location: str
    records: int
    #: Of those that are not spent; of small ones few differ.
    documents: int
    small: bool
    diverse: bool
    #: Values that were drawn up to the limit.
    drawn: int
    limit: int


class Copies:
    """Compares each file of a run with those before it."""

    def __init__(self) -> None:
        self._limit = _LARGEST
        self._holders: dict[int, list[int]] = {}
        self._files: list[_File] = []
        # Small files that are copies, and documents in all files.
        self._copies, self._documents = dict[int, int](), 0
        # Marks of the files so far, and values of whole files, each with the first that has it.
        self._marks: dict[int, int] = {}
        # The first file with each number and sum of documents: others hold the same, in any order.
        self._sums: dict[tuple[int, int], int] = {}
        self._begin()

    def _begin(self) -> None:
        self._records, self._link = 0, 0
        self._values, self._sum = set[int](), 0
        # The file that begins as this one does, and up to which record.
        self._like, self._alike = -1, 0

    def add(self, link: int, document: int | None) -> None:
        """Take a record: the value of all up to it, and its own if it is not blank."""
        self._records, self._link = self._records + 1, link
        if document is not None:
            self._sum = (self._sum + document) & _LARGEST
            if document <= self._limit:
                self._values.add(document)
                while len(self._values) + len(self._holders) > MOST_VALUES:
                    self._lower()
        if is_mark(self._records):
            self._meet()

    def _lower(self) -> None:
        self._limit = limit = self._limit >> 1
        self._values = {value for value in self._values if value <= limit}
        kept = {value: held for value, held in self._holders.items() if value <= limit}
        self._holders = kept

    def _meet(self) -> None:
        here = len(self._files)
        other = self._marks.setdefault(self._link, here)
        if other != here:
            self._like, self._alike = other, self._records

    def clear(self) -> None:
        """Leave out the documents of the file so far: they are spent."""
        self._values.clear()
        self._sum = 0

    def end(self, location: str, sketch: Sketch) -> None:
        """End a file, of which `sketch` is of the documents that are not spent.

        Raises `LedgerError` if it holds those of a file before.
        """
        sample, documents = Sample.of(sketch), int(sketch.documents)
        here, drawn, limit = len(self._files), len(self._values), self._limit
        if self._records and not is_mark(self._records):
            self._meet()
        small, diverse = sample.distinct < LEAST_DISTINCT, sample.is_diverse
        file = _File(location, self._records, documents, small, diverse, drawn, limit)
        self._files.append(file)
        self._documents += documents
        if self._like >= 0:
            other = self._files[self._like]
            if 2 * self._alike > min(self._records, other.records):
                self._note(self._like, file, other, first_records=self._alike)
        other_number = self._sums.setdefault((documents, self._sum), here)
        if other_number != here:
            self._note(other_number, file, self._files[other_number], alike=documents)
        held = Counter(number for value in self._values for number in self._holders.get(value, ()))
        for number, common in held.items():
            other = self._files[number]
            found = Repeats(common, min(drawn, round(other.drawn * (limit / other.limit))))
            if small or other.small:
                if common >= COPIED * found.drawn:
                    self._note(number, file, other)
            elif found.too_many and diverse and other.diverse:
                self._note(number, file, other, **found._asdict())
        for value in self._values:
            holders = self._holders.setdefault(value, [])
            if len(holders) < MOST_HOLDERS:
                holders.append(here)
        self._begin()

    def _note(self, number: int, file: _File, other: _File, **found: int) -> None:
        """Note that a small file is a copy, for the end to judge; refuse others."""
        require(
            file.small or other.small,
            "the same documents must not be in two files of a run, in any order",
            source=file.location,
            other=other.location,
            **found,
            remedy="leave one of the files out; nothing was spent",
            error=LedgerError,
        )
        copy = number if other.documents < file.documents else len(self._files) - 1
        self._copies[copy] = min(file.documents, other.documents)

    def check(self) -> None:
        """Refuse many small files that are copies (`LedgerError`)."""
        again = sum(self._copies.values())
        require(
            again < LEAST_REPEATED or REPEATED_OF * again < self._documents,
            "the same documents must not be in two files of a run, and many of these files are "
            "like others",
            files=len(self._files),
            alike=len(self._copies),
            remedy="leave the copies out; nothing was spent",
            error=LedgerError,
        )
