"""From blocks of bytes to polls: which records were handed out, and which were passed over why.

Shared by every connector, so that a file and standard input give the same documents and the same
rejects. Nothing here opens or waits for anything; ``streamlda_connectors.lines`` has the formats.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Sequence
from time import monotonic
from typing import NamedTuple, Protocol

from streamlda.errors import InvalidSettingError
from streamlda.stream.source import Place, Poll, Reject

#: Every reason of a `Reject` that the connectors of this package give, and what it means.
REASONS = {
    "bad-encoding": "bytes that the encoding asked for (other than UTF-8) cannot decode",
    "broken-compression": "damaged or cut-off compressed data; the rest of the file is passed over",
    "broken-csv": "a quote that never closes, or more or fewer fields than the header",
    "broken-parquet": "damaged Parquet data; the rest of the file is passed over",
    "decoder-failed": "a record that the decoder of the caller could not take",
    "missing-column": "a file without the text column; the whole file is passed over",
    "missing-field": "a record without the text field, or a null in its place",
    "not-an-object": "a JSON line that is no object",
    "not-json": "a line that is not JSON (NaN and Infinity are not JSON either)",
    "not-text": "a text field, or a whole Parquet column, that holds something else than text",
    "not-utf8": "bytes that are not UTF-8",
    "too-long": "a record of more than max_document_bytes",
}

#: A poll stops after records of this many bytes in all, however many documents it may hold.
MAX_POLL_BYTES = 32 * 2**20

#: Default limit of one record: far above any document, far below what memory holds.
MAX_DOCUMENT_BYTES = 16 * 2**20

BYTE_ORDER_MARK = codecs.BOM_UTF8


class Rejected(Exception):
    """Raised by a parser for a record that is to be passed over; never leaves a connector."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class MissingColumn(Rejected):
    """A file whose header does not name the text column, or names it for something else.

    Attributes
    ----------
    columns : list of str
        The columns there are.
    """

    def __init__(self, reason: str, columns: list[str]) -> None:
        super().__init__(reason)
        self.columns = columns


class Skipped(NamedTuple):
    """A record that was passed over before it was whole.

    Attributes
    ----------
    size : int
        Its length, in bytes.
    reason : str
        One of `REASONS`.
    """

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
    """What the user chose about records.

    Attributes
    ----------
    text_field : str
        Key or column of the text.
    encoding : str
        Of text, JSON Lines and CSV.
    max_document_bytes : int
        Longest record.
    user_field : str or None
        Key or column of the user.
    """

    text_field: str
    encoding: str
    max_document_bytes: int
    user_field: str | None = None


def user_name(value: object) -> str | None:
    """Return the name of a user: text or a whole number, so that 7 and "7" are the same user.

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
    """Raise `InvalidSettingError` if users are asked for in a format without fields."""
    if format == "text" and user_field is not None:
        raise InvalidSettingError(
            "users can only be read from a format with fields, got format='text' "
            f"user_field={user_field!r}; name another format, or leave user_field out"
        )


class Batch:
    """What one poll has gathered, and when it has enough.

    Parameters
    ----------
    max_documents : int
        Most records of the poll: documents, rejects and blank lines together.
    timeout_seconds : float
        Time from now on that the poll may take.

    Raises
    ------
    InvalidSettingError
        If `max_documents` is below 1 or `timeout_seconds` below 0.
    """

    def __init__(self, max_documents: int, timeout_seconds: float) -> None:
        if max_documents < 1:
            raise InvalidSettingError(
                f"a poll must ask for at least 1 document, got max_documents={max_documents}"
            )
        if not timeout_seconds >= 0:
            raise InvalidSettingError(
                f"a poll must be given 0 seconds or more, got timeout_seconds={timeout_seconds}"
            )
        self.max_documents = max_documents
        self.deadline = monotonic() + timeout_seconds
        self.texts: list[str] = []
        self.places: list[Place] = []
        self.users: list[str | None] = []
        self.rejects: list[Reject] = []
        self.gaps: list[int] = []
        self.bytes = 0
        #: Blocks read for this poll: the first is read however short the time.
        self.blocks = 0

    def reject(self, location: str, record: int, reason: str) -> None:
        """Add a record that is passed over."""
        self.rejects.append(Reject(location, record, reason))
        self.gaps.append(len(self.texts))

    def blank(self) -> None:
        """Add a blank line."""
        self.gaps.append(len(self.texts))

    @property
    def full(self) -> bool:
        """Whether nothing more fits."""
        return (
            len(self.texts) + len(self.gaps) >= self.max_documents or self.bytes >= MAX_POLL_BYTES
        )

    @property
    def late(self) -> bool:
        """Whether the time is up."""
        return monotonic() >= self.deadline

    @property
    def empty(self) -> bool:
        """Whether nothing at all was gathered."""
        return not self.texts and not self.gaps

    def poll(self, *, exhausted: bool, users: bool = False) -> Poll:
        """Return what was gathered, with `users` if the source knows about them."""
        named = self.users if users else []
        return Poll(self.texts, self.rejects, exhausted, self.places, named, self.gaps)


class RecordQueue:
    """Records that were read but not handed out: position counts only those handed out.

    Parameters
    ----------
    location : str
        Named in rejects.
    parse : callable
        Turns a record into its text and user.
    record : int
        Records handed out earlier.
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
        """Queue `records`; the ones queued before must have been taken.

        Their users stand in the records themselves, or in `users`, one for each record.
        """
        self._pending, self._users, self._next = records, users, 0

    def take(self, batch: Batch) -> None:
        """Move documents into `batch` until it is full or nothing is queued.

        Time O(bytes of the records).
        """
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
                batch.blank()
                continue
            text, user = document
            batch.texts.append(text)
            batch.places.append(Place(self.location, self.record))
            batch.users.append(user if self._users is None else self._users[i - 1])
            batch.bytes += len(record)
        self._next = i
        if i == end:
            self._pending, self._users, self._next = (), None, 0

    def skip(self, n_records: int) -> None:
        """Pass over up to `n_records` of the queued records, unread; none if it is negative."""
        i = min(self._next + max(0, n_records), len(self._pending))
        self.record += i - self._next
        self._next = i

    @property
    def empty(self) -> bool:
        """Whether everything queued was taken."""
        return self._next >= len(self._pending)


class RecordStream(RecordQueue):
    """A queue filled from blocks of bytes, with the byte offset of what was handed out.

    Parameters
    ----------
    location, parse, record
        As in `RecordQueue`.
    splitter : Splitter
        Finds the ends of the records.
    offset : int
        Where the first block starts in the decompressed stream, in bytes.
    """

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
