"""Documents on standard input, or any other open pipe, socket or file."""

from __future__ import annotations

import os
import select
import stat
from time import monotonic
from typing import IO

from streamlda.errors import InvalidSettingError, SourceError
from streamlda.stream.source import Poll, Position, Progress
from streamlda_connectors.lines import LineSplitter, json_parser, text_parser
from streamlda_connectors.records import (
    MAX_DOCUMENT_BYTES,
    Batch,
    Parser,
    RecordStream,
    check_has_fields,
)

#: Most bytes taken from the descriptor at once.
READ_BYTES = 1024 * 1024


class StdinSource:
    """Read documents, one a line, from a descriptor that may have to be waited for.

    Waiting ends when the timeout is up; a poll that has a document does not wait for more. On
    Windows, where pipes cannot be waited for, reads block.

    Parameters
    ----------
    stream : binary file, optional
        Anything with a ``fileno``; standard input by default. It is read past its own buffer and
        never closed.
    format : {"text", "jsonl"}, default "text"
        Plain text or JSON Lines.
    text_field, user_field, encoding, max_document_bytes
        As in `streamlda_connectors.files.FileSource`.

    Raises
    ------
    InvalidSettingError
        For an option out of range.
    SourceError
        If `stream` has no descriptor.

    Notes
    -----
    A stream cannot go back: to resume, replay it from its start, and the documents up to the
    position are passed over.
    """

    def __init__(
        self,
        stream: IO[bytes] | None = None,
        *,
        format: str = "text",
        text_field: str = "text",
        user_field: str | None = None,
        encoding: str = "utf-8",
        max_document_bytes: int = MAX_DOCUMENT_BYTES,
    ) -> None:
        parse: Parser
        if format == "text":
            check_has_fields(format, user_field)
            parse = text_parser(encoding)
        elif format == "jsonl":
            parse = json_parser(text_field, encoding, user_field)
        else:
            raise InvalidSettingError(
                f"format must be one of text, jsonl, got format={format!r}; "
                "read other formats with the connector files"
            )
        if max_document_bytes < 1:
            raise InvalidSettingError(
                "max_document_bytes must be at least 1, "
                f"got max_document_bytes={max_document_bytes}"
            )
        try:
            self._descriptor = 0 if stream is None else stream.fileno()
            status = os.fstat(self._descriptor)
        except OSError as error:
            raise SourceError(
                "a stream must be open and have a file descriptor, got "
                f"stream={'stdin' if stream is None else type(stream).__name__}; "
                "redirect a file or pipe to it"
            ) from error
        # The stream object keeps the descriptor open.
        self._stream = stream
        self._size = status.st_size if stat.S_ISREG(status.st_mode) else None
        self._read = 0
        self._records = RecordStream("stdin", LineSplitter(max_document_bytes), parse)
        self._has_users = user_field is not None
        self._target = 0
        self._ended = False
        self._closed = False

    def poll(self, max_documents: int, timeout_seconds: float = 1.0) -> Poll:
        """Return the documents that have come, waiting at most `timeout_seconds` for one.

        Raises
        ------
        SourceError
            If the source is closed, the descriptor cannot be read, or the stream ends before the
            position that was sought.
        InvalidSettingError
            If `max_documents` is below 1 or `timeout_seconds` below 0.
        """
        if self._closed:
            raise SourceError("a source must be open to be polled, got closed=True; make a new one")
        batch = Batch(max_documents, timeout_seconds)
        while True:
            self._records.skip(self._target - self._records.record)
            self._records.take(batch)
            if batch.full or not self._records.empty or self._ended:
                break
            if batch.blocks and batch.late:
                break
            batch.blocks += 1
            if not self._ready(0.0 if batch.texts else batch.deadline - monotonic()):
                break
            self._fill()
        ended = self._ended and self._records.empty
        if ended and self._records.record < self._target:
            raise SourceError(
                "a stream must be replayed from its start to resume, got "
                f"records={self._records.record} and a position after record={self._target}; "
                "send the same input again, or start anew"
            )
        return batch.poll(exhausted=ended, users=self._has_users)

    def _ready(self, seconds: float) -> bool:
        """Wait until the descriptor has bytes or has ended; return False if it has neither."""
        if not hasattr(select, "poll"):
            return True
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(max(0.0, seconds) * 1000))

    def _fill(self) -> None:
        try:
            block = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            # Another reader of the same pipe was faster.
            return
        except OSError as error:
            raise SourceError(
                f"a stream must be readable, got descriptor={self._descriptor} "
                f"({error.strerror}); redirect a file or pipe to it"
            ) from error
        self._read += len(block)
        if block:
            self._records.feed(block)
        else:
            self._ended = True
            self._records.finish()

    def position(self) -> Position:
        """Return how many records were read, blank lines and rejects included."""
        return {"record": max(self._records.record, self._target)}

    def seek(self, position: Position) -> None:
        """Pass over the records up to `position` of a stream that is replayed from its start.

        Raises
        ------
        SourceError
            If `position` is none of this connector, or lies before what was read already.
        """
        record = position.get("record")
        if type(record) is not int or record < 0:
            raise SourceError(
                "a position must be one that position() of this connector returned, got a bad "
                "'record'; start anew"
            )
        if record < self._records.record:
            raise SourceError(
                "a stream must be replayed from its start to go back, got "
                f"record={record} after record={self._records.record}; open it anew"
            )
        self._target = record

    def progress(self) -> Progress:
        """Return the records read or, of a redirected file, its bytes."""
        if self._size is None:
            return Progress(self._records.record, None, "documents")
        return Progress(min(self._read, self._size), self._size, "B")

    def close(self) -> None:
        """Stop reading. The stream is not this source's own and stays open."""
        self._closed = True
