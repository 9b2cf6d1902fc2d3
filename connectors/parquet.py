"""One column of a Parquet file as a run of documents."""

from __future__ import annotations

from collections.abc import Iterator
from types import TracebackType
from typing import Any

from connectors.lines import decoder
from connectors.listing import StoredFile
from connectors.records import (
    Batch,
    MissingColumn,
    ReadOptions,
    Record,
    RecordQueue,
    Rejected,
    Skipped,
)
from streamlda.errors import MissingExtraError, SourceError
from streamlda.source import Reject

#: Parquet rows are read in runs of about this many bytes of text, as far as the file tells.
PARQUET_RUN_BYTES = 4 * 2**20
PARQUET_RUN_ROWS = 4096


class ParquetReader:
    """Reads one column of a Parquet file, a bounded run of rows at a time.

    Memory: a run of rows and the buffers of one column chunk's pages.

    Parameters
    ----------
    file, options, record
        As in `open_reader`.

    Raises
    ------
    MissingExtraError
        If pyarrow is not installed.
    Rejected
        If the footer is broken or does not name a column of text.
    SourceError
        If the file has fewer rows than were read of it.
    """

    offset = 0

    def __init__(self, file: StoredFile, options: ReadOptions, record: int) -> None:
        self._arrow = _pyarrow()
        self._file = file
        self._max_bytes = options.max_document_bytes
        self._raw = file.open()
        try:
            with _DamageRejected(self._arrow):
                self._table = self._arrow.parquet.ParquetFile(
                    self._raw, pre_buffer=False, buffer_size=2**20
                )
            self._n_rows = int(self._table.metadata.num_rows)
            self._path = self._find_column(options.text_field)
            if record > self._n_rows:
                raise SourceError(
                    f"a file must still hold what was read of it, got name={file.name!r} with "
                    f"rows={self._n_rows} and a position after row={record}; restore it or "
                    "start anew"
                )
        except BaseException:
            self._raw.close()
            raise
        self._records = RecordQueue(file.name, decoder("utf-8"), record)
        self._runs = self._read_runs(record)

    def _find_column(self, text_field: str) -> list[str]:
        types = self._arrow.types
        schema = self._table.schema_arrow
        path = [text_field] if text_field in schema.names else text_field.split(".")
        kind: Any = schema
        for name in path:
            # A list has fields too, but only a struct has one value of each in a row.
            nested = kind is schema or types.is_struct(kind)
            if not nested or name not in [field.name for field in kind]:
                raise MissingColumn("missing-column", list(schema.names))
            kind = kind.field(name).type
        if types.is_dictionary(kind):
            kind = kind.value_type
        text = ("string", "large_string", "string_view", "binary", "large_binary", "binary_view")
        if str(kind) not in text:
            raise MissingColumn("not-text", list(schema.names))
        return path

    def _read_runs(self, row: int) -> Iterator[list[Record]]:
        """Yield the values from `row` on.

        Runs start at fixed rows of each row group, wherever reading goes on, so that damage is
        met at the same record.
        """
        metadata = self._table.metadata
        for group in range(metadata.num_row_groups):
            info = metadata.row_group(group)
            if row >= info.num_rows:
                row -= info.num_rows
                continue
            stored = sum(
                info.column(i).total_uncompressed_size
                for i in range(info.num_columns)
                if info.column(i).path_in_schema == ".".join(self._path)
            )
            rows = max(1, min(PARQUET_RUN_ROWS, PARQUET_RUN_BYTES * info.num_rows // (stored + 1)))
            for run in self._table.iter_batches(
                batch_size=rows, row_groups=[group], columns=[".".join(self._path)]
            ):
                dropped = min(row, run.num_rows)
                row -= dropped
                yield self._values(run.slice(dropped))

    def _values(self, run: Any) -> list[Record]:
        pa = self._arrow
        column = run.column(0)
        if len(self._path) > 1:
            column = pa.compute.struct_field(column, self._path[1:])
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        missing = Skipped(0, "missing-field")
        # As bytes, one value that is not UTF-8 does not spoil its run.
        return [
            missing
            if value is None
            else value
            if len(value) <= self._max_bytes
            else Skipped(len(value), "too-long")
            for value in column.cast(pa.large_binary()).to_pylist()
        ]

    @property
    def record(self) -> int:
        """Rows handed out."""
        return self._records.record

    def take(self, batch: Batch) -> bool:
        """Add documents to `batch`; return whether the file has ended."""
        while True:
            self._records.take(batch)
            if self._records.empty and self.record >= self._n_rows:
                return True
            if batch.full or (batch.late and batch.blocks):
                return False
            batch.blocks += 1
            try:
                with _DamageRejected(self._arrow):
                    run = next(self._runs, None)
            except Rejected as rejected:
                batch.rejects.append(Reject(self._file.name, self.record + 1, rejected.reason))
                return True
            if run is None:
                batch.rejects.append(Reject(self._file.name, self.record + 1, "broken-parquet"))
                return True
            self._records.put(run)

    def stored_bytes(self) -> int:
        """Return the part of the file's bytes that its rows read so far make up."""
        return (self._file.size or 0) * self.record // max(1, self._n_rows)

    def close(self) -> None:
        """Close the file."""
        self._table.close()
        self._raw.close()


def _pyarrow() -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "parquet", "reading Parquet files") from error
    return pyarrow


class _DamageRejected:
    """Turns pyarrow's complaints about a file's content into `Rejected`."""

    def __init__(self, arrow: Any) -> None:
        self._damage = arrow.ArrowException

    def __enter__(self) -> None:
        return None

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        # Damaged pages raise a bare OSError; one that has a number comes from the system.
        damaged = isinstance(error, self._damage) or (
            isinstance(error, OSError) and error.errno is None
        )
        if damaged:
            raise Rejected("broken-parquet") from error
