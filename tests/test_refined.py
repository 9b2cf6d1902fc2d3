"""How many passes and sweeps suit a corpus, and which steps they are made of."""

import numpy as np
import pytest

import streamlda.refinement.refined as refined_module
from streamlda.documents import DocumentBatch
from streamlda.engine import Engine, EngineSettings
from streamlda.refinement.refined import passes_for, refined, sweeps_for
from streamlda.refinement.resampling import Resampling
from streamlda.refinement.settings import RefinementSettings, ResamplingSettings
from streamlda.refinement.stepwise import Refinement
from streamlda.simulate import PlantedLDA

K, V = 4, 60


@pytest.fixture(scope="module")
def planted():
    """Return 350 short documents, and a spectral model of them."""
    corpus = PlantedLDA(K, V, alpha_0=0.5, mean_length=6, topic_concentration=0.1, seed=3)
    documents = corpus.documents(500)
    documents = documents.where(documents.usable).rows(0, 350)
    engine = Engine(EngineSettings(n_components=K, n_features=V, warmup_documents=350))
    engine.add(documents)
    return documents, engine.snapshot()


@pytest.mark.parametrize(
    ("documents", "passes", "sweeps"),
    [
        (0, 20, 0),
        (1, 20, 0),
        (1000, 15, 0),
        (3000, 5, 0),
        (9999, 5, 0),
        (10_000, 8, 20),
        (49_999, 8, 20),
        (50_000, 4, 0),
        (100_000, 4, 0),
        (195_000, 1, 0),
        (267_000, 1, 0),
        (10**9, 1, 0),
    ],
)
def test_passes_and_sweeps_by_the_number_of_documents(documents, passes, sweeps):
    assert (passes_for(documents), sweeps_for(documents)) == (passes, sweeps)


def test_passes_make_about_as_many_steps_whatever_the_number_of_documents():
    for documents in np.geomspace(1500, 149_000, 60).astype(int).tolist():
        size = min(max(documents // 100, 30), 1000)
        steps = passes_for(documents) * documents / size
        wanted = 500 if documents < 10_000 else 400 if documents >= 50_000 else 800
        assert steps == pytest.approx(wanted, rel=0.34)
    passes = [passes_for(documents) for documents in range(10_000, 300_000, 997)]
    assert passes_for(150_000) == passes_for(10**7) == 1
    assert passes == sorted(passes, reverse=True)


@pytest.mark.parametrize(("copies", "annealing", "size"), [(1, 0.6, 30), (29, 0.8, 101)])
def test_passes_are_the_steps_of_the_machine(planted, copies, annealing, size):
    """A corpus of 350 documents takes gentler steps than one of 10,150: each is told apart."""
    documents, model = planted
    batch = DocumentBatch.joined([documents] * copies)

    def stepped(**other):
        settings = {
            "batch_documents": size,
            "sweeps": 3,
            "start_flatness": 0.5,
            "annealing": annealing,
            "annealing_steps": -(-len(batch) // size) // 2,
        }
        machine = Refinement(
            *(model.components, model.alpha, model.background),
            RefinementSettings(**{**settings, **other}),
        )
        machine.add(batch)
        machine.flush()
        return machine.components

    found = refined(model, batch, passes=1)
    order = found.diagnostics["refinement"]["start_topics"]
    np.testing.assert_array_equal(found.components, stepped()[order])
    for name, value in (("sweeps", 5), ("start_flatness", 0.9), ("annealing", 0.7)):
        assert not np.array_equal(found.components, stepped(**{name: value})[order])


@pytest.mark.parametrize(("sweeps", "averaged"), [(1, 1), (3, 3), (8, 3), (12, 4)])
def test_topics_are_the_mean_of_the_last_sweeps(planted, sweeps, averaged):
    documents, model = planted
    found = refined(model, documents, sweeps=sweeps, seed=5)
    sampler = Resampling(documents, model.components, model.alpha, ResamplingSettings(seed=5))
    sampler.sweep(sweeps - averaged)
    sampler.sweep(averaged, average=True)
    done = found.diagnostics["refinement"]
    assert done["averaged_sweeps"] == averaged
    np.testing.assert_array_equal(found.components, sampler.components[done["start_topics"]])


def test_annealing_ends_after_200_steps_however_many_follow(planted):
    documents, model = planted
    batch = DocumentBatch.joined([documents] * 3)
    found = refined(model, batch, passes=20)
    settings = RefinementSettings(
        batch_documents=30, sweeps=3, start_flatness=0.5, annealing=0.6, annealing_steps=200
    )
    machine = Refinement(model.components, model.alpha, model.background, settings)
    for _ in range(20):
        machine.add(batch)
    assert found.diagnostics["refinement"]["steps"] == machine.steps == 700
    order = found.diagnostics["refinement"]["start_topics"]
    np.testing.assert_array_equal(found.components, machine.components[order])


def test_a_large_corpus_has_a_schedule_of_its_own():
    def schedule(documents, passes):
        found = refined_module._steps_of(documents, passes)
        assert found.start_flatness == 0.5
        steps = found.step_offset, found.step_exponent
        return steps, found.sweeps, found.annealing, found.annealing_steps

    assert schedule(150_000, 1) == ((1.0, 0.65), 4, 0.85, 112)
    assert schedule(150_000, 2) == ((1.0, 0.65), 4, 0.85, 200)
    assert schedule(149_999, 1) == ((10.0, 0.7), 3, 0.8, 75)
