"""The matrix mechanism against dense matrices, the closed form, the dense optimum and chance."""

import functools
import math

import mpmath
import numpy as np
import pytest
import scipy.linalg
from hypothesis import given
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError
from streamlda.guarantee.matrix_mechanism import (
    MAX_BUFFERS,
    MAX_HORIZON,
    BufferedToeplitz,
    StrategyRows,
)
from streamlda.privacy.prefix_sums import (
    PrefixSums,
    _optimise,
    best_toeplitz_error,
    buffered_toeplitz,
    errors_of,
    prefix_coefficients,
)

default = functools.cache(buffered_toeplitz)


@st.composite
def strategies(draw):
    buffers = draw(st.integers(0, 4))
    theta = draw(st.lists(st.floats(0, 0.9999), min_size=buffers, max_size=buffers))
    weights = draw(st.lists(st.floats(0.01, 1), min_size=buffers, max_size=buffers))
    horizon = draw(st.integers(1, 40))
    scale = draw(st.floats(0.1, 0.99)) / max(sum(weights), 1e-9)
    return BufferedToeplitz(tuple(theta), tuple(w * scale for w in weights), horizon)


@given(strategies())
def test_coefficients_and_recurrences_equal_the_dense_matrices(strategy):
    n = strategy.horizon
    # C by its definition, entry by entry, and B = A C^-1 by a general solver.
    c = np.eye(n)
    for row in range(n):
        for column in range(row):
            terms = zip(strategy.theta, strategy.omega, strict=True)
            c[row, column] = sum(w * t ** (row - column - 1) for t, w in terms)
    b = np.linalg.solve(c.T, np.tri(n).T).T
    np.testing.assert_allclose(strategy.coefficients(), c[:, 0], rtol=1e-12)
    np.testing.assert_allclose(prefix_coefficients(strategy), b[:, 0], rtol=1e-9, atol=1e-9)
    sensitivity = np.linalg.norm(c, axis=0).max()
    assert sensitivity <= strategy.sensitivity == pytest.approx(sensitivity, rel=1e-11)
    errors = sensitivity * np.linalg.norm(b, axis=1)
    np.testing.assert_allclose(errors_of(strategy), errors, rtol=1e-9)
    rows, sums = StrategyRows(strategy, (n,)), PrefixSums(strategy, (n,))
    np.testing.assert_allclose([rows.step(unit) for unit in np.eye(n)], c, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose([sums.step(unit) for unit in np.eye(n)], b, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("horizon", [1, 10, 1000, 16384])
def test_sensitivity_is_rounded_up(horizon):
    strategy, mp = default(horizon), mpmath.mp.clone()
    mp.dps = 40
    # Sums of geometric series: another way than adding up coefficients.
    pairs = [(mp.mpf(t), mp.mpf(w)) for t, w in zip(strategy.theta, strategy.omega, strict=True)]
    series = sum(
        w1 * w2 * (1 - (t1 * t2) ** (horizon - 1)) / (1 - t1 * t2)
        for t1, w1 in pairs
        for t2, w2 in pairs
    )
    exact = mp.sqrt(1 + series)
    assert exact < strategy.sensitivity < exact * (1 + mp.mpf("2e-12"))


@pytest.mark.parametrize(
    ("theta", "omega", "horizon", "sensitivity", "error"),
    [
        (
            (0.99897285, 0.97855964, 0.74328276),
            (0.04444111, 0.12054534, 0.31138952),
            *(1024, "1.8066", "3.2776"),
        ),
        (
            (0.99993457, 0.99858414, 0.98003407, 0.75236655),
            (0.01125721, 0.03205942, 0.11631625, 0.31447053),
            *(16384, "2.0356", "4.1629"),
        ),
    ],
)
def test_constants_found_by_another_optimiser(theta, omega, horizon, sensitivity, error):
    theirs, ours = BufferedToeplitz(theta, omega, horizon), default(horizon)
    assert f"{theirs.sensitivity:.4f} {errors_of(theirs)[-1]:.4f}" == f"{sensitivity} {error}"
    assert ours.n_buffers == len(theta)
    assert errors_of(ours)[-1] == pytest.approx(errors_of(theirs)[-1], rel=1e-5)


#: Releases at which the privacy page compares, and most rounds that are tried there.
AT, MOST = np.array([10, 100, 1000]), 1000


def perturbed(gamma, delta):
    """Return the noise of C with (1 - z)^(-1/2) L^gamma M^delta, of no horizon, from below.

    L = ln(1 / (1 - z)) / z and M = 2 ln(L) / z (arXiv 2506.15018, whose rows have no end). Of
    the norm of a column the first `MOST` terms are taken.
    """

    def logarithm(a):
        found = np.zeros(len(a))
        for k in range(1, len(a)):
            found[k] = a[k] - (np.arange(1, k) * found[1:k]) @ a[k - 1 : 0 : -1] / k
        return found

    def exponential(a):
        found, steps = np.eye(1, len(a))[0], np.arange(len(a)) * a
        for k in range(1, len(a)):
            found[k] = steps[1 : k + 1] @ found[k - 1 :: -1][:k] / k
        return found

    of_l = logarithm(1 / np.arange(1.0, MOST + 2))
    of_m = logarithm(2 * of_l[1:])
    root = np.concatenate([[0], 0.5 / np.arange(1, MOST)])
    more = gamma * of_l[:-1] + delta * of_m
    column, row = exponential(root + more), exponential(root - more)
    np.testing.assert_allclose(np.convolve(column, row)[:MOST], 1, atol=1e-9)
    return np.linalg.norm(column) * np.sqrt(np.cumsum(row**2))[AT - 1]


def in_epochs(times):
    """Return the noise of mechanisms that follow each other, each longer by one factor."""
    found = []
    for t in AT.tolist():
        size, passed, variance = 10, 0, 0.0
        while passed + size < t:
            variance += errors_of(default(size))[-1] ** 2
            passed, size = passed + size, size * times
        found.append(math.sqrt(variance + errors_of(default(size))[t - passed - 1] ** 2))
    return found


def test_no_mechanism_without_a_horizon_has_less_noise_than_one_of_the_right_horizon():
    known = [errors_of(default(int(t)))[-1] for t in AT]
    assert known == pytest.approx([1.80, 2.54, 3.27], abs=0.005)
    assert in_epochs(10) == pytest.approx([1.80, 3.09, 4.50], abs=0.005)
    assert errors_of(default(10**4))[AT - 1] == pytest.approx([2.66, 3.22, 3.65], abs=0.005)
    best = [best_toeplitz_error(int(t)) for t in AT]
    assert perturbed(-1.0, 1.0) == pytest.approx([2.10, 2.84, 3.62], abs=0.005)
    for gamma, delta in ((-0.6, 0.0), (-0.8, 0.25), (-1.0, 0.5), (-1.0, 1.0)):
        found = perturbed(gamma, delta)
        assert (found > 1.05 * np.array(best)).all(), (gamma, delta, found)


@pytest.mark.parametrize("horizon", [1, 2, 7, 60, 333, 20_000])
def test_within_one_percent_of_the_best_toeplitz_matrix(horizon):
    strategy, best = default(horizon), best_toeplitz_error(horizon)
    assert best * (1 - 1e-9) <= errors_of(strategy)[-1] <= best * 1.01
    assert errors_of(strategy).max() == errors_of(strategy)[-1]
    assert strategy.n_buffers <= 4
    # No buffers are a release for each round.
    alone = errors_of(_optimise(horizon, 0))
    np.testing.assert_allclose(alone, np.sqrt(np.arange(1, horizon + 1)), rtol=1e-9)
    if horizon <= 60:
        # The best is the Toeplitz square root of the prefix sums, from its power series.
        entries = [math.comb(2 * i, i) / 4**i for i in range(horizon)]
        root = np.tril(scipy.linalg.toeplitz(entries))
        np.testing.assert_allclose(root @ root, np.tri(horizon), atol=1e-12)
        error = np.linalg.norm(root, axis=0).max() * np.linalg.norm(root, axis=1).max()
        assert best == pytest.approx(error, rel=1e-12)


def dense_optimum(horizon):
    """Errors of the factorisation with the least mean square error, by its fixed point."""
    workload = np.tri(horizon).T @ np.tri(horizon)
    v = np.ones(horizon)
    for _ in range(4000):
        scaled = np.sqrt(v)[:, None] * workload * np.sqrt(v)
        v = np.diag(scipy.linalg.sqrtm(scaled)).real.copy()
        root = np.sqrt(v)
        gram = scipy.linalg.sqrtm(root[:, None] * workload * root).real / np.outer(root, root)
        if np.abs(np.diag(gram) - 1).max() < 1e-6:
            break
    errors = np.tri(horizon) @ np.linalg.solve(gram, np.tri(horizon).T)
    return np.sqrt(np.diag(errors) * np.diag(gram).max())


@pytest.mark.parametrize(
    ("horizon", "optimum", "ours"),
    [(10, "1.56 1.71", "1.65 1.80"), (100, "2.24 2.45", "2.37 2.54")],
)
def test_near_the_dense_optimum(horizon, optimum, ours):
    noise = dense_optimum(horizon), errors_of(default(horizon))
    best, found = ((float(np.sqrt(np.mean(errors**2))), errors.max()) for errors in noise)
    assert ["{:.2f} {:.2f}".format(*each) for each in (best, found)] == [optimum, ours]
    assert best[0] < found[0] < 1.07 * best[0]


@pytest.mark.parametrize("recurrence", [PrefixSums, StrategyRows])
def test_a_wrong_row_or_one_past_the_horizon_is_refused_and_changes_nothing(recurrence):
    running = recurrence(default(3), (2,))
    results = [running.step(np.ones(2)) for _ in range(2)]
    before = running.state()
    for row in (np.ones(3), np.ones((1, 2)), [np.nan, 0], 1.0):
        with pytest.raises(InvalidSettingError, match="a row must be finite"):
            running.step(row)
    results.append(running.step(np.ones(2)))
    results[0][:] = 7
    again = recurrence.from_state(before)
    np.testing.assert_array_equal(again.step(np.ones(2)), results[2])
    for each in (running, again, recurrence.from_state(running.state())):
        with pytest.raises(InvalidSettingError, match="horizon=3 rounds=4; start a new one"):
            each.step(np.ones(2))
    before, after = running.state(), again.state()
    assert all(np.array_equal(before[name], after[name]) for name in before | after)


@pytest.mark.parametrize(
    "wrong",
    [
        {"rounds": np.array(21)},
        {"rounds": np.array(-1)},
        {"theta": np.array([0.5])},
        {"omega": np.array([0.5, 0.6])},
        {"horizon": np.array(0)},
        {"buffers": np.zeros((1, 4))},
        {"buffers": np.full((2, 4), np.nan)},
        {"key": np.zeros(2)},
        {"total": np.zeros(3)},
    ],
)
def test_a_state_that_does_not_fit_is_refused(wrong):
    state = PrefixSums(default(20), (4,)).state()
    with pytest.raises(InvalidSettingError, match=r"a saved state must|must fall from 1|horizon"):
        PrefixSums.from_state({**state, **wrong})
    less = {key: state[key] for key in state if key not in wrong}
    for recurrence, arrays in ((PrefixSums, less | {"x": state}), (StrategyRows, state)):
        with pytest.raises(InvalidSettingError, match="a saved state must"):
            recurrence.from_state(arrays)


@pytest.mark.parametrize(
    ("theta", "omega"),
    [
        *(((1.0,), (0.1,)), ((-0.1,), (0.1,)), ((0.5,), (0.0,)), ((0.5,), (1.1,))),
        *(((0.5,), (math.nan,)), ((math.nan,), (0.1,)), ((0.5, 0.4), (0.1,))),
        ((0.5,) * (MAX_BUFFERS + 1), (0.01,) * (MAX_BUFFERS + 1)),
    ],
)
def test_coefficients_that_do_not_fall_are_refused(theta, omega):
    with pytest.raises(InvalidSettingError, match="coefficients must fall from 1"):
        BufferedToeplitz(theta, omega, 10)


@pytest.mark.parametrize("call", [buffered_toeplitz, best_toeplitz_error])
def test_horizons_out_of_range_are_refused(call):
    for wrong in (0, 1.5, MAX_HORIZON + 1):
        with pytest.raises(InvalidSettingError, match=r"^horizon must"):
            call(wrong)
