"""Records between blocks of bytes and batches, with counts of those handed out and the rejects.

Shared by every connector, so that a file and standard input give the same documents and the same
rejects. Nothing here opens or waits for anything; ``streamlda_connectors.lines`` has the formats.
"""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from itertools import islice, repeat
from time import monotonic
from typing import Any, NamedTuple, Self

from streamlda.errors import at_least
from streamlda.stream.event_time import TimeReader
from streamlda.stream.source import RecordBatch, RecordLocation, Reject
from streamlda_connectors.checks import check
from streamlda_connectors.encodings import AUTO, check_encoding

#: Reasons of a `Reject` from the connectors of this package; ``connectors/README.md`` has meanings.
REASONS = (
    *("bad-schema", "broken-compression", "broken-csv", "broken-parquet", "broken-record"),
    *("broken-workbook", "missing-column", "missing-field", "no-records", "not-an-object"),
    *("not-json", "not-text", "not-utf8", "too-long", "unframed", "unknown-schema"),
)

#: Most names of fields that a message shows. Without a header, the first row of a CSV file is a
#: document: a field is shown if it looks like a name.
MOST_FIELDS = 20
_looks_like_name = re.compile(r"(?=.{1,40}$)[^\W\d][\w.\-]* ?[\w.\-]*").fullmatch

#: A poll stops after records of this many bytes in all, however many records it may hold.
MAX_POLL_BYTES = 32 * 2**20


class Rejection(Exception):
    """Raised by a parser for a record that is to be skipped; `fields` are those it has instead."""

    def __init__(self, reason: str, fields: Iterable[str] = ()) -> None:
        super().__init__(reason)
        self.reason, self.fields = reason, fields
        #: How the file was read, where none of its records is.
        self.note = ""


class MissingColumn(Rejection):
    """A file whose header (`fields`) does not name the text column, or gives it another type."""


class Skip(NamedTuple):
    """A record of `size` bytes that was skipped before it was whole, for one of `REASONS`."""

    size: int
    reason: str


#: The bytes of a record without its line end, or the reason why it has none.
Record = bytes | Skip

#: The text, user, event time (seconds since 1970 UTC) and id of a record; None where not known.
Document = tuple[str, str | None, float | None, str | None]

_BLANK = (None, None, None, None)

#: Turns a record into a document, or None for a blank line; raises `Rejection`.
Parser = Callable[[bytes], Document | None]


def read_name(value: object, numbers: bool = False) -> str | None:
    """Return the name of a user: text or an int, so that 7 and "7" are the same.

    With `numbers`, as of ids and classes, other numbers and booleans are names too; 7.0 is 7.
    """
    if numbers and type(value) is float and value.is_integer():
        value = int(value)
    if type(value) is int or (numbers and type(value) in (bool, float)):
        return str(value)
    if type(value) is bytes:
        with suppress(UnicodeDecodeError):
            return value.decode() or None
    return value or None if type(value) is str else None


def shorten_names(names: Iterable[str]) -> tuple[str, ...]:
    """Return names of fields as a message may show them: few, and none that may be text."""
    shown = tuple(
        name if _looks_like_name(name) else f"<{len(name)} characters>"
        for name in islice(names, MOST_FIELDS + 1)
    )
    return (*shown[:MOST_FIELDS], "...") if len(shown) > MOST_FIELDS else shown


#: Said of a first line that is no header.
NO_HEADER = (
    "the first line does not look like names: remove lines above the header; without a header, "
    "name columns by their numbers from 1"
)


def suggest_field(wanted: str, names: Collection[str]) -> str:
    """Return another spelling of a field that is missing, or nothing."""
    plain = {name.strip().casefold(): name for name in names if _looks_like_name(name.strip())}
    for each in wanted.split(","):
        if each not in names and (near := get_close_matches(each.strip().casefold(), plain, 1)):
            return f"did you mean {plain[near[0]]!r}?"
    return ""


def suggest_header(name: str, names: Collection[str]) -> str:
    """Return what to do where the column of the text is missing, or nothing."""
    are_names = all(map(_looks_like_name, filter(None, names)))
    return suggest_field(name, names) or ("" if are_names else NO_HEADER)


#: Default limit of one record: far above any document, far below what memory holds.
MAX_DOCUMENT_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Fields of records, the longest record, and how text and times are read.

    Attributes
    ----------
    text_field : str, default "text"
        Key or column of the text. A dot goes down into a JSON object or Parquet struct unless
        the whole name is a key. Several, with commas between them unless the whole name is a
        column, are joined by line ends; those that are null or absent are left out.
    records_field : str, optional
        Key of the array of records in a JSON object (format ``"json"``), such as ``"data"``.
    max_document_bytes : int, default 16 MiB
        A longer record (a line, or a row of Parquet as JSON) is skipped as it streams by.
    user_field, time_field, id_field : str, optional
        Key or column of the user, of the event time (values as in
        `streamlda.stream.event_time.parse_event_time`, in Parquet dates and timestamps too), and of
        the record's own id; users and ids are text or an int. Where the value is missing, empty or
        something else, it is None and the document is kept.
    delimiter : str, optional
        Delimiter of CSV; None to go by the header.
    encoding : str, optional
        Encoding of text, by Python's name; None: the bytes must be UTF-8. By default ``"auto"``:
        UTF-8, what a byte order mark says, or of files a guess that `RecordBatch.notes` has.
    has_classes : bool, default False
        The user of a record is its class, which may be any number or boolean.
    as_rows : bool, default False
        Return a record of CSV as the JSON list of the delimiter and its fields, the header first.
    read_time : callable
        Reader of event times. Sources make it of a `time_format`: a form of strptime, ``"unix"``
        or ``"excel"``; without it common forms are read.
    """

    text_field: str = "text"
    records_field: str | None = None
    as_rows: bool = False
    has_classes: bool = False
    max_document_bytes: int = MAX_DOCUMENT_BYTES
    user_field: str | None = None
    time_field: str | None = None
    id_field: str | None = None
    delimiter: str | None = None
    encoding: str | None = AUTO
    read_time: TimeReader = field(default_factory=TimeReader)

    def __post_init__(self) -> None:
        at_least(1, max_document_bytes=self.max_document_bytes)

    @classmethod
    def of(
        cls,
        *,
        time_format: str | None = None,
        encoding: str | None = AUTO,
        read_ahead: Callable[[], Iterable[object]] | None = None,
        **fields: Any,
    ) -> Self:
        """Return the options of a source, checked; `read_ahead` is that of a `TimeReader`."""
        found = None if encoding is None else check_encoding(encoding)
        return cls(encoding=found, read_time=TimeReader(time_format, read_ahead), **fields)

    @property
    def text_fields(self) -> list[str]:
        """The names of `text_field`, one or several."""
        return self.text_field.split(",")

    def describe_columns(self, names: Sequence[str]) -> Iterator[str]:
        """Yield what to say of columns that are wanted, and absent or there several times."""
        texts = [self.text_field] if self.text_field in names else self.text_fields
        for name in filter(None, (*texts, self.user_field, self.time_field, self.id_field)):
            if (n := names.count(name)) > 1:
                yield f"has {n} columns {name}, of which the first is read"
            elif not n:
                near = suggest_field(name, names)
                yield f"has no column {name}" + f": {near}" * bool(near)

    def check_format(self, format: str) -> None:
        """Raise `InvalidSettingError` if a format has no fields, or no records inside an object."""
        inside, named = self.records_field, ("user_field", "time_field", "id_field")
        check(format == "json" or inside is None, "inside", format=format, records_field=inside)
        check(format == "csv" or not self.as_rows, "append", format=format)
        given = {name: getattr(self, name) for name in named if getattr(self, name) is not None}
        check(format not in ("text", "file") or not given, "no fields", format=format, **given)


class BatchBuilder:
    """Records gathered by one poll of at most `max_records` and `timeout_seconds`."""

    def __init__(self, max_records: int, timeout_seconds: float) -> None:
        at_least(1, max_records=max_records)
        check(timeout_seconds >= 0, "timeout", timeout_seconds=timeout_seconds)
        self.max_records = max_records
        self.deadline = monotonic() + timeout_seconds
        self.texts: list[str | None] = []
        self.locations: list[RecordLocation] = []
        self.users: list[str | None] = []
        self.times: list[float | None] = []
        self.rejects: list[Reject] = []
        #: Fields of the first record without the field of the text.
        self.fields: tuple[str, ...] = ()
        #: Stored bytes behind the places where files broke off.
        self.lost_bytes = 0
        #: Sentences about how the source was read.
        self.notes: list[str] = []
        #: When the last record of each partition was made, in seconds since 1970.
        self.newest: dict[int, float] = {}
        #: Keys of the records (Kafka).
        self.keys: list[bytes | None] = []
        self.n_documents = self.bytes = 0
        #: Blocks read for this poll: the first is read however short the time.
        self.blocks = 0

    def extend(
        self, location: str, record: int, items: Sequence[Document | Rejection | None], n_bytes: int
    ) -> None:
        """Add records that follow each other, the first of number `record`; None is a blank."""
        documents = [each if type(each) is tuple else _BLANK for each in items]
        texts, users, times, ids = zip(*documents, strict=True) if items else ((), (), (), ())
        numbers = range(record, record + len(items))
        for number, each in zip(numbers, items, strict=True):
            if isinstance(each, Rejection):
                self.fields = self.fields or shorten_names(each.fields)
                self.rejects.append(Reject(location, number, each.reason))
        self.texts += texts
        self.locations += map(RecordLocation, repeat(location), numbers, ids)
        self.users += users
        self.times += times
        self.n_documents += len(texts) - texts.count(None)
        self.bytes += n_bytes

    @property
    def room(self) -> int:
        """Number of records that still fit."""
        return self.max_records - len(self.texts)

    @property
    def full(self) -> bool:
        """True if nothing more fits."""
        return len(self.texts) >= self.max_records or self.bytes >= MAX_POLL_BYTES

    @property
    def late(self) -> bool:
        """True if the time is up."""
        return monotonic() >= self.deadline

    @property
    def empty(self) -> bool:
        """True if no record was gathered."""
        return not self.texts

    def build(self, options: ReadOptions, *, exhausted: bool = False) -> RecordBatch:
        """Return the batch, with users and times if they are read, and notes on values of times."""
        named = [] if options.user_field is None else self.users
        dated = [] if options.time_field is None else self.times
        notes = (*self.notes, *options.read_time.take_notes())
        columns = (self.locations, named, dated, self.fields, self.lost_bytes, self.newest, notes)
        return RecordBatch(self.texts, self.rejects, exhausted, *columns)
