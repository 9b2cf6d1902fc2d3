"""Topic proportions as rows: of files in three formats, and of a topic of Kafka."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from streamlda.container import whole_file
from streamlda.errors import MissingExtraError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streamlda.storage.newest import NamedModel
    from streamlda.stream.source import RecordLocation

#: Decimals of a proportion in the output.
DECIMALS = 6

#: Formats of files, and the endings that stand for them.
FORMATS = ("jsonl", "csv", "parquet")


class Proportions(NamedTuple):
    """Of documents: tokens that the model knows, and a row each.

    `readable` are those that have a row: all but what the analyzer of the user failed on.
    `topics` (n, K) has all proportions in order, `ranked` of the largest ones pairs (topic,
    proportion); one of them is None.
    """

    tokens: list[int]
    topics: NDArray[np.float64] | None
    ranked: list[list[tuple[int, float]]] | None
    readable: list[int]

    @property
    def rows(self) -> list[Any]:
        """As plain values."""
        if self.topics is None:
            assert self.ranked is not None
            return self.ranked
        rows: list[Any] = self.topics.tolist()
        return rows


def infer(named: NamedModel, texts: Sequence[str], top: int | None) -> Proportions:
    """Return proportions of texts: all in the order of the topics, or the `top` largest as pairs.

    A text without a known word has those of the prior.
    """
    encoded = named.words.encode(texts)
    has_row = np.ones(len(texts), dtype=np.bool_)
    has_row[list(encoded.unreadable)] = False
    batch, readable = encoded.batch.where(has_row), np.flatnonzero(has_row).tolist()
    theta = named.model.transform(batch)
    tokens: list[int] = batch.lengths.astype(int).tolist()
    rounded = theta.round(DECIMALS)
    if top is None:
        return Proportions(tokens, rounded, None, readable)
    order = np.argsort(-theta, axis=1, kind="stable")[:, :top]
    values = np.take_along_axis(rounded, order, axis=1).tolist()
    pairs = zip(order.tolist(), values, strict=True)
    ranked = [list(zip(*pair, strict=True)) for pair in pairs]
    return Proportions(tokens, None, ranked, readable)


class RowWriter:
    """Writes a row for each document to a file that is open: here a line of JSON."""

    def __init__(self, file: BinaryIO, n_topics: int, top: int | None, with_id: bool) -> None:
        self._file, self._with_id = file, with_id
        self._n_topics, self._top = n_topics, None if top is None else min(top, n_topics)

    def write(self, locations: Sequence[RecordLocation], found: Proportions) -> None:
        """Write the rows of documents; a slow pipe is answered poll by poll."""
        import orjson

        for at, tokens, row in zip(locations, found.tokens, found.rows, strict=True):
            line = {
                "record": at.record,
                "location": at.location,
                **({"id": at.id} if self._with_id else {}),
                "tokens": tokens,
                "topics": row,
            }
            self._file.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
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
        if self._top is None:
            columns = [f"topic_{k}" for k in range(n_topics)]
        else:
            ranks = range(1, self._top + 1)
            columns = [f"{name}_{rank}" for rank in ranks for name in ("topic", "proportion")]
        ids = ["id"] if with_id else []
        self._lines.writerow(["record", "location", *ids, "tokens", *columns])

    def write(self, locations: Sequence[RecordLocation], found: Proportions) -> None:
        """Write the lines."""
        for at, tokens, row in zip(locations, found.tokens, found.rows, strict=True):
            values = row if self._top is None else [value for pair in row for value in pair]
            ids = [at.id] if self._with_id else []
            self._lines.writerow([at.record, at.location, *ids, tokens, *values])

    def finish(self) -> None:
        """Leave the file open."""
        self._text.detach().flush()


class Parquet(RowWriter):
    """A row group for each poll; ``topics`` is a list of all proportions, or of pairs."""

    def __init__(self, file: BinaryIO, n_topics: int, top: int | None, with_id: bool) -> None:
        super().__init__(file, n_topics, top, with_id)
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError as error:
            raise MissingExtraError("pyarrow", "parquet", "writing Parquet") from error
        self._arrow = pyarrow
        pair = pyarrow.struct([("topic", pyarrow.int32()), ("proportion", pyarrow.float64())])
        self._of_topics = pyarrow.list_(pyarrow.float64() if top is None else pair)
        ids = [("id", pyarrow.string())] if with_id else []
        self._schema = pyarrow.schema(
            [
                *(("record", pyarrow.int64()), ("location", pyarrow.string()), *ids),
                *(("tokens", pyarrow.int64()), ("topics", self._of_topics)),
            ]
        )
        self._groups = pyarrow.parquet.ParquetWriter(file, self._schema)

    def write(self, locations: Sequence[RecordLocation], found: Proportions) -> None:
        """Write a row group."""
        rows = found.rows
        if self._top is not None:
            names = ("topic", "proportion")
            rows = [[dict(zip(names, pair, strict=True)) for pair in row] for row in rows]
        columns = [[at.record for at in locations], [at.location for at in locations]]
        columns += [[at.id for at in locations]] if self._with_id else []
        table = self._arrow.table([*columns, found.tokens, rows], schema=self._schema)
        self._groups.write_table(table)

    def finish(self) -> None:
        """Write the footer."""
        self._groups.close()
        super().finish()


WRITERS: dict[str, type[RowWriter]] = dict(zip(FORMATS, (RowWriter, Csv, Parquet), strict=True))


def guess_format(path: str) -> str:
    """Return the format that the ending of a file stands for: JSON Lines where it is no other."""
    ending = Path(path).suffix.lower().removeprefix(".")
    return ending if ending in FORMATS else "jsonl"


@contextmanager
def whole_rows(path: str, format: str, *shape: Any) -> Iterator[RowWriter]:
    """Open a file for rows that takes its name once all are written; `shape` as of a writer."""
    with whole_file(path) as file:
        writer = WRITERS[format](file, *shape)
        try:
            yield writer
        finally:
            writer.finish()
