"""The records of files, met once before anything is paid for: how many there are, which are spent.

What was released of a file is known by its name, and confirmed by what it holds
(`streamlda.privacy.ledger.fingerprints`); where the file has grown, a run goes on behind it. Under
another name, in another order or altered, documents of a release are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from streamlda.checks import require
from streamlda.errors import LedgerError
from streamlda.privacy.ledger import (
    Container,
    FingerprintKey,
    KnownDocuments,
    Ledger,
    Provenance,
)
from streamlda.privacy.ledger.fingerprints import FIRST_MARK, is_mark, value_of
from streamlda.privacy.ledger.known import Whose
from streamlda.privacy.ledger.sketches import (
    LEAST_REPEATED,
    REPEATED,
    REPEATED_OF,
    Repeats,
    Sample,
    Sketch,
)
from streamlda.run.parts import (
    SKIPPED_RECORDS,
    open_stream,
    reading_of,
    real_name,
    spelled_source,
)
from streamlda.settings.rules import source_of
from streamlda.settings.table import RunSettings
from streamlda.stream.source import Position, Progress, RecordBatch, Source

#: Values of a file that those after it are compared with.
COMPARED = 32

#: What every refusal of documents ends with.
UNSPENT = "take documents that were in none; nothing was spent on these"


@dataclass(slots=True)
class Census:
    """What is in the files of a run: records that are in no release yet take its slots.

    `slots` are at most those that the run will read; `containers` say, of each file by its name,
    what the ledger calls it and how many of its records are spent.
    """

    slots: int = 0
    spent: int = 0
    containers: dict[str, Container] = field(default_factory=dict)

    def unspent(self, source: Source) -> Source:
        """Return a source of the same files that leaves out what is spent."""
        return UnspentSource(source, self.containers) if self.spent else source


def take_census(
    settings: RunSettings,
    key: FingerprintKey,
    known: KnownDocuments,
    *,
    fresh: bool = True,
    should_stop: Callable[[], bool] = lambda: False,
) -> Census | None:
    """Read the files of a run once, and return what is in them.

    None for other sources, and if it was stopped meanwhile. `known` are the documents of releases
    before the run, which begins now if it is `fresh`. Time some 7 microseconds a record.
    Memory O(files). Raises `LedgerError` where a file is there twice, or holds documents of a
    release that cannot be left out; `SourceError` if the files cannot be read.
    """
    if source_of(settings) != "files":
        return None
    most = settings.source.max_documents
    otherwise = known.read_otherwise(reading_of(settings)) if fresh else []
    reader = _Reader(key, known, otherwise)
    with closing(open_stream(settings)) as source:
        while not should_stop():
            batch = source.poll(SKIPPED_RECORDS)
            reader.add(batch)
            enough = most is not None and reader.read_enough(most)
            if batch.exhausted or enough:
                found = reader.finish()
                found.slots = found.slots if most is None else min(found.slots, most)
                return found
    return None


def provenance_of(settings: RunSettings, ledger: Ledger, census: Census | None) -> Provenance:
    """Return what notes the documents of releases of a run."""
    return Provenance(
        ledger.key,
        ledger.known,
        spelled_source(settings),
        reading=reading_of(settings),
        by_slots=source_of(settings) in ("stdin", "follow"),
        container_of=(lambda location: None) if census is None else census.containers.get,
    )


class _Reader:
    """Meets the records of files, one file after the other.

    What is left out follows from names of files and from numbers alone, which are public: content
    can only refuse a run. Slots that depended on what records say would show it.
    """

    def __init__(
        self, key: FingerprintKey, known: KnownDocuments, otherwise: Sequence[str]
    ) -> None:
        self._key, self._known, self._otherwise = key, known, otherwise
        self._census = Census()
        self._names = set[str]()
        # Marks of the files so far, and how many records these have.
        self._marks: dict[int, str] = {}
        self._lengths: dict[str, int] = {}
        # Of whole files: the fingerprint of each, and how many were equal to one before.
        self._ends: set[bytes] = set()
        self._again = 0
        # Records of small files that are known under another name.
        self._known_elsewhere = 0
        # Of the records that are in no release: of all, and the first values of each file.
        self._all, self._smallest = Sketch(), set[int]()
        self._enter(None)

    def _enter(self, location: str | None) -> None:
        self._location, self._records, self._link = location, 0, b""
        self._name = "" if location is None else real_name(location)
        #: How many of its first records, or which, were released under its name.
        self._reach = self._known.reach.get(self._name, 0)
        self._value = self._known.values.get(value_of(self._key.of_name(self._name)))
        #: What is spent, once content has confirmed it; and the longest known beginning.
        self._spent: Container | None = None
        self._met, self._met_at = "", 0
        self._twice = ("", 0)
        self._own: list[int] = []
        # Of what is behind the last record that is spent.
        self._sketch = Sketch()

    def add(self, batch: RecordBatch) -> None:
        """Take records."""
        key, find = self._key, self._known.find
        for (location, *_), text in zip(batch.locations, batch.texts, strict=True):
            if location != self._location:
                self._leave()
                self._enter(location)
            document = key.of_text(text)
            self._link = key.link(self._link, document)
            self._records += 1
            if document:
                self._sketch.add(value_of(document))
            value = value_of(self._link)
            origin = find(value)
            if origin is not None:
                self._met, self._met_at = origin, self._records
                if self._records == self._reach or value == self._value:
                    self._spent = Container(self._name, self._records, self._link)
                    self._sketch = Sketch()
            if is_mark(self._records):
                self._meet(value)

    def _meet(self, value: int) -> None:
        """Note a mark of this file, or that it was one of a file before."""
        other = self._marks.get(value)
        if other is None:
            self._own.append(value)
        else:
            self._twice = (other, self._records)

    def read_enough(self, most: int) -> bool:
        """Whether the slots of a run are known, and that none of them is spent."""
        here = self._records - (0 if self._spent is None else self._spent.spent)
        return self._census.slots + here >= most and self._records > self._known.longest

    def finish(self) -> Census:
        """Return what was met, behind the last record."""
        self._leave()
        self._check_repeats(Sample.of(self._all), lambda whose: False)
        alike, slots = self._known_elsewhere, self._census.slots
        require(
            alike < LEAST_REPEATED or REPEATED_OF * alike < slots,
            "documents must not be in two releases, and many of these files were in one under "
            "other names",
            records=alike,
            of=slots,
            remedy=UNSPENT,
            error=LedgerError,
        )
        again, files = self._again, len(self._ends) + self._again
        require(
            again < LEAST_REPEATED or REPEATED_OF * again < files,
            "the same documents must not be in two files of a run",
            files=files,
            equal_to_others=again,
            remedy="leave the copies out; nothing was spent",
            error=LedgerError,
        )
        return self._census

    def _check_repeats(self, sample: Sample, own: Callable[[Whose], bool]) -> None:
        found = self._known.repeats(sample, own, judge_own=True)
        require(
            found is None,
            REPEATED,
            **(found._asdict() if found else {}),
            remedy=UNSPENT,
            error=LedgerError,
        )

    def _leave(self) -> None:
        """Take what is to be known of a file that was read to its end."""
        location, records, name = self._location, self._records, self._name
        if location is None:
            return
        self._check_twice(location)
        self._again += self._link in self._ends
        self._ends.add(self._link)
        sample = Sample.of(self._sketch)
        if self._reach or self._value is not None:
            self._check_confirmed(location)
            self._check_repeats(sample, lambda whose: name in whose.origins)
        else:
            self._check_new(location)
            for value in self._sketch.values:
                self._all.add(value)
        spent = self._spent or Container(name)
        self._census.containers[location] = spent
        self._census.spent += spent.spent
        self._census.slots += records - spent.spent
        self._check_other_order(location, sample)

    def _check_confirmed(self, location: str) -> None:
        """Refuse a file that does not begin as what was released under its name."""
        if self._spent is None:
            self._check_otherwise(location)
        require(
            self._spent is not None,
            "a file must begin with the records that were released under its name",
            source=location,
            released=self._reach or "all",
            alike=self._met_at,
            remedy="bring them back, or give other documents a file of another name; nothing was "
            "spent on these",
            error=LedgerError,
        )

    def _check_new(self, location: str) -> None:
        """Refuse a file that begins as one of another name, or was read by other settings."""
        if self._met_at == self._records < FIRST_MARK:
            # Short texts are alike by chance: what many such files hold is judged at the end.
            self._known_elsewhere += self._records
        else:
            require(
                self._met_at < FIRST_MARK,
                "documents must not be in two releases, and the first of these were in one under "
                "another name",
                source=location,
                first_records=self._met_at,
                of=self._met,
                remedy="a file that grew goes on behind what was released under its first name; "
                "nothing was spent on these",
                error=LedgerError,
            )
        self._check_otherwise(location)

    def _check_other_order(self, location: str, sample: Sample) -> None:
        """Refuse a file with the documents of those before it, in whatever order."""
        if not sample.is_diverse:
            return
        drawn = sample.values[:COMPARED].tolist()
        found = Repeats(len(self._smallest.intersection(drawn)), len(drawn))
        require(
            not found.too_many,
            "the same documents must not be in two files of a run, in whatever order",
            source=location,
            **found._asdict(),
            remedy="leave one of the files out; nothing was spent",
            error=LedgerError,
        )
        self._smallest.update(drawn)

    def _check_otherwise(self, location: str) -> None:
        """Refuse a file that was read by other settings, so that its documents are not known."""
        spelled = next((each for each in self._otherwise if _covers(each, self._name)), None)
        require(
            spelled is None,
            "documents must not be in two releases, and there was one from this source, read by "
            "other settings of text or by an earlier version, so that it cannot be known again",
            source=location,
            released_from=spelled,
            remedy=f"{UNSPENT}; other documents must not be in that place",
            error=LedgerError,
        )

    def _check_twice(self, location: str) -> None:
        require(
            self._name not in self._names,
            "a file must be named once",
            source=location,
            file=self._name,
            remedy="leave its other names out; nothing was spent",
            error=LedgerError,
        )
        self._names.add(self._name)
        if self._records >= FIRST_MARK and not is_mark(self._records):
            self._meet(value_of(self._link))
        other, alike = self._twice
        require(
            2 * alike <= min(self._records, self._lengths.get(other, self._records)),
            "the same documents must not be in two files of a run",
            source=location,
            other=other,
            first_records=alike,
            remedy="leave one of the files out; nothing was spent",
            error=LedgerError,
        )
        self._marks |= dict.fromkeys(self._own, location)
        if self._own:
            self._lengths[location] = self._records


def _covers(spelled: str, name: str) -> bool:
    """Whether a file is one of those that a folder, a pattern or a list of names stands for."""
    return name == spelled or any(
        name.startswith(part.rstrip("/") + "/") or name == part or fnmatchcase(name, part)
        for part in spelled.split(" ")
    )


class UnspentSource:
    """A source of files that leaves out the first records of some, as if they were not there."""

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
        kept = [at.record > self._spent(at.location) for at in batch.locations]
        return batch if all(kept) else batch.of(kept)

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
