"""Memory that a daemon needs: processes stay below it, and a small control group is refused.

Over a stream of millions of documents nothing grows, and nothing slows down.
"""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from streamlda.errors import InvalidSettingError
from streamlda.model.topic_model import load
from streamlda.service import memory
from streamlda.service.memory import OF_GROUP, READING_BYTES, check_memory, memory_needed
from streamlda.settings.load import load_settings
from streamlda.storage.store import Store
from tests.service.daemon_process import ROOT, environment
from tests.service.long_stream import MARKS, SNAPSHOTS

KAFKA = {"kafka.bootstrap": "localhost:9092", "kafka.topic": "news", "vocabulary.kind": "hashed"}
PRIVATE = {"privacy.epsilon": 3.0, "privacy.delta": 1e-6, "privacy.ledger": "ledger"}
PRIVATE |= {"kafka.partitions": "0"}
WARMUP = {"topics.warmup_documents": 3000}


def settings_for(flags):
    return load_settings(environment={}, flags={**KAFKA, **flags})


def test_what_a_control_group_has_no_room_for_is_refused(monkeypatch):
    needed = memory_needed(settings_for({}))
    monkeypatch.setattr(memory, "get_memory_limit", lambda: int(needed / OF_GROUP) + 1)
    assert check_memory(settings_for({})) == f"up to {needed / 2**20:,.0f} MiB"
    monkeypatch.setattr(memory, "get_memory_limit", lambda: int(needed / OF_GROUP) - 1)
    with pytest.raises(InvalidSettingError, match=r"lower vocabulary.size, vocabulary.hash_bits"):
        check_memory(settings_for({}))

    # What is kept besides needs memory; sums through a projection keep no pairs of all words.
    begun = {"topics.count": 50, "vocabulary.kind": "learned"}
    least = memory_needed(settings_for(begun)) + 2**22
    for more in ({"topics.representative_documents": 5}, {"vocabulary.grow_every": 10_000}):
        assert memory_needed(settings_for(begun | more)) > least
    prefix = {**PRIVATE, "privacy.mode": "prefix", "snapshots.most": 100}
    assert memory_needed(settings_for({**prefix, "vocabulary.hash_bits": 14})) < 2**31


#: What a daemon does, in a process of its own: learn, snapshot, checkpoint; then its peak.
PROGRAM = """
import json, sys
from streamlda.storage.store import Store
from streamlda.guarantee.noise import SecureNoise
from streamlda.engine.engine import Engine
from streamlda.private.learner import PrivateLearner
from streamlda.settings.build import engine_settings, private_settings
from streamlda.settings.load import load_settings
from streamlda.simulate import PlantedLDA
from streamlda.text.vocabulary import Vocabulary

folder, flags, V = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
settings = load_settings(environment={}, flags=flags)
words = Vocabulary.given([f"w{i}" for i in range(V)])
documents = PlantedLDA(5, V, seed=1, mean_length=60).documents(2000)
if settings.private:
    learner = PrivateLearner(private_settings(settings, V))
    while learner.last is None:
        start = 0
        while start < documents.n_documents and learner.last is None:
            start += learner.add(documents.rows(start, documents.n_documents))
            if learner.due_stage is not None:
                learner.accept(learner.due_stage.release(SecureNoise()))
    copied = [array.copy() for array in learner.state()[0].values()]
else:
    engine = Engine(engine_settings(settings, V))
    for _ in range(6):
        engine.add(documents)
    with Store.open(folder) as store:
        captured = store.capture(engine, {}, words)
        engine.snapshot(words)
        store.write(captured)
# Not getrusage: its maximum counts what the parent had before the new program was begun.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["VmHWM"].split()[0]) * 1024)
"""


@pytest.mark.long
@pytest.mark.parametrize(
    ("flags", "n_features"),
    [
        ({**WARMUP, "topics.count": 20}, 8000),
        ({**PRIVATE, "topics.count": 10, "snapshots.every": 4000}, 8000),
    ],
)
def test_a_process_stays_below_what_is_said_and_not_far(tmp_path, flags, n_features):
    values = [str(tmp_path), json.dumps({**KAFKA, **flags}), str(n_features)]
    command = [sys.executable, "-c", PROGRAM, *values]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    needed, peak = memory_needed(settings_for(flags), n_features), int(done.stdout)
    # No queue, source or texts are in it.
    needed -= settings_for(flags).memory.queue + READING_BYTES
    assert 0.35 * needed <= peak <= needed


#: Documents of the stream; for a trial a few millions: of fewer, starting is too large a share.
N_DOCUMENTS = int(os.environ.get("STREAMLDA_TEST_SOAK_DOCUMENTS", 20_000_000))


def figures_of(marks):
    """Return what is judged: medians of quarters, since single marks go up and down with snapshots.

    The first quarter is warm-up. Of times that of the processor is judged: others would spoil it.
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
