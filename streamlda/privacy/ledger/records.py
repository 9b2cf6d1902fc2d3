"""Records that releases take, by names and numbers, which decide the charge of a release.

Records come with the container that they stand in and their number there (from 1). A release has a
range of each file, each log, or of the record slots of a run, and of each file a seal: the value of
all its records up to there, by which it is known again (`streamlda.privacy.ledger.fingerprints`).
"""

import base64
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, Self

import numpy as np

from streamlda.errors import LedgerError, require
from streamlda.privacy.ledger.documents import NO_VALUES, Values, values_of_fingerprints
from streamlda.privacy.ledger.fingerprints import FingerprintKey

#: Location, number of a record there, and more.
Location = tuple[str, int, *tuple[Any, ...]]


class DocumentRange(NamedTuple):
    """Records of a stream, file or log, from `start` up to but not including `stop`.

    A slot is a public number: every record counts, those rejected or too short as well. If only
    usable documents did, one document less would move all later ones across window boundaries,
    and parallel composition would not hold.
    """

    stream: str
    start: int
    stop: int
    seal: str = ""


@dataclass(frozen=True, slots=True)
class Cohort:
    """The documents that one release reads: the `slots` of a run, first and last + 1.

    `run` is the random name of the run. `values` of the documents are not part of its row.
    """

    documents: tuple[DocumentRange, ...]
    slots: tuple[int, int]
    run: str | None = None
    values: Values = field(default_factory=lambda: NO_VALUES, compare=False)

    def __post_init__(self) -> None:
        require(self.documents, "a release is charged to no records", slots=self.slots)

    def to_json(self) -> dict[str, Any]:
        """Return all but the values as plain JSON values."""
        documents = [list(part) for part in self.documents]
        return {"documents": documents, "slots": list(self.slots), "run": self.run}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the cohort that `to_json` described."""
        documents = tuple(DocumentRange(*part) for part in values["documents"])
        return cls(documents, tuple(values["slots"]), values["run"])


class ReleasedRecords:
    """Records that are in releases. Memory O(files and logs): ranges that follow are one."""

    def __init__(self, cohorts: Iterable[Cohort] = ()) -> None:
        self._parts: dict[str, list[range]] = {}
        self._seals: dict[str, dict[int, str]] = {}
        for cohort in cohorts:
            self.add(cohort)

    def add(self, cohort: Cohort) -> None:
        """Take the records of a release, of which none was in one before."""
        for stream, start, stop, seal in cohort.documents:
            parts = self._parts.setdefault(stream, [])
            begin = parts.pop().start if parts and parts[-1].stop == start else start
            parts.append(range(begin, stop))
            if seal:
                self._seals.setdefault(stream, {})[stop] = seal

    def touches(self, cohort: Cohort) -> bool:
        """Tell whether some record of the cohort was in a release before."""
        return any(
            part.start < stop and start < part.stop
            for stream, start, stop, _ in cohort.documents
            for part in self._parts.get(stream, ())
        )

    def reach(self, stream: str) -> int:
        """Return how many of the first records of a stream, file or log are spent."""
        return max((part.stop for part in self._parts.get(stream, ())), default=0)

    def seals(self, file: str) -> Mapping[int, str]:
        """Return the seals of a file by the numbers of its records at which releases end."""
        return self._seals.get(file, {})


class Container(NamedTuple):
    """A file by its name in a ledger, and how many of its first records are spent.

    `link` is their fingerprint (`FingerprintKey.link`); `records` were met before the run.
    """

    origin: str
    spent: int = 0
    link: bytes = b""
    records: int = 0


class Provenance:
    """The documents of the running release of a private run, by the `key` of the ledger.

    Ranges are of files and logs or, `by_slots`, of the record slots of the run under the name of
    the source. `files` are those that were read before the run, by location; other containers go
    by their names and offsets alone.
    """

    def __init__(
        self,
        key: FingerprintKey,
        source: str,
        *,
        by_slots: bool = False,
        files: Mapping[str, Container] | None = None,
    ) -> None:
        self.key, self.source, self.by_slots, self._files = key, source, by_slots, files or {}
        #: Names of logs by location, where locations alone do not tell logs apart.
        self.names: Mapping[str, str] = {}
        # Where reading stands in a file, and the fingerprint of all its records up to there.
        self._at, self._link = ("", 0), b""
        self.clear()

    def clear(self) -> None:
        """Begin another release where reading stands."""
        self._parts: dict[str, DocumentRange] = {}
        self._values = array("Q")

    def add_texts(
        self, locations: Sequence[Location], texts: Iterable[str | None], *, released: bool = False
    ) -> None:
        """Take records, each with its text or None; `released` ones were in a release already."""
        self.add(locations, [self.key.of_text(text) for text in texts], released=released)

    def add(
        self, locations: Sequence[Location], documents: Sequence[bytes], *, released: bool = False
    ) -> None:
        """Take records by their fingerprints. Time some 2 us a record."""
        begin = 0
        for location, run in groupby(() if self.by_slots else locations, key=itemgetter(0)):
            records = [record for _, record, *_ in run]
            self._add(location, records, documents[begin : begin + len(records)], released)
            begin += len(records)
        if not released:
            self._values.frombytes(values_of_fingerprints(documents).tobytes())

    def _add(
        self, location: str, records: Sequence[int], documents: Sequence[bytes], released: bool
    ) -> None:
        before, last, seal = records[0] - 1, records[-1], ""
        file = self._files.get(location)
        origin = self.names.get(location, location) if file is None else file.origin
        if file is not None:
            if self._at != (location, before):
                self._link = file.link
            for document in documents:
                self._link = self.key.link(self._link, document)
            self._at, seal = (location, last), self.key.seal(origin, self._link)
        if not released:
            part = self._parts.get(origin)
            start = before if part is None else part.start
            require(
                part is None or before >= part.stop,
                "records of a release do not come in their order",
                first=records[0],
                remedy="continue from a checkpoint",
                error=LedgerError,
            )
            self._parts[origin] = DocumentRange(origin, start, last, seal)

    def cohort(self, first: int, last: int, run: str | None = None) -> Cohort:
        """Return the cohort of a release of the slots from `first` to before `last` of a run."""
        parts = [DocumentRange(self.source, first, last)] if self.by_slots else self._parts.values()
        values = np.array(self._values, dtype=np.uint64)
        return Cohort(tuple(parts), (first, last), run, values)

    # State.

    def to_json(self) -> dict[str, Any]:
        """Return the records as plain JSON values, without the arguments of the constructor."""
        return {
            "parts": list(self._parts.values()),
            "documents": base64.b64encode(self._values.tobytes()).decode("ascii"),
            "at": self._at,
            "link": self._link.hex(),
        }

    def restore(self, values: Mapping[str, Any]) -> None:
        """Resume from the values of `to_json`."""
        self.clear()
        self._parts = {part[0]: DocumentRange(*part) for part in values["parts"]}
        self._values.frombytes(base64.b64decode(values["documents"]))
        location, record = values["at"]
        self._at, self._link = (location, record), bytes.fromhex(values["link"])
