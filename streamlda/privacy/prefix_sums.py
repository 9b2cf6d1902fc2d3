"""Prefix sums of noisy rows, and the factorisations that give them the least noise.

Post-processing of `streamlda.guarantee.matrix_mechanism`, whose sensitivity holds for any
factorisation A = B C: one that is chosen badly has more noise than it need have.

References
----------
.. [3] Fichtenberger, Henzinger, Upadhyay, *Constant matters: fine-grained error bound on
   differentially private continual observation*, ICML 2023.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from streamlda.errors import require_state
from streamlda.guarantee.matrix_mechanism import (
    MAX_BUFFERS,
    BufferedToeplitz,
    Recurrence,
    check_horizon,
)

#: `buffered_toeplitz` takes the fewest buffers within this of the best Toeplitz matrix.
EXCESS_ERROR = 0.01


def buffered_toeplitz(horizon: int) -> BufferedToeplitz:
    """Return the factorisation with the least noise on its last, and noisiest, prefix sum.

    Choose the horizon once: another one is a new spend. It has the fewest buffers with an error
    within `EXCESS_ERROR` of `best_toeplitz_error`: 1 for 10 rounds, 2 for 100, 3 for 1000, 4 for
    100,000, 5 for a million. Time 10 milliseconds for 100 rounds, some 3 seconds for a million;
    memory O(horizon). The last digits may differ between machines, which costs no privacy; store
    it with the state it belongs to.
    """
    check_horizon(horizon)
    target = best_toeplitz_error(horizon) * (1 + EXCESS_ERROR)
    for fewest in range(MAX_BUFFERS):
        strategy = _optimise(horizon, fewest)
        if errors_of(strategy)[-1] <= target:
            return strategy
    return _optimise(horizon, MAX_BUFFERS)


def best_toeplitz_error(horizon: int) -> float:
    """Return the least noise on the last prefix sum that any Toeplitz C = B gives [3]_.

    In units of a single release's; c_i = binom(2i, i) / 4^i, the square root of A. It grows like
    1 + ln(horizon) / pi. Time and memory O(horizon).
    """
    check_horizon(horizon)
    i = np.arange(1, horizon)
    return 1.0 + float(np.sum(np.cumprod((2 * i - 1) / (2 * i)) ** 2))


def prefix_coefficients(strategy: BufferedToeplitz) -> NDArray[np.float64]:
    """Return the first column of B = A C^-1, shape (horizon,); B is Toeplitz too."""
    # The i-th subdiagonal of C^-1 is -sum_j weight_j decay_j^(i-1).
    weights, decays = _invert(np.array(strategy.theta), np.array(strategy.omega))
    powers = decays[:, None] ** np.arange(strategy.horizon - 1)
    rows: NDArray[np.float64] = np.cumsum(np.concatenate([[1.0], -weights @ powers]))
    return rows


def errors_of(strategy: BufferedToeplitz) -> NDArray[np.float64]:
    """Return the noise of each prefix sum in units of a single release's, shape (horizon,).

    Rounds count from 0. The last is the largest. Time and memory O(d horizon).
    """
    rows: NDArray[np.float64] = np.sqrt(np.cumsum(prefix_coefficients(strategy) ** 2))
    return strategy.sensitivity * rows


class PrefixSums(Recurrence):
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
        """Continue exactly where `state` was taken."""
        require_state("total" in state, arrays=sorted(state))
        restored = super().from_state({k: v for k, v in state.items() if k != "total"})
        total = np.array(state["total"], dtype=np.float64)
        fits = total.shape == restored.shape and np.isfinite(total).all()
        require_state(fits, buffers=restored._buffers.shape, total=total.shape)
        restored._total = total
        return restored


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
