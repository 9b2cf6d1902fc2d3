"""Topic proportions of documents as tables: rows in three formats, or columns appended."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from streamlda.errors import MissingExtraError, require
from streamlda.model.document_table import BLANK, DECIMALS, UNKNOWN, UNREADABLE
from streamlda.run.parts import file_options
from streamlda.stream.source import RecordBatch, open_source

if TYPE_CHECKING:
    from streamlda.model.topic_model import TopicModel
    from streamlda.settings.run_settings import RunSettings
    from streamlda.storage.snapshots import NamedModel
    from streamlda.stream.source import RecordLocation

#: Formats of files, and the endings that stand for them.
FORMATS = ("jsonl", "csv", "parquet")

#: Words of a topic, and records that are read at a time, where columns are appended.
WORDS, POLL_RECORDS = 5, 4096

#: Types of columns in Parquet, but for text.
TYPES = {
    **dict.fromkeys(("record", "tokens", "topic", "second_topic", "documents"), "int64"),
    **dict.fromkeys(("share", "proportion", "second_proportion"), "float64"),
}


class Rows(NamedTuple):
    """Tokens and proportions of each record, or None, and the reason why it has no own topics.

    Proportions are those of all topics in order, or pairs (topic, proportion) of the largest.
    """

    tokens: list[int | None]
    rows: list[Any]
    reasons: list[str | None]


def infer(named: NamedModel, texts: Sequence[str], top: int | None) -> Rows:
    """Return proportions of texts: all by topic, or the `top` largest as pairs."""
    encoded = named.words.encode(texts)
    theta = named.model.transform(encoded.batch)
    rows: list[Any] = theta.round(DECIMALS).tolist()
    if top is not None:
        order = np.argsort(-theta, axis=1, kind="stable")[:, :top].tolist()
        rows = [[(k, row[k]) for k in best] for best, row in zip(order, rows, strict=True)]
    tokens: list[int | None] = encoded.batch.lengths.astype(int).tolist()
    reasons: list[str | None] = [None if n else UNKNOWN for n in tokens]
    for i, text in enumerate(texts):
        if i in encoded.unreadable:
            tokens[i], rows[i], reasons[i] = None, None, UNREADABLE
        elif not text.strip():
            reasons[i] = BLANK
    return Rows(tokens, rows, reasons)


def spread(found: Rows, reasons: Sequence[str | None]) -> Rows:
    """Return rows of all records, of which those without a reason are the documents of `found`."""
    documents = zip(*found, strict=True)
    each = (next(documents) if why is None else (None, None, why) for why in reasons)
    return Rows(*map(list, zip(*each, strict=True))) if reasons else Rows([], [], [])


class TableWriter:
    """Writes rows of named columns to a file that is open, poll by poll."""

    def __init__(
        self, file: BinaryIO, format: str, names: Sequence[str], *, pairs: bool = False
    ) -> None:
        self._file, self._format, self._names = file, format, names
        self._arrow: Any = None
        if format == "csv":
            self.write([names])
        if format == "parquet":
            self._arrow = arrow = import_pyarrow()
            pair = arrow.struct([("topic", arrow.int32()), ("proportion", arrow.float64())])
            types = {"topics": arrow.list_(pair if pairs else arrow.float64())}
            schema = arrow.schema([(n, types.get(n, TYPES.get(n, "string"))) for n in names])
            self._groups = arrow.parquet.ParquetWriter(file, schema)

    def write(self, rows: Iterable[Sequence[Any]]) -> None:
        """Write rows; a slow pipe is answered poll by poll."""
        if self._format == "csv":
            text = io.StringIO(newline="")
            csv.writer(text, lineterminator="\n").writerows(rows)
            self._file.write(text.getvalue().encode("utf-8"))
        elif self._arrow is None:
            import orjson

            for row in rows:
                named = dict(zip(self._names, row, strict=True))
                self._file.write(orjson.dumps(named, option=orjson.OPT_APPEND_NEWLINE))
        else:
            columns = [*zip(*rows, strict=True)] or [()] * len(self._names)
            typed = map(self._arrow.array, columns, self._groups.schema.types)
            table = self._arrow.Table.from_arrays([*typed], schema=self._groups.schema)
            self._groups.write_table(table)
        self._file.flush()

    def close(self) -> None:
        """Write what belongs after the last row; the file stays open."""
        if self._arrow is not None:
            self._groups.close()


class RowWriter(TableWriter):
    """Writes a row for each record: where it is, and its topics or why there are none.

    CSV has a column for each topic, or two for each of the largest; ``topics`` of other formats is
    a list of all proportions, or of pairs.
    """

    def __init__(
        self, file: BinaryIO, format: str, n_topics: int, top: int | None, with_id: bool
    ) -> None:
        ids, topics = ["id"] if with_id else [], ["topics"]
        if format == "csv" and top is None:
            topics = [f"topic_{k}" for k in range(n_topics)]
        elif format == "csv":
            ranks = range(1, min(top or 0, n_topics) + 1)
            topics = [f"{name}_{rank}" for rank in ranks for name in ("topic", "proportion")]
        self._n_ids, self._blanks, self._pairs = len(ids), [None] * len(topics), top is not None
        names = ["record", "location", *ids, "tokens", "reason", *topics]
        super().__init__(file, format, names, pairs=self._pairs)

    def add(self, locations: Sequence[RecordLocation], found: Rows) -> list[str | None]:
        """Write the records of a poll; return why they have no topics."""
        self.write(
            [at.record, at.location, *[at.id] * self._n_ids, n, why, *self._list(topics)]
            for at, n, topics, why in zip(locations, *found, strict=True)
        )
        return found.reasons

    def _list(self, topics: Any) -> Iterable[Any]:
        if self._format != "csv":
            return [topics]
        if topics is None:
            return self._blanks
        return chain.from_iterable(topics) if self._pairs else topics


class AppendedTable:
    """Writes the one table that the settings name, with `TopicModel.document_table` behind it.

    The columns of a CSV file (or workbook) are written as CSV, in the memory of a poll; those of a
    Parquet file as Parquet with their types, in the memory of the table. A record that is rejected
    has no values of its own in CSV.
    """

    def __init__(self, settings: RunSettings, model: TopicModel, file: BinaryIO) -> None:
        files, source = settings.source.files, settings.source
        require(
            len(files) == 1 and files[0] != "-",
            "columns can be appended to one file",
            files=len(files),
            remedy="name one file of CSV or Parquet, or leave --append out",
        )
        self._model, self._file, self._arrow = model, file, None
        self._names = list(model.document_table([], n_words=WORDS, form="dict"))
        is_parquet = Path(files[0]).suffix.lower() == ".parquet" and source.format == "auto"
        if is_parquet or source.format == "parquet":
            self._arrow, self._found = import_pyarrow(), list[tuple[Any, ...]]()
            self._own = self._arrow.parquet.read_table(files[0])
            return
        self._rows = _read_rows(settings)
        header = next((row for row in self._rows if row is not None), [])
        self._blanks = [""] * len(header)
        self._table = TableWriter(file, "csv", [*header, *self._rename(header)])

    def _rename(self, own: Sequence[str]) -> list[str]:
        """Return the names of the columns of topics, which differ from those of the table."""
        return [f"streamlda_{name}" if name in own else name for name in self._names]

    def add(self, texts: Sequence[str], reasons: Sequence[str | None]) -> list[str | None]:
        """Write the records of a poll; return why its texts have no topics."""
        found = self._model.document_table(texts, n_words=WORDS, form="dict")
        each, blanks = zip(*found.values(), strict=True), [None] * (len(found) - 1)
        rows = [next(each) if why is None else (*blanks, why) for why in reasons]
        if self._arrow is not None:
            self._found += rows
        else:
            self._table.write([*(next(self._rows) or self._blanks), *row] for row in rows)
        why: list[str | None] = found["reason"]
        return why

    def close(self) -> None:
        """Write what is left, once all records are written; the file stays open."""
        if self._arrow is None:
            self._rows.close()
            return
        table = self._own.slice(0, len(self._found))
        columns = [*zip(*self._found, strict=True)] or [()] * len(self._names)
        names = zip(self._names, self._rename(table.column_names), columns, strict=True)
        for name, renamed, values in names:
            values = self._arrow.array(values, TYPES.get(name, "string"))
            table = table.append_column(renamed, values)
        self._arrow.parquet.write_table(table, self._file)


def _read_rows(settings: RunSettings) -> Generator[list[str] | None]:
    """Yield the fields of all records, the header first; None of one without fields."""
    options = {**file_options(settings), "time_field": None, "id_field": None, "as_rows": True}
    with closing(open_source("files", list(settings.source.files), **options)) as source:
        batch = RecordBatch()
        while not batch.exhausted:
            batch = source.poll(POLL_RECORDS)
            yield from (None if text is None else json.loads(text) for text in batch.texts)


def import_pyarrow() -> Any:
    """Return the package that writes Parquet, or raise `MissingExtraError`."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "parquet", "writing Parquet") from error
    return pyarrow
