"""Laplace noise on a grid: its distribution, its scale, and what it refuses."""

import math

import numpy as np
import pytest
from scipy import stats

from streamlda.papers import laplace
from streamlda.papers.laplace import MAX_SCALE, discrete_laplace, release_laplace
from streamlda.privacy.events import LaplaceRelease
from streamlda.privacy.noise import SecureNoise, SeededNoise


def pmf(y, scale):
    ratio = math.exp(-1 / scale)
    return (1 - ratio) / (1 + ratio) * ratio ** np.abs(y)


@pytest.mark.statistical
@pytest.mark.parametrize("scale", [1, 2, 7])
def test_small_scales_have_the_discrete_laplace_masses(scale):
    """Chi-squared over the bulk, 100,000 draws, false alarm 1e-6; a scale 10 % off is rejected."""
    drawn = discrete_laplace(SeededNoise(scale), scale, 100_000)
    edge = 4 * scale
    bins = np.arange(-edge, edge + 1)
    observed = np.array([np.sum(drawn == y) for y in bins])
    observed = np.append(observed, len(drawn) - observed.sum())

    def p_value(tried):
        masses = pmf(bins, tried)
        expected = np.append(masses, 1 - masses.sum()) * len(drawn)
        return stats.chisquare(observed, expected).pvalue

    assert p_value(scale) > 1e-6
    assert p_value(1.1 * scale) < 1e-6
    assert p_value(scale / 1.1) < 1e-6


@pytest.mark.statistical
@pytest.mark.parametrize("scale", [2**31 - 1, MAX_SCALE])
def test_large_scales_are_laplace(scale):
    """Kolmogorov-Smirnov, 40,000 draws, false alarm 1e-6; a scale 10 % off is rejected."""
    drawn = discrete_laplace(SeededNoise(5), scale, (200, 200)).ravel() / scale
    assert stats.kstest(drawn, stats.laplace.cdf).pvalue > 1e-6
    for wrong in (0.9, 1.1):
        assert stats.kstest(drawn * wrong, stats.laplace.cdf).pvalue < 1e-6
    # The low bits are uniform: no scale is a power of two in disguise.
    low = np.bincount(discrete_laplace(SeededNoise(6), scale, 20_000) & 7, minlength=8)
    assert stats.chisquare(low).pvalue > 1e-6


def test_tails_are_those_of_a_geometric_draw():
    assert laplace._TAILS[-1] / 2**62 == pytest.approx(math.exp(-1), rel=1e-15)
    assert len(laplace._TAILS) == 42
    assert (np.diff(laplace._TAILS) > 0).all()


@pytest.mark.statistical
def test_a_release_has_the_scale_it_says_and_lies_on_its_grid():
    """Mean absolute noise of 20,000 values, z-score within 4.9 (false alarm 1e-6)."""
    values = np.linspace(-1, 1, 20_000)
    answer = release_laplace(values, 0.5, 2.0, SeededNoise(7), magnitude=1e4, roundings=10)
    assert answer.event == LaplaceRelease(2.0)
    assert 0.25 <= answer.scale <= 0.25 * 1.01
    z = (np.abs(answer.values - values).mean() / answer.scale - 1) * math.sqrt(len(values))
    assert abs(z) < 4.9
    wrong = (np.abs(answer.values - values).mean() / 0.2 - 1) * math.sqrt(len(values))
    assert abs(wrong) > 4.9
    step = 2.0 ** math.floor(math.log2(0.25 / 2**30))
    np.testing.assert_array_equal(np.rint(answer.values / step), answer.values / step)
    assert answer.tv_distance_bound == pytest.approx(20_000 * 2**-50)


def test_rounding_is_paid_for():
    coarse = {"magnitude": 10.0, "roundings": 2**30}
    plain = release_laplace(np.zeros(3), 1.0, 1.0, SecureNoise(), magnitude=1.0, roundings=1)
    paid = release_laplace(np.zeros(3), 1e-3, 1.0, SecureNoise(), **coarse)
    assert plain.scale < 1 + 1e-8
    error = 2**30 * 2.0**-53
    assert paid.scale >= 1e-3 + 2 * error * 10 / (1 - error)
