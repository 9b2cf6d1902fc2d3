"""Which file is which from one scan to the next: rotated, cut, copied, gone, or new."""

from __future__ import annotations

import logging
import posixpath
from collections.abc import Iterable, Sequence
from glob import has_magic
from time import monotonic

from streamlda.checks import require
from streamlda.errors import SourceAwayError, SourceError, SourceRefusedError
from streamlda.stream.source import Position
from streamlda_connectors.follow.descriptors import Descriptors
from streamlda_connectors.follow.scan import DirectoryScan, Identity, StreamFile
from streamlda_connectors.follow.tracked_file import (
    State,
    TrackedFile,
    by_age,
    find_copy,
    is_copy,
    read_position,
    write_position,
)

logger = logging.getLogger(__name__)

#: How long the unfinished last line of a rotated file must have stayed as it is to be a record.
SETTLE_SECONDS = 1.0

#: A directory listed while files are renamed in it may miss one: so often is it listed again.
LISTINGS = 3

#: Files that a scan found and that nothing is known of yet.
NewFiles = dict[Identity, StreamFile]


class Watch:
    """Follows what becomes of the files under some paths; `files` are oldest first.

    Memory O(files that are there, and that were not read to their end), about 1 kB each.
    """

    def __init__(
        self, paths: Sequence[str], *, start: str, allow_gaps: bool, position: Position | None
    ) -> None:
        self.paths = paths
        self.start = start
        self.allow_gaps = allow_gaps
        self.files: list[TrackedFile] = []
        self.gaps = self.lost_bytes = 0
        self._scanned: set[str] = set()
        if position is not None:
            self._scanned, self.files, self.gaps, self.lost_bytes = read_position(position)
            require(
                self._scanned <= set(paths),
                "a position holds only for the paths it was made with",
                paths=list(paths),
                paths_of_position=sorted(self._scanned),
                remedy="name the same paths, and perhaps more, or start from the beginning",
                error=SourceRefusedError,
            )
        self._families: dict[str, list[TrackedFile]] = {}
        self._undecided: set[Identity] = set()
        self.descriptors = Descriptors()

    def scan(self, busy: TrackedFile | None = None) -> None:
        """Find out what has become of the files, and which are new.

        Of `busy` lines are queued: if it was cut, they are to be taken first. What was noted
        before an error stays.
        """
        scan = self._scan_all()
        new = dict(scan.files)
        known = {file.identity for file in self.files}
        # Where a file appears that may be a copy of another, that one may just have been cut.
        suspects = {
            base for found in new.values() if found.identity not in known for base in found.bases
        }
        self._sort_families()
        waits: set[str] = set()
        again = False
        for file in list(self.files):
            here = scan.files.get(file.identity)
            if here is not None and scan.links.get(file.name) == file.identity:
                here = here._replace(name=file.name)
            if here is None:
                self._find_moved(file, scan, new)
            elif (same := self._same(file, here, file.family in suspects)) is not None:
                self._note(file, same)
                new.pop(file.identity, None)
            elif file is busy or not file.cut:
                # Its copy may have been made while this scan was under way: the next one sees it.
                again = again or file is not busy
                file.cut = True
                waits.add(file.family)
                new.pop(file.identity, None)
            elif here.name == file.name:
                self._leave_cut(file, scan, new)
            else:
                self._find_moved(file, scan, new)
        self._add(new.values(), waits)
        self._scanned = set(self.paths)
        self._sort_families()
        if again:
            self.scan(busy)
            return
        for file in list(self.files):
            self.settle(file)

    def _scan_all(self) -> DirectoryScan:
        """List everything, again while something is missing that should be there."""
        inodes = {file.identity[1] for file in self.files}
        folders = {posixpath.dirname(file.name) for file in self.files}
        scan = DirectoryScan(self.paths, inodes, folders)
        for _ in range(LISTINGS - 1):
            missing = [f for f in self.files if f.identity not in scan.files and not f.away]
            if not missing:
                break
            before, scan = scan, DirectoryScan(self.paths, inodes, folders)
            for file in missing:
                if file.identity in before.files:
                    scan.files.setdefault(file.identity, before.files[file.identity])
        return scan

    def _sort_families(self) -> None:
        self._families = {}
        for file in self.files:
            if file.state != State.IGNORED:
                self._families.setdefault(file.family, []).append(file)

    def _same(self, file: TrackedFile, here: StreamFile, suspect: bool) -> StreamFile | None:
        """Return `here`, with the same inode, if it still is `file`, with what was read of it."""
        if here.size < file.offset:
            return None
        held = self.descriptors.has(file)
        unchanged = (here.size, here.modified_ns) == (file.size, file.modified_ns)
        placed = held or here.name == file.name
        if file.verified and placed and unchanged and not suspect and not file.cut:
            return here
        if file.state == State.IGNORED and not file.head.size:
            return here if placed else None
        before, file.name = file.name, here.name
        try:
            first, size = self.descriptors.glance(file)
        except OSError:
            # Reading it will meet the same; until then nothing speaks against it.
            return here
        if file.head.begins(first) and size >= file.offset:
            here = here._replace(size=size)
            if here.size >= file.read_to and not first.startswith(file.first[: file.read_to]):
                # An unfinished line was taken back, and another one begun.
                file.read_to = file.offset
            file.first, file.verified, file.cut = first, True, False
            return here
        file.name = before
        if not held:
            self.descriptors.drop(file)
        return None

    def _note(self, file: TrackedFile, here: StreamFile) -> None:
        """Note where `file` stands now, and its size."""
        if here.size < file.seen:
            # Without its unfinished last line, which never was a record, nothing is lost.
            if file.read_to < file.size or file.size < file.seen:
                self._note_gap(file, file.seen - max(here.size, file.offset))
            file.seen, file.read_to = here.size, file.offset
        file.name, file.modified_ns, file.away = here.name, here.modified_ns, False
        file.grow(here.size, monotonic())

    def _leave_cut(self, file: TrackedFile, scan: DirectoryScan, new: NewFiles) -> None:
        """Deal with a file whose name and inode hold something else now, which is in `new`."""
        if file.state == State.IGNORED:
            self._forget(file)
            return
        copy = self._find_copy(file, scan, new, anywhere=False)
        held = file.offset if copy is None else max(copy.size, file.offset)
        lost = max(0, file.seen - held)
        if lost or not (copy is not None or file.verified or file.state == State.DONE):
            self._note_gap(file, lost)
        if copy is None:
            self._forget(file)
        else:
            self._become(file, copy, new)

    def _find_moved(self, file: TrackedFile, scan: DirectoryScan, new: NewFiles) -> None:
        """Deal with a file whose inode was not found."""
        folder = posixpath.dirname(file.name)
        # An empty mount point is no sign that the files were removed.
        there = scan.folders.get(folder) == file.identity[0]
        if self.descriptors.has(file):
            status = self.descriptors.status(file)
            file.away, file.unlinked = there, status.st_nlink == 0
            file.grow(status.st_size, monotonic())
            return
        if file.state == State.IGNORED:
            if there:
                self._forget(file)
            return
        copy = self._find_copy(file, scan, new, anywhere=True)
        if copy is not None:
            self._become(file, copy, new)
            return
        if folder not in scan.folders:
            require(
                not file.unread,
                "the directory of a file that is not read to its end must be there",
                name=file.name,
                offset=file.offset,
                unread_bytes=file.unread,
                remedy="bring it back, or start from the beginning",
                error=SourceAwayError,
            )
            return
        replaced = scan.links.get(file.family, file.identity) != file.identity
        complete = file.state == State.DONE or file.verified
        if file.unread or not (complete or not (replaced or self._is_plain(file))):
            self._note_gap(file, file.unread)
            self._forget(file)
        elif there:
            self._forget(file)

    def _find_copy(
        self, file: TrackedFile, scan: DirectoryScan, new: NewFiles, *, anywhere: bool
    ) -> StreamFile | None:
        ignored = {other.identity for other in self.files if other.state == State.IGNORED}
        unused = (f for f in scan.files.values() if f.identity in new or f.identity in ignored)
        return find_copy(file, unused, anywhere=anywhere)

    def _become(self, file: TrackedFile, copy: StreamFile, new: NewFiles) -> None:
        """Go on with `file` in its copy."""
        self.descriptors.drop(file)
        logger.info("file %s goes on in its copy %s", file.name, copy.name)
        self.files = [other for other in self.files if other.identity != copy.identity]
        new.pop(copy.identity, None)
        file.identity, file.name, file.modified_ns = copy.identity, copy.name, copy.modified_ns
        file.read_to, file.verified, file.cut, file.away = file.offset, True, False, False
        file.size = file.goal = 0
        file.grow(copy.size, monotonic())
        file.seen = copy.size

    def _note_gap(self, file: TrackedFile, lost: int) -> None:
        require(
            self.allow_gaps,
            "a file must be read to its end before it is removed, compressed or cut",
            name=file.name,
            offset=file.offset,
            least_unread_bytes=lost,
            remedy="put the file, or an uncompressed copy under the name it was rotated to, back "
            "into its directory, or start with allow_gaps to go on without the rest",
            error=SourceError,
        )
        logger.warning("gap: file %s ends at %d, %d bytes lost", file.name, file.offset, lost)
        self.gaps += 1
        self.lost_bytes += lost

    def _forget(self, file: TrackedFile) -> None:
        self.descriptors.drop(file)
        self.files.remove(file)
        if file in self._families.get(file.family, ()):
            self._families[file.family].remove(file)
        # Whoever still has it in hand must not read on.
        file.state = State.IGNORED

    def _add(self, new: Iterable[StreamFile], waits: set[str]) -> None:
        """Track what is new: oldest first where names tell, by name otherwise.

        What belongs to the families `waits` is left for a later scan.
        """
        first_scans = set(self.paths) - self._scanned
        made = []
        for found, family in by_age(new, {file.family for file in self.files}, self.paths):
            file = TrackedFile(found.name, family, found.identity)
            file.verified, file.modified_ns = True, found.modified_ns
            if file.family not in waits and self._begin(file, found):
                made.append((found, file))
        standing = {file.name: file for file in self.files if file.name == file.family}
        standing |= {file.name: file for _, file in made if file.name == file.family}
        undecided: set[Identity] = set()
        for found, file in made:
            first_scan = found.path in first_scans
            if first_scan and not found.named:
                file.state = State.IGNORED
            elif not first_scan and file.family != file.name:
                copied = is_copy(file, standing.get(file.family))
                if copied is None and file.identity not in self._undecided:
                    undecided.add(file.identity)
                    self.descriptors.drop(file)
                    continue
                file.state = State.IGNORED if copied else State.OPEN
            if file.state == State.IGNORED:
                self.descriptors.drop(file)
                file.seen = 0
            elif first_scan and self.start == "latest":
                file.offset = file.read_to = self.descriptors.last_line_end(file)
            self.files.append(file)
        self._undecided = undecided

    def _begin(self, file: TrackedFile, found: StreamFile) -> bool:
        """Take size and first bytes of a new file; return False if it is gone already."""
        # It may be removed before its turn comes; but what was opened earlier goes first.
        full = self.descriptors.full
        try:
            file.first, size = self.descriptors.glance(file)
        except FileNotFoundError:
            return False
        except OSError:
            # Reading it will meet the same, and say so.
            size = found.size
        if full:
            self.descriptors.drop(file)
        file.grow(size, monotonic())
        return True

    def settle(self, file: TrackedFile) -> None:
        """Note whether `file`, of which no more is expected, was read to its end.

        If only an unfinished line is left, that becomes a record once it has not grown for
        `SETTLE_SECONDS` and whoever writes has begun with the newer file.
        """
        if file.state == State.IGNORED or file.cut:
            return
        family = self._families[file.family]
        newer = next((other for other in family[family.index(file) + 1 :]), None)
        left = file.unlinked or (file.away and not self._is_plain(file))
        if newer is None and not left:
            return
        if self.descriptors.has(file):
            file.grow(self.descriptors.status(file).st_size, monotonic())
        if file.read_to < file.size:
            return
        if file.offset < file.size:
            moved_on = left or (newer is not None and newer.size > 0)
            file.flush = moved_on and monotonic() - file.still_since >= SETTLE_SECONDS
            return
        file.state = State.DONE
        self.descriptors.drop(file)
        if file.away or file.unlinked:
            self._forget(file)

    def _is_plain(self, file: TrackedFile) -> bool:
        """Whether one path names the file alone, so that its successor is still expected."""
        return file.family in self.paths and not has_magic(file.family)

    def blocked(self, file: TrackedFile) -> bool:
        """Whether an older file of the same family has to be finished first."""
        for older in list(self._families.get(file.family, ())):
            if older is file:
                return False
            if older.state == State.OPEN:
                self.settle(older)
                if older.state == State.OPEN:
                    return True
        return False

    def unread(self) -> list[TrackedFile]:
        """Return the files with something to read, oldest first, and set how far to read each."""
        ready = [
            file
            for file in self.files
            if file.state != State.IGNORED and (file.read_to < file.size or file.flush)
        ]
        for file in ready:
            file.goal = file.size
        return ready

    def lag(self) -> int | None:
        """Return how many bytes wait to be handed out, None before the first scan."""
        if not self._scanned:
            return None
        waiting = (f.size - f.offset for f in self.files if f.state != State.IGNORED)
        return sum(max(0, size) for size in waiting)

    def position(self) -> Position:
        """Return where reading goes on, as plain JSON."""
        return write_position(self._scanned, self.files, self.gaps, self.lost_bytes)

    def close(self) -> None:
        """Close all files."""
        self.descriptors.close()
