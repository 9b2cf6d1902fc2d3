"""Reader of Parquet files: one column of documents, others as their users, times and ids."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from importlib import import_module
from itertools import repeat
from typing import Any

from streamlda.stream.event_time import in_range
from streamlda.stream.listing import StoredFile
from streamlda_connectors.checks import check, import_extra
from streamlda_connectors.lines import decode
from streamlda_connectors.options import ReadOptions
from streamlda_connectors.records import (
    NULL,
    Document,
    MissingColumn,
    Record,
    RecordQueue,
    Rejected,
    Skipped,
    StoredRecords,
    read_name,
)

#: Parquet rows are read in runs of about this many bytes of text, as far as the file tells.
PARQUET_RUN_BYTES = 4 * 2**20
PARQUET_RUN_ROWS = 4096

#: Types of columns that hold text, names, and times; dated ones by their first words.
_TEXT = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
_NAMES = (*_TEXT, *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)))
_TIMES = (*_NAMES, "halffloat", "float", "double", "date", "timestamp")


class Row(bytes):
    """The text of a row, with its user, time and id."""

    others: tuple[str | None, float | None, str | None]


def _parse_row(row: bytes) -> Document:
    assert isinstance(row, Row)
    return decode(row), *row.others


class ParquetReader(StoredRecords):
    """Reads the columns of text, user, time and id, a bounded run of rows at a time."""

    def __init__(self, file: StoredFile, options: ReadOptions, record: int) -> None:
        self._arrow = _import_pyarrow()
        self._size = file.size or 0
        self._max_bytes, self._read_time = options.max_document_bytes, options.read_time
        self._raw = file.open()
        try:
            with _reject_damage(self._arrow):
                self._table = self._arrow.parquet.ParquetFile(
                    self._raw, pre_buffer=False, buffer_size=2**20
                )
            sizes = _count_rows(self._table)
            self._first, last = file.part or (0, len(sizes))
            self._last = self._first + len(sizes[self._first : last])
            self._n_rows = rows = sum(sizes[self._first : last])
            names, found = [options.text_field], self._find_column(options.text_field)
            if found[1] is None:
                names = options.text_fields
            self._paths, kinds = zip(*map(self._find_column, names), strict=True)
            if not set(kinds) <= set(_TEXT):
                reason = "missing-column" if None in kinds else "not-text"
                raise MissingColumn(reason, list(self._table.schema_arrow.names))
            self._user_path = self._find_other(options.user_field, _NAMES)
            self._time_path = self._find_other(options.time_field, _TIMES)
            self._id_path = self._find_other(options.id_field, _NAMES)
            check(record <= rows, "shorter", name=file.name, rows=rows, rows_read=record)
        except BaseException:
            self._raw.close()
            raise
        self.records = RecordQueue(file.location, _parse_row, record)
        self._runs = self._read_runs(record)
        self._ended = record >= self._n_rows

    def _find_other(self, field: str | None, kinds: Collection[str]) -> list[str] | None:
        """Return where the column of a field is, if there is one of these types."""
        path, kind = ([], None) if field is None else self._find_column(field)
        # `timestamp[us, tz=UTC]` and `date32[day]` count by their first word.
        family, dated, _ = (kind or "").partition("[")
        return path if (family.rstrip("0123456789") if dated else family) in kinds else None

    def _find_column(self, field: str) -> tuple[list[str], str | None]:
        """Return where a column is and the type of its values, None if there is no such column."""
        types, schema = self._arrow.types, self._table.schema_arrow
        path = [field] if field in schema.names else field.split(".")
        kind: Any = schema
        for name in path:
            # A list has fields too, but only a struct has one value of each in a row.
            nested = kind is schema or types.is_struct(kind)
            if not nested or name not in [inner.name for inner in kind]:
                return path, None
            kind = kind.field(name).type
        return path, str(kind.value_type if types.is_dictionary(kind) else kind)

    def _read_runs(self, row: int) -> Iterator[list[Record]]:
        """Yield values from `row` on; runs start at fixed rows, wherever reading resumes."""
        paths = (*self._paths, self._user_path, self._time_path, self._id_path)
        columns = list(dict.fromkeys(".".join(path) for path in paths if path is not None))
        for group in range(self._first, self._last):
            info = self._table.metadata.row_group(group)
            if row >= info.num_rows:
                row -= info.num_rows
                continue
            chunks = map(info.column, range(info.num_columns))
            stored = sum(c.total_uncompressed_size for c in chunks if c.path_in_schema in columns)
            rows = max(1, min(PARQUET_RUN_ROWS, PARQUET_RUN_BYTES * info.num_rows // (stored + 1)))
            for run in self._table.iter_batches(rows, row_groups=[group], columns=columns):
                dropped = min(row, run.num_rows)
                row -= dropped
                yield self._read_records(run.slice(dropped))

    def _column(self, run: Any, path: list[str]) -> Any:
        column = run.column(run.schema.names.index(path[0]))
        if len(path) > 1:
            column = self._arrow.compute.struct_field(column, path[1:])
        dictionary = self._arrow.types.is_dictionary(column.type)
        return column.dictionary_decode() if dictionary else column

    def _values(self, column: Any) -> list[Any]:
        types = self._arrow.types
        if not (types.is_integer(column.type) or types.is_floating(column.type)):
            # As bytes, one value that is not UTF-8 does not spoil its run.
            column = column.cast(self._arrow.large_binary())
        values: list[Any] = column.to_pylist()
        return values

    def _read_names(self, run: Any, path: list[str] | None) -> Iterable[str | None]:
        return (
            repeat(None) if path is None else map(read_name, self._values(self._column(run, path)))
        )

    def _read_times(self, run: Any) -> Iterable[float | None]:
        if self._time_path is None:
            return repeat(None)
        pa, column = self._arrow, self._column(run, self._time_path)
        if not (pa.types.is_timestamp(column.type) or pa.types.is_date(column.type)):
            return map(self._read_time, self._values(column))
        stamps = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)), safe=False)
        seconds = stamps.cast(pa.int64()).to_pylist()
        return [None if each is None else in_range(each / 1e6) for each in seconds]

    def _read_records(self, run: Any) -> list[Record]:
        users, ids = (self._read_names(run, path) for path in (self._user_path, self._id_path))
        texts = zip(*(self._values(self._column(run, path)) for path in self._paths), strict=True)
        return [
            *map(self._make_record, texts, zip(users, self._read_times(run), ids, strict=False))
        ]

    def _make_record(self, texts: Sequence[bytes | None], others: Any) -> Record:
        given = [text for text in texts if text is not None]
        if not given:
            return NULL
        row = Row(given[0] if len(texts) == 1 else b"\n".join(filter(None, given)))
        row.others = others
        return row if len(row) <= self._max_bytes else Skipped(len(row), "too-long")

    def _fill(self) -> None:
        with _reject_damage(self._arrow):
            run = next(self._runs, None)
        if run is None:
            raise Rejected("broken-parquet")
        self.records.put(run)
        self._ended = self.records.record + len(run) >= self._n_rows

    def stored_bytes(self) -> int:
        """See `StoredRecords`."""
        return self._size * self.records.record // max(1, self._n_rows)

    def close(self) -> None:
        """See `StoredRecords`."""
        self._table.close()
        self._raw.close()


def count_group_rows(file: StoredFile) -> list[int]:
    """Return the rows of each row group of a file; none of one that is damaged."""
    arrow = _import_pyarrow()
    with closing(file.open()) as raw:
        try:
            with _reject_damage(arrow):
                return _count_rows(arrow.parquet.ParquetFile(raw, pre_buffer=False))
        except Rejected:
            return []


def _count_rows(table: Any) -> list[int]:
    metadata = table.metadata
    return [int(metadata.row_group(n).num_rows) for n in range(metadata.num_row_groups)]


def _import_pyarrow() -> Any:
    found = import_extra("pyarrow", "parquet", "reading Parquet files")
    for module in ("pyarrow.compute", "pyarrow.parquet"):
        import_module(module)
    return found


@contextmanager
def _reject_damage(arrow: Any) -> Iterator[None]:
    """Turn pyarrow's complaints about a file's content into `Rejected`."""
    try:
        yield
    except (arrow.ArrowException, OSError) as error:
        # Damaged pages raise a bare OSError; one that has a number comes from the system.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise Rejected("broken-parquet") from error
