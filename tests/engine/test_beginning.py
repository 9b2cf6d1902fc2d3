"""Documents of a source that ends: kept, read on the way, and fitted together at the end."""

from dataclasses import replace

import numpy as np
import pytest

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.model.evaluation import matched_l1_error
from streamlda.simulate import PlantedLDA
from streamlda.spectral.seeds import SeedTopic
from streamlda.text.columns import ColumnChange

K, V, WARMUP, N = 6, 300, 500, 1700
CORPUS = PlantedLDA(K, V, alpha_0=0.6, mean_length=60, topic_concentration=0.05, seed=3)
SETTINGS = EngineSettings(n_components=K, n_features=V, warmup_documents=WARMUP, kept_entries=2**24)


@pytest.fixture(scope="module")
def documents():
    CORPUS.seek(0)
    return CORPUS.documents(N)


def learn_in_batches(documents, *ends, settings=SETTINGS):
    engine = Engine(settings)
    for start, end in zip((0, *ends), (*ends, N), strict=True):
        engine.add(documents.rows(start, end))
    return engine


def test_where_a_source_ends_topics_are_those_of_a_fit_until_documents_follow(documents):
    _, fitted = Engine.fit(SETTINGS, documents)
    engine = learn_in_batches(documents, 10, 700)
    assert engine.progress.unfinished
    engine.end()
    assert not engine.progress.unfinished
    model = engine.release()
    assert np.array_equal(model.components, fitted.components)
    assert model.diagnostics["refinement"] == fitted.diagnostics["refinement"]
    assert np.array_equal(model.prevalence, fitted.prevalence)
    resumed = Engine.from_state(*engine.state())
    assert np.array_equal(resumed.snapshot().components, model.components)
    resumed.add(documents.rows(0, 1))
    assert resumed.progress.unfinished


def test_readings_on_the_way_depend_on_the_documents_alone(documents):
    read = Engine(SETTINGS)
    for start in range(0, N, 100):
        read.add(documents.rows(start, start + 100))
        read.snapshot()
    found = read.snapshot()
    resumed = Engine.from_state(*learn_in_batches(documents, 900).state())
    for other in (learn_in_batches(documents), resumed):
        assert np.array_equal(other.snapshot().components, found.components)
    # Of the first 1000, and one pass over the rest.
    assert found.diagnostics["refinement"]["steps"] > N // 100


def test_a_source_beyond_the_limit_is_followed_as_a_stream(documents, monkeypatch):
    monkeypatch.setattr("streamlda.engine.warmup.WARMUP_MAX_ENTRIES", 1)
    most = int(documents.row_pointers[1000])
    engine = learn_in_batches(documents, settings=replace(SETTINGS, kept_entries=most))
    assert engine.refining
    assert not engine.progress.unfinished
    engine.end()
    model = engine.snapshot()
    assert model.documents_seen == N
    assert "topic_ids" in model.diagnostics


@pytest.mark.parametrize("alpha_0", [0.6, None])
def test_topics_of_an_online_method_are_refined_grow_and_are_resumed(documents, alpha_0):
    settings = replace(SETTINGS, solver="online-power", alpha_0=alpha_0, kept_entries=0)
    engine = learn_in_batches(documents, settings=settings)
    assert engine.refining
    model = engine.snapshot()
    assert matched_l1_error(CORPUS.components, model.components).mean < 0.3
    resumed = Engine.from_state(*engine.state())
    assert np.array_equal(resumed.snapshot().components, model.components)
    words = ColumnChange(np.array([7]), V, V + 1, np.array([1e-3, 1e-3]), None)
    assert resumed.change_words(words)
    assert resumed.snapshot().components.shape == (K, V + 1)


def test_an_online_method_takes_seeds_and_gives_all_topics(documents):
    words = CORPUS.components[2].argsort()[-3:]
    seed = SeedTopic("two", tuple(int(word) for word in sorted(words)))
    settings = replace(SETTINGS, solver="online-power", seed_topics=(seed,), n_components=K + 6)
    _, model = Engine.fit(settings, documents)
    assert model.n_components == K + 6
    assert model.components[:, words].sum(axis=1).argmax() == 0
