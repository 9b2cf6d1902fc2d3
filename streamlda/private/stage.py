"""One stage: clipped sums of the documents at its record slots, on the grid, and their release.

Documents are summed in floating point in groups; each group is rounded to the grid by itself and
groups are added as integers, so that two neighbouring streams differ in one group only
(`streamlda.guarantee.mechanism`, Groups). Groups, and the blocks in which they are summed, end at
slots. Nothing else will do: the cut of a stream into batches depends on how long documents are,
and a long one would have all later documents summed in other blocks, hence rounded otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import require
from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidSettingError
from streamlda.guarantee.events import Approximate
from streamlda.guarantee.matrix_mechanism import BufferedToeplitz
from streamlda.guarantee.mechanism import Array, Block, Counts, JointGaussian
from streamlda.guarantee.noise import Noise
from streamlda.guarantee.prefix_release import PrefixRelease, PrefixState
from streamlda.private.contributions import Statistic, View
from streamlda.private.settings import PrivateSettings
from streamlda.spectral.moments import BLOCK_DOCUMENTS
from streamlda.utils.threads import one_blas_thread

M = TypeVar("M", JointGaussian, PrefixRelease)

#: Documents of one floating-point sum: the most, and what is tried where the terms of a document
#: are so much larger than its clip bound that rounding would cost more than 1 %.
GROUPS = (4 * BLOCK_DOCUMENTS, BLOCK_DOCUMENTS, 1024, 256, 64)

#: Roundings behind a term that do not depend on the number of words: products, factors, weights.
OTHER_ROUNDINGS = 128


class Records(Protocol):
    """What record slots hold: documents, or rows of numbers."""

    @property
    def n_documents(self) -> int:
        """Slots."""

    def rows(self, start: int, stop: int) -> Self:
        """Return those from `start` to before `stop`, or to the end."""

    def copy(self) -> Self:
        """Return the same with arrays of its own."""


class Summed(Protocol):
    """What a stage sums, of a block of records as `Stage.view` shows it."""

    def blocks(self) -> list[Block]:
        """Return what the mechanism may rely on."""

    def add(self, view: Any) -> None:
        """Add the records."""

    def take(self) -> dict[str, Array]:
        """Return the sums since the last call, by block, and start from 0 again."""


class Stage:
    """Sums of the statistics of one stage, over the slots from `first` to before `last`."""

    def __init__(
        self,
        name: str,
        first: int,
        last: int,
        statistics: Sequence[Summed],
        mechanism: JointGaussian,
    ) -> None:
        self.name, self.first, self.last = name, first, last
        self.mechanism = mechanism
        self.slots_filled = 0
        self.drawn = False  # Whether its release was made; see `PendingRelease`.
        #: Raw sums in steps of the grid, up to the last `flush`: not private.
        self.aggregates: dict[str, Counts] = {
            block.name: np.zeros(block.shape, dtype=np.int64) for block in mechanism.blocks
        }
        self._statistics = statistics
        self._running = False
        self._held: list[tuple[Any, NDArray[np.bool_]]] = []
        self._group = mechanism.group_max or mechanism.n_max

    @property
    def slots_left(self) -> int:
        """Slots that are still to be filled."""
        return self.last - self.first - self.slots_filled

    def add(self, batch: Records, active: NDArray[np.bool_]) -> None:
        """Add the active records of a batch of at most `slots_left`; all rows take a slot."""
        start = 0
        while start < batch.n_documents:
            left = self._left_in_block
            rows = batch.rows(start, start + left)
            stop = start + rows.n_documents
            # The caller may use its arrays again before the block is full.
            held = rows if rows.n_documents == left else rows.copy()
            self._held.append((held, active[start:stop].copy()))
            self._take_slots(rows.n_documents)
            start = stop

    def skip(self, n: int) -> None:
        """Leave slots empty, at most `slots_left`: the same sums as from as many blank rows."""
        while n:
            taken = min(n, self._left_in_block)
            self._take_slots(taken)
            n -= taken

    @property
    def _left_in_block(self) -> int:
        in_group = self.slots_filled % self._group
        return min(BLOCK_DOCUMENTS - in_group % BLOCK_DOCUMENTS, self._group - in_group)

    def _take_slots(self, n: int) -> None:
        self.slots_filled += n
        in_group = self.slots_filled % self._group
        if in_group == 0:
            self.flush()
        elif in_group % BLOCK_DOCUMENTS == 0:
            self._add_held()

    def _add_held(self) -> None:
        if not self._held:
            return
        rows, active = zip(*self._held, strict=True)
        view = self.view(rows, np.hstack(active))
        self._held.clear()
        self._running = True
        for statistic in self._statistics:
            statistic.add(view)

    def view(self, rows: Sequence[Any], active: NDArray[np.bool_]) -> Any:
        """Return the records of a block as statistics see them."""
        return View(DocumentBatch.joined(list(rows)), active)

    def flush(self) -> None:
        """Bring the sums of the running group to the grid."""
        self._add_held()
        if self._running:
            sums: dict[str, Array] = {}
            for statistic in self._statistics:
                sums |= statistic.take()
            for name, counts in self.mechanism.to_grid(sums).items():
                self.aggregates[name] += counts
            self._running = False

    def release(self, noise: Noise) -> dict[str, Array]:
        """Return the sums with noise; see `JointGaussian.release`."""
        self.flush()
        return self.mechanism.release_grid(self.aggregates, noise)

    def state(self) -> dict[str, Counts]:
        """End the running group, and return copies of the raw sums: to be kept secret."""
        self.flush()
        return {name: counts.copy() for name, counts in self.aggregates.items()}

    def restore(self, sums: Mapping[str, NDArray[Any]], slots: int, last: int) -> None:
        """Resume from what `state` returned, with the number of slots that were filled then."""
        expected = {block.name: f"int64{block.shape}" for block in self.mechanism.blocks}
        found = {name: f"{array.dtype}{array.shape}" for name, array in sums.items()}
        require(
            found == expected and 0 <= slots <= last - self.first <= self.last - self.first,
            "saved sums must be whole numbers in the shapes of the blocks of their stage",
            stage=self.name,
            first=self.first,
            last=last,
            slots=slots,
            sums=found,
            expected=expected,
            remedy="restore the state whole",
        )
        self.aggregates = {name: sums[name].copy() for name in expected}
        self.slots_filled, self.last = slots, last

    def stddevs(self) -> dict[str, float]:
        """Return the standard deviation of the noise in each value of a block."""
        return dict(self.mechanism.stddevs)


class PrefixStage(Stage):
    """A round whose release is that of all rounds so far (`PrefixRelease`)."""

    def __init__(
        self,
        name: str,
        first: int,
        last: int,
        statistics: Sequence[Statistic],
        prefix: PrefixRelease,
    ) -> None:
        super().__init__(name, first, last, statistics, prefix.mechanism)
        self._prefix = prefix
        self._round = prefix.rounds + 1

    def release(self, noise: Noise) -> dict[str, Array]:
        """Return the noisy sums of this and all earlier rounds."""
        self.flush()
        return self._prefix.step(self.mechanism.from_grid(self.aggregates), noise)

    def stddevs(self) -> dict[str, float]:
        """Return those of the prefix sum that the release of this round gives, or gave."""
        return self._prefix.stddevs(self._round)


@dataclass(frozen=True, slots=True)
class PendingRelease:
    """A release that is due: what to charge, and how to draw its noise."""

    stage: str
    first: int  # Slots of its documents, `last` not included.
    last: int
    event: Approximate  # What each unit in it pays.
    stddevs: dict[str, float]  # Of the noise in each value of a block.
    _sums: Stage = field(repr=False)

    def release(self, noise: Noise) -> dict[str, Array]:
        """Draw the noise and return the noisy sums, after the price is paid; once."""
        require(
            not self._sums.drawn,
            "noise must be drawn once for a release: more on the same documents is another release",
            stage=self.stage,
            remedy="accept what the first draw returned",
        )
        self._sums.drawn = True
        with one_blas_thread():
            return self._sums.release(noise)


def joint_mechanism(
    statistics: Sequence[Statistic], n_max: int, settings: PrivateSettings, multiplier: float
) -> JointGaussian:
    """Return the mechanism of a stage of `n_max` slots, with the largest groups allowed."""
    blocks, touched = unit_blocks(statistics, settings), groups_touched(settings)
    return _with_groups(
        lambda options: JointGaussian(blocks, multiplier, groups_touched=touched, **options),
        n_max,
        settings,
    )


def prefix_mechanism(
    statistics: Sequence[Statistic],
    n_max: int,
    settings: PrivateSettings,
    multiplier: float,
    state: PrefixState | None = None,
) -> PrefixRelease:
    """Return the mechanism of all rounds of a horizon, of `n_max` slots; as far as its state.

    A user is in every round and pays for each, so the rows are the rounds themselves: that gives
    the last sum the noise of one release of it, which no other rows can be below.
    """
    blocks, touched = unit_blocks(statistics, settings), groups_touched(settings)
    assert settings.snapshots is not None
    horizon: int | BufferedToeplitz = settings.snapshots
    if settings.privacy_unit == "user":
        horizon = BufferedToeplitz((), (), settings.snapshots)

    def make(options: dict[str, Any]) -> PrefixRelease:
        options["groups_touched"] = touched
        if state is None:
            return PrefixRelease(blocks, multiplier, horizon=horizon, **options)
        return PrefixRelease.from_state(state, blocks, multiplier, **options)

    return _with_groups(make, n_max, settings)


def unit_blocks(statistics: Sequence[Statistic], settings: PrivateSettings) -> list[Block]:
    """Return the blocks of the statistics, clip norms as one privacy unit has them.

    A user adds at most g documents to a stage (`UserBound`), of norm at most C each: g C.
    """
    g = settings.documents_per_user or 1
    blocks = [block for statistic in statistics for block in statistic.blocks()]
    return [replace(block, l2_clip_norm=g * block.l2_clip_norm) for block in blocks]


def groups_touched(settings: PrivateSettings) -> int:
    """Return the most groups of a stage in which two neighbours differ.

    One for documents, g for users. Under replace-one the other user may have blanks in slots of
    the first and documents accepted at others: g groups more.
    """
    g = settings.documents_per_user
    if g is None:
        return 1
    return g if settings.neighboring_relation == "zero-out" else 2 * g


def _with_groups(make: Callable[[dict[str, Any]], M], n_max: int, settings: PrivateSettings) -> M:
    """Make a mechanism with the largest groups at which rounding costs at most 1 %."""
    words = settings.n_features + OTHER_ROUNDINGS
    options: dict[str, Any] = {
        "neighboring_relation": settings.neighboring_relation,
        "n_max": n_max,
        "term_roundings": words,
    }
    *larger, smallest = [min(size, n_max) for size in GROUPS]
    for size in larger:
        try:
            # The corrections for repeated words sum over the vocabulary once a group.
            return make({**options, "group_max": size, "roundings": size + words})
        except InvalidSettingError as error:
            if "rounding" not in str(error):
                raise
    return make({**options, "group_max": smallest, "roundings": smallest + words})
