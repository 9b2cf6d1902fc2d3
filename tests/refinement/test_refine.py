"""How many passes and sweeps suit a corpus, and which steps they are made of."""

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine, EngineSettings
from streamlda.refinement.gibbs import GibbsSampler
from streamlda.refinement.refine import refined
from streamlda.refinement.schedule import pass_settings, passes_for
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
    passes = [passes_for(documents) for documents in range(10_000, 300_000, 997)]
    assert passes == sorted(passes, reverse=True)


def stepwise(model, batch, passes=1, **settings):
    """Return a machine after its passes over a batch."""
    settings = {"inner_iterations": 3, "start_flatness": 0.5, **settings}
    machine = StepwiseEM(
        model.components, model.alpha, model.background, StepwiseEMSettings(**settings)
    )
    for _ in range(passes):
        machine.add(batch)
    machine.flush()
    return machine


@pytest.mark.parametrize(
    ("copies", "annealing", "size", "steps"),
    [(1, 0.6, 30, (10.0, 0.7)), (29, 0.85, 101, (1, 0.65))],
)
def test_passes_are_the_steps_of_the_machine(planted, copies, annealing, size, steps):
    """A corpus of 350 documents takes gentler steps than one of 10,150: the test tells which."""
    documents, model = planted
    batch = DocumentBatch.joined([documents] * copies)

    settings = {
        "batch_documents": size,
        "annealing": annealing,
        "annealing_steps": -(-len(batch) // size) // 2,
        "step_offset": steps[0],
        "step_exponent": steps[1],
    }
    found = refined(model, batch, passes=1)
    order = found.diagnostics["refinement"]["start_topics"]
    expected = stepwise(model, batch, **settings).components[order]
    np.testing.assert_array_equal(found.components, expected)
    for name, value in (("inner_iterations", 5), ("start_flatness", 0.9), ("annealing", 0.7)):
        other = stepwise(model, batch, **{**settings, name: value})
        assert not np.array_equal(found.components, other.components[order])


@pytest.mark.parametrize(("sweeps", "averaged"), [(1, 1), (3, 3), (8, 3), (12, 4)])
def test_topics_are_the_mean_of_the_last_sweeps_after_the_passes(planted, sweeps, averaged):
    documents, model = planted
    found = refined(model, documents, passes=1, gibbs_sweeps=sweeps, seed=5)
    passed = stepwise(model, documents, batch_documents=30, annealing=0.6, annealing_steps=6)
    sampler = GibbsSampler(documents, passed.components, model.alpha, GibbsSettings(seed=5))
    sampler.sweep(sweeps - averaged)
    sampler.sweep(averaged, average=True)
    done = found.diagnostics["refinement"]
    order = done["start_topics"]
    assert done["averaged_sweeps"] == averaged
    assert found.order == list(range(4)) == sorted(order)
    np.testing.assert_array_equal(found.components, sampler.components[order])
    np.testing.assert_array_equal(found.alpha, sampler.alpha[order])


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
        (9999, 4, (10.0, 0.7, 3, 0.6, 200)),
        (10_000, 2, (1.0, 0.65, 3, 0.85, 100)),
        (49_999, 8, (1.0, 0.65, 3, 0.85, 200)),
        (149_999, 1, (10.0, 0.7, 3, 0.8, 75)),
        (150_000, 1, (1.0, 0.65, 4, 0.85, 112)),
        (150_000, 2, (1.0, 0.65, 4, 0.85, 200)),
    ],
)
def test_corpora_of_different_size_have_different_steps(documents, passes, steps):
    found = pass_settings(documents, passes)
    moving = found.step_offset, found.step_exponent
    assert (*moving, found.inner_iterations, found.annealing, found.annealing_steps) == steps
    assert found.start_flatness == 0.5
