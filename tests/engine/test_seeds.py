"""Seeded topics: they are the first, about their words, in every engine, cut and resumption."""

from dataclasses import replace

import numpy as np
import pytest

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InvalidSettingError
from streamlda.model.diagnostics import hellinger
from streamlda.model.topic_model import load
from streamlda.spectral.seeds import WORD_SHARE, SeedTopic
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
    assert model.names == [seed.name for seed in seeds] + [None] * (12 - len(seeds))
    apart = hellinger(model.components, truth)
    assert tuple(apart[: len(SEEDED)].argmin(axis=1)) == SEEDED
    top = np.argsort(-model.components, axis=1)[:, :10]
    assert all(set(seed.columns) <= set(row) for seed, row in zip(seeds, top, strict=False))


@pytest.mark.parametrize("changes", [{}, {"refine": False}], ids=["refined", "spectral"])
def test_seeded_topics_are_the_first_and_about_their_words(truth, seeds, changes):
    settings = EngineSettings(**{**TEXT, **changes}, seed_topics=seeds)
    learner = fed(Engine(settings), text_documents(), 0, 3000)
    assert learner.refining == (not changes)
    check_seeded(learner.snapshot(), truth, seeds)


def test_a_fit_and_what_continues_it_keep_seeded_topics_in_place(truth, seeds, tmp_path):
    settings = EngineSettings(**TEXT, seed_topics=seeds)
    learner, model = Engine.fit(settings, text_documents().rows(0, 3000))
    assert "refinement" in model.diagnostics
    check_seeded(model, truth, seeds)
    shares = model.prevalence[len(seeds) :]
    assert np.all(np.diff(shares) <= 0)
    model.save(tmp_path / "model")
    check_seeded(load(tmp_path / "model"), truth, seeds)
    learner.add(text_documents().rows(3000, 4000))
    continued = learner.state()[1]["refinement"]["stepwise"]["settings"]
    assert continued["seeds"] == tuple(seed.columns for seed in seeds)
    check_seeded(learner.snapshot(), truth, seeds)


def test_any_resumption_gives_the_same_bits(seeds):
    settings, documents = EngineSettings(**TEXT, seed_topics=seeds), text_documents().rows(0, 1500)
    whole = fed(Engine(settings), documents)
    for cut in (100, 1200):
        parts = fed(resumed(fed(Engine(settings), documents, 0, cut)), documents, cut)
        assert_same_state(whole, parts)


def test_words_that_no_topic_joins_are_held_by_their_prior(truth):
    seed = SeedTopic("joined", tuple(own_words(truth, k, 1)[0] for k in (1, 4, 8)))
    settings = EngineSettings(**TEXT, seed_topics=(seed,))
    model = fed(Engine(settings), text_documents(), 0, 2000).snapshot()
    least = WORD_SHARE / (1 + 3 * WORD_SHARE)
    assert model.components[0][list(seed.columns)].min() >= 0.99 * least


def test_a_seeded_topic_continues_that_of_its_name_however_far(truth, seeds):
    settings = EngineSettings(**TEXT, refine=False, seed_topics=seeds)
    before = fed(Engine(settings), text_documents()).snapshot()
    after = replace(before, components=before.components[[1, 0, *range(2, 12)]])
    topics, _ = follow_topics(before, [*range(1, 13)], after, 13)
    assert [topic.id for topic in topics[:3]] == [1, 2, 3]
    assert topics[0].moved > 0.5
    topics, _ = follow_topics(before, [*range(1, 13)], replace(after, settings={}), 13)
    assert [topic.id for topic in topics[:3]] == [2, 1, 3]


def test_seeds_have_a_start_of_their_own_and_room(seeds):
    for kind in ("shared", "started"):
        with pytest.raises(InvalidSettingError, match="cannot begin with a shared start"):
            KINDS[kind].engine(seed_topics=seeds[:1])
    with pytest.raises(InvalidSettingError, match="neither refined nor"):
        EngineSettings(**TEXT, solver="online-power", refine=False, seed_topics=seeds)
    with pytest.raises(InvalidSettingError, match="fewer topics than seeded ones"):
        EngineSettings(n_components=2, n_features=300, seed_topics=seeds)
