"""Local steps: those of one process, on equal parts, averaged, and each counted once."""

import os
import signal
from dataclasses import replace

import dask
import numpy as np
import pytest

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InvalidDocumentsError, InvalidSettingError
from streamlda.model.evaluation import document_completion
from streamlda.refinement.refine import refined
from streamlda.refinement.schedule import LOCAL_STEPS, LocalSchedule
from streamlda.refinement.settings import StepwiseEMSettings
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.scaleout import connect, learn_once, of_partitions
from streamlda.scaleout import local_steps as module
from streamlda.scaleout.local_steps import LocalTotals, local_steps, refined_on, summed
from streamlda.scaleout.store import store_documents
from streamlda.simulate import PlantedLDA
from streamlda.threads import thread_count
from tests.scaleout.conftest import cluster_of, logged, wait_until

K, V = 4, 120


@pytest.fixture(scope="module")
def corpus():
    """Documents, others held out, and a spectral model of the former."""
    planted = PlantedLDA(K, V, seed=7, mean_length=25, topic_concentration=0.05)
    documents, held_out = planted.documents(6000), planted.documents(800)
    engine = Engine(EngineSettings(n_components=K, n_features=V, oversampling=8, refine=False))
    engine.add(documents.rows(0, 300))
    return documents, held_out, engine.snapshot()


def cut(documents, parts=5):
    step = -(-len(documents) // parts)
    return [documents.rows(a, a + step) for a in range(0, len(documents), step)]


def stored(client, parts, **options):
    return store_documents(client, of_partitions(parts), None, V, **options)


def settings_of(**changes):
    return EngineSettings(**{"n_components": K, "n_features": V, "oversampling": 8} | changes)


@pytest.mark.parametrize("documents", [1, 29, 6000, 50_000, 195_000, 400_000, 10**9])
@pytest.mark.parametrize("passes", [1, 2, 10])
def test_a_schedule_follows_from_the_number_of_documents(documents, passes):
    plan = LocalSchedule.of(documents, passes)
    steps = passes * plan.rounds * plan.steps
    assert plan.rounds * plan.steps <= max(1, documents // plan.parts)
    assert plan.settings.annealing_steps <= max(1, steps / 2)
    if passes * documents >= 50_000 and documents >= 6000:
        assert steps >= 0.9 * LOCAL_STEPS
        assert plan.rounds == (4 if passes == 1 else 2)
    if passes == 1:
        wanted = {1: 1, 29: 1, 195_000: 4, 400_000: 8, 10**9: 64}
        assert plan.parts == wanted.get(documents, 2)


def test_one_part_is_a_refinement_in_one_process(corpus):
    documents, _, model = corpus
    settings = StepwiseEMSettings(batch_documents=100, annealing_steps=10)
    wanted = StepwiseEM(model.components, model.alpha, model.background, settings)
    state = wanted.state()
    wanted.add(documents.rows(1000, 3000))
    # Pure: the state that was handed over does not move, and comes out the same again.
    for _ in range(2):
        found = local_steps(state, documents, 1000, 3000, 20)
        np.testing.assert_array_equal(found.totals, wanted.state()[0]["totals"])
    assert (found.parts, found.documents, wanted.steps) == (1, 2000, 20)
    other, before = local_steps(state, documents, 0, 500, 5), found.totals.copy()
    both = summed(found, other)
    np.testing.assert_array_equal(both.totals, found.totals + other.totals)
    np.testing.assert_array_equal(found.totals, before)
    assert (both.parts, both.documents) == (2, 2500)
    with pytest.raises(InvalidDocumentsError, match="steps=3 expected=5"):
        local_steps(state, documents, 0, 3, 5)


def test_a_part_keeps_to_one_thread_from_the_beginning(corpus, monkeypatch):
    """Also while the refinement is made from the state, by a parallel kernel of its own."""
    documents, _, model = corpus
    state, seen = StepwiseEM(model.components, model.alpha, model.background).state(), []

    class Watched(StepwiseEM):
        @classmethod
        def from_state(cls, *given):
            seen.append(thread_count())
            return super().from_state(*given)

        def learn(self, batch):
            seen.append(thread_count())
            super().learn(batch)

    monkeypatch.setattr(module, "StepwiseEM", Watched)
    assert thread_count() > 1
    local_steps(state, documents, 0, 500, 2)
    assert seen == [1, 1, 1]


def test_a_part_that_counts_twice_is_noticed(client, corpus, monkeypatch):
    documents, _, model = corpus

    def doubled(one, *others):
        return LocalTotals(one.totals, 2 * one.parts + len(others), one.documents)

    monkeypatch.setattr(module, "summed", doubled)
    wanted = pytest.raises(InvalidDocumentsError, match="each part must be counted once")
    with stored(client, cut(documents)) as store, wanted:
        refined_on(store, model, 1)


def test_topics_are_as_good_as_those_of_one_process(client, corpus):
    """Held-out perplexity within 1 % of a refinement in one process, and better than before."""
    documents, held_out, model = corpus
    with stored(client, cut(documents)) as store:
        found = refined_on(store, model, 4)
    one = refined(model, documents, passes=4)

    def perplexity(of):
        result = document_completion(held_out, of.components, of.alpha, of.background)
        return result.perplexity

    assert perplexity(found) < 1.01 * perplexity(one)
    # The bounds are not empty: the model to begin with is beyond one, a flatter one beyond both.
    assert perplexity(found) < perplexity(model)
    flat = replace(model, components=0.8 * model.components + 0.2 * model.background)
    assert perplexity(flat) > 1.01 * perplexity(one)
    done = found.diagnostics["refinement"]
    assert (done["lanes"], done["passes"], done["documents"]) == (2, 4, 6000)
    assert done["steps"] >= 0.9 * LOCAL_STEPS
    assert found.settings["refinement_passes"] == 4
    np.testing.assert_array_equal(found.alpha, model.alpha)
    assert all(text.startswith("before refinement: ") for text in found.diagnostics["warnings"])


@pytest.mark.parametrize("parts", [1, 7])
def test_neither_cut_nor_memory_changes_a_bit(client, corpus, parts):
    documents, _, model = corpus
    found = []
    for cuts, most_bytes in ((5, None), (parts, None), (parts, 0)):
        with stored(client, cut(documents, cuts), most_bytes=most_bytes) as store:
            found.append(refined_on(store, model, 2).components)
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


def test_neither_a_killed_worker_nor_the_number_of_workers_changes_a_bit(corpus, tmp_path):
    documents, _, model = corpus
    parts = [dask.delayed(logged)(part, tmp_path) for part in cut(documents)]
    killed = []

    def kill(label, counts):
        if label.startswith("refinement 3 of") and not killed:
            killed.append(next(iter(client.run(os.getpid).values())))
            os.kill(killed[0], signal.SIGKILL)

    with cluster_of(2) as own, connect(own.scheduler_address) as client:
        with stored(client, parts) as store:
            undisturbed = refined_on(store, model, 2)
        assert len(list(tmp_path.iterdir())) == len(parts)
        with stored(client, parts) as store:
            found = refined_on(store, model, 2, kill)
        assert killed
        assert killed[0] not in client.run(os.getpid).values()
        # What the lost worker kept was read again.
        assert len(list(tmp_path.iterdir())) > 2 * len(parts)
        own.scale(1)
        wait_until(lambda: len(client.nthreads()) == 1)
        with stored(client, parts) as store:
            alone = refined_on(store, model, 2)
    np.testing.assert_array_equal(found.components, undisturbed.components)
    np.testing.assert_array_equal(alone.components, undisturbed.components)
    assert found.diagnostics == undisturbed.diagnostics


def test_few_passes_and_few_steps(client, corpus):
    documents, _, model = corpus
    with stored(client, [documents.rows(0, 200)]) as store:
        assert refined_on(store, model, 0) is model
        found = refined_on(store, model, 1)
    assert "a refinement must take some 200 steps" in found.diagnostics["warnings"][-1]
    with pytest.raises(InvalidSettingError, match="refinement_passes=-1"):
        learn_once(client, of_partitions([documents]), settings_of(), refinement_passes=-1)


def test_a_fit_decides_like_one_process_whether_to_refine(client, corpus):
    """Documents that follow the model keep their spectral topics, unless passes are asked for."""
    documents, _, _ = corpus
    parts, settings = of_partitions(cut(documents)), settings_of(warmup_documents=3000)
    plain = learn_once(client, parts, settings)
    one = Engine.of_rounds(settings)
    one.add(documents)
    assert plain.refined is None
    np.testing.assert_allclose(plain.model().components, one.snapshot().components, 1e-10, 1e-14)
    asked = learn_once(client, parts, settings, refinement_passes=2)
    model = asked.model({"corpus": "planted"})
    assert model.diagnostics["refinement"]["passes"] == 2
    assert (model.documents_seen, model.settings["corpus"]) == (6000, "planted")
    assert model.tokens_seen == documents.lengths.sum()
    assert learn_once(client, parts, replace(settings, refine=False)).refined is None
    # Two sorts of documents that no one alpha fits are refined by themselves.
    planted = [PlantedLDA(K, V, seed=s, mean_length=25, topic_concentration=0.05) for s in (1, 2)]
    parts = [lda.documents(1500) for lda in planted]
    found = learn_once(client, of_partitions(parts), settings_of(n_components=3))
    assert found.refined is not None
    assert found.model().diagnostics["refinement"]["documents"] == 3000
