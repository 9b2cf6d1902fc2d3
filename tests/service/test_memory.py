"""The memory plan: real processes stay below it, and not far; what cannot be is refused."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from streamlda.errors import InvalidSettingError
from streamlda.service.memory import check_memory, memory_plan
from streamlda.settings.build import engine_settings
from streamlda.settings.load import load_settings
from streamlda.settings.table import MIB

ROOT = Path(__file__).resolve().parents[2]
KAFKA = {"kafka.bootstrap": "localhost:9092", "kafka.topic": "news", "vocabulary.kind": "hashed"}
PRIVATE = {"privacy.epsilon": 3.0, "privacy.delta": 1e-6, "privacy.ledger": "ledger"}
PRIVATE |= {"kafka.partitions": "0"}
WARMUP = {"topics.warmup_documents": 3000}


def settings_for(**flags):
    named = {name.replace("__", "."): value for name, value in flags.items()}
    return load_settings(environment={}, flags={**KAFKA, **named})


#: Parts of the plan that the process below does not have.
ABSENT = ("documents that wait", "what the source", "a block of documents", "what is left free")

#: What a daemon does, in a process of its own: learn, snapshot, checkpoint; then its peak.
PROGRAM = """
import json, sys
from streamlda.storage.checkpoint import Checkpoints
from streamlda.privacy.noise import SecureNoise
from streamlda.engine.engine import Engine
from streamlda.private.engine import PrivateEngine
from streamlda.service.memory import memory_plan
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
    with Checkpoints.open(folder) as store:
        captured = store.capture(engine, {}, words)
        engine.snapshot(words)
        store.write(captured)
# Not getrusage: its maximum counts what the parent had before the new program was begun.
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
peak = int(status["VmHWM"].split()[0]) * 1024
print(json.dumps([peak, sum(size for _, size in memory_plan(settings, V))]))
"""


@pytest.mark.parametrize(
    ("flags", "n_features"),
    [
        ({**WARMUP, "topics.count": 20}, 30_000),
        ({**WARMUP, "topics.count": 30, "topics.solver": "online-power"}, 20_000),
        ({**PRIVATE, "topics.count": 10, "snapshots.every": 4000}, 8000),
        ({**PRIVATE, "topics.count": 5, "snapshots.every": 4000}, 1000),
    ],
)
def test_a_process_stays_below_its_plan_and_not_far(tmp_path, flags, n_features):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path), json.dumps({**KAFKA, **flags})]
    done = subprocess.run([*command, str(n_features)], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    peak, planned = json.loads(done.stdout)
    # No queue, source or texts are in this process; all else is.
    absent = sum(
        size
        for what, size in memory_plan(load_settings(environment={}, flags={**KAFKA, **flags}), 1000)
        if what.startswith(ABSENT)
    )
    assert peak <= planned - absent
    assert peak >= 0.45 * (planned - absent)


def test_the_plan_of_the_largest_work_counts_once():
    small = dict(memory_plan(settings_for(memory__queue="1 MiB"), 1000))
    assert small["documents that wait"] == MIB
    assert small["words"] == 0
    names = [what for what, _ in memory_plan(settings_for(), 50_000)]
    assert sum(name.startswith("the largest work") for name in names) == 1


def test_a_refinement_keeps_documents_and_a_projection_file_leaves_it_out():
    projected = {"topics__projection_file": "m", "vocabulary__kind": None}
    plans = [
        dict(memory_plan(settings_for(**flags), 20_000))
        for flags in ({}, {"topics__refine": False}, projected)
    ]
    sums = [plan["sums of the engine"] for plan in plans]
    assert sums[0] - sums[1] == 12 * 4_000_000
    assert sums[1] == sums[2]
    asked = engine_settings(settings_for(topics__refine=False), 100)
    assert (asked.refines, asked.warmup_documents) == (False, 10_000)
    asked = engine_settings(settings_for(), 100)
    assert (asked.refines, asked.warmup_documents) == (True, 20_000)
    assert engine_settings(settings_for(topics__warmup_documents=7), 100).warmup_documents == 7


def test_a_plan_grows_with_words_topics_and_the_horizon():
    def total(n_features, **flags):
        return sum(size for _, size in memory_plan(settings_for(**flags), n_features))

    assert total(50_000) > total(10_000)
    assert total(10_000, topics__count=100) > total(10_000)
    named = {name.replace(".", "__"): value for name, value in PRIVATE.items()}
    window = total(5000, **named)
    prefix = total(5000, **named, privacy__mode="prefix", snapshots__most=100)
    assert prefix > window


def test_an_impossible_limit_is_refused_with_what_to_change():
    plan = memory_plan(settings_for(), 20_000)
    total = sum(size for _, size in plan)
    assert check_memory(settings_for(memory__limit=total), 20_000) == plan
    with pytest.raises(InvalidSettingError, match=r'set memory\.queue = "63 MiB"') as caught:
        check_memory(settings_for(memory__limit=total - 1), 20_000)
    assert "sums of the engine" in str(caught.value)
    with pytest.raises(InvalidSettingError, match=r"lower vocabulary\.hash_bits, topics\.count"):
        check_memory(settings_for(memory__limit="100 MiB"), 20_000)
    with pytest.raises(InvalidSettingError, match=r"lower vocabulary\.size"):
        check_memory(settings_for(memory__limit="100 MiB", vocabulary__kind="learned"))


def test_a_remedy_is_enough():
    total = sum(size for _, size in memory_plan(settings_for(), 20_000))
    limit = total - 30 * MIB
    with pytest.raises(InvalidSettingError, match="34 MiB"):
        check_memory(settings_for(memory__limit=limit), 20_000)
    check_memory(settings_for(memory__limit=limit, memory__queue="34 MiB"), 20_000)
