"""Engines of one start: merged they are one engine, whatever the order and the grouping."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InvalidSettingError
from tests.engine.kinds import (
    KINDS,
    TEXT,
    assert_same_state,
    fed,
    perplexity,
    resumed,
    shared_start,
    text_corpus,
    text_documents,
)

SETTINGS = EngineSettings(**TEXT)
STEP = 30


def member(documents=None):
    learner = KINDS["started"].engine()
    return learner if documents is None else fed(learner, documents)


def merge(engines):
    first, *others = engines
    for other in others:
        first.merge(other)
    return first


def parts_of(documents, sizes):
    ends = np.cumsum(sizes)
    return [documents.rows(end - size, end) for size, end in zip(sizes, ends, strict=True)]


def learned_by_definition(documents):
    """Return A of a member: the slow twin, of what each of its minibatches added and weighs."""
    start = shared_start().stepwise
    member, added, weights, sizes = start.copy(), [], [], []
    for first in range(0, len(documents), STEP):
        batch = documents.rows(first, first + STEP)
        added.append(member.statistic(batch))
        member.learn(batch)
        rho = float(member.steps) ** -0.7
        weights = [weight * (1 - rho) for weight in weights] + [rho]
        sizes.append(len(batch))
    mean = sum(weight * each for weight, each in zip(weights, added, strict=True))
    return mean * len(documents) / np.dot(weights, sizes)


def merged_by_definition(parts):
    """Return the topics of merged members, by the formula in `shared_start`."""
    start = shared_start().stepwise
    documents = sum(map(len, parts))
    tokens = sum(learned_by_definition(part) for part in parts if len(part))
    left, weights, sizes = 1.0, [], []
    for number in range(-(-documents // STEP)):
        rho = (start.steps + number + 1.0) ** -0.7
        left, weights = left * (1 - rho), [weight * (1 - rho) for weight in weights] + [rho]
        sizes.append(min(STEP, documents - STEP * number))
    mean = left * start.mean + np.dot(weights, sizes) / documents * tokens
    smooth = mean + 0.01 * mean.mean()
    return (smooth / smooth.sum(axis=0)).T


@settings(max_examples=12)
@given(
    st.lists(st.sampled_from([0, 1, 7, 29, 30, 31, 95, 200]), min_size=2, max_size=5).filter(
        lambda sizes: sum(sizes) > 1
    ),
    st.randoms(use_true_random=False),
)
def test_merging_is_by_definition_whatever_the_order_and_the_grouping(sizes, random):
    parts = parts_of(text_documents(), sizes)
    found = merge([member(part) for part in parts]).snapshot()
    np.testing.assert_allclose(found.components, merged_by_definition(parts), rtol=1e-9)
    shuffled = random.sample(parts, len(parts))
    cut = random.randint(1, len(parts) - 1)
    groups = [merge([member(part) for part in each]) for each in (shuffled[:cut], shuffled[cut:])]
    model = merge(groups).snapshot()
    for name in ("components", "background", "alpha"):
        mine, theirs = getattr(model, name), getattr(found, name)
        np.testing.assert_allclose(mine, theirs, rtol=1e-9, atol=1e-15, err_msg=name)
    assert (model.documents_seen, model.tokens_seen) == (sum(sizes), found.tokens_seen)
    assert model.diagnostics["refinement"] == found.diagnostics["refinement"]
    assert found.documents_seen == sum(sizes)
    whole = text_documents().rows(0, sum(sizes))
    rows = whole.to_csr() / whole.lengths[:, None]
    np.testing.assert_allclose(found.background, np.asarray(rows.mean(axis=0)).ravel(), rtol=1e-9)


def test_one_member_is_itself_and_one_without_documents_changes_nothing():
    documents = text_documents().rows(0, 100)
    alone, with_empty, empty_with = member(documents), member(documents), member()
    with_empty.merge(member())
    assert_same_state(alone, with_empty)
    empty_with.merge(alone)
    assert_same_state(alone, empty_with)
    # And what was merged continues by itself.
    for learner in (alone, empty_with):
        fed(learner, text_documents(), 100, 200)
    assert_same_state(alone, empty_with)


@pytest.mark.statistical
def test_merged_topics_are_as_good_as_those_of_one_engine():
    """Sizes 1, 1/2, 1/3, ...: the last of 24 have a few steps.

    Perplexity was 1.000 to 1.008 of one engine's for four corpora, seeds 2 to 5, and that of their
    start, which has a quarter of the documents, 1.016 to 1.029.
    """
    documents, held_out = text_documents(), text_corpus()
    held_out.seek(6000)
    held_out = held_out.documents(500)
    first = fed(KINDS["refining"].engine(), documents, 0, 1500)
    start, before = first.new_beginning(), first.snapshot()
    one = fed(first, documents, 1500).snapshot()

    for members in (1, 3, 24):
        shares = 1 / np.arange(1, members + 1)
        whose = np.random.default_rng(0).choice(members, len(documents), p=shares / shares.sum())
        parts = [documents.where(whose == each) for each in range(members)]
        learners = [fed(Engine(SETTINGS, shared_start=start), part) for part in parts]
        merged = merge(learners).snapshot()
        usual, at_first = perplexity(one, held_out), perplexity(before, held_out)
        assert perplexity(merged, held_out) < min(1.01 * usual, at_first)


def test_what_is_measured_is_of_the_documents_of_all():
    documents = text_documents().rows(0, 1200)
    days = 86_400 * (np.arange(1200) // 400)
    dated = DocumentBatch(**documents.arrays | {"bins": days}, n_features=documents.n_features)
    one = fed(member(), dated).snapshot()
    whose = np.arange(1200) % 5
    merged = merge([member(dated.where(np.isin(whose, each))) for each in ([0], [1, 2], [3, 4])])
    found = merged.snapshot()
    np.testing.assert_array_equal(found.timeline.documents, [400, 400, 400])
    np.testing.assert_allclose(found.timeline.tokens.sum(axis=1), one.timeline.tokens.sum(axis=1))
    # Of 1200 documents all are in the samples.
    np.testing.assert_allclose(found.prevalence, one.prevalence, atol=0.02)
    assert found.diagnostics["topic_npmi_documents"] == 1200
    # The words of all members say what a bin is about; without those of one it has less.
    for start, row in merged.measures.bins.words.items():
        part = dated.where(dated.bins == start)
        np.testing.assert_array_equal(row, part.to_csr().sum(axis=0).A1)


def test_a_beginning_is_what_the_engine_would_publish():
    """Refined topics where they are better, else a projection."""
    spectral = fed(KINDS["follows"].engine(), KINDS["follows"].documents(), 0, 3000)
    assert isinstance(spectral.new_beginning(), np.ndarray)
    learner = fed(KINDS["refining"].engine(), text_documents(), 0, 1000)
    start, model = learner.new_beginning(), learner.snapshot()
    assert start.stepwise.steps == 1000 // STEP
    np.testing.assert_allclose(start.stepwise.components, model.components, atol=0.01)
    assert member().beginning.digest == shared_start().digest
    assert learner.beginning is None


def test_what_cannot_be_merged_is_refused_and_nothing_added():
    documents = text_documents()
    learner = member(documents.rows(0, 50))
    before = resumed(learner)
    start = shared_start()
    other_start = replace(start, stepwise=start.stepwise.copy())
    other_start.stepwise.steps += 1
    for other, rule in [
        (learner, "with itself; its documents would count twice"),
        (KINDS["refining"].engine(), r"no common start, got start=[0-9a-f]{16},None; make one"),
        (Engine(SETTINGS, shared_start=other_start), r"start=[0-9a-f]{16},[0-9a-f]{16};"),
        (KINDS["started"].engine(seed=7), "differ in settings, got seed=0,7"),
    ]:
        with pytest.raises(InvalidSettingError, match=rule):
            learner.merge(other)
    assert_same_state(learner, before)
    for change, rule in [
        ({"refine": False}, "sums was given a start, .* got refine=False"),
        ({"solver": "online-power"}, "solver='online-power'"),
    ]:
        with pytest.raises(InvalidSettingError, match=rule):
            KINDS["started"].engine(**change)
