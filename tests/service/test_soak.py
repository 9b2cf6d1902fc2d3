"""A daemon over a stream of millions of documents: nothing grows, and nothing slows down."""

import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest

from streamlda.model.topic_model import load
from streamlda.storage.store import Store
from tests.kafka.broker import free_ports
from tests.service.daemon_process import ROOT, environment
from tests.service.long_stream import MARKS, SNAPSHOTS, answer_of

#: Documents of the stream; for a trial a few millions: of fewer, starting is too large a share.
N_DOCUMENTS = int(os.environ.get("STREAMLDA_TEST_SOAK_DOCUMENTS", 20_000_000))


def read_marks(path):
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return {name: np.array([row[name] for row in rows], dtype=float) for name in rows[0]}


def figures_of(marks):
    """Return what is judged: quarters against quarters, since single marks are noisy.

    Memory goes up and down with snapshots and checkpoints, so that its median is looked at; the
    first quarter is warm-up. Of times that of the processor is judged: whatever else the machine
    does would spoil the other, which is shown. Snapshots have threads of their own, for a moment.
    """
    quarters = np.array_split(np.arange(len(marks["documents"])), 4)
    memory = [float(np.median(marks["resident_bytes"][part])) for part in quarters]
    peaks = [float(np.max(marks["resident_bytes"][part])) for part in quarters]
    wall, times = (quarter_times(marks, clock) for clock in ("seconds", "processor_seconds"))
    return {
        "documents": float(marks["documents"][-1]),
        "seconds": float(marks["seconds"][-1] - marks["seconds"][0]),
        "resident_mib": memory[-1] / 2**20,
        "memory_drift": memory[3] / memory[1] - 1,
        "memory_peak_drift": max(peaks[2:]) / max(peaks[:2]) - 1,
        "microseconds_a_document": times[3] * 1e6,
        "time_drift": times[3] / times[0] - 1,
        "wall_time_drift": wall[3] / wall[0] - 1,
        **{
            f"{name}_{when}": float(np.median(marks[name][quarters[number]]))
            for name in ("descriptors", "threads")
            for when, number in (("first", 1), ("last", 3))
        },
    }


def quarter_times(marks, clock):
    """Return seconds a document in each quarter: the median from snapshot to snapshot."""
    coarse = slice(0, None, MARKS // SNAPSHOTS)
    per_document = np.diff(marks[clock][coarse]) / np.diff(marks["documents"][coarse])
    return [float(np.median(part)) for part in np.array_split(per_document, 4)]


def check(figures):
    assert abs(figures["memory_drift"]) < 0.02
    assert abs(figures["time_drift"]) < 0.15
    assert figures["descriptors_last"] == figures["descriptors_first"]
    assert figures["threads_last"] == figures["threads_first"]


@pytest.mark.soak
def test_memory_time_descriptors_and_threads_are_flat(tmp_path, capsys):
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "tests.service.long_stream", str(tmp_path), str(N_DOCUMENTS)]
    with (tmp_path / "log").open("wb") as log:
        daemon = subprocess.Popen(
            command, cwd=ROOT, env=environment(STREAMLDA_TEST_PORT=str(port)), stderr=log
        )
    try:
        while daemon.poll() is None:
            # The page asks as often: what it costs, and might leave behind, is part of it.
            if daemon.poll() is None and (tmp_path / "marks").exists():
                try_status(port)
            time.sleep(2)
    finally:
        if daemon.poll() is None:
            daemon.kill()
        code = daemon.wait(60)
    assert code == 0, (tmp_path / "log").read_text()[-3000:]
    marks = read_marks(tmp_path / "marks")
    assert marks["documents"][-1] == N_DOCUMENTS
    with Store.open(tmp_path / "checkpoints") as store:
        newest = store.newest()
    assert newest is not None
    assert newest.about["places"] == N_DOCUMENTS
    last = sorted((tmp_path / "snapshots").glob("snapshot-??????"))[-1]
    assert load(last).documents_seen == N_DOCUMENTS
    figures = figures_of(marks)
    with capsys.disabled():
        print(json.dumps({name: round(value, 4) for name, value in figures.items()}))
    check(figures)


def try_status(port):
    """Ask the daemon, which may just be ending."""
    try:
        assert answer_of(port, "/livez")["alive"]
    except OSError:
        time.sleep(0.1)
