"""Any order of writing, rotating, polling, restarts and kills: each line is read once.

The reader that is killed stores what it read together with the position, in one line of a file, as
a daemon does in one transaction; a torn last line was not stored.
"""

import json
import multiprocessing
import os
import random
import shutil
import tempfile
from contextlib import closing
from pathlib import Path
from time import sleep
from unittest.mock import patch

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlda_connectors import follow as source
from streamlda_connectors import watch
from streamlda_connectors.follow import FollowSource
from tests.connectors.test_follow import Log
from tests.kafka.topics import SECONDS, wait_until

#: A copy is made and the log is cut later: polls and restarts come between, and no lines.
STEPS = ["write", "write", "half", "rename", "copy", "cut", "poll", "poll", "restart"]


class Run:
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


KILLS = 6

# Children of a server that has imported this module once, and has no threads.
context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload([__name__])


def read(path, stored, max_records):
    """Continue where the last stored line ends, until killed."""
    source.SCAN_SECONDS = 0.01
    # Of a file that is cut before its first line was read, a gap may be noted although all of it is
    # in its copy: what was read tells.
    follow = FollowSource(path, allow_gaps=True)
    follow.seek(json.loads(stored.read_text().splitlines()[-1])["position"])
    with stored.open("a") as file:
        while True:
            batch = follow.poll(max_records, 0.1)
            assert not batch.rejects
            if batch.texts:
                row = {"texts": batch.documents, "position": dict(follow.position())}
                # In two writes, so that a kill can tear the line.
                line = json.dumps(row) + "\n"
                for half in (line[: len(line) // 2], line[len(line) // 2 :]):
                    file.write(half)
                    file.flush()


def write(path, way, seed, written):
    """Append and rotate until a file ``.stop`` is there; then note how many lines there were."""
    draw = random.Random(seed)
    number = rotated = 0
    while not path.with_name(".stop").exists():
        with path.open("ab", buffering=0) as file:
            for _ in range(draw.randrange(1, 60)):
                line = json.dumps({"text": f"{number}", "filler": "x" * draw.randrange(300)})
                data = line.encode() + b"\n"
                number += 1
                cut = draw.randrange(len(line))
                file.write(data[:cut])
                if draw.random() < 0.2:
                    sleep(draw.random() * 0.005)
                file.write(data[cut:])
        if draw.random() < 0.3:
            for i in range(rotated, 0, -1):
                kept(path, i).rename(kept(path, i + 1))
            rotated += 1
            if way == "rename":
                path.rename(kept(path, 1))
            else:
                shutil.copy(path, kept(path, 1))
            sleep(draw.random() * 0.05)
            if way == "copy":
                os.truncate(path, 0)
    written.write_text(str(number))


def kept(path, number):
    return path.with_name(f"{path.name}.{number}")


def texts_of(stored):
    data = stored.read_bytes()
    lines = data[: data.rfind(b"\n") + 1].splitlines()
    return [text for line in lines for text in json.loads(line)["texts"]]


@pytest.fixture
def start():
    processes = []

    def start(run, *arguments):
        processes.append(context.Process(target=run, args=arguments, daemon=True))
        processes[-1].start()
        return processes[-1]

    yield start
    for process in processes:
        process.kill()
        process.join()


@pytest.mark.long
@pytest.mark.parametrize(("way", "whole"), [("rename", True), ("copy", False)])
def test_killed_reader_has_every_line_once(tmp_path, start, way, whole):
    draw = random.Random(f"{way} {whole}")
    folder, stored, written = tmp_path / "logs", tmp_path / "stored", tmp_path / "written"
    folder.mkdir()
    log = folder / "app.jsonl"
    log.touch()
    path = log if whole else folder
    # The first position is stored before anything is rotated away.
    with closing(FollowSource(path)) as first:
        stored.write_text(json.dumps({"texts": [], "position": dict(first.position())}) + "\n")
    writer = start(write, log, way, draw.randrange(1000), written)
    for kill in range(KILLS):
        reader = start(read, path, stored, draw.choice([1, 7, 1000]))
        if kill % 3:
            size = stored.stat().st_size + draw.randrange(5000)
            wait_until(lambda: stored.stat().st_size > size or not reader.is_alive())  # noqa: B023
        sleep(draw.random() * 0.05)
        assert reader.is_alive()
        reader.kill()
        reader.join()
        # As a database would, take away a torn last line.
        os.truncate(stored, stored.read_bytes().rfind(b"\n") + 1)
        if kill % 2:
            # The files are rotated while nobody reads.
            n_files = len(list(folder.iterdir()))
            wait_until(lambda: len(list(folder.iterdir())) > n_files)  # noqa: B023
    assert texts_of(stored), "the killed readers read nothing"
    (folder / ".stop").touch()
    writer.join(SECONDS)
    lines = [str(i) for i in range(int(written.read_text()))]
    assert len(lines) > 100
    reader = start(read, path, stored, 1000)
    wait_until(lambda: len(texts_of(stored)) >= len(lines) or not reader.is_alive())
    reader.kill()
    reader.join()
    assert sorted(texts_of(stored), key=int) == lines
    with closing(FollowSource(path)) as last:
        last.seek(json.loads(stored.read_text().splitlines()[-1])["position"])
        assert last.poll(1000, 0.5).texts == []
