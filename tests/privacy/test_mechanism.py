"""The joint release: sensitivity on adversarial neighbours, and scale and law of its noise."""

import math

import numpy as np
import pytest
from scipy import stats

from streamlda.errors import InvalidDocumentsError, InvalidSettingError
from streamlda.guarantee.mechanism import Block, JointGaussian
from streamlda.guarantee.noise import Noise, SeededNoise
from streamlda.papers.rounding import MechanismOfDoubles, SummedBlock
from tests.privacy.chance import ALARM
from tests.privacy.neighbours import distance, full, zeros


def blocks(cells=6):
    return [
        Block("first", (cells,), l2_clip_norm=0.2, weight=0.1, nonnegative=True),
        Block("pair", (cells, 2), l2_clip_norm=0.04, weight=2.0),
        Block("documents", (), l2_clip_norm=1.0, weight=0.3, nonnegative=True),
    ]


def mechanism(parts=None, z=4.0, relation="zero-out", n_max=1000, **options):
    parts = blocks() if parts is None else parts
    return MechanismOfDoubles(parts, z, neighboring_relation=relation, n_max=n_max, **options)


def test_fractions_and_standard_deviations_follow_from_weights_and_clip_norms():
    mech = mechanism()
    assert mech.fractions == pytest.approx(
        {"first": 0.1 / 2.4, "pair": 2 / 2.4, "documents": 0.125}
    )
    for block in mech.blocks:
        scale = block.l2_clip_norm / math.sqrt(mech.fractions[block.name])
        sigma = 4.0 * mech.l2_sensitivity * scale
        assert mech.stddevs[block.name] == pytest.approx(sigma, rel=1e-12)
        step = mech.steps[block.name]
        assert math.frexp(step)[0] == 0.5
        assert 2.0**32 <= mech.stddevs[block.name] / step <= 2.0**40
    # 13 + 6 cells; twice the bound of one value.
    assert mech.tv_distance_bound == 19 * 2 * Noise.tv_distance_bound


def extra(n_max, **options):
    """Return what floating-point sums may add to the sensitivity of one number, per neighbour."""
    block = SummedBlock("x", (), 1.0, magnitude=options.pop("magnitude", 1.0))
    mech = mechanism([block], 1e-3, n_max=n_max, **options)
    # At this noise the grid is below 2^-41 of the sensitivity.
    return (mech.l2_sensitivity - mech._exact_sensitivity()) / 2


def add_in_order(values):
    return float(np.add.accumulate(values)[-1])


def test_the_part_of_additions_over_documents_holds_and_is_needed():
    # Half a unit in the last place of the large sum vanishes beside it, one document after the
    # other; in another order these contributions have grown before they meet it.
    n = 2**17
    large, small = np.ones(n // 2), np.full(n // 2, 2.0**-37)
    orders = [np.concatenate([large, small]), np.concatenate([small, large])]
    exact = math.fsum(orders[0])
    assert add_in_order(orders[1]) == exact
    error = exact - add_in_order(orders[0])
    bound = extra(n, term_roundings=1, roundings=n)
    assert bound / 5 < error <= bound
    assert extra(n, term_roundings=1, roundings=n // 8) < error


def test_rows_of_a_horizon_cost_what_the_strategy_says():
    # All of the budget for rounding: S times that of a single release, not sqrt(H) times.
    how = {"neighboring_relation": "replace-one", "n_max": 10**6}
    single = JointGaussian(blocks(), 1.0, **how)
    mech = JointGaussian(blocks(), 1.0, **how, releases=400, strategy_sensitivity=1.5)
    assert single.l2_sensitivity == pytest.approx(single._exact_sensitivity(), rel=1e-11)
    assert mech.l2_sensitivity == pytest.approx(1.5 * single.l2_sensitivity, rel=1e-6)
    assert mech.tv_distance_bound * 2.0**12 == 400 * single.tv_distance_bound
    # Two neighbours, each off by 2^-49 of what a row holds, in all rows.
    rows = {"releases": 10**5, "strategy_sensitivity": 1.5}
    long = JointGaussian([Block("x", (), 1.0)], 100.0, n_max=10**9, **rows)
    expected = 1.5 + math.sqrt(10**5) * (2 * 10**9 * 2.0**-49 + long.steps["x"])
    assert long.l2_sensitivity == pytest.approx(expected, rel=1e-9)
    assert long.stddevs["x"] >= 2.0**35 * long.steps["x"]


def test_the_part_of_the_grid_is_attained_in_all_rows():
    options, times, exact = {"releases": 9, "strategy_sensitivity": 1.5}, 3, 1.5
    # Each cell is just below a half in one of two neighbours, and above in the other.
    mech = JointGaussian([Block("pair", (100, 100), 0.04)], 1e6, n_max=1000, **options)
    step = mech.steps["pair"]
    here = {"pair": np.full((100, 100), step * 0.5)}
    there = {"pair": np.full((100, 100), np.nextafter(step * 0.5, 1) + step * 2.0**-50)}
    rounded = times * distance(mech, mech.to_grid(here), mech.to_grid(there))
    assert exact + rounded <= mech.l2_sensitivity < exact + rounded * 1.01
    assert rounded < exact * 2.0**-8.9


def off_grid(values):
    scaled = np.asarray(values) * 2.0**53
    return float(np.mean(scaled != np.rint(scaled)))


@pytest.mark.statistical
def test_last_bits_tell_a_sum_of_doubles_from_its_neighbour_but_not_here():
    """The event "off the grid of 2^-53" costs a float mechanism delta > 0.05 at any epsilon."""
    n = 100_000
    rng = np.random.default_rng(5)
    # In each cell 200 contributions cancel to exactly 0; the neighbour has one document more.
    halves = rng.normal(size=(100, 50)).astype(np.float32).astype(np.float64)
    cancelling = np.zeros(50)
    for part in [*halves, *(-halves)]:
        cancelling = cancelling + part
    assert not cancelling.any()
    sums = [np.tile(cancelling, n // 50), np.tile(cancelling, n // 50) + 1.0]
    plain = [off_grid(values + rng.normal(size=n)) for values in sums]
    assert plain[0] > 0.2
    assert plain[1] == 0.0

    mech = mechanism([Block("x", (n,), 1.0)], z=1.0, n_max=n)
    noise = SeededNoise(15)
    released = [mech.release({"x": values}, noise)["x"] for values in sums]
    step = mech.steps["x"]
    assert [off_grid(values) for values in released] == [0.0, 0.0]
    for values in released:
        whole = values / step
        assert np.array_equal(whole, np.rint(whole))
        counts = np.bincount(whole.astype(np.int64) % 32, minlength=32)
        assert stats.chisquare(counts).pvalue > ALARM
    # Plain sums with noise from this sampler's scale fail the same test of the last bits.
    naive = (sums[1] + rng.normal(size=n) * mech.stddevs["x"]) / 2.0**-55
    assert stats.chisquare(np.bincount((naive % 32).astype(int), minlength=32)).pvalue < ALARM


@pytest.mark.parametrize(
    ("block", "value"),
    [
        *(("first", math.nan), ("pair", -math.inf), ("pair", 1e300)),
        *(("pair", 1.02 * 1000 * 0.04), ("first", -1e-9), ("documents", math.nan)),
    ],
)
def test_what_is_no_sum_is_refused_before_noise_is_drawn(block, value):
    mech = mechanism()
    sums = zeros(mech.blocks)
    sums[block].reshape(-1)[-1] = value
    noise = SeededNoise(16)
    with pytest.raises(InvalidDocumentsError, match=f"block={block!r}") as caught:
        mech.release(sums, noise)
    assert f"{value:.6g}" not in str(caught.value)
    np.testing.assert_array_equal(
        noise.discrete_gaussian(1e9, 9), SeededNoise(16).discrete_gaussian(1e9, 9)
    )


def test_the_largest_sum_is_accepted_and_sums_stay_unchanged():
    mech = mechanism(n_max=1000)
    sums = {name: part * 1000 for name, part in full(mech.blocks).items()}
    before = {name: part.copy() for name, part in sums.items()}
    released = mech.release(sums, SeededNoise(17))
    for block in mech.blocks:
        np.testing.assert_array_equal(sums[block.name], before[block.name])
        assert (released[block.name].shape, released[block.name].dtype) == (block.shape, float)
    few = {name: sums[name] for name in ("first", "documents")}
    for wrong in (few, {**sums, "more": np.zeros(3)}, {**sums, "pair": np.zeros((2, 6))}):
        with pytest.raises(InvalidSettingError, match="sums are not those of the blocks"):
            mech.release(wrong, SeededNoise(0))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parts": []}, "two of one name"),
        ({"parts": [Block("x", (2,), 1.0), Block("x", (3,), 1.0)]}, "two of one name"),
        ({"z": math.nan}, "noise_multiplier must lie in"),
        ({"relation": "add"}, "neighboring_relation must be one of zero-out, replace-one"),
        ({"n_max": 0}, "n_max must lie in"),
        ({"n_max": 10**7}, "rounding costs more than 1 %"),
        ({"z": 1e9}, "more than 2\\^40 steps"),
        ({"z": 1e-3, "n_max": 10**8, "roundings": 1000, "term_roundings": 9}, "over 2\\^61"),
        ({"releases": 0}, "releases must lie in"),
        ({"strategy_sensitivity": 0.9}, "strategy_sensitivity must lie in"),
        ({"releases": 4, "strategy_sensitivity": 2.1}, "strategy_sensitivity must lie in"),
        ({"documents_per_unit": 0}, "documents_per_unit must lie in"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, message):
    with pytest.raises(InvalidSettingError, match=message):
        mechanism(**options)
