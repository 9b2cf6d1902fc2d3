"""Streams that turn: when a challenger takes over, what is kept of topics, and what it costs."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.engine import following
from streamlda.engine.engine import Engine
from streamlda.engine.lineage import Lineage
from streamlda.engine.new_topic import make_birth
from streamlda.engine.settings import EngineSettings
from streamlda.engine.turns import ERRORS, Gain, Scores
from streamlda.model.evaluation import matched_l1_error
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.schedule import stream_settings
from streamlda.refinement.shared_start import SharedStart
from streamlda.simulate import PlantedLDA
from tests.engine.kinds import perplexity

K, V, WARMUP, STEP = 6, 300, 2000, 100
SETTINGS = EngineSettings(n_components=K, n_features=V, warmup_documents=WARMUP)


def corpus(seed):
    return PlantedLDA(K, V, alpha_0=0.6, mean_length=60, topic_concentration=0.05, seed=seed)


@pytest.fixture(scope="module")
def turning():
    """An engine, and what it was after each part: 2500 documents, 2500 others, then as before."""
    old, new = corpus(1), corpus(2)
    parts = [old.documents(2500), new.documents(2500), old.documents(1000)]
    learner, found = Engine(SETTINGS), []
    for part in parts:
        learner.add(part)
        found.append(learner.snapshot())
    return found, (old, new)


def ids(model):
    return model.diagnostics["topic_ids"]


@pytest.mark.statistical
def test_a_turn_is_followed_as_by_a_new_fit(turning):
    (before, after, _), (_, new) = turning
    assert before.diagnostics["following"]["switches"] == 0
    last = after.diagnostics["following"]["last"]
    assert last["gain"] > ERRORS * last["standard_error"] > 0
    _, fresh = Engine.fit(SETTINGS, corpus(2).documents(2500))
    held_out = new.documents(300)
    assert perplexity(after, held_out) < 1.02 * perplexity(fresh, held_out)
    assert matched_l1_error(new.components, after.components).mean < 0.2


def test_topics_retire_and_come_back_with_their_ids(turning):
    (before, after, again), _ = turning
    assert ids(before) == [*range(K)]
    assert not set(ids(before)) & set(ids(after))
    assert sorted(ids(again)) == [*range(K)]
    retired = after.diagnostics["following"]["retired"]
    assert {topic["id"] for topic in retired} >= {*range(K)}
    assert all(2500 < topic["documents_seen"] <= 2500 + 10 * STEP for topic in retired[:K])
    for row, topic in enumerate(ids(again)):
        apart = np.abs(again.components[row] - before.components[topic]).sum()
        assert apart < 0.5


def test_one_topic_that_comes_back_has_its_id_and_has_not_retired():
    _, first = Engine.fit(SETTINGS, corpus(1).documents(2000))
    other = first.components.copy()
    other[1] = corpus(2).components[0]
    second = replace(first, components=other)
    lineage = Lineage.begin(K, V)
    assert lineage.follow(first, second, 100) == [*range(K)]
    assert lineage.ids == [0, K, *range(2, K)]
    lineage.follow(second, first, 200)
    assert lineage.ids == [*range(K)]
    assert lineage.diagnostics == [{"id": K, "documents_seen": 200}]


def test_ids_come_back_where_no_refinement_betters_the_start_of_a_challenger(monkeypatch):
    monkeypatch.setattr(following, "fit", partial(following.fit, passes=0))
    learner = Engine(SETTINGS)
    for seed, documents in ((1, 2500), (2, 16_000), (1, 2500)):
        learner.add(corpus(seed).documents(documents))
        assert (seed == 2) == (not {*ids(learner.snapshot())} & {*range(K)})
    assert learner.refining


def test_a_turn_is_followed_while_topics_stay_spectral():
    """One block after the warm-up shows how well topics predict that are not refined."""
    old, new = (PlantedLDA(3, 60, alpha_0=1.0, mean_length=60, seed=seed) for seed in (1, 2))
    learner = Engine(EngineSettings(n_components=3, n_features=60, warmup_documents=4000))
    learner.add(old.documents(4000))
    assert "refinement" not in learner.snapshot().diagnostics
    size = 4000 // 20
    learner.add(old.documents(size))
    learner.add(new.documents(2 * size))
    assert learner.following.switches == 1


@pytest.mark.statistical
@pytest.mark.parametrize("before", [700, 1950, 2000])
def test_a_turn_within_or_right_after_the_warm_up_is_followed(before):
    """At the end of a block, within one, and where no topics have been scored yet."""
    old, new = corpus(1), corpus(2)
    learner, documents = Engine(SETTINGS), new.documents(800)
    learner.add(old.documents(before))
    learner.add(documents)
    found, (_, fresh) = learner.snapshot(), Engine.fit(SETTINGS, documents)
    assert learner.following.switches >= 1
    assert found.documents_seen == before + 800
    held_out = new.documents(300)
    assert perplexity(found, held_out) < 1.03 * perplexity(fresh, held_out)


@pytest.mark.statistical
@pytest.mark.parametrize("run", [3, 30])
def test_blocks_that_are_low_by_turns_are_one_alarm(run):
    """Two levels, as of two partitions: one challenge shows that the lower one is usual."""
    rng, scores, fallen = np.random.default_rng(0), Scores(20), []
    for block in range(40 * run):
        level = -5.5 if block // run % 2 else -5.0
        if n := scores.add(rng.normal(level, 0.5, STEP)):
            fallen.append(block)
            scores.begin_again(np.concatenate(scores.last[-n:]), usual=True)
    assert fallen == [run]
    assert scores.add(rng.normal(-6.5, 0.5, STEP)) == 1


@pytest.mark.statistical
@pytest.mark.parametrize("seed", range(3))
def test_a_stream_that_does_not_turn_is_left_alone(seed):
    """A block falls by 4 standard errors once in 30,000; here are 150, at five lengths."""
    learner = Engine(SETTINGS)
    learner.add(corpus(10 + seed).documents(5000))
    assert learner.snapshot().diagnostics["following"]["switches"] == 0


@pytest.mark.statistical
def test_a_new_topic_has_the_row_of_one_of_two_that_are_merged():
    """One topic of the truth is in two versions that differ; dropped, one of them would stay."""
    truth, rng = corpus(1), np.random.default_rng(0)
    theme, documents = rng.dirichlet(np.full(V, 0.05)), truth.documents(2000)
    up = rng.choice([0.3, 1.7], V)
    topics = np.vstack([truth.components, truth.components[-1]])
    topics[-2:] *= np.vstack([up, 2 - up])
    _, fitted = Engine.fit(replace(SETTINGS, n_components=K + 1), documents)
    model = replace(
        fitted,
        components=topics / topics.sum(axis=1, keepdims=True),
        alpha=np.append(truth.alpha, truth.alpha[-1]),
        documents_seen=20_000,
        tokens_seen=1_200_000,
    )
    worst = DocumentBatch.from_matrix(rng.multinomial(60, theme, 200))
    learned = DocumentBatch.joined([documents.rows(0, 1000), worst])
    birth = make_birth(model, worst, learned, stream_settings(WARMUP))
    found = birth.model.components
    # Those of the worst documents and of one step, not of its share of 20,000 documents.
    assert birth.tokens < 2.5 * worst.counts.sum()
    apart = np.abs(found[:, None] - np.vstack([truth.components, theme])).sum(axis=2)
    assert apart.min(axis=0).max() < 0.3


def test_topics_that_are_merged_at_a_birth_weigh_what_their_alphas_say():
    """So many documents were seen before that the last ones move no topic."""
    truth, rng = corpus(1).components, np.random.default_rng(0)
    up, theme = rng.choice([0.3, 1.7], V), rng.dirichlet(np.full(V, 0.05))
    versions = truth[-1] * np.vstack([up, 2 - up])
    versions /= versions.sum(axis=1, keepdims=True)
    alpha = 0.1 * np.append(np.ones(K - 1), [0.75, 0.25])
    merged = 0.75 * versions[0] + 0.25 * versions[1]
    proportions = rng.dirichlet(np.full(K, 0.1), 1000)
    learned = rng.multinomial(60, proportions @ np.vstack([truth[:-1], merged]))
    model = TopicModel(
        components=np.vstack([truth[:-1], versions]),
        alpha=alpha,
        background=truth.mean(axis=0),
        documents_seen=10**9,
        tokens_seen=6 * 10**10,
    )
    worst = DocumentBatch.from_matrix(rng.multinomial(60, theme, 50))
    birth = make_birth(model, worst, DocumentBatch.from_matrix(learned), stream_settings(WARMUP))
    (near,) = {K - 1, K} - {birth.row}
    assert birth.model.alpha[near] == pytest.approx(0.1)
    assert np.abs(birth.model.components[near] - merged).sum() < 0.05
    # Of equal weights it would be as far as this.
    assert np.abs(versions.mean(axis=0) - merged).sum() > 0.2


@pytest.mark.statistical
@pytest.mark.parametrize(("share", "documents"), [(0.1, 2000), (0.01, 8000)])
def test_a_theme_of_few_documents_takes_a_topic(share, documents):
    """From document 2500 on; one of one document in a hundred moves no mean."""
    planted, rng = corpus(4), np.random.default_rng(0)
    theme = rng.dirichlet(np.full(V, 0.05))
    learner = Engine(replace(SETTINGS, n_components=K + 1))
    learner.add(planted.documents(2500))
    rows = planted.documents(documents).to_csr().toarray()
    chosen = rng.random(documents) < share
    rows[chosen] = rng.multinomial(60, theme, chosen.sum())
    learner.add(DocumentBatch.from_matrix(rows))
    apart = np.abs(learner.snapshot().components - theme).sum(axis=1)
    assert apart.min() < 0.5


@pytest.mark.statistical
@pytest.mark.parametrize("swapped", [False, True])
def test_a_theme_that_two_members_share_takes_a_topic_where_they_are_merged(swapped):
    """One document in twenty of both, which moves no mean; both begin again from it."""
    planted, rng = corpus(4), np.random.default_rng(0)
    theme = rng.dirichlet(np.full(V, 0.05))
    settings = replace(SETTINGS, n_components=K + 1)
    _, model = Engine.fit(settings, planted.documents(4000))
    start = SharedStart.of_model(model, WARMUP)
    members = [Engine(settings, shared_start=start) for _ in range(2)]
    for member in members:
        member.add(planted.documents(1000))
    assert merged_and_turned(members).following.switches == 0
    for member in members:
        assert not member.following.since_turn
        rows = planted.documents(500).to_csr().toarray()
        chosen = rng.random(500) < 0.05
        rows[chosen] = rng.multinomial(60, theme, chosen.sum())
        member.add(DocumentBatch.from_matrix(rows))
    merged = merged_and_turned(members[::-1] if swapped else members)
    model = merged.snapshot()
    assert merged.following.switches == 1
    assert np.abs(model.components - theme).sum(axis=1).min() < 0.5
    assert model.documents_seen == 3000
    assert members[0].begin_again(merged.beginning)
    assert ids(members[0].snapshot()) == ids(model)


def merged_and_turned(members):
    newest = [member.following.newest for member in members]
    merged, other = (Engine.from_state(*member.state()) for member in members)
    merged.merge(other)
    merged.turn(newest, max(member.following.since_turn for member in members))
    return merged


def test_challengers_in_vain_learn_a_quarter_of_the_stream(monkeypatch):
    """However often it turns; beyond that the documents of one."""
    learned = []
    fit = following.fit

    def counted(settings, documents):
        learned.append(len(documents))
        return fit(settings, documents)

    monkeypatch.setattr(following, "fit", counted)
    monkeypatch.setattr(Gain, "is_sure", False)
    learner, subjects = Engine(SETTINGS), [corpus(seed) for seed in range(8)]
    learner.add(subjects[0].documents(WARMUP))
    for turn in range(40):
        learner.add(subjects[turn // 5].documents(STEP))
    assert len(learned) > 2
    assert sum(learned) <= (WARMUP + 40 * STEP) / following.VAIN + max(learned)
