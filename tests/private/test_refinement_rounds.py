"""Refinement under privacy: rounds of fresh documents that move the topics of noisy moments.

What holds for all rounds alike is tested in `test_rounds`, `test_sensitivity` and `test_audit`.
"""

import numpy as np
import pytest
from scipy import stats

from streamlda.errors import InvalidSettingError
from streamlda.private import denoising, responsibilities
from streamlda.private.denoising import LIFTS, denoise
from streamlda.private.refinement import BACKGROUND_PRIOR
from streamlda.private.responsibilities import INNER_ITERATIONS, RefinementStatistic
from tests import oracle_refinement
from tests.private.streams import (
    EVEN,
    MIXED,
    POOL,
    PUBLIC,
    D,
    filled,
    settings_of,
    stage_of,
    sums_of,
    view_of,
)


def statistic_of(public="mixed"):
    return RefinementStatistic(*PUBLIC[public], background_prior=BACKGROUND_PRIOR)


def shares_of(view, public="mixed"):
    return sums_of(statistic_of(public), view)["shares"]


# Sums.


@pytest.mark.kernels
@pytest.mark.parametrize("public", PUBLIC)
def test_sums_are_those_of_documents_scaled_to_norm_1(public):
    topics, prior, background, weights = PUBLIC[public]
    rows = [row for row in POOL.values() if sum(row.values()) < 1000]
    view = view_of(rows)
    words = np.maximum(np.vstack([topics, background]).T, 1e-12).astype(np.float32)
    alpha = np.append(prior, BACKGROUND_PRIOR * prior.sum()).astype(np.float32)
    shares = oracle_refinement.expect_topics(view.batch, words, alpha, INNER_ITERATIONS)
    expected = np.zeros((D, len(topics) + 1))
    for entries in oracle_refinement.iterate_documents(view.batch):
        if sum(count for _, _, count in entries) < 3:
            continue
        x = np.zeros((D, len(topics) + 1))
        for e, word, count in entries:
            x[word] = count * weights[word] * shares[e]
        expected += x / max(1.0, np.linalg.norm(x))
    statistic = statistic_of(public)
    np.testing.assert_allclose(shares_of(view, public), expected, rtol=2e-4, atol=1e-6)
    assert {b.name: b.shape for b in statistic.blocks()} == {"shares": expected.shape}


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_document_without_a_norm_adds_exactly_nothing(value, monkeypatch):
    """The attack: responsibilities that are no numbers where a word stands would spoil the sum."""
    original = responsibilities.expect_topics

    def broken(counts, word_ids, *others):
        original(counts, word_ids, *others)
        others[-2][word_ids == 4] = value

    rows = [{0: 5, 1: 5}, {3: 2, 4: 9}, {2: 7}]

    def added(documents):
        stage = stage_of([statistic_of()], settings_of(), 3)
        return filled(stage, documents).sums.aggregates["shares"]

    without = added([rows[0], {}, rows[2]])
    monkeypatch.setattr(responsibilities, "expect_topics", broken)
    np.testing.assert_array_equal(added(rows), without)


@pytest.mark.parametrize(
    ("which", "array"),
    [
        (1, np.ones(1)),
        (0, MIXED[:, 1:]),
        (2, EVEN[1:]),
        (3, np.ones(D - 1)),
    ],
)
def test_what_a_round_begins_with_must_fit_together(which, array):
    given = list(PUBLIC["mixed"])
    given[which] = array
    with pytest.raises(InvalidSettingError, match="must fit together"):
        RefinementStatistic(*given, background_prior=1.0)


# Post-processing.


def test_the_posterior_mean_is_near_the_truth_where_noise_is_small_and_the_background_elsewhere():
    rng = np.random.default_rng(0)
    d, tokens = 2000, np.array([4e4, 2e4])
    background = rng.dirichlet(np.full(d, 0.5)) + 1e-6
    lifts = rng.choice([0.1, 1.0, 5.0], size=(d, 2))
    truth = lifts * np.outer(background, tokens)
    errors = []
    for size in (1e-3, 10.0, 1e6):
        noise = np.full(d, size)
        seen = truth + size * rng.standard_normal(truth.shape)
        found = denoise(seen, noise, background, np.outer(background, tokens)).tokens
        assert np.all(found > 0)
        errors.append(np.linalg.norm(found - truth) / np.linalg.norm(truth))
        if size == 10.0:
            # Better than what is seen, and than the background.
            assert errors[-1] < 0.7 * np.linalg.norm(seen - truth) / np.linalg.norm(truth)
        if size == 1e6:
            lift = found / np.outer(background, tokens)
            assert lift.std() < 0.1 * lift.mean()
    assert errors[0] < 1e-3 < errors[1] < errors[2]


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


# Topics in documents like text.
