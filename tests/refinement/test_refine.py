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


PASSES = {0: 20, 1: 20, 1000: 12, 3000: 4, 9999: 4, 10_000: 8, 49_999: 8, 50_000: 4, 100_000: 4}


@pytest.mark.parametrize("documents", [*PASSES, 150_000, 195_000, 10**9])
def test_passes_by_the_number_of_documents(documents):
    assert passes_for(documents) == PASSES.get(documents, 1)


def test_passes_make_about_as_many_steps_whatever_the_number_of_documents():
    for documents in np.geomspace(1500, 149_000, 60).astype(int).tolist():
        size = min(max(documents // 100, 30), 1000)
        steps = passes_for(documents) * documents / size
        wanted = 800 if 10_000 <= documents < 50_000 else 400
        assert steps == pytest.approx(wanted, rel=0.34)
    passes = [passes_for(documents) for documents in range(10_000, 300_000, 997)]
    assert passes_for(150_000) == passes_for(10**7) == 1
    assert passes == sorted(passes, reverse=True)


@pytest.mark.parametrize(
    ("copies", "annealing", "size", "steps"),
    [(1, 0.6, 30, (10.0, 0.7)), (29, 0.85, 101, (1, 0.65))],
)
def test_passes_are_the_steps_of_the_machine(planted, copies, annealing, size, steps):
    """A corpus of 350 documents takes gentler steps than one of 10,150: the test tells which."""
    documents, model = planted
    batch = DocumentBatch.joined([documents] * copies)

    def stepped(**other):
        settings = {
            "batch_documents": size,
            "inner_iterations": 3,
            "start_flatness": 0.5,
            "annealing": annealing,
            "annealing_steps": -(-len(batch) // size) // 2,
            **dict(zip(("step_offset", "step_exponent"), steps, strict=True)),
        }
        machine = StepwiseEM(
            *(model.components, model.alpha, model.background),
            StepwiseEMSettings(**{**settings, **other}),
        )
        machine.add(batch)
        machine.flush()
        return machine.components

    found = refined(model, batch, passes=1)
    order = found.diagnostics["refinement"]["start_topics"]
    np.testing.assert_array_equal(found.components, stepped()[order])
    for name, value in (("inner_iterations", 5), ("start_flatness", 0.9), ("annealing", 0.7)):
        assert not np.array_equal(found.components, stepped(**{name: value})[order])


@pytest.mark.parametrize(("sweeps", "averaged"), [(1, 1), (3, 3), (8, 3), (12, 4)])
def test_topics_are_the_mean_of_the_last_sweeps(planted, sweeps, averaged):
    documents, model = planted
    found = refined(model, documents, gibbs_sweeps=sweeps, seed=5)
    sampler = GibbsSampler(documents, model.components, model.alpha, GibbsSettings(seed=5))
    sampler.sweep(sweeps - averaged)
    sampler.sweep(averaged, average=True)
    done = found.diagnostics["refinement"]
    assert done["averaged_sweeps"] == averaged
    np.testing.assert_array_equal(found.components, sampler.components[done["start_topics"]])


def test_annealing_ends_after_200_steps_however_many_follow(planted):
    documents, model = planted
    batch = DocumentBatch.joined([documents] * 3)
    found = refined(model, batch, passes=20)
    settings = StepwiseEMSettings(
        batch_documents=30,
        inner_iterations=3,
        start_flatness=0.5,
        annealing=0.6,
        annealing_steps=200,
    )
    machine = StepwiseEM(model.components, model.alpha, model.background, settings)
    for _ in range(20):
        machine.add(batch)
    assert found.diagnostics["refinement"]["steps"] == machine.steps == 700
    order = found.diagnostics["refinement"]["start_topics"]
    np.testing.assert_array_equal(found.components, machine.components[order])


@pytest.mark.parametrize(
    ("documents", "passes", "steps", "inner_iterations", "annealing", "annealed"),
    [
        (9999, 4, (10.0, 0.7), 3, 0.6, 200),
        (10_000, 2, (1.0, 0.65), 3, 0.85, 100),
        (49_999, 8, (1.0, 0.65), 3, 0.85, 200),
        (149_999, 1, (10.0, 0.7), 3, 0.8, 75),
        (150_000, 1, (1.0, 0.65), 4, 0.85, 112),
        (150_000, 2, (1.0, 0.65), 4, 0.85, 200),
    ],
)
def test_corpora_of_different_size_have_different_steps(
    documents, passes, steps, inner_iterations, annealing, annealed
):
    found = pass_settings(documents, passes)
    assert (found.step_offset, found.step_exponent) == steps
    assert (found.inner_iterations, found.annealing) == (inner_iterations, annealing)
    assert found.annealing_steps == annealed
    assert found.start_flatness == 0.5
