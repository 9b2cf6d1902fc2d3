"""Noise of several sites behind masks: variances, and what each adversary has of it."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.linalg import inv, pinv

from streamlda.errors import InvalidSettingError
from streamlda.sites.scheme import NoisePlan


@st.composite
def plans(draw):
    """Any number of sites, of any weights, budgets, and colluders."""
    n = draw(st.integers(2, 12))
    stddevs = draw(st.lists(st.floats(1e-4, 50), min_size=n, max_size=n))
    raw = draw(st.lists(st.floats(0.01, 1), min_size=n, max_size=n))
    weights = tuple(w / math.fsum(raw) for w in raw)
    return NoisePlan(weights, tuple(stddevs), draw(st.integers(0, n - 1)))


@given(plans())
def test_colluders_up_to_the_number_agreed_on_learn_no_more_than_promised(plan):
    S = plan.n_sites
    losses = np.array([plan.losses(c) for c in range(S)])
    assert losses[: plan.colluders + 1].max() <= 1 + 1e-9
    assert np.all(np.diff(losses, axis=0) > 0)
    # The next one would break the promise of the site that needs most.
    if plan.colluders < S - 1:
        assert losses[plan.colluders + 1].max() > 1
    assert plan.aggregate**2 == pytest.approx(plan.pooled**2 * S * plan.local_fraction)


@pytest.mark.parametrize("colluders", range(5))
def test_losses_are_those_of_the_covariance_that_the_adversary_sees(colluders):
    """Derive them again: the best test of a shift in one share, given all that is known."""
    plan = NoisePlan((0.05, 0.1, 0.2, 0.4, 0.25), (0.2, 0.2, 0.075, 0.025, 0.12), 1)
    mu, S = np.array(plan.weights), plan.n_sites
    # A mask is a Gaussian zero-sum term of a variance beyond all else.
    masks = 1e6 * plan.pooled**2 * (np.eye(S) - 1 / S)
    g = np.diag(np.square(mu * plan.local))
    honest, known = np.arange(colluders, S), np.arange(colluders)
    # What is left of the honest masks when those of the colluders are known.
    across = masks[np.ix_(honest, known)] @ pinv(masks[np.ix_(known, known)])
    left = masks[np.ix_(honest, honest)] - across @ masks[np.ix_(known, honest)]
    seen = inv(left + g[np.ix_(honest, honest)])
    found = np.array(plan.needed)[honest] * np.sqrt(np.diag(seen))
    assert plan.losses(colluders)[honest] == pytest.approx(found, rel=1e-4)


def test_the_most_demanding_site_sets_the_noise_and_weights_can_spare_it():
    stddevs = (1 / 900, 9 / 100)
    by_size, spared = NoisePlan((0.9, 0.1), stddevs), NoisePlan((0.99, 0.01), stddevs)
    assert by_size.pooled == pytest.approx(0.9 / 100)
    assert spared.aggregate == pytest.approx(0.99 / 900)
    assert by_size.losses(0) == pytest.approx([1 / 9, 1])


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: NoisePlan((0.5, 0.4), (1, 1)), "weights of all sites must sum to 1, got sum="),
        (lambda: NoisePlan((1.0,), (1,)), "at least two sites"),
        (lambda: NoisePlan((1.0, 0.0), (1, 1)), "of a weight between 0 and 1"),
        (lambda: NoisePlan((0.5, 0.5), (1, 1), 2), "colluders=2 sites=2"),
        (lambda: NoisePlan((0.5, 0.5), (1,)), "every site must have a standard deviation"),
        (lambda: NoisePlan((0.5, 0.5), (1, math.nan)), "standard deviation > 0 and finite"),
        (lambda: NoisePlan((0.5, 0.5), (1, 1)).losses(2), "colluders=2"),
    ],
)
def test_bad_input_is_refused(make, message):
    with pytest.raises(InvalidSettingError, match=message):
        make()
