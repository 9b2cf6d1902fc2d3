"""Topic proportions of documents as tables: rows in three formats, or columns appended."""

import csv
import io
import json
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import orjson

from streamlda.errors import MissingExtraError
from streamlda.model.document_table import DECIMALS, UNREADABLE, encode_texts
from streamlda.model.topic_model import TopicModel
from streamlda.run.parts import FAULTS, file_options
from streamlda.settings.table import RunSettings
from streamlda.storage.snapshots import NamedModel
from streamlda.stream.source import RecordBatch, RecordLocation, open_source

#: Formats of files, and the endings that stand for them.
FORMATS = ("jsonl", "csv", "parquet")

#: Words of a topic, and records that are read at a time, where columns are appended.
WORDS, POLL_RECORDS = 5, 4096


class Rows(NamedTuple):
    """Tokens and proportions of each record, or None, and the reason why it has no own topics.

    Proportions are those of all topics in order, or pairs (topic, proportion) of the largest.
    """

    tokens: list[int | None]
    rows: list[Any]
    reasons: list[str | None]


def infer(model: NamedModel, texts: Sequence[str], top: int | None) -> Rows:
    """Return proportions of texts: all by topic, or the `top` largest as pairs."""
    batch, reasons = encode_texts(model.model, texts)
    theta = model.model.transform(batch)
    rows: list[Any] = theta.round(DECIMALS).tolist()
    if top is not None:
        order = np.argsort(-theta, axis=1, kind="stable")[:, :top].tolist()
        rows = [[(k, row[k]) for k in best] for best, row in zip(order, rows, strict=True)]
    tokens: list[int | None] = batch.lengths.astype(int).tolist()
    for i, why in enumerate(reasons):
        if why == UNREADABLE:
            tokens[i], rows[i] = None, None
    return Rows(tokens, rows, reasons)


def spread(rows: Rows, reasons: Sequence[str | None]) -> Rows:
    """Return rows of all records: `rows` for records without a reason, and nothing for the rest."""
    documents = zip(*rows, strict=True)
    each = (next(documents) if why is None else (None, None, why) for why in reasons)
    return Rows(*map(list, zip(*each, strict=True))) if reasons else Rows([], [], [])


def write_csv(file: BinaryIO, rows: Iterable[Iterable[Any]], delimiter: str = ",") -> None:
    """Write rows; a slow pipe is answered poll by poll."""
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n", delimiter=delimiter).writerows(rows)
    file.write(text.getvalue().encode("utf-8"))
    file.flush()


class RowWriter:
    """Writes a row for each record: where it is, and its topics or why there are none.

    CSV has a column for each topic, or two for each of the largest; ``topics`` of other formats is
    a list of all proportions, or of pairs. The file, which is open, stays open.
    """

    def __init__(
        self, file: BinaryIO, format: str, n_topics: int, top: int | None, with_id: bool
    ) -> None:
        self._file, self._format = file, format
        self._parquet: Any = None
        ids, topics = ["id"] if with_id else [], ["topics"]
        if format == "csv" and top is None:
            topics = [f"topic_{k}" for k in range(n_topics)]
        elif format == "csv":
            ranks = range(1, min(top or 0, n_topics) + 1)
            topics = [f"{name}_{rank}" for rank in ranks for name in ("topic", "proportion")]
        self._n_ids, self._blanks, self._pairs = len(ids), [None] * len(topics), top is not None
        self._names = ["record", "location", *ids, "tokens", "reason", *topics]
        if format == "csv":
            write_csv(file, [self._names])
        if format == "parquet":
            try:
                import pyarrow as arrow
                from pyarrow.parquet import ParquetWriter
            except ImportError as error:
                raise MissingExtraError("pyarrow", "parquet", "writing Parquet") from error
            pair = arrow.struct([("topic", arrow.int32()), ("proportion", arrow.float64())])
            whole, topic = arrow.int64(), pair if self._pairs else arrow.float64()
            types = {"record": whole, "tokens": whole, "topics": arrow.list_(topic)}
            schema = arrow.schema([(n, types.get(n, arrow.string())) for n in self._names])
            self._parquet = ParquetWriter(file, schema)
            self._table_of = partial(arrow.Table.from_pylist, schema=schema)

    def add(self, locations: Sequence[RecordLocation], found: Rows) -> list[str | None]:
        """Write the records of a poll; return why they have no topics."""
        rows = [
            [at.record, at.location, *[at.id] * self._n_ids, n, why, *self._list(topics)]
            for at, n, topics, why in zip(locations, *found, strict=True)
        ]
        if self._format == "csv":
            write_csv(self._file, rows)
            return found.reasons
        named = [dict(zip(self._names, row, strict=True)) for row in rows]
        if self._parquet is not None:
            self._parquet.write_table(self._table_of(named))
        else:
            self._file.writelines(orjson.dumps(r, option=orjson.OPT_APPEND_NEWLINE) for r in named)
        self._file.flush()
        return found.reasons

    def _list(self, topics: Any) -> Iterable[Any]:
        if self._format != "csv":
            return [topics]
        if topics is None:
            return self._blanks
        return chain.from_iterable(topics) if self._pairs else topics

    def close(self) -> None:
        """Write the end of the table."""
        if self._parquet is not None:
            self._parquet.close()


class AppendedTable:
    """Writes the one table that the settings name, with `TopicModel.document_table` behind it.

    The columns of a CSV file (or workbook) are written as CSV with its delimiter, in the memory of
    a poll. A record that is rejected has no values of its own.
    """

    def __init__(self, settings: RunSettings, model: TopicModel, file: BinaryIO) -> None:
        files = settings.source.files
        FAULTS.check(len(files) == 1 and files[0] != "-", "one file", files=len(files))
        self._model, self._rows = model, _read_rows(settings)
        self._delimiter, *header = next((row for row in self._rows if row is not None), [","])
        own = model.document_table([], n_words=WORDS, form="dict")
        names = [f"streamlda_{name}" if name in header else name for name in own]
        self._blanks, self._file = [""] * (1 + len(header)), file
        write_csv(file, [[*header, *names]], self._delimiter)

    def add(self, texts: Sequence[str], reasons: Sequence[str | None]) -> list[str | None]:
        """Write the records of a poll; return why its texts have no topics."""
        found = self._model.document_table(texts, n_words=WORDS, form="dict")
        each, blanks = zip(*found.values(), strict=True), [None] * (len(found) - 1)
        rows = [next(each) if why is None else (*blanks, why) for why in reasons]
        joined = ([*(next(self._rows) or self._blanks)[1:], *row] for row in rows)
        write_csv(self._file, joined, self._delimiter)
        why: list[str | None] = found["reason"]
        return why

    def close(self) -> None:
        """Close the source, once all records are written; the file stays open."""
        self._rows.close()


def _read_rows(settings: RunSettings) -> Generator[list[str] | None]:
    """Yield delimiter and fields of all records, the header first; None of one without fields."""
    options = {**file_options(settings), "time_field": None, "id_field": None, "as_rows": True}
    with closing(open_source("files", list(settings.source.files), **options)) as source:
        batch = RecordBatch()
        while not batch.exhausted:
            batch = source.poll(POLL_RECORDS)
            yield from (None if text is None else json.loads(text) for text in batch.texts)
