"""Sums in groups: integers on the grid, the sensitivity of all groups together, rows of them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlda.errors import InvalidDocumentsError, InvalidSettingError
from streamlda.privacy.events import NEIGHBORING_RELATIONS
from streamlda.privacy.matrix_mechanism import StrategyRows, buffered_toeplitz
from streamlda.privacy.mechanism import MAX_INCREASE, MERGE_ROUNDINGS, Block, JointGaussian
from streamlda.privacy.noise import SeededNoise

EXACT = {"add-remove": 1.0, "replace-one": 2.0}


def block(cells=6, **options):
    return Block("x", (cells,), **{"l2_clip_norm": 0.3, **options})


def mechanism(parts=None, z=4.0, relation="add-remove", n_max=1000, group=10, **options):
    parts = [block()] if parts is None else parts
    return JointGaussian(
        parts, z, neighboring_relation=relation, n_max=n_max, group_max=group, **options
    )


def in_groups(mech, documents, group):
    """Sum documents one after the other in doubles, each group for itself, and add integers."""
    total = np.zeros(mech.blocks[0].shape, dtype=np.int64)
    for start in range(0, len(documents), group):
        own = np.zeros(mech.blocks[0].shape)
        for document in documents[start : start + group]:
            own = own + document
        total += mech.to_grid({"x": own})["x"]
    return total


def distance(mech, steps):
    """Return the norm of a difference in steps of the grid, in units of the clip norm."""
    return float(np.linalg.norm(steps * (mech.steps["x"] / mech.blocks[0].l2_clip_norm)))


def random_contributions(rng, n, cells=6, bound=0.3):
    """Return contributions at the bound, to be summed with an error."""
    found = rng.normal(size=(n, cells))
    # A margin for the rounding of the norm, as `clip_factors` leaves one.
    return found * (bound * (1 - 1e-9) / np.linalg.norm(found, axis=1))[:, None]


def gamma(k):
    return k * 2.0**-53 / (1 - k * 2.0**-53)


def test_a_release_is_that_of_the_integers_of_its_groups():
    mech = mechanism(group=10)
    rng = np.random.default_rng(0)
    # Whole steps: what is rounded to the grid in groups or at once is the same then.
    parts = [np.rint(rng.normal(size=6) * 1e6) * mech.steps["x"] for _ in range(7)]
    integers = sum(mech.to_grid({"x": part})["x"] for part in parts)
    assert integers.dtype == np.int64
    one = mech.release({"x": sum(parts)}, SeededNoise(1))["x"]
    other = mech.release_grid({"x": integers}, SeededNoise(1))["x"]
    np.testing.assert_array_equal(one, other)
    drawn = mech.noise_on_grid(SeededNoise(1))["x"]
    np.testing.assert_array_equal(other, (drawn + integers) * mech.steps["x"])
    np.testing.assert_array_equal(mech.from_grid({"x": integers})["x"], sum(parts))


def test_integers_are_left_alone_and_may_be_larger_than_a_double_holds():
    mech = mechanism(z=1e-3)
    integers = {"x": np.full(6, 2**60 + 1)}
    released = mech.release_grid(integers, SeededNoise(2))["x"]
    np.testing.assert_array_equal(integers["x"], 2**60 + 1)
    drawn = mech.noise_on_grid(SeededNoise(2))["x"]
    expected = np.array([float(int(y) + 2**60 + 1) for y in drawn]) * mech.steps["x"]
    np.testing.assert_array_equal(released, expected)


@given(st.integers(0, 2**32 - 1), st.integers(1, 7), st.integers(1, 40))
def test_each_group_is_rounded_by_half_a_step_at_most(seed, group, n):
    mech = mechanism(group=group, n_max=40)
    documents = random_contributions(np.random.default_rng(seed), n)
    found = in_groups(mech, documents, group)
    exact = np.array([math.fsum(column) for column in documents.T]) / mech.steps["x"]
    assert np.all(np.abs(found - exact) <= math.ceil(n / group) * 0.5 + 1e-3)


@pytest.mark.parametrize(
    ("relation", "touched", "terms"),
    [
        ("add-remove", 1, 66.0),
        ("add-remove", 4, 1.0),
        ("replace-one", 1, 1.0),
        ("replace-one", 4, 66.0),
    ],
)
def test_the_sensitivity_equals_its_formula(relation, touched, terms):
    group, words = 5000, 3000
    part = block(400, magnitude=terms, sum_magnitude=4.0)
    mech = mechanism(
        [part], 1e4, relation, 10**8, group, groups_touched=touched, term_roundings=words
    )
    chain = gamma(group + MERGE_ROUNDINGS)
    error = group * (gamma(words) * terms + chain * (1 + gamma(words)) * 4.0)
    grid = 20 * mech.steps["x"] / 0.3
    exact = EXACT[relation]
    expected = exact + touched * (2 * error + grid)
    assert mech.l2_sensitivity == pytest.approx(expected, rel=1e-11)
    # All groups that one unit can touch stay within the percent.
    assert exact < mech.l2_sensitivity <= exact * (1 + MAX_INCREASE)
    assert mech.stddevs["x"] == pytest.approx(1e4 * mech.l2_sensitivity * 0.3, rel=1e-12)


@pytest.mark.parametrize("relation", NEIGHBORING_RELATIONS)
def test_the_sensitivity_of_rows_of_groups_equals_its_formula(relation):
    group, rounds, n, size = 5000, 64, 10**6, 1.7
    mech = mechanism(
        [block(100)],
        1e4,
        relation,
        n,
        group,
        term_roundings=1,
        releases=rounds,
        strategy_sensitivity=size,
    )
    chain = gamma(group + MERGE_ROUNDINGS)
    error = group * (gamma(1) + chain * (1 + gamma(1)))
    grid = 10 * mech.steps["x"] / 0.3
    rows = 2 * 1.01 * n * gamma(2 * rounds + 17)
    moved = EXACT[relation] + 2 * error + grid + rows
    expected = size * moved + math.sqrt(rounds) * grid
    assert mech.l2_sensitivity == pytest.approx(expected, rel=1e-11)


def test_groups_allow_more_documents_than_one_sum():
    parts = [block(3000, magnitude=66.0, sum_magnitude=4.0)]
    options = {"term_roundings": 8064, "z": 4.0, "n_max": 5 * 10**8}
    mech = mechanism(parts, group=2**15, **options)
    assert mech.l2_sensitivity < 1.01
    with pytest.raises(InvalidSettingError, match="rounding must cost"):
        mechanism(parts, group=None, **options)


@pytest.mark.parametrize("touched", [1, 5])
def test_the_part_of_the_grid_is_attained_in_all_groups_touched(touched):
    # Each cell of each group is just below a half in one of two neighbours, and above in the other.
    cells = 10_000
    mech = mechanism([block(cells)], 1e6, groups_touched=touched, term_roundings=1)
    step = mech.steps["x"]
    low = {"x": np.full(cells, 0.5 * step)}
    high = {"x": np.full(cells, np.nextafter(0.5 * step, 1.0))}
    apart = touched * distance(mech, mech.to_grid(high)["x"] - mech.to_grid(low)["x"])
    spent = mech.l2_sensitivity - 1
    assert 0.99 * spent < apart <= spent
    # A mechanism that counts one group too few allows less.
    if touched > 1:
        fewer = apart / touched * (touched - 1)
        assert fewer < apart - 0.1 * spent


contributions = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@pytest.mark.parametrize("relation", NEIGHBORING_RELATIONS)
@given(
    rng=contributions,
    group=st.integers(1, 9),
    n=st.integers(1, 40),
    z=st.sampled_from([0.01, 4.0, 1e6]),
)
def test_no_neighbours_in_groups_are_farther_apart(relation, rng, group, n, z):
    mech = mechanism(z=z, relation=relation, group=group, n_max=40)
    documents = random_contributions(rng, n)
    other = documents.copy()
    slot = int(rng.integers(n))
    other[slot] = 0.0 if relation == "add-remove" else -documents[slot]
    steps = in_groups(mech, documents, group) - in_groups(mech, other, group)
    assert distance(mech, steps) <= mech.l2_sensitivity
    # A contribution at the bound moves the sum by nearly that much.
    assert distance(mech, steps) > 0.99 * mech.l2_sensitivity
    # In groups that hold the same, nothing moves.
    same = np.arange(n) // group != slot // group
    assert not (in_groups(mech, documents[same], group) - in_groups(mech, other[same], group)).any()


@given(rng=contributions, group=st.integers(1, 9), touched=st.integers(1, 6))
def test_no_users_in_groups_are_farther_apart(rng, group, touched):
    # The clip norm is that of all documents of a user together.
    part = block(l2_clip_norm=0.3 * touched)
    mech = mechanism([part], group=group, n_max=60, groups_touched=touched)
    documents = random_contributions(rng, 60)
    own = rng.permutation(60)[:touched]
    documents[own] = documents[own[0]]
    other = documents.copy()
    other[own] = 0.0
    steps = in_groups(mech, documents, group) - in_groups(mech, other, group)
    assert 0.99 * mech.l2_sensitivity < distance(mech, steps) <= mech.l2_sensitivity


@pytest.mark.parametrize("relation", NEIGHBORING_RELATIONS)
@settings(max_examples=25)
@given(rng=contributions, slot=st.integers(0, 39), z=st.sampled_from([4.0, 1e6]))
def test_no_neighbours_are_farther_apart_in_all_rows_together(relation, rng, slot, z):
    """Rows of rounds of groups, as a matrix mechanism releases them; the first round is worst."""
    rounds, group = 5, 3
    strategy = buffered_toeplitz(rounds)
    mech = mechanism(
        z=z,
        relation=relation,
        n_max=40,
        group=group,
        releases=rounds,
        strategy_sensitivity=strategy.sensitivity,
    )
    documents = random_contributions(rng, 40)
    other = documents.copy()
    other[slot] = 0.0 if relation == "add-remove" else -documents[slot]
    noise = [SeededNoise(1), SeededNoise(1)]
    running = [StrategyRows(strategy, (6,)) for _ in range(2)]
    square = 0.0
    for t in range(rounds):
        released = []
        for rows, data, source in zip(running, (documents, other), noise, strict=True):
            sums = mech.from_grid({"x": in_groups(mech, data[8 * t : 8 * (t + 1)], group)})
            row = {"x": rows.step(sums["x"])}
            mech.check(row)
            released.append(mech.release(row, source)["x"])
        # The same noise in both: what is left is what was added to it, to the last bit.
        square += distance(mech, (released[0] - released[1]) / mech.steps["x"]) ** 2
    apart = math.sqrt(square)
    assert apart <= mech.l2_sensitivity
    if slot < 8:
        assert apart > 0.99 * mech.l2_sensitivity


def test_a_group_that_holds_too_much_is_refused():
    mech = mechanism(group=10)
    many = {"x": np.array([0.3 * 10.2, 0, 0, 0, 0, 0])}
    with pytest.raises(InvalidDocumentsError, match="n_max=10 "):
        mech.to_grid(many)
    mech.check(many)
    mech.to_grid({"x": many["x"] / 1.02})
    with pytest.raises(InvalidSettingError, match="sums must be those of the blocks"):
        mech.to_grid({"y": many["x"]})
