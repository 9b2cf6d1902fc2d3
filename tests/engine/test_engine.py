"""The engine: rounds, resumption, bounded state, and what it says of weak data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InsufficientDataError, InvalidDocumentsError, InvalidSettingError
from streamlda.model.evaluation import matched_l1_error
from streamlda.simulate import PlantedLDA
from streamlda.spectral.moments import Moments


@pytest.fixture(scope="module")
def planted():
    return PlantedLDA(4, 150, seed=7, topic_concentration=0.1)


@pytest.fixture(scope="module")
def documents(planted):
    planted.seek(0)
    return planted.documents(12_000)


def engine(**changes) -> Engine:
    asked = {"n_components": 4, "n_features": 150, "warmup_documents": 400, "oversampling": 10}
    return Engine(EngineSettings(**{**asked, "refine": False, **changes}))


def test_rounds_follow_each_other_and_lower_the_error(planted, documents):
    learner, errors, finished = engine(), [], []
    for start in range(0, 12_000, 3000):
        learner.add(documents.rows(start, start + 3000))
        errors.append(matched_l1_error(planted.components, learner.topics().normalized()).mean)
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
    monkeypatch.setattr("streamlda.engine.warmup.WARMUP_MAX_ENTRIES", 5000)
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


@pytest.fixture(scope="module")
def shared(documents):
    learner = engine()
    learner.add(documents.rows(0, 3000))
    return learner.better_projection()


def sharing(shared, **changes) -> Engine:
    return Engine(engine(**changes).settings, shared_projection=shared)


def test_through_a_shared_map_all_documents_add_to_one_sum(planted, documents, shared):
    learner = sharing(shared)
    plain = Moments(shared, learner.settings.n_triple_columns)
    for start, stop in [(0, 7), (7, 450), (450, 5000), (5000, 12_000)]:
        learner.add(documents.rows(start, stop))
        plain.add(documents.rows(start, stop))
    arrays, values = learner.state()
    assert values["counters"]["rounds_finished"] == 0
    np.testing.assert_array_equal(arrays.pop("current.whitening"), shared)
    assert {f"current.{name}" for name in plain.state()} == arrays.keys()
    for name, wanted in plain.state().items():
        np.testing.assert_array_equal(arrays[f"current.{name}"], wanted)
    # As good as the same documents in rounds, which end with a map of 2000 of them.
    assert matched_l1_error(planted.components, learner.topics().normalized()).mean < 0.05


def test_a_shared_map_needs_no_warm_up(documents, shared):
    learner = sharing(shared, warmup_documents=10**6)
    with pytest.raises(InsufficientDataError, match="documents_seen=0"):
        learner.snapshot()
    learner.add(documents.rows(0, 2))
    assert learner.snapshot().documents_seen == 2
    assert learner.shared_projection is shared


@pytest.mark.parametrize("cut", [0, 1, 401, 11_999])
def test_resume_through_a_shared_map_equals_uninterrupted_bit_for_bit(documents, shared, cut):
    straight = sharing(shared)
    straight.add(documents.rows(0, cut))
    arrays, values = straight.state()
    resumed = Engine.from_state({k: v.copy() for k, v in arrays.items()}, values)
    for learner in (straight, resumed):
        learner.add(documents.rows(cut, 12_000))
    (one, its_values), (other, other_values) = straight.state(), resumed.state()
    assert its_values == other_values
    assert one.keys() == other.keys()
    assert all(np.array_equal(one[name], other[name]) for name in one)


def test_memory_through_a_shared_map_is_half_the_bound(documents, shared):
    learner, sizes = sharing(shared), []
    for _ in range(3):
        sizes.append(sum(array.nbytes for array in learner.state()[0].values()))
        learner.add(documents)
    assert sizes[0] == sizes[1] == sizes[2]
    assert sizes[0] == pytest.approx(learner.settings.state_bytes / 2, rel=0.01)


def test_a_better_map_is_the_one_of_the_next_round(documents):
    learner = engine()
    learner.add(documents.rows(0, 1999))
    before = {k: v.copy() for k, v in learner.state()[0].items()}
    early = learner.better_projection()
    assert all(np.array_equal(v, before[k]) for k, v in learner.state()[0].items())
    learner.add(documents.rows(1999, 2000))
    assert learner.rounds_finished == 1
    late = learner.state()[0]["current.whitening"]
    np.testing.assert_array_equal(learner.better_projection(), late)
    assert not np.array_equal(early, late)
    # A document more turns the span of the map by next to nothing; the first map is far off.
    spans = [np.linalg.qr(W)[0][:, :4] for W in (early, late, before["current.whitening"])]
    near, far = (np.linalg.svd(spans[1].T @ spans[i])[1].min() for i in (0, 2))
    assert near > 0.9999
    assert far < near


def test_a_better_map_can_be_made_in_the_warm_up(documents):
    learner = engine()
    with pytest.raises(InsufficientDataError):
        learner.better_projection()
    learner.add(documents.rows(0, 100))
    assert learner.better_projection().shape == (150, learner.settings.n_columns)
    assert "warmup.counts" in learner.state()[0]


@pytest.mark.parametrize("solver", ["online-power", "simultaneous"])
def test_only_the_tensor_solver_shares_maps(documents, shared, solver):
    with pytest.raises(InvalidSettingError, match=f"got solver='{solver}'.*other solver"):
        sharing(shared, solver=solver)
    learner = Engine(engine(solver=solver).settings)
    learner.add(documents.rows(0, 1000))
    with pytest.raises(InvalidSettingError, match=f"got solver='{solver}'"):
        learner.better_projection()
    assert learner.shared_projection is None


def test_a_shared_map_that_does_not_fit_is_refused(documents, shared):
    rule = r"a row for each word and K \+ oversampling columns, got shape=\(150, {}\)"
    for wrong in (shared[:, :-1], np.hstack([shared, shared[:, :1]])):
        with pytest.raises(InvalidSettingError, match=rule.format(wrong.shape[1])):
            sharing(wrong)
    with pytest.raises(InvalidSettingError, match=r"expected=\(150, 13\)"):
        sharing(shared, n_components=3)
    broken = shared.copy()
    broken[3, 2] = np.nan
    with pytest.raises(InvalidSettingError, match="must be finite"):
        sharing(broken)
    arrays, values = sharing(shared).state()
    values["settings"]["oversampling"] = 9
    with pytest.raises(InvalidSettingError, match="oversampling columns, got shape"):
        Engine.from_state(arrays, values)


@pytest.mark.parametrize("sharing_one", [False, True])
def test_a_state_from_before_refinement_stays_one_of_sums(documents, shared, sharing_one):
    """It goes on, whoever asks, with what ``refine=False`` stands for today."""
    asked = engine(refine=False, warmup_documents=None).settings
    learner = Engine(asked, shared_projection=shared if sharing_one else None)
    learner.add(documents.rows(0, 500))
    arrays, values = learner.state()
    old = {name: value for name, value in values["settings"].items() if name != "refine"}
    assert old["warmup_documents"] == 10_000
    resumed = Engine.from_state(arrays, {**values, "settings": old})
    assert type(resumed) is Engine
    assert resumed.settings == asked
    # A solver that never refined, or a state that says what it does, is left as it is.
    online = replace(asked, solver="simultaneous", refine=None)
    for settings in (online, replace(asked, refine=None)):
        arrays, values = Engine(settings).state()
        if settings is online:
            del values["settings"]["refine"]
        assert Engine.from_state(arrays, values).settings == settings


def test_states_of_other_engines_are_as_they_were(documents):
    learner = engine()
    learner.add(documents.rows(0, 500))
    arrays, values = learner.state()
    assert values.keys() == {"settings", "counters"}
    assert Engine.from_state(arrays, values).shared_projection is None
