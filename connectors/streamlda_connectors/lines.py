"""Formats made of lines: splitters into records, and parsers of records."""

import codecs
import json
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

import orjson

from streamlda.errors import one_of
from streamlda_connectors.encodings import AUTO, UTF_8
from streamlda_connectors.records import (
    MAX_POLL_BYTES,
    BatchBuilder,
    Document,
    Parser,
    ReadOptions,
    Record,
    Rejection,
    Skip,
    read_name,
)

BYTE_ORDER_MARK = codecs.BOM_UTF8

#: A name, and the names on the way down to it, where it is no key itself.
Field = tuple[str, list[str]]


class LineSplitter:
    r"""Cut at ``\n``, or nowhere if a stream is one record, which may be empty (`whole`).

    Holds at most one record of `max_bytes`; of a longer one only its length.
    """

    def __init__(self, max_bytes: int, *, whole: bool = False) -> None:
        self._max_bytes, self._whole = max_bytes, whole
        self._tail = bytearray()
        self._size = 0

    def feed(self, block: bytes) -> Sequence[Record]:
        """Return the records that `block` completes."""
        lines: list[Any] = [block] if self._whole else block.split(b"\n")
        tail = lines.pop()
        if lines:
            self._extend(lines[0])
            lines[0] = self._complete()
            if len(block) > self._max_bytes:
                limit = self._max_bytes
                lines[1:] = [
                    line if len(line) <= limit else Skip(len(line), "too-long")
                    for line in lines[1:]
                ]
        self._extend(tail)
        return lines

    def finish(self) -> Sequence[Record]:
        """Return the unfinished last record, if there is one."""
        return [self._complete()] if self._size or self._whole else []

    def _extend(self, part: bytes) -> None:
        self._size += len(part)
        if self._size > self._max_bytes:
            self._tail.clear()
        else:
            self._tail += part

    def _complete(self) -> Record:
        size, self._size = self._size, 0
        record = Skip(size, "too-long") if size > self._max_bytes else bytes(self._tail)
        self._tail.clear()
        return record


class RecordStream:
    """Records of one stream of blocks, the first of which starts at byte `offset`.

    `record` and `consumed` count the records and bytes that were handed out.
    """

    def __init__(
        self, location: str, splitter: LineSplitter, parse: Parser, record: int = 0, offset: int = 0
    ) -> None:
        self.location, self.record = location, record
        #: Bytes of the stream that were handed out, and fed.
        self.consumed = self.fed = offset
        self._splitter, self._parse = splitter, parse
        self._pending: Sequence[Record] = ()
        self._next = 0

    @property
    def offset(self) -> int:
        """Bytes of the stream up to the end of the last record handed out."""
        # The last line of a stream may lack the line end that `consumed` counts.
        return min(self.consumed, self.fed)

    @property
    def empty(self) -> bool:
        """True if everything queued was taken."""
        return self._next >= len(self._pending)

    def feed(self, block: bytes) -> None:
        """Queue the records that the next block completes."""
        self.fed += len(block)
        self.put(self._splitter.feed(block))

    def finish(self) -> str | None:
        """Queue the rest at the end of the stream; return the reason where it breaks off."""
        records = self._splitter.finish()
        self.put(records)
        last = records[-1] if records else b""
        return last.reason if isinstance(last, Skip) and last.reason != "too-long" else None

    def put(self, records: Sequence[Record]) -> None:
        """Queue records, the first of a stream without its byte order mark."""
        first = records[0] if records and not self.consumed else b""
        if isinstance(first, bytes) and first.startswith(BYTE_ORDER_MARK):
            self.consumed = len(BYTE_ORDER_MARK)
            records = [first[self.consumed :], *records[1:]]
        self._pending, self._next = records, 0

    def skip(self, n_records: int) -> None:
        """Skip up to `n_records` of the queued records, unread; none if it is negative."""
        i = min(self._next + max(0, n_records), len(self._pending))
        self.record += i - self._next
        self._next = i

    def take(self, batch: BatchBuilder) -> None:
        """Move records into `batch` until it is full or none is queued. Time O(bytes)."""
        # Nothing has moved if looking ahead for a time fails.
        parse, first, i, n_bytes = self._parse, self._next, self._next, 0
        consumed = self.consumed
        end, most_bytes = min(len(self._pending), first + batch.room), MAX_POLL_BYTES - batch.bytes
        found: list[Document | Rejection | None] = []
        while i < end and n_bytes < most_bytes:
            record = self._pending[i]
            i += 1
            if isinstance(record, Skip):
                consumed += record.size + 1
                found.append(Rejection(record.reason))
                continue
            consumed += len(record) + 1
            try:
                found.append(parse(record))
                n_bytes += len(record)
            except Rejection as error:
                # One that was raised would keep all documents until garbage is collected.
                found.append(Rejection(error.reason, error.fields))
        batch.extend(self.location, self.record + 1, found, n_bytes)
        self.record += i - first
        self.consumed, self._next = consumed, i
        if self.empty:
            self._pending, self._next = (), 0


def decode(data: bytes) -> str:
    """Return bytes of UTF-8 as text, or raise `Rejection`."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise Rejection("not-utf8") from error


def parse_value(value: bytes) -> Document:
    """Return the document of a record that is text and nothing else, blank or not."""
    return decode(value), None, None, None


def parse_text(line: bytes, name: str | None = None) -> Document | None:
    """Return the document of a line of plain text, or of a file whose `name` is its id."""
    text = decode(line.removesuffix(b"\r"))
    return None if not text or text.isspace() else (text, None, None, name)


def parse_json(data: bytes) -> Any:
    """Return a value of JSON, as Python writes it too: with NaN for a null."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        if b"NaN" not in data:
            raise
    found = json.loads(data, parse_constant=lambda name: None)
    try:
        orjson.dumps(found)
    except TypeError as error:
        raise ValueError("beside NaN there is what is no JSON") from error
    return found


def json_parser(options: ReadOptions) -> Parser:
    """Return the parser of JSON Lines. A string is a document without other fields.

    Fields of arrays are named by their numbers from 1.
    """
    document, name = document_reader(options, read_field), options.text_field
    others = options.user_field, options.time_field, options.id_field
    text_alone = others == (None, None, None)
    is_numbered = all(each.isdecimal() for each in options.text_fields)

    def parse(line: bytes) -> Document | None:
        try:
            record = parse_json(line)
        except (ValueError, RecursionError) as error:
            if not decode(line).strip():
                return None
            raise Rejection("not-json") from error
        if type(record) is str:
            return record, None, None, None
        if type(record) is list and is_numbered:
            record = {str(number): value for number, value in enumerate(record, 1)}
        if type(record) is not dict:
            raise Rejection("not-an-object")
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
    whole, user_field, time_field, id_field = paths
    parts = [(name, name.split(".")) for name in options.text_fields]

    def read(record: Any) -> Document | None:
        text = read_field(record, whole)
        found = [text] if text is not None else [read_field(record, each) for each in parts]
        texts = [_join_pieces(each) for each in found if each is not None]
        if not all(type(each) is str for each in texts):
            raise Rejection("not-text")
        if not texts:
            if any(has_field(record, each) for each in parts):
                return None
            raise Rejection("missing-field", record if type(record) is dict else ())
        user, name = (
            None if field is None else read_name(read_field(record, field), numbers)
            for field, numbers in ((user_field, options.has_classes), (id_field, True))
        )
        time = None if time_field is None else options.read_time(read_field(record, time_field))
        return join_fields(texts), user, time, name

    return read


def _join_pieces(text: Any) -> Any:
    """Return a list of words, or of pieces as chats write them, as one text."""
    if type(text) is not list:
        return text
    pieces: list[Any] = [each.get("text") if type(each) is dict else each for each in text]
    return " ".join(pieces) if all(type(each) is str for each in pieces) else text


def join_fields(texts: Iterable[str]) -> str:
    """Return the fields of a document as one text."""
    return "\n".join(filter(None, texts))


def line_parser(
    formats: Collection[str], format: str, options: ReadOptions, plain: Parser = parse_text
) -> Parser:
    """Return the parser of one of the `formats` of lines: text, which `plain` parses, or JSON."""
    one_of(formats, format=format, remedy="read other formats from files (connector files)")
    options.check_format(format)
    parse, encoding = plain if format == "text" else json_parser(options), options.encoding
    if encoding in (None, AUTO, UTF_8):
        return parse

    def parse_recoded(record: bytes) -> Document | None:
        try:
            return parse(record.decode(encoding).encode())
        except UnicodeError as error:
            raise Rejection("not-utf8") from error

    return parse_recoded


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
