"""Engines that refine: better topics at any time, bounded state, documents in memory, refusals."""

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.refinement.choice import hold_out
from tests.engine.kinds import (
    KINDS,
    TEXT,
    assert_same_state,
    error,
    fed,
    perplexity,
    resumed,
    text_corpus,
    text_documents,
)

K, V, WARMUP = 12, 300, 300
STEP = 30
SETTINGS = EngineSettings(**TEXT)


@pytest.fixture(scope="module")
def planted():
    planted = text_corpus()
    planted.seek(6000)
    return planted


@pytest.fixture(scope="module")
def documents():
    return text_documents()


engine = KINDS["refining"].engine


@pytest.mark.statistical
def test_topics_are_refined_at_any_time(planted, documents):
    """The same rule rejects a refinement over documents whose words have other numbers."""
    held_out = planted.documents(500)
    engines, at = (engine(), engine(refine=False)), 0
    for n in (250, 2000, 5000):
        scores, errors = [], []
        for learner in engines:
            model = fed(learner, documents, at, n).snapshot()
            scores.append(perplexity(model, held_out))
            errors.append(error(planted, model))
        at = n
        assert errors[0] < 0.9 * errors[1]
        assert scores[0] < 0.995 * scores[1]
    mixed = documents.to_csr()[:, np.random.default_rng(0).permutation(V)]
    wrong = fed(engine(), documents, 0, 320)
    fed(wrong, DocumentBatch.from_matrix(mixed), 320, 5000)
    assert error(planted, wrong) > errors[1]


def test_diagnostics_are_those_of_the_start_and_say_what_was_done(documents):
    learned, _ = hold_out(documents.rows(0, WARMUP))
    start = fed(engine(refine=False, alpha_0=5.0), learned).snapshot().diagnostics
    learner = fed(engine(alpha_0=5.0), documents, 0, 2000)
    model = learner.snapshot(settings={"stream": "s"})
    found = dict(model.diagnostics)
    done = found.pop("refinement")
    assert done["start_documents"] == len(learned)
    assert (done["documents"], done["batch_documents"]) == (2000, STEP)
    assert done["steps"] == -(-2000 // STEP)
    for name in ("eigenvalues", "eigenvalue_noise", "topic_supported", "warnings"):
        assert found["start"][name] == start[name]
    assert found["pair_eigenvalues"] == start["pair_eigenvalues"]
    assert "topic_supported" not in found
    assert model.settings["stream"] == "s"
    assert model.documents_seen == 2000
    rows = documents.rows(0, 2000).to_csr()
    background = np.asarray(rows.multiply(1 / rows.sum(axis=1)).sum(axis=0)).ravel()
    np.testing.assert_allclose(model.background, background / background.sum(), rtol=1e-10)


def test_state_is_bounded_whatever_the_stream(documents):
    """Topics, the newest documents, a block and a minibatch, and topics that retired."""
    learner, sizes = engine(), []
    fed(learner, documents, 0, 290)
    assert {name.partition(".")[0] for name in learner.state()[0]} == {"warmup", "measures"}
    fed(learner, documents, 290, 1000)
    newest = documents.rows(0, 1000 // STEP * STEP)
    newest = newest.rows(len(newest) - WARMUP, len(newest))
    arrays = learner.state()[0]
    np.testing.assert_array_equal(arrays["following.recent.counts"], newest.counts)
    np.testing.assert_array_equal(arrays["following.recent.word_ids"], newest.word_ids)
    for _ in range(3):
        fed(learner, documents, 0, 2000)
        arrays = learner.state()[0]
        kept = {name.partition(".")[0] for name in arrays} - {"measures"}
        assert kept == {"refinement", "following"}
        topics = [name for name in arrays if name.startswith("refinement.")]
        topics = [name for name in topics if "waiting" not in name]
        sizes.append(sum(arrays[name].nbytes for name in topics))
        assert len(arrays["following.recent.row_pointers"]) == WARMUP + 1
    d, K = learner.settings.n_features, learner.settings.n_components
    assert sizes == [8 * (d * K + 2 * d + K)] * 3


def test_documents_in_memory_are_refined_over_all_of_them(planted, documents, monkeypatch):
    monkeypatch.setattr("streamlda.engine.fit.START_DOCUMENTS", 1000)
    learner, model = Engine.fit(SETTINGS, documents)
    assert model.diagnostics["documents_behind_topics"] == 1000
    assert model.diagnostics["refinement"]["documents"] == model.documents_seen == 6000
    assert model.tokens_seen == documents.lengths.sum()
    spectral = fed(engine(refine=False), documents, 0, 6000).snapshot()
    assert error(planted, model) < error(planted, spectral)
    np.testing.assert_allclose(model.background, spectral.background, rtol=1e-10)
    same = learner.snapshot()
    np.testing.assert_allclose(same.components, model.components, rtol=0.02, atol=1e-4)
    assert (same.documents_seen, same.tokens_seen) == (6000, model.tokens_seen)
    np.testing.assert_allclose(same.background, model.background)
    learner.add(planted.documents(1000))
    after = learner.snapshot()
    assert after.documents_seen == 7000
    assert 0 < np.abs(after.components - same.components).sum(axis=1).max() < 0.5
    assert error(planted, after) < error(planted, spectral)


@pytest.fixture
def many(monkeypatch):
    """Twelve topics are many, so that documents answer in place of triple sums."""
    monkeypatch.setattr("streamlda.engine.rounds.MANY_COMPONENTS", K)


def test_a_stream_of_many_topics_begins_without_triple_sums(documents, many):
    straight = fed(engine(warmup_documents=600), documents, 0, 1200)
    assert straight.refining
    for size in (None, 77):
        learner = fed(engine(warmup_documents=600), documents, 0, 599, size)
        assert "refinement" in learner.snapshot().diagnostics
        assert_same_state(fed(resumed(learner), documents, 599, 1200, size), straight)


def test_documents_in_memory_of_many_topics_begin_by_themselves(documents, many, monkeypatch):
    """The start takes no triple sums."""
    monkeypatch.setattr("streamlda.engine.fit.sum_documents", lambda *_: pytest.fail("summed"))
    monkeypatch.setattr("streamlda.engine.fit.START_DOCUMENTS", 2000)
    settings = EngineSettings(**TEXT, alpha_0=3.0)
    _, by_documents = Engine.fit(settings, documents)
    assert "refinement" in by_documents.diagnostics
    assert by_documents.documents_seen == len(documents)
    _, again = Engine.fit(settings, documents)
    np.testing.assert_array_equal(by_documents.components, again.components)


def test_many_topics_of_few_documents_take_no_triple_sums(documents, many, monkeypatch):
    """Their sums are t^3 numbers, in gigabytes. Documents without topics keep the start."""
    monkeypatch.setattr("streamlda.engine.fit.sum_documents", lambda *_: pytest.fail("summed"))
    rng = np.random.default_rng(0)
    noise = DocumentBatch.from_matrix(rng.poisson(0.1, (800, V)))
    learner, model = Engine.fit(EngineSettings(**{**TEXT, "warmup_documents": 700}), noise)
    assert model.diagnostics["refinement_choice"]["kept"] == "start"
    assert model.documents_seen == 800
    learner.add(documents.rows(0, 1000))
    assert learner.refining
    assert learner.snapshot().documents_seen == 1800
    few = EngineSettings(**{**TEXT, "alpha_0": None})
    known = Engine.fit(few, documents.rows(0, 150))[1].diagnostics["alpha_0_estimate"]
    assert (known["value"], known["identified"]) == (1, False)
