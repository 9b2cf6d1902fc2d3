"""The connector itself: polls the files under some paths, and turns their lines into documents."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterable
from time import monotonic, sleep

from streamlda.checks import at_least, failure, one_of
from streamlda.errors import SourceError, StreamLDAError
from streamlda.stream.listing import Paths
from streamlda.stream.source import Position, Progress, RecordBatch, Reject
from streamlda_connectors.checks import check_open, unreadable
from streamlda_connectors.follow.scan import check_has_lines, check_paths
from streamlda_connectors.follow.tracked_file import TrackedFile
from streamlda_connectors.follow.watch import Watch
from streamlda_connectors.lines import LineSplitter, RecordStream, line_parser
from streamlda_connectors.records import MAX_DOCUMENT_BYTES, BatchBuilder, ReadOptions

logger = logging.getLogger(__name__)

#: Most files whose rejects are remembered as logged; with more they may be logged again.
MOST_TOLD = 10_000

#: Shortest time from one scan of the files to the next.
SCAN_SECONDS = 0.2

#: Scans take at most about one part in SCAN_SHARE of the time, however many files there are, unless
#: the next one would come later than after the longest time.
SCAN_SHARE = 10
LONGEST_SCAN_SECONDS = 5.0

#: Bytes read at once.
BLOCK_BYTES = 256 * 1024


class FollowSource:
    r"""Read documents from files that grow and rotate, one a line, without end.

    A line is read once its line end is written, and once only, whatever is renamed meanwhile:
    files are known by device, inode and a fingerprint of their first 256 bytes, so `position`
    holds across rotation and restarts. A scan takes one stat of each file at most every
    0.2 s, where there are very many at least every 5 s. Memory is O(files under the paths, about
    2 kB each in a scan, + `max_document_bytes` + one poll).

    Parameters
    ----------
    paths : str, path or iterable of them
        Local files, directories (all files below) or patterns. They may appear later. Hidden and
        compressed files are left out, and so are links to directories.
    format : {"jsonl", "text"}, default "jsonl"
        JSON Lines, or one document a line.
    text_field, user_field, time_field, id_field : str
        Of JSON, as in `streamlda_connectors.files.FileSource`.
    max_document_bytes : int, default 16 MiB
        A longer line is skipped as it streams by.
    allow_gaps : bool, default False
        Whether to go on where a file was removed, compressed or cut before it was read to its
        end. The gap is logged, and counted in the position.
    start : {"earliest", "latest"}, default "earliest"
        Where to begin, without a position, in files that are there already. Latest is the start
        of the line that is being written; record numbers count from there.
    encoding : str, default "utf-8"
        A codec that extends ASCII.

    Raises
    ------
    SourceError
        If a directory cannot be read, or a path is neither file nor directory.
    InvalidSettingError
        For an option out of range, for paths that are URLs or compressed, and for JSON Lines where
        all files that are there have the names of other formats, as .html.

    Notes
    -----
    *Rotation.* ``app.log.1``, ``app.log-20250131``, ``app.log.old`` and ``app.1.log`` count as
    rotated from ``app.log``. Where a path names ``app.log``, those that are there at the start are
    not read, and those that come later are, so that no number of rotations between two scans, or
    between two runs, loses a line. A file under one of `paths` may be renamed at will. The
    files of one name are read one after the other, in the order in which they were last written.
    When a newer one has begun and the older one has not grown for 1 s, what is left in that
    without a line end is its last record.

    *Copying and cutting* (copytruncate). A file that got shorter, or begins otherwise than it
    did, is new; what was not read of the old one is read from its copy. Two generations of a
    file that agree in their first 256 bytes, the later one being longer, cannot be told apart,
    nor can a copy be seen that is compressed at once.

    *Gaps.* Bytes that were seen and not read are gone; or, between two runs, a file was
    replaced or cut, or the only file of a path was removed, and its old content is not found: then
    a number of bytes is lost that is known only in part. A file in a directory, or under a
    pattern, that was read to its end as far as seen, and has no successor, may be removed.

    *Rejects.* A line that is no document is a reject; of each file with any, the first poll that
    has some logs how many.

    *Order.* Files that were there at one scan are read by name, each as far as it went then,
    before the next scan; what grows meanwhile has its turn later, oldest file first. So the
    order between files is that of arrival, and a private run should follow one.
    """

    def __init__(
        self,
        paths: Paths,
        *,
        format: str = "jsonl",
        text_field: str = "text",
        user_field: str | None = None,
        time_field: str | None = None,
        id_field: str | None = None,
        max_document_bytes: int = MAX_DOCUMENT_BYTES,
        allow_gaps: bool = False,
        start: str = "earliest",
        encoding: str = "utf-8",
    ) -> None:
        one_of(("earliest", "latest"), start=start)
        at_least(1, max_document_bytes=max_document_bytes)
        options = ReadOptions(
            text_field, encoding, max_document_bytes, user_field, time_field, id_field
        )
        self._parse = line_parser(("jsonl", "text"), format, options)
        self._known = {"users": user_field is not None, "times": time_field is not None}
        self._max_bytes = max_document_bytes
        self._paths = check_paths(paths)
        self._start = start
        self._allow_gaps = allow_gaps
        self._paused = self._closed = False
        self._done = 0
        self._told: set[str] = set()
        self._file: TrackedFile | None = None
        self._stream: RecordStream | None = None
        self._read_to = 0
        self._finished = False
        self._watch = self._new_watch(None)
        if format == "jsonl":
            check_has_lines([file.name for file in self._work])

    def _new_watch(self, position: Position | None) -> Watch:
        watch = Watch(
            self._paths, start=self._start, allow_gaps=self._allow_gaps, position=position
        )
        try:
            watch.scan()
        except OSError as error:
            watch.close()
            raise _loud(error) from error
        self._work: deque[TrackedFile] = deque(watch.unread())
        self._leave()
        self._scan_at = monotonic() + SCAN_SECONDS
        return watch

    def poll(self, max_records: int, timeout_seconds: float = 1.0) -> RecordBatch:
        """Return the records that have come, waiting at most `timeout_seconds` for one.

        Time O(bytes read), and of a scan of all files where one is due. What can be read is
        returned before a `SourceError` is raised, and polling again tries again.
        """
        check_open(self._closed)
        batch = BatchBuilder(max_records, timeout_seconds)
        while True:
            problem = self._scan()
            if not self._paused:
                problem = self._read(batch) or problem
            if not batch.empty or (batch.late and problem is None):
                self._tell(batch.rejects)
                return batch.build(exhausted=False, **self._known)
            if problem is not None:
                raise _loud(problem) from problem
            if not self._work or self._paused:
                sleep(max(0.0, min(self._scan_at, batch.deadline) - monotonic()))

    def _tell(self, rejects: Iterable[Reject]) -> None:
        """Log how many lines are no documents, in files of which it was not said yet."""
        found = [reject for reject in rejects if reject.location not in self._told]
        if found:
            files = dict.fromkeys(reject.location for reject in found)
            if len(self._told) >= MOST_TOLD:
                self._told.clear()
            self._told.update(files)
            reasons = Counter(reject.reason for reject in found)
            problem = failure(
                "files that are followed must hold a document a line",
                rejected=len(found),
                reasons=", ".join(f"{reason} {n}" for reason, n in sorted(reasons.items())),
                files=len(files),
                name=next(iter(files)),
                remedy="move what holds no such lines out of the paths, or read it from files "
                "(--source-kind files)",
                error=SourceError,
            )
            logger.warning("%s", problem)

    def _scan(self) -> OSError | StreamLDAError | None:
        """Scan all files if it is time to; return what went wrong."""
        begun = monotonic()
        if begun < self._scan_at:
            return None
        busy = None if self._stream is None or self._stream.empty else self._file
        try:
            self._watch.scan(busy)
        except OSError as error:
            # The next poll scans again, and meets it again.
            return error
        now = monotonic()
        rest = min((SCAN_SHARE - 1) * (now - begun), LONGEST_SCAN_SECONDS)
        self._scan_at = now + max(SCAN_SECONDS, rest)
        if not self._work:
            self._work.extend(self._watch.unread())
        return None

    def _read(self, batch: BatchBuilder) -> StreamLDAError | None:
        """Fill `batch` from the files that wait; return what went wrong, if anything did."""
        problem: StreamLDAError | None = None
        while True:
            self._hand_out(batch)
            if batch.full or (batch.late and batch.blocks):
                return problem
            file = self._next()
            if file is None:
                return problem
            batch.blocks += 1
            try:
                self._fill(file)
            except FileNotFoundError:
                # Renamed since the last scan: the next one finds it, or says that it is gone.
                self._work.popleft()
            except OSError as error:
                problem = unreadable(file.name, error)
                self._work.popleft()

    def _next(self) -> TrackedFile | None:
        """Return the file to read on in."""
        while self._work:
            file = self._work[0]
            waits = file.read_to < file.goal or file.flush
            if waits and not file.cut and not self._watch.blocked(file):
                return file
            self._work.popleft()
        return None

    def _fill(self, file: TrackedFile) -> None:
        """Queue the lines that the next block of `file` completes."""
        stream = self._stream
        if stream is None or file is not self._file or file.read_to != self._read_to:
            # An unfinished line is read again: of many files only one is kept in memory.
            splitter = LineSplitter(self._max_bytes)
            stream = RecordStream(file.name, splitter, self._parse, file.record, file.offset)
            self._file, self._stream = file, stream
            file.read_to = file.offset
        if file.read_to < file.goal:
            block = self._watch.descriptors.read(file, min(BLOCK_BYTES, file.goal - file.read_to))
            if not block:
                self._work.popleft()
                return
            stream.feed(block)
            file.read_to += len(block)
        else:
            stream.finish()
            file.flush = False
            self._finished = True
        self._read_to = file.read_to

    def _hand_out(self, batch: BatchBuilder) -> None:
        """Move queued lines into `batch`."""
        file, stream = self._file, self._stream
        if file is None or stream is None or (stream.empty and not self._finished):
            return
        stream.take(batch)
        self._done += stream.offset - file.offset
        file.offset, file.record = stream.offset, stream.record
        if stream.empty and self._finished:
            self._leave()

    def _leave(self) -> None:
        self._file = self._stream = None
        self._read_to, self._finished = 0, False

    def pause(self) -> None:
        """Take no lines until `resume`. Polls go on, bring nothing, and keep track of the files."""
        self._paused = True

    def resume(self) -> None:
        """Take lines again after `pause`."""
        self._paused = False

    def position(self) -> Position:
        """Return where the next poll will go on.

        The keys: ``paths``, ``folders``, ``files`` (of each: folder, name, the name it was
        written under if another, device, inode, length and digest of its first bytes, offset,
        record, bytes unread, state), ``gaps`` (how often data was lost) and ``lost_bytes`` (how
        much of it is known). About 100 bytes a file; read and removed ones are forgotten.
        """
        return self._watch.position()

    def seek(self, position: Position) -> None:
        """Go on from a position that `position` returned, in this process or an earlier one.

        Scans all files, and opens each; paths may have been added since. Raises `SourceError`, and
        changes nothing, if it is no such position, or one of other paths, or there is a gap and
        `allow_gaps` is not set.
        """
        check_open(self._closed)
        watch = self._new_watch(position)
        self._watch.close()
        self._watch = watch
        self._done = sum(file.offset for file in watch.files)

    def progress(self) -> Progress:
        """Return how many bytes were handed out; files that are followed have no end."""
        return Progress(self._done, None, "B")

    #: What `lag` counts.
    lag_unit = "bytes"

    def lag(self) -> dict[int, int | None]:
        """Return how many bytes wait to be read, of all files as of the last scan, under 0."""
        return {0: self._watch.lag()}

    def lost(self) -> dict[str, int]:
        """Return how often data was lost, and how many bytes it is known to be, for display."""
        return {"gaps": self._watch.gaps, "bytes": self._watch.lost_bytes}

    def close(self) -> None:
        """Close all files. Closing twice is allowed."""
        self._closed = True
        self._watch.close()


def _loud(error: OSError | StreamLDAError) -> StreamLDAError:
    return error if isinstance(error, StreamLDAError) else unreadable(str(error.filename), error)
