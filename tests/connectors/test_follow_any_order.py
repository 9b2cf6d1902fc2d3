"""Any order of writing, rotating, polling and restarting: each line is read once."""

import json
import tempfile
from pathlib import Path
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlda_connectors import follow as source
from streamlda_connectors import watch
from streamlda_connectors.follow import FollowSource
from tests.connectors.logs import Log

#: A copy is made and the log is cut later: polls and restarts come between, and no lines.
STEPS = ["write", "write", "half", "rename", "copy", "cut", "poll", "poll", "restart"]


class Run:
    """A log, a source that follows it, and the lines written and read."""

    def __init__(self, path, log):
        self.path, self.log = path, Log(log)
        self.log.path.touch()
        self.written, self.seen, self.pending, self.copied = [], [], "", False
        self.source = self.open()

    def open(self, position=None):
        opened = FollowSource(self.path, format="text")
        if position is not None:
            opened.seek(json.loads(json.dumps(dict(position))))
        return opened

    def write(self, end="\n"):
        if not self.copied:
            line = self.pending or f"line {len(self.written)} " + "x" * (len(self.written) % 7 * 60)
            if end:
                self.log.write(line[len(line) // 2 if self.pending else 0 :], end=end)
                self.written.append(line)
            elif not self.pending:
                self.log.write(line[: len(line) // 2], end="")
            self.pending = "" if end else line

    def half(self):
        self.write(end="")

    def rename(self):
        if not self.copied and not self.pending:
            self.log.rotate()
            self.log.path.touch()

    def copy(self):
        if not self.copied and not self.pending:
            target = Path(f"{self.log.path}.1")
            if target.exists():
                Log(target).rotate()
            target.write_bytes(self.log.path.read_bytes())
            self.copied = True

    def cut(self):
        if self.copied:
            self.log.path.write_bytes(b"")
            self.copied = False

    def poll(self):
        self.seen += self.source.poll(2, 0.0).documents

    def restart(self):
        position = self.source.position()
        self.source.close()
        self.source = self.open(position)

    def finish(self):
        self.cut()
        if self.pending:
            self.write()
        for _ in range(len(self.written) + 5):
            self.poll()
        self.source.close()


@pytest.mark.parametrize("whole", [True, False], ids=["file", "directory"])
@settings(max_examples=60)
@given(steps=st.lists(st.sampled_from(STEPS), max_size=25))
def test_each_line_is_read_once(whole, steps):
    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(source, "SCAN_SECONDS", 0.0),
        patch.object(source, "SCAN_SHARE", 1),
        patch.object(watch, "SETTLE_SECONDS", 1e6),
    ):
        log = Path(folder, "app.log")
        run = Run(log if whole else folder, log)
        for step in steps:
            getattr(run, step)()
        run.finish()
        assert sorted(run.seen) == sorted(run.written)
