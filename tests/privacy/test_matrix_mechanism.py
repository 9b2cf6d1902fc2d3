"""The matrix mechanism against dense matrices, exact fractions and the best known horizon."""

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError
from streamlda.guarantee.matrix_mechanism import BufferedToeplitz, StrategyRows
from streamlda.guarantee.mechanism import MAX_ROWS
from streamlda.privacy.prefix_release import PrefixSums, noise_of

DEFAULT = BufferedToeplitz()


def coefficients(strategy, n):
    """Return the first n entries of a column of C, by their definition."""
    powers = (1 - strategy.gaps)[:, None] ** np.arange(n - 1)
    return np.concatenate([[1.0], np.array(strategy.weights) @ powers])


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
    c = np.zeros((n, n))
    for i, value in enumerate(coefficients(strategy, n)):
        c += np.diag(np.full(n - i, value), -i)
    b = np.linalg.solve(c.T, np.tri(n).T).T
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


def best_noise(horizon):
    """Return the least noise on the last of n prefix sums by a Toeplitz C = B.

    c_i = binom(2i, i) / 4^i (Fichtenberger, Henzinger, Upadhyay, *Constant matters*, ICML 2023).
    """
    i = np.arange(1, horizon)
    return 1.0 + float(np.sum(np.cumprod((2 * i - 1) / (2 * i)) ** 2))


def test_noise_is_near_that_of_the_best_mechanism_for_a_known_number_of_rounds():
    rounds = [1, 10, 100, 1000, 10**4, 10**5]
    best = [best_noise(n) for n in rounds]
    found = [noise_of(DEFAULT, t) for t in rounds]
    assert best == pytest.approx([1, 1.79, 2.53, 3.27, 4.00, 4.73], abs=0.005)
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


def test_a_round_past_the_horizon_is_refused_and_changes_nothing():
    for recurrence in (PrefixSums, StrategyRows):
        running = recurrence(BufferedToeplitz(horizon=3), (2,))
        for _ in range(3):
            running.step(np.ones(2))
        before = {name: array.copy() for name, array in running.arrays.items()}
        with pytest.raises(InvalidSettingError, match="horizon=3 rounds=4; start a new one"):
            running.step(np.ones(2))
        assert all(np.array_equal(running.arrays[name], before[name]) for name in before)
    endless = StrategyRows(DEFAULT, ())
    endless.rounds = MAX_ROWS
    with pytest.raises(InvalidSettingError, match=f"horizon={MAX_ROWS} "):
        endless.step(np.array(1.0))


@pytest.mark.parametrize(
    ("shifts", "weights", "horizon"),
    [
        *(((0,), (0.1,), 10), ((33,), (0.1,), 10), ((1,), (0.0,), 10), ((1,), (1.1,), 10)),
        *(((1,), (math.nan,), 10), ((1.5,), (0.1,), 10), ((1, 2), (0.1,), 10)),
        *(((1,) * 9, (0.01,) * 9, 10), ((), (), 0), ((), (), MAX_ROWS + 1), ((), (), 1.5)),
    ],
)
def test_what_is_no_factorisation_is_refused(shifts, weights, horizon):
    with pytest.raises(InvalidSettingError, match=r"coefficients must fall from 1|^horizon must"):
        BufferedToeplitz(shifts, weights, horizon)
