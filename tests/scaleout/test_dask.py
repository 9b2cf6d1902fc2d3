"""Fits on two worker processes: bits, kills, passes over the text, and what is refused."""

import os
import signal
from dataclasses import replace

import dask
import numpy as np
import pytest
from distributed import Client, LocalCluster

from streamlda.engine.engine import Engine
from streamlda.engine.phase import Counters
from streamlda.engine.settings import EngineSettings
from streamlda.engine.warmup import WarmUp
from streamlda.errors import InvalidSettingError
from streamlda.scaleout import connect, learn_once, of_files, of_partitions
from streamlda.scaleout.shards import poll_readings
from streamlda.simulate import PlantedLDA
from streamlda.utils.arrays import split_state
from tests.kafka.topics import wait_until
from tests.scaleout.conftest import cluster_of, learner_of_all_words, logged
from tests.service.daemon_process import write_documents

K, V = 4, 120


def settings_of(**changes):
    return EngineSettings(**{"n_components": K, "n_features": V, "oversampling": 8} | changes)


@pytest.fixture(scope="module")
def corpus():
    planted = PlantedLDA(K, V, seed=7, mean_length=25, topic_concentration=0.05)
    return planted.documents(6000)


def parts_of(documents):
    step = -(-len(documents) // 5)
    return [documents.rows(a, a + step) for a in range(0, len(documents), step)]


def refined(client, parts, **how):
    """Return topics after two passes, whatever a choice would say of them."""
    found = learn_once(client, of_partitions(parts), settings_of(), refinement_passes=2, **how)
    return found.model


def test_a_fit_decides_like_one_process_whether_to_refine(client, corpus):
    """Documents that follow the model keep their spectral topics, unless passes are asked for."""
    parts, settings = of_partitions(parts_of(corpus)), settings_of(warmup_documents=3000)
    met = []
    plain = learn_once(client, parts, settings, on_progress=lambda *report: met.append(report))
    one = Engine.of_phase(WarmUp(settings, Counters(), refines=False))
    one.add(corpus)
    mine, theirs = plain.model, one.snapshot()
    assert mine.diagnostics["refinement_choice"]["kept"] == "start"
    for name in ("components", "alpha", "background", "prevalence"):
        np.testing.assert_allclose(getattr(mine, name), getattr(theirs, name), 1e-10, 1e-14)
    assert mine.interval.tokens == theirs.interval.tokens == corpus.lengths.sum()
    assert mine.diagnostics["topic_npmi"] == theirs.diagnostics["topic_npmi"]
    # The same documents, so that nothing but rounding of the topics is between the two.
    samples = [split_state(found.measures.state()) for found in (plain.engine, one)]
    assert samples[0][1] == samples[1][1]
    for name, array in samples[0][0].items():
        np.testing.assert_array_equal(array, samples[1][0][name])
    labels = [(label, done, total) for label, _, done, total in met]
    assert labels[:5] == [("reading", n + 1, 5) for n in range(5)]
    assert labels[-1] == ("refinement", 16, 16)
    asked = refined(client, parts_of(corpus))
    done = asked.diagnostics["refinement"]
    assert (done["passes"], done["lanes"], done["documents"]) == (2, 2, 6000)
    assert np.all(np.diff(asked.prevalence) <= 0)
    assert asked.interval.prevalence == tuple(asked.prevalence)
    unrefined = learn_once(client, parts, replace(settings, refine=False)).model
    assert "refinement_choice" not in unrefined.diagnostics
    wait_until(lambda: not client.run_on_scheduler(lambda dask_scheduler: [*dask_scheduler.tasks]))


@pytest.mark.long
def test_neither_kills_nor_the_number_of_workers_change_a_bit(corpus, tmp_path):
    parts = [dask.delayed(logged)(part, tmp_path) for part in parts_of(corpus)]
    killed = []

    def kill(label, counts, done, total):
        if (label, done) == ("refinement", 2) and not killed:
            # One that has documents: it may be that the other has them all.
            held = client.has_what()
            worker = max(held, key=lambda address: len(held[address]))
            killed.append(client.run(os.getpid)[worker])
            os.kill(killed[0], signal.SIGKILL)

    with cluster_of(2) as own, connect(own.scheduler_address) as client:
        whole = refined(client, parts)
        assert len(list(tmp_path.iterdir())) == len(parts)
        found = refined(client, parts, on_progress=kill)
        assert killed[0] not in client.run(os.getpid).values()
        # What the lost worker kept was read again.
        assert len(list(tmp_path.iterdir())) > 2 * len(parts)
        own.scale(1)
        wait_until(lambda: len(client.nthreads()) == 1)
        alone = refined(client, parts_of(corpus))
    for other in (found, alone):
        np.testing.assert_array_equal(other.components, whole.components)
    assert found.diagnostics == whole.diagnostics


@pytest.mark.long
def test_a_refinement_continues_behind_the_last_round_that_was_saved(client, corpus, tmp_path):
    """Whoever died: the topics are those of a refinement that was not cut short."""
    made = []

    def die(label, counts, done, total):
        if (label, done) == ("refinement", 3):
            raise InterruptedError

    wanted, how = refined(client, parts_of(corpus)), {"state_folder": str(tmp_path / "state")}
    with pytest.raises(InterruptedError):
        refined(client, parts_of(corpus), on_progress=die, **how)
    found = refined(client, parts_of(corpus), on_progress=lambda *r: made.append(r[::2]), **how)
    assert made[5:] == [("refinement", n) for n in range(4, 9)]
    np.testing.assert_array_equal(found.components, wanted.components)
    assert found.diagnostics == wanted.diagnostics
    with pytest.raises(InvalidSettingError, match="of other files, settings or shards"):
        refined(client, parts_of(corpus.rows(0, 5000)), **how)
    few = refined(client, [corpus.rows(0, 200)])
    assert "too few of about 200 steps" in " ".join(few.diagnostics["warnings"])


def test_text_is_read_once(tmp_path):
    """Also where words come from a part of a shard. In this process, to count what is read."""
    texts, read = PlantedLDA(K, V, seed=7, mean_length=25).texts(6000), []
    corpus = of_files(write_documents(tmp_path / "a.jsonl", texts), shards=3)

    def count(*given):
        for records in poll_readings(*given):
            read.append(records.n_records)
            yield records

    how = {"n_workers": 1, "threads_per_worker": 1, "processes": False}
    how["dashboard_address"] = "127.0.0.1:0"
    with pytest.MonkeyPatch.context() as patch, LocalCluster(**how) as own, Client(own) as here:
        patch.setattr("streamlda.scaleout.shards.poll_readings", count)
        words = learner_of_all_words(1500)
        found = learn_once(here, corpus, settings_of(), words, refinement_passes=4)
    assert found.model.diagnostics["refinement"]["documents"] == 6000
    assert sum(read) <= 1.1 * 6000
