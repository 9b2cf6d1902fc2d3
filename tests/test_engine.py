"""The engine: rounds, resumption, bounded state, and what it says of weak data."""

from __future__ import annotations

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.engine import Engine, EngineSettings
from streamlda.errors import InsufficientDataError, InvalidDocumentsError
from streamlda.evaluation import matched_l1_error
from streamlda.simulate import PlantedLDA


@pytest.fixture(scope="module")
def planted():
    return PlantedLDA(4, 150, seed=7, topic_concentration=0.1)


@pytest.fixture(scope="module")
def documents(planted):
    planted.seek(0)
    return planted.documents(12_000)


def engine(**changes) -> Engine:
    asked = {"n_components": 4, "n_features": 150, "warmup_documents": 400, "oversampling": 10}
    return Engine(EngineSettings(**{**asked, **changes}))


def test_rounds_follow_each_other_and_lower_the_error(planted, documents):
    learner, errors, finished = engine(), [], []
    for start in range(0, 12_000, 3000):
        learner.add(documents.rows(start, start + 3000))
        errors.append(matched_l1_error(planted.components, learner.topics().proper()).mean)
        finished.append(learner.rounds_finished)
    assert errors[-1] < 0.05
    assert errors[-1] < 0.7 * errors[0]
    assert finished == [1, 1, 1, 2]


@pytest.mark.parametrize("cut", [1, 399, 400, 401, 1999, 2000, 2001, 11_999])
def test_resume_equals_uninterrupted_bit_for_bit(documents, cut):
    straight = engine()
    straight.add(documents.rows(0, cut))
    arrays, values = straight.state()
    resumed = Engine.from_state({k: v.copy() for k, v in arrays.items()}, values)
    for learner in (straight, resumed):
        learner.add(documents.rows(cut, 12_000))
    one, other = straight.snapshot(), resumed.snapshot()
    np.testing.assert_array_equal(one.components, other.components)
    np.testing.assert_array_equal(one.alpha, other.alpha)
    np.testing.assert_array_equal(one.background, other.background)
    assert (straight.documents_seen, straight.tokens_seen) == (
        resumed.documents_seen,
        resumed.tokens_seen,
    )


def test_snapshot_leaves_the_engine_unchanged(documents):
    learner = engine()
    for start in range(0, 3000, 300):
        learner.add(documents.rows(start, start + 300))
        before = {k: v.copy() for k, v in learner.state()[0].items()}
        learner.snapshot()
        after = learner.state()[0]
        assert before.keys() == after.keys()
        assert all(np.array_equal(before[k], after[k]) for k in before)


def test_memory_bounded_by_the_formula_whatever_the_stream(documents):
    learner, sizes = engine(), []
    for _ in range(3):
        learner.add(documents)
        sizes.append(sum(array.nbytes for array in learner.state()[0].values()))
    assert sizes[0] == sizes[1] == sizes[2]
    assert sizes[-1] == pytest.approx(learner.settings.state_bytes, rel=0.01)


def test_warmup_is_bounded_in_entries_too(documents, monkeypatch):
    monkeypatch.setattr("streamlda.engine.WARMUP_MAX_ENTRIES", 5000)
    learner = engine(warmup_documents=10**9)
    one_by_one = engine(warmup_documents=10**9)
    learner.add(documents.rows(0, 1000))
    for n in range(1000):
        one_by_one.add(documents.rows(n, n + 1))
    assert "current.tally" in learner.state()[0]
    assert not any(name.startswith("warmup") for name in learner.state()[0])
    counted = [e.state()[0]["current.tally"] for e in (learner, one_by_one)]
    np.testing.assert_array_equal(*counted)
    np.testing.assert_allclose(
        learner.topics().topics, one_by_one.topics().topics, rtol=1e-6, atol=1e-9
    )


def test_short_documents_are_counted_and_change_nothing(documents):
    rng = np.random.default_rng(0)
    short = np.zeros((500, 150))
    short[np.arange(500), rng.integers(150, size=500)] = rng.integers(0, 3, size=500)
    plain, mixed = engine(), engine()
    plain.add(documents.rows(0, 3000))
    mixed.add(documents.rows(0, 3000))
    mixed.add(DocumentBatch.from_matrix(short))
    assert (mixed.documents_seen, mixed.documents_skipped) == (3000, 500)
    np.testing.assert_array_equal(plain.topics().topics, mixed.topics().topics)


def test_only_short_documents_is_an_error_that_says_so():
    learner = engine(warmup_documents=5)
    learner.add(DocumentBatch.from_matrix(np.eye(150)))
    with pytest.raises(InsufficientDataError, match="documents_skipped=150"):
        learner.topics()


def test_topics_beyond_the_data_are_named():
    planted = PlantedLDA(2, 80, seed=1, topic_concentration=0.2)
    learner = engine(n_components=6, n_features=80)
    learner.add(planted.documents(20_000))
    found = learner.snapshot().diagnostics
    assert found["directions_supported"] < 6
    assert any("topics apart above sampling noise" in text for text in found["warnings"])
    fitting = engine(n_components=2, n_features=80)
    planted.seek(0)
    fitting.add(planted.documents(20_000))
    assert fitting.snapshot().diagnostics["warnings"] == []


@pytest.mark.parametrize("period", [2, 3, 4])
def test_topics_that_come_in_turns_are_not_taken_for_noise(period):
    """Noise is measured by halves of the stream; no periodic order may look like noise."""
    rng = np.random.default_rng(period)
    topics = np.kron(np.eye(2), np.full(6, 1 / 6))
    counts = [rng.multinomial(12, topics[int(n % period == 0)]) for n in range(3000)]
    learner = engine(n_components=2, n_features=12)
    learner.add(DocumentBatch.from_matrix(np.array(counts)))
    model = learner.snapshot()
    assert model.diagnostics["warnings"] == []
    assert matched_l1_error(topics, model.components).mean < 0.1


def test_rank_one_data_give_one_topic_and_the_background():
    counts = np.tile([[4, 3, 2, 1]], (50, 1))
    learner = engine(n_components=3, n_features=4)
    learner.add(DocumentBatch.from_matrix(counts))
    model = learner.snapshot()
    # Documents that are all alike vary less than any multinomial, so the first topic is near.
    np.testing.assert_allclose(model.components[0], [0.4, 0.3, 0.2, 0.1], atol=0.02)
    np.testing.assert_allclose(model.components[1:], [[0.4, 0.3, 0.2, 0.1]] * 2, atol=1e-12)
    assert model.diagnostics["topic_supported"].count(True) <= 1


def test_other_vocabulary_is_refused_and_nothing_learned(documents):
    learner = engine()
    learner.add(documents.rows(0, 10))
    with pytest.raises(InvalidDocumentsError, match="n_features=3 expected=150"):
        learner.add(DocumentBatch.from_matrix(np.ones((5, 3))))
    assert learner.documents_seen == 10
