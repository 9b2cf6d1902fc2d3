"""Laplace noise on a grid: its distribution, its scale, and what it refuses."""

import math

import numpy as np
import pytest
from scipy import stats

from streamlda.guarantee.noise import SecureNoise, SeededNoise
from streamlda.papers.laplace import discrete_laplace, release_laplace
from streamlda.privacy.events import LaplaceRelease


@pytest.mark.statistical
@pytest.mark.parametrize("scale", [1, 2, 7])
def test_small_scales_have_the_discrete_laplace_masses(scale):
    """Chi-squared over the bulk, 100,000 draws, false alarm 1e-6; a scale 10 % off is rejected."""
    drawn = discrete_laplace(SeededNoise(scale), scale, 100_000)
    bins = np.arange(-4 * scale, 4 * scale + 1)
    observed = np.array([np.sum(drawn == y) for y in bins])
    observed = np.append(observed, len(drawn) - observed.sum())

    def p_value(tried):
        masses = stats.dlaplace.pmf(bins, 1 / tried)
        expected = np.append(masses, 1 - masses.sum()) * len(drawn)
        return stats.chisquare(observed, expected).pvalue

    assert p_value(scale) > 1e-6
    assert max(p_value(1.1 * scale), p_value(scale / 1.1)) < 1e-6


@pytest.mark.statistical
def test_large_scales_are_laplace():
    """Kolmogorov-Smirnov, 40,000 draws, false alarm 1e-6; a scale 10 % off is rejected."""
    scale = 2**31 - 1
    drawn = discrete_laplace(SeededNoise(5), scale, (200, 200)).ravel()
    for times in (1, 0.9, 1.1):
        p_value = stats.kstest(drawn / scale * times, stats.laplace.cdf).pvalue
        assert (p_value > 1e-6) == (times == 1)
    # The low bits are uniform: no scale is a power of two in disguise.
    assert stats.chisquare(np.bincount(drawn & 7, minlength=8)).pvalue > 1e-6


@pytest.mark.statistical
def test_a_release_has_the_scale_it_says_and_lies_on_its_grid():
    """Mean absolute noise of 20,000 values, z-score within 4.9 (false alarm 1e-6)."""
    values = np.linspace(-1, 1, 20_000)
    answer = release_laplace(values, 0.5, 2.0, SeededNoise(7), magnitude=1e4, roundings=10)
    assert answer.event == LaplaceRelease(2.0)
    assert 0.25 <= answer.scale <= 0.25 * 1.01
    for scale, right in ((answer.scale, True), (0.2, False)):
        z = (np.abs(answer.values - values).mean() / scale - 1) * math.sqrt(len(values))
        assert (abs(z) < 4.9) == right
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
