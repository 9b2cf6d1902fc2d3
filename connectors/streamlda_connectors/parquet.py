"""Parquet files as blocks of JSON Lines: an object for each row, with the columns that are read."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from importlib import import_module
from typing import Any

import orjson

from streamlda.stream.event_time import TimeReader
from streamlda.stream.listing import StoredFile
from streamlda_connectors.checks import check, import_extra
from streamlda_connectors.records import MissingColumn, ReadOptions, Rejection, read_name

#: Parquet rows are read in runs of about this many bytes of text, as far as the file tells.
PARQUET_RUN_BYTES = 4 * 2**20
PARQUET_RUN_ROWS = 4096

#: Types of columns that hold text.
_TEXT = {"string", "large_string", "string_view", "binary", "large_binary", "binary_view"}


class ParquetBlocks:
    """The rows of one open file from `row` on, a bounded run of them at a time."""

    #: As of a `BlockReader`.
    begin = 0

    def __init__(self, file: StoredFile, options: ReadOptions, row: int) -> None:
        self._arrow = _import_pyarrow()
        self._size, self._raw = file.size or 0, file.open()
        try:
            with _reject_damage(self._arrow):
                self._table = self._arrow.parquet.ParquetFile(
                    self._raw, pre_buffer=False, buffer_size=2**20
                )
            sizes = _count_rows(self._table)
            first, last = file.part or (0, len(sizes))
            self._groups = range(len(sizes))[first:last]
            self._row, self._n_rows = row, sum(sizes[first:last])
            self._columns = self._find_columns(options)
            check(row <= self._n_rows, "shorter", name=file.name, rows=self._n_rows, rows_read=row)
        except BaseException:
            self._raw.close()
            raise
        self._runs = self._read_runs(row)

    def _find_columns(self, options: ReadOptions) -> list[str]:
        """Return the columns to read, or raise `MissingColumn`; say how times are read."""
        schema = self._flatten(self._table.schema_arrow.empty_table()).schema
        # Of dictionaries, and of lists of words.
        types = {each.name: str(getattr(each.type, "value_type", each.type)) for each in schema}
        whole = options.text_field in types
        self._texts = [options.text_field] if whole else options.text_fields
        if not {types.get(name) for name in self._texts} <= _TEXT:
            there = set(self._texts) <= types.keys()
            raise MissingColumn("not-text" if there else "missing-column", list(types))
        #: Dates and timestamps need no form.
        is_dated = types.get(options.time_field or "", "").startswith(("date", "timestamp"))
        self.options = replace(options, read_time=TimeReader()) if is_dated else options
        self.notes = [*options.describe_columns(list(types))]
        names = (*self._texts, options.user_field, options.time_field, options.id_field)
        return [name for name in dict.fromkeys(names) if name is not None and name in types]

    def _flatten(self, table: Any) -> Any:
        """Return a table with fields of structs as columns, `a.b`."""
        while any(map(self._arrow.types.is_struct, table.schema.types)):
            table = table.flatten()
        return table

    def _read_runs(self, row: int) -> Iterator[bytes]:
        """Yield lines from `row` on; runs start at fixed rows, wherever reading resumes."""
        columns = self._columns
        for group in self._groups:
            info = self._table.metadata.row_group(group)
            if row >= info.num_rows:
                row -= info.num_rows
                continue
            chunks = map(info.column, range(info.num_columns))
            stored = sum(c.total_uncompressed_size for c in chunks if c.path_in_schema in columns)
            rows = max(1, min(PARQUET_RUN_ROWS, PARQUET_RUN_BYTES * info.num_rows // (stored + 1)))
            for run in self._table.iter_batches(rows, row_groups=[group], columns=columns):
                kept = run.slice(min(row, run.num_rows))
                row -= run.num_rows - kept.num_rows
                table = self._flatten(self._arrow.Table.from_batches([kept]))
                values = [self._read_values(table, name) for name in columns]
                self._row += kept.num_rows
                yield b"".join(
                    _write_line(dict(zip(columns, each, strict=True)))
                    for each in zip(*values, strict=True)
                )

    def _read_values(self, table: Any, name: str) -> list[Any]:
        arrow, types = self._arrow, self._arrow.types
        column = table.column(table.schema.names.index(name))
        if types.is_timestamp(column.type) and column.type.tz is not None:
            column = column.cast(arrow.timestamp(column.type.unit, "UTC"))
        if types.is_timestamp(column.type) or types.is_date(column.type):
            # Python has no dates beyond the year 9999.
            column = column.cast(arrow.string())
        elif types.is_string(column.type) or types.is_large_string(column.type):
            # As bytes, one value that is not UTF-8 does not spoil its run.
            column = column.cast(arrow.large_binary())
        values: list[Any] = column.to_pylist()
        if name in self._texts:
            return values
        return [read_name(value) if type(value) is bytes else value for value in values]

    def read(self) -> bytes:
        """Return the lines of the next run, none at the end; raise `Rejection` at damage."""
        with _reject_damage(self._arrow):
            return next(filter(None, self._runs), b"")

    def count_bytes(self) -> int:
        """Return how many bytes of the file were read, in proportion to the rows."""
        return self._size * self._row // max(1, self._n_rows)

    def close(self) -> None:
        """Close the file."""
        self._table.close()
        self._raw.close()


def _write_line(row: dict[str, Any]) -> bytes:
    try:
        text = orjson.dumps(row, default=lambda v: v.decode() if type(v) is bytes else str(v))
        return text + b"\n"
    except orjson.JSONEncodeError:
        # A line that is not UTF-8 is rejected as one.
        return b"\xff\n"


def count_group_rows(file: StoredFile) -> list[int]:
    """Return the rows of each row group of a file; none of one that is damaged."""
    arrow = _import_pyarrow()
    with closing(file.open()) as raw:
        try:
            with _reject_damage(arrow):
                return _count_rows(arrow.parquet.ParquetFile(raw, pre_buffer=False))
        except Rejection:
            return []


def _count_rows(table: Any) -> list[int]:
    metadata = table.metadata
    return [int(metadata.row_group(n).num_rows) for n in range(metadata.num_row_groups)]


def _import_pyarrow() -> Any:
    found = import_extra("pyarrow", "parquet", "reading Parquet files")
    import_module("pyarrow.parquet")
    return found


@contextmanager
def _reject_damage(arrow: Any) -> Iterator[None]:
    """Turn pyarrow's complaints about a file's content into `Rejection`."""
    try:
        yield
    except (arrow.ArrowException, OSError, UnicodeError) as error:
        # Damaged pages raise a bare OSError; one that has a number comes from the system.
        if isinstance(error, OSError) and error.errno is not None:
            raise
        raise Rejection("broken-parquet") from error
