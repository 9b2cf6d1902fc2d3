"""Which documents the running release of a private run has taken: an accumulator, without files.

Records come with the container that they stand in and their number there (from 1). Of them it
keeps, in bounded space, ranges of each container and what they are known by
(`streamlda.privacy.ledger.fingerprints`): what the cohort of the release will say.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from hashlib import blake2b
from typing import Any

from streamlda.checks import failure, require
from streamlda.errors import LedgerError
from streamlda.privacy.ledger.fingerprints import (
    FIRST_MARK,
    FingerprintKey,
    Fingerprints,
    Mark,
    is_mark,
    packed,
    text_of,
    value_of,
)
from streamlda.privacy.ledger.known import KnownDocuments, Reading, fields_of
from streamlda.privacy.ledger.sketches import Sketch
from streamlda.privacy.ledger.terms import Cohort, DocumentRange

#: Containers of a release that are kept one by one; of more, whole ones are put together.
MOST_PARTS = 32


@dataclass(frozen=True, slots=True)
class Container:
    """What a ledger calls a container, and how many of its first records are spent.

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

    `value` is that of all its records up to `stop`, once the part has ended.
    """

    origin: str
    start: int
    stop: int
    value: int | None


class Provenance:
    """The documents of the running release.

    `known` are those of releases before, by the `key` of the ledger. `source` and `reading` are as
    in `Fingerprints`. Ranges are of containers or, `by_slots`, of the record slots of the run under
    the name of the source. `container_of` says what is known of a container before its first record
    is read; one of which nothing is goes by its name. One that was read before the run must begin
    with values that were `met` there.
    """

    def __init__(
        self,
        key: FingerprintKey,
        known: KnownDocuments,
        source: str,
        *,
        reading: Reading | None = None,
        by_slots: bool = False,
        container_of: Callable[[str], Container | None] = lambda location: None,
        met: Collection[int] = (),
    ) -> None:
        self.key, self.known = key, known
        self._source, self._reading = source, "" if reading is None else str(reading)
        self.by_slots, self._container_of, self._beginnings = by_slots, container_of, met
        self._fields = fields_of(known, reading)
        #: What tells logs from all others, where their locations do not: containers that are read
        #: by turns, of each of which a release has one range.
        self.names: Mapping[str, str] = {}
        # Of each log that is not being read: after which record, and the fingerprint up to there.
        self._left: dict[str, tuple[int, bytes | None]] = {}
        # Where reading stands: in which container, after which record, under which origin, and
        # the fingerprint of all records up to there (None if the first ones were not seen).
        self._location, self._record, self._origin = "", 0, ""
        self._link: bytes | None = None
        # How many records the container had before the run, if known, and those that are spent.
        self._records: int | None = None
        self._spent = 0
        self.clear()

    def clear(self) -> None:
        """Begin another release where reading stands."""
        self._parts: list[Part] = []
        self._open: Part | None = None
        self._marks: list[Mark] = []
        self._files, self._n_files, self._records_of_files = b"", 0, 0
        self._sketch = Sketch()
        #: Where records were met that were in a release.
        self._met: tuple[str, int, str] | None = None

    def add_texts(
        self,
        locations: Sequence[tuple[str, int, *tuple[Any, ...]]],
        texts: Iterable[str | None],
        *,
        released: bool = False,
    ) -> None:
        """Take records, each with its text or None; `released` ones were in a release already."""
        fields = self._fields
        documents = self.key.of_texts(text_of(text, fields) for text in texts)
        self.add(locations, documents, released=released)

    def add(
        self,
        locations: Sequence[tuple[str, int, *tuple[Any, ...]]],
        documents: Iterable[bytes],
        *,
        released: bool = False,
    ) -> None:
        """Take records by their fingerprints. Time some 3 us a record."""
        link, find, sketch = self.key.link, self.known.find, self._sketch
        for (location, record, *_), document in zip(locations, documents, strict=True):
            if record != self._record + 1 or location != self._location:
                self._enter(location, record)
            self._record = record
            if not released:
                if self._open is None:
                    self._open = Part(self._origin, record - 1, record, None)
                    self._parts.append(self._open)
                self._open.stop = record
                if document:
                    sketch.add(value_of(document))
            if self._link is None:
                continue
            self._link = link(self._link, document)
            if self._records is not None:
                self._check_unchanged(location, record)
            if released or record < FIRST_MARK:
                continue
            value = value_of(self._link)
            if is_mark(record):
                self._marks.append(Mark(self._origin, record, value))
            # What is known under the name of the run's own slots, these tell.
            own = self._source if self.by_slots else None
            if self._records is None and (met := find(value)) not in (None, own):
                self._met = (location, record, met)

    @property
    def sketch(self) -> Sketch:
        """A sample of the documents of the running release."""
        return self._sketch

    def _enter(self, location: str, record: int) -> None:
        self._leave(rests=location != self._location)
        if len(self._parts) >= MOST_PARTS:
            self._put_together()
        found = self._container_of(location) or Container(self.names.get(location, location))
        self._location, self._origin = location, found.origin
        self._link = found.link if record == found.spent + 1 else None
        if self._left.get(found.origin, (0,))[0] == record - 1 > 0:
            self._link = self._left[found.origin][1]
            self._open = self._part_at(record - 1)
        self._records, self._spent = found.records, found.spent

    def _check_unchanged(self, location: str, record: int) -> None:
        """Refuse a file that is not what was met before the run, at marks and where it ended."""
        assert self._link is not None
        end = record == self._records
        require(
            not (end or is_mark(record - self._spent)) or value_of(self._link) in self._beginnings,
            "files must stay as they are while a private run reads them",
            source=location,
            first_records=record,
            remedy="what was released before is spent; begin again with files that nobody writes",
            error=LedgerError,
        )

    def _part_at(self, stop: int) -> Part | None:
        """Return the part of the container that is being read which ends at a record."""
        parts = reversed(self._parts)
        return next((p for p in parts if (p.origin, p.stop) == (self._origin, stop)), None)

    def _leave(self, *, rests: bool) -> None:
        """End the part that is being read, with the mark of its last record, unless it `rests`."""
        part, self._open = self._open, None
        if rests and self._location in self.names:
            self._left[self._origin] = self._record, self._link
            return
        if part is not None and self._link is not None:
            part.value = value_of(self._link)
            self._marks.append(Mark(part.origin, part.stop, part.value))

    def _put_together(self) -> None:
        """Keep no more of the parts so far than the value of each."""
        together = [part for part in self._parts if part.value is not None]
        origins = {part.origin for part in together}
        of_name = self.key.of_name
        self._files += b"".join(
            packed(value_of(of_name(part.origin))) + packed(part.value)
            for part in together
            if part.value is not None
        )
        self._n_files += len(together)
        self._records_of_files += sum(part.stop - part.start for part in together)
        self._parts = [part for part in self._parts if part.value is None]
        self._marks = [mark for mark in self._marks if mark.origin not in origins]

    def cohort(self, first: int, last: int, generation: int, run: str | None = None) -> Cohort:
        """Return the cohort of a release of the slots from `first` to before `last` of a run.

        Refuses records that were met in a release before (`LedgerError`).
        """
        if self._met is not None:
            location, records, origin = self._met
            raise failure(
                "documents must not be in two releases, and the first of these were in one, under "
                "this or another name",
                source=location,
                first_records=records,
                origin=origin,
                remedy="take documents that were in none; nothing was spent on these",
                error=LedgerError,
            )
        self._leave(rests=True)
        marks = self._marks + [
            Mark(part.origin, part.stop, value_of(link))
            for part in self._parts
            for record, link in [self._left.get(part.origin, (0, None))]
            if record == part.stop and link is not None
        ]
        if not self.by_slots:
            ranges = [DocumentRange(part.origin, part.start, part.stop) for part in self._parts]
            if self._files:
                name = blake2b(self._files, digest_size=8).hexdigest()
                whole = f"{self._n_files} files {name}"
                ranges.append(DocumentRange(whole, 0, self._records_of_files))
        else:
            ranges = [DocumentRange(self._source, first, last)]
            marks = [mark._replace(origin=self._source) for mark in marks]
        begin = ranges[0]
        return Cohort(
            f"{begin.stream}:{begin.start}-{begin.stop}",
            tuple(ranges),
            generation,
            slots=(first, last),
            run=run,
            fingerprints=Fingerprints(
                *(self.key.name, self._source, self._reading),
                *(tuple(map(self.key.masked, marks)), self.key.sealed_files(self._files)),
                self.key.sealed(self._sketch),
            ),
        )

    def is_of(self, cohort: Cohort) -> bool:
        """Tell whether the documents are those of a release: their ranges, and all that they say.

        Between marks the last one of each range tells, which depends on all records before.
        """
        found = self.cohort(*cohort.slots_of_run, cohort.generation, cohort.run)
        return self._opened(found) == self._opened(cohort)

    def _opened(self, cohort: Cohort) -> tuple[object, ...]:
        known = cohort.fingerprints
        if known is None:
            return (cohort.documents,)
        sketch, files = self.key.opened(known.sketch), self.key.opened_files(known.files)
        return cohort.documents, known.marks, files, sketch.values

    # State.

    def to_json(self) -> dict[str, Any]:
        """Return all of it as plain JSON values, but for what is given when it is made."""
        given = tuple(self._marks), self._files, self._sketch.values
        return {
            "parts": [astuple(part) for part in self._parts],
            "open": self._open is not None,
            "records_of_files": [self._n_files, self._records_of_files],
            "fingerprints": Fingerprints("", "", "", *given).to_json(),
            "documents": self._sketch.documents,
            "counts": self._sketch.counts,
            "met": self._met,
            "at": [self._location, self._record, self._origin],
            "link": _hex(self._link),
            "left": {origin: [n, _hex(link)] for origin, (n, link) in self._left.items()},
        }

    def restore(self, values: Mapping[str, Any]) -> None:
        """Go on from what `to_json` described."""
        found = Fingerprints.from_json(values["fingerprints"])
        self._parts = [Part(*part) for part in values["parts"]]
        self._n_files, self._records_of_files = values["records_of_files"]
        self._marks, self._files = list(found.marks), found.files
        self._sketch = Sketch.of(found.sketch, values["counts"])
        self._sketch.documents = values["documents"]
        self._met = None if values["met"] is None else tuple(values["met"])
        self._location, self._record, self._origin = values["at"]
        container = self._container_of(self._location) or Container(self._origin)
        self._records, self._spent = container.records, container.spent
        self._link = _of_hex(values["link"])
        self._open = self._part_at(self._record) if values["open"] else None
        left = values["left"].items()
        self._left = {origin: (n, _of_hex(link)) for origin, (n, link) in left}


def _hex(link: bytes | None) -> str | None:
    return None if link is None else link.hex()


def _of_hex(link: str | None) -> bytes | None:
    return None if link is None else bytes.fromhex(link)
