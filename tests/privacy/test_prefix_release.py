"""Prefix sums under one spend: sensitivity over the horizon, noise, dense matrices, resuming."""

import functools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import linalg

from streamlda.errors import InvalidDocumentsError, InvalidSettingError
from streamlda.guarantee.matrix_mechanism import BufferedToeplitz, StrategyRows
from streamlda.guarantee.mechanism import MAX_ROWS, NEIGHBORING_RELATIONS, Block
from streamlda.guarantee.noise import SeededNoise
from streamlda.privacy.prefix_release import PrefixRelease, PrefixSums, noise_of
from tests.privacy.neighbours import full, zeros

DEFAULT = BufferedToeplitz()


def coefficients(strategy, n):
    powers = (1 - strategy.gaps)[:, None] ** np.arange(n - 1)
    return np.concatenate([[1.0], np.array(strategy.weights) @ powers])


def matrices(strategy):
    n = strategy.horizon
    c = linalg.toeplitz(coefficients(strategy, n), np.zeros(n))
    return c, linalg.solve_triangular(c.T, np.tri(n).T).T


@st.composite
def strategies(draw):
    shifts = draw(st.lists(st.integers(1, 12), max_size=4, unique=True))
    weights = draw(st.lists(st.floats(0.01, 1), min_size=len(shifts), max_size=len(shifts)))
    scale = draw(st.floats(0.1, 0.99)) / max(sum(weights), 1e-9)
    weights = tuple(weight * scale for weight in weights)
    return BufferedToeplitz(tuple(shifts), weights, draw(st.integers(1, 40)))


@given(strategies())
def test_recurrences_noise_and_sensitivity_equal_those_of_dense_matrices(strategy):
    n = strategy.horizon
    c, b = matrices(strategy)
    sensitivity = np.linalg.norm(c, axis=0).max()
    assert sensitivity <= strategy.sensitivity == pytest.approx(sensitivity, rel=1e-11)
    most = c.sum(axis=1).max()
    assert most <= strategy.gain == pytest.approx(most, rel=1e-11)
    found = [noise_of(strategy, t) for t in range(1, n + 1)]
    np.testing.assert_allclose(found, sensitivity * np.linalg.norm(b, axis=1), rtol=1e-9)
    rows, sums = StrategyRows(strategy, (n,)), PrefixSums(strategy, (n,))
    np.testing.assert_allclose([rows.step(unit) for unit in np.eye(n)], c, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose([sums.step(unit) for unit in np.eye(n)], b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("horizon", [1, 10, 1000, MAX_ROWS, None])
def test_the_sensitivity_is_rounded_up_and_a_document_of_round_one_attains_it(horizon):
    strategy, mp = BufferedToeplitz(horizon=horizon), mpmath.mp.clone()
    mp.dps = 40
    decays = [1 - mp.mpf(2) ** -a for a in strategy.shifts]
    pairs = list(zip(decays, map(mp.mpf, strategy.weights), strict=True))
    left = 0 if horizon is None else 1
    series = sum(
        w1 * w2 * (1 - left * (t1 * t2) ** ((horizon or 1) - 1)) / (1 - t1 * t2)
        for t1, w1 in pairs
        for t2, w2 in pairs
    )
    exact = mp.sqrt(1 + series)
    assert exact < strategy.sensitivity < exact * (1 + mp.mpf("2e-12"))
    # All rows that there can ever be. Without a horizon (1 - 2^-15)^(2^19) = 1e-7 of it is left.
    moved = np.linalg.norm(coefficients(strategy, strategy.rounds))
    assert moved == pytest.approx(strategy.sensitivity, rel=1e-10 if horizon else 1e-8)
    assert strategy.sensitivity <= DEFAULT.sensitivity


def test_noise_is_near_that_of_the_best_mechanism_for_a_known_number_of_rounds():
    """The least by a Toeplitz C = B: 1, 1.79, 2.53, 3.27, 4.00, 4.73 (*Constant matters*, 2023)."""
    rounds = [1, 10, 100, 1000, 10**4, 10**5]
    found = [noise_of(DEFAULT, t) for t in rounds]
    assert found == pytest.approx([1.32, 2.27, 3.19, 4.10, 5.11, 6.26], abs=0.005)
    assert found[2] < 5.4 / 1.6
    known = [noise_of(BufferedToeplitz(horizon=n), n) for n in rounds]
    assert known[:4] == pytest.approx([1, 1.93, 2.90, 3.89], abs=0.005)
    # Beyond these it grows as the root of the rounds.
    assert noise_of(DEFAULT, MAX_ROWS) < 8


def test_rows_are_within_the_stated_rounding_of_exact_ones_though_sums_of_rounds_are_long():
    """Large and small sums by turns, and more digits in a buffer than a double has."""
    rng = np.random.default_rng(2)
    xs = rng.integers(2**50, 2**53, 400) * rng.choice([1, 2**9], 400)
    exact = [Fraction(0)] * 4
    running, worst = StrategyRows(DEFAULT, ()), 0.0
    weights = [Fraction(w) for w in DEFAULT.weights]
    for x in xs.tolist():
        row = x + sum(w * s for w, s in zip(weights, exact, strict=True))
        worst = max(worst, abs(float((Fraction(float(running.step(float(x)))) - row) / row)))
        exact = [s - s / 2**a + x for s, a in zip(exact, DEFAULT.shifts, strict=True)]
    assert worst < 2.0**-49
    buffers = running.arrays["buffers"]
    for s, buffer, rest in zip(exact, buffers, running.arrays["rest"], strict=True):
        assert abs(float((Fraction(buffer) + Fraction(rest) - s) / s)) < 2.0**-88
        assert abs(float(s - Fraction(buffer))) > 0


BLOCKS = [
    Block("first", (4,), l2_clip_norm=0.2, weight=0.1, nonnegative=True),
    Block("pair", (4, 2), l2_clip_norm=0.04, weight=2.0),
]


def strategy(horizon):
    return BufferedToeplitz(horizon=horizon)


def prefixes(parts=BLOCKS, z=1.0, horizon=12, n_max=1000, **options):
    return PrefixRelease(parts, z, strategy=strategy(horizon), n_max=n_max, **options)


#: A contribution at the clip norm of every block: sign and cell.
document = functools.partial(full, BLOCKS)


def put(stream, t, contribution):
    changed = list(stream)
    changed[t] = {name: changed[t][name] + contribution[name] for name in contribution}
    return changed


def run(release, stream, seed):
    noise = SeededNoise(seed)
    return [release.step(sums, noise) for sums in stream]


def rows_of(release, outputs, name):
    """Return the noisy rows behind published prefix sums: C times their differences."""
    running = StrategyRows(release.strategy, outputs[0][name].shape)
    steps = np.diff([np.zeros_like(outputs[0][name]), *[out[name] for out in outputs]], axis=0)
    return np.array([running.step(step) for step in steps])


def distance(here, there, release=prefixes):
    """Return how far all noisy rows of two streams are apart, weighted, under the same noise."""
    one, other = release(horizon=len(here)), release(horizon=len(there))
    outputs, others = run(one, here, 5), run(other, there, 5)
    square = 0.0
    for block in one.mechanism.blocks:
        moved = rows_of(one, outputs, block.name) - rows_of(one, others, block.name)
        square += one.mechanism.fractions[block.name] * np.sum((moved / block.l2_clip_norm) ** 2)
    return math.sqrt(square)


def neighbours(relation, stream, t):
    """Return two streams as far apart as the relation allows by a document of round t."""
    here = put(stream, t, document())
    # The nonnegative block is orthogonal, the other one opposite.
    other = {**document(-1.0), "first": document(cell=1)["first"]}
    return here, stream if relation == "zero-out" else put(stream, t, other)


@pytest.mark.parametrize("relation", NEIGHBORING_RELATIONS)
@pytest.mark.parametrize(("t", "crowded"), [(0, False), (0, True), (5, True), (11, False)])
def test_a_document_moves_all_rows_by_the_sensitivity_at_most_and_in_round_one_by_all_of_it(
    relation, t, crowded
):
    stream = [zeros(BLOCKS) for _ in range(12)]
    if crowded:
        rng = np.random.default_rng(1)
        for cell in rng.integers(8, size=100):
            stream = put(stream, rng.integers(12), document(rng.choice([-1.0, 1.0]), int(cell)))
    release = functools.partial(prefixes, neighboring_relation=relation)
    found = distance(*neighbours(relation, stream, t), release)
    bound = release().mechanism.l2_sensitivity
    assert found <= bound * (1 + 1e-9)
    column = np.linalg.norm(coefficients(strategy(12), 12 - t))
    assert found == pytest.approx(bound * column / strategy(12).sensitivity, rel=0.01)
    assert (found >= 0.99 * bound) == (t == 0)


@pytest.mark.parametrize("horizon", [1, 2, 12])
def test_equals_the_dense_matrices_and_the_same_noise(horizon):
    release = prefixes(horizon=horizon)
    rng = np.random.default_rng(4)
    stream = [{name: rng.random(part.shape) for name, part in zeros(BLOCKS).items()}] * horizon
    outputs = run(release, stream, 23)
    again = SeededNoise(23)
    drawn = {block.name: [] for block in BLOCKS}
    for _ in range(horizon):
        for block in BLOCKS:
            step, sigma = release.mechanism.steps[block.name], release.mechanism.stddevs[block.name]
            drawn[block.name].append(again.discrete_gaussian(sigma / step, block.shape) * step)
    _, b = matrices(release.strategy)
    for name in drawn:
        found = [release.stddevs(t + 1)[name] for t in range(horizon)]
        scale = release.mechanism.stddevs[name] * np.linalg.norm(b, axis=1)
        np.testing.assert_allclose(found, scale, rtol=1e-9)
        x = np.array([sums[name] for sums in stream])
        wanted = np.tensordot(np.tri(horizon), x, 1) + np.tensordot(b, np.array(drawn[name]), 1)
        np.testing.assert_allclose([out[name] for out in outputs], wanted, rtol=1e-9, atol=1e-9)


def test_what_is_private_is_made_of_noisy_rows_alone():
    release = prefixes(horizon=12)
    stream = [document(cell=cell) for cell in range(5)]
    released = run(release, stream, 25)
    state = release.state()
    for block in BLOCKS:
        name = block.name
        again = PrefixSums(release.strategy, block.shape)
        raw = StrategyRows(release.strategy, block.shape)
        for row, sums in zip(rows_of(release, released, name), stream, strict=True):
            again.step(row)
            raw.step(sums[name])
        private = {**again.arrays, "stddev": release.mechanism.stddevs[name]}
        for key, array in private.items():
            np.testing.assert_allclose(state.private[f"{name}/{key}"], array, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(state.private[f"{name}/total"], released[-1][name])
        for key, array in raw.arrays.items():
            np.testing.assert_array_equal(state.secret[f"{name}/{key}"], array)
    assert state.private["rounds"] == 5
    assert len(state.private) == len(BLOCKS) * len(private) + 1
    assert len(state.secret) == len(BLOCKS) * 2


def restore(state, parts=BLOCKS, z=1.0, **options):
    release = prefixes(parts, z, **options)
    release.restore(state)
    return release


@pytest.mark.parametrize("horizon", [12, None])
@pytest.mark.parametrize("rounds", [0, 7, 12])
def test_resume_continues_to_the_last_bit(rounds, horizon):
    stream = [document(cell=cell) for cell in range(12)]
    wanted = run(prefixes(horizon=horizon), stream, 26)
    part, noise = prefixes(horizon=horizon), SeededNoise(26)
    for sums in stream[:rounds]:
        part.step(sums, noise)
    saved = part.state()
    if rounds < 12:
        part.step(stream[0], SeededNoise(0))
    resumed = restore(saved, horizon=horizon)
    for array in [*saved.secret.values(), *saved.private.values()]:
        array.fill(0)
    assert resumed.rounds == rounds
    for sums, out in zip(stream[rounds:], wanted[rounds:], strict=True):
        released = resumed.step(sums, noise)
        for name in out:
            np.testing.assert_array_equal(released[name], out[name])
    if horizon:
        with pytest.raises(InvalidSettingError, match="horizon=12 rounds=13; start a new"):
            resumed.step(stream[0], noise)
    else:
        resumed.step(stream[0], noise)


@pytest.mark.parametrize(
    ("settings", "private", "secret"),
    [
        *(({"z": 1.001}, {}, {}), ({"neighboring_relation": "replace-one"}, {}, {})),
        *(({"parts": BLOCKS[:1]}, {}, {}), ({"horizon": 13}, {}, {}), ({"horizon": None}, {}, {})),
        ({"parts": [*BLOCKS, Block("more", (2,), 1.0)]}, {}, {}),
        ({"parts": [BLOCKS[0], Block("pair", (2, 4), 0.04, weight=2.0)]}, {}, {}),
        ({}, {"rounds": np.array(13)}, {}),
        ({}, {"pair/more": np.zeros(2)}, {}),
        ({}, {"pair/total": np.zeros(3)}, {}),
        ({}, {"pair/total": np.full((4, 2), math.inf)}, {}),
        ({}, {"pair/stddev": np.array(math.nan)}, {}),
        ({}, {}, {"pair/rest": np.zeros((1, 4, 2))}),
    ],
)
def test_other_settings_and_states_that_do_not_fit_are_refused(settings, private, secret):
    release = prefixes()
    run(release, [document()] * 3, 27)
    state = release.state()
    state.private.update(private)
    state.secret.update(secret)
    with pytest.raises(InvalidSettingError, match=r"a saved state|rounds must lie in"):
        restore(state, **settings)


def test_a_wrong_round_is_refused_and_changes_nothing():
    release, other = prefixes(), prefixes()
    noise, again = SeededNoise(29), SeededNoise(29)
    release.step(document(), noise)
    for wrong, error in (
        (np.zeros((2, 4)), InvalidSettingError),
        (np.full((4, 2), math.nan), InvalidDocumentsError),
        (np.full((4, 2), 1e9), InvalidDocumentsError),
    ):
        with pytest.raises(error):
            release.step({**document(), "pair": wrong}, noise)
    other.step(document(), again)
    one, same = release.step(document(), noise), other.step(document(), again)
    assert all(np.array_equal(one[name], same[name]) for name in one)
    assert release.rounds == 2


def test_nothing_continues_after_a_step_that_broke_off():
    release, noise = prefixes(n_max=3), SeededNoise(30)
    # A row may hold `gain` rounds, and these two are as large as that.
    largest = {name: 3 * release.strategy.gain * part for name, part in document().items()}
    release.step(largest, noise)
    with pytest.raises(InvalidDocumentsError, match="a sum is not finite"):
        release.step(largest, noise)
    assert release.rounds == 1
    for call in (lambda: release.step(zeros(BLOCKS), noise), release.state):
        with pytest.raises(InvalidSettingError, match="a step was not finished"):
            call()


def test_settings_that_cannot_be_are_refused():
    for horizon, n_max, message in ((0, 10, "horizon must be"), (10, 10**7, "sum fewer documents")):
        with pytest.raises(InvalidSettingError, match=message):
            prefixes(z=1e-3, horizon=horizon, n_max=n_max)
    for t in (0, 13, 1.5):
        with pytest.raises(InvalidSettingError, match="t must"):
            prefixes().stddevs(t)
