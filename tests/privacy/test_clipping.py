"""Histograms of norms, and quantiles of noisy ones."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from streamlda.errors import InvalidSettingError
from streamlda.guarantee.mechanism import Block, JointGaussian
from streamlda.guarantee.noise import SeededNoise
from streamlda.privacy.clipping import N_BINS, ClipBounds, norm_edges, private_quantile
from tests.privacy.chance import ALARM

EDGES = norm_edges(1.0)


def test_edges_fall_by_the_root_of_2_from_the_largest_norm():
    assert norm_edges(8.0)[::-2] == pytest.approx(8 * 0.5 ** np.arange(25), rel=1e-12)


def histogram_of(norms):
    bins = np.minimum(np.searchsorted(EDGES, norms), N_BINS - 1)
    return np.bincount(bins, minlength=N_BINS).astype(float)


def drawn_bounds(z, relative, n_draws=200):
    """Return `n_draws` private bounds for the lognormal norms of 2,000 documents, in true ones."""
    rng, noise = np.random.default_rng(1), SeededNoise(1)
    found = []
    for draw in range(n_draws):
        sigma = (0.4, 0.7)[draw % 2]
        median = 2.0 ** (-9.5 - rng.random())
        counts = histogram_of(rng.lognormal(math.log(median), sigma, 2000))
        mechanism = JointGaussian([Block("norms", (N_BINS,), 1.0)], z, n_max=10_000)
        noisy = mechanism.release({"norms": counts}, noise)["norms"]
        bound = private_quantile(noisy, EDGES, 0.95, mechanism.stddevs["norms"])
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
    inside = drawn_bounds(z, relative)
    assert np.sum((inside < low) | (inside > high)) <= most


@pytest.mark.statistical
def test_an_empty_stage_gives_the_largest_bound():
    # One in 2,000 empty stages is taken for occupied: 400 of them have more than 6 such with
    # probability below ALARM.
    rng = np.random.default_rng(2)
    edges = norm_edges(4.0)
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
    bound = private_quantile(counts, norm_edges(2.0), q, stddev)
    assert 0 < bound <= 2.0


@pytest.mark.parametrize("z", [4.2, 20.0])
def test_documents_without_norm_and_far_clusters_do_not_hide_the_others(z):
    # 1,200 documents of norm 0 and 800 around 0.05: the 0.95-quantile is that of the others.
    rng = np.random.default_rng(4)
    norms = np.concatenate([np.zeros(1200), rng.lognormal(-3, 0.5, size=800)])
    noisy = histogram_of(norms) + rng.normal(0, z, 49)
    found = private_quantile(noisy, EDGES, 0.95, z)
    assert 0.6 < found / np.quantile(norms, 0.95) < 2.5


@pytest.mark.parametrize(
    "call",
    [
        lambda: norm_edges(0.0),
        lambda: ClipBounds(0.0, 1.0, 1.0, "fixed"),
        lambda: ClipBounds(1.0, 1.0, 1.0, "guess"),
    ],
)
def test_settings_out_of_range_are_refused(call):
    with pytest.raises(InvalidSettingError, match="must"):
        call()
