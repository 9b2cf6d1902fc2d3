"""Clip factors that hold in exact arithmetic, histograms of norms, and quantiles of noisy ones."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from streamlda.errors import InvalidSettingError
from streamlda.guarantee.mechanism import JointGaussian
from streamlda.guarantee.noise import SeededNoise
from streamlda.privacy.clipping import (
    N_BINS,
    NORM_ERROR,
    ClipBounds,
    NormHistogram,
    clip_factors,
    private_quantile,
)
from tests.privacy.chance import ALARM

bounds = st.floats(1e-100, 1e100)
norms_of_any_kind = st.lists(st.floats(), max_size=30)


def least_computed(norm):
    """Return the smallest double that a computed norm may be for a true one of `norm`."""
    exact = Fraction(norm) * (1 - Fraction(NORM_ERROR))
    found = float(exact)
    return found if Fraction(found) >= exact else math.nextafter(found, math.inf)


def exceeds(factors, true_norms, bound):
    """Return how many true norms are above the bound after scaling, in exact arithmetic."""
    return sum(
        Fraction(factor) * Fraction(norm) > Fraction(bound)
        for factor, norm in zip(factors.tolist(), true_norms, strict=True)
    )


@given(bounds, st.lists(st.floats(1e-300, 1e300), max_size=20))
def test_no_clipped_norm_exceeds_the_bound_although_norms_are_computed_too_small(bound, norms):
    near = [bound * (1 + k * 2.0**-52) for k in (-4, -1, 0, 1, 4, 2**30, 2**32, 2**33)]
    norms = norms + near
    factors = clip_factors([least_computed(norm) for norm in norms], bound)
    assert exceeds(factors, norms, bound) == 0
    # And hardly less is left than may be.
    left = factors * np.array(norms)
    full = np.minimum(norms, bound)
    kept = factors > 0
    assert np.all(left[kept] >= full[kept] * (1 - 3 * NORM_ERROR))
    assert kept[-len(near) :].all()


def test_a_planted_factor_without_margin_exceeds_the_bound():
    true = np.random.default_rng(0).lognormal(size=1000)
    computed = [least_computed(norm) for norm in true]
    assert exceeds(np.minimum(1, 0.5 / np.array(computed)), true, 0.5) > 500
    assert exceeds(np.minimum(1, 0.5 / true), true, 0.5) > 100
    assert exceeds(clip_factors(computed, 0.5), true, 0.5) == 0


@given(norms_of_any_kind, bounds)
def test_factors_never_raise_and_no_document_that_has_no_norm_contributes(norms, bound):
    norms = [*norms, 0.0, -0.0, math.nan, math.inf, -1.0, 5e-324]
    factors = clip_factors(norms, bound)
    assert factors.shape == (len(norms),)
    assert np.all((factors >= 0) & (factors <= 1))
    for norm, factor in zip(norms, factors.tolist(), strict=True):
        if not (math.isfinite(norm) and norm >= 0):
            assert factor == 0
        elif norm <= bound * 0.999:
            assert factor == 1


def test_factors_of_norms_far_above_the_bound():
    factors = clip_factors([1.0, 2.0, 1.7e308], 1e-100)
    assert factors == pytest.approx([1e-100, 0.5e-100, 0], rel=2e-6)
    # Quotients below 2.2e-308 are no doubles of full precision.
    huge = np.geomspace(1e205, 1e225, 200).tolist()
    assert exceeds(clip_factors([least_computed(x) for x in huge], 1e-100), huge, 1e-100) == 0
    assert clip_factors([], 1.0).shape == (0,)


@given(norms_of_any_kind)
def test_every_document_is_counted_once_in_the_bin_of_its_norm(norms):
    histogram = NormHistogram(8.0)
    assert histogram.edges[::-2] == pytest.approx(8 * 0.5 ** np.arange(25), rel=1e-12)
    wanted = np.zeros(N_BINS)
    for norm in norms:
        wanted[next((i for i, edge in enumerate(histogram.edges) if norm <= edge), -1)] += 1
        histogram.add([norm])
        # Every document moves one count by 1.
        assert np.array_equal(histogram.counts, wanted)
    at_once = NormHistogram(8.0)
    at_once.add(norms)
    assert np.array_equal(at_once.counts, wanted)


def histogram_of(norms):
    histogram = NormHistogram(1.0)
    histogram.add(norms)
    return histogram


def quantile_of_positive_counts(counts, edges, q, stddev):
    """Planted mistake: the noise of empty bins is taken for documents."""
    below = np.cumsum(np.maximum(counts, 0))
    return edges[np.searchsorted(below, q * below[-1])]


def drawn_bounds(method, z, relative, n_draws=200):
    """Return `n_draws` private bounds for the lognormal norms of 2,000 documents, in true ones."""
    rng, noise = np.random.default_rng(1), SeededNoise(1)
    found = []
    for draw in range(n_draws):
        sigma = (0.4, 0.7)[draw % 2]
        median = 2.0 ** (-9.5 - rng.random())
        histogram = histogram_of(rng.lognormal(math.log(median), sigma, 2000))
        mechanism = JointGaussian([histogram.block("norms")], z, n_max=10_000)
        noisy = mechanism.release({"norms": histogram.counts}, noise)["norms"]
        bound = method(noisy, histogram.edges, 0.95, mechanism.stddevs["norms"])
        law = stats.norm(math.log(median), sigma)
        found.append(bound / math.exp(law.ppf(0.95)) if relative else law.cdf(math.log(bound)))
    return np.array(found)


@pytest.mark.statistical
@pytest.mark.parametrize(
    ("z", "relative", "low", "high", "rate"),
    [
        # Rates of draws outside are bounds, above those measured with 2,000 other draws.
        (4.2, False, 0.93, 0.98, 0.005),
        (34, False, 0.90, 1.00, 0.03),
        (34, True, 0.70, 3.00, 0.03),
    ],
)
def test_private_bounds_are_near_the_quantile(z, relative, low, high, rate):
    # False-alarm rate at most ALARM: binomial, if draws fall outside at the given rate.
    most = stats.binom.isf(ALARM, 200, rate)
    inside = drawn_bounds(private_quantile, z, relative)
    assert np.sum((inside < low) | (inside > high)) <= most
    if relative or z < 10:
        naive = drawn_bounds(quantile_of_positive_counts, z, relative)
        assert np.sum((naive < low) | (naive > high)) > 2 * most


@pytest.mark.statistical
def test_an_empty_stage_gives_the_largest_bound():
    # One in 2,000 empty stages is taken for occupied: 400 of them have more than 6 such with
    # probability below ALARM.
    rng = np.random.default_rng(2)
    edges = NormHistogram(4.0).edges
    assert stats.binom.sf(6, 400, 1 / 1000) < ALARM
    found = [private_quantile(rng.normal(0, 34, 49), edges, 0.95, 34) for _ in range(400)]
    assert np.sum(np.array(found) != 4.0) <= 6
    # And documents of one norm are seen: 400 of them at 34.
    counts = np.where(np.arange(49) == 20, 400.0, 0.0)
    seen = [private_quantile(counts + rng.normal(0, 34, 49), edges, 0.95, 34) for _ in range(400)]
    assert np.sum(np.array(seen) == 4.0) <= 6


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=49, max_size=49),
    st.floats(1e-6, 1 - 1e-6),
    st.floats(0, 1e6),
)
def test_any_counts_give_a_bound_above_0_and_at_most_the_largest(counts, q, stddev):
    bound = private_quantile(counts, NormHistogram(2.0).edges, q, stddev)
    assert 0 < bound <= 2.0


def test_without_noise_the_quantile_is_that_of_the_norms_within_a_bin():
    norms = np.random.default_rng(3).lognormal(-3, 0.7, size=5000)
    histogram, levels = histogram_of(norms), (0.1, 0.5, 0.9, 0.95)
    found = [private_quantile(histogram.counts, histogram.edges, q, 0.0) for q in levels]
    assert found == pytest.approx(np.quantile(norms, levels), rel=0.04)
    none = histogram_of(np.zeros(10))
    assert 0 < private_quantile(none.counts, none.edges, 0.5, 0.0) < none.edges[0]


@pytest.mark.parametrize("z", [4.2, 20.0])
def test_documents_without_norm_and_far_clusters_do_not_hide_the_others(z):
    # 1,200 documents of norm 0 and 800 around 0.05: the 0.95-quantile is that of the others.
    rng = np.random.default_rng(4)
    norms = np.concatenate([np.zeros(1200), rng.lognormal(-3, 0.5, size=800)])
    histogram = histogram_of(norms)
    noisy = histogram.counts + rng.normal(0, z, 49)
    found = private_quantile(noisy, histogram.edges, 0.95, z)
    assert 0.6 < found / np.quantile(norms, 0.95) < 2.5


@pytest.mark.parametrize(
    "call",
    [
        *(lambda bound=b: clip_factors([1.0], bound) for b in (0.0, math.nan, 1e-101)),
        lambda: NormHistogram(0.0),
        lambda: private_quantile([1, 2, 3], [1, 2], 0.5, 1),
        lambda: private_quantile([1, math.nan], [1, 2], 0.5, 1),
        lambda: private_quantile([1, 2], [2, 1], 0.5, 1),
        lambda: private_quantile([1, 2], [1, 2], 1.0, 1),
        lambda: private_quantile([1, 2], [1, 2], 0.5, -1),
        lambda: ClipBounds(0.0, 1.0, 1.0, "fixed"),
        lambda: ClipBounds(1.0, 1.0, 1.0, "guess"),
    ],
)
def test_settings_out_of_range_are_refused(call):
    with pytest.raises(InvalidSettingError, match="must"):
        call()
