"""Documents on standard input, or any other open pipe, socket or file."""

import os
import select
from dataclasses import replace
from time import monotonic
from typing import IO, Any

from streamlda.stream.source import WHOLE, Position, Progress, RecordBatch
from streamlda_connectors.checks import check, check_open, count_at, fault
from streamlda_connectors.csv_files import names_text
from streamlda_connectors.encodings import AUTO, UTF_8, Encoding, Recoder, find_mark
from streamlda_connectors.json_files import has_lines, is_spread
from streamlda_connectors.lines import LineSplitter, RecordStream, line_parser
from streamlda_connectors.records import BatchBuilder, ReadOptions

#: Most bytes taken from the descriptor at once.
READ_BYTES = 1024 * 1024

#: Said of JSON that is not a record a line, and of what is read as text and is none.
NO_LINES = "stdin has no object on a line of its own: write it to a file, and name that"
LINES = "stdin is read as lines of text: name JSON Lines (--format jsonl), write others to a file"


class StdinSource:
    """Read documents, one a line, from a descriptor that may have to be waited for.

    Waiting ends when the timeout is up; a poll that has a document does not wait for more.

    Parameters
    ----------
    stream : binary file, optional
        Anything with a ``fileno``; standard input by default. It is read past its own buffer and
        never closed.
    format : {"text", "jsonl"}, default "text"
        Plain text or JSON Lines.
    **reading
        `time_format`, and as in `streamlda_connectors.records.ReadOptions`; no encoding is guessed.

    Raises
    ------
    InvalidSettingError
        For an option out of range.

    Notes
    -----
    A stream cannot go back: to resume, replay it from its start, and the documents up to the
    position are skipped.
    """

    _name = "stdin"

    def __init__(
        self, stream: IO[bytes] | None = None, *, format: str = "text", **reading: Any
    ) -> None:
        # The stream object keeps the descriptor open.
        self._stream, self._descriptor = stream, 0 if stream is None else stream.fileno()
        self._options = options = ReadOptions.of(**reading)
        self._format, self._notes = format, list[str]()
        # The stream as a whole is decoded, and not each record.
        parse = line_parser(("text", "jsonl"), format, replace(options, encoding=None))
        self._records = RecordStream(self._name, LineSplitter(options.max_document_bytes), parse)
        self._recoder: Recoder | None = None
        #: Records to skip in a stream that is replayed.
        self._target = 0
        self._ended = self._closed = False

    def poll(self, max_records: int, timeout_seconds: float = 1.0) -> RecordBatch:
        """Return the records that have come, waiting at most `timeout_seconds` for a document."""
        check_open(self._closed)
        batch, records = BatchBuilder(max_records, timeout_seconds), self._records
        while True:
            records.skip(self._target - records.record)
            records.take(batch)
            if batch.full or not records.empty or self._ended or (batch.blocks and batch.late):
                break
            batch.blocks += 1
            try:
                block = self._read_block(0.0 if batch.n_documents else batch.deadline - monotonic())
            except OSError as error:
                if batch.empty:
                    raise fault("stream", reason=error.strerror) from error
                break  # the next poll meets the error again
            if block is None:
                break
            self._feed(block)
        ended = self._ended and records.empty
        enough = not ended or records.record >= self._target
        check(enough, "replay", records=records.record, records_of_position=self._target)
        batch.notes += self._notes
        self._notes = []
        return batch.build(self._options, exhausted=ended)

    def _read_block(self, seconds: float) -> bytes | None:
        """Return the next bytes, empty at the end; None if none come within some seconds."""
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        waited = poll.poll(max(0.0, seconds) * 1000)
        return os.read(self._descriptor, READ_BYTES) if waited else None

    def _feed(self, block: bytes) -> None:
        if self._recoder is None:
            # Without an encoding a byte order mark says what the stream is in.
            given = self._options.encoding or UTF_8
            found = (find_mark(block) or UTF_8) if given == AUTO else given
            self._recoder = Recoder(Encoding(found))
        self._ended = not block
        decoded = self._recoder.feed(block, final=self._ended)
        # The first record of a private stream must not decide what is said.
        if not self._records.fed and self._options.encoding is not None:
            is_table = has_lines(decoded) or names_text(decoded, self._options)
            if is_spread(decoded):
                self._notes.append(NO_LINES)
            elif self._format == "text" and is_table:
                self._notes.append(LINES)
        self._records.feed(decoded)
        if self._ended:
            self._records.finish()

    def position(self) -> Position:
        """Return how many records were read, blank lines and rejects included."""
        return {"record": max(self._records.record, self._target)}

    def seek(self, position: Position) -> None:
        """Skip the records up to `position` of a stream that is replayed from its start."""
        record, read = count_at(position, "record"), self._records.record
        check(record >= read, "replay", record=record, records_read=read)
        self._target = record

    def passed(self) -> dict[str, int]:
        """Return how many records were read, as one part."""
        return {WHOLE: self.position()["record"]}

    def progress(self) -> Progress:
        """Return how many records were read."""
        return Progress(self._records.record, None, "documents")

    def close(self) -> None:
        """Stop reading. The stream is not this source's own and stays open."""
        self._closed = True
