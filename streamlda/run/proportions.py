"""Topic proportions as rows: of files in three formats, and of a topic of Kafka."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from streamlda.errors import MissingExtraError
from streamlda.text.encoding import UNREADABLE

if TYPE_CHECKING:
    from streamlda.storage.snapshots import NamedModel
    from streamlda.stream.source import RecordLocation

#: Decimals of a proportion in the output.
DECIMALS = 6

#: Formats of files, and the endings that stand for them.
FORMATS = ("jsonl", "csv", "parquet")


class Proportions(NamedTuple):
    """Tokens that the model knows, and a row for each document that is `readable`.

    A row has all proportions in the order of the topics, or pairs (topic, proportion) of the
    largest ones. The analyzer of the user failed on documents that are not readable.
    """

    tokens: list[int]
    rows: list[Any]
    readable: list[int]
    #: Documents whose text is empty.
    blank: frozenset[int] = frozenset()


class Rows(NamedTuple):
    """A row for each record: tokens and proportions, or None and the reason why there are none."""

    tokens: list[int | None]
    rows: list[Any]
    reasons: list[str | None]


#: Reasons of rows that no reject gives: a record without a text, and one whose proportions are
#: those of the prior.
BLANK, UNKNOWN = "blank", "no-known-word"


def spread(found: Proportions, reasons: Sequence[str | None]) -> Rows:
    """Return rows of all records, of which those without a reason are the documents of `found`."""
    known = dict(zip(found.readable, zip(found.tokens, found.rows, strict=True), strict=True))
    rows = Rows([], [], [])
    document = 0
    for reason in reasons:
        tokens, row = None, None
        if reason is None:
            tokens, row = known.get(document, (None, None))
            reason = UNREADABLE if tokens is None else UNKNOWN if tokens == 0 else None
            reason = BLANK if document in found.blank else reason
            document += 1
        rows.tokens.append(tokens)
        rows.rows.append(row)
        rows.reasons.append(reason)
    return rows


def infer(named: NamedModel, texts: Sequence[str], top: int | None) -> Proportions:
    """Return proportions of texts: all by topic, or the `top` largest as pairs."""
    encoded = named.words.encode(texts)
    has_row = np.ones(len(texts), dtype=np.bool_)
    has_row[list(encoded.unreadable)] = False
    batch, readable = encoded.batch.where(has_row), np.flatnonzero(has_row).tolist()
    theta = named.model.transform(batch)
    tokens: list[int] = batch.lengths.astype(int).tolist()
    rows = theta.round(DECIMALS).tolist()
    if top is not None:
        order = np.argsort(-theta, axis=1, kind="stable")[:, :top].tolist()
        rows = [[(k, row[k]) for k in best] for best, row in zip(order, rows, strict=True)]
    blank = frozenset(n for n, text in enumerate(texts) if not text.strip())
    return Proportions(tokens, rows, readable, blank)


class RowWriter:
    """Writes a row for each record to a file that is open: here a line of JSON."""

    def __init__(self, file: BinaryIO, n_topics: int, top: int | None, with_id: bool) -> None:
        self._file, self._n_topics = file, n_topics
        self._top = None if top is None else min(top, n_topics)
        self._columns = ["record", "location", *(["id"] if with_id else [])]
        self._columns += ["tokens", "reason", "topics"]

    def _rows(self, locations: Sequence[RecordLocation], found: Rows) -> Iterator[dict[str, Any]]:
        for at, tokens, topics, reason in zip(locations, *found, strict=True):
            row = {**at._asdict(), "tokens": tokens, "reason": reason, "topics": topics}
            yield {name: row[name] for name in self._columns}

    def write(self, locations: Sequence[RecordLocation], found: Rows) -> None:
        """Write the rows of documents; a slow pipe is answered poll by poll."""
        import orjson

        for row in self._rows(locations, found):
            self._file.write(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE))
        self._file.flush()

    def finish(self) -> None:
        """Write what belongs after the last row."""
        self._file.flush()


class Csv(RowWriter):
    """A line each, with a header; a column for each topic, or two for each of the largest."""

    def __init__(self, file: BinaryIO, n_topics: int, top: int | None, with_id: bool) -> None:
        super().__init__(file, n_topics, top, with_id)
        self._text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        self._lines = csv.writer(self._text, lineterminator="\n")
        topics = [f"topic_{k}" for k in range(n_topics)]
        if self._top is not None:
            ranks = range(1, self._top + 1)
            topics = [f"{name}_{rank}" for rank in ranks for name in ("topic", "proportion")]
        self._n_values = len(topics)
        self._lines.writerow([*self._columns[:-1], *topics])

    def write(self, locations: Sequence[RecordLocation], found: Rows) -> None:
        """Write the lines."""
        for row in self._rows(locations, found):
            topics = row.pop("topics")
            if topics is None:
                values = [None] * self._n_values
            else:
                values = topics if self._top is None else [each for pair in topics for each in pair]
            self._lines.writerow([*row.values(), *values])

    def finish(self) -> None:
        """Leave the file open."""
        self._text.detach().flush()


class Parquet(RowWriter):
    """A row group for each poll; ``topics`` is a list of all proportions, or of pairs."""

    def __init__(self, file: BinaryIO, n_topics: int, top: int | None, with_id: bool) -> None:
        super().__init__(file, n_topics, top, with_id)
        pyarrow = import_pyarrow()
        whole, text = pyarrow.int64(), pyarrow.string()
        pair = pyarrow.struct([("topic", pyarrow.int32()), ("proportion", pyarrow.float64())])
        topics = pyarrow.list_(pyarrow.float64() if top is None else pair)
        types = {"record": whole, "location": text, "id": text, "tokens": whole}
        types |= {"reason": text, "topics": topics}
        self._schema = pyarrow.schema([(name, types[name]) for name in self._columns])
        self._make_table = pyarrow.Table.from_pylist
        self._groups = pyarrow.parquet.ParquetWriter(file, self._schema)

    def write(self, locations: Sequence[RecordLocation], found: Rows) -> None:
        """Write a row group."""
        rows = list(self._rows(locations, found))
        for row in rows if self._top is not None else ():
            if row["topics"] is not None:
                row["topics"] = [{"topic": k, "proportion": share} for k, share in row["topics"]]
        self._groups.write_table(self._make_table(rows, schema=self._schema))

    def finish(self) -> None:
        """Write the footer."""
        self._groups.close()
        super().finish()


WRITERS: dict[str, type[RowWriter]] = dict(zip(FORMATS, (RowWriter, Csv, Parquet), strict=True))


def write_columns(file: BinaryIO, format: str, columns: dict[str, list[Any]]) -> None:
    """Write a table of columns to a file that is open."""
    rows = zip(*columns.values(), strict=True)
    if format == "jsonl":
        import orjson

        for row in rows:
            named = dict(zip(columns, row, strict=True))
            file.write(orjson.dumps(named, option=orjson.OPT_APPEND_NEWLINE))
    elif format == "csv":
        text = io.TextIOWrapper(file, "utf-8", newline="", write_through=True)
        csv.writer(text, lineterminator="\n").writerows([list(columns), *rows])
        text.detach()
    else:
        import_pyarrow().parquet.write_table(import_pyarrow().table(columns), file)


def import_pyarrow() -> Any:
    """Return the package that writes Parquet, or raise `MissingExtraError`."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise MissingExtraError("pyarrow", "parquet", "writing Parquet") from error
    return pyarrow


def guess_format(path: str) -> str:
    """Return the format that the ending of a file stands for: JSON Lines where it is no other."""
    ending = Path(path).suffix.lower().removeprefix(".")
    return ending if ending in FORMATS else "jsonl"
