"""Sums in groups: integers on the grid, the sensitivity of all groups together, rows of them."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlda.errors import InvalidDocumentsError, InvalidSettingError
from streamlda.guarantee.events import NEIGHBORING_RELATIONS
from streamlda.guarantee.matrix_mechanism import StrategyRows, buffered_toeplitz
from streamlda.guarantee.mechanism import MAX_INCREASE, MERGE_ROUNDINGS, Block, JointGaussian
from streamlda.guarantee.noise import SeededNoise
from tests.privacy.neighbours import distance


def grouped(z=4.0, relation="zero-out", n_max=1000, group=10, clip=0.3, **options):
    options |= {"neighboring_relation": relation, "n_max": n_max, "group_max": group}
    return JointGaussian([Block("x", (6,), clip)], z, **options)


def in_groups(mech, documents, group):
    """Sum documents one after the other in doubles, each group for itself, and add integers."""
    sums = np.zeros(mech.blocks[0].shape, dtype=np.int64)
    for start in range(0, len(documents), group):
        own = np.zeros(mech.blocks[0].shape)
        for document in documents[start : start + group]:
            own = own + document
        sums += mech.to_grid({"x": own})["x"]
    return {"x": sums}


def random_contributions(rng, n, cells=6, bound=0.3):
    """Return contributions at the bound, to be summed with an error."""
    found = rng.normal(size=(n, cells))
    # A margin for the rounding of the norm, as `clip_factors` leaves one.
    return found * (bound * (1 - 1e-9) / np.linalg.norm(found, axis=1))[:, None]


def gamma(k):
    return k * 2.0**-53 / (1 - k * 2.0**-53)


def test_a_release_is_that_of_the_integers_of_its_groups():
    mech = grouped()
    rng = np.random.default_rng(0)
    # Whole steps: what is rounded to the grid in groups or at once is the same then.
    parts = [np.rint(rng.normal(size=6) * 1e6) * mech.steps["x"] for _ in range(7)]
    integers = sum(mech.to_grid({"x": part})["x"] for part in parts)
    assert integers.dtype == np.int64
    one = mech.release({"x": sum(parts)}, SeededNoise(1))["x"]
    np.testing.assert_array_equal(one, mech.release_grid({"x": integers}, SeededNoise(1))["x"])
    np.testing.assert_array_equal(mech.from_grid({"x": integers})["x"], sum(parts))
    # Integers are left alone and may be larger than a double holds.
    fine = grouped(z=1e-3)
    many = {"x": np.full(6, 2**60 + 1)}
    drawn = fine.noise_on_grid(SeededNoise(2))["x"]
    expected = np.array([float(int(y) + 2**60 + 1) for y in drawn]) * fine.steps["x"]
    np.testing.assert_array_equal(fine.release_grid(many, SeededNoise(2))["x"], expected)
    np.testing.assert_array_equal(many["x"], 2**60 + 1)
    # A group that holds too much is refused, though all groups together may hold as much.
    much = {"x": np.array([0.3 * 10.2, 0, 0, 0, 0, 0])}
    with pytest.raises(InvalidDocumentsError, match="n_max=10 "):
        mech.to_grid(much)
    mech.check(much)
    mech.to_grid({"x": much["x"] / 1.02})


@pytest.mark.parametrize(
    ("relation", "touched", "terms", "rounds"),
    [
        ("zero-out", 1, 66.0, 1),
        ("zero-out", 4, 1.0, 1),
        ("replace-one", 4, 66.0, 1),
        ("zero-out", 1, 1.0, 64),
        ("replace-one", 1, 66.0, 64),
    ],
)
def test_the_sensitivity_of_groups_and_of_rows_of_them_equals_its_formula(
    relation, touched, terms, rounds
):
    group, words, n, size = 5000, 3000, 10**7, 1.7 if rounds > 1 else 1.0
    part = Block("x", (400,), 0.3, magnitude=terms, sum_magnitude=4.0)
    mech = JointGaussian(
        [part],
        1e4,
        neighboring_relation=relation,
        n_max=n,
        term_roundings=words,
        releases=rounds,
        strategy_sensitivity=size,
        group_max=group,
        groups_touched=touched,
    )
    chain = gamma(group + MERGE_ROUNDINGS)
    error = group * (gamma(words) * terms + chain * (1 + gamma(words)) * 4.0)
    grid = 20 * mech.steps["x"] / 0.3
    exact = 1.0 if relation == "zero-out" else 2.0
    expected = exact + touched * (2 * error + grid)
    if rounds > 1:
        rows = 2 * 1.01 * n * gamma(2 * rounds + 17)
        expected = size * (expected + rows) + math.sqrt(rounds) * grid
    assert mech.l2_sensitivity == pytest.approx(expected, rel=1e-11)
    # All groups that one unit can touch stay within the percent.
    assert exact * size < mech.l2_sensitivity <= exact * size * (1 + MAX_INCREASE)


def test_groups_allow_more_documents_than_one_sum():
    parts = [Block("x", (3000,), 0.3, magnitude=66.0, sum_magnitude=4.0)]
    options = {"n_max": 5 * 10**8, "term_roundings": 8064}
    assert JointGaussian(parts, 4.0, group_max=2**15, **options).l2_sensitivity < 1.01
    with pytest.raises(InvalidSettingError, match="rounding must cost"):
        JointGaussian(parts, 4.0, **options)


generators = st.integers(0, 2**32 - 1).map(np.random.default_rng)


@pytest.mark.parametrize("relation", NEIGHBORING_RELATIONS)
@given(
    rng=generators,
    group=st.integers(1, 9),
    n=st.integers(6, 60),
    touched=st.integers(1, 6),
    z=st.sampled_from([0.01, 4.0, 1e6]),
)
def test_no_documents_or_users_in_groups_are_farther_apart(relation, rng, group, n, touched, z):
    # The clip norm is that of all documents of a user together.
    mech = grouped(z, relation, 60, group, clip=0.3 * touched, groups_touched=touched)
    documents = random_contributions(rng, n)
    own = rng.permutation(n)[:touched]
    documents[own] = documents[own[0]]
    other = documents.copy()
    other[own] = 0.0 if relation == "zero-out" else -documents[own]
    here, there = in_groups(mech, documents, group), in_groups(mech, other, group)
    # A contribution at the bound moves the sum by nearly all of it.
    assert 0.99 * mech.l2_sensitivity < distance(mech, here, there) <= mech.l2_sensitivity
    exact = np.array([math.fsum(column) for column in documents.T]) / mech.steps["x"]
    assert np.all(np.abs(here["x"] - exact) <= math.ceil(n / group) * 0.5 + 1e-3)
    # In groups that hold the same, nothing moves.
    same = ~np.isin(np.arange(n) // group, own // group)
    here, there = (in_groups(mech, each[same], group)["x"] for each in (documents, other))
    np.testing.assert_array_equal(here, there)


@pytest.mark.parametrize("relation", NEIGHBORING_RELATIONS)
@settings(max_examples=25)
@given(rng=generators, slot=st.integers(0, 39), z=st.sampled_from([4.0, 1e6]))
def test_no_neighbours_are_farther_apart_in_all_rows_together(relation, rng, slot, z):
    """Rows of rounds of groups, as a matrix mechanism releases them; the first round is worst."""
    rounds, group = 5, 3
    strategy = buffered_toeplitz(rounds)
    size = strategy.sensitivity
    mech = grouped(z, relation, 40, group, releases=rounds, strategy_sensitivity=size)
    documents = random_contributions(rng, 40)
    other = documents.copy()
    other[slot] = 0.0 if relation == "zero-out" else -documents[slot]
    streams = [(StrategyRows(strategy, (6,)), SeededNoise(1), d) for d in (documents, other)]
    square = 0.0
    for t in range(rounds):
        released = []
        for rows, noise, data in streams:
            sums = mech.from_grid(in_groups(mech, data[8 * t : 8 * (t + 1)], group))
            row = mech.release({"x": rows.step(sums["x"])}, noise)["x"]
            released.append({"x": row / mech.steps["x"]})
        # The same noise in both: what is left is what was added to it, to the last bit.
        square += distance(mech, *released) ** 2
    apart = math.sqrt(square)
    assert apart <= mech.l2_sensitivity
    assert slot >= 8 or apart > 0.99 * mech.l2_sensitivity
