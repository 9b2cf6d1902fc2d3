"""The memory that a fit takes is known before, and what does not fit is refused."""

import json
import re
from importlib.resources import files
from pathlib import Path
from statistics import median

import numpy as np
import pytest

from streamlda.engine.settings import EngineSettings
from streamlda.scaleout import ClusterError, learn_once, of_files
from streamlda.scaleout.cluster import Run
from streamlda.scaleout.files import PLACES
from streamlda.scaleout.memory import BLOCK_BYTES, IDLE_BYTES, PAUSE, SETS, MemoryPlan
from streamlda.spectral.moments import Moments
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.exit_codes import exit_code
from streamlda.utils.process import resident_bytes
from tests.scaleout.conftest import cluster_of, connect, wait_until

ROOT = Path(__file__).parents[2]
#: What a worker holds, and what it goes on to hold.
FREED, STAYS = [], []

PAGE = files("streamlda").joinpath("docs/howto/cluster.md").read_text("utf-8")


@pytest.mark.parametrize(("topics", "words"), [(3, 60), (10, 400), (3, 5)])
def test_a_set_of_sums_takes_what_the_plan_says(topics, words):
    settings = EngineSettings(n_components=topics, n_features=words)
    plan = MemoryPlan.of(settings, words)
    moments = Moments(np.ones((words, settings.n_columns)), settings.n_triple_columns)
    nbytes = sum(array.nbytes for array in moments.state().values())
    assert plan.sums == pytest.approx(nbytes, rel=0.05)
    assert plan.projection == 8 * words * settings.n_columns
    assert plan.worker >= IDLE_BYTES + BLOCK_BYTES + SETS * plan.sums


@pytest.mark.long
def test_workers_without_room_are_refused_before_a_document_is_read(cluster, tmp_path, monkeypatch):
    """Of 1 GB each for 100 topics of 2^17 columns; what is offered in place of it fits."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one two three"}\n')
    settings = EngineSettings(n_components=100, n_features=2**17)
    monkeypatch.setattr("streamlda.scaleout.fit.memory_limits", lambda client: [4e9, 1e9])
    with connect(cluster.scheduler_address) as client:
        corpus = of_files(path)
        path.unlink()
        with pytest.raises(ClusterError, match=r"memory_limit_mb=1000.*at most \d+,\d+ words") as e:
            learn_once(client, corpus, settings, Vocabulary.hashed(17))
    assert exit_code(e.value) == 74
    fewer = int(str(e.value).split("at most ")[1].split(" ")[0].replace(",", ""))
    assert MemoryPlan.of(settings, fewer).worker <= PAUSE * 1e9
    said = MemoryPlan.of(settings, fewer).described([4e9, 1e9], 7)
    assert "workers 2, shards 7" in said
    assert "(of 1,000 MB)" in said


def hold(megabytes):
    """Take memory in small blocks, below one that stays when they are freed."""
    FREED.extend(bytes(5000) for _ in range(200 * megabytes))
    STAYS.append(bytes(5000))


def free():
    FREED.clear()


def status_of(dask_worker):
    return dask_worker.status.name


@pytest.mark.long
def test_a_worker_near_its_limit_returns_what_was_freed():
    """Else Dask pauses it, and it never goes on: a file of 10 GB was read by one worker of two."""
    with cluster_of(1, memory_limit="600MB") as own, connect(own.scheduler_address) as client:
        Run(client)
        client.run(hold, 410)
        wait_until(lambda: [*client.run(status_of).values()] == ["paused"])
        client.run(free)
        # A paused worker runs no task.
        assert client.submit(resident_bytes).result(timeout=60) < 360e6


def medians(case):
    """Return the stored measurements of a fit of text: the median of each over the runs."""
    stored = json.loads((ROOT / "bench/results/cluster-text.json").read_text("utf-8"))
    runs = [run["measured"] for run in stored["runs"] if run["case"] == case]
    return {name: median(run[name] for run in runs) for name in runs[0]}


def rows_of_page(first):
    """Return the numbers of a table of the page on clusters, by the first cell of its head."""
    table = PAGE[PAGE.index(f"| {first} |") :].split("\n\n")[0].splitlines()[2:]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return [[float(re.sub(r"[^\d.]", "", cell)) for cell in row] for row in cells]


def test_the_page_says_what_the_benchmark_measured():
    one, two = medians("1 worker"), medians("2 workers")
    said = [
        "{fit_seconds:.1f} | {all_cpu_seconds:.1f}".format(**medians("plain fit")),
        "{fit_seconds:.1f} | {all_cpu_seconds:.1f}: client and scheduler {cpu_seconds:.1f}, "
        "worker {worker_cpu_seconds:.1f}".format(**one),
        "{fit_seconds:.1f} | {all_cpu_seconds:.1f}: client and scheduler {cpu_seconds:.1f}, "
        "workers {worker_cpu_seconds:.1f}".format(**two),
    ]
    for row in said:
        assert f" | {row} |\n" in PAGE


def test_the_page_says_what_the_plan_does():
    for words, topics, *said in rows_of_page("words"):
        plan = MemoryPlan.of(EngineSettings(n_components=int(topics), n_features=int(words)), words)
        assert said == [round(n / 1e6) for n in (plan.sums, plan.worker, plan.worker / PAUSE)]
    assert PLACES == 96
