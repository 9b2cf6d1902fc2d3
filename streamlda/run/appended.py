"""Topics of documents beside the columns of the table that they came from."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from streamlda.checks import require
from streamlda.model.table import in_line
from streamlda.model.topic_model import TopicModel
from streamlda.run.parts import file_options
from streamlda.run.proportions import Rows
from streamlda.settings.run_settings import RunSettings
from streamlda.stream.source import open_source

#: Words of a topic, and records that are read at a time.
WORDS, POLL_RECORDS = 5, 4096

#: Columns that are appended: the two largest topics, or the reason why there are none.
COLUMNS = (
    *("topic", "label", "words", "proportion", "second_topic", "second_proportion"),
    "reason",
)


class AppendedTable:
    """Writes the one table that the settings name, with columns of topics behind its own.

    The columns of a CSV file (or workbook) are written as CSV, in the memory of a poll; those of a
    Parquet file as Parquet with their types, in the memory of the table. A record that is rejected
    has no values of its own in CSV.
    """

    def __init__(self, settings: RunSettings, model: TopicModel, file: BinaryIO) -> None:
        files, source = settings.source.files, settings.source
        self._file = file
        require(
            len(files) == 1 and files[0] != "-",
            "columns can be appended to one file",
            files=len(files),
            remedy="name one file of CSV or Parquet, or leave --append out",
        )
        self._words = [in_line(word for word, _ in own) for own in model.top_words(WORDS)]
        names = zip(model.names, self._words, strict=True)
        self._labels = [name or words for name, words in names]
        self._arrow: Any = None
        self._columns: list[list[Any]] = [[] for _ in COLUMNS]
        is_parquet = Path(files[0]).suffix == ".parquet" and source.format == "auto"
        if is_parquet or source.format == "parquet":
            import pyarrow
            import pyarrow.parquet

            self._arrow, self._table = pyarrow, pyarrow.parquet.read_table(files[0])
            return
        self._rows = self._read_rows(settings)
        self._header = next((row for row in self._rows if row is not None), [])
        self._text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        self._lines = csv.writer(self._text, lineterminator="\n")
        self._lines.writerow([*self._header, *_rename(self._header)])

    @staticmethod
    def _read_rows(settings: RunSettings) -> Generator[list[str] | None]:
        """Yield the fields of all records, the header first; None of one without fields."""
        options = {**file_options(settings), "time_field": None, "id_field": None}
        source = open_source("files", list(settings.source.files), **options, as_rows=True)
        try:
            ended = False
            while not ended:
                batch = source.poll(POLL_RECORDS, 1.0)
                yield from (None if text is None else json.loads(text) for text in batch.texts)
                ended = batch.exhausted
        finally:
            source.close()

    def write(self, locations: Sequence[Any], found: Rows) -> None:
        """Write the records of a poll, whose two largest topics are in `found`."""
        for pairs, reason in zip(found.rows, found.reasons, strict=True):
            values = self._describe(pairs, reason)
            if self._arrow is not None:
                for column, value in zip(self._columns, values, strict=True):
                    column.append(value)
            else:
                row = next(self._rows) or [""] * len(self._header)
                self._lines.writerow([*row, *values])

    def _describe(self, pairs: Any, reason: str | None) -> list[Any]:
        if reason is not None:
            return [None] * (len(COLUMNS) - 1) + [reason]
        (topic, share), *others = pairs
        second = others[0] if others else (None, None)
        return [topic, self._labels[topic], self._words[topic], share, *second, None]

    def close(self) -> None:
        """Leave the file open, and the table."""
        if self._arrow is None:
            self._text.detach()
            self._rows.close()

    def finish(self) -> None:
        """Write what is left, once all records are written."""
        if self._arrow is None:
            return
        whole, text, share = self._arrow.int64(), self._arrow.string(), self._arrow.float64()
        types = (whole, text, text, share, whole, share, text)
        table = self._table.slice(0, len(self._columns[0]))
        for name, values, kind in zip(
            _rename(table.column_names), self._columns, types, strict=True
        ):
            table = table.append_column(name, self._arrow.array(values, kind))
        self._arrow.parquet.write_table(table, self._file)


def _rename(own: Sequence[str]) -> list[str]:
    """Return the names of the columns of topics, which differ from those of the table."""
    return [f"streamlda_{name}" if name in own else name for name in COLUMNS]
