"""Count the records of files before anything is paid for: those that are spent, and those left.

Names and offsets decide, which are public: a file continues after the records that were released
under its name, and must still begin with them. Content can only refuse a run before its first
payment: slots that depended on what records say would show it. So files under new names are refused
where a third or more of their documents were in releases (`streamlda.privacy.ledger.documents`).
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace

import numpy as np

from streamlda.checks import Faults
from streamlda.errors import LedgerError
from streamlda.privacy.ledger import (
    Container,
    FingerprintKey,
    KnownRecords,
    Ledger,
    Provenance,
)
from streamlda.privacy.ledger.documents import REFUSED_OF
from streamlda.run.parts import (
    SKIPPED_RECORDS,
    open_stream,
    resolve_name,
    spell_source,
)
from streamlda.settings.rules import get_source_kind
from streamlda.settings.run_settings import RunSettings
from streamlda.stream.counts import check_has_document
from streamlda.stream.source import Position, Progress, RecordBatch, Source

#: Most records of one text, on average, where all texts of a file count as different ones.
MOST_ALIKE = 1.1

#: Equal files of fewer records are no copies.
LEAST_COPIED = 16

#: End of every refusal of documents.
UNSPENT = "take documents that were in none; nothing was spent on these"

FAULTS = Faults(
    {
        LedgerError: {
            "named twice": "a file must be named once; leave its other names out; nothing was "
            "spent",
            "changed": "a file must begin with the records that were released under its name; "
            "bring them back, read by the settings of then (source.format, source.text_field), or "
            "give other documents a file of another name; nothing was spent on these",
            "copies": "the same documents must not be in two files of a run; leave the copies out; "
            "nothing was spent",
        }
    }
)


@dataclass(slots=True)
class Census:
    """Contents of the files of a run: records that are in no release yet take its slots."""

    slots: int = 0
    spent: int = 0
    has_document: bool = False
    containers: dict[str, Container] = field(default_factory=dict)
    documents: array[int] = field(default_factory=lambda: array("Q"))
    appended: array[int] = field(default_factory=lambda: array("Q"))

    def check_has_document(self) -> None:
        """Refuse files of which no record slot has a document (`InsufficientDataError`)."""
        check_has_document(self.has_document, self.slots)

    def check_new(self, ledger: Ledger) -> None:
        """Refuse files with too many documents of releases; texts may repeat in one file."""
        for found, alike in ((self.documents, len(self.documents)), (self.appended, MOST_ALIKE)):
            values = np.array(found[: self.slots], dtype=np.uint64)
            if len(values) <= alike * len(np.unique(values)):
                ledger.documents.check_new(values, remedy=UNSPENT)

    def unspent(self, source: Source) -> Source:
        """Return a source of the same files without what is spent, or was not met."""
        return UnspentSource(source, self.containers)


def take_census(
    settings: RunSettings,
    key: FingerprintKey,
    known: KnownRecords,
    is_document: Callable[[str], bool],
    *,
    by_now: KnownRecords | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> Census | None:
    """Read the files of a run once; None for other sources, and if it was stopped meanwhile.

    `known` are the documents of releases before the run, and `by_now` those of its own besides, if
    it resumes. `is_document` is asked of texts until one is. Memory O(files), and 8 bytes a record.
    """
    if get_source_kind(settings) != "files":
        return None
    reader = _Reader(key, known, is_document, by_now)
    most = settings.source.max_documents
    with closing(open_stream(settings)) as source:
        while not should_stop():
            batch = source.poll(SKIPPED_RECORDS)
            reader.add(batch)
            if batch.exhausted or (most is not None and reader.has_read(most)):
                census = reader.finish()
                census.slots = census.slots if most is None else min(census.slots, most)
                return census
    return None


def make_provenance(settings: RunSettings, ledger: Ledger, census: Census | None) -> Provenance:
    """Return what notes the documents of releases of a run."""
    return Provenance(
        ledger.key,
        spell_source(settings),
        by_slots=get_source_kind(settings) in ("stdin", "follow"),
        container_of=(lambda location: None) if census is None else census.containers.get,
    )


class _Reader:
    """Meets the records of files, one file after the other."""

    def __init__(
        self,
        key: FingerprintKey,
        known: KnownRecords,
        is_document: Callable[[str], bool],
        by_now: KnownRecords | None,
    ) -> None:
        self._key, self._known = key, known
        self._is_document, self._by_now = is_document, by_now
        self._census = Census()
        self._names = set[str]()
        # Fingerprints of whole files, and records of files that repeat one.
        self._whole, self._copied, self._all = set[bytes](), 0, 0
        self._enter(None)

    def _enter(self, location: str | None) -> None:
        self._location, self._records, self._link = location, 0, b""
        self._name = "" if location is None else resolve_name(location)
        #: Where releases under its name end in it, by their marks; those of the run itself too.
        name, now = self._key.value_of_name(self._name), self._by_now
        self._marks = self._known.marks_of(name)
        self._own_marks = {} if now is None else now.marks_of(name)
        self._reach, self._resumes_at = max(self._marks, default=0), max(self._own_marks, default=0)
        #: Whether it holds what the run itself released.
        self._resumes = self._resumes_at <= self._reach
        #: First records that content has shown to be spent.
        self._spent: Container | None = None
        # Of what is after the last record that is spent.
        self._documents, self._has_document = array("Q"), False

    @property
    def _n_spent(self) -> int:
        return 0 if self._spent is None else self._spent.spent

    def add(self, batch: RecordBatch) -> None:
        """Take records."""
        key = self._key
        documents = key.of_texts(batch.texts)
        records = zip(batch.locations, batch.texts, documents, strict=True)
        for (location, *_), text, document in records:
            if location != self._location:
                self._leave()
                self._enter(location)
            self._link = key.link(self._link, document)
            self._records += 1
            if document:
                self._documents.append(int.from_bytes(document[:8], "little"))
                if not (self._has_document or self._census.has_document):
                    self._has_document = self._is_document(text or "")
            if self._records == self._resumes_at:
                self._resumes = self._resumes or self._is_at(self._own_marks)
            if self._records == self._reach and self._is_at(self._marks):
                self._spent = Container(self._name, self._records, self._link)
                self._documents, self._has_document = array("Q"), False

    def _is_at(self, marks: dict[int, int]) -> bool:
        found = self._key.mark(self._name, self._records, self._link)
        return marks[self._records] == found.value

    def has_read(self, most: int) -> bool:
        """Tell whether the slots of a run are known, and none of them is spent."""
        here = self._records - self._n_spent
        return self._census.slots + here >= most and self._records > self._known.longest

    def finish(self) -> Census:
        """End the last file, and compare all documents with those of releases."""
        self._leave()
        few = REFUSED_OF * self._copied < max(1, self._all)
        FAULTS.check(few, "copies", records=self._copied, of=self._all)
        return self._census

    def _leave(self) -> None:
        """Take what is to be known of a file that was read."""
        location, records, name, census = self._location, self._records, self._name, self._census
        if location is None:
            return
        FAULTS.check(name not in self._names, "named twice", source=location, file=name)
        self._names.add(name)
        is_known = bool(self._marks)
        FAULTS.check(
            self._resumes and (self._spent is not None or not is_known),
            "changed",
            source=location,
            released=max(self._reach, self._resumes_at),
        )
        own = census.appended if is_known else census.documents
        own.extend(self._documents)
        self._all += records
        if records >= LEAST_COPIED and self._link in self._whole:
            self._copied += records
        self._whole.add(self._link)
        census.containers[location] = replace(self._spent or Container(name), records=records)
        census.spent += self._n_spent
        census.slots += records - self._n_spent
        census.has_document |= self._has_document


class UnspentSource:
    """A source of files without the first records of some, and those written since the census."""

    def __init__(self, source: Source, containers: Mapping[str, Container]) -> None:
        self._source, self._containers = source, containers
        #: Records of the file that is being read that are still to be left out.
        self._left = 0

    def poll(self, max_records: int, timeout_seconds: float = 1.0) -> RecordBatch:
        """See `Source`; a poll may bring nothing where much is left out."""
        batch = self._source.poll(min(self._left, SKIPPED_RECORDS) or max_records, timeout_seconds)
        if not batch.n_records:
            return batch
        none, kept = Container("", records=0), []
        for location, record, *_ in batch.locations:
            found = self._containers.get(location, none)
            kept.append(found.spent < record <= (found.records or 0))
            self._left = max(0, found.spent - record)
        return batch if all(kept) else batch.select(kept)

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
