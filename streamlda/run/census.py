"""Count the records of files before anything is paid for: those that are spent, and those left.

Names and offsets decide, which are public: a file continues after the records that were released
under its name, and must still begin with them. Content can only refuse a run before its first
payment: slots that depended on what records say would show it. So files under new names are refused
where a third or more of their documents were in releases (`streamlda.privacy.ledger.documents`).
"""

from array import array
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter

import numpy as np

from streamlda.errors import Faults, LedgerError
from streamlda.privacy.ledger import Container, Ledger, Provenance
from streamlda.privacy.ledger.documents import REFUSED_OF
from streamlda.privacy.ledger.records import ReleasedRecords
from streamlda.run.parts import SKIPPED_RECORDS, name_stream, open_stream, resolve_name
from streamlda.settings.rules import get_source_kind
from streamlda.settings.table import RunSettings
from streamlda.stream.source import Position, RecordBatch, Source
from streamlda.text.vocabulary import Vocabulary

#: Most records of one text, on average, where all texts of a file count as different ones.
MOST_ALIKE = 1.1

#: Equal files of fewer records are no copies.
LEAST_COPIED = 16

#: End of every refusal of documents.
UNSPENT = "take documents that were in none; nothing was spent on these"

FAULTS = Faults(
    {
        LedgerError: {
            "changed": "a file no longer begins with the records released under its name; "
            "bring them back, read by the settings of then (source.format, source.text_field), or "
            "give other documents a file of another name; nothing was spent on these",
            "copies": "the same documents are in two files of a run; leave the copies out; "
            "nothing was spent",
        }
    }
)


@dataclass(slots=True)
class Census:
    """Contents of the files of a run: records that are in no release yet take its slots."""

    ledger: Ledger
    #: Records of releases before those of the run.
    before: ReleasedRecords
    words: Vocabulary
    slots: int = 0
    spent: int = 0
    has_document: bool = False
    containers: dict[str, Container] = field(default_factory=dict)
    #: Values of unspent documents: of files with new names, and of those that were known.
    documents: "array[int]" = field(default_factory=lambda: array("Q"))
    appended: "array[int]" = field(default_factory=lambda: array("Q"))
    _names: set[str] = field(default_factory=set)
    #: Fingerprints and records of whole files that may have copies.
    whole: list[tuple[bytes, int]] = field(default_factory=list)

    def add(self, location: str, texts: Iterable[str | None]) -> None:
        """Take the records of a file."""
        key, name = self.ledger.key, resolve_name(location)
        FAULTS.check(name not in self._names, "copies", source=location, file=name)
        self._names.add(name)
        # Where releases under its name end in it, by their seals; those of the run itself too.
        seals, reach = self.ledger.records.seals(name), self.before.reach(name)
        ends = {reach, self.ledger.records.reach(name)} - {0}
        spent, records, link = Container(name), 0, b""
        values, has_document = array("Q"), self.has_document
        for text in texts:
            document = key.of_text(text)
            records, link = records + 1, key.link(link, document)
            if document:
                values.append(int.from_bytes(document[:8], "little"))
                if not has_document:
                    has_document = bool(self.words.encode([text or ""]).batch.usable[0])
            if records in ends and seals.get(records) == key.seal(name, link):
                ends.remove(records)
                if records == reach:
                    # Of what is after the last record that is spent.
                    spent, values = Container(name, records, link), array("Q")
                    has_document = self.has_document
        FAULTS.check(not ends, "changed", source=location, released=max(ends, default=0))
        (self.appended if reach else self.documents).extend(values)
        self.whole += [(link, records)] if records >= LEAST_COPIED else []
        self.containers[location] = spent._replace(records=records)
        self.spent += spent.spent
        self.slots += records - spent.spent
        self.has_document = has_document

    def check_new(self) -> None:
        """Refuse files with too many documents of releases; texts may repeat in one file."""
        for found, alike in ((self.documents, len(self.documents)), (self.appended, MOST_ALIKE)):
            values = np.array(found, dtype=np.uint64)
            if len(values) <= alike * len(np.unique(values)):
                self.ledger.documents.check_new(values, remedy=UNSPENT)


def take_census(
    settings: RunSettings, ledger: Ledger, words: Vocabulary, before: ReleasedRecords | None = None
) -> Census | None:
    """Read the files of a run once; None for other sources.

    `before` are the records of releases before those of the run. A document has `words`.
    Memory O(files), and 8 bytes a record.
    """
    if get_source_kind(settings) != "files":
        return None

    def read(source: Source) -> Iterator[tuple[str, str | None]]:
        batch = RecordBatch()
        while not batch.exhausted:
            batch = source.poll(SKIPPED_RECORDS)
            yield from zip((at.location for at in batch.locations), batch.texts, strict=True)

    census = Census(ledger, before or ledger.records, words)
    with closing(open_stream(settings)) as source:
        for location, records in groupby(read(source), key=itemgetter(0)):
            census.add(location, (text for _, text in records))
    n_records = census.slots + census.spent
    copied = sum(n for _, n in census.whole) - sum(dict(census.whole).values())
    FAULTS.check(REFUSED_OF * copied < max(1, n_records), "copies", records=copied, of=n_records)
    return census


def make_provenance(settings: RunSettings, ledger: Ledger, census: Census | None) -> Provenance:
    """Return a recorder of the documents of releases of a run."""
    return Provenance(
        ledger.key,
        name_stream(settings),
        by_slots=get_source_kind(settings) in ("stdin", "follow"),
        files=None if census is None else census.containers,
    )


class UnspentSource:
    """A source of files without the first records of some, and those written since the census."""

    def __init__(self, source: Source, containers: Mapping[str, Container]) -> None:
        self._source, self._containers = source, containers
        # Without `passed`: of a file that began before, no account is held.
        self.position, self.progress, self.close = source.position, source.progress, source.close
        #: Records of the file that is being read that are still to be left out.
        self._left = 0

    def poll(self, max_records: int, timeout_seconds: float = 1.0) -> RecordBatch:
        """See `Source`; a poll may bring nothing where much is left out."""
        batch = self._source.poll(min(self._left, SKIPPED_RECORDS) or max_records, timeout_seconds)
        if not batch.n_records:
            return batch
        none, kept = Container(""), []
        for location, record, *_ in batch.locations:
            found = self._containers.get(location, none)
            kept.append(found.spent < record <= found.records)
            self._left = max(0, found.spent - record)
        return batch if all(kept) else batch.select(kept)

    def seek(self, position: Position) -> None:
        """See `Source`."""
        self._left = 0
        self._source.seek(position)
