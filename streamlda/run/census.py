"""The records of files, met once before anything is paid for: how many there are, which are spent.

Files are known by what they hold (`streamlda.privacy.ledger.fingerprints`), whatever they are
called: where the first records of one were in releases, a run goes on behind them. What it goes on
with depends on records that were released before, and on nothing else that they say.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from streamlda.checks import failure, require
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

#: A file whose first records are those of a release, so many of them, is that of the release, also
#: where it goes on otherwise than that one.
LEAST_ALTERED = 64

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
    """Meets the records of files, one file after the other."""

    def __init__(
        self, key: FingerprintKey, known: KnownDocuments, otherwise: Sequence[str]
    ) -> None:
        self._key, self._known, self._otherwise = key, known, otherwise
        self._census = Census()
        self._taken, self._used = set(known.origins), set[str]()
        # Marks of the files so far, and how many records these have.
        self._marks: dict[int, str] = {}
        self._lengths: dict[str, int] = {}
        # Of whole files: the fingerprint of each, and how many were equal to one before.
        self._ends: set[bytes] = set()
        self._again = 0
        # Of the records that are in no release: of all, and the first values of each file.
        self._all, self._smallest = Sketch(), set[int]()
        self._enter(None)

    def _enter(self, location: str | None) -> None:
        self._location, self._records, self._link = location, 0, b""
        self._found, self._twice = Container(""), ("", 0)
        self._own: list[int] = []
        # Of what is behind the last record that was found in a release.
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
                self._found = Container(origin, self._records, self._link)
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
        here = self._records - self._found.spent
        return self._census.slots + here >= most and self._records > self._known.longest

    def finish(self) -> Census:
        """Return what was met, behind the last record."""
        self._leave()
        self._check_repeats(Sample.of(self._all), lambda whose: False)
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
        location, records, found, census = (
            self._location,
            self._records,
            self._found,
            self._census,
        )
        if location is None:
            return
        self._check_twice(location)
        self._again += self._link in self._ends
        self._ends.add(self._link)
        whole = found.spent >= self._known.reach.get(found.origin, 0) or not found.origin
        if not whole and (2 * found.spent > records or found.spent >= LEAST_ALTERED):
            raise failure(
                "documents must not be in two releases, and this file is a part of one that was in "
                "a release, or that one altered",
                source=location,
                records=records,
                first_records_of=found.origin,
                at_least=found.spent,
                remedy=UNSPENT,
                error=LedgerError,
            )
        if not found.spent:
            self._check_otherwise(location)
        # Of two files that went different ways behind what is spent, one keeps the name.
        known = whole and found.origin != "" and found.origin not in self._used
        origin = found.origin if known else self._name(location)
        self._used.add(origin)
        if found.spent or origin != location:
            census.containers[location] = Container(origin, found.spent, found.link)
        census.spent += found.spent
        census.slots += records - found.spent
        sample = Sample.of(self._sketch)
        if known:
            # What follows the records of a release in their own file is none of them by number.
            self._check_repeats(sample, lambda whose: origin in whose.origins)
        for value in () if known else self._sketch.values:
            self._all.add(value)
        self._check_other_order(location, sample)

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
        name = real_name(location)
        spelled = next((each for each in self._otherwise if _covers(each, name)), None)
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

    def _name(self, location: str) -> str:
        """Return what the ledger is to call a file whose documents it does not know."""
        name = given = real_name(location)
        number = 1
        while name in self._taken:
            number += 1
            name = f"{given} ({number})"
        self._taken.add(name)
        return name


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
