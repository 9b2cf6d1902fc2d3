"""One column of a Parquet file as a run of documents; others as their users, times and ids."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager
from typing import Any

from streamlda.errors import MissingExtraError
from streamlda.stream.event_time import event_time, in_range
from streamlda.stream.listing import StoredFile
from streamlda_connectors.checks import shortened
from streamlda_connectors.lines import value_parser
from streamlda_connectors.records import (
    MissingColumn,
    ReadOptions,
    Record,
    RecordQueue,
    Rejected,
    Skipped,
    StoredRecords,
    name_of,
)

#: Parquet rows are read in runs of about this many bytes of text, as far as the file tells.
PARQUET_RUN_BYTES = 4 * 2**20
PARQUET_RUN_ROWS = 4096

#: Types of columns that hold text, integers and other numbers, and the first words of dated ones.
_TEXT = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
_FLOATS = ("halffloat", "float", "double")
_DATES = ("date", "timestamp")

#: Records, and users, times and ids of them where there are columns of these.
_Run = tuple[list[Record], list[list[Any] | None]]


class ParquetReader(StoredRecords):
    """Reads the columns of text, user, time and id, a bounded run of rows at a time.

    Memory: a run of rows and the buffers of one chunk's pages for each column.
    """

    def __init__(self, file: StoredFile, options: ReadOptions, record: int) -> None:
        self._arrow = _pyarrow()
        self._size = file.size or 0
        self._max_bytes = options.max_document_bytes
        self._raw = file.open()
        try:
            with _damage_rejected(self._arrow):
                self._table = self._arrow.parquet.ParquetFile(
                    self._raw, pre_buffer=False, buffer_size=2**20
                )
            sizes = _group_sizes(self._table)
            self._first, last = file.part or (0, len(sizes))
            self._groups = sizes[self._first : last]
            self._n_rows = sum(self._groups)
            self._path = self._text_column(options.text_field)
            of_name = (*_TEXT, *_INTEGERS)
            self._user_path = self._other_column(options.user_field, of_name)
            self._id_path = self._other_column(options.id_field, of_name)
            of_time = (*_TEXT, *_INTEGERS, *_FLOATS, *_DATES)
            self._time_path = self._other_column(options.time_field, of_time)
            if record > self._n_rows:
                raise shortened(file.name, rows=self._n_rows, rows_read=record)
        except BaseException:
            self._raw.close()
            raise
        self.records = RecordQueue(file.location, value_parser(), record)
        self._runs = self._read_runs(record)
        self._ended = record >= self._n_rows

    def _text_column(self, text_field: str) -> list[str]:
        path, kind = self._find_column(text_field)
        if kind not in _TEXT:
            reason = "missing-column" if kind is None else "not-text"
            raise MissingColumn(reason, list(self._table.schema_arrow.names))
        return path

    def _other_column(self, field: str | None, kinds: Collection[str]) -> list[str] | None:
        """Return where the column of a field is, if there is one of these types."""
        if field is None:
            return None
        path, kind = self._find_column(field)
        # `timestamp[us, tz=UTC]` and `date32[day]` go by what they begin with.
        return path if kind is not None and _family(kind) in kinds else None

    def _find_column(self, field: str) -> tuple[list[str], str | None]:
        """Return where a column is and the type of its values, None if there is no such column."""
        types = self._arrow.types
        schema = self._table.schema_arrow
        path = [field] if field in schema.names else field.split(".")
        kind: Any = schema
        for name in path:
            # A list has fields too, but only a struct has one value of each in a row.
            nested = kind is schema or types.is_struct(kind)
            if not nested or name not in [inner.name for inner in kind]:
                return path, None
            kind = kind.field(name).type
        return path, str(kind.value_type if types.is_dictionary(kind) else kind)

    def _read_runs(self, row: int) -> Iterator[_Run]:
        """Yield the values from `row` on, and users, times and ids if there are columns.

        Runs start at fixed rows of each row group, wherever reading goes on, so that damage is
        met at the same record.
        """
        metadata = self._table.metadata
        paths = (self._path, self._user_path, self._time_path, self._id_path)
        columns = [".".join(path) for path in paths if path is not None]
        for group in range(self._first, self._first + len(self._groups)):
            info = metadata.row_group(group)
            if row >= info.num_rows:
                row -= info.num_rows
                continue
            stored = sum(
                info.column(i).total_uncompressed_size
                for i in range(info.num_columns)
                if info.column(i).path_in_schema in columns
            )
            rows = max(1, min(PARQUET_RUN_ROWS, PARQUET_RUN_BYTES * info.num_rows // (stored + 1)))
            for run in self._table.iter_batches(
                batch_size=rows, row_groups=[group], columns=list(dict.fromkeys(columns))
            ):
                dropped = min(row, run.num_rows)
                row -= dropped
                rest = run.slice(dropped)
                users, ids = (self._names_of(rest, p) for p in (self._user_path, self._id_path))
                yield self._records_of(rest), [users, self._times_of(rest), ids]

    def _column(self, run: Any, path: list[str]) -> Any:
        pa = self._arrow
        column = run.column(run.schema.names.index(path[0]))
        if len(path) > 1:
            column = pa.compute.struct_field(column, path[1:])
        return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column

    def _values(self, column: Any) -> list[Any]:
        types = self._arrow.types
        if not (types.is_integer(column.type) or types.is_floating(column.type)):
            # As bytes, one value that is not UTF-8 does not spoil its run.
            column = column.cast(self._arrow.large_binary())
        values: list[Any] = column.to_pylist()
        return values

    def _names_of(self, run: Any, path: list[str] | None) -> list[str | None] | None:
        if path is None:
            return None
        return [name_of(value) for value in self._values(self._column(run, path))]

    def _times_of(self, run: Any) -> list[float | None] | None:
        if self._time_path is None:
            return None
        pa, column = self._arrow, self._column(run, self._time_path)
        if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
            stamps = column.cast(pa.timestamp("us", getattr(column.type, "tz", None)), safe=False)
            seconds = stamps.cast(pa.int64()).to_pylist()
            return [None if each is None else in_range(each / 1e6) for each in seconds]
        return [event_time(value) for value in self._values(column)]

    def _records_of(self, run: Any) -> list[Record]:
        missing = Skipped(0, "missing-field")
        return [
            missing
            if value is None
            else value
            if len(value) <= self._max_bytes
            else Skipped(len(value), "too-long")
            for value in self._values(self._column(run, self._path))
        ]

    def _fill(self) -> None:
        with _damage_rejected(self._arrow):
            run = next(self._runs, None)
        if run is None:
            raise Rejected("broken-parquet")
        self.records.put(*run)
        self._ended = self.records.record + len(run[0]) >= self._n_rows

    def stored_bytes(self) -> int:
        """See `StoredRecords`."""
        return self._size * self.records.record // max(1, self._n_rows)

    def close(self) -> None:
        """See `StoredRecords`."""
        self._table.close()
        self._raw.close()


def row_groups(file: StoredFile) -> list[int]:
    """Return the rows of each row group of a file; none of one that is damaged."""
    arrow = _pyarrow()
    with closing(file.open()) as raw:
        try:
            with _damage_rejected(arrow):
                return _group_sizes(arrow.parquet.ParquetFile(raw, pre_buffer=False))
        except Rejected:
            return []


def _group_sizes(table: Any) -> list[int]:
    metadata = table.metadata
    return [int(metadata.row_group(n).num_rows) for n in range(metadata.num_row_groups)]


def _family(kind: str) -> str:
    return kind.rstrip("]").partition("[")[0].rstrip("0123456789") if "[" in kind else kind


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "parquet", "reading Parquet files") from error
    return pyarrow


@contextmanager
def _damage_rejected(arrow: Any) -> Iterator[None]:
    """Turn pyarrow's complaints about a file's content into `Rejected`."""
    try:
        yield
    except (arrow.ArrowException, OSError) as error:
        # Damaged pages raise a bare OSError; one that has a number comes from the system.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise Rejected("broken-parquet") from error
