"""Engines of sums: rounds, shared projections, bounded state, and what is said of weak data."""

from dataclasses import replace

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.errors import InsufficientDataError, InvalidSettingError
from streamlda.model.evaluation import matched_l1_error
from streamlda.simulate import PlantedLDA
from streamlda.spectral.moments import Moments
from tests.engine.kinds import KINDS, error, fed, planted, shared_projection


@pytest.fixture(scope="module")
def documents():
    return planted().documents(12_000)


def engine(**changes):
    return KINDS["sums"].engine(**changes)


def sharing(projection=None, **changes):
    projection = shared_projection() if projection is None else projection
    return Engine(engine(**changes).settings, shared_projection=projection)


def test_rounds_follow_each_other_and_lower_the_error(documents):
    learner, errors, finished = engine(), [], []
    for start in range(0, 12_000, 3000):
        fed(learner, documents, start, start + 3000)
        errors.append(error(planted(), learner))
        finished.append(learner.rounds_finished)
    assert errors[-1] < 0.05
    assert errors[-1] < 0.7 * errors[0]
    assert finished == [1, 1, 1, 2]


def test_warmup_is_bounded_in_entries_too(documents, monkeypatch):
    monkeypatch.setattr("streamlda.engine.warmup.WARMUP_MAX_ENTRIES", 5000)
    learner = fed(engine(warmup_documents=10**9), documents, 0, 1000)
    one_by_one = fed(engine(warmup_documents=10**9), documents, 0, 1000, size=1)
    assert not any(name.startswith("warmup") for name in learner.state()[0])
    counted = [e.state()[0]["current.tally"] for e in (learner, one_by_one)]
    np.testing.assert_array_equal(*counted)
    np.testing.assert_allclose(
        learner.topics().topics, one_by_one.topics().topics, rtol=1e-6, atol=1e-9
    )


def test_topics_beyond_the_data_are_named():
    planted = PlantedLDA(2, 80, seed=1, topic_concentration=0.2)
    documents, found = planted.documents(20_000), {}
    for k in (2, 6):
        learner = fed(engine(n_components=k, n_features=80), documents)
        found[k] = learner.snapshot().diagnostics
    assert found[6]["directions_supported"] < 6
    assert any("topics apart above sampling noise" in text for text in found[6]["warnings"])
    assert found[2]["warnings"] == []


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
    learner = engine(n_components=3, n_features=4)
    learner.add(DocumentBatch.from_matrix(np.tile([[4, 3, 2, 1]], (50, 1))))
    model = learner.snapshot()
    # Documents that are all alike vary less than any multinomial, so the first topic is near.
    np.testing.assert_allclose(model.components[0], [0.4, 0.3, 0.2, 0.1], atol=0.02)
    np.testing.assert_allclose(model.components[1:], [[0.4, 0.3, 0.2, 0.1]] * 2, atol=1e-12)
    assert model.diagnostics["topic_supported"].count(True) <= 1


def test_through_a_shared_projection_all_documents_add_to_one_sum(documents):
    learner = sharing()
    plain = Moments(shared_projection(), learner.settings.n_triple_columns)
    for start, stop in [(0, 7), (7, 450), (450, 5000), (5000, 12_000)]:
        fed(learner, documents, start, stop)
        plain.add(documents.rows(start, stop))
    arrays, values = learner.state()
    assert values["counters"]["rounds_finished"] == 0
    np.testing.assert_array_equal(arrays.pop("current.whitening"), shared_projection())
    assert {f"current.{name}" for name in plain.state()} == arrays.keys()
    for name, wanted in plain.state().items():
        np.testing.assert_array_equal(arrays[f"current.{name}"], wanted)
    # It needs no warm-up.
    assert fed(sharing(warmup_documents=10**6), documents, 0, 2).snapshot().documents_seen == 2
    # As good as the same documents in rounds, which end with a projection of 2000 of them.
    assert error(planted(), learner) < 0.05


def test_a_better_projection_is_the_one_of_the_next_round(documents):
    learner = engine()
    with pytest.raises(InsufficientDataError):
        learner.better_projection()
    fed(learner, documents, 0, 100)
    assert learner.better_projection().shape == (150, learner.settings.n_columns)
    assert "warmup.counts" in learner.state()[0]
    fed(learner, documents, 100, 1999)
    before = {k: v.copy() for k, v in learner.state()[0].items()}
    early = learner.better_projection()
    assert all(np.array_equal(v, before[k]) for k, v in learner.state()[0].items())
    fed(learner, documents, 1999, 2000)
    assert learner.rounds_finished == 1
    late = learner.state()[0]["current.whitening"]
    np.testing.assert_array_equal(learner.better_projection(), late)
    assert not np.array_equal(early, late)
    # A document more turns the span by next to nothing; the first projection is far off.
    spans = [np.linalg.qr(W)[0][:, :4] for W in (early, late, before["current.whitening"])]
    near, far = (np.linalg.svd(spans[1].T @ spans[i])[1].min() for i in (0, 2))
    assert near > 0.9999
    assert far < near


def test_a_shared_projection_that_does_not_fit_is_refused(documents):
    shared = shared_projection()
    broken = shared.copy()
    broken[3, 2] = np.nan
    for make, message in (
        (lambda: sharing(shared[:, :-1]), r"K \+ oversampling columns, got shape=\(150, 13\)"),
        (lambda: sharing(shared, n_components=3), r"expected=\(150, 13\)"),
        (lambda: sharing(broken), "must be finite"),
        (lambda: sharing(refine=True), "with a shared projection must keep its sums"),
        (lambda: sharing(solver="simultaneous"), "got solver='simultaneous'.*other solver"),
    ):
        with pytest.raises(InvalidSettingError, match=message):
            make()
    arrays, values = sharing().state()
    values["settings"]["oversampling"] = 9
    with pytest.raises(InvalidSettingError, match="oversampling columns, got shape"):
        Engine.from_state(arrays, values)
    learner = fed(engine(solver="online-power"), documents, 0, 1000)
    with pytest.raises(InvalidSettingError, match="got solver='online-power'"):
        learner.better_projection()


@pytest.mark.parametrize("name", ["sums", "shared"])
def test_a_state_of_before_refinement_stays_one_of_sums(documents, name):
    """It goes on with what ``refine=False`` stands for today."""
    kind = KINDS[name]
    learner = fed(kind.engine(refine=False), documents, 0, 500)
    arrays, values = learner.state()
    old = {key: value for key, value in values["settings"].items() if key != "refine"}
    restored = Engine.from_state(arrays, {**values, "settings": old})
    assert restored.settings == learner.settings
    assert not fed(restored, documents, 500, 1000).refining
    # A solver that never refined, or a state that says what it does, is left as it is.
    online = replace(learner.settings, solver="simultaneous", refine=None)
    for settings in (online, replace(learner.settings, refine=None)):
        arrays, values = Engine(settings).state()
        if settings is online:
            del values["settings"]["refine"]
        assert Engine.from_state(arrays, values).settings == settings
