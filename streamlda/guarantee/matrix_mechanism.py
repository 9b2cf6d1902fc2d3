"""Prefix sums of a stream under one budget, without an end: the noise of one release, not of many.

To publish the sum of rounds 1..t for every t, write the prefix sums as A x with A the lower
triangle of ones, and factor A = B C. Releasing C x + z with Gaussian z is one release, and B of it,
A x + B z, is post-processing [1]_. If a document is in one round only, its effect on C x is its
contribution times one column of C. So with z of standard deviation

    noise_multiplier * sensitivity(C) * (l2_sensitivity of one document's contribution)

*all* prefix sums together cost one release of that noise multiplier. Here a column of C has a
finite norm though it has no end, so that no number of rounds need be known [2]_.

C is a buffered linear Toeplitz matrix [3]_: ones on the diagonal and, i below it,
c_i = sum_j w_j (1 - 2^-a_j)^(i-1). So C runs as a recurrence on d buffers of the size of a release.

.. [1] Denisov et al., *Improved differential privacy for SGD via optimal private linear operators
   on adaptive streams*, NeurIPS 2022.
.. [2] Jacobsen & Fawaz, *Private continual counting of unbounded streams*, arXiv 2506.15018.
.. [3] Dvijotham et al., *Efficient and near-optimal noise generation for streaming differential
   privacy*, FOCS 2024.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamlda.guarantee.checks import at_least, between, require
from streamlda.guarantee.mechanism import MAX_ROWS, Array, Block, JointGaussian
from streamlda.guarantee.noise import Noise


@dataclass(frozen=True)
class BufferedToeplitz:
    """A factorisation A = B C of prefix sums, C given by decays and weights of d buffers.

    Sensitivity. No coefficient is below 0, so that each column of C holds the first few of c_0 = 1,
    c_1, c_2, ... and the first holds all. With g_j = 2^-a_j the norm of n of them is S, where ::

        S^2 = 1 + sum_i sum_j w_i w_j (1 - ((1 - g_i) (1 - g_j))^(n - 1)) / (g_i + g_j - g_i g_j)

    sums geometric series. Without a horizon n is infinite and the power 0: S is finite, and no
    column is longer, however many rounds there will be.
    """

    #: a, whole numbers from 1 to 32, and w, at most 1 together. These have the least excess over
    #: the best matrix for a known number of rounds, at any of 1 to 100,000.
    shifts: tuple[int, ...] = (2, 6, 10, 15)
    weights: tuple[float, ...] = (0.2131, 0.0556, 0.0131, 0.00295)
    horizon: int | None = None  # Most rounds, where that is known.

    def __post_init__(self) -> None:
        falls = all(a in range(1, 33) for a in self.shifts) and all(w > 0 for w in self.weights)
        fits = len(self.shifts) == len(self.weights) <= 8 and math.fsum(self.weights) <= 1
        rule, remedy = "coefficients do not fall from 1, in at most 8 buffers", "take the defaults"
        require(falls and fits, rule, shifts=self.shifts, weights=self.weights, remedy=remedy)
        at_least(1, horizon=self.rounds)
        between(1, MAX_ROWS, horizon=self.rounds)

    @property
    def rounds(self) -> int:
        """Most rounds: without a horizon, for which roundings are counted, 30 years of hours."""
        return MAX_ROWS if self.horizon is None else self.horizon

    @property
    def gaps(self) -> Array:
        """g, of which a buffer loses itself in a round: powers of two."""
        return np.ldexp(1.0, -np.array(self.shifts, dtype=np.int64))

    def _sum_decay(self, decay: Array) -> Array:
        """Return 1 - (1 - g)^(n - 1) for the logarithms of 1 - g."""
        return -np.expm1(decay * (math.inf if self.horizon is None else self.horizon - 1))

    @property
    def sensitivity(self) -> float:
        """S, rounded up: all terms are positive, and off by less than 1e-13 of themselves."""
        g, w, logarithms = self.gaps, np.array(self.weights), np.log1p(-self.gaps)
        series = self._sum_decay(np.add.outer(logarithms, logarithms))
        series /= np.add.outer(g, g) - np.outer(g, g)
        return math.sqrt(1 + float(w @ series @ w)) * (1 + 1e-12)

    @property
    def gain(self) -> float:
        """The largest sum of a row of C, rounded up."""
        series = self._sum_decay(np.log1p(-self.gaps)) / self.gaps
        return (1 + math.fsum(self.weights * series)) * (1 + 1e-12)


class Recurrence:
    """d buffers of the size of a release, `shape`, that continue with each of `rounds`.

    Never continue from an older state after a later step was published: that would release the same
    rounds again. Nothing here can notice; the ledger must.
    """

    def __init__(self, strategy: BufferedToeplitz, shape: tuple[int, ...]) -> None:
        self.strategy, self.rounds = strategy, 0
        #: All that changes from round to round, by name.
        self.arrays: dict[str, Array] = {"buffers": np.zeros((len(strategy.shifts), *shape))}

    def count(self) -> None:
        """Count a round, or refuse it."""
        most, rounds = self.strategy.rounds, self.rounds + 1
        rule = "a factorisation is used past its horizon"
        remedy = "start a new one as a new spend"
        require(rounds <= most, rule, horizon=most, rounds=rounds, remedy=remedy)
        self.rounds = rounds


class StrategyRows(Recurrence):
    """C as a recurrence: from the rounds x_t the rows of C x, to be noised one at a time.

    One step, for input x_t and buffers s_j (zero at first): the row is x_t + sum_j w_j s_j, and
    s_j = s_j - g_j s_j + x_t for the next step. The buffers are sums of raw data: secret.

    Roundings, u = 2^-53, in shares of the sum of all contributions without their signs:

    1. ``g_j s_j`` is exact, and `_exact_sum` returns a sum and its error. s_j is in `buffers`, the
       rounded sum, and `rest`, the sum of the errors, which decay like s_j. A round adds two, of u
       each: rest is at most 2.1 u H, after H rounds, and its own roundings 5 u^2 H^2.
    2. A row takes one rounding of x_t and 2 + d of each buffer: with d <= 8 and H <= 2^18 it is off
       by less than 2^-49 of its share, ``sum_i c_i`` times what was added i rounds before.
    """

    def __init__(self, strategy: BufferedToeplitz, shape: tuple[int, ...]) -> None:
        super().__init__(strategy, shape)
        self.arrays["rest"] = np.zeros_like(self.arrays["buffers"])

    def step(self, x: Array) -> Array:
        """Take the sums of the next round and return the next row of C x, not private."""
        self.count()
        row = np.array(x, dtype=np.float64)
        buffers, rest = self.arrays["buffers"], self.arrays["rest"]
        for j, (w, g) in enumerate(zip(self.strategy.weights, self.strategy.gaps, strict=True)):
            row += w * (buffers[j] + rest[j])
            decayed, first = _exact_sum(buffers[j], -g * buffers[j])
            buffers[j], second = _exact_sum(decayed, x)
            rest[j] = (rest[j] - g * rest[j]) + (first + second)
        return row


def _exact_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Return the rounded sum of doubles and its error, exactly (Knuth's TwoSum)."""
    total = a + b
    part = total - a
    return total, (a - (total - part)) + (b - part)


class NoisyRows:
    """Release the rows of C x with noise, one after each round, for one spend.

    Unit: what contributes once, in one round. (A user is in many rounds: then C must be the
    identity, each row is a release of its own, and they are paid for one by one.) A unit of round t
    moves row s >= t by c_(s-t) times its contribution, hence all of them by the norm of a column of
    C times the norm of the contribution: `JointGaussian`, step 4, attained in round 1. So each
    document pays ``GaussianRelease(noise_multiplier)`` once for all rounds, be it read in the first
    or in the last. A document that enters two rounds voids it. `n_max` counts the most
    contributions in a round; `options` are those of `JointGaussian`.
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
        #: Mechanism of one row, with the standard deviations of a row.
        self.mechanism = JointGaussian(
            blocks,
            noise_multiplier,
            n_max=math.ceil(n_max * strategy.gain),
            releases=strategy.rounds,
            strategy_sensitivity=strategy.sensitivity,
            **options,
        )
        shapes = {block.name: block.shape for block in self.mechanism.blocks}
        self.rows = {name: StrategyRows(strategy, shape) for name, shape in shapes.items()}

    def step(self, sums: Mapping[str, Array], noise: Noise) -> dict[str, Array]:
        """Take the sums of the *new* documents of the next round; return its noisy row."""
        rows = {name: running.step(sums[name]) for name, running in self.rows.items()}
        return self.mechanism.release(rows, noise)
