"""Prefix sums of a stream under one budget: the noise of one release, not of a thousand.

To publish the sum of rounds 1..t for every t up to a horizon n, write the prefix sums as A x with
A the lower triangle of ones, and factor A = B C. Releasing C x + z with Gaussian z is one
release, and B of it, A x + B z, is post-processing [1]_. If a document is in one round only, its
effect on C x is its contribution times one column of C. So with z of standard deviation

    noise_multiplier * sensitivity(C) * (l2_sensitivity of one document's contribution)

*all* prefix sums together cost one release of that noise multiplier.

C is a buffered linear Toeplitz matrix [2]_: ones on the diagonal and, i below it,
c_i = sum_j omega_j theta_j^(i-1). So C runs as a recurrence on d buffers of the size of a release.

.. [1] Denisov et al., *Improved differential privacy for SGD via optimal private linear operators
   on adaptive streams*, NeurIPS 2022.
.. [2] Dvijotham et al., *Efficient and near-optimal noise generation for streaming differential
   privacy*, FOCS 2024.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.guarantee.checks import at_least, between, require
from streamlda.guarantee.mechanism import Array, Block, JointGaussian
from streamlda.guarantee.noise import Noise

MAX_HORIZON = 1_000_000
MAX_BUFFERS = 8


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
        rule = (
            f"coefficients must fall from 1: at most {MAX_BUFFERS} theta (0 <= theta < 1) and omega"
        )
        remedy = "take them from `privacy.prefix_sums.buffered_toeplitz`"
        require(falls and fits, rule, theta=theta, omega=omega, remedy=remedy)
        object.__setattr__(self, "theta", theta)
        object.__setattr__(self, "omega", omega)
        check_horizon(self.horizon)
        object.__setattr__(self, "horizon", int(self.horizon))

    @property
    def n_buffers(self) -> int:
        """Number of buffers d."""
        return len(self.theta)

    def coefficients(self) -> NDArray[np.float64]:
        """Return the first column of C, shape (horizon,); C is lower triangular Toeplitz."""
        powers = np.array(self.theta)[:, None] ** np.arange(self.horizon - 1)
        return np.concatenate([[1.0], np.array(self.omega) @ powers])

    @cached_property
    def sensitivity(self) -> float:
        """The largest l2 norm of a column of C, rounded up.

        The coefficients are above 0: the others hold the first few entries of the first only.
        """
        # The powers are off by less than 1e-13 of themselves, the sum by less still.
        return math.sqrt(math.fsum(self.coefficients() ** 2)) * (1 + 1e-12)


class Recurrence:
    """d buffers of the size of a release, `shape`, that continue with each of `rounds`.

    Never continue from an older state after a later step was published: that would release the same
    rounds again. Nothing here can notice; the ledger must.
    """

    def __init__(self, strategy: BufferedToeplitz, shape: tuple[int, ...]) -> None:
        self.strategy = strategy
        self.shape = shape
        self.rounds = 0
        self._buffers = np.zeros((strategy.n_buffers, *shape))

    def _next(self, row: Any) -> NDArray[np.float64]:
        """Count the next row, or refuse it and leave the state as it was."""
        rounds, horizon = self.rounds + 1, self.strategy.horizon
        rule = "a factorisation must not be used past its horizon"
        remedy = "start a new one as a new spend"
        require(rounds <= horizon, rule, horizon=horizon, rounds=rounds, remedy=remedy)
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
        """Continue exactly where `state` was taken."""
        rule, remedy = "a saved state must hold what state() returned", "restore it whole"
        names = {"theta", "omega", "horizon", "rounds", "buffers"}
        require(set(state) == names, rule, arrays=sorted(state), remedy=remedy)
        theta, omega, rounds = (np.array(state[name]) for name in ("theta", "omega", "rounds"))
        strategy = BufferedToeplitz(tuple(theta), tuple(omega), int(state["horizon"]))
        buffers = np.array(state["buffers"], dtype=np.float64)
        fits = len(buffers) == len(theta) and bool(0 <= rounds <= strategy.horizon)
        fits = fits and bool(np.isfinite(buffers).all())
        require(fits, rule, rounds=rounds, buffers=buffers.shape, remedy=remedy)
        restored = cls(strategy, buffers.shape[1:])
        restored.rounds, restored._buffers = int(rounds), buffers
        return restored


class StrategyRows(Recurrence):
    """C as a recurrence: from the rounds x_t the rows of C x, to be noised one at a time.

    One step, for input x_t and buffers s_j (zero at first): the row is x_t + sum_j omega_j s_j,
    and s_j = theta_j s_j + x_t for the next step. The buffers are sums of raw data: secret.
    """

    def step(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Take the sums of the next round and return the next row of C x, not private."""
        x = self._next(x)
        row: NDArray[np.float64] = x + self._weighted()
        self._decay(x)
        return row


def check_horizon(horizon: int) -> None:
    """Refuse what is no number of rounds."""
    at_least(1, horizon=horizon)
    between(1, MAX_HORIZON, horizon=horizon, remedy="put more documents into a round")


class NoisyRows:
    """Release the rows of C x with noise, one after each round of a horizon, for one spend.

    Unit: what contributes once, in one round. (A user is in many rounds: then C must be the
    identity, each row is a release of its own, and they are paid for one by one.) A unit of round t
    moves row s >= t by c_(s-t) times its contribution, hence all of them by the norm of a column of
    C times the norm of the contribution: `JointGaussian`, step 4, attained in round 1. So each
    document pays ``GaussianRelease(noise_multiplier)`` once for the whole horizon, be it read in
    the first round or in the last. A document that enters two rounds voids it. `n_max` counts the
    most contributions in the whole horizon; `options` are those of `JointGaussian`.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        noise_multiplier: float,
        strategy: BufferedToeplitz,
        *,
        n_max: int,
        **options: Any,
    ) -> None:
        self.strategy = strategy
        #: What releases a row; its standard deviations are those of a row.
        self.mechanism = JointGaussian(
            blocks,
            noise_multiplier,
            n_max=n_max,
            releases=strategy.horizon,
            strategy_sensitivity=strategy.sensitivity,
            **options,
        )
        shapes = {block.name: block.shape for block in self.mechanism.blocks}
        self.rows = {name: StrategyRows(strategy, shape) for name, shape in shapes.items()}

    def step(self, sums: Mapping[str, Array], noise: Noise) -> dict[str, Array]:
        """Take the sums of the *new* documents of the next round; return its noisy row."""
        rows = {name: running.step(sums[name]) for name, running in self.rows.items()}
        return self.mechanism.release(rows, noise)
