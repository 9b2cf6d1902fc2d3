"""Prefix sums of a stream under one budget: the noise of one release, not of a thousand.

To publish the sum of rounds 1..t for every t up to a horizon n, write the prefix sums as A x with
A the lower triangle of ones, and factor A = B C. Releasing C x + z with Gaussian z is one
release, and B of it, A x + B z, is post-processing [1]_. If a document is in one round only, its
effect on C x is its contribution times one column of C. So with z of standard deviation

    noise_multiplier * sensitivity(C) * (l2_sensitivity of one document's contribution)

*all* prefix sums together cost one ``GaussianRelease(noise_multiplier)``, and the noise of the
t-th is sensitivity(C) * ||row t of B|| times that of a single release: 1.8, 2.5, 3.3 at most for
10, 100, 1000 rounds (a release of its own each round, sharing the budget: 3.2, 10, 32).

C is a buffered linear Toeplitz matrix [2]_: ones on the diagonal and, i below it,
c_i = sum_j omega_j theta_j^(i-1). Then C and B run as recurrences on d buffers of the size of a
release, whatever the horizon.

References
----------
.. [1] Denisov, McMahan, Rush, Smith, Thakurta, *Improved differential privacy for SGD via optimal
   private linear operators on adaptive streams*, NeurIPS 2022.
.. [2] Dvijotham, McMahan, Pillutla, Steinke, Thakurta, *Efficient and near-optimal noise
   generation for streaming differential privacy*, FOCS 2024.
.. [3] Fichtenberger, Henzinger, Upadhyay, *Constant matters: fine-grained error bound on
   differentially private continual observation*, ICML 2023.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from streamlda.guarantee.checks import at_least, between, require, require_state

MAX_HORIZON = 1_000_000
MAX_BUFFERS = 8

#: `buffered_toeplitz` takes the fewest buffers within this of the best Toeplitz matrix.
EXCESS_ERROR = 0.01


@dataclass(frozen=True)
class BufferedToeplitz:
    """A factorisation A = B C of the prefix sums of `horizon` rounds, C given by two vectors."""

    theta: tuple[float, ...]  # Decay of each of d buffers a round, from 0 to below 1.
    omega: tuple[float, ...]  # Weight of each buffer, above 0; their sum is at most 1.
    horizon: int  # Rounds n, from 1 to `MAX_HORIZON`.

    def __post_init__(self) -> None:
        theta = tuple(float(value) for value in self.theta)
        omega = tuple(float(value) for value in self.omega)
        falls = all(0 <= value < 1 for value in theta) and all(value > 0 for value in omega)
        fits = len(theta) == len(omega) <= MAX_BUFFERS and math.fsum(omega) <= 1
        require(
            falls and fits,
            "coefficients must fall from 1: as many theta (0 <= theta < 1) as omega (> 0, sum <= "
            f"1), at most {MAX_BUFFERS}",
            theta=theta,
            omega=omega,
            remedy="take them from buffered_toeplitz",
        )
        object.__setattr__(self, "theta", theta)
        object.__setattr__(self, "omega", omega)
        _check_horizon(self.horizon)
        object.__setattr__(self, "horizon", int(self.horizon))

    @property
    def n_buffers(self) -> int:
        """Number of buffers d."""
        return len(self.theta)

    def coefficients(self) -> NDArray[np.float64]:
        """Return the first column of C, shape (horizon,); C is lower triangular Toeplitz."""
        powers = np.array(self.theta)[:, None] ** np.arange(self.horizon - 1)
        return np.concatenate([[1.0], np.array(self.omega) @ powers])

    def prefix_coefficients(self) -> NDArray[np.float64]:
        """Return the first column of B = A C^-1, shape (horizon,); B is Toeplitz too."""
        # The i-th subdiagonal of C^-1 is -sum_j weight_j decay_j^(i-1).
        weights, decays = _invert(np.array(self.theta), np.array(self.omega))
        powers = decays[:, None] ** np.arange(self.horizon - 1)
        rows: NDArray[np.float64] = np.cumsum(np.concatenate([[1.0], -weights @ powers]))
        return rows

    @cached_property
    def sensitivity(self) -> float:
        """The largest l2 norm of a column of C, rounded up.

        The coefficients are above 0, so the first column is the longest: the others hold the
        first few of its entries only. Time and memory O(d horizon), once.
        """
        # The powers are off by less than 1e-13 of themselves, the sum by less still.
        return math.sqrt(math.fsum(self.coefficients() ** 2)) * (1 + 1e-12)

    def errors(self) -> NDArray[np.float64]:
        """Return the noise of each prefix sum in units of a single release's, shape (horizon,).

        Rounds count from 0. The last is the largest. Time and memory O(d horizon).
        """
        rows: NDArray[np.float64] = np.sqrt(np.cumsum(self.prefix_coefficients() ** 2))
        return self.sensitivity * rows


def buffered_toeplitz(horizon: int) -> BufferedToeplitz:
    """Return the factorisation with the least noise on its last, and noisiest, prefix sum.

    Choose the horizon once: another one is a new spend. It has the fewest buffers with an error
    within `EXCESS_ERROR` of `best_toeplitz_error`: 1 for 10 rounds, 2 for 100, 3 for 1000, 4 for
    100,000, 5 for a million. Time 10 milliseconds for 100 rounds, some 3 seconds for a million;
    memory O(horizon). The last digits may differ between machines, which costs no privacy; store
    it with the state it belongs to.
    """
    _check_horizon(horizon)
    target = best_toeplitz_error(horizon) * (1 + EXCESS_ERROR)
    for fewest in range(MAX_BUFFERS):
        strategy = _optimise(horizon, fewest)
        if strategy.errors()[-1] <= target:
            return strategy
    return _optimise(horizon, MAX_BUFFERS)


def best_toeplitz_error(horizon: int) -> float:
    """Return the least noise on the last prefix sum that any Toeplitz C = B gives [3]_.

    In units of a single release's; c_i = binom(2i, i) / 4^i, the square root of A. It grows like
    1 + ln(horizon) / pi. Time and memory O(horizon).
    """
    _check_horizon(horizon)
    i = np.arange(1, horizon)
    return 1.0 + float(np.sum(np.cumprod((2 * i - 1) / (2 * i)) ** 2))


class _Recurrence:
    """d buffers of the size of a release, `shape`, that go on with each of `rounds`.

    Memory d arrays of `shape`, time O(d size) a step. Never go on from an older state after a
    later step was published: that would release the same rounds again. Nothing here can notice;
    the ledger must.
    """

    def __init__(self, strategy: BufferedToeplitz, shape: tuple[int, ...]) -> None:
        self.strategy = strategy
        self.shape = shape
        self.rounds = 0
        self._buffers = np.zeros((strategy.n_buffers, *shape))

    def _next(self, row: Any) -> NDArray[np.float64]:
        """Count the next row, or refuse it and leave the state as it was."""
        require(
            self.rounds < self.strategy.horizon,
            "a factorisation must not be used past its horizon, where its sensitivity no longer "
            "holds",
            horizon=self.strategy.horizon,
            rounds=self.rounds + 1,
            remedy="start a new one as a new spend",
        )
        checked: NDArray[np.float64] = np.asarray(row, dtype=np.float64)
        fits = checked.shape == self.shape and np.isfinite(checked).all()
        rule, remedy = "a row must be finite and of the shape of the release", "check its sums"
        require(fits, rule, shape=checked.shape, release=self.shape, remedy=remedy)
        self.rounds += 1
        return checked

    def _weighted(self) -> Any:
        return np.tensordot(np.array(self.strategy.omega), self._buffers, axes=1)

    def _decay(self, fresh: NDArray[np.float64]) -> None:
        self._buffers *= np.reshape(self.strategy.theta, (-1, *[1] * (self._buffers.ndim - 1)))
        self._buffers += fresh

    def state(self) -> dict[str, NDArray[Any]]:
        """Return copies of all arrays that `from_state` needs, the strategy included."""
        return {
            "theta": np.array(self.strategy.theta, dtype=np.float64),
            "omega": np.array(self.strategy.omega, dtype=np.float64),
            "horizon": np.array(self.strategy.horizon, dtype=np.int64),
            "rounds": np.array(self.rounds, dtype=np.int64),
            "buffers": self._buffers.copy(),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> Self:
        """Go on exactly where `state` was taken."""
        names = {"theta", "omega", "horizon", "rounds", "buffers"}
        require_state(set(state) == names, arrays=sorted(state))
        theta, omega = np.array(state["theta"]), np.array(state["omega"])
        rounds, horizon = np.array(state["rounds"]), np.array(state["horizon"])
        buffers = np.array(state["buffers"], dtype=np.float64)
        ones = theta.ndim == omega.ndim == 1 and rounds.ndim == horizon.ndim == 0
        whole = rounds.dtype.kind == horizon.dtype.kind == "i" and np.isfinite(buffers).all()
        require_state(ones and whole, theta=theta.shape, omega=omega.shape, horizon=horizon.shape)
        strategy = BufferedToeplitz(tuple(theta), tuple(omega), int(horizon))
        fits = buffers.ndim >= 1 and len(buffers) == len(theta) and 0 <= rounds <= horizon
        require_state(fits, rounds=rounds, horizon=horizon, buffers=buffers.shape)
        restored = cls(strategy, buffers.shape[1:])
        restored.rounds, restored._buffers = int(rounds), buffers
        return restored


class PrefixSums(_Recurrence):
    """B as a recurrence: from the rounds of C x + z, one at a time, the prefix sums A x + B z.

    It is linear. Fed with fresh noise z alone it gives the noise to add to the t-th prefix sum:
    then its buffers are as secret as the noise, and must be saved together with the sum. Fed with
    what `StrategyRows` gives plus noise, all that it holds is private already.

    One step, for input z_t, buffers s_j and running total r (all zero at first):

    1. y = z_t - sum_j omega_j s_j. As z_t = sum_i c_i y_(t-i), this divides by C.
    2. s_j = theta_j s_j + y, for the next step.
    3. r = r + y, which is (A C^-1 z)_t = (B z)_t.
    """

    def __init__(self, strategy: BufferedToeplitz, shape: tuple[int, ...]) -> None:
        super().__init__(strategy, shape)
        self._total = np.zeros(shape)

    def step(self, row: NDArray[np.float64]) -> NDArray[np.float64]:
        """Take fresh noise, or the next row of C x + z, and return the next prefix sum."""
        fresh = self._next(row) - self._weighted()
        self._decay(fresh)
        self._total += fresh
        return self._total.copy()

    def state(self) -> dict[str, NDArray[Any]]:
        """Return that of the recurrence, and the total."""
        return {**super().state(), "total": self._total.copy()}

    @classmethod
    def from_state(cls, state: Mapping[str, NDArray[Any]]) -> Self:
        """Go on exactly where `state` was taken."""
        require_state("total" in state, arrays=sorted(state))
        restored = super().from_state({k: v for k, v in state.items() if k != "total"})
        total = np.array(state["total"], dtype=np.float64)
        fits = total.shape == restored.shape and np.isfinite(total).all()
        require_state(fits, buffers=restored._buffers.shape, total=total.shape)
        restored._total = total
        return restored


class StrategyRows(_Recurrence):
    """C as a recurrence: from the rounds x_t the rows of C x, to be noised one at a time.

    Rounding a row to a grid and adding discrete noise to it gives a private row exactly, which
    adding noise made by floating-point sums to a prefix sum does not. The rounding of all rows
    counts in the sensitivity. Then `PrefixSums` turns private rows into private prefix sums.

    One step, for input x_t and buffers s_j (zero at first): the row is x_t + sum_j omega_j s_j,
    and s_j = theta_j s_j + x_t for the next step. The buffers are sums of raw data: secret.
    """

    def step(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Take the sums of the next round and return the next row of C x, not private."""
        x = self._next(x)
        row: NDArray[np.float64] = x + self._weighted()
        self._decay(x)
        return row


def _check_horizon(horizon: int) -> None:
    at_least(1, horizon=horizon)
    between(1, MAX_HORIZON, horizon=horizon, remedy="put more documents into a round")


def _invert(
    theta: NDArray[np.float64], omega: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return weights and decays of C^-1: it is of the same form with the signs turned.

    The buffers of the recurrence that divides by C go from one step to the next by
    diag(theta) - 1 omega', which is similar to a symmetric matrix.
    """
    root = np.sqrt(omega)
    decays, vectors = np.linalg.eigh(np.diag(theta) - np.outer(root, root))
    return (root @ vectors) ** 2, decays


def _last_error(theta: Any, omega: Any, horizon: int) -> float:
    """Return ||column of C|| ||last row of B|| in time O(d^2), by sums of geometric series."""
    weights, decays = _invert(theta, omega)
    column = 1.0 + omega @ _geometric(np.outer(theta, theta), horizon - 1) @ omega
    # Row entries are limit + sum_j parts_j decays_j^i.
    parts = weights / (1 - decays)
    limit = 1.0 - parts.sum()
    row = limit * limit * horizon + 2 * limit * (parts @ _geometric(decays, horizon))
    row += parts @ _geometric(np.outer(decays, decays), horizon) @ parts
    return math.sqrt(max(float(column), 1.0) * max(float(row), 1.0))


def _geometric(ratio: NDArray[np.float64], terms: int) -> NDArray[np.float64]:
    total: NDArray[np.float64] = (1 - ratio**terms) / (1 - ratio)
    return total


def _optimise(horizon: int, n_buffers: int) -> BufferedToeplitz:
    """Minimise the last error over theta (as logits) and omega (as logarithms)."""
    if n_buffers == 0:
        return BufferedToeplitz((), (), horizon)

    def unpack(x: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        # Limits keep the search where sums do not cancel; no optimum comes near them.
        logits, logarithms = np.clip(x[:n_buffers], -30, 20), np.clip(x[n_buffers:], -30, 0)
        omega = np.exp(logarithms)
        return 1 / (1 + np.exp(-logits)), omega / max(1.0, float(omega.sum()) * (1 + 1e-12))

    def objective(x: NDArray[np.float64]) -> float:
        return math.log(_last_error(*unpack(x), horizon))

    # Time scales spread evenly from a few rounds to the whole horizon.
    gaps = np.geomspace(0.5, 0.5 / horizon, n_buffers + 2)[1 : n_buffers + 1]
    start = np.concatenate([np.log(1 / gaps - 1), np.log(np.sqrt(gaps) / (2 * n_buffers))])
    found = scipy.optimize.minimize(objective, start, method="BFGS", options={"gtol": 1e-6})
    theta, omega = unpack(found.x)
    order = np.argsort(-theta)
    return BufferedToeplitz(tuple(theta[order]), tuple(omega[order]), horizon)
