"""Sites in one process: what noise each scheme leaves, and what covers a sample."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlda.papers.imtiaz_sarwate.promise import Promise
from streamlda.papers.imtiaz_sarwate.simulated import SCHEMES, SimulatedSites
from streamlda.privacy import accounting
from streamlda.privacy.mechanism import Block
from streamlda.privacy.noise import SeededNoise

#: Enough values for standard deviations to be within 1 % of the truth: their own is 0.16 %, so
#: that a bound of 1 % has a false alarm in 3e-10 draws.
CELLS = 200_000
BLOCK = Block("x", (CELLS,), 1.0)
SMALL = Block("x", (3,), 1.0)
PROMISE = Promise(0.5, 1e-3)
ZEROS = {"x": np.zeros(CELLS)}


def network(sizes, scheme="cape", promises=PROMISE, **options):
    return SimulatedSites(sizes, promises, scheme, noise=SeededNoise(1), **options)


def measured_noise(sites, block=BLOCK):
    """Return the standard deviation of what a release of zeros shows."""
    zeros = {"x": np.zeros(block.shape)}
    return float(sites.release([zeros] * len(sites.sizes), [block]).sums["x"].std())


# Noise of the aggregate.


@pytest.mark.statistical
@pytest.mark.parametrize("sizes", [(1000, 1000), (1, 999_999), (5, 50, 500, 5000, 50_000)])
def test_that_noise_is_drawn(sizes):
    # False alarm below 1e-9 a size; 2/3 and 3/2 of the noise are rejected.
    pooled = network(sizes, "pooled-private")
    right = pooled.release([ZEROS] * len(sizes), [BLOCK]).stddevs["x"]
    for scheme in ("cape", "pooled-private"):
        measured = measured_noise(network(sizes, scheme))
        assert measured == pytest.approx(right, rel=0.01)
        assert measured != pytest.approx(right * 2 / 3, rel=0.01)
        assert measured != pytest.approx(right * 3 / 2, rel=0.01)


@pytest.mark.statistical
def test_the_other_schemes_have_the_noise_of_the_table():
    # False alarm below 1e-9 for each of the three.
    sizes = [300, 100, 200, 400, 500]
    tau = measured_noise(network(sizes, "pooled-private"))
    times = {"pooled": 0, "conventional": math.sqrt(5)}
    for scheme in SCHEMES:
        released = network(sizes, scheme, site=2).release([ZEROS] * 5, [BLOCK])
        measured = float(released.sums["x"].std())
        assert measured / tau == pytest.approx(times.get(scheme, 1), rel=0.015)
        assert released.stddevs["x"] == pytest.approx(measured, rel=0.01)
        assert released.documents == (200 if scheme == "local" else 1500)


@pytest.mark.statistical
def test_unequal_promises_and_weights_are_kept():
    # The strictest site decides the noise of the aggregate; false alarm below 1e-9.
    promises = [Promise(0.1, 1e-3), Promise(1.0, 1e-3), Promise(5.0, 1e-3)]
    sites = network([100, 100, 100], promises=promises)
    strictest = network([100, 100, 100], "pooled-private", promises[0])
    assert measured_noise(sites) == pytest.approx(measured_noise(strictest), rel=0.015)
    # Twice the weight: the sums of that site, and the noise that it needs, count twice.
    weighted = network([100, 100, 200], weights=[0.5, 0.25, 0.25])
    sums = [{"x": np.full(3, value)} for value in (1.0, 2.0, 4.0)]
    released = weighted.release(sums, [SMALL], part=1.0)
    assert released.stddevs["x"] == pytest.approx(
        2 * network([200, 200]).release(sums[:2], [SMALL]).stddevs["x"], rel=0.01
    )
    quiet = SimulatedSites([100, 100, 200], Promise(1e5, 1e-3), weights=[0.5, 0.25, 0.25])
    found = quiet.release(sums, [SMALL]).sums["x"]
    # 400 (0.5 * 1/100 + 0.25 * 2/100 + 0.25 * 4/200), noise of about 0.01.
    assert found == pytest.approx(400 * (0.005 + 0.005 + 0.005), abs=0.2)


@pytest.mark.statistical
def test_colluders_are_paid_for():
    # sqrt(5 / 3) times the noise where two of five may collude; false alarm below 1e-9.
    plain, wary = (measured_noise(network([100] * 5, colluders=t)) for t in (0, 2))
    assert wary / plain == pytest.approx(math.sqrt(5 / 3), rel=0.015)


def test_sums_come_back_under_every_scheme():
    rng = np.random.default_rng(0)
    sums = [{"x": rng.standard_normal(3)} for _ in range(3)]
    generous = Promise(1e5, 1e-3)
    for scheme in SCHEMES:
        sites = SimulatedSites([50, 60, 70], generous, scheme, site=1)
        wanted = sums[1]["x"] if scheme == "local" else sum(s["x"] for s in sums)
        # Noise of about 0.005.
        assert sites.release(sums, [SMALL]).sums["x"] == pytest.approx(wanted, abs=0.2)
    local = SimulatedSites([50, 60, 70], generous, "local", site=1)
    assert local.release([{}, sums[1], {}], [SMALL]).documents == 60
    assert [local.uses(s) for s in range(3)] == [False, True, False]


# What one site sends.


@pytest.mark.statistical
def test_a_share_alone_has_all_the_noise_of_its_site():
    # Standard deviations of 200,000 values: bounds of 1 % have false alarms of 3e-10 each.
    sizes = [100, 300, 600]
    sites = network(sizes)
    shares, mechanism = sites.shares([ZEROS] * 3, [BLOCK])
    plan, step = sites.plan(), mechanism.steps["x"]
    tau = mechanism.stddevs["x"] / step
    for s, share in enumerate(shares):
        in_tau = plan.weights[s] / plan.pooled
        e, f, g = (
            in_tau * values[s] for values in (plan.zero_sum, plan.aggregator_known, plan.local)
        )
        assert share.sent["x"].std() / tau == pytest.approx(math.hypot(e, f, g), rel=0.01)
        assert share.known["x"].std() / tau == pytest.approx(f, rel=0.01)
        after = share.sent["x"] - share.known["x"]
        assert after.std() / tau == pytest.approx(math.hypot(e, g), rel=0.01)
        assert math.hypot(e, g) >= 1 - 1e-9
        assert math.hypot(f, g) >= 1 - 1e-9


class ForgetsToCancel(SimulatedSites):
    """A planted bug: zero-sum terms that each site draws by itself."""

    def _shares(self, summed, mechanism, plan):
        shares = super()._shares(summed, mechanism, plan)
        for share in shares:
            extra = self._draw(mechanism, plan.kappa / plan.pooled)["x"]
            share.sent["x"] += extra
        return shares


class LeavesNoiseOut(SimulatedSites):
    """A planted bug: the first site sends its sums as they are."""

    def _shares(self, summed, mechanism, plan):
        shares = super()._shares(summed, mechanism, plan)
        shares[0].sent["x"] -= shares[0].sent["x"] - shares[0].known["x"]
        return shares


@pytest.mark.parametrize("bug", [ForgetsToCancel, LeavesNoiseOut])
def test_a_planted_bug_shows_in_the_noise(bug):
    right = measured_noise(network([500, 500, 500]))
    wrong = measured_noise(bug([500, 500, 500], PROMISE, noise=SeededNoise(1)))
    assert wrong != pytest.approx(right, rel=0.1)


# What a stage costs.


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
    stddev = sites.release([{"x": np.zeros(3)}] * 2, [SMALL], part=part, ratio=ratio).stddevs["x"]
    needed = promise.noise_multiplier(part) * ratio
    assert needed <= stddev
    least = sites.noise_multiplier(part) * ratio
    assert least <= stddev < least * 1.02


def test_parts_of_a_promise_add_up_to_it():
    promise = Promise(0.5, 1e-3)
    parts = (0.05, 0.45, 0.5)
    squared = sum(promise.noise_multiplier(part) ** -2 for part in parts)
    assert math.sqrt(squared) <= accounting.mu_of(0.5, 1e-3)
    assert promise.exact_epsilon(parts) == pytest.approx(0.5, rel=1e-6)
    assert promise.exact_epsilon(parts) <= 0.5


def test_the_papers_calibration_is_its_formula_and_costs_less_than_it_says():
    promise = Promise(0.01, 0.01, "paper")
    assert promise.noise_multiplier(0.5) == pytest.approx(
        math.sqrt(2 * math.log(1.25 / 0.005)) / 0.005
    )
    for epsilon in (0.01, 0.1, 1.0):
        assert Promise(epsilon, 0.01, "paper").exact_epsilon((0.5, 0.5)) < epsilon / 2
    multipliers = [
        Promise(e, 0.01, "paper").noise_multiplier() / Promise(e, 0.01).noise_multiplier()
        for e in (0.01, 0.1, 1.0)
    ]
    assert all(a > b > 1 for a, b in pairwise(multipliers))
