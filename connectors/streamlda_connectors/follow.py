"""Source of lines in files that grow and rotate."""

from collections import deque
from time import monotonic, sleep
from typing import Any

from streamlda.errors import StreamLDAError
from streamlda.stream.listing import Paths
from streamlda.stream.source import WHOLE, Position, Progress, RecordBatch
from streamlda_connectors.checks import check_open, count_at, unreadable
from streamlda_connectors.lines import LineSplitter, RecordStream, line_parser
from streamlda_connectors.records import BatchBuilder, ReadOptions
from streamlda_connectors.watch import TrackedFile, Watch, check_paths

#: Shortest time from one scan of the files to the next.
SCAN_SECONDS = 0.2

#: Scans take at most about one part in SCAN_SHARE of the time, however many files there are.
SCAN_SHARE = 10

#: Bytes read at once.
BLOCK_BYTES = 256 * 1024


class FollowSource:
    """Read documents from files that grow and rotate, one a line, without end.

    A line is read once its line end is written, and once only: files are known by device, inode
    and a fingerprint of their first 256 bytes, so `position` holds across rotation and restarts.
    A scan takes one stat of each file every 0.2 s, or a tenth of the time where there are many.
    Memory is O(files under the paths, about 2 kB each in a scan, + `max_document_bytes` + one
    poll).

    Parameters
    ----------
    paths : str, path or iterable of them
        Local files, directories (all files below) or patterns. They may appear later. Hidden and
        compressed files are left out, and so are links to directories.
    format : {"jsonl", "text"}, default "jsonl"
        JSON Lines, or one document a line.
    allow_gaps : bool, default False
        Accept that a file was removed, compressed or cut before it was read to its end. The gap is
        logged, and counted in the position.
    **reading
        `time_format`, and as in `streamlda_connectors.records.ReadOptions`; no encoding is guessed.

    Raises
    ------
    SourceError
        If a directory cannot be read, or a path is neither file nor directory.
    InvalidSettingError
        For an option out of range, and for paths that are URLs or compressed.

    Notes
    -----
    ``connectors/README.md`` has the rules of rotation. Where a path names ``app.log``, rotated
    files that are there at the start are not read. When a newer one has begun and the older one has
    not grown for 1 s, the rest of that without a line end is its last record.

    A gap: bytes that were seen and not read are gone; or, between two runs, a file was replaced
    or cut, or the only file of a path was removed, and its old content is not found.

    Files of one scan are read by name, each as far as it went then, before the next scan.
    """

    def __init__(
        self, paths: Paths, *, format: str = "jsonl", allow_gaps: bool = False, **reading: Any
    ) -> None:
        self._options = options = ReadOptions.of(**reading)
        self._parse = line_parser(("jsonl", "text"), format, options)
        self._paths = check_paths(paths)
        self._allow_gaps = allow_gaps
        self._paused = self._closed = False
        self._done = self._records = 0
        self._watch = self._open_watch(None)

    def _open_watch(self, position: Position | None) -> Watch:
        watch = Watch(self._paths, self._allow_gaps, position)
        try:
            watch.scan()
        except OSError as error:
            raise _name_cause(error) from error
        self._work: deque[TrackedFile] = deque(watch.plan_reading())
        self._scan_at = monotonic() + SCAN_SECONDS
        return watch

    def poll(self, max_records: int, timeout_seconds: float = 1.0) -> RecordBatch:
        """Return the records that have come, waiting at most `timeout_seconds` for one.

        Records that can be read are returned before a `SourceError` is raised. With
        `max_records` of 0 it brings nothing, and keeps track of the files.
        """
        check_open(self._closed)
        batch = BatchBuilder(max_records or 1, timeout_seconds)
        while True:
            problem = self._scan()
            if max_records and not self._paused:
                problem = self._read(batch) or problem
            if not batch.empty or (batch.late and problem is None):
                self._records += len(batch.texts)
                return batch.build(self._options)
            if problem is not None:
                raise _name_cause(problem) from problem
            if not self._work or self._paused:
                sleep(max(0.0, min(self._scan_at, batch.deadline) - monotonic()))

    def _scan(self) -> OSError | StreamLDAError | None:
        """Scan all files if it is time to; return the error, if any."""
        begun = monotonic()
        if begun < self._scan_at:
            return None
        try:
            self._watch.scan()
        except OSError as error:
            # The next poll scans again, and meets it again.
            return error
        now = monotonic()
        self._scan_at = now + max(SCAN_SECONDS, (SCAN_SHARE - 1) * (now - begun))
        if not self._work:
            self._work.extend(self._watch.plan_reading())
        return None

    def _read(self, batch: BatchBuilder) -> StreamLDAError | None:
        """Fill `batch` from the files that wait; return the error, if any."""
        problem: StreamLDAError | None = None
        while self._work and not (batch.full or (batch.late and batch.blocks)):
            file = self._work[0]
            try:
                ended = self._read_file(file, batch)
            except FileNotFoundError:
                # Renamed since the last scan: the next one finds it, or says that it is gone.
                ended = True
            except OSError as error:
                problem, ended = unreadable(file.name, error), True
            if ended:
                self._work.popleft()
        return problem

    def _read_file(self, file: TrackedFile, batch: BatchBuilder) -> bool:
        """Add lines of a file; return whether it is read to its goal.

        The next poll reads again what is behind the last record that fits, and an unfinished line.
        """
        splitter, begin = LineSplitter(self._options.max_document_bytes), file.offset
        stream = RecordStream(file.name, splitter, self._parse, file.record, begin)
        while not file.ignored and stream.fed < file.goal:
            block = file.read(stream.fed, min(BLOCK_BYTES, file.goal - stream.fed))
            if not block:
                return True
            stream.feed(block)
            batch.blocks += 1
            self._take(file, stream, batch)
            if batch.full or (batch.late and file.offset > begin):
                return False
        file.read_to = stream.fed
        if file.flush:
            stream.finish()
            self._take(file, stream, batch)
            file.flush = False
        return True

    def _take(self, file: TrackedFile, stream: RecordStream, batch: BatchBuilder) -> None:
        stream.take(batch)
        self._done += stream.offset - file.offset
        file.offset = file.read_to = stream.offset
        file.record = stream.record

    def pause(self) -> None:
        """Take no lines until `resume`. Polls bring nothing, and keep track of the files."""
        self._paused = True

    def resume(self) -> None:
        """Take lines again after `pause`."""
        self._paused = False

    def position(self) -> Position:
        """Return where the next poll resumes: a row for each file, gaps, and all records."""
        return {**self._watch.position(), "records": self._records}

    def passed(self) -> dict[str, int]:
        """Return how many records of all files were read, as one part."""
        return {WHOLE: self._records}

    def seek(self, position: Position) -> None:
        """Resume from a position; scans all files, and changes nothing if there is an error."""
        check_open(self._closed)
        records = count_at(position, "records")
        watch = self._open_watch({key: position[key] for key in position if key != "records"})
        self._records, self._watch = records, watch
        self._done = sum(file.offset for file in watch.files)

    def progress(self) -> Progress:
        """Return how many bytes were handed out; files that are followed have no end."""
        return Progress(self._done, None, "B")

    #: Unit of `lag`.
    lag_unit = "bytes"

    def lag(self) -> dict[int, int | None]:
        """Return how many bytes wait to be read, of all files as of the last scan, under 0."""
        return {0: self._watch.lag()}

    def lost(self) -> dict[str, int]:
        """Return how often data was lost, and how many bytes it is known to be, for display."""
        return {"gaps": self._watch.gaps, "bytes": self._watch.lost_bytes}

    def close(self) -> None:
        """Stop following. Closing twice is allowed."""
        self._closed = True


def _name_cause(error: OSError | StreamLDAError) -> StreamLDAError:
    return error if isinstance(error, StreamLDAError) else unreadable(str(error.filename), error)
