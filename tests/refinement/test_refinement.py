"""Refinement: better topics on planted corpora, one result for every cut, resuming, bounds."""

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine, EngineSettings
from streamlda.model.evaluation import document_completion, matched_l1_error
from streamlda.refinement.collapsed import RELAXATION, CollapsedVariational
from streamlda.refinement.gibbs import UNSEEN, GibbsSampler, fit_alpha
from streamlda.refinement.settings import GibbsSettings, StepwiseEMSettings
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.simulate import PlantedLDA
from streamlda.utils.arrays import split_state
from tests import oracle_refinement as twin
from tests.corpora import batch_of

K, V = 6, 120

#: Steps of 100 documents, and annealing over 20 of them.
SETTINGS = StepwiseEMSettings(batch_documents=100, annealing=0.7, annealing_steps=20)


@pytest.fixture(scope="module")
def corpus():
    return PlantedLDA(K, V, alpha_0=0.6, mean_length=40, topic_concentration=0.1, seed=2)


@pytest.fixture(scope="module")
def model(corpus):
    settings = EngineSettings(n_components=K, n_features=V, warmup_documents=200, refine=False)
    engine = Engine(settings)
    corpus.seek(0)
    engine.add(corpus.documents(400))
    return engine.snapshot()


@pytest.fixture(scope="module")
def documents(corpus):
    corpus.seek(400)
    return corpus.documents(20_000)


def refinement(model):
    return StepwiseEM.of_topics(model.components, model.alpha, model.background, SETTINGS)


def resampling(documents, model, **settings):
    few = documents.rows(0, 2000)
    return GibbsSampler(few, model.components, model.alpha, GibbsSettings(**settings))


def digest(machine):
    arrays, values = split_state(machine.state())
    return {name: array.tobytes() for name, array in arrays.items()}, values


def test_steps_come_nearer_to_the_planted_topics_and_resampling_nearer_still(
    corpus, documents, model
):
    corpus.seek(20_400)
    held_out, better = corpus.documents(1500), refinement(model)
    better.add(documents)
    sampled = GibbsSampler(documents, better.components, better.alpha)
    sampled.sweep(10, averaged=5)
    found = (model, better, sampled)
    errors = [matched_l1_error(corpus.components, each.components).mean for each in found]
    assert errors[1] < 0.6 * errors[0]
    assert errors[2] < errors[1]
    models = [(each.components, each.alpha, model.background) for each in found]
    scores = [document_completion(held_out, *each).perplexity for each in models]
    assert scores == sorted(scores, reverse=True)


def test_a_flat_start_mends_topics_that_a_sharp_start_keeps_wrong(documents, corpus, model):
    """Two planted topics are merged and a third is split: annealing lets them part again."""
    wrong = corpus.components.copy()
    wrong[0] = (wrong[0] + wrong[1]) / 2
    wrong[1] = wrong[2] * np.random.default_rng(1).uniform(0.5, 1.5, V)

    def worst(**settings):
        settings = StepwiseEMSettings(batch_documents=100, **settings)
        refined = StepwiseEM.of_topics(wrong, corpus.alpha, model.background, settings)
        refined.add(documents)
        return matched_l1_error(corpus.components, refined.components).per_topic.max()

    assert worst() > 1.0
    assert worst(annealing=0.9, annealing_steps=100) < 0.3


def test_steps_of_many_topics_move_those_that_a_document_shows(monkeypatch):
    """Of 30 topics a document of 20 tokens shows about two: 16 have responsibilities."""
    corpus = PlantedLDA(30, 300, alpha_0=0.3, mean_length=20, topic_concentration=0.1, seed=3)
    documents = corpus.documents(4000)
    rough = 0.5 * corpus.components + 0.5 * corpus.components.mean(axis=0)
    errors = []
    for many in (100, 30):
        monkeypatch.setattr("streamlda.refinement.stepwise_em.FEW_OF_COMPONENTS", many)
        found = StepwiseEM.of_topics(rough, corpus.alpha, np.full(300, 1 / 300), SETTINGS)
        one = documents.rows(0, 1)
        statistic = found.statistic(one)
        assert statistic.sum() == pytest.approx(one.lengths[0], rel=1e-5)
        assert np.count_nonzero(statistic.sum(axis=0)) == (30 if many == 100 else 16)
        found.add(documents)
        errors.append(matched_l1_error(corpus.components, found.components).mean)
    assert errors[1] < 1.02 * errors[0]


def test_a_step_is_what_its_documents_add_to_sums_that_decay(documents, model):
    """By definition; and `add` takes the same steps as `learn`."""
    learned, added, alone = (refinement(model) for _ in range(3))
    words, before = batch_of([[0, 7], [7, 7, 90]], V), 0.0
    for step, part in enumerate((documents.rows(0, 100), words, documents.rows(100, 103)), 1):
        statistic = learned.statistic(part)
        assert statistic.min() >= 0
        tokens = np.bincount(part.word_ids, part.counts, V)
        np.testing.assert_allclose(statistic.sum(axis=1), tokens, rtol=1e-5)
        rho = step**-0.7
        mean = (1 - rho) * before + rho * statistic
        learned.learn(part)
        np.testing.assert_allclose(learned.mean, mean, rtol=1e-9)
        smooth = mean + 0.01 * mean.mean()
        np.testing.assert_allclose(learned.components.T, smooth / smooth.sum(axis=0), rtol=1e-9)
        before = mean
    assert (learned.steps, learned.documents) == (3, 105)
    added.add(documents.rows(0, 100))
    alone.learn(documents.rows(0, 100))
    assert digest(alone) == digest(added)
    # Documents that wait are left alone, and empty ones count and change nothing.
    alone.add(documents.rows(0, 30))
    alone.learn(documents.rows(30, 80))
    assert (alone.steps, alone.documents, alone.n_waiting) == (2, 150, 30)
    before = added.components
    added.add(batch_of([[]] * 250, V))
    assert (added.steps, added.documents, added.n_waiting) == (1, 300, 50)
    np.testing.assert_array_equal(added.components, before)


def test_resampled_topics_are_those_of_the_counts_or_of_their_mean(documents, model):
    averaged, last = (resampling(documents, model, smoothing=0.1) for _ in range(2))
    assert last.topics.tolist() != resampling(documents, model, seed=1).topics.tolist()
    few, counts = documents.rows(0, 2000), np.zeros((4, K, V))
    words = np.repeat(few.word_ids, few.counts.astype(int))
    for count in counts:
        last.sweep()
        np.add.at(count, (last.topics, words), 1)
    # Earlier averages do not count, nor do averages that are asked for beyond the sweeps.
    averaged.sweep(1, averaged=1)
    averaged.sweep(3, averaged=2)
    all_of_them = resampling(documents, model, smoothing=0.1)
    all_of_them.sweep(4, averaged=9)
    means = ((averaged, counts[2:].mean(axis=0)), (all_of_them, counts.mean(axis=0)))
    for sampled, found in ((last, counts[-1]), *means):
        np.testing.assert_allclose(sampled.totals, found.T, rtol=1e-12)
        expected = (found + 0.1) / (found + 0.1).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(sampled.components, expected, rtol=1e-12)


def test_fit_alpha_climbs_to_the_likeliest_alpha():
    rng = np.random.default_rng(3)
    truth = np.array([0.1, 0.5, 1.5])
    counts = np.array([rng.multinomial(60, p) for p in rng.dirichlet(truth, 3000)])
    at_least = np.array([[(counts[:, k] > j).sum() for j in range(60)] for k in range(3)])
    longer = np.full(60, 3000)
    alpha = np.ones(3)
    likelihood = twin.dirichlet_multinomial(counts, alpha)
    for _ in range(60):
        alpha = fit_alpha(at_least, longer, alpha)
        before, likelihood = likelihood, twin.dirichlet_multinomial(counts, alpha)
        assert likelihood >= before - 1e-6
    np.testing.assert_allclose(alpha, truth, rtol=0.1)
    for k in range(3):
        for factor in (0.97, 1.03):
            other = alpha * np.where(np.arange(3) == k, factor, 1.0)
            assert twin.dirichlet_multinomial(counts, other) < likelihood


@pytest.mark.parametrize("alpha_0", [0.1, 20.0])
def test_fit_alpha_converges_for_sharp_and_for_mixed_documents(alpha_0):
    """Five steps from 1 to 20 reach 4."""
    truth, rng = alpha_0 * np.array([0.2, 0.3, 0.5]), np.random.default_rng(4)
    counts = np.array([rng.multinomial(60, p) for p in rng.dirichlet(truth, 3000)])
    at_least = np.array([[(counts[:, k] > j).sum() for j in range(60)] for k in range(3)])
    begun = truth / alpha_0
    found = fit_alpha(at_least, np.full(60, 3000), begun, even=True)
    np.testing.assert_allclose(found, found.sum() * begun)
    assert found.sum() == pytest.approx(alpha_0, rel=0.15)


def test_collapsed_sweeps_go_over_documents_that_were_held_out(documents, model):
    """The result is that of all at once; later documents begin with the topics found by then."""
    first, second = documents.rows(0, 60), documents.rows(60, 90)
    found = CollapsedVariational(first, model.components, model.alpha)
    begun = [(first, model.components), (second, found.components)]
    found.sweeps = 2
    found.learn(second)
    assert found.sweeps == 3
    words = [(part, topics.T + UNSEEN / (K * V)) for part, topics in begun]
    shares = np.vstack([twin.expect_topics(*each, model.alpha, 3) for each in words])
    both = DocumentBatch.joined([first, second])
    totals = np.zeros((V, K))
    np.add.at(totals, both.word_ids, both.counts[:, None] * shares)
    masses = totals.sum(axis=0)
    settings = (model.alpha, found.smoothing, RELAXATION)
    slow = twin.collapse_topics(both, *settings, masses, shares, totals)
    np.testing.assert_allclose(found.totals, slow[1], rtol=0, atol=1e-3)
