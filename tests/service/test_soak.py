"""A daemon over a stream of millions of documents: nothing grows, and nothing slows down."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from streamlda.model.topic_model import load
from streamlda.storage.store import Store
from tests.service.daemon_process import ROOT, environment
from tests.service.long_stream import MARKS, SNAPSHOTS

#: Documents of the stream; for a trial a few millions: of fewer, starting is too large a share.
N_DOCUMENTS = int(os.environ.get("STREAMLDA_TEST_SOAK_DOCUMENTS", 20_000_000))


def figures_of(marks):
    """Return what is judged: quarters against quarters, since single marks are noisy.

    Memory goes up and down with snapshots and checkpoints, so that its median is looked at; the
    first quarter is warm-up. Of times that of the processor is judged: whatever else the machine
    does would spoil the other. Snapshots have threads of their own, for a moment.
    """
    quarters = np.array_split(np.arange(len(marks["documents"])), 4)
    _, before, _, after = (
        {name: float(np.median(values[part])) for name, values in marks.items()}
        for part in quarters
    )
    coarse = slice(0, None, MARKS // SNAPSHOTS)
    seconds, documents = (np.diff(marks[name][coarse]) for name in ("processor", "documents"))
    first, *_, last = (float(np.median(each)) for each in np.array_split(seconds / documents, 4))
    return {
        "memory_drift": after["resident_bytes"] / before["resident_bytes"] - 1,
        "time_drift": last / first - 1,
        "more_descriptors": after["descriptors"] - before["descriptors"],
        "more_threads": after["threads"] - before["threads"],
    }


@pytest.mark.soak
def test_memory_time_descriptors_and_threads_are_flat(tmp_path, capsys):
    command = [sys.executable, "-m", "tests.service.long_stream", str(tmp_path), str(N_DOCUMENTS)]
    with (tmp_path / "log").open("wb") as log:
        done = subprocess.run(command, cwd=ROOT, env=environment(), stderr=log)
    assert done.returncode == 0, (tmp_path / "log").read_text()[-3000:]
    rows = [json.loads(line) for line in (tmp_path / "marks").read_text().splitlines()]
    marks = {name: np.array([row[name] for row in rows], dtype=float) for name in rows[0]}
    assert marks["documents"][-1] == N_DOCUMENTS
    with Store.open(tmp_path / "checkpoints") as store:
        assert store.newest().about["places"] == N_DOCUMENTS
    last = sorted((tmp_path / "snapshots").glob("snapshot-??????"))[-1]
    assert load(last).documents_seen == N_DOCUMENTS
    figures = figures_of(marks)
    with capsys.disabled():
        print(json.dumps({name: round(value, 4) for name, value in figures.items()}))
    assert abs(figures["memory_drift"]) < 0.02
    assert abs(figures["time_drift"]) < 0.15
    assert figures["more_descriptors"] == figures["more_threads"] == 0
