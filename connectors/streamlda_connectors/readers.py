"""Readers of one stored file, by its format."""

from __future__ import annotations

from contextlib import closing
from functools import partial
from itertools import accumulate, pairwise

from streamlda.stream.listing import FilePart, StoredFile
from streamlda_connectors.checks import fault
from streamlda_connectors.compressed import BlockReader
from streamlda_connectors.csv_files import open_csv
from streamlda_connectors.json_files import open_json
from streamlda_connectors.lines import (
    LineSplitter,
    RecordStream,
    WholeSplitter,
    json_parser,
    parse_text,
)
from streamlda_connectors.options import ReadOptions
from streamlda_connectors.parquet import ParquetReader, count_group_rows
from streamlda_connectors.records import MissingColumn, Parser, Rejected, StoredRecords


def open_reader(file: StoredFile, options: ReadOptions, record: int, offset: int) -> StoredRecords:
    """Open `file` after `record` records that end at byte `offset`.

    Raises `Rejected` if no record of the file can be read; `record` is 0 then.
    """
    if file.format == "parquet":
        return ParquetReader(file, options, record)
    return LineReader(file, options, record, offset)


def check_header(file: StoredFile, options: ReadOptions) -> None:
    """Raise `MissingColumn` if the columns of `file` show that it has no text."""
    if file.format not in ("csv", "parquet"):
        return
    try:
        open_reader(file, options, 0, 0).close()
    except MissingColumn:
        raise
    except Rejected:
        return


def cut_into_parts(file: StoredFile, most_bytes: int, encoding: str | None) -> list[FilePart]:
    """Cut a file into parts of about `most_bytes`, if it can be read from the middle."""
    size, whole = file.size or 0, [FilePart(file, None, file.size or 0)]
    if size <= most_bytes:
        return whole
    if file.format in ("text", "jsonl") and file.compression is None:
        with closing(BlockReader(file, encoding)) as reader:
            if not reader.encoding.is_stored:
                return whole
        number = -(-size // most_bytes)
        ends = [size * n // number for n in range(number + 1)]
        return [FilePart(file, (a, b), b - a) for a, b in pairwise(ends)]
    if file.format == "parquet":
        rows, ends = [0, *accumulate(count_group_rows(file))], [0]
        for group in range(1, len(rows)):
            last = group + 1 == len(rows)
            if last or (rows[group] - rows[ends[-1]]) * size >= most_bytes * rows[-1]:
                ends.append(group)
        return [
            FilePart(file, (a, b), size * (rows[b] - rows[a]) // max(1, rows[-1]))
            for a, b in pairwise(ends)
        ] or whole
    return whole


class LineReader(StoredRecords):
    """Reads text, JSON or CSV."""

    records: RecordStream

    def __init__(self, file: StoredFile, options: ReadOptions, record: int, offset: int) -> None:
        self._name = file.name
        self._blocks = blocks = BlockReader(file, options.encoding)
        start, note, first = 0, "", b""
        splitter = LineSplitter(options.max_document_bytes)
        parse: Parser = parse_text
        try:
            if file.format == "csv":
                splitter, parse, start, note, first = open_csv(blocks, options, file.delimiter)
            elif file.format == "json":
                splitter, start, note = open_json(blocks, options)
                parse = json_parser(options)
            elif file.format == "jsonl":
                parse = json_parser(options)
            elif file.format == "file":
                splitter = WholeSplitter(options.max_document_bytes)
                parse = partial(parse_text, name=file.name)
        except BaseException:
            blocks.close()
            raise
        offset = max(offset, start, blocks.begin)
        self.records = RecordStream(file.location, splitter, parse, record, offset)
        if first:
            self.records.put([first])
        self.note = " and ".join(filter(None, (note, blocks.encoding.note)))
        self._behind = blocks.skip(offset)

    def _fill(self) -> None:
        try:
            block = self._blocks.read()
        except Rejected:
            self._check_length()
            raise
        if not block:
            self._check_length()
            self._ended = True
            behind = self.records.fed - self.records.consumed
            self.fault = self.records.finish()
            self.unread = behind / max(1, self.records.fed)
            return
        dropped = min(self._behind, len(block))
        self._behind -= dropped
        if dropped < len(block):
            self.records.feed(block[dropped:])

    def _check_length(self) -> None:
        if self._behind:
            raise fault("shorter", name=self._name, bytes_missing=self._behind)

    def stored_bytes(self) -> int:
        """See `StoredRecords`."""
        return self._blocks.stored_bytes()

    def close(self) -> None:
        """See `StoredRecords`."""
        self._blocks.close()
