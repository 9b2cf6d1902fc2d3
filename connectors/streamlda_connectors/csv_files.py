"""CSV: its dialect and header by the first bytes of a file, records, and their fields."""

import csv
import re
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import orjson

from streamlda_connectors.compressed import BlockReader
from streamlda_connectors.lines import BYTE_ORDER_MARK, LineSplitter, decode, join_fields
from streamlda_connectors.records import (
    Document,
    MissingColumn,
    Parser,
    ReadOptions,
    Record,
    Rejection,
    Skip,
)

#: Delimiters tried in this order, where none is given.
DELIMITERS = (",", "\t", ";", "|")

#: A null of databases, pandas, R and spreadsheets, in place of a text or a time. As users, classes
#: and ids these words are names, all but the first: NA is Namibia too.
NULL = "\\N"
NULLS = frozenset((NULL, "NULL", "null", "None", "NaN", "nan", "NaT", "NA", "<NA>", "N/A", "#N/A"))

#: A quote in a field, escaped as Spark and MySQL do or doubled; neither can end the field.
_ESCAPED = re.compile(rb'(?<!\\)(?:\\\\)*\\"(?=[^",;|\t\r\n\\])')
_DOUBLED = re.compile(rb'[^",;|\t\r\n\\]""[^",;|\t\r\n]')
_find_escapes = re.compile(r'\\(["\\])').sub

#: Signs that databases write behind a backslash where no field is quoted, beside delimiters and
#: line feeds, and what they stand for.
_SIGNS = {"n": "\\\n", "r": "\\\r", "t": "\\\t", "N": "\\\\N", "0": "", "b": "", "f": " ", "v": " "}
_find_signs = re.compile(r"\\(.)", re.DOTALL).sub


#: Most lines above a header, such as a title or ``sep=;``.
MOST_TITLES = 20


class Dialect(NamedTuple):
    """A delimiter, and what backslashes escape: quotes, all (no field is quoted), or nothing."""

    delimiter: str
    escapes: Literal["", "quotes", "all"] = ""


class CsvHeader(NamedTuple):
    """Names of the columns of a CSV file, and where its header begins and ends."""

    dialect: Dialect
    names: list[str]
    start: int = 0
    end: int = 0
    #: Whether there is no header, and columns are named by their numbers from 1.
    numbered: bool = False


class CsvSplitter(LineSplitter):
    """Cut at line ends outside of quotes, which open only at the start of a field.

    A stray quote inside a field (an inch sign) does not swallow the lines after it.
    """

    def __init__(self, max_bytes: int, dialect: Dialect) -> None:
        super().__init__(max_bytes)
        # The library has one limit for the whole process.
        csv.field_size_limit(max(max_bytes, csv.field_size_limit()))
        delimiter = re.escape(dialect.delimiter.encode())
        inside = rb'(?:[^"\\]++|\\.|"")*+' if dialect.escapes else rb'(?:[^"]++|"")*+'
        field = rb'(?:"%b"|(?!"))[^%b]*+' % (inside, delimiter)
        line = b"%b(?:%b%b)*+" % (field, delimiter, field)
        # Without quotes a line continues behind a backslash at its end.
        self._quote = b"" if dialect.escapes == "all" else b'"'
        self._match_closed = re.compile(line if self._quote else rb"(?:[^\\]++|\\.)*+").fullmatch
        self._line = bytearray()
        self._is_open = False

    def feed(self, block: bytes) -> Sequence[Record]:
        """Return the records that `block` completes."""
        records: list[Record] = []
        *lines, rest = block.split(b"\n")
        for line in lines:
            self._scan(line)
            self._end_line()
            self._extend(line + b"\n" if self._is_open else line)
            if not self._is_open:
                records.append(self._complete())
        self._scan(rest)
        self._extend(rest)
        return records

    def finish(self) -> Sequence[Record]:
        """Return the unfinished last record; a quote that never closes takes all behind it."""
        self._end_line()
        return [Skip(self._size, "broken-csv")] if self._is_open else super().finish()

    def _scan(self, part: bytes) -> None:
        self._line += part
        if len(self._line) > self._max_bytes:
            self._end_line()

    def _end_line(self) -> None:
        """Note whether a quote is open behind a line, or a piece of one that is too long."""
        if self._quote in self._line:
            self._is_open = not self._match_closed(self._quote * self._is_open + self._line)
        self._line.clear()


def open_csv(
    blocks: BlockReader, options: ReadOptions, usual: str
) -> tuple[CsvSplitter, Parser, int, bytes]:
    """Return splitter and parser of a file, where its records begin, and a first record.

    `usual` is the delimiter of the ending of its name.
    """
    # Without a header there are only blank lines, which any columns fit.
    header = _find_header(blocks, options, usual)
    if header is None:
        header = CsvHeader(Dialect(usual), options.text_fields)
    else:
        blocks.notes += options.describe_columns(header.names)
    splitter = CsvSplitter(options.max_document_bytes, header.dialect)
    numbers = header.dialect.delimiter.join(header.names)
    first = numbers.encode() if options.as_rows and header.numbered else b""
    start = header.start if options.as_rows else min(header.end, len(blocks.head))
    return splitter, _make_parser(header, options), start, first


def _find_header(blocks: BlockReader, options: ReadOptions, usual: str) -> CsvHeader | None:
    """Return the first header that a delimiter finds in a file; None of one without records."""
    head, given, guess = blocks.head, options.delimiter, options.encoding is not None
    quotes = guess and _ESCAPED.search(head) is not None and _DOUBLED.search(head) is None
    faults, found = list[Rejection](), list[CsvHeader]()
    for delimiter in dict.fromkeys((usual, *DELIMITERS)) if given is None else given:
        dialect = Dialect(delimiter, "quotes" if quotes else "")
        if guess and _escapes_all(head, delimiter.encode()):
            dialect = Dialect(delimiter, "all")
        splitter = CsvSplitter(options.max_document_bytes, dialect)
        # The mark is no part of the first field, which may start with a quote.
        start = len(BYTE_ORDER_MARK) if head.startswith(BYTE_ORDER_MARK) else 0
        records = [*splitter.feed(head[start:]), *(splitter.finish() if blocks.is_whole else ())]
        try:
            header = _read_header(records, start, dialect, options)
        except Rejection as fault:
            faults.append(fault)
            continue
        if header is None:
            return None
        found.append(header)
    if found:
        # By a wrong delimiter rows look like titles until one fits.
        return min(found, key=lambda header: header.start)
    missing = [fault for fault in faults if isinstance(fault, MissingColumn)]
    # Most columns are found by the delimiter that the file has.
    raise max(missing, key=lambda fault: len(list(fault.fields))) if missing else faults[0]


def _escapes_all(head: bytes, delimiter: bytes) -> bool:
    """Return whether no field is quoted, and backslashes escape what databases do."""
    delimiter = re.escape(delimiter)
    signs, quoted = rb"\\[\\nrtN0bfv\n%b]" % delimiter, rb'(?:^|(?<!\\)[\n%b])"' % delimiter
    # A null, a delimiter or two line ends. Other signs, or one that ends a column, may be paths.
    telling = rb"(?:^|[\n%b])\\N(?:[\r\n%b]|$)|\\(?!\t)%b|\\[rn]\\n" % ((delimiter,) * 3)
    return (
        re.search(telling, head) is not None
        and re.search(quoted, head) is None
        and re.fullmatch(rb"(?:[^\\]++|%b)*+\\?" % signs, head) is not None
    )


def _read_header(
    records: Sequence[Record], start: int, dialect: Dialect, options: ReadOptions
) -> CsvHeader | None:
    """Return the header: the first record that is not blank, or stands below titles."""
    titles = list[MissingColumn]()
    for item in records:
        if isinstance(item, Skip):
            raise Rejection(item.reason)
        end = start + len(item) + 1
        line = decode(item).removesuffix("\r")
        if line.strip(" "):
            names = split_fields(line, dialect)
            if _find_texts(names, options) is None:
                names = [name.strip() for name in names]
            is_title = sum(map(bool, names)) < 2
            # Where one record must not decide how others are read, there is a header.
            numbered = options.encoding is not None and _find_texts(names, options) is None
            by_number = all(name.isdecimal() for name in options.text_fields)
            if numbered and by_number:
                names = [str(number + 1) for number in range(len(names))]
            if _find_texts(names, options) is not None and not (titles and is_title):
                return CsvHeader(dialect, names, start, start if numbered else end, numbered)
            titles.append(MissingColumn("missing-column", names))
            searched = options.encoding is not None and not by_number
            if not (searched and is_title) or len(titles) > MOST_TITLES:
                raise titles[0]
        start = end
    if titles:
        raise titles[0]
    return None


def _find_texts(names: list[str], options: ReadOptions) -> list[int] | None:
    """Return the numbers of the columns of the text, None if one is missing."""
    texts = [options.text_field] if options.text_field in names else options.text_fields
    return [names.index(name) for name in texts] if set(texts) <= set(names) else None


def names_text(head: bytes, options: ReadOptions) -> bool:
    """Return whether fields are wanted of a text, or its first line names that of the text."""
    line = head.partition(b"\n")[0].removeprefix(BYTE_ORDER_MARK).decode(errors="replace").rstrip()
    rows = (line.replace('"', "").split(delimiter) for delimiter in DELIMITERS)
    return options.text_field != "text" or any("text" in row[:-1] + row[1:] for row in rows)


def _make_parser(header: CsvHeader, options: ReadOptions) -> Parser:
    """Return the parser of the records of a file: their texts or, `as_rows`, their fields."""
    names, texts = header.names, _find_texts(header.names, options) or [0]
    user_column, time_column, id_column = (
        names.index(name) if name in names else None
        for name in (options.user_field, options.time_field, options.id_field)
    )

    def parse(record: bytes) -> Document | None:
        fields = _split_record(record, header.dialect, len(names), max(texts))
        if fields is None:
            return None
        if options.as_rows:
            return orjson.dumps([header.dialect.delimiter, *fields]).decode(), None, None, None
        own, when = [fields[at] for at in texts], "" if time_column is None else fields[time_column]
        user, name = (
            None if at is None or fields[at] in ("", NULL) else fields[at]
            for at in (user_column, id_column)
        )
        time = None if when in NULLS else options.read_time(when)
        return join_fields("" if text in NULLS else text for text in own), user, time, name

    return parse


def _split_record(record: bytes, dialect: Dialect, width: int, last: int) -> list[str] | None:
    """Return the fields of a record, with those up to the `last` text; None of a blank one."""
    line = decode(record.removesuffix(b"\r"))
    if not line.strip(" "):
        return None
    fields = split_fields(line, dialect)
    missing = width - len(fields)
    if missing:
        # Offices leave out empty fields at the end of a row, or add some.
        if len(fields) <= last or any(fields[width:]):
            raise Rejection("broken-csv")
        fields = fields[:width] + [""] * missing
    return fields


def split_fields(record: str, dialect: Dialect) -> list[str]:
    """Return the fields of one record."""
    delimiter, options = dialect.delimiter, dict[str, Any]()
    if dialect.escapes == "quotes":
        record = _find_escapes(lambda found: found[1] * (1 + (found[1] == '"')), record)
    elif dialect.escapes and "\\" in record:
        record = _find_signs(lambda found: _SIGNS.get(found[1], found[0]), record)
        options = {"quoting": csv.QUOTE_NONE, "escapechar": "\\"}
    if not options and ('"' not in record or dialect.escapes == "all"):
        return record.split(delimiter)
    try:
        return next(csv.reader([record], delimiter=delimiter, **options))
    except csv.Error as error:
        raise Rejection("broken-csv") from error
