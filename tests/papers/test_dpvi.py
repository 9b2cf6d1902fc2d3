"""Private variational Bayes: it learns, its bound is attained, its price is right, bugs show."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special, stats

from streamlda.documents import DocumentBatch
from streamlda.guarantee.accounting import noise_multiplier
from streamlda.guarantee.noise import SecureNoise, SeededNoise
from streamlda.model.evaluation import matched_l1_error
from streamlda.papers import dpvi
from streamlda.papers.dpvi import DPVISettings, coins, fit_dp_vi, statistic, subsampled_multiplier
from streamlda.simulate import PlantedLDA
from tests.oracle_refinement import variational_responsibilities

DELTA = 1e-5
SMALL = PlantedLDA(3, 20, seed=0).documents(30)


SETTINGS = {"n_components": 3, "epsilon": 1.0, "delta": DELTA, "clip_norm": 20.0, "steps": 1}
settings = partial(DPVISettings, **SETTINGS)


def documents_of(*rows):
    return DocumentBatch.from_matrix(np.array(rows, dtype=float))


def within(observed, law):
    """Return whether a statistic is between the quantiles of a false-alarm rate of 1e-8."""
    low, high = law.ppf([5e-9, 1 - 5e-9])
    return low <= observed <= high


def test_a_statistic_is_that_of_the_slow_twin_clipped():
    rng = np.random.default_rng(3)
    documents = PlantedLDA(3, 25, seed=4).documents(20)
    dirichlet, alpha = rng.gamma(1.0, size=(25, 3)) + 0.01, np.array([0.2, 0.5, 1.0])
    words = np.exp(special.digamma(dirichlet) - special.digamma(dirichlet.sum(axis=0)))
    layout = (documents.counts, documents.word_ids, documents.row_pointers)
    parts, norms = variational_responsibilities(*layout, words, alpha, 100, 1e-3)
    assert norms.min() < 30 < norms.max()
    slow = np.zeros((25, 3))
    weights = documents.counts * np.repeat(np.minimum(1, 30 / norms), np.diff(layout[2]))
    np.add.at(slow, documents.word_ids, weights[:, None] * parts)
    np.testing.assert_allclose(statistic(documents, dirichlet, alpha, 30.0), slow, rtol=1e-10)


def test_dp_vi_learns_topics_and_more_noise_costs_accuracy():
    planted = PlantedLDA(3, 40, seed=4)
    documents = planted.documents(2500)
    # From other starts it may end in another maximum.
    same = {"sampling_rate": 1.0, "steps": 6, "clip_norm": 40.0, "seed": 2}
    errors = []
    for epsilon, delta in ((None, None), (4.0, DELTA), (0.2, DELTA)):
        found = fit_dp_vi(
            documents, settings(epsilon=epsilon, delta=delta, **same), noise=SeededNoise(1)
        )
        errors.append(matched_l1_error(planted.components, found.components).mean)
    assert errors[0] < errors[1] < 0.3 < errors[2]


def test_blank_documents_add_nothing():
    dirichlet, alpha = np.arange(1.0, 7.0).reshape(3, 2), np.array([0.1, 0.2])
    blank, rows = [0, 0, 0], ([3, 0, 1], [0, 2, 2])
    whole = statistic(documents_of(*rows), dirichlet, alpha, 2.0)
    mixed = documents_of(blank, rows[0], blank, rows[1], blank)
    np.testing.assert_allclose(statistic(mixed, dirichlet, alpha, 2.0), whole, rtol=1e-14)
    assert not statistic(documents_of(blank), dirichlet, alpha, 2.0).any()


@given(st.integers(0, 10**6), st.floats(0.5, 50))
def test_no_document_moves_the_sum_by_more_than_the_bound(seed, clip_norm):
    rng = np.random.default_rng(seed)
    dirichlet, alpha = rng.gamma(0.5, size=(12, 3)) + 1e-3, rng.gamma(1.0, size=3) + 0.01
    rows = rng.poisson(rng.gamma(0.3, 8, size=(5, 12))).astype(float)
    rows[:, 0] += 1
    whole = statistic(documents_of(*rows), dirichlet, alpha, clip_norm)
    parts = [statistic(documents_of(row), dirichlet, alpha, clip_norm) for row in rows]
    for part in parts:
        assert np.linalg.norm(part) <= clip_norm * (1 + 1e-12)
        assert part.min() >= 0
    np.testing.assert_allclose(whole, np.sum(parts, axis=0), rtol=1e-12)


@pytest.mark.parametrize(("clip_norm", "norm"), [(7.0, 7.0), (math.inf, 30.0)])
def test_a_document_of_one_word_attains_the_bound(clip_norm, norm):
    dirichlet = np.array([[1e4, 1e-3], [1e-3, 1e4]])
    part = statistic(documents_of([30.0, 0.0]), dirichlet, np.full(2, 0.01), clip_norm)
    assert np.linalg.norm(part) == pytest.approx(norm, rel=1e-6)


@pytest.mark.parametrize("times", [1, 2 / 3])
def test_the_noise_is_as_large_as_the_accounting_says_and_a_planted_bug_shows(monkeypatch, times):
    """A chi-squared test of variance."""
    drawn = []

    class Watched(dpvi.MechanismOfDoubles):
        def release(self, sums, noise):
            self.stddevs["statistic"] *= times
            answer = super().release(sums, noise)
            drawn.append((answer["statistic"] - sums["statistic"]).ravel())
            return answer

    monkeypatch.setattr(dpvi, "MechanismOfDoubles", Watched)
    documents = PlantedLDA(3, 300, seed=2).documents(50)
    fit_dp_vi(documents, settings(sampling_rate=1.0, clip_norm=5.0), noise=SeededNoise(7))
    z = drawn[0] / 5.0 / noise_multiplier(1.0, DELTA)
    assert within(np.sum(z**2), stats.chi2(len(z))) == (times == 1)


def test_without_sampling_the_price_is_the_exact_one():
    exact = noise_multiplier(1.0, DELTA, 10)
    assert exact * 0.999 < subsampled_multiplier(1.0, DELTA, 1.0, 10) < exact * 1.002


def test_with_sampling_the_moments_accountant_agrees_from_above():
    import dp_accounting
    from dp_accounting.rdp import RdpAccountant

    z = subsampled_multiplier(1.0, DELTA, 0.1, 50)
    accountant = RdpAccountant()
    sampled = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(z))
    accountant.compose(sampled, 50)
    assert 1.0 < accountant.get_epsilon(DELTA) < 1.25


def test_coins_are_right_and_differ():
    heads = coins(200_000, 0.1, SecureNoise()).sum()
    assert within(heads, stats.binom(200_000, 0.1))
    assert not within(200_000 * 0.11, stats.binom(200_000, 0.1))
    assert (coins(1000, 0.5, SecureNoise()) != coins(1000, 0.5, SecureNoise())).any()
    assert coins(5, 1.0, SecureNoise()).all()


@pytest.mark.parametrize(
    ("changes", "noise", "private"),
    [
        ({}, None, True),
        ({}, SeededNoise(0), False),
        ({"epsilon": None, "delta": None}, None, False),
    ],
)
def test_topics_are_private_with_secure_noise_alone(changes, noise, private):
    assert fit_dp_vi(SMALL, settings(**changes), noise=noise).private == private


def test_coins_are_paid_for_as_noise_is(monkeypatch):
    """A number for which their distance from exact ones takes a part of delta, or all of it."""
    left = []
    original = dpvi.subsampled_multiplier

    def watched(epsilon, delta, rate, steps):
        left.append(delta)
        return original(epsilon, delta, rate, steps)

    monkeypatch.setattr(dpvi, "subsampled_multiplier", watched)
    rows = 10**4
    for rate in (0.5, 1.0):
        fit_dp_vi(SMALL, settings(sampling_rate=rate, steps=2), n_max=rows)
    coin = 2 * SecureNoise.tv_distance_bound * rows * 2 * (1 + math.e)
    assert coin > 1e-15
    assert left[1] - left[0] == pytest.approx(coin, rel=1e-3)
