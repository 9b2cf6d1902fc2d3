"""The records of files, met once before anything is paid for: how many there are, which are spent.

What was released of a file is known by its name, and confirmed by what it holds
(`streamlda.privacy.ledger.fingerprints`); where the file has grown, a run goes on after it. Under
another name, in another order or altered, documents of a release are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase

from streamlda.checks import require
from streamlda.errors import InvalidSettingError, LedgerError, SourceError
from streamlda.privacy.ledger import (
    Container,
    FingerprintKey,
    KnownDocuments,
    Ledger,
    Provenance,
)
from streamlda.privacy.ledger.fingerprints import FIRST_MARK, is_mark, text_of, value_of
from streamlda.privacy.ledger.known import Reading, Whose, fields_of
from streamlda.privacy.ledger.sketches import (
    LEAST_REPEATED,
    REPEATED,
    REPEATED_OF,
    Sample,
    Sketch,
)
from streamlda.run.copies import Copies
from streamlda.run.parts import (
    SKIPPED_RECORDS,
    get_reading,
    open_stream,
    resolve_name,
    spell_source,
)
from streamlda.settings.rules import get_source_kind
from streamlda.settings.run_settings import RunSettings
from streamlda.stream.counts import check_has_document
from streamlda.stream.source import Position, Progress, RecordBatch, Source

#: What every refusal of documents ends with.
UNSPENT = "take documents that were in none; nothing was spent on these"


@dataclass(slots=True)
class Census:
    """Contents of the files of a run: records that are in no release yet take its slots.

    `slots` are at most those that the run will read; `has_document` says whether any record of it
    is one; `containers` say, of each file by its name, what the ledger calls it, how many records
    it has, and how many of these are spent. `beginnings` has values of what files begin with after
    that: at marks, and of them all.
    """

    slots: int = 0
    spent: int = 0
    has_document: bool = False
    containers: dict[str, Container] = field(default_factory=dict)
    beginnings: set[int] = field(default_factory=set)

    def check_has_document(self) -> None:
        """Refuse files of which no record slot has a document (`InsufficientDataError`)."""
        check_has_document(self.has_document, self.slots)

    def unspent(self, source: Source) -> Source:
        """Return a source of the same files that leaves out what is spent, or was not met."""
        return UnspentSource(source, self.containers)


def take_census(
    settings: RunSettings,
    key: FingerprintKey,
    known: KnownDocuments,
    is_document: Callable[[str], bool],
    *,
    by_now: KnownDocuments | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Census | None:
    """Read the files of a run once, and return what is in them.

    None for other sources, and if it was stopped meanwhile. `known` are the documents of releases
    before the run, and `by_now` those of its own besides, if it is gone on with. Where some of
    these were read by other settings, files are read by them, too. `is_document` is asked of texts
    until one is. Time some 7 microseconds a record. Memory O(files). Raises `LedgerError` where a
    file is there twice, or holds documents of a release that cannot be left out; `SourceError` if
    the files cannot be read.
    """
    if get_source_kind(settings) != "files":
        return None
    reading, tried = get_reading(settings), set[str]()
    confirmed = dict[str, int]()
    lengths = dict[str, int]()
    for other in sorted(known.readings - {reading}):
        for each in {other, other._replace(format=reading.format)} - {reading}:
            reader = _Reader(key, known, each, is_document, confirmed, lengths=lengths)
            try:
                if not _read(_read_by(settings, each), reader, should_stop):
                    return None
            except (SourceError, InvalidSettingError):
                # Nothing was ever read from these files in that way.
                continue
            tried.add(str(other))
            confirmed = reader.confirmed
    otherwise = known.read_otherwise({str(reading), *tried})
    main = _Reader(
        *(key, known, reading, is_document, confirmed, otherwise, Copies(), by_now, lengths)
    )
    return main.census if _read(settings, main, should_stop) else None


def _read_by(settings: RunSettings, reading: Reading) -> RunSettings:
    return replace(settings, source=replace(settings.source, **reading.options()))


def _read(settings: RunSettings, reader: _Reader, should_stop: Callable[[], bool]) -> bool:
    """Give a reader the records of a run, unless it is stopped."""
    most = settings.source.max_documents
    with closing(open_stream(settings)) as source:
        while not should_stop():
            batch = source.poll(SKIPPED_RECORDS)
            reader.add(batch)
            if batch.exhausted or (most is not None and reader.read_enough(most)):
                reader.finish(batch.exhausted)
                slots = reader.census.slots
                reader.census.slots = slots if most is None else min(slots, most)
                return True
    return False


def make_provenance(settings: RunSettings, ledger: Ledger, census: Census | None) -> Provenance:
    """Return what notes the documents of releases of a run."""
    return Provenance(
        ledger.key,
        ledger.known,
        spell_source(settings),
        reading=get_reading(settings),
        by_slots=get_source_kind(settings) in ("stdin", "follow"),
        container_of=(lambda location: None) if census is None else census.containers.get,
        met=() if census is None else census.beginnings,
    )


class _Reader:
    """Meets the records of files, one file after the other.

    What is left out follows from names of files and from numbers alone, which are public: content
    can only refuse a run. Slots that depended on what records say would show it. `confirmed` says
    of files how many records were released under their names, as read by other settings;
    `otherwise` are sources that could not be read by theirs. Without `copies` records are read by
    other settings than those of the run: then only what was in releases is refused. Releases of the
    run itself, which `by_now` holds, are no others to it: but its files must begin with them.
    """

    def __init__(
        self,
        key: FingerprintKey,
        known: KnownDocuments,
        reading: Reading,
        is_document: Callable[[str], bool],
        confirmed: Mapping[str, int],
        otherwise: Sequence[str] = (),
        copies: Copies | None = None,
        by_now: KnownDocuments | None = None,
        lengths: dict[str, int] | None = None,
    ) -> None:
        self._key, self._known, self._otherwise = key, known, otherwise
        self._is_document = is_document
        #: Of each file that was confirmed by other settings, how many records these made of it.
        self._lengths: dict[str, int] = {} if lengths is None else lengths
        self._by_now = by_now
        self._before, self._copies = confirmed, copies
        self._fields = fields_of(known, reading)
        self.census = Census()
        #: Of each file by its name, how many of its records were released under it.
        self.confirmed = dict(confirmed)
        self._names = set[str]()
        # Records of small files that are known under another name.
        self._known_elsewhere = 0
        # Of the records that are in no release.
        self._all = Sketch()
        self._enter(None)

    def _enter(self, location: str | None) -> None:
        self._location, self._records, self._link = location, 0, b""
        self._name = "" if location is None else resolve_name(location)
        #: How many of its first records, or which, were released under its name.
        self._reach = self._known.reach.get(self._name, 0)
        self._value = self._known.values.get(value_of(self._key.of_name(self._name)))
        self._released = self._before.get(self._name, 0)
        #: Where releases of the run itself end in it, and whether it holds them.
        now = self._by_now
        self._goes_on_at = 0 if now is None else now.reach.get(self._name, 0)
        self._goes_on = self._goes_on_at <= self._reach
        #: What is spent, once content has confirmed it; and the longest known beginning.
        self._spent: Container | None = None
        self._behind = 0
        self._met, self._met_at = "", 0
        self._documents = 0
        # Of what is after the last record that is spent.
        self._sketch, self._has_document = Sketch(), False

    def add(self, batch: RecordBatch) -> None:
        """Take records."""
        key, find, fields, copies = self._key, self._known.find, self._fields, self._copies
        documents = key.of_texts(text_of(text, fields) for text in batch.texts)
        records = zip(batch.locations, batch.texts, documents, strict=True)
        for (location, *_), text, document in records:
            if location != self._location:
                self._leave()
                self._enter(location)
            self._link = key.link(self._link, document)
            self._records += 1
            value = value_of(self._link)
            known = value_of(document) if document else None
            if known is not None:
                self._documents += 1
                self._sketch.add(known)
                if not (self._has_document or self.census.has_document):
                    self._has_document = self._is_document(text or "")
            if copies is not None:
                copies.add(value, known)
            origin = find(value)
            if origin is not None:
                if self._documents:
                    self._met, self._met_at = origin, self._records
                if self._records == self._reach or value == self._value:
                    self._spend()
            if self._records == self._goes_on_at and self._by_now is not None:
                self._goes_on = self._goes_on or self._by_now.find(value) is not None
            if self._records == self._released:
                self._spend()
            elif is_mark(self._records - self._behind):
                self.census.beginnings.add(value)

    def _spend(self) -> None:
        """Leave out all records of the file so far."""
        self._spent = Container(self._name, self._records, self._link)
        self._behind, self._sketch, self._has_document = self._records, Sketch(), False
        if self._copies is not None:
            self._copies.clear()

    def read_enough(self, most: int) -> bool:
        """Tell whether the slots of a run are known, and none of them is spent."""
        here = self._records - self._behind
        return self.census.slots + here >= most and self._records > self._known.longest

    def finish(self, exhausted: bool = True) -> None:
        """End the last file, and judge them together."""
        self._leave(exhausted)
        sample = Sample.of(self._all)
        if not self._judges(sample):
            return
        self._check_repeats(sample, lambda whose: False)
        alike, slots = self._known_elsewhere, self.census.slots
        require(
            alike < LEAST_REPEATED or REPEATED_OF * alike < slots,
            "documents must not be in two releases, and many of these files were in one under "
            "other names",
            records=alike,
            of=slots,
            remedy=UNSPENT,
            error=LedgerError,
        )
        if self._copies is not None:
            self._copies.check()

    def _judges(self, sample: Sample) -> bool:
        """Tell whether documents differ enough to judge by; those of an earlier field may not."""
        return self._copies is not None or sample.is_diverse

    def _check_repeats(self, sample: Sample, own: Callable[[Whose], bool]) -> None:
        found = self._known.repeats(sample, own, judge_own=True)
        require(
            found is None,
            REPEATED,
            **(found._asdict() if found else {}),
            remedy=UNSPENT,
            error=LedgerError,
        )

    def _leave(self, whole: bool = True) -> None:
        """Take what is to be known of a file that was read, to its end if `whole`."""
        location, records, name = self._location, self._records, self._name
        if location is None:
            return
        if self._copies is not None:
            self._check_named_once(location)
            self._check_same_records(location, whole)
        sample = Sample.of(self._sketch)
        if self._copies is not None:
            self._check_confirmed(location)
        if self._reach or self._value is not None or self._spent is not None:
            if self._judges(sample):
                self._check_repeats(sample, lambda whose: name in whose.origins)
        else:
            if self._judges(sample):
                self._check_new(location)
            for value in self._sketch.values:
                self._all.add(value)
        spent = self._spent or Container(name)
        self.census.containers[location] = replace(spent, records=records)
        self.census.beginnings.add(value_of(self._link))
        self.census.spent += spent.spent
        self.census.slots += records - spent.spent
        self.census.has_document |= self._has_document
        if spent.spent:
            self.confirmed[name] = max(spent.spent, self.confirmed.get(name, 0))
            if self._copies is None:
                self._lengths[name] = min(records, self._lengths.get(name, records))
        if self._copies is not None:
            self._copies.end(location, self._sketch)

    def _check_confirmed(self, location: str) -> None:
        """Refuse a file that does not begin as what was released under its name."""
        known = bool(self._reach or self._value is not None or self._released)
        if known and self._spent is None:
            self._check_otherwise(location)
        require(
            self._goes_on and not (known and self._spent is None),
            "a file must begin with the records that were released under its name",
            source=location,
            released=max(self._reach, self._goes_on_at) or "all",
            alike=self._met_at,
            remedy="bring them back, or give other documents a file of another name; nothing was "
            "spent on these",
            error=LedgerError,
        )

    def _check_new(self, location: str) -> None:
        """Refuse a file that begins as one of another name, or was read by other settings."""
        alike, records = self._met_at, self._records
        if alike == records < FIRST_MARK:
            # Short texts are alike by chance: what many such files hold is judged at the end.
            self._known_elsewhere += records
        else:
            # Files of one kind may begin with the same lines.
            known = self._known.reach.get(self._met, 0)
            require(
                alike < FIRST_MARK or REPEATED_OF * alike < min(known, records),
                "documents must not be in two releases, and the first of these were in one under "
                "another name",
                source=location,
                first_records=alike,
                of=self._met,
                remedy="a file that grew continues after its released part only under its first "
                "name; nothing was spent on these",
                error=LedgerError,
            )
        self._check_otherwise(location)

    def _check_otherwise(self, location: str) -> None:
        """Refuse a file that cannot be read as it was released, so that it is not known again."""
        spelled = next((each for each in self._otherwise if _covers(each, self._name)), None)
        require(
            spelled is None,
            "documents must not be in two releases, and there was one from this source, read by "
            "other settings of text, so that its documents cannot be recognised",
            source=location,
            released_from=spelled,
            remedy=f"{UNSPENT}; other documents must not be in that place",
            error=LedgerError,
        )

    def _check_same_records(self, location: str, whole: bool) -> None:
        """Refuse a file whose records are others than those of its releases: lines, or all of it.

        What is spent is a number of records, which would be of something else.
        """
        length = self._lengths.get(self._name)
        require(
            length is None or (self._records <= length and not (whole and self._records < length)),
            "a file of a release must be read as the same records",
            source=location,
            remedy="set source.format to what it was, or take other documents; nothing was spent",
            error=LedgerError,
        )

    def _check_named_once(self, location: str) -> None:
        require(
            self._name not in self._names,
            "a file must be named once",
            source=location,
            file=self._name,
            remedy="leave its other names out; nothing was spent",
            error=LedgerError,
        )
        self._names.add(self._name)


def _covers(spelled: str, name: str) -> bool:
    """Tell whether a file is in a folder, or matches a pattern or a list of names."""
    return name == spelled or any(
        name.startswith(part.rstrip("/") + "/") or name == part or fnmatchcase(name, part)
        for part in spelled.split(" ")
    )


class UnspentSource:
    """A source of files that leaves out the first records of some, as if they were not there.

    And those that were not met before the run: what was written since is for the next one.
    """

    def __init__(self, source: Source, containers: Mapping[str, Container]) -> None:
        self._source, self._containers = source, containers
        #: Records of the file that is being read that are still to be left out.
        self._left = 0

    def poll(self, max_records: int, timeout_seconds: float = 1.0) -> RecordBatch:
        """See `Source`; a poll may bring nothing where much is left out."""
        batch = self._source.poll(min(self._left, SKIPPED_RECORDS) or max_records, timeout_seconds)
        if not batch.n_records:
            return batch
        location, record, *_ = batch.locations[-1]
        self._left = max(0, self._spent(location) - record)
        kept = [self._is_left(at.location, at.record) for at in batch.locations]
        return batch if all(kept) else batch.select(kept)

    def _is_left(self, location: str, record: int) -> bool:
        found = self._containers.get(location)
        return found is not None and found.spent < record <= (found.records or 0)

    def _spent(self, location: str) -> int:
        found = self._containers.get(location)
        return 0 if found is None else found.spent

    def position(self) -> Position:
        """See `Source`."""
        return self._source.position()

    def seek(self, position: Position) -> None:
        """See `Source`."""
        self._left = 0
        self._source.seek(position)

    def progress(self) -> Progress:
        """See `Source`."""
        return self._source.progress()

    def close(self) -> None:
        """See `Source`."""
        self._source.close()
