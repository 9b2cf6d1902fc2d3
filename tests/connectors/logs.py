"""A log under rotation, a reader of it that is not waited for, and a time without rights."""

import os
import shutil
from contextlib import contextmanager
from pathlib import Path
from time import monotonic

NOBODY = 65534


#: Longer than the bytes by which files are told apart.
LINES = [f"line {i} " + "word " * 20 for i in range(8)]


class Log:
    """A log under rotation, and what was written to it."""

    def __init__(self, path):
        self.path = Path(path)

    def write(self, *lines, end="\n"):
        with self.path.open("a") as file:
            file.write("\n".join(lines) + end)

    def rotate(self, name="{}.1"):
        target = Path(name.format(self.path))
        if target.exists():
            Log(target).rotate(name)
        self.path.rename(target)
        return target

    def copy_and_cut(self, name="{}.1"):
        target = Path(name.format(self.path))
        if target.exists():
            Log(target).rotate(name)
        shutil.copy(self.path, target)
        os.truncate(self.path, 0)


def texts(source, wanted):
    """Poll until as many texts as wanted have come, and a few times more."""
    seen, end = [], monotonic() + 60.0
    while len(seen) < len(wanted) and monotonic() < end:
        seen += source.poll(3, 0.0).documents
    for _ in range(3):
        seen += source.poll(100, 0.0).documents
    assert seen == wanted


@contextmanager
def without_rights():
    """Whoever may read everything, may not for a while."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)
