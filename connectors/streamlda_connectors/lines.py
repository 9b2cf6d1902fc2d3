"""Formats made of lines: splitters into records, and parsers of records."""

from __future__ import annotations

import codecs
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import closing
from functools import cache
from typing import Any, NamedTuple

import orjson

from streamlda.checks import one_of
from streamlda.stream.listing import StoredFile
from streamlda_connectors.compressed import BlockReader
from streamlda_connectors.encodings import recoded
from streamlda_connectors.options import ReadOptions
from streamlda_connectors.records import (
    Document,
    Parser,
    Record,
    RecordQueue,
    Rejected,
    Skipped,
    read_name,
)

BYTE_ORDER_MARK = codecs.BOM_UTF8

#: A name, and the names on the way down to it, where it is no key itself.
Field = tuple[str, list[str]]


class LineSplitter:
    r"""Cut at ``\n``. Holds at most one line of `max_bytes`; of a longer one only its length."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._tail = bytearray()
        self._size = 0

    def feed(self, block: bytes) -> Sequence[Record]:
        """Return the lines that `block` completes."""
        lines: list[Any] = block.split(b"\n")
        tail = lines.pop()
        if lines:
            self._extend(lines[0])
            lines[0] = self._complete()
            if len(block) > self._max_bytes:
                limit = self._max_bytes
                lines[1:] = [
                    line if len(line) <= limit else Skipped(len(line), "too-long")
                    for line in lines[1:]
                ]
        self._extend(tail)
        return lines

    def finish(self) -> Sequence[Record]:
        """Return the unfinished last line, if there is one."""
        return [self._complete()] if self._size else []

    def fault(self) -> Skipped | None:
        """Return why records break off, and bytes from there if known; asked before `finish`."""
        return None

    def _extend(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._max_bytes:
            self._tail.clear()
        else:
            self._tail += part

    def _complete(self) -> Record:
        size, self._size = self._size, 0
        if size > self._max_bytes:
            return Skipped(size, "too-long")
        line = bytes(self._tail)
        self._tail.clear()
        return line


class WholeSplitter(LineSplitter):
    """Cut nowhere: a stream is one record, even if it is empty."""

    def feed(self, block: bytes) -> Sequence[Record]:
        """Keep `block` for the record."""
        self._extend(block)
        return []

    def finish(self) -> Sequence[Record]:
        """Return the record."""
        return [self._complete()]


class QuotedSplitter(LineSplitter):
    """Cut where a record ends outside of quotes; the state lives on between blocks."""

    def feed(self, block: bytes) -> Sequence[Record]:
        """Return the records that `block` completes."""
        records: list[Record] = []
        start = 0
        while (end := self._record_end(block, start)) >= 0:
            self._extend(block[start:end])
            records.append(self._complete())
            start = end + 1
        self._extend(block[start:])
        return records

    @abstractmethod
    def _record_end(self, block: bytes, at: int) -> int:
        """Return where the record ends that continues at `at`, or -1 if not in this block."""


class CsvSplitter(QuotedSplitter):
    """Cut at line ends outside of quotes, which open only at the start of a field.

    A stray quote inside a field (an inch sign) does not swallow the lines after it.
    """

    _FIELD_START, _BARE, _QUOTED, _AFTER_QUOTE = range(4)

    def __init__(self, max_bytes: int, delimiter: str) -> None:
        super().__init__(max_bytes)
        self._delimiter = delimiter.encode()
        self._field_end = re.compile(b"[" + re.escape(self._delimiter) + b"\n]")
        self._state = self._FIELD_START

    def fault(self) -> Skipped | None:
        """Return a quote that never closes: all that is behind it is in its field."""
        return Skipped(self._size, "broken-csv") if self._state == self._QUOTED else None

    def _record_end(self, block: bytes, at: int) -> int:
        if self._state == self._FIELD_START:
            end = block.find(b"\n", at)
            if end >= 0 and block.find(b'"', at, end) < 0:
                return end
        while at < len(block):
            if self._state == self._FIELD_START:
                quoted = block[at] == 0x22
                self._state = self._QUOTED if quoted else self._BARE
                at += quoted
            elif self._state == self._QUOTED:
                quote = block.find(b'"', at)
                if quote < 0:
                    return -1
                self._state = self._AFTER_QUOTE
                at = quote + 1
            elif self._state == self._AFTER_QUOTE:
                doubled = block[at] == 0x22
                self._state = self._QUOTED if doubled else self._BARE
                at += doubled
            else:
                found = self._field_end.search(block, at)
                if found is None:
                    return -1
                self._state = self._FIELD_START
                if found[0] == b"\n":
                    return found.start()
                at = found.end()
        return -1


class RecordStream(RecordQueue):
    """A queue filled from blocks of bytes, the first of which starts at byte `offset`."""

    def __init__(
        self, location: str, splitter: LineSplitter, parse: Parser, record: int = 0, offset: int = 0
    ) -> None:
        super().__init__(location, parse, record)
        self._splitter = splitter
        self.consumed = offset
        #: Bytes of the stream that were fed.
        self.fed = offset
        # The first bytes are held back until they are, or cannot be, a byte order mark.
        self._head: bytes | None = b"" if offset == 0 else None

    @property
    def offset(self) -> int:
        """Bytes of the stream up to the end of the last record handed out."""
        # The last line of a stream may lack the line end that `consumed` counts.
        return min(self.consumed, self.fed)

    def feed(self, block: bytes) -> None:
        """Queue the records that the next `block` completes."""
        self.fed += len(block)
        if self._head is not None:
            block = self._head + block
            if len(block) < len(BYTE_ORDER_MARK) and BYTE_ORDER_MARK.startswith(block):
                self._head = block
                return
            self._head = None
            if block.startswith(BYTE_ORDER_MARK):
                block = block[len(BYTE_ORDER_MARK) :]
                self.consumed += len(BYTE_ORDER_MARK)
        self.put(self._splitter.feed(block))

    def finish(self) -> Skipped | None:
        """Queue the rest at the end of the stream; return its fault."""
        head, self._head = self._head, None
        records = self._splitter.feed(head) if head else ()
        fault = self._splitter.fault()
        self.put([*records, *self._splitter.finish()])
        return fault


def decode(data: bytes) -> str:
    """Return bytes of UTF-8 as text, or raise `Rejected`."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Rejected("not-utf8") from error


def parse_value(value: bytes) -> Document:
    """Return the document of a record that is text and nothing else, blank or not."""
    return decode(value), None, None, None


def parse_text(line: bytes) -> Document | None:
    """Return the document of a line of plain text."""
    text = decode(line[:-1] if line.endswith(b"\r") else line)
    return None if not text or text.isspace() else (text, None, None, None)


def json_parser(options: ReadOptions) -> Parser:
    """Return the parser of JSON Lines. A string is a document without other fields."""
    document, name = document_reader(options, read_field), options.text_field
    others = options.user_field, options.time_field, options.id_field
    text_alone = others == (None, None, None)

    def parse(line: bytes) -> Document | None:
        try:
            record = orjson.loads(line)
        except orjson.JSONDecodeError as error:
            if not decode(line).strip():
                return None
            raise Rejected("not-json") from error
        if type(record) is str:
            return record, None, None, None
        if type(record) is not dict:
            raise Rejected("not-an-object")
        if text_alone and type(text := record.get(name)) is str:
            return text, None, None, None
        return document(record)

    return parse


def document_reader(
    options: ReadOptions, read_field: Callable[[Any, Field], Any]
) -> Callable[[Any], Document | None]:
    """Return the function from a record to a document, whose fields `read_field` reads."""
    names = options.text_field, options.user_field, options.time_field, options.id_field
    paths: list[Any] = [None if name is None else (name, name.split(".")) for name in names]
    text_field, user_field, time_field, id_field = paths
    several = [(name, name.split(".")) for name in options.text_fields]
    if len(several) == 1:
        several = []

    def join(record: Any) -> str | None:
        found = [read_field(record, each) for each in several]
        texts = [each for each in found if type(each) is str]
        if len(texts) + found.count(None) < len(found):
            raise Rejected("not-text")
        return join_fields(texts) if texts else None

    def read(record: Any) -> Document | None:
        text = read_field(record, text_field)
        if text is None and several:
            text = join(record)
        if type(text) is not str:
            if text is not None:
                raise Rejected("not-text")
            if any(has_field(record, each) for each in several or [text_field]):
                return None
            raise Rejected("missing-field", record if type(record) is dict else ())
        user = None if user_field is None else read_name(read_field(record, user_field))
        time = None if time_field is None else options.read_time(read_field(record, time_field))
        name = None if id_field is None else read_name(read_field(record, id_field))
        return text, user, time, name

    return read


def join_fields(texts: Collection[str]) -> str:
    """Return the fields of a document as one text."""
    return "\n".join(filter(None, texts))


def line_parser(formats: Collection[str], format: str, options: ReadOptions) -> Parser:
    """Return the parser of one of the `formats` of lines: text, or else JSON."""
    one_of(formats, format=format, remedy="read other formats from files (connector files)")
    options.check_format(format)
    return recoded(parse_text if format == "text" else json_parser(options), options.encoding)


def read_field(record: Any, field: Field) -> Any:
    """Return a field of a dict, or of one within it; None if it has none."""
    name, path = field
    value = record.get(name)
    if value is not None or len(path) == 1:
        return value
    for key in path:
        record = record.get(key) if type(record) is dict else None
    return record


def has_field(record: Any, field: Field) -> bool:
    """Return whether a record has a field, null or not."""
    name, path = field
    if type(record) is not dict or name in record:
        return type(record) is dict
    parent = read_field(record, (".".join(path[:-1]), path[:-1])) if len(path) > 1 else None
    return type(parent) is dict and path[-1] in parent


def csv_fields(record: str, delimiter: str) -> list[str]:
    """Return the fields of one CSV record, or raise `Rejected` if a quote does not close.

    The limit of the standard library on the length of a field is one for the whole process.
    """
    if '"' not in record:
        return record.split(delimiter)
    pattern = _csv_pattern(delimiter)
    fields: list[str] = []
    at = 0
    while True:
        field = pattern.match(record, at)
        if field is None:
            raise Rejected("broken-csv")
        quoted, rest, bare, end = field.groups()
        fields.append(bare if quoted is None else quoted.replace('""', '"') + rest)
        if not end:
            return fields
        at = field.end()


@cache
def _csv_pattern(delimiter: str) -> re.Pattern[str]:
    other = f"[^{re.escape(delimiter)}]*+"
    return re.compile(
        rf'(?:"([^"]*+(?:""[^"]*+)*+)"({other})|((?!"){other}))({re.escape(delimiter)}|\Z)'
    )


#: A null as PostgreSQL, MySQL and Hive write it.
SQL_NULL = "\\N"


class CsvHeader(NamedTuple):
    """Columns of the text of a CSV file, their number in all, and where its records start."""

    columns: tuple[int, ...]
    n_columns: int
    end: int
    delimiter: str
    user_column: int | None = None
    time_column: int | None = None
    id_column: int | None = None
    #: Lines above the header, and where they end.
    n_above: int = 0
    start: int = 0
    #: Whether there is no header, and columns are named by their numbers from 1.
    numbered: bool = False


def csv_parser(header: CsvHeader, read_time: Callable[[object], float | None]) -> Parser:
    """Return the parser of the records of a CSV file."""
    user_column, time_column, id_column = header.user_column, header.time_column, header.id_column
    column, *others = header.columns

    def parse(record: bytes) -> Document | None:
        fields = _split_record(record, header)
        if fields is None:
            return None
        if SQL_NULL in fields:
            fields = ["" if field == SQL_NULL else field for field in fields]
        user = None if user_column is None else read_name(fields[user_column])
        time = None if time_column is None else read_time(fields[time_column])
        name = None if id_column is None else read_name(fields[id_column])
        text = join_fields([fields[at] for at in header.columns]) if others else fields[column]
        return text, user, time, name

    return parse


def row_parser(header: CsvHeader) -> Parser:
    """Return the parser of all fields of records of CSV, as a list in JSON."""

    def parse(record: bytes) -> Document | None:
        fields = _split_record(record, header)
        return None if fields is None else (orjson.dumps(fields).decode(), None, None, None)

    return parse


def _split_record(record: bytes, header: CsvHeader) -> list[str] | None:
    """Return the fields of a record of CSV; None of a blank one."""
    line = decode(record[:-1] if record.endswith(b"\r") else record)
    if not line.strip(" "):
        return None
    fields = csv_fields(line, header.delimiter)
    missing = header.n_columns - len(fields)
    if missing:
        # Offices leave out empty fields at the end of a row, or add some.
        if len(fields) <= max(header.columns) or any(fields[header.n_columns :]):
            raise Rejected("broken-csv")
        fields = fields[: header.n_columns] + [""] * missing
    return fields


_IN_STRING = re.compile(rb'(?:[^"\\]|\\.)*+', re.DOTALL)
_MARK = re.compile(rb'["\[\]{},\n]')


class JsonSplitter(QuotedSplitter):
    """Cut outside of strings, brackets and braces: at line ends, or between items of an array.

    The rest after the end of an array is one more record, if it is not blank.
    """

    def __init__(self, max_bytes: int, *, array: bool) -> None:
        super().__init__(max_bytes)
        self._ends = b",]" if array else b"\n"
        self._depth = 0
        self._quoted = self._escaped = self._closed = self._begun = False

    def finish(self) -> Sequence[Record]:
        """Return the rest, if it is not blank."""
        return [rest for rest in super().finish() if isinstance(rest, Skipped) or rest.strip()]

    def fault(self) -> Skipped | None:
        """Return an array that never ends, or bytes after its end."""
        rest = self._size > self._max_bytes or bool(self._tail.strip())
        if self._closed:
            return Skipped(self._size, "not-json") if rest else None
        # The rest behind the end of an array is blank at a position from before.
        opened = self._ends == b",]" and (self._begun or rest)
        return Skipped(0, "not-json") if opened or self._depth or self._quoted else None

    def leaves_open(self, line: bytes) -> bool:
        """Return whether an object or array, but no string, continues after a first line."""
        self._record_end(line, 0)
        return self._depth > 0 and not self._quoted

    def _record_end(self, block: bytes, at: int) -> int:
        if self._closed:
            return -1
        if self._escaped:
            self._escaped, at = False, at + 1
        while True:
            if self._quoted:
                found = _IN_STRING.match(block, at)
                assert found is not None
                at = found.end()
                if at >= len(block):
                    return -1
                if block[at : at + 1] == b"\\":
                    self._escaped = True
                    return -1
                self._quoted, at = False, at + 1
            mark = _MARK.search(block, at)
            if mark is None:
                return -1
            at, sign = mark.end(), mark[0]
            if sign == b'"':
                self._quoted = True
            elif self._depth == 0 and sign in self._ends:
                self._begun, self._closed = True, sign == b"]"
                return mark.start()
            elif sign in b"[{":
                self._depth += 1
            elif sign in b"]}":
                self._depth = max(0, self._depth - 1)


class RecordsSplitter(JsonSplitter):
    """Cut the array of a field: what comes after it belongs to the object around it."""

    def finish(self) -> Sequence[Record]:
        """Return nothing once the array has ended."""
        return [] if self._closed else super().finish()

    def fault(self) -> Skipped | None:
        """Return an array that never ends."""
        return None if self._closed else Skipped(0, "not-json")


#: A token of JSON: a string, with a colon if it is a key, or a sign that opens or closes.
_TOKEN = re.compile(rb'"((?:[^"\\]|\\.)*+)"\s*(:)?|[\[\]{}]', re.DOTALL)


def find_records(body: bytes, field: str) -> int:
    """Return where the array of a field of an object begins, behind its bracket; -1 if not here."""
    path: list[bytes] = []
    wanted = field.encode().split(b".")
    for token in _TOKEN.finditer(body):
        sign = token[0]
        if sign == b"[" and path == wanted:
            return token.end()
        if sign in (b"[", b"{"):
            path.append(b"")
        elif token[2]:
            path[-1:] = [token[1]]
        elif sign in (b"]", b"}"):
            path = path[:-1]
    return -1


def detect_layout(file: StoredFile, options: ReadOptions) -> tuple[LineSplitter, int]:
    """Return the splitter of a file (an array, objects over lines or one a line) and its start."""
    most, head = options.max_document_bytes, b""
    with closing(BlockReader(file.open(), file.compression, encoding=options.encoding)) as reader:
        while block := reader.read():
            head += block
            body = head.removeprefix(BYTE_ORDER_MARK).lstrip()
            if options.records_field is not None:
                if (at := find_records(body, options.records_field)) >= 0:
                    return RecordsSplitter(most, array=True), len(head) - len(body) + at
                if len(head) > most:
                    break
                continue
            if body[:1] == b"[":
                return JsonSplitter(most, array=True), len(head) - len(body) + 1
            if b"\n" in body or len(head) > most:
                objects = JsonSplitter(most, array=False)
                if objects.leaves_open(body.partition(b"\n")[0]):
                    return JsonSplitter(most, array=False), 0
                break
    if options.records_field is not None:
        raise Rejected("no-records")
    return LineSplitter(most), 0
