"""Daemons on streams that last: those on a topic, killed until they end, and one in this process.

``python -m tests.service.long_stream FOLDER N_DOCUMENTS`` runs a daemon over a stream without disk,
and leaves what it saw of the process in ``FOLDER/marks``.
"""

import json
import os
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

from streamlda.run import opening
from streamlda.service import running
from streamlda.service.logs import start_logging
from streamlda.service.signals import leave
from streamlda.settings.load import load_settings
from streamlda.stream.source import Progress, RecordBatch
from streamlda.utils.process import resident_bytes
from tests.service.daemon_process import SECONDS, Daemon, settings_of, texts

#: For how long brokers are away in a long run, in seconds.
AWAY_SECONDS = float(os.environ.get("STREAMLDA_TEST_AWAY_SECONDS", 600))

#: How many marks a long run makes, and how many snapshots.
MARKS, SNAPSHOTS = 400, 20


def topic_settings(folder, bootstrap, topic, **more):
    folder.mkdir(exist_ok=True)
    flags = {"source.kind": "kafka", "kafka.bootstrap": bootstrap, "kafka.topic": topic}
    found = settings_of(folder, folder, flags, **more)
    del found["source.files"]
    return found


def ending(n_records, snapshots=1):
    every, rest = divmod(n_records, snapshots)
    assert rest == 0, "snapshots must share the records evenly"
    return {
        "snapshots.every": every,
        "snapshots.most": snapshots,
        "snapshots.when_exhausted": "stop",
    }


def as_json(documents):
    return [json.dumps({"text": text}).encode() for text in documents]


def answer_of(port, path):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
        return json.load(answer)


def not_ready(port):
    try:
        return answer_of(port, "/readyz")["reason"]
    except urllib.error.HTTPError as refused:
        with refused as answer:
            assert answer.code == 503
            return json.load(answer)["reason"]


def wait_for_slots(daemon, port, n_records):
    # Of a source that was away for long, ten seconds may pass until it is tried.
    until = time.monotonic() + SECONDS
    while ((slots := answer_of(port, "/status")["places"]) or 0) < n_records:
        said = b"".join(daemon.raw[-50:]).decode()
        assert time.monotonic() < until, f"places={slots}\n{said}"
        time.sleep(0.05)


def run_killed(settings, moments, kills, command=None):
    """Run a daemon to its end, killing it up to N times on the way; return how many."""
    killed = 0
    while True:
        with Daemon(settings, command) as daemon:
            if killed < kills:
                kill_at_random(daemon, moments)
            code = daemon.end()
        if code == 0:
            return killed
        assert code == -9, b"".join(daemon.raw).decode()
        killed += 1


def kill_at_random(daemon, moments):
    """Kill a daemon anywhere, its start included, or soon after a checkpoint, while it learns.

    Only those after a checkpoint bring it further, so that there is an end.
    """
    anywhere = moments.random() < 0.3
    until = time.monotonic() + SECONDS
    while not anywhere and daemon.process.poll() is None:
        assert time.monotonic() < until, b"".join(daemon.raw).decode()
        if daemon.events("checkpoint"):
            break
        time.sleep(0.003)
    time.sleep(moments.uniform(0.0, 2.0 if anywhere else 0.2))
    daemon.process.kill()


class Repeated:
    """The same documents over and over, as a source; it notes in `marks` how its process fares."""

    def __init__(self, documents, n_documents, marks):
        self._documents, self._total, self._marks = documents, n_documents, marks
        self._next = self._marked = 0

    def poll(self, max_records, timeout_seconds=1.0):
        start = self._next % len(self._documents)
        stop = min(start + min(max_records, self._total - self._next), len(self._documents))
        self._next += stop - start
        ended = self._next == self._total
        if ended or self._next - self._marked >= self._total // MARKS:
            self._mark()
        return RecordBatch([*self._documents[start:stop]], exhausted=ended)

    def _mark(self):
        self._marked = self._next
        mark = {
            "documents": self._next,
            "processor": time.process_time(),
            "resident_bytes": resident_bytes(),
            "descriptors": sum(1 for _ in Path("/proc/self/fd").iterdir()),
            "threads": threading.active_count(),
        }
        with self._marks.open("a") as file:
            file.write(json.dumps(mark) + "\n")

    def position(self):
        return {"document": self._next}

    def seek(self, position):
        self._next = self._marked = int(position["document"])

    def progress(self):
        return Progress(self._next, self._total, "documents")

    def close(self):
        pass


def long_run(folder, n_documents):
    """Run a daemon of this process over a stream without disk; return its exit code."""
    documents = texts(20_000)
    source = Repeated(documents, n_documents, folder / "marks")
    opening.parts.open_stream = lambda *_: source
    flags = {
        "checkpoint.interval": "2 s",
        # Documents are then read as they are learned, and not in bursts.
        "memory.queue": "4 MiB",
        "snapshots.every": max(n_documents // SNAPSHOTS, 100),
        "log.level": "info",
    }
    flags = settings_of(folder, folder / "in memory", flags)
    settings = load_settings(environment={}, flags=flags)
    start_logging("json", "info")
    return running.run(settings)


if __name__ == "__main__":
    leave(long_run(Path(sys.argv[1]), int(sys.argv[2])))
