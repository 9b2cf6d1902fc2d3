"""All prefix sums of a stream of rounds, released under one spend.

Round t of a horizon H has documents of its own; x_t is the sum of their clipped contributions, in
a basis that stays fixed over the horizon. `PrefixRelease` publishes x_1 + ... + x_t for every t::

    x_t -> StrategyRows -> row of C x -> JointGaussian -> noisy row -> PrefixSums -> prefix sum
    (raw)                  (raw)         (grid, noise)    (private)                  (private)

The last arrow is post-processing, so that nothing but the noisy rows costs budget.

Unit: what contributes once, in one round, as for `JointGaussian`. Relation: `add-remove` (with the
same places: the document or a blank) or `replace-one` (another document in the same place, hence
in the same round). Sensitivity of all noisy rows together: a document of round t moves row s >= t
by c_(s-t) times its contribution, hence all of them by the norm of a column of C times the norm of
the contribution, at most ``strategy.sensitivity * (1, or sqrt(2) to 2)``; with rounding up to 1 %
more, as derived in `streamlda.privacy.mechanism`. A document of round 1 attains it. Public: the
settings and the number of rounds.

What follows from one round per document: each document pays ``GaussianRelease(noise_multiplier)``
once for the whole horizon, be it read in the first round or in the last; documents of different
rounds do not add up (parallel composition by place). A document that enters two rounds voids it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import InvalidSettingError
from streamlda.privacy.accounting import whole
from streamlda.privacy.events import GaussianRelease
from streamlda.privacy.matrix_mechanism import (
    BufferedToeplitz,
    PrefixSums,
    StrategyRows,
    buffered_toeplitz,
)
from streamlda.privacy.mechanism import TERM_ROUNDINGS, Array, Block, JointGaussian
from streamlda.privacy.noise import Noise

#: Largest relative difference of a standard deviation made again from the same settings: powers
#: differ in their last digits between machines.
_SAME = 1e-9


@dataclass(frozen=True, slots=True)
class PrefixState:
    """What `PrefixRelease.from_state` needs; names are ``block/array``.

    Parameters
    ----------
    secret : dict of str to ndarray
        Sums of raw contributions. Whoever reads them has the data without noise: never beside a
        published model.
    private : dict of str to ndarray
        Made of noisy rows and public settings only.
    """

    secret: dict[str, NDArray[Any]]
    private: dict[str, NDArray[Any]]


class PrefixRelease:
    """Release the sums of all rounds so far, after each round of a horizon, for one spend.

    Memory 2 d + 1 arrays of the size of the blocks for d buffers (1 for 10 rounds, 2 for 100, 3
    for 1000), and up to 5 more during a step; whatever the number of documents.

    Parameters
    ----------
    blocks : sequence of Block
        As for `JointGaussian`.
    noise_multiplier : float
        z of the whole horizon: all prefix sums together are 1/z-GDP.
    horizon : int or BufferedToeplitz
        Rounds H, from 1 to a million, or a factorisation made for them.
    n_max : int
        Most contributions in the whole horizon; a public number, not the true count.
    neighboring_relation : {"add-remove", "replace-one"}
    n_buffers : int, optional
        As for `buffered_toeplitz`; not beside a factorisation.
    term_roundings, roundings, group_max : int, optional
        As for `JointGaussian`; what the rows add is added here.

    Raises
    ------
    InvalidSettingError
        If a setting is out of range.

    Attributes
    ----------
    mechanism : JointGaussian
        What releases a row. Its standard deviations are those of a row.
    strategy : BufferedToeplitz
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        noise_multiplier: float,
        *,
        horizon: int | BufferedToeplitz,
        n_max: int,
        neighboring_relation: str = "add-remove",
        n_buffers: int | None = None,
        term_roundings: int = TERM_ROUNDINGS,
        roundings: int | None = None,
        group_max: int | None = None,
    ) -> None:
        if isinstance(horizon, BufferedToeplitz):
            if n_buffers is not None:
                raise InvalidSettingError(
                    "n_buffers must be left out beside a factorisation, which has its own, got "
                    f"n_buffers={n_buffers}; give the number of rounds as horizon, or leave it out"
                )
            self.strategy = horizon
        else:
            self.strategy = buffered_toeplitz(horizon, n_buffers)
        self.mechanism = JointGaussian(
            blocks,
            noise_multiplier,
            neighboring_relation=neighboring_relation,
            n_max=n_max,
            term_roundings=term_roundings,
            roundings=roundings,
            group_max=group_max,
            releases=self.strategy.horizon,
            strategy_sensitivity=self.strategy.sensitivity,
        )
        self._event = GaussianRelease(self.mechanism.noise_multiplier)
        shapes = {block.name: block.shape for block in self.mechanism.blocks}
        self._rows = {name: StrategyRows(self.strategy, shape) for name, shape in shapes.items()}
        self._sums = {name: PrefixSums(self.strategy, shape) for name, shape in shapes.items()}
        self._rounds = 0
        self._broken = False

    @property
    def horizon(self) -> int:
        """Number of rounds H that can be released."""
        return self.strategy.horizon

    @property
    def rounds(self) -> int:
        """Number of rounds that have been released."""
        return self._rounds

    @property
    def event(self) -> GaussianRelease:
        """What each document pays, once, for all prefix sums of the horizon."""
        return self._event

    def step(self, sums: Mapping[str, Array], noise: Noise) -> dict[str, Array]:
        """Take the next round and return the noisy sums of all rounds so far.

        Private if `noise` is (see `Noise.secure`) and no document has been in an earlier round.
        Time about 0.2 us a value.

        Parameters
        ----------
        sums : mapping of str to ndarray of the block's shape, float64
            Sums of clipped contributions of the *new* documents. Not private; not changed.
        noise : Noise
            `SecureNoise`, or `SeededNoise` in tests.

        Returns
        -------
        dict of str to ndarray of float64

        Raises
        ------
        InvalidSettingError
            If the horizon is reached, the names or shapes are not those of the blocks, or an
            earlier step broke off.
        InvalidDocumentsError
            If a sum cannot be one of n_max clipped contributions, or those of all rounds together
            cannot. See `JointGaussian.release`.
        """
        self._check_whole()
        if self._rounds >= self.horizon:
            raise InvalidSettingError(
                "a release of prefix sums must not go past its horizon, where its sensitivity no "
                f"longer holds, got horizon={self.horizon} rounds={self._rounds + 1}; start a new "
                "one as a new spend"
            )
        self.mechanism.check(sums)
        self._broken = True
        rows = {name: running.step(sums[name]) for name, running in self._rows.items()}
        noisy = self.mechanism.release(rows, noise)
        released = {name: running.step(noisy.pop(name)) for name, running in self._sums.items()}
        self._rounds += 1
        self._broken = False
        return released

    def stddevs(self, t: int) -> dict[str, float]:
        """Return the standard deviation of the noise in each value of the t-th prefix sum.

        In the block's own units, for t from 1 to the horizon; the last is the largest. The noise
        of different prefix sums is correlated. Time and memory O(d horizon).

        Raises
        ------
        InvalidSettingError
            If t is out of range.
        """
        if whole("t", t) > self.horizon:
            raise InvalidSettingError(
                f"t must be at most the horizon, got t={t} horizon={self.horizon}; "
                "ask for a round that can be released"
            )
        factor = float(self.strategy.errors()[t - 1]) / self.strategy.sensitivity
        return {name: sigma * factor for name, sigma in self.mechanism.stddevs.items()}

    def state(self) -> PrefixState:
        """Return copies of all arrays that `from_state` needs, raw data apart from private ones.

        Raises
        ------
        InvalidSettingError
            If a step broke off: its round is half in.
        """
        self._check_whole()
        secret, private = {}, {}
        for name in self._rows:
            for key, array in self._rows[name].state().items():
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
        neighboring_relation: str = "add-remove",
        term_roundings: int = TERM_ROUNDINGS,
        roundings: int | None = None,
        group_max: int | None = None,
    ) -> PrefixRelease:
        """Go on, to the last bit, where `state` was taken, with the settings of then.

        An older state must not be gone on with after a later prefix sum was published: another
        noisy row of the same round would be a second release of its documents. Nothing here can
        notice; the ledger must refuse it.

        Raises
        ------
        InvalidSettingError
            If an array is missing, unknown or does not fit the others, or the settings give other
            noise.
        """
        names = [block.name for block in blocks]
        secret, private = _by_block(state.secret, names), _by_block(state.private, names)
        found = {name: private[name].pop("stddev", np.array(np.nan)) for name in names}
        rows = {name: StrategyRows.from_state(secret[name]) for name in names}
        sums = {name: PrefixSums.from_state(private[name]) for name in names}
        parts: list[StrategyRows | PrefixSums] = [*rows.values(), *sums.values()]
        if len({(part.strategy, part.rounds) for part in parts}) != 1:
            raise _bad_state("arrays of different rounds or factorisations")
        restored = cls(
            blocks,
            noise_multiplier,
            horizon=parts[0].strategy,
            n_max=n_max,
            neighboring_relation=neighboring_relation,
            term_roundings=term_roundings,
            roundings=roundings,
            group_max=group_max,
        )
        for name, sigma in restored.mechanism.stddevs.items():
            shape = restored._sums[name].shape
            if not (rows[name].shape == sums[name].shape == shape):
                raise _bad_state(f"block={name} shape={sums[name].shape} expected={shape}")
            if found[name].shape != () or not abs(found[name] / sigma - 1) <= _SAME:
                raise _bad_state(f"other noise for block={name}")
        restored._rows, restored._sums = rows, sums
        restored._rounds = parts[0].rounds
        return restored

    def _check_whole(self) -> None:
        if self._broken:
            raise InvalidSettingError(
                "a step must be finished before the next, got one that broke off in "
                f"rounds={self._rounds + 1}; go on from the last saved state if the ledger allows"
            )


def _by_block(
    arrays: Mapping[str, NDArray[Any]], names: Sequence[str]
) -> dict[str, dict[str, NDArray[Any]]]:
    """Return the arrays of each block under their own names."""
    parts: dict[str, dict[str, NDArray[Any]]] = {name: {} for name in names}
    for label, array in arrays.items():
        name, _, key = label.rpartition("/")
        if name not in parts:
            raise _bad_state(f"array={label}")
        parts[name][key] = np.asarray(array)
    return parts


def _bad_state(found: str) -> InvalidSettingError:
    return InvalidSettingError(
        "a saved state must fit the settings and hold the arrays that state() returned, got "
        f"{found}; restore the checkpoint whole, with the settings it was made with"
    )
