"""Documents on standard input, or any other open pipe, socket or file."""

from __future__ import annotations

import os
import select
import stat
from time import monotonic
from typing import IO

from streamlda.checks import at_least, failure
from streamlda.errors import SourceError
from streamlda.stream.source import Position, Progress, RecordBatch
from streamlda_connectors.checks import check_open, count_at
from streamlda_connectors.lines import LineSplitter, RecordStream, line_parser
from streamlda_connectors.records import MAX_DOCUMENT_BYTES, BatchBuilder, ReadOptions

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
    text_field, user_field, time_field, id_field, encoding, max_document_bytes
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
    position are skipped.
    """

    def __init__(
        self,
        stream: IO[bytes] | None = None,
        *,
        format: str = "text",
        text_field: str = "text",
        user_field: str | None = None,
        time_field: str | None = None,
        id_field: str | None = None,
        encoding: str = "utf-8",
        max_document_bytes: int = MAX_DOCUMENT_BYTES,
    ) -> None:
        options = ReadOptions(
            text_field, encoding, max_document_bytes, user_field, time_field, id_field
        )
        parse = line_parser(("text", "jsonl"), format, options)
        at_least(1, max_document_bytes=max_document_bytes)
        try:
            self._descriptor = 0 if stream is None else stream.fileno()
            status = os.fstat(self._descriptor)
        except OSError as error:
            raise failure(
                "a stream must be open and have a file descriptor",
                stream="stdin" if stream is None else type(stream).__name__,
                remedy="redirect a file or pipe to it",
                error=SourceError,
            ) from error
        # The stream object keeps the descriptor open.
        self._stream = stream
        self._size = status.st_size if stat.S_ISREG(status.st_mode) else None
        self._read = 0
        self._records = RecordStream("stdin", LineSplitter(max_document_bytes), parse)
        self._known = {"users": user_field is not None, "times": time_field is not None}
        self._target = 0
        self._ended = False
        self._closed = False

    def poll(self, max_records: int, timeout_seconds: float = 1.0) -> RecordBatch:
        """Return the records that have come, waiting at most `timeout_seconds` for a document."""
        check_open(self._closed)
        batch = BatchBuilder(max_records, timeout_seconds)
        while True:
            self._records.skip(self._target - self._records.record)
            self._records.take(batch)
            if batch.full or not self._records.empty or self._ended:
                break
            if batch.blocks and batch.late:
                break
            batch.blocks += 1
            if not self._ready(0.0 if batch.n_documents else batch.deadline - monotonic()):
                break
            self._fill()
        ended = self._ended and self._records.empty
        if ended and self._records.record < self._target:
            raise failure(
                "a stream must be replayed from its start to resume",
                records=self._records.record,
                records_of_position=self._target,
                remedy="send the same input again, or start from the beginning",
                error=SourceError,
            )
        return batch.build(exhausted=ended, **self._known)

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
            raise failure(
                "a stream must be readable",
                descriptor=self._descriptor,
                remedy=f"redirect a file or pipe to it ({error.strerror})",
                error=SourceError,
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
        """Skip the records up to `position` of a stream that is replayed from its start.

        Raises `SourceError` if it lies before what was read already.
        """
        record = count_at(position, "record")
        if record < self._records.record:
            raise failure(
                "a stream must be replayed from its start to go back",
                record=record,
                records_read=self._records.record,
                remedy="open it again",
                error=SourceError,
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
