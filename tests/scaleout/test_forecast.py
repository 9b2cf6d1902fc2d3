"""Memory of a fit on a cluster: it is known before, and a fit beyond it is refused."""

from importlib.resources import files as files_of

import numpy as np
import pytest

from bench.forecast import steps_of
from streamlda.engine.settings import EngineSettings
from streamlda.scaleout import ClusterError, learn_once, of_files
from streamlda.scaleout.cluster import PAUSE, MemoryPlan, plan_memory
from streamlda.simulate import PlantedLDA
from streamlda.spectral.moments import Moments
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.exit_codes import exit_code
from tests.scaleout.conftest import cluster_of, connect, learner_of_all_words
from tests.service.daemon_process import write_documents


@pytest.mark.parametrize(("topics", "words"), [(3, 60), (10, 400), (3, 5)])
def test_a_set_of_sums_takes_what_the_plan_says(topics, words):
    settings = EngineSettings(n_components=topics, n_features=words)
    plan = MemoryPlan.of(settings, words)
    moments = Moments(np.ones((words, settings.n_columns)), settings.n_triple_columns)
    nbytes = sum(array.nbytes for array in moments.state().values())
    assert plan.sums == pytest.approx(nbytes, rel=0.05)


@pytest.mark.long
def test_workers_without_room_are_refused_before_a_document_is_read(cluster, tmp_path, monkeypatch):
    """Of 1 GB each for 100 topics of 2^17 columns; what is offered in place of it fits."""
    path = tmp_path / "a.jsonl"
    path.write_text('{"text": "one two three"}\n')
    settings = EngineSettings(n_components=100, n_features=2**17)
    workers = {"a": {"memory_limit": 4e9}, "b": {"memory_limit": 1e9}}
    with connect(cluster.scheduler_address) as client:
        monkeypatch.setattr(client, "scheduler_info", lambda **_: {"workers": workers})
        corpus = of_files(path)
        path.unlink()
        with pytest.raises(ClusterError, match=r"memory_limit_mb=1000; .*fewer words") as e:
            learn_once(client, corpus, settings, Vocabulary.hashed(17))
        fewer = int(str(e.value).split("words_with_room=")[1].split(" ")[0])
        said = plan_memory(client, settings, fewer, 7)
    assert exit_code(e.value) == 74
    assert MemoryPlan.of(settings, fewer).worker <= PAUSE * 1e9
    assert "workers 2, shards 7" in said
    assert "(of 1,000 MB)" in said


V, SHARDS = 80, 20


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Texts that no one alpha fits, so that a refinement is kept, in files of one shard each."""
    folder = tmp_path_factory.mktemp("files")
    planted = [PlantedLDA(3, V, seed=s, mean_length=40, topic_concentration=0.05) for s in (2, 3)]
    texts = [
        text for both in zip(*(lda.texts(4200) for lda in planted), strict=True) for text in both
    ]
    for n in range(SHARDS):
        write_documents(folder / f"{n:02}.jsonl", texts[n::SHARDS])
    return folder


def tasks_of(dask_scheduler):
    prefixes = dask_scheduler.task_prefixes.items()
    return {n.removeprefix("streamlda-"): found.state_counts["memory"] for n, found in prefixes}


def moved_bytes(dask_worker):
    return sum(each["total"] for each in dask_worker.transfer_incoming_log)


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
def test_a_measured_fit_takes_the_tasks_and_transfers_that_are_foretold(files, workers):
    settings = EngineSettings(n_components=6, n_features=V, oversampling=8)
    corpus = of_files(files, shards=SHARDS)
    with cluster_of(workers) as own, connect(own.scheduler_address) as client:
        found = learn_once(client, corpus, settings, learner_of_all_words(2000))
        tasks, moved = client.run_on_scheduler(tasks_of), sum(client.run(moved_bytes).values())
    done = found.model.diagnostics["refinement"]
    assert (len(corpus.shards), done["documents"]) == (SHARDS, 8400)
    # Words are learned from 2000 documents, and the first shards have 420 each.
    how = {"documents": 8400, "entries": 8400 * 40, "shards": SHARDS, "heads": 5}
    steps = steps_of(settings, **how)
    for step in steps:
        assert tasks[step.name] == step.tasks * step.rounds, step.name
    # No step is left out: tasks that only hand on what they get are fewer than foretold.
    whole = sum(step.scheduled for step in steps)
    assert 0.7 * whole <= sum(tasks.values()) <= whole
    assert 0 <= moved <= sum(step.moved for step in steps) + 2e4 * sum(tasks.values())
    assert (moved == 0) == (workers == 1)


def test_a_hundred_workers_are_busy_with_a_thousand_million_documents():
    """In shards of 64 MiB; nothing moves more often than the page says."""
    n = 10**9
    settings = EngineSettings(n_components=50, n_features=8000)
    how = {"documents": n, "entries": 50.0 * n, "shards": 13_500, "heads": 1}
    steps = {step.name: step for step in steps_of(settings, **how)}
    # The first documents are single tasks, which take as long as 20,000 of them.
    whole = [step for step in steps.values() if step.tasks > 1]
    assert min(step.busy(100) for step in whole) > 90
    assert steps["part"].moved == 600e9
    page = files_of("streamlda").joinpath("docs/reference-cluster.md").read_text("utf-8")
    for workers in (10, 100, 1000):
        busy = " | ".join(f"{step.busy(workers):,.0f}" for step in whole)
        assert f"| {workers:,} | {busy} |" in page
    handled = sum(step.scheduled for step in steps.values())
    moved = sum(step.moved for step in steps.values()) / 1e9
    assert f"{handled:,.0f} tasks" in page
    assert f"{moved:,.0f} GB" in page
