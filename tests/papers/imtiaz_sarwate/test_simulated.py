"""Sites in one process: what noise each scheme leaves, and what covers a sample."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlda.guarantee import accounting
from streamlda.guarantee.mechanism import Block
from streamlda.guarantee.noise import SeededNoise
from streamlda.papers.imtiaz_sarwate.simulated import SCHEMES, Promise, SimulatedSites

#: Enough values for standard deviations to be within 1 % of the truth: their own is 0.16 %, so
#: that a bound of 1 % has a false alarm in 3e-10 draws, and one of two of them below 1e-9.
CELLS = 200_000
BLOCK = Block("x", (CELLS,), 1.0)
SMALL = Block("x", (3,), 1.0)
PROMISE = Promise(0.5, 1e-3)
ZEROS = {"x": np.zeros(CELLS)}


def network(sizes, scheme="cape", promises=PROMISE, **options):
    return SimulatedSites(sizes, promises, scheme, noise=SeededNoise(1), **options)


def measure_noise(sites):
    released = sites.release([ZEROS] * len(sites.sizes), dict, [BLOCK])
    return float(released.sums["x"].std()), released.stddevs["x"]


FIVE = [300, 100, 200, 400, 500]
STRICT = [Promise(epsilon, 1e-3) for epsilon in (0.1, 1.0, 5.0)]
#: Sites, and the noise of their aggregate over that of a pooled release.
SCENES = [
    (lambda: network([1000, 1000]), 1),
    (lambda: network([1, 999_999]), 1),
    (lambda: network([5, 50, 500, 5000, 50_000]), 1),
    *((lambda scheme=s: network(FIVE, scheme, site=2), 1) for s in SCHEMES[2:4]),
    (lambda: network(FIVE, "pooled"), 0),
    (lambda: network(FIVE, "conventional"), math.sqrt(5)),
    # The strictest site decides.
    (
        lambda: network([100] * 3, promises=STRICT),
        STRICT[0].noise_multiplier() / PROMISE.noise_multiplier(),
    ),
]


@pytest.mark.statistical
@pytest.mark.parametrize(("make", "times"), SCENES)
def test_every_scheme_has_the_noise_of_the_table(make, times):
    # False alarm below 1e-9 a scene; 2/3 and 3/2 of the noise are rejected.
    _, pooled = measure_noise(network([500, 500], "pooled-private"))
    drawn, stated = measure_noise(make())
    assert drawn == pytest.approx(stated, rel=0.01)
    assert drawn == pytest.approx(times * pooled, rel=0.015)
    for wrong in (2 / 3, 3 / 2):
        assert times == 0 or drawn != pytest.approx(wrong * times * pooled, rel=0.015)


def test_local_sums_are_those_of_one_site():
    sums = [{"x": np.full(3, value)} for value in (1.0, 2.0, 4.0)]
    generous = Promise(1e5, 1e-3)
    local = SimulatedSites([50, 60, 70], generous, "local", site=1)
    found = local.release([None, sums[1], None], dict, [SMALL])
    assert found.documents == 60
    assert found.sums["x"] == pytest.approx(2.0, abs=0.2)


@pytest.mark.statistical
def test_a_share_alone_has_all_the_noise_of_its_site():
    # Standard deviations of 200,000 values: bounds of 1 % have false alarms of 3e-10 each.
    sites = network([100, 300, 600])
    plan = sites.plan()
    mechanism = sites._mechanism([BLOCK], 2 * sites.documents * plan.pooled_noise)
    shares = sites.shares([ZEROS] * 3, mechanism, plan)
    tau = mechanism.stddevs["x"] / mechanism.steps["x"]
    for s, share in enumerate(shares):
        in_tau = plan.weights[s] / plan.pooled_noise
        e, f, g = (
            in_tau * values[s] for values in (plan.zero_sum, plan.aggregator_known, plan.local)
        )
        assert share.sent["x"].std() / tau == pytest.approx(math.hypot(e, f, g), rel=0.01)
        assert share.known["x"].std() / tau == pytest.approx(f, rel=0.01)
        after = share.sent["x"] - share.known["x"]
        assert after.std() / tau == pytest.approx(math.hypot(e, g), rel=0.01)
        assert min(math.hypot(e, g), math.hypot(f, g)) >= 1 - 1e-9


@given(
    st.floats(1, 2),
    st.floats(0.05, 1),
    st.sampled_from(["exact", "paper"]),
    st.sampled_from([s for s in SCHEMES if s != "pooled"]),
)
@settings(max_examples=50)
def test_noise_covers_the_ratio_that_is_stated(ratio, part, calibration, scheme):
    promise = Promise(0.7, 1e-4, calibration)
    sites = SimulatedSites([4000, 6000], promise, scheme)
    zeros = [{"x": np.zeros(3)}] * 2
    stddev = sites.release(zeros, dict, [SMALL], part=part, ratio=ratio).stddevs["x"]
    assert promise.noise_multiplier(part) * ratio <= stddev
    least = sites.noise_multiplier(part) * ratio
    assert least <= stddev < least * 1.02


def test_parts_of_a_promise_add_up_to_it_and_the_papers_cost_less_than_they_say():
    parts = (0.05, 0.45, 0.5)
    squared = sum(PROMISE.noise_multiplier(part) ** -2 for part in parts)
    assert math.sqrt(squared) <= accounting.mu_of(0.5, 1e-3)
    assert 0.5 * (1 - 1e-6) <= accounting.epsilon_of(math.sqrt(squared), 1e-3) <= 0.5
    multiplier = math.sqrt(2 * math.log(1.25 / 0.005)) / 0.005
    assert Promise(0.01, 0.01, "paper").noise_multiplier(0.5) == pytest.approx(multiplier)
    ratios = []
    for epsilon in (0.01, 0.1, 1.0):
        exact, paper = Promise(epsilon, 0.01), Promise(epsilon, 0.01, "paper")
        mu = math.sqrt(2) / paper.noise_multiplier(0.5)
        assert accounting.epsilon_of(mu, 0.01) < epsilon / 2
        ratios.append(paper.noise_multiplier() / exact.noise_multiplier())
    assert all(a > b > 1 for a, b in pairwise(ratios))
