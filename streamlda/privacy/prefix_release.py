"""All prefix sums of a stream of rounds, released under one spend.

Round t of a horizon H has documents of its own; x_t is the sum of their clipped contributions, in
a basis that stays fixed over the horizon. `PrefixRelease` publishes x_1 + ... + x_t for every t::

    x_t -> StrategyRows -> row of C x -> JointGaussian -> noisy row -> PrefixSums -> prefix sum
    (raw)                  (raw)         (grid, noise)    (private)                  (private)

The last arrow is post-processing, so that nothing but the noisy rows costs budget
(`streamlda.guarantee.matrix_mechanism.NoisyRows`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import at_least, between, require, require_state
from streamlda.guarantee.matrix_mechanism import BufferedToeplitz, NoisyRows, StrategyRows
from streamlda.guarantee.mechanism import Array, Block
from streamlda.guarantee.noise import Noise
from streamlda.privacy.events import GaussianRelease
from streamlda.privacy.prefix_sums import PrefixSums, buffered_toeplitz, errors_of

#: Largest relative difference of a standard deviation made again from the same settings: powers
#: differ in their last digits between machines.
_SAME = 1e-9


@dataclass(frozen=True, slots=True)
class PrefixState:
    """What `PrefixRelease.from_state` needs; names are ``block/array``."""

    #: Sums of raw contributions. Whoever reads them has the data without noise: never beside a
    #: published model.
    secret: dict[str, NDArray[Any]]
    private: dict[str, NDArray[Any]]  # Made of noisy rows and public settings only.


class PrefixRelease:
    """Release the sums of all rounds so far, after each round of a horizon, for one spend.

    Memory 2 d + 1 arrays of the size of the blocks for d buffers (1 for 10 rounds, 2 for 100, 3
    for 1000), and up to 5 more during a step; whatever the number of documents.

    The noise multiplier z is that of the whole horizon: all prefix sums together are 1/z-GDP.
    `horizon` is a number of rounds, or a factorisation made for them; `n_max` counts the most
    contributions in the whole horizon, a public number; `options` are those of `JointGaussian`
    .
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        noise_multiplier: float,
        *,
        horizon: int | BufferedToeplitz,
        n_max: int,
        **options: Any,
    ) -> None:
        if not isinstance(horizon, BufferedToeplitz):
            horizon = buffered_toeplitz(horizon)
        self.strategy = horizon
        self._noisy = NoisyRows(blocks, noise_multiplier, horizon, n_max=n_max, **options)
        self.mechanism = self._noisy.mechanism
        shapes = {block.name: block.shape for block in self.mechanism.blocks}
        self._sums = {name: PrefixSums(self.strategy, shape) for name, shape in shapes.items()}
        self.rounds = 0  # That have been released.
        self._broken = False

    @property
    def horizon(self) -> int:
        """Number of rounds H that can be released."""
        return self.strategy.horizon

    @property
    def event(self) -> GaussianRelease:
        """What each document pays, once, for all prefix sums of the horizon."""
        return GaussianRelease(self.mechanism.noise_multiplier)

    def step(self, sums: Mapping[str, Array], noise: Noise) -> dict[str, Array]:
        """Take the next round and return the noisy sums of all rounds so far.

        Private if `noise` is (see `Noise.secure`) and no document has been in an earlier round.
        `sums` are those of clipped contributions of the *new* documents. Time about 0.2 us a value.
        """
        self._check_finished()
        require(
            self.rounds < self.horizon,
            "a release of prefix sums must not go past its horizon, where its sensitivity no "
            "longer holds",
            horizon=self.horizon,
            rounds=self.rounds + 1,
            remedy="start a new one as a new spend",
        )
        self.mechanism.to_grid(sums)  # Raises what is no sum of documents.
        self._broken = True
        noisy = self._noisy.step(sums, noise)
        released = {name: running.step(noisy.pop(name)) for name, running in self._sums.items()}
        self.rounds += 1
        self._broken = False
        return released

    def stddevs(self, t: int) -> dict[str, float]:
        """Return the standard deviation of the noise in each value of the t-th prefix sum.

        In the block's own units, for t from 1 to the horizon; the last is the largest. The noise
        of different prefix sums is correlated. Time and memory O(d horizon).
        """
        at_least(1, t=t)
        between(1, self.horizon, t=t, remedy="choose a round that can be released")
        factor = float(errors_of(self.strategy)[t - 1]) / self.strategy.sensitivity
        return {name: sigma * factor for name, sigma in self.mechanism.stddevs.items()}

    def state(self) -> PrefixState:
        """Return copies of all arrays that `from_state` needs, raw data apart from private ones."""
        self._check_finished()
        secret, private = {}, {}
        for name in self._noisy.rows:
            for key, array in self._noisy.rows[name].state().items():
                secret[f"{name}/{key}"] = array
            for key, array in self._sums[name].state().items():
                private[f"{name}/{key}"] = array
            private[f"{name}/stddev"] = np.array(self.mechanism.stddevs[name])
        return PrefixState(secret, private)

    @classmethod
    def from_state(
        cls,
        state: PrefixState,
        blocks: Sequence[Block],
        noise_multiplier: float,
        *,
        n_max: int,
        **options: Any,
    ) -> PrefixRelease:
        """Continue, to the last bit, where `state` was taken, with the settings of then.

        Never from an older state after a later prefix sum was published: another noisy row of the
        same round would be a second release of its documents. Nothing here can notice; the ledger
        must refuse it.
        """
        names = [block.name for block in blocks]
        secret, private = _by_block(state.secret, names), _by_block(state.private, names)
        found = {name: private[name].pop("stddev", np.array(np.nan)) for name in names}
        rows = {name: StrategyRows.from_state(secret[name]) for name in names}
        sums = {name: PrefixSums.from_state(private[name]) for name in names}
        running: list[StrategyRows | PrefixSums] = [*rows.values(), *sums.values()]
        alike = {(each.strategy, each.rounds) for each in running}
        require_state(len(alike) == 1, rounds_and_factorisations=len(alike))
        ((strategy, done),) = alike
        restored = cls(blocks, noise_multiplier, horizon=strategy, n_max=n_max, **options)
        for name, sigma in restored.mechanism.stddevs.items():
            shape, own = restored._sums[name].shape, sums[name].shape
            require_state(rows[name].shape == own == shape, block=name, shape=own, expected=shape)
            same = found[name].shape == () and abs(found[name] / sigma - 1) <= _SAME
            require_state(same, block=name, stddev="of other noise")
        restored._noisy.rows, restored._sums = rows, sums
        restored.rounds = done
        return restored

    def _check_finished(self) -> None:
        require(
            not self._broken,
            "a step must be finished before the next",
            broken_round=self.rounds + 1,
            remedy="continue from the last saved state if the ledger allows",
        )


def _by_block(
    arrays: Mapping[str, NDArray[Any]], names: Sequence[str]
) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the arrays of each block under their own names."""
    by_name: dict[str, dict[str, NDArray[Any]]] = {name: {} for name in names}
    for label, array in arrays.items():
        name, _, key = label.rpartition("/")
        require_state(name in by_name, array=label)
        by_name[name][key] = np.asarray(array)
    return by_name
