"""Readers of one stored file, by its format."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import accumulate, pairwise
from typing import IO

from fsspec.utils import seek_delimiter

from streamlda.stream.listing import FilePart, StoredFile
from streamlda_connectors.checks import fault
from streamlda_connectors.compressed import BLOCK_BYTES, BlockReader
from streamlda_connectors.json_tables import read_json_table
from streamlda_connectors.lines import (
    BYTE_ORDER_MARK,
    CsvHeader,
    CsvSplitter,
    LineSplitter,
    RecordStream,
    WholeSplitter,
    csv_fields,
    csv_parser,
    decode,
    detect_layout,
    json_parser,
    parse_text,
    row_parser,
)
from streamlda_connectors.options import ReadOptions
from streamlda_connectors.parquet import ParquetReader, count_group_rows
from streamlda_connectors.records import (
    Document,
    MissingColumn,
    Parser,
    Rejected,
    Skipped,
    StoredRecords,
    are_names,
)

#: Delimiters tried in this order, where none is given.
DELIMITERS = (",", "\t", ";", "|")

#: Most lines above a header, such as a title.
MOST_ABOVE = 20


def open_reader(file: StoredFile, options: ReadOptions, record: int, offset: int) -> StoredRecords:
    """Open `file` after `record` records that end at byte `offset`.

    Raises `Rejected` if no record of the file can be read; `record` is 0 then.
    """
    if file.format == "parquet":
        return ParquetReader(file, options, record)
    return LineReader(file, options, record, offset)


def check_header(file: StoredFile, options: ReadOptions) -> None:
    """Raise `MissingColumn` if the columns of `file` show that it has no text."""
    try:
        if file.format == "csv":
            read_csv_header(file, options)
        elif file.format == "parquet":
            ParquetReader(file, options, 0).close()
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
        with closing(BlockReader(file.open(), None, encoding=encoding)) as reader:
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


def find_line_bounds(raw: IO[bytes], part: tuple[int, int]) -> tuple[int, int]:
    """Return the bytes where the lines of a part begin and end: each line is in one part."""
    found = []
    for at in part:
        raw.seek(at)
        seek_delimiter(raw, b"\n", BLOCK_BYTES)
        found.append(raw.tell())
    return found[0], found[1]


def read_csv_header(file: StoredFile, options: ReadOptions) -> CsvHeader | None:
    """Return the header of a CSV file by the first delimiter that fits; None without records."""
    given = options.delimiter
    faults: list[Rejected] = []
    for delimiter in dict.fromkeys((file.delimiter, *DELIMITERS)) if given is None else given:
        try:
            return _read_csv_header(file, options, delimiter)
        except Rejected as fault:
            faults.append(fault)
    missing = [fault for fault in faults if isinstance(fault, MissingColumn)]
    # Most columns are found by the delimiter that the file has.
    raise max(missing, key=lambda fault: len(list(fault.fields))) if missing else faults[0]


def _read_csv_header(file: StoredFile, options: ReadOptions, delimiter: str) -> CsvHeader | None:
    splitter = CsvSplitter(options.max_document_bytes, delimiter)
    missing: Rejected | None = None
    # Where one record must not decide how others are read, only the first is a header.
    above, most = 0, 0 if options.encoding is None else MOST_ABOVE
    with closing(_open_csv(file, options)) as reader:
        block = reader.read()
        # The mark is no part of the first field, which may start with a quote.
        end = len(BYTE_ORDER_MARK) if block.startswith(BYTE_ORDER_MARK) else 0
        fed = len(block)
        records = splitter.feed(block[end:])
        while True:
            for item in records:
                if isinstance(item, Skipped):
                    raise missing or Rejected(item.reason)
                start, end = end, end + len(item) + 1
                line = decode(item).removesuffix("\r")
                if not line.strip(" "):
                    continue
                try:
                    found = _find_column(line, min(end, fed), delimiter, options, below=above > 0)
                    if found.numbered:
                        return found._replace(end=start)
                    return found._replace(n_above=above, start=start) if above else found
                except Rejected as error:
                    missing = missing or error
                    above += 1
                if above > most or type(missing) is Rejected:
                    raise missing
            if not block:
                if missing is not None:
                    raise missing
                return None
            block = reader.read()
            fed += len(block)
            records = splitter.feed(block) if block else splitter.finish()


def _open_csv(file: StoredFile, options: ReadOptions) -> BlockReader:
    return BlockReader(file.open(), file.compression, encoding=options.encoding, is_csv=True)


def _find_column(
    line: str, end: int, delimiter: str, options: ReadOptions, *, below: bool
) -> CsvHeader:
    columns = csv_fields(line, delimiter)
    texts = [options.text_field] if options.text_field in columns else options.text_fields
    numbered = not (below or set(texts) <= set(columns)) and options.encoding is not None
    if numbered and all(name.isdecimal() for name in texts):
        columns = [str(number + 1) for number in range(len(columns))]
    # Records below a first line may hold the word too.
    if not set(texts) <= set(columns) or (below and not are_names(columns)):
        raise MissingColumn("missing-column", columns)
    user, time, name = (
        columns.index(name) if name in columns else None
        for name in (options.user_field, options.time_field, options.id_field)
    )
    places = tuple(map(columns.index, texts))
    return CsvHeader(places, len(columns), end, delimiter, user, time, name, numbered=numbered)


class LineReader(StoredRecords):
    """Reads text, JSON or CSV."""

    records: RecordStream

    def __init__(self, file: StoredFile, options: ReadOptions, record: int, offset: int) -> None:
        self._name = file.name
        parse: Parser
        splitter = LineSplitter(options.max_document_bytes)
        table: Iterator[bytes] | None = None
        note = ""
        if file.format == "csv":
            # Without a header there are only blank lines, which any columns fit.
            header = read_csv_header(file, options) or CsvHeader((0,), 1, 0, file.delimiter)
            splitter = CsvSplitter(options.max_document_bytes, header.delimiter)
            parse = csv_parser(header, options.read_time)
            offset = max(offset, header.end)
            if options.as_rows:
                parse, offset = row_parser(header), header.start
            if header.n_above:
                note = f"has its header in line {header.n_above + 1}; those above it are skipped"
        elif file.format in ("jsonl", "json"):
            if file.format == "json":
                table, note = read_json_table(file, options)
            if file.format == "json" and table is None:
                splitter, start = detect_layout(file, options)
                offset = max(offset, start)
            parse = json_parser(options)
        else:
            parse = parse_text
            if file.format == "file":
                splitter = WholeSplitter(options.max_document_bytes)

                def parse(data: bytes) -> Document | None:
                    """Parse a document whose id is the name of its file."""
                    found = parse_text(data)
                    return found and (*found[:3], file.name)

        raw, self._begin, end, encoding = file.open(), 0, None, options.encoding
        if file.part is not None:
            # Only files whose bytes are read as they are stored have parts.
            encoding = None
            self._begin, end = find_line_bounds(raw, file.part)
            raw.seek(0)
            offset = max(offset, self._begin)
        self.records = RecordStream(file.location, splitter, parse, record, offset)
        is_csv = file.format == "csv"
        if options.as_rows and header.numbered:
            names = map(str, range(1, header.n_columns + 1))
            self.records.put([header.delimiter.join(names).encode()])
        self._blocks = BlockReader(raw, file.compression, end, encoding, is_csv=is_csv)
        if table is not None:
            self._blocks.replace(table)
        self.note = " and ".join(filter(None, (note, self._blocks.encoding.note)))
        self._behind = self._blocks.skip(offset)

    def _fill(self) -> None:
        try:
            block = self._blocks.read()
        except Rejected:
            self._check_length()
            raise
        if not block:
            self._check_length()
            self._ended = True
            if fault := self.records.finish():
                self.fault = fault.reason
                self.unread = fault.size / self.records.fed
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
        return self._blocks.stored_bytes() - self._begin

    def close(self) -> None:
        """See `StoredRecords`."""
        self._blocks.close()
