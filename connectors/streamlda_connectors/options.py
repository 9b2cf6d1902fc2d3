"""Options of every source: fields of its records, and how their text is read."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from streamlda.errors import at_least
from streamlda.stream.event_time import TimeReader
from streamlda_connectors.checks import check
from streamlda_connectors.encodings import AUTO, check_encoding
from streamlda_connectors.records import suggest_field

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

    @property
    def known(self) -> dict[str, bool]:
        """Arguments of `BatchBuilder.build` that say what is known of documents."""
        return {"users": self.user_field is not None, "times": self.time_field is not None}

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
