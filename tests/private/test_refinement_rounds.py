"""Refinement under privacy: rounds of fresh documents that move the topics of noisy moments."""

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from scipy import stats

from streamlda.documents import DocumentBatch
from streamlda.model.evaluation import matched_l1_error
from streamlda.model.inference import SMOOTHING, smooth, topic_proportions
from streamlda.private import comparison, denoising
from streamlda.private.comparison import ComparisonStatistic
from streamlda.private.contributions import View
from streamlda.private.denoising import LIFTS, denoise
from streamlda.private.responsibilities import (
    INNER_ITERATIONS,
    ROUGH_PRIOR,
    RefinementStatistic,
    get_divisors,
)
from streamlda.private.unmixing import unmix_tokens
from streamlda.refinement.measures import INFERENCE_TOLERANCE
from streamlda.simulate import PlantedLDA
from tests import oracle_refinement, oracle_text
from tests.private.streams import (
    COMPARED,
    POOL,
    PUBLIC,
    D,
    batch_of_counts,
    run,
    sums_of,
    view_of,
    wide,
)


def shares_of(view, public="mixed"):
    statistic = RefinementStatistic(*PUBLIC[public], background_prior=ROUGH_PRIOR.background)
    return sums_of(statistic, view)["shares"]


@pytest.mark.kernels
@pytest.mark.parametrize("public", PUBLIC)
def test_sums_are_those_of_documents_scaled_to_norm_1(public):
    topics, prior, background, weights = PUBLIC[public]
    rows = [row for row in POOL.values() if sum(row.values()) < 1000]
    view = view_of(rows)
    words = np.vstack([topics, background]).T.astype(np.float32)
    alpha = np.append(prior, ROUGH_PRIOR.background * prior.sum()).astype(np.float32)
    shares = oracle_refinement.expect_topics(view.batch, words, alpha, INNER_ITERATIONS)
    expected = np.zeros((D, len(topics) + 1))
    for entries in oracle_refinement.iterate_documents(view.batch):
        if sum(count for _, _, count in entries) < 3:
            continue
        x = np.zeros((D, len(topics) + 1))
        for e, word, count in entries:
            x[word] = count * weights[word] * shares[e]
        expected += x / max(1.0, np.linalg.norm(x))
    np.testing.assert_allclose(shares_of(view, public), expected, rtol=2e-4, atol=1e-6)
    given = PUBLIC[public]
    both = RefinementStatistic(*given, background_prior=ROUGH_PRIOR.background, totals_weight=0.5)
    sums = sums_of(both, view)
    np.testing.assert_array_equal(sums["shares"], shares_of(view, public))
    usable = [row for row in rows if sum(row.values()) >= 3]
    counted = batch_of_counts(usable).to_csr().sum(axis=0).A1
    np.testing.assert_allclose(sums["words"], counted * weights, rtol=1e-12)


def test_the_posterior_mean_is_that_of_bayes_for_each_entry(monkeypatch):
    """By definition, entry by entry, with the prior that one step of EM gives."""
    monkeypatch.setattr(denoising, "FIT_STEPS", 1)
    monkeypatch.setattr(denoising, "GROUPS", 1)
    background, tokens, noise = np.full(6, 1 / 6), np.array([60.0, 30.0]), np.full(6, 4.0)
    sums = np.random.default_rng(1).normal(8.0, 6.0, size=(6, 2))
    centres = np.multiply.outer(np.outer(background, tokens), LIFTS)
    density = stats.norm.pdf(sums[..., None], centres, 4.0)
    posterior = density / density.sum(axis=-1, keepdims=True)
    prior = posterior.reshape(-1, len(LIFTS)).mean(axis=0) + 1e-6
    weights = density * prior / prior.sum()
    expected = np.sum(weights * centres, axis=-1) / weights.sum(axis=-1)
    np.testing.assert_allclose(
        denoise(sums, noise, background, np.outer(background, tokens)).tokens, expected
    )
    monkeypatch.setattr(denoising, "FITTED", 5)
    # Fitted on every third entry, applied in runs of five: other weights, all the entries.
    assert np.all(denoise(sums, noise, background, np.outer(background, tokens)).tokens > 0)


def test_the_prior_is_fitted_on_all_topics(monkeypatch):
    """Also where the number of entries is a multiple of the number of topics."""
    seen = []
    likelihood = denoising._likelihood

    def noting(sums, scales, stddev):
        seen.append(scales)
        return likelihood(sums, scales, stddev)

    monkeypatch.setattr(denoising, "_likelihood", noting)
    monkeypatch.setattr(denoising, "FITTED", 64)
    monkeypatch.setattr(denoising, "GROUPS", 1)
    d, K = 256, 4
    tokens = np.array([1.0, 10.0, 100.0, 1000.0])
    background = np.full(d, 1 / d)
    denoise(np.ones((d, K)), np.ones(d), background, np.outer(background, tokens))
    np.testing.assert_allclose(np.unique(seen[0]), tokens / d)


K, V, N = 4, 300, 4000
WEIGHT = 1.5


@pytest.fixture(scope="module")
def round_():
    """Return what a round begins with, its sums of tokens, and the planted topics."""
    corpus = PlantedLDA(K, V, topic_concentration=0.05, mean_length=60, seed=3)
    rows = corpus.documents(N)
    background = np.bincount(rows.word_ids, rows.counts, V) + 1e-3
    background /= background.sum()
    # A sixth of the words is known, as after pairs of common words.
    topics = np.tile(background, (K, 1))
    known = np.argsort(-background)[: V // 6]
    topics[:, known] = corpus.components[:, known]
    topics /= topics.sum(axis=1, keepdims=True)
    prior = np.full(K, 1 / K)
    begun = topics, prior, background
    statistic = RefinementStatistic(*begun, np.ones(V), background_prior=WEIGHT)
    return begun, sums_of(statistic, View(rows))["shares"], corpus.components


@pytest.mark.parametrize("stddev", [0.5, 2.0])
def test_topics_are_much_nearer_than_the_sums_show_them(round_, stddev):
    begun, sums, truth = round_
    noisy = sums + stddev * np.random.default_rng(0).standard_normal(sums.shape)
    rough = np.maximum(noisy[:, :K], 1e-12)
    rough = (rough / rough.sum(axis=0)).T
    given = noisy, np.full(V, stddev), begun[2], rough, begun[1], 1.0
    tokens = unmix_tokens(*given, *get_divisors(*begun, WEIGHT), 0.7, 0)
    found = (tokens / tokens.sum(axis=0)).T
    before, after = (matched_l1_error(truth, each).mean for each in (rough, found))
    assert after < 0.75 * before


SMALL = {name: row for name, row in POOL.items() if 3 <= sum(row.values()) < 1000}


def said_by(view, which="mixed"):
    return sums_of(ComparisonStatistic(*COMPARED[which]), view)


def slow(row, topics, long):
    tokens = [word for word, count in sorted(row.items()) for _ in range(count)]
    words = smooth(topics.components, topics.background, SMOOTHING).T

    def proportions(part):
        ids, counts = np.unique(part, return_counts=True)
        given = counts, ids, [0, len(ids)], words, topics.alpha, 100, INFERENCE_TOLERANCE
        return np.array(oracle_text.fold_in(*given)[0])

    theta, q = proportions(tokens[::2]), topics.background
    gains = [(words[w] @ theta - q[w]) / (words[w] @ theta + q[w]) for w in tokens[1::2]]
    return {
        "tokens": min(1, len(tokens) / long) * proportions(tokens),
        "preferred": np.clip(comparison.SCALE * np.mean(gains), -1, 1),
    }


@pytest.mark.parametrize("which", COMPARED)
@pytest.mark.parametrize("name", SMALL)
def test_what_a_document_adds_is_that_of_its_tokens_one_by_one(name, which):
    assert not any(np.any(values) for values in said_by(view_of([{}, {1: 2}]), which).values())
    found, expected = said_by(view_of([SMALL[name]]), which), slow(SMALL[name], *COMPARED[which])
    assert found.keys() == expected.keys()
    for block, values in expected.items():
        np.testing.assert_allclose(found[block], values, rtol=2e-6, atol=1e-9)


@pytest.mark.statistical
@pytest.mark.parametrize("rounds", [0, 1])
def test_prevalence_is_the_share_of_tokens(rounds):
    """Topics of long documents against those of short ones."""
    n, d, alpha = 10_000, 1100, np.array([0.05, 0.15, 0.3, 0.5])
    parts = [
        PlantedLDA(4, d, alpha=shares, mean_length=length, seed=5).documents(n).to_csr()
        for shares, length in ((alpha, 150), (alpha[::-1], 30))
    ]
    mixed = np.arange(2 * n).reshape(2, n).T.ravel()
    batch = DocumentBatch.from_matrix(scipy.sparse.vstack(parts).tocsr()[mixed].astype(np.float64))
    config = wide(n_features=d, n_components=4, epsilon=10.0, delta=1e-6, alpha_0=1.0)
    config = replace(config, documents_per_snapshot=2 * n, refinement_rounds=rounds)
    (snapshot,) = run(config, batch).snapshots
    found = snapshot.topics
    words = smooth(found.components, found.background, SMOOTHING)
    theta = topic_proportions(batch, words, found.alpha)
    shares = np.average(theta, axis=0, weights=batch.lengths if rounds else None)
    assert np.all(np.diff(found.prevalence) <= 0)
    np.testing.assert_allclose(np.log(found.prevalence / shares), 0, atol=np.log(1.2))
