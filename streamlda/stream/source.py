"""What the engine asks of a stream of documents, and nothing about how it is read.

A connector is a class with the methods of `Source`, announced under the entry-point group
``streamlda.connectors``. It owns no thread, never blocks longer than the timeout of a poll, and can
resume from a position that somebody else stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import entry_points
from itertools import compress
from sys import getsizeof
from typing import Any, NamedTuple, Protocol, runtime_checkable

from streamlda.checks import failure, require
from streamlda.errors import SourceError

#: Where reading goes on, as plain JSON values: what was read before it is never read again.
Position = Mapping[str, Any]

#: The one part of a stream whose records are numbered from its beginning to its end.
WHOLE = ""

ENTRY_POINT_GROUP = "streamlda.connectors"

#: Memory of a record beside its text: its location and user, and the entries of the lists.
RECORD_BYTES = 200


class RecordLocation(NamedTuple):
    """Where a record stands in its source: file, topic partition or other container, and number.

    Records are numbered from 1 in each container (line numbers where lines are records). `id` is
    what the record calls itself, if the source reads that.
    """

    location: str
    record: int
    id: str | None = None


class Reject(NamedTuple):
    """A record that was skipped: where it stands (as `RecordLocation`) and why, never what it says.

    `reason` is a short fixed word such as ``not-utf8``; the same words are counted in summaries.
    """

    location: str
    record: int
    reason: str


#: Why a file is named that lacks nothing.
EMPTY = "empty"


class Damage(NamedTuple):
    """A file that broke off, or holds no record (``empty``): its name, why, and stored bytes lost.

    Where nothing is after the break, what was cut off is not known, and all of the file counts;
    None where its size is not known.
    """

    name: str
    reason: str
    lost_bytes: int | None


@dataclass(slots=True)
class LocatedTexts:
    """Documents with their locations and event times, in stream order: aligned lists."""

    texts: list[str] = field(default_factory=list)
    locations: list[RecordLocation] = field(default_factory=list)
    times: list[float | None] = field(default_factory=list)
    characters: int = 0

    def add(self, other: LocatedTexts) -> None:
        """Take more documents after these."""
        self.texts += other.texts
        self.locations += other.locations
        self.times += other.times
        self.characters += other.characters


class Behind(NamedTuple):
    """Where a source stands behind a batch: its position, and the records passed in each part.

    `passed` is empty of a source that does not say it.
    """

    position: Position
    passed: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class RecordBatch:
    """The records of one call of `Source.poll`: aligned lists, in stream order.

    Every record has an entry, whatever it says, so that documents can be numbered by the records
    before them.

    Attributes
    ----------
    texts : list of str or None
        Of each record its document, or None if it is a reject or a blank line. An empty text is a
        document, too short to learn from.
    rejects : list of Reject
        Those records without a document that were skipped for a fault.
    exhausted : bool
        True when the source has ended and later polls will bring nothing.
    locations : list of RecordLocation
        Where each record stands; empty if the source does not say.
    users : list of str or None
        Whose each document is, None where that is not known; empty if the source does not say.
        Never to be logged.
    times : list of float or None
        Event time of each document, in seconds since 1970 UTC; None where there is none, or the
        field holds something else. Empty if the source does not say.
    fields : tuple of str
        Names of fields, as a message may show them, of the first reject that lacks that of the
        text; empty if there is none.
    damage : tuple of Damage
        Files that broke off in this poll, or ended without a record.
    newest : dict of int to float
        When the last record of each partition was made, in seconds since 1970, where the source
        keeps that (Kafka); for display.
    behind : Behind, optional
        Where the source stands after these records; set by `poll`, and not by sources.
    """

    texts: list[str | None] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    exhausted: bool = False
    locations: list[RecordLocation] = field(default_factory=list)
    users: list[str | None] = field(default_factory=list)
    times: list[float | None] = field(default_factory=list)
    fields: tuple[str, ...] = ()
    damage: tuple[Damage, ...] = ()
    newest: dict[int, float] = field(default_factory=dict)
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
    def n_blanks(self) -> int:
        """Records that are neither document nor reject: blank lines, tombstones, gaps in a log."""
        return self.texts.count(None) - len(self.rejects)

    @property
    def size_bytes(self) -> int:
        """About how much memory the batch takes."""
        return sum(map(getsizeof, self.documents)) + RECORD_BYTES * self.n_records

    def located(self, first: int) -> Sequence[RecordLocation]:
        """Return where each record stands: without `locations`, numbered from `first` on."""
        numbers = range(first, first + self.n_records)
        return self.locations or [RecordLocation("stream", number) for number in numbers]

    def of(self, kept: Sequence[bool]) -> RecordBatch:
        """Return the records that are kept, of a batch with their locations."""
        left_out = {at[:2] for at, keep in zip(self.locations, kept, strict=True) if not keep}
        return RecordBatch(
            list(compress(self.texts, kept)),
            [each for each in self.rejects if each[:2] not in left_out],
            self.exhausted,
            list(compress(self.locations, kept)),
            list(compress(self.users, kept)),
            list(compress(self.times, kept)),
            self.fields,
            self.damage,
            self.newest,
            self.behind,
        )

    def with_text(self, first: int) -> LocatedTexts:
        """Return the documents; locations as of `located`."""
        kept = [text is not None for text in self.texts]
        texts = [text for text in self.texts if text is not None]
        return LocatedTexts(
            texts,
            list(compress(self.located(first), kept)),
            list(compress(self.times or [None] * self.n_records, kept)),
            sum(map(len, texts)),
        )

    def check(self, max_records: int) -> None:
        """Raise `SourceError` if the rules above are broken; the message names no user."""
        n_records = self.n_records
        columns = (self.locations, self.users, self.times)
        aligned = all(len(each) in (0, n_records) for each in columns)
        require(
            aligned and self.n_blanks >= 0 and n_records <= max_records,
            "a batch must hold one text or None, location, user and time for each of its records, "
            "and no more of them than its poll allows",
            texts=n_records,
            locations=len(self.locations),
            users=len(self.users),
            times=len(self.times),
            documents=self.n_documents,
            rejects=len(self.rejects),
            max_records=max_records,
            remedy="correct the connector",
            error=SourceError,
        )


class Log(NamedTuple):
    """A log that a source reads: what tells it from all others, of the same name too.

    `next` is the offset of the record that comes next. In a `RecordLocation` offsets count from 1.
    """

    name: str
    next: int


class Progress(NamedTuple):
    """How far a source has come, for a progress bar: units read, units in all (None: no known end).

    The unit is ``"B"`` for stored (compressed) bytes, ``"documents"`` otherwise.
    """

    done: int
    total: int | None
    unit: str


@runtime_checkable
class Source(Protocol):
    """A stream of documents that can be polled in bounded batches and resumed.

    Notes
    -----
    A source may have more, for display: `lag`, `lost`, `waits_for` (the part without a record that
    holds up the others), `silent` (for how many seconds of polling a
    part of it has not answered; 0 if all do, None if that is not known yet), `reason` (why it is
    silent) and `last_answer` (when it answered last, by ``time.monotonic``). `passed` says how many
    records lie before the position: of each partition, by the location of its records, or of all,
    under `WHOLE`. Without it no account is held of the records. A source with `pause` and `resume`
    takes polls for 0 records, which bring none. What is away raises `SourceAwayError`, what will
    not be read as it is set `SourceRefusedError`.

    The position returned after a poll resumes *after* the last record of that poll, rejects
    included. Opening a source reads no document. The same source polled with other batch sizes
    yields the same documents in the same order.
    """

    def poll(self, max_records: int, timeout_seconds: float = 1.0) -> RecordBatch:
        """Return what comes next, waiting at most `timeout_seconds` for a document.

        At most `max_records` records: documents, rejects and blank lines together.
        """

    def position(self) -> Position:
        """Return where the next poll will go on."""

    def seek(self, position: Position) -> None:
        """Go on from a position that `position` returned, in this process or an earlier one."""

    def progress(self) -> Progress:
        """Return how far the source has come."""

    def close(self) -> None:
        """Release what the source holds. Closing twice is allowed."""


def stand(source: Source) -> Behind:
    """Return where a source stands."""
    passed = getattr(source, "passed", None)
    return Behind(source.position(), {} if passed is None else passed())


def poll(source: Source, max_records: int, timeout_seconds: float = 1.0) -> RecordBatch:
    """Return the checked answer of a poll with the position behind it, as one value.

    Nothing else moves the position of a source. If this raises, reading must go on behind the last
    batch that was returned.
    """
    batch = source.poll(max_records, timeout_seconds)
    batch.check(max_records)
    return replace(batch, behind=stand(source))


@cache
def announced(group: str, kind: str, name: str) -> Any:
    """Return what an installed package announces in a group of entry points, or raise."""
    found = entry_points(group=group)
    if name not in found.names:
        known = ", ".join(sorted(found.names)) or "none (is streamlda installed?)"
        raise failure(
            f"a {kind} must be installed before it is used",
            **{kind: name},
            remedy=f"known {kind}s: {known}",
            error=SourceError,
        )
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
    source: Source = announced(ENTRY_POINT_GROUP, "connector", connector)(*args, **options)
    return source
