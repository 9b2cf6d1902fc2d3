"""Locks on files, which the system frees when their process ends, however it ends."""

import fcntl
import os
import weakref
from pathlib import Path


class LockedError(Exception):
    """Another process has the lock: `pid`, or ``"unknown"``."""

    def __init__(self, pid: int | str) -> None:
        super().__init__(f"pid={pid}")
        self.pid = pid


class FileLock:
    """The lock on a file, made if it is missing; taken at once, or `LockedError`.

    A forked child gives its copy up: it would keep the lock after the holder has ended.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        except BlockingIOError as error:
            holder = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
            os.close(descriptor)
            raise LockedError(int(holder) if holder.isdigit() else "unknown") from error
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        _TAKEN.add(self)

    @property
    def is_held(self) -> bool:
        """True until it is freed."""
        return self._descriptor is not None

    @property
    def in_place(self) -> bool:
        """True while the file of that name is the one that is locked."""
        assert self._descriptor is not None
        here = os.fstat(self._descriptor)
        try:
            there = self.path.stat()
        except FileNotFoundError:
            return False
        return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)

    def free(self) -> None:
        """Let another process in. Doing so twice is allowed."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_TAKEN: weakref.WeakSet[FileLock] = weakref.WeakSet()


def _free_in_child() -> None:
    for lock in list(_TAKEN):
        lock.free()


os.register_at_fork(after_in_child=_free_in_child)
