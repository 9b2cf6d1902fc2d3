"""Memory that a daemon needs: processes stay below it, and a small control group is refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from streamlda.errors import InvalidSettingError
from streamlda.service import memory
from streamlda.service.memory import OF_GROUP, READING_BYTES, check_memory, memory_needed
from streamlda.settings.load import load_settings

ROOT = Path(__file__).resolve().parents[2]
KAFKA = {"kafka.bootstrap": "localhost:9092", "kafka.topic": "news", "vocabulary.kind": "hashed"}
PRIVATE = {"privacy.epsilon": 3.0, "privacy.delta": 1e-6, "privacy.ledger": "ledger"}
PRIVATE |= {"kafka.partitions": "0"}
WARMUP = {"topics.warmup_documents": 3000}


def settings_for(flags):
    return load_settings(environment={}, flags={**KAFKA, **flags})


def test_what_a_control_group_has_no_room_for_is_refused(monkeypatch):
    needed = memory_needed(settings_for({}))
    monkeypatch.setattr(memory, "allowed_bytes", lambda: int(needed / OF_GROUP) + 1)
    assert check_memory(settings_for({})) == f"up to {needed / 2**20:,.0f} MiB"
    monkeypatch.setattr(memory, "allowed_bytes", lambda: int(needed / OF_GROUP) - 1)
    with pytest.raises(InvalidSettingError, match=r"lower vocabulary.size, vocabulary.hash_bits"):
        check_memory(settings_for({}))


@pytest.mark.parametrize(
    "more", [{"topics.representative_documents": 5}, {"vocabulary.grow_every": 10_000}]
)
def test_what_is_kept_besides_needs_memory(more):
    begun = {"topics.count": 50, "vocabulary.kind": "learned"}
    assert memory_needed(settings_for(begun | more)) > memory_needed(settings_for(begun)) + 2**22


def test_sums_through_a_projection_need_no_pairs_of_all_words():
    prefix = {**PRIVATE, "privacy.mode": "prefix", "snapshots.most": 100}
    assert memory_needed(settings_for({**prefix, "vocabulary.hash_bits": 14})) < 2**31


#: What a daemon does, in a process of its own: learn, snapshot, checkpoint; then its peak.
PROGRAM = """
import json, sys
from streamlda.storage.store import Store
from streamlda.guarantee.noise import SecureNoise
from streamlda.engine.engine import Engine
from streamlda.private.engine import PrivateEngine
from streamlda.settings.build import engine_settings, private_settings
from streamlda.settings.load import load_settings
from streamlda.simulate import PlantedLDA
from streamlda.text.vocabulary import Vocabulary

folder, flags, V = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
settings = load_settings(environment={}, flags=flags)
words = Vocabulary.given([f"w{i}" for i in range(V)])
documents = PlantedLDA(5, V, seed=1, mean_length=60).documents(2000)
if settings.private:
    engine = PrivateEngine(private_settings(settings, V))
    while engine.snapshot is None:
        start = 0
        while start < documents.n_documents and engine.snapshot is None:
            start += engine.add(documents.rows(start, documents.n_documents))
            if engine.due is not None:
                engine.accept(engine.due.release(SecureNoise()))
    copied = [array.copy() for array in engine.state()[0].values()]
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
        ({**WARMUP, "topics.count": 20}, 15_000),
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
