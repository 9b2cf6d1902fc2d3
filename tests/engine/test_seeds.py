"""Seeded topics: they are the first, about their words, in every engine, cut and resumption."""

import json

import numpy as np
import pytest

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InvalidSettingError
from streamlda.model.diagnostics import hellinger
from streamlda.model.topic_model import load
from streamlda.refinement.collapsed import CollapsedVariational
from streamlda.refinement.settings import StepwiseEMSettings
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.spectral.seeds import START_SHARE, WORD_SHARE, SeedTopic, seeded
from streamlda.storage.snapshots import follow_topics
from tests.engine.kinds import (
    KINDS,
    TEXT,
    assert_same_state,
    fed,
    resumed,
    text_corpus,
    text_documents,
)

#: Planted topics that are seeded, in this order.
SEEDED = (7, 2, 9)


def own_words(topics, k, n=3):
    """Return the columns that are most probable in a topic, of those that are its own."""
    own = topics[k] - np.delete(topics, k, axis=0).max(axis=0)
    return tuple(np.argsort(-own)[:n].tolist())


@pytest.fixture(scope="module")
def truth():
    return text_corpus().components


@pytest.fixture(scope="module")
def seeds(truth):
    return tuple(SeedTopic(f"planted {k}", own_words(truth, k)) for k in SEEDED)


def check_seeded(model, truth, seeds):
    """Check that the first topics are the named ones, and have their words in the first ten."""
    assert model.names == [seed.name for seed in seeds] + [None] * (12 - len(seeds))
    apart = hellinger(model.components, truth)
    assert tuple(apart[: len(SEEDED)].argmin(axis=1)) == SEEDED
    top = np.argsort(-model.components, axis=1)[:, :10]
    assert all(set(seed.columns) <= set(row) for seed, row in zip(seeds, top, strict=False))


@pytest.mark.parametrize(
    "changes",
    [{}, {"refine": False}],
    ids=["refined", "spectral"],
)
def test_seeded_topics_are_the_first_and_about_their_words(truth, seeds, changes):
    settings = EngineSettings(**{**TEXT, **changes}, seed_topics=seeds)
    learner = fed(Engine(settings), text_documents())
    assert learner.refining == (not changes)
    check_seeded(learner.snapshot(), truth, seeds)


def test_a_fit_and_what_goes_on_from_it_keep_seeded_topics_in_place(truth, seeds, tmp_path):
    settings = EngineSettings(**TEXT, seed_topics=seeds)
    learner, model = Engine.fit(settings, text_documents().rows(0, 3000))
    assert "refinement" in model.diagnostics
    check_seeded(model, truth, seeds)
    shares = model.prevalence[len(seeds) :]
    assert np.all(np.diff(shares) <= 0)
    model.save(tmp_path / "model")
    check_seeded(load(tmp_path / "model"), truth, seeds)
    learner.add(text_documents().rows(3000, 6000))
    going_on = learner.state()[1]["refinement"]["stepwise"]["settings"]
    assert going_on["seeds"] == tuple(seed.columns for seed in seeds)
    check_seeded(learner.snapshot(), truth, seeds)


@pytest.mark.parametrize("cut", [100, 2000])
def test_any_resumption_gives_the_same_bits(seeds, cut):
    settings = EngineSettings(**TEXT, seed_topics=seeds)
    whole = fed(Engine(settings), text_documents())
    parts = fed(resumed(fed(Engine(settings), text_documents(), 0, cut)), text_documents(), cut)
    assert_same_state(whole, parts)


def test_words_that_no_topic_joins_are_held_by_their_prior(truth):
    seed = SeedTopic("joined", tuple(own_words(truth, k, 1)[0] for k in (1, 4, 8)))
    settings = EngineSettings(**TEXT, seed_topics=(seed,))
    model = fed(Engine(settings), text_documents()).snapshot()
    least = WORD_SHARE / (1 + 3 * WORD_SHARE)
    assert model.components[0][list(seed.columns)].min() >= 0.99 * least


def test_collapsed_sweeps_hold_seed_words(truth):
    columns = [own_words(truth, k, 1)[0] for k in (1, 4, 8)]
    documents, alpha = text_documents().rows(0, 1000), np.full(12, 0.1)
    seeded, plain = (
        CollapsedVariational(documents, truth, alpha, seeds=seeds)
        for seeds in ([tuple(columns)], [])
    )
    for each in (seeded, plain):
        each.sweep(20)
        # The prior is none of the documents' tokens.
        assert each.totals.sum() == pytest.approx(documents.counts.sum(), rel=1e-5)
    least = WORD_SHARE / (1 + 3 * WORD_SHARE)
    assert seeded.components[0][columns].min() >= 0.99 * least
    assert seeded.totals[columns, 0].sum() > 2 * plain.totals[columns, 0].sum()


def test_steps_work_with_the_prior_that_components_have(truth):
    seeds = ((3, 5), (5, 70, 11))
    settings = StepwiseEMSettings(
        start_flatness=0.0, annealing=0.0, annealing_steps=0, smoothing=1e-9, seeds=seeds
    )
    alpha, background = np.full(12, 0.1), np.full(300, 1 / 300)
    own = StepwiseEM(truth, alpha, background, settings)
    mass = 1 + WORD_SHARE * np.array([2, 3] + [0] * 10)
    expected = truth / mass[:, None]
    for k, columns in enumerate(seeds):
        expected[k, list(columns)] += WORD_SHARE / mass[k]
    np.testing.assert_allclose(own.components, expected, rtol=1e-6, atol=1e-9)
    # Without a prior, topics that are these.
    plain = StepwiseEMSettings(start_flatness=0.0, annealing=0.0, annealing_steps=0, smoothing=1e-9)
    other = StepwiseEM(own.components, alpha, background, plain)
    few = text_documents().rows(0, 50)
    np.testing.assert_allclose(own.statistic(few), other.statistic(few), rtol=1e-3, atol=1e-4)


def test_other_topics_stay_as_they_were(seeds):
    settings = EngineSettings(**TEXT, refine=False)
    found = fed(Engine(settings), text_documents())._phase.topics()
    other = seeded(found, seeds)
    rows = hellinger(other.normalized()[3:], found.normalized()).argmin(axis=1)
    assert np.all(np.diff(rows) > 0)
    np.testing.assert_array_equal(other.topics[3:], found.normalized()[rows])
    np.testing.assert_array_equal(other.eigenvalues[3:], found.eigenvalues[rows])
    # The seeded ones are those that are missing, with a part of them on their words.
    places = np.setdiff1d(np.arange(12), rows)
    for topic, seed in zip(other.topics, seeds, strict=False):
        words = np.isin(np.arange(300), seed.columns) / len(seed.columns)
        starts = (1 - START_SHARE) * found.normalized()[places] + START_SHARE * words
        assert np.abs(starts - topic).sum(axis=1).min() < 1e-12
    assert seeded(found, ()) is found


def test_a_seeded_topic_goes_on_as_that_of_its_name_however_far(truth, seeds):
    settings = EngineSettings(**TEXT, refine=False, seed_topics=seeds)
    before = fed(Engine(settings), text_documents()).snapshot()
    moved = before.components.copy()
    moved[[0, 1]] = moved[[1, 0]]
    after = type(before)(
        components=moved,
        alpha=before.alpha,
        background=before.background,
        settings=before.settings,
    )
    topics, _ = follow_topics(before, [*range(1, 13)], after, 13)
    assert [topic.id for topic in topics[:3]] == [1, 2, 3]
    assert topics[0].moved > 0.5
    unnamed = type(before)(components=moved, alpha=before.alpha, background=before.background)
    topics, _ = follow_topics(before, [*range(1, 13)], unnamed, 13)
    assert [topic.id for topic in topics[:3]] == [2, 1, 3]


def test_seeds_have_a_start_of_their_own_and_room(seeds):
    for kind in ("shared", "started"):
        with pytest.raises(InvalidSettingError, match="start of their own"):
            KINDS[kind].engine(seed_topics=seeds[:1])
    with pytest.raises(InvalidSettingError, match="seeded topics must be refined"):
        EngineSettings(**TEXT, solver="online-power", refine=False, seed_topics=seeds)
    with pytest.raises(InvalidSettingError, match="as many topics as seeded ones"):
        EngineSettings(n_components=2, n_features=300, seed_topics=seeds)


def test_settings_of_seeds_are_plain_values(seeds):
    learner = fed(Engine(EngineSettings(**TEXT, seed_topics=seeds)), text_documents(), 0, 100)
    json.dumps(learner.state()[1])
    assert resumed(learner).settings == learner.settings
