"""Open files, and what is read of them."""

from __future__ import annotations

import os
from collections import OrderedDict

from streamlda_connectors.follow.tracked_file import HEAD_BYTES, TrackedFile

#: Files kept open, so that they can be read to their end after they were removed.
MAX_OPEN = 128

#: Bytes read at once when the end of the last line is sought.
BACKWARD_BYTES = 64 * 1024


class Descriptors:
    """Open files, at most `MAX_OPEN` of them besides those that could not be opened again."""

    def __init__(self) -> None:
        self._open: OrderedDict[TrackedFile, int] = OrderedDict()

    def has(self, file: TrackedFile) -> bool:
        """Whether `file` is open."""
        return file in self._open

    @property
    def full(self) -> bool:
        """Whether another one would close one of these."""
        return len(self._open) >= MAX_OPEN

    def get(self, file: TrackedFile) -> int:
        """Return a descriptor; `FileNotFoundError` also if the name leads to another file."""
        held = self._open.get(file)
        if held is not None:
            self._open.move_to_end(file)
            return held
        # Without O_NONBLOCK, a pipe that has taken the name would hold this up.
        descriptor = os.open(file.name, os.O_RDONLY | os.O_NONBLOCK)
        status = os.fstat(descriptor)
        if (status.st_dev, status.st_ino) != file.identity:
            os.close(descriptor)
            raise FileNotFoundError(file.name)
        if self.full:
            spare = next((other for other in self._open if not other.away), None)
            if spare is not None:
                self.drop(spare)
        self._open[file] = descriptor
        return descriptor

    def status(self, file: TrackedFile) -> os.stat_result:
        """Return what the system says of `file`, whatever it is called."""
        return os.fstat(self.get(file))

    def glance(self, file: TrackedFile) -> tuple[bytes, int]:
        """Return the first bytes of `file`, and its size at the same time."""
        descriptor = self.get(file)
        while True:
            first = os.pread(descriptor, HEAD_BYTES, 0)
            size = os.fstat(descriptor).st_size
            if os.pread(descriptor, HEAD_BYTES, 0) == first and size >= len(first):
                return first, size

    def read(self, file: TrackedFile, max_bytes: int) -> bytes:
        """Return what follows in `file`; empty if it was cut, which the next scan deals with."""
        descriptor = self.get(file)
        block = os.pread(descriptor, max_bytes, file.read_to)
        # Looked at after the block was read: if it is as before, so was the block.
        first = os.pread(descriptor, HEAD_BYTES, 0)
        before = file.first[: file.read_to] if file.first else block[: len(first)]
        if not first.startswith(before) or not file.head.begins(first):
            file.cut = True
            return b""
        file.first, file.verified = first, True
        return block

    def last_line_end(self, file: TrackedFile) -> int:
        r"""Return the offset after the last ``\n`` in `file`, 0 without one."""
        descriptor, end = self.get(file), file.size
        while end > 0:
            start = max(0, end - BACKWARD_BYTES)
            at = os.pread(descriptor, end - start, start).rfind(b"\n")
            if at >= 0:
                return start + at + 1
            end = start
        return 0

    def drop(self, file: TrackedFile) -> None:
        """Close `file`, if it is open."""
        descriptor = self._open.pop(file, None)
        if descriptor is not None:
            os.close(descriptor)

    def close(self) -> None:
        """Close all."""
        while self._open:
            os.close(self._open.popitem()[1])
