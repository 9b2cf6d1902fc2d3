"""How many passes and sweeps suit a corpus, and which steps they are made of."""

from dataclasses import replace

import numpy as np
import pytest

from streamlda import StreamLDA
from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine, EngineSettings
from streamlda.refinement import schedule
from streamlda.refinement.gibbs import GibbsSampler
from streamlda.refinement.refine import refined
from streamlda.refinement.schedule import (
    pass_settings,
    passes_for,
    prior_of,
    smoothing_for,
    unflattened,
)
from streamlda.refinement.settings import GibbsSettings, StepwiseEMSettings
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.simulate import PlantedLDA

K, V = 4, 60


@pytest.fixture(scope="module")
def planted():
    """Return 350 short documents, and a spectral model of them."""
    corpus = PlantedLDA(K, V, alpha_0=0.5, mean_length=6, topic_concentration=0.1, seed=3)
    documents = corpus.documents(500)
    documents = documents.where(documents.usable).rows(0, 350)
    engine = Engine(
        EngineSettings(n_components=K, n_features=V, warmup_documents=350, refine=False)
    )
    engine.add(documents)
    return documents, engine.snapshot()


def test_passes_make_about_as_many_steps_whatever_the_number_of_documents():
    few = {0: 20, 1: 20, 1000: 12, 3000: 4, 9999: 4, 10_000: 8, 49_999: 8, 50_000: 4, 100_000: 4}
    for documents, passes in {**few, 150_000: 1, 195_000: 1, 10**9: 1}.items():
        assert passes_for(documents) == passes
    for documents in np.geomspace(1500, 149_000, 60).astype(int).tolist():
        size = min(max(documents // 100, 30), 1000)
        steps = passes_for(documents) * documents / size
        wanted = 800 if 10_000 <= documents < 50_000 else 400
        assert steps == pytest.approx(wanted, rel=0.34)
    # Before Gibbs sweeps, many documents have up to four.
    few = {0: 20, 49_999: 8, 50_000: 4, 195_000: 4, 400_000: 2, 600_000: 1, 10**9: 1}
    assert {n: passes_for(n, swept=True) for n in few} == few
    for swept in (False, True):
        passes = [passes_for(n, swept=swept) for n in range(10_000, 300_000, 997)]
        assert passes == sorted(passes, reverse=True)


def stepwise(model, batch, passes=1, *, even=False, **settings):
    """Return a machine after its passes over a batch; with `even`, of topics with one prior."""
    # A tenth of a token for each word of each topic, of 8.8 tokens each.
    smoothing = max(0.01, 0.1 * K * V / batch.counts.sum())
    settings = {"inner_iterations": 4, "start_flatness": 0.5, "smoothing": smoothing, **settings}
    given = unflattened(StepwiseEMSettings(**settings), model, batch)
    alpha = np.full(K, model.alpha.mean()) if even else model.alpha
    machine = StepwiseEM(model.components, alpha, model.background, given)
    for _ in range(passes):
        machine.add(batch)
    machine.flush()
    return machine


@pytest.mark.parametrize(
    ("copies", "annealing", "size", "steps", "iterations", "even"),
    [(1, 0.6, 30, (10.0, 0.7), 4, False), (29, 0.85, 101, (1, 0.65), 3, True)],
)
def test_passes_are_the_steps_of_the_machine(
    planted, copies, annealing, size, steps, iterations, even
):
    """A corpus of 350 documents takes gentler steps than one of 10,150: the test tells which."""
    documents, model = planted
    batch = DocumentBatch.joined([documents] * copies)

    settings = {
        "batch_documents": size,
        "annealing": annealing,
        "annealing_steps": -(-len(batch) // size) // 2,
        "step_offset": steps[0],
        "step_exponent": steps[1],
        "inner_iterations": iterations,
        "even": even,
    }
    found = refined(model, batch, passes=1)
    order = found.diagnostics["refinement"]["start_topics"]
    expected = stepwise(model, batch, **settings).components[order]
    np.testing.assert_array_equal(found.components, expected)
    others = {"inner_iterations": 5, "start_flatness": 0.9, "annealing": 0.7, "even": not even}
    for name, value in {**others, "smoothing": 0.012}.items():
        other = stepwise(model, batch, **{**settings, name: value})
        assert not np.array_equal(found.components, other.components[order])


@pytest.mark.parametrize(("sweeps", "averaged"), [(1, 1), (3, 3), (8, 3), (12, 4)])
def test_topics_are_the_mean_of_the_last_sweeps_after_the_passes(planted, sweeps, averaged):
    documents, model = planted
    found = refined(model, documents, passes=1, gibbs_sweeps=sweeps, seed=5)
    passed = stepwise(model, documents, batch_documents=30, annealing=0.6, annealing_steps=6)
    sampler = GibbsSampler(documents, passed.components, model.alpha, GibbsSettings(seed=5))
    sampler.sweep(sweeps, averaged=averaged)
    done = found.diagnostics["refinement"]
    order = done["start_topics"]
    assert done["averaged_sweeps"] == averaged
    assert found.order == list(range(4)) == sorted(order)
    np.testing.assert_array_equal(found.components, sampler.components[order])
    np.testing.assert_array_equal(found.alpha, sampler.alpha[order])


def test_thorough_passes_are_longer_and_of_one_prior(planted):
    documents, model = planted
    found = refined(model, documents, passes=2, thorough=True)
    steps = {"batch_documents": 30, "annealing": 0.6, "annealing_steps": 12}
    machine = stepwise(model, documents, 2, even=True, inner_iterations=6, **steps)
    order = found.diagnostics["refinement"]["start_topics"]
    np.testing.assert_array_equal(found.components, machine.components[order])


@pytest.mark.parametrize(
    ("documents", "times"), [(100, 4), (3000, 4), (49_999, 4), (50_000, 1), (195_000, 1)]
)
def test_thorough_passes_are_four_times_as_many_of_few_documents(documents, times):
    assert passes_for(documents, thorough=True) == times * passes_for(documents)
    before = passes_for(documents, thorough=True, swept=True)
    assert before == max(times, 2) * passes_for(documents, swept=True)


@pytest.mark.parametrize(("tokens", "share"), [(5, 0.1), (240, 0.1), (480, 0.05), (10**5, 0.01)])
def test_smoothing_is_a_tenth_of_a_token_within_limits(tokens, share):
    """Weights are no tokens: where they are small, smoothing must leave something of topics."""
    counts, words = np.full(V, tokens / V), np.arange(V, dtype=np.int32)
    batch = DocumentBatch(counts, words, np.array([0, V]), V, integral=False)
    assert smoothing_for(batch, K) == pytest.approx(share)


def test_annealing_ends_after_200_steps_however_many_follow(planted):
    documents, model = planted
    batch = DocumentBatch.joined([documents] * 3)
    found = refined(model, batch, passes=20)
    machine = stepwise(model, batch, 20, batch_documents=30, annealing=0.6, annealing_steps=200)
    assert found.diagnostics["refinement"]["steps"] == machine.steps == 700
    order = found.diagnostics["refinement"]["start_topics"]
    np.testing.assert_array_equal(found.components, machine.components[order])


@pytest.mark.parametrize(
    ("documents", "passes", "steps"),
    [
        (9999, 4, (10.0, 0.7, 4, 0.6, 200)),
        (10_000, 2, (1.0, 0.65, 3, 0.85, 100)),
        (49_999, 8, (1.0, 0.65, 3, 0.85, 200)),
        (149_999, 1, (10.0, 0.7, 4, 0.8, 75)),
        (150_000, 1, (1.0, 0.65, 4, 0.85, 112)),
        (150_000, 2, (1.0, 0.65, 4, 0.85, 200)),
    ],
)
def test_corpora_of_different_size_have_different_steps(documents, passes, steps):
    found = pass_settings(documents, passes)
    moving = found.step_offset, found.step_exponent
    assert (*moving, found.inner_iterations, found.annealing, found.annealing_steps) == steps
    assert found.start_flatness == 0.5


def test_passes_before_sweeps_forget_fast_and_are_annealed_for_long(planted, monkeypatch):
    documents, model = planted
    assert pass_settings(49_999, 8, swept=True) == pass_settings(49_999, 8)
    found = pass_settings(195_000, 4, swept=True)
    assert (found.step_exponent, found.annealing_steps) == (0.51, 390)
    assert pass_settings(10**6, 4, swept=True).annealing_steps == 800
    assert prior_of(model.alpha, 60_000, swept=True) is model.alpha
    assert np.ptp(prior_of(model.alpha, 60_000)) == 0
    # A fit knows whether sweeps follow.
    monkeypatch.setattr("streamlda.refinement.collapsed.FEW_DOCUMENTS", 0)
    before = schedule.BEFORE_SWEEPS._replace(documents=0, steps=20)
    monkeypatch.setattr(schedule, "BEFORE_SWEEPS", before)
    X, done = documents.to_csr(), {}
    for passes in ("auto", "quick"):
        lda = StreamLDA(K, refinement_passes=passes, warmup_documents=100, random_state=0).fit(X)
        done[passes] = lda.diagnostics_["refinement"]["passes"]
    assert done == {"auto": 2, "quick": 20}


@pytest.mark.parametrize(
    ("passes", "topics", "moving"),
    [(1, 99, (1.0, 0.65)), (1, 100, (10.0, 0.9)), (2, 100, (10.0, 0.8))],
)
def test_steps_of_many_topics_are_means_over_more_documents(passes, topics, moving):
    few = pass_settings(200_000, passes)
    found = pass_settings(200_000, passes, topics)
    assert (found.step_offset, found.step_exponent) == moving
    assert replace(found, step_offset=1.0, step_exponent=0.65) == few
