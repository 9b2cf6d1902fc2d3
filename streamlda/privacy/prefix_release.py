"""All prefix sums of a stream of rounds, released under one spend.

Round t has documents of its own; x_t is the sum of their clipped contributions, in a basis that
stays fixed. `PrefixRelease` publishes x_1 + ... + x_t for every t::

    x_t -> StrategyRows -> row of C x -> JointGaussian -> noisy row -> PrefixSums -> prefix sum
    (raw)                  (raw)         (grid, noise)    (private)                  (private)

The last arrow is post-processing, so that nothing but the noisy rows costs budget
(`streamlda.guarantee.matrix_mechanism.NoisyRows`).
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import at_least, between, require, require_state
from streamlda.guarantee.matrix_mechanism import BufferedToeplitz, NoisyRows, Recurrence
from streamlda.guarantee.mechanism import Array, Block
from streamlda.guarantee.noise import Noise

#: Largest relative difference of a standard deviation made again from the same settings: powers
#: differ in their last digits between machines.
SAME_NOISE = 1e-9


class PrefixSums(Recurrence):
    """B as a recurrence: from the rounds of C x + z, one at a time, the prefix sums A x + B z.

    It is linear. Fed with what `StrategyRows` gives plus noise, all that it holds is private. One
    step, for input r_t, buffers s_j and running total (all zero at first):

    1. y = r_t - sum_j w_j s_j. As r_t = sum_i c_i y_(t-i), this divides by C.
    2. s_j = s_j - g_j s_j + y, for the next step.
    3. total = total + y, which is (A C^-1 r)_t = (B r)_t.
    """

    def __init__(self, strategy: BufferedToeplitz, shape: tuple[int, ...]) -> None:
        super().__init__(strategy, shape)
        self.arrays["total"] = np.zeros(shape)

    def step(self, row: Array) -> Array:
        """Take the next row of C x + z, and return the next prefix sum."""
        self.count()
        buffers, fresh = self.arrays["buffers"], np.array(row, dtype=np.float64)
        for w, buffer in zip(self.strategy.weights, buffers, strict=True):
            fresh -= w * buffer
        for j, g in enumerate(self.strategy.gaps):
            buffers[j] += fresh - g * buffers[j]
        self.arrays["total"] = self.arrays["total"] + fresh
        return self.arrays["total"].copy()


def noise_of(strategy: BufferedToeplitz, t: int) -> float:
    """Return the noise of the t-th prefix sum in units of a single release's; time O(d^2).

    That is S times the norm of row t of B = A C^-1. C^-1 has a form like that of C: the buffers
    of the recurrence that divides by C go from one step to the next by diag(1 - g) - 1 w', which is
    similar to a symmetric matrix of eigenvalues e. So the i-th entry of the row is a constant and a
    sum of powers e^i, and its square a sum of geometric series.
    """
    root, decays = np.sqrt(strategy.weights), 1 - strategy.gaps
    e, vectors = np.linalg.eigh(np.diag(decays) - np.outer(root, root))
    parts, limit = (root @ vectors) ** 2 / (1 - e), 1 / (1 + np.sum(root**2 / strategy.gaps))
    square = limit**2 * t + 2 * limit * (parts @ ((1 - e**t) / (1 - e)))
    products = np.outer(e, e)
    square += parts @ ((1 - products**t) / (1 - products)) @ parts
    return strategy.sensitivity * math.sqrt(square)


class PrefixState(NamedTuple):
    """State for `PrefixRelease.restore`; names are ``block/array``."""

    secret: dict[str, NDArray[Any]]  # Sums without noise: never beside a published model.
    private: dict[str, NDArray[Any]]  # Made of noisy rows and public settings only.


class PrefixRelease:
    """Release the sums of all rounds so far, after each round, for one spend.

    The noise multiplier z is that of all rounds: all prefix sums together are 1/z-GDP. `n_max`
    counts the most contributions in a round; `options` are those of `JointGaussian`. Memory 3 d + 1
    arrays of the size of the blocks for d = 4 buffers, and up to 5 more during a step.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        noise_multiplier: float,
        *,
        strategy: BufferedToeplitz,
        n_max: int,
        **options: Any,
    ) -> None:
        self.strategy = strategy
        self._noisy = NoisyRows(blocks, noise_multiplier, strategy, n_max=n_max, **options)
        self.mechanism = self._noisy.mechanism
        shapes = {block.name: block.shape for block in self.mechanism.blocks}
        self._sums = {name: PrefixSums(strategy, shape) for name, shape in shapes.items()}
        self.rounds = 0  # That have been released.
        self._broken = False

    def step(self, sums: Mapping[str, Array], noise: Noise) -> dict[str, Array]:
        """Take the next round and return the noisy sums of all rounds so far.

        Private if `noise` is (see `Noise.secure`) and no document has been in an earlier round.
        `sums` are those of clipped contributions of the *new* documents. Time about 0.2 us a value.
        """
        self._check_finished()
        self.mechanism.to_grid(sums)  # Raises what is no sum of documents.
        self._broken = self.rounds < self.strategy.rounds
        noisy = self._noisy.step(sums, noise)
        released = {name: running.step(noisy.pop(name)) for name, running in self._sums.items()}
        self.rounds += 1
        self._broken = False
        return released

    def skip(self) -> None:
        """Count a round whose sums are not here: no step follows."""
        self.rounds, self._broken = self.rounds + 1, True

    def stddevs(self, t: int) -> dict[str, float]:
        """Return the standard deviation of the noise in each value of the t-th prefix sum.

        In the block's own units. The noise of different prefix sums is correlated.
        """
        at_least(1, t=t)
        between(1, self.strategy.rounds, t=t, remedy="choose a round that can be released")
        factor = noise_of(self.strategy, t) / self.strategy.sensitivity
        return {name: sigma * factor for name, sigma in self.mechanism.stddevs.items()}

    def state(self) -> PrefixState:
        """Return copies of all arrays that `restore` needs, raw data apart from private ones."""
        self._check_finished()
        secret, private = (_name_arrays(parts) for parts in (self._noisy.rows, self._sums))
        stddevs = {f"{name}/stddev": np.array(s) for name, s in self.mechanism.stddevs.items()}
        return PrefixState(secret, private | stddevs | {"rounds": np.array(self.rounds)})

    def restore(self, state: PrefixState) -> None:
        """Continue, to the last bit, where `state` was taken, with the settings of then.

        Never from an older state after a later prefix sum was published: another noisy row of the
        same round would be a second release of its documents, which the ledger must refuse.
        """
        own, found = self.state(), {**state.secret, **state.private}
        expected = {name: array.shape for name, array in {**own.secret, **own.private}.items()}
        shapes = {name: np.shape(array) for name, array in found.items()}
        require_state(shapes == expected, shapes=shapes, expected=expected)
        require_state(all(np.isfinite(array).all() for array in found.values()), numbers="not all")
        for name, sigma in self.mechanism.stddevs.items():
            same = abs(found[f"{name}/stddev"] / sigma - 1) <= SAME_NOISE
            require_state(same, block=name, stddev="of other noise")
        rounds = int(found["rounds"])
        between(0, self.strategy.rounds, rounds=rounds)
        for saved, parts in ((state.secret, self._noisy.rows), (state.private, self._sums)):
            for name, running in parts.items():
                running.rounds = rounds
                for key in running.arrays:
                    running.arrays[key] = np.array(saved[f"{name}/{key}"], dtype=np.float64)
        self.rounds = rounds

    def _check_finished(self) -> None:
        require(
            not self._broken,
            "a step was not finished",
            broken_round=self.rounds + 1,
            remedy="continue from the last saved state if the ledger allows",
        )


def _name_arrays(parts: Mapping[str, Recurrence]) -> dict[str, NDArray[Any]]:
    """Return copies of the arrays of each block under ``block/array``."""
    return {
        f"{name}/{key}": array.copy()
        for name, running in parts.items()
        for key, array in running.arrays.items()
    }
