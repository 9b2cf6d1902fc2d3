"""The records of files, logs and streams that were in releases, by names and numbers."""

from __future__ import annotations

from collections.abc import Iterable

from streamlda.privacy.ledger.terms import Cohort


class KnownRecords:
    """How far each file, log or stream was released, and the values of files up to there.

    Memory: O(ranges and files).
    """

    def __init__(self, cohorts: Iterable[Cohort] = ()) -> None:
        #: Names of the keys that fingerprints were made with.
        self.keys: set[str] = set()
        #: How many of the first records of each stream were in releases.
        self.reach: dict[str, int] = {}
        self._marks: dict[int, dict[int, int]] = {}
        for cohort in cohorts:
            self.add(cohort)

    def add(self, cohort: Cohort) -> None:
        """Take the documents of a release."""
        for part in cohort.documents:
            self.reach[part.stream] = max(part.stop, self.reach.get(part.stream, 0))
        found = cohort.fingerprints
        if found is not None:
            self.keys.add(found.key)
            for name, records, value in found.marks:
                self._marks.setdefault(name, {})[records] = value

    def marks_of(self, name: int) -> dict[int, int]:
        """Return the numbers of records of a file at which releases end, and its values there."""
        return self._marks.get(name, {})
