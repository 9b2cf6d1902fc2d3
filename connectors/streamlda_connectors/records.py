"""From blocks of bytes to batches: which records were handed out, and which were skipped why.

Shared by every connector, so that a file and standard input give the same documents and the same
rejects. Nothing here opens or waits for anything; ``streamlda_connectors.lines`` has the formats.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, NamedTuple, Protocol

from streamlda.checks import at_least, failure, require
from streamlda.errors import SourceError, StreamLDAError
from streamlda.stream.source import Position, RecordBatch, RecordLocation, Reject

#: Every reason of a `Reject` that the connectors of this package give, and what it means.
REASONS = {
    "bad-encoding": "bytes that the chosen encoding (other than UTF-8) cannot decode",
    "broken-compression": "damaged or cut-off compressed data; the rest of the file is skipped",
    "broken-csv": "a quote that never closes, or more or fewer fields than the header",
    "broken-parquet": "damaged Parquet data; the rest of the file is skipped",
    "decoder-failed": "a record that the decoder of the caller could not take",
    "missing-column": "a file without the text column; the whole file is skipped",
    "missing-field": "a record without the text field, or a null in its place",
    "not-an-object": "a JSON line that is no object",
    "not-json": "a line that is not JSON (NaN and Infinity are not JSON either)",
    "not-text": "a text field, or a whole Parquet column, that holds something else than text",
    "not-utf8": "bytes that are not UTF-8",
    "too-long": "a record of more than max_document_bytes",
}

#: A poll stops after records of this many bytes in all, however many records it may hold.
MAX_POLL_BYTES = 32 * 2**20

#: Default limit of one record: far above any document, far below what memory holds.
MAX_DOCUMENT_BYTES = 16 * 2**20

BYTE_ORDER_MARK = codecs.BOM_UTF8


class Rejected(Exception):
    """Raised by a parser for a record that is to be skipped; never leaves a connector.

    Parameters
    ----------
    reason : str
        A short fixed word: one of `REASONS`, or one of the caller's own.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class MissingColumn(Rejected):
    """A file whose header (`columns`) does not name the text column, or gives it another type."""

    def __init__(self, reason: str, columns: list[str]) -> None:
        super().__init__(reason)
        self.columns = columns


class Skipped(NamedTuple):
    """A record of `size` bytes that was skipped before it was whole, for one of `REASONS`."""

    size: int
    reason: str


#: What a splitter hands on: the bytes of a record without its line end, or why there are none.
Record = bytes | Skipped

#: The text of a record, and whose it is, or None where that is not known.
Document = tuple[str, str | None]

#: Turns a record into a document, or None for a blank line; raises `Rejected`.
Parser = Callable[[bytes], Document | None]


class Splitter(Protocol):
    """Cuts a stream of blocks into records, wherever the blocks begin and end."""

    def feed(self, block: bytes) -> Sequence[Record]:
        """Return the records that `block` completes."""

    def finish(self) -> Sequence[Record]:
        """Return the last record, if the stream did not end in a line end."""


class ReadOptions(NamedTuple):
    """Keys or columns of text and user, the encoding, and the longest record, in bytes."""

    text_field: str
    encoding: str
    max_document_bytes: int
    user_field: str | None = None


def user_name(value: object) -> str | None:
    """Return the name of a user: text or an int, so that 7 and "7" are the same user.

    None for an empty name and for anything else, bytes that are not UTF-8 among it.
    """
    if type(value) is int:
        return str(value)
    if type(value) is bytes:
        try:
            return value.decode() or None
        except UnicodeDecodeError:
            return None
    return value or None if type(value) is str else None


def check_has_fields(format: str, user_field: str | None) -> None:
    """Raise `InvalidSettingError` if users are to be read from a format without fields."""
    require(
        format != "text" or user_field is None,
        "users can only be read from a format with fields",
        format=format,
        user_field=user_field,
        remedy="name another format, or leave user_field out",
    )


def check_open(closed: bool) -> None:
    """Raise `SourceError` if a source is closed."""
    require(
        not closed,
        "a source must be open to be polled",
        closed=closed,
        remedy="make a new one",
        error=SourceError,
    )


def count_at(position: Position, key: str) -> int:
    """Return the count >= 0 that stands under `key`, or raise `SourceError`."""
    value = position.get(key)
    if type(value) is not int or value < 0:
        raise not_a_position(key)
    return value


def not_a_position(key: str) -> StreamLDAError:
    """Return the error for what `position` of a connector never returned."""
    return failure(
        "a position must be one that position() of this connector returned",
        bad_key=key,
        remedy="start from the beginning",
        error=SourceError,
    )


def other_list(what: str, remedy: str, **values: Any) -> StreamLDAError:
    """Return the error for a position that was made with other files, paths or topics."""
    return failure(
        f"a position holds only for the {what} it was made with",
        **values,
        remedy=f"{remedy}, or start from the beginning",
        error=SourceError,
    )


def shortened(name: str, **missing: int) -> StreamLDAError:
    """Return the error for a file that ends before what was read of it."""
    return failure(
        "a file must still hold what was read of it",
        name=name,
        **missing,
        remedy="restore it, or start from the beginning",
        error=SourceError,
    )


def unreadable(name: str, error: OSError) -> StreamLDAError:
    """Return the error for a file or directory that the system does not let us read."""
    why = error.strerror or type(error).__name__
    return failure(
        "files and directories must be readable",
        name=name,
        remedy=f"check that it exists and its permissions ({why})",
        error=SourceError,
    )


class BatchBuilder:
    """What one poll of at most `max_records` and `timeout_seconds` gathers, and when it is full."""

    def __init__(self, max_records: int, timeout_seconds: float) -> None:
        at_least(1, max_records=max_records)
        require(
            timeout_seconds >= 0,
            "a poll must be given 0 seconds or more",
            timeout_seconds=timeout_seconds,
        )
        self.max_records = max_records
        self.deadline = monotonic() + timeout_seconds
        self.texts: list[str | None] = []
        self.locations: list[RecordLocation] = []
        self.users: list[str | None] = []
        self.rejects: list[Reject] = []
        self.n_documents = self.bytes = 0
        #: Blocks read for this poll: the first is read however short the time.
        self.blocks = 0

    def add(self, location: str, record: int, text: str, user: str | None, size: int) -> None:
        """Add a document whose record has `size` bytes."""
        self.texts.append(text)
        self.locations.append(RecordLocation(location, record))
        self.users.append(user)
        self.n_documents += 1
        self.bytes += size

    def blank(self, location: str, record: int) -> None:
        """Add a record that is no document, such as a blank line."""
        self.texts.append(None)
        self.locations.append(RecordLocation(location, record))
        self.users.append(None)

    def reject(self, location: str, record: int, reason: str) -> None:
        """Add a record that is skipped for a fault."""
        self.blank(location, record)
        self.rejects.append(Reject(location, record, reason))

    @property
    def room(self) -> int:
        """How many more records may come."""
        return self.max_records - len(self.texts)

    @property
    def full(self) -> bool:
        """Whether nothing more fits."""
        return len(self.texts) >= self.max_records or self.bytes >= MAX_POLL_BYTES

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return monotonic() >= self.deadline

    @property
    def empty(self) -> bool:
        """Whether nothing at all was gathered."""
        return not self.texts

    def build(self, *, exhausted: bool, users: bool = False) -> RecordBatch:
        """Return what was gathered, with `users` if the source knows about them."""
        named = self.users if users else []
        return RecordBatch(self.texts, self.rejects, exhausted, self.locations, named)


class RecordQueue:
    """Records of one container that were read but not all handed out.

    `record` and `consumed` count the records and bytes that were handed out, and no others.
    """

    def __init__(self, location: str, parse: Parser, record: int = 0) -> None:
        self.location = location
        self.record = record
        self.consumed = 0
        self._parse = parse
        self._pending: Sequence[Record] = ()
        self._users: Sequence[str | None] | None = None
        self._next = 0

    def put(self, records: Sequence[Record], users: Sequence[str | None] | None = None) -> None:
        """Queue `records`, once those before are taken; users from `users`, else the records."""
        self._pending, self._users, self._next = records, users, 0

    def take(self, batch: BatchBuilder) -> None:
        """Move records into `batch` until it is full or none is queued. Time O(bytes)."""
        pending, i, end = self._pending, self._next, len(self._pending)
        while i < end and not batch.full:
            record = pending[i]
            i += 1
            self.record += 1
            if isinstance(record, Skipped):
                self.consumed += record.size + 1
                batch.reject(self.location, self.record, record.reason)
                continue
            self.consumed += len(record) + 1
            try:
                document = self._parse(record)
            except Rejected as rejected:
                batch.reject(self.location, self.record, rejected.reason)
                continue
            if document is None:
                batch.blank(self.location, self.record)
                continue
            text, user = document
            user = user if self._users is None else self._users[i - 1]
            batch.add(self.location, self.record, text, user, len(record))
        self._next = i
        if i == end:
            self._pending, self._users, self._next = (), None, 0

    def skip(self, n_records: int) -> None:
        """Skip up to `n_records` of the queued records, unread; none if it is negative."""
        i = min(self._next + max(0, n_records), len(self._pending))
        self.record += i - self._next
        self._next = i

    @property
    def empty(self) -> bool:
        """Whether everything queued was taken."""
        return self._next >= len(self._pending)


class RecordStream(RecordQueue):
    """A queue filled from blocks of bytes, the first of which starts at byte `offset`."""

    def __init__(
        self, location: str, splitter: Splitter, parse: Parser, record: int = 0, offset: int = 0
    ) -> None:
        super().__init__(location, parse, record)
        self._splitter = splitter
        self.consumed = offset
        self._fed = offset
        # The first bytes are held back until they are, or cannot be, a byte order mark.
        self._head: bytes | None = b"" if offset == 0 else None

    @property
    def offset(self) -> int:
        """Bytes of the stream up to the end of the last record handed out."""
        # The last line of a stream may lack the line end that `consumed` counts.
        return min(self.consumed, self._fed)

    def feed(self, block: bytes) -> None:
        """Queue the records that the next `block` completes."""
        self._fed += len(block)
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

    def finish(self) -> None:
        """Queue what is left at the end of the stream."""
        head, self._head = self._head, None
        records = self._splitter.feed(head) if head else ()
        self.put([*records, *self._splitter.finish()])
