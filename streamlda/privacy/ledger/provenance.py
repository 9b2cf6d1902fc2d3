"""Documents of the running release of a private run: an accumulator, without files.

Records come with the container that they stand in and their number there (from 1). Kept of them
are ranges of each container, a value of what a file begins with, and a value of each document
(`streamlda.privacy.ledger.fingerprints`): all that the cohort of the release will say.
"""

from __future__ import annotations

import base64
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from hashlib import blake2b
from typing import Any

from streamlda.privacy.ledger.documents import Values, values_of_fingerprints
from streamlda.privacy.ledger.fingerprints import FingerprintKey, Fingerprints
from streamlda.privacy.ledger.terms import Cohort, DocumentRange

#: Containers of a release that are named one by one; of more, files are put together.
MOST_PARTS = 32


@dataclass(frozen=True, slots=True)
class Container:
    """A file by its name in a ledger, and how many of its first records are spent.

    `link` is the fingerprint of those (`FingerprintKey.link`). `records` are those that were met
    before the run; None if it was not read then.
    """

    origin: str
    spent: int = 0
    link: bytes = b""
    records: int | None = None


@dataclass(slots=True)
class Part:
    """Records of one container that a release takes: `start` to `stop`, not included.

    `link` is the fingerprint of all its records up to `stop`, in hexadecimal, once the part of a
    file has ended.
    """

    origin: str
    start: int
    stop: int
    link: str | None


class Provenance:
    """The documents of the running release, by the `key` of the ledger.

    Ranges are of containers or, `by_slots`, of the record slots of the run under the name of the
    source. `container_of` returns what is known of a file that was read before the run; other
    containers go by their names and offsets alone.
    """

    def __init__(
        self,
        key: FingerprintKey,
        source: str,
        *,
        by_slots: bool = False,
        container_of: Callable[[str], Container | None] = lambda location: None,
    ) -> None:
        self.key, self._source = key, source
        self.by_slots, self._container_of = by_slots, container_of
        #: What tells logs from all others, where their locations do not: containers that are read
        #: by turns, of each of which a release has one range.
        self.names: Mapping[str, str] = {}
        # Where reading stands: in which container, after which record, under which origin, and
        # the fingerprint of all records up to there (None but of files).
        self._location, self._record, self._origin = "", 0, ""
        self._link: bytes | None = None
        self.clear()

    def clear(self) -> None:
        """Begin another release where reading stands."""
        self._parts: list[Part] = []
        self._open: Part | None = None
        self._values = array("Q")

    def add_texts(
        self,
        locations: Sequence[tuple[str, int, *tuple[Any, ...]]],
        texts: Iterable[str | None],
        *,
        released: bool = False,
    ) -> None:
        """Take records, each with its text or None; `released` ones were in a release already."""
        self.add(locations, self.key.of_texts(texts), released=released)

    def add(
        self,
        locations: Sequence[tuple[str, int, *tuple[Any, ...]]],
        documents: Sequence[bytes],
        *,
        released: bool = False,
    ) -> None:
        """Take records by their fingerprints. Time some 2 us a record."""
        link = self.key.link
        for (location, record, *_), document in zip(locations, documents, strict=True):
            if record != self._record + 1 or location != self._location:
                self._enter(location, record)
            self._record = record
            if self._link is not None:
                self._link = link(self._link, document)
            if released:
                continue
            if self._open is None:
                self._open = Part(self._origin, record - 1, record, None)
                self._parts.append(self._open)
            self._open.stop = record
        if not released:
            self.add_values(values_of_fingerprints(documents))

    def add_values(self, values: Values) -> None:
        """Take the values of documents whose records are known by slots alone."""
        self._values.frombytes(values.tobytes())

    def _enter(self, location: str, record: int) -> None:
        self._leave()
        found = self._container_of(location)
        self._location, self._link = location, None
        if found is not None:
            self._origin = found.origin
            self._link = found.link if record == found.spent + 1 else None
            return
        self._origin = self.names.get(location, location)
        if location in self.names:
            self._open = self._part_at(record - 1)

    def _part_at(self, stop: int) -> Part | None:
        """Return the part of the container that is being read which ends at a record."""
        parts = reversed(self._parts)
        return next((p for p in parts if (p.origin, p.stop) == (self._origin, stop)), None)

    def _leave(self) -> None:
        """End the part that is being read."""
        part, self._open = self._open, None
        if part is not None and self._link is not None:
            part.link = self._link.hex()

    def cohort(self, first: int, last: int, generation: int, run: str | None = None) -> Cohort:
        """Return the cohort of a release of the slots from `first` to before `last` of a run."""
        self._leave()
        files = [part for part in self._parts if part.link is not None]
        marks = [self.key.mark(p.origin, p.stop, bytes.fromhex(p.link or "")) for p in files]
        together = len(self._parts) > MOST_PARTS
        ranges = [
            DocumentRange(part.origin, part.start, part.stop)
            for part in self._parts
            if part.link is None or not together
        ]
        if self.by_slots:
            ranges = [DocumentRange(self._source, first, last)]
        elif files and together:
            name = blake2b(repr(marks).encode(), digest_size=8).hexdigest()
            records = sum(part.stop - part.start for part in files)
            ranges.append(DocumentRange(f"{len(files)} files {name}", 0, records))
        begin = ranges[0]
        return Cohort(
            f"{begin.stream}:{begin.start}-{begin.stop}",
            tuple(ranges),
            generation,
            slots=(first, last),
            run=run,
            fingerprints=Fingerprints(self.key.name, tuple(marks), self._values.tobytes()),
        )

    # State.

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain JSON values, but for what is given when it is made."""
        return {
            "parts": [astuple(part) for part in self._parts],
            "open": self._open is not None,
            "documents": base64.b64encode(self._values.tobytes()).decode("ascii"),
            "at": [self._location, self._record, self._origin],
            "link": None if self._link is None else self._link.hex(),
        }

    def restore(self, values: Mapping[str, Any]) -> None:
        """Resume from what `to_json` described."""
        self.clear()
        self._parts = [Part(*part) for part in values["parts"]]
        self._values.frombytes(base64.b64decode(values["documents"]))
        self._location, self._record, self._origin = values["at"]
        self._link = None if values["link"] is None else bytes.fromhex(values["link"])
        self._open = self._part_at(self._record) if values["open"] else None
