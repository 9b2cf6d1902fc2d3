"""Gaussian zero-sum noise of several sites: variances, and what each adversary has of it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.linalg import inv, pinv

from streamlda.papers.imtiaz_sarwate.cape import CapePlan

PARTS = st.lists(st.integers(1, 10_000), min_size=2, max_size=12)


@st.composite
def plans(draw):
    sizes = draw(PARTS)
    n = len(sizes)
    z = draw(st.lists(st.floats(0.1, 50), min_size=n, max_size=n))
    raw = draw(st.lists(st.floats(0.01, 1), min_size=n, max_size=n))
    weights = None if draw(st.booleans()) else [w / math.fsum(raw) for w in raw]
    return CapePlan.for_means(sizes, z, weights=weights, colluders=draw(st.integers(0, n - 1)))


@given(PARTS, st.floats(0.1, 50), st.floats(0.01, 100))
def test_the_aggregate_has_the_pooled_noise_for_any_split(sizes, z, sensitivity):
    plan = CapePlan.for_means(sizes, z, sensitivity=sensitivity)
    pooled = z * sensitivity / sum(sizes)
    assert plan.aggregate**2 == pytest.approx(pooled**2, rel=0.01)
    assert plan.conventional**2 == pytest.approx(len(sizes) * pooled**2)


@given(plans())
def test_zero_sum_terms_cancel_and_every_share_keeps_its_promise(plan):
    # mu_s e_s = kappa (xi_s - mean of xi)
    weighted = plan.kappa * (np.eye(plan.n_sites) - 1 / plan.n_sites)
    stddevs = np.linalg.norm(weighted, axis=1) / plan.weights
    assert stddevs == pytest.approx(plan.zero_sum, rel=1e-9, abs=1e-300)
    g, f, e = (np.square(v) for v in (plan.local, plan.aggregator_known, plan.zero_sum))
    tau = np.square(plan.site_stddevs)
    assert np.all(f + g >= tau * (1 - 1e-9))
    assert np.all(e + g >= tau * (1 - 1e-9))


def losses_seen(plan, zero_sum, colluders):
    """Derive the losses of the honest sites again, from the covariance of the zero-sum terms."""
    own = np.diag(np.square(np.array(plan.weights) * plan.local))
    honest, known = np.arange(colluders, plan.n_sites), np.arange(colluders)
    # What is left of the honest terms when those of the colluders are known.
    across = zero_sum[np.ix_(honest, known)] @ pinv(zero_sum[np.ix_(known, known)])
    left = zero_sum[np.ix_(honest, honest)] - across @ zero_sum[np.ix_(known, honest)]
    seen = inv(left + own[np.ix_(honest, honest)])
    return np.array(plan.needed_noise)[honest] * np.sqrt(np.diag(seen))


@given(plans())
def test_colluders_up_to_the_number_agreed_on_learn_no_more_than_promised(plan):
    S = plan.n_sites
    losses = np.array([plan.losses(c) for c in range(S)])
    assert losses[: plan.colluders + 1].max() <= 1 + 1e-9
    assert np.all(np.diff(losses, axis=0) > 0)
    # The next one would break the promise of the site that needs most.
    if plan.colluders < S - 1:
        assert losses[plan.colluders + 1].max() > 1
    assert plan.aggregate**2 == pytest.approx(plan.pooled_noise**2 * S / (S - plan.colluders))


@pytest.mark.parametrize("colluders", range(5))
def test_losses_are_those_of_the_covariance_that_the_adversary_sees(colluders):
    plan = CapePlan.for_means([5, 10, 20, 40, 25], [1.0, 2.0, 1.5, 1.0, 3.0], colluders=1)
    # A mask is a Gaussian zero-sum term of a variance beyond all else.
    masks = 1e6 * plan.pooled_noise**2
    for variance, losses in ((masks, plan.losses), (plan.kappa**2, plan.gaussian_losses)):
        found = losses_seen(plan, variance * (np.eye(5) - 1 / 5), colluders)
        assert losses(colluders)[colluders:] == pytest.approx(found, rel=1e-4)


def test_the_most_demanding_site_sets_the_noise_and_weights_can_spare_it():
    stddevs = (1 / 900, 9 / 100)
    by_size, spared = CapePlan((0.9, 0.1), stddevs), CapePlan((0.99, 0.01), stddevs)
    assert by_size.pooled_noise == pytest.approx(0.9 / 100)
    assert spared.aggregate == pytest.approx(0.99 / 900)
    assert by_size.losses(0) == pytest.approx([1 / 9, 1])


@pytest.mark.parametrize("S", [2, 3, 20])
def test_equal_sites_have_the_variances_of_the_paper(S):
    plan = CapePlan.for_means([1000] * S, 2.0)
    tau = plan.site_stddevs[0]
    assert np.square(plan.local) == pytest.approx(tau**2 / S)
    for known in (plan.zero_sum, plan.aggregator_known):
        assert np.square(known) == pytest.approx((1 - 1 / S) * tau**2)
    assert plan.aggregate == pytest.approx(tau / S)
    # All shares together show more than one by itself, unless the zero-sum terms are masks.
    assert plan.gaussian_losses(0) == pytest.approx(math.sqrt(2 * S / (S + 1)))
    assert plan.losses(0) == pytest.approx(1)
    assert plan.losses(S - 1) == pytest.approx(math.sqrt(S))


def test_drop_outs_leave_between_the_pooled_and_the_conventional_noise():
    plan = CapePlan.for_means([10] * 6, 1.0)
    T = plan.needed_noise[0]
    found = [plan.after_drop_out(range(m)) ** 2 / T**2 for m in range(1, 7)]
    assert found == pytest.approx([m * (1 - (m - 1) / 6) for m in range(1, 7)])
    assert all(1 - 1e-9 <= v <= m + 1e-9 for m, v in enumerate(found, 1))
