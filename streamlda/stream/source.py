"""Interface of sources: a stream of documents that is polled, and resumed from a position.

A connector is a class with the methods of `Source`, announced under the entry-point group
``streamlda.connectors``. It owns no thread, never blocks longer than the timeout of a poll, and can
resume from a position that somebody else stored.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from itertools import compress
from sys import getsizeof
from typing import Any, NamedTuple, Protocol, Self, runtime_checkable

from streamlda.errors import SourceError, require

#: Position as plain JSON values; nothing before it is read again.
Position = Mapping[str, Any]

#: The one part of a stream whose records are numbered from its beginning to its end.
WHOLE = ""

#: Memory of a record beside its text: its location and user, and the entries of the lists.
RECORD_BYTES = 200


class RecordLocation(NamedTuple):
    """Location of a record in its source: file, topic partition or other container, and number.

    Records are numbered from 1 in each container (line numbers where lines are records). `id` is
    its own identifier, if the source reads that.
    """

    location: str
    record: int
    id: str | None = None


class Reject(NamedTuple):
    """Location of a skipped record, and a short fixed word as reason, such as ``not-utf8``."""

    location: str
    record: int
    reason: str


#: A document with its location and event time.
LocatedText = tuple[str, RecordLocation, float | None]


class Behind(NamedTuple):
    """Position of a source behind a batch, and records passed in each part, if known."""

    position: Position
    passed: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """Records of one poll: aligned lists, with an entry for every record, in stream order."""

    #: The document of each record; None of a reject or a blank line. An empty text is a document.
    texts: list[str | None] = field(default_factory=list)
    #: Records that were skipped for a fault.
    rejects: list[Reject] = field(default_factory=list)
    #: True when the source has ended and later polls will bring nothing.
    exhausted: bool = False
    #: Location, user and event time (in seconds since 1970 UTC) of each record, None if unknown;
    #: empty if all are. Users must never be logged.
    locations: list[RecordLocation] = field(default_factory=list)
    users: list[str | None] = field(default_factory=list)
    times: list[float | None] = field(default_factory=list)
    #: Names of the fields of the first reject that lacks that of the text, to be shown.
    fields: tuple[str, ...] = ()
    #: At most how many stored bytes lie behind the place where files broke off.
    lost_bytes: int = 0
    #: Time of the last record of each partition, in seconds since 1970 (Kafka); for display.
    newest: dict[int, float] = field(default_factory=dict)
    #: Sentences about how the source was read: guesses, and what was skipped.
    notes: tuple[str, ...] = ()
    #: Position of the source after these records; set by `poll`, and not by sources.
    behind: Behind | None = None

    @property
    def documents(self) -> list[str]:
        """The texts of the records that have one."""
        return [text for text in self.texts if text is not None]

    @property
    def n_records(self) -> int:
        """Records: documents, rejects and blank lines."""
        return len(self.texts)

    @property
    def n_documents(self) -> int:
        """Records with a document."""
        return self.n_records - self.texts.count(None)

    @property
    def size_bytes(self) -> int:
        """About how much memory the batch takes."""
        return sum(map(getsizeof, self.documents)) + RECORD_BYTES * self.n_records

    def get_locations(self, first: int) -> Sequence[RecordLocation]:
        """Return the location of each record: without `locations`, numbered from `first` on."""
        numbers = range(first, first + self.n_records)
        return self.locations or [RecordLocation("stream", number) for number in numbers]

    def select(self, mask: Sequence[bool]) -> Self:
        """Return the records that are kept, of a batch with their locations."""
        columns: dict[str, Any] = {
            name: list(compress(getattr(self, name), mask))
            for name in ("texts", "locations", "users", "times")
        }
        left = {at[:2] for at in columns["locations"]}
        return replace(self, **columns, rejects=[r for r in self.rejects if r[:2] in left])

    def get_documents(self, first: int) -> list[LocatedText]:
        """Return the documents; locations as of `get_locations`."""
        times = self.times or [None] * self.n_records
        rows = zip(self.texts, self.get_locations(first), times, strict=True)
        return [(text, at, time) for text, at, time in rows if text is not None]

    def check(self, max_records: int) -> None:
        """Raise `SourceError` if the rules above are broken; the message names no user."""
        sizes = [len(column) for column in (self.texts, self.locations, self.users, self.times)]
        aligned = {*sizes} <= {0, self.n_records} and len(self.rejects) <= self.texts.count(None)
        rule = "the batch has columns of several lengths, or too many records or rejects"
        found = {"sizes": sizes, "rejects": len(self.rejects), "max_records": max_records}
        fits = aligned and self.n_records <= max_records
        require(fits, rule, **found, remedy="correct the connector", error=SourceError)


class Log(NamedTuple):
    """A log that a source reads: a name that no other log has, and the next offset, from 0."""

    name: str
    next: int


class Progress(NamedTuple):
    """Units read, in all (None: unknown), and the unit: ``"B"`` (stored) or ``"documents"``."""

    done: int
    total: int | None
    unit: str


@runtime_checkable
class Source(Protocol):
    """A stream of documents that can be polled in bounded batches and resumed.

    Notes
    -----
    A source may have more, for display: `lag`, `lost`, `waits_for` (the part without a record that
    holds up the others), `silent` (seconds of polling without an answer of a part; None if
    unknown), `reason` (of the silence) and `last_answer` (its time by ``time.monotonic``). `passed`
    returns the number of records before the position, by partition, or under `WHOLE`; without it no
    account is held of the records. A source with `pause` and `resume` takes polls for 0 records.
    `SourceAwayError` is raised while a source is away, `SourceRefusedError` where its settings
    cannot work.

    The position returned after a poll resumes *after* the last record of that poll, rejects
    included. Opening a source reads no document. The same source polled with other batch sizes
    yields the same documents in the same order.
    """

    def poll(self, max_records: int, timeout_seconds: float = 1.0) -> RecordBatch:
        """Return at most `max_records` records, waiting at most `timeout_seconds` for one."""

    def position(self) -> Position:
        """Return the position of the next poll."""

    def seek(self, position: Position) -> None:
        """Resume from a `position` of this process or an earlier one."""

    def progress(self) -> Progress:
        """Return the progress of the source."""

    def close(self) -> None:
        """Close the source. Closing twice is allowed."""


def stand(source: Source) -> Behind:
    """Return the position of a source, and the records it has passed."""
    return Behind(source.position(), source.passed() if hasattr(source, "passed") else {})


def poll(source: Source, max_records: int, timeout_seconds: float = 1.0) -> RecordBatch:
    """Return the checked answer of a poll with the position behind it, as one value."""
    batch = source.poll(max_records, timeout_seconds)
    batch.check(max_records)
    return replace(batch, behind=stand(source))


class KeyedBatch(NamedTuple):
    """Records of a poll, and the key of each: aligned."""

    batch: RecordBatch
    keys: list[bytes | None]


class Answer(NamedTuple):
    """The answer to one document: under its key, for the partition it came from."""

    partition: int
    key: bytes | None
    value: bytes


@cache
def _load(group: str, kind: str, name: str) -> Any:
    found = entry_points(group=group)
    rule = f"no such {kind} is installed"
    remedy = f"known {kind}s: {', '.join(sorted(found.names)) or 'none'}"
    require(name in found.names, rule, **{kind: name}, remedy=remedy, error=SourceError)
    return found[name].load()


def open_source(connector: str, *args: Any, **options: Any) -> Source:
    """Open a source by the name of its connector.

    Parameters
    ----------
    connector : str
        Entry-point name in the group ``streamlda.connectors``: ``"files"``, ``"stdin"``, ...
    *args, **options
        Handed to the connector.

    Raises
    ------
    SourceError
        If no installed package announces that name.
    """
    source: Source = _load("streamlda.connectors", "connector", connector)(*args, **options)
    return source


def open_sink(name: str, *args: Any, **options: Any) -> Any:
    """Open an output by the name that a connector announces: ``"kafka-exchange"``, ..."""
    return _load("streamlda.sinks", "sink", name)(*args, **options)
