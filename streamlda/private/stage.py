"""One stage: clipped sums of the documents at its places, on the grid, and their release.

Documents are summed in floating point in groups; each group is rounded to the grid by itself and
groups are added as integers, so that two neighbouring streams differ in one group only
(`streamlda.privacy.mechanism`, Groups). Groups, and the blocks in which they are summed, end at
places. Nothing else will do: the cut of a stream into batches depends on how long documents are,
and a long one would have all later documents summed in other blocks, hence rounded otherwise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidSettingError
from streamlda.privacy.mechanism import Array, Counts, JointGaussian
from streamlda.privacy.noise import Noise
from streamlda.privacy.prefix_release import PrefixRelease, PrefixState
from streamlda.private.contributions import Statistic, View
from streamlda.private.settings import PrivateSettings
from streamlda.spectral.moments import BLOCK_DOCUMENTS

M = TypeVar("M", JointGaussian, PrefixRelease)

#: Documents of one floating-point sum: the most, and what is tried where the terms of a document
#: are so much larger than its clip bound that rounding would cost more than 1 %.
GROUPS = (4 * BLOCK_DOCUMENTS, BLOCK_DOCUMENTS, 1024, 256, 64)

#: Roundings behind a term that do not depend on the number of words: products, factors, weights.
OTHER_ROUNDINGS = 128


class Stage:
    """Sums of one stage.

    Parameters
    ----------
    name : str
    first, last : int
        Places, `last` not included.
    parts : sequence of Part
        What is summed.
    mechanism : JointGaussian
        Of the blocks of the parts, with groups.

    Attributes
    ----------
    places : int
        Places filled so far.
    drawn : bool
        Whether its release was made (`streamlda.private.engine.PendingRelease`).
    aggregates : dict of str to ndarray of int64
        Raw sums in steps of the grid, up to the last `flush`: not private.
    """

    def __init__(
        self, name: str, first: int, last: int, parts: Sequence[Statistic], mechanism: JointGaussian
    ) -> None:
        self.name, self.first, self.last = name, first, last
        self.mechanism = mechanism
        self.places = 0
        self.drawn = False
        self.aggregates: dict[str, Counts] = {
            block.name: np.zeros(block.shape, dtype=np.int64) for block in mechanism.blocks
        }
        self._parts = parts
        self._begun_with_noise = False
        self._running = False
        self._held: list[tuple[DocumentBatch, NDArray[np.bool_]]] = []
        self._group = mechanism.group_max or mechanism.n_max

    @property
    def open_places(self) -> int:
        """Places that are still to be filled."""
        return self.last - self.first - self.places

    def add(self, batch: DocumentBatch, active: NDArray[np.bool_]) -> None:
        """Add the active documents of a batch; all its rows take a place.

        Parameters
        ----------
        batch : DocumentBatch
            At most `open_places` documents.
        active : ndarray of bool, shape (n_documents,)
        """
        start = 0
        while start < batch.n_documents:
            left = self._left_in_block
            rows = batch.rows(start, start + left)
            stop = start + rows.n_documents
            # The caller may use its arrays again before the block is full.
            held = rows if rows.n_documents == left else rows.copy()
            self._held.append((held, active[start:stop].copy()))
            self._take_places(rows.n_documents)
            start = stop

    def skip(self, places: int) -> None:
        """Leave places empty, at most `open_places`: the same sums as from as many blank rows."""
        while places:
            taken = min(places, self._left_in_block)
            self._take_places(taken)
            places -= taken

    @property
    def _left_in_block(self) -> int:
        in_group = self.places % self._group
        return min(BLOCK_DOCUMENTS - in_group % BLOCK_DOCUMENTS, self._group - in_group)

    def _take_places(self, n: int) -> None:
        self.places += n
        in_group = self.places % self._group
        if in_group == 0:
            self.flush()
        elif in_group % BLOCK_DOCUMENTS == 0:
            self._add_held()

    def _add_held(self) -> None:
        if not self._held:
            return
        view = View(
            DocumentBatch.joined([rows for rows, _ in self._held]),
            np.hstack([a for _, a in self._held]),
        )
        self._held.clear()
        self._running = True
        for part in self._parts:
            part.add(view)

    def flush(self) -> None:
        """Bring the sums of the running group to the grid."""
        self._add_held()
        if self._running:
            sums = {name: array for part in self._parts for name, array in part.take().items()}
            for name, counts in self.mechanism.to_grid(sums).items():
                self.aggregates[name] += counts
            self._running = False

    def begin_with(self, noise: Noise) -> None:
        """Put noise of the mechanism into the sums, before any document."""
        for name, counts in self.mechanism.noise_on_grid(noise).items():
            self.aggregates[name] += counts
        self._begun_with_noise = True

    def release(self, noise: Noise) -> dict[str, Array]:
        """Return the sums with noise; see `JointGaussian.release`."""
        self.flush()
        return self.mechanism.release_grid(self.aggregates, noise)

    def state(self) -> dict[str, Counts]:
        """End the running group, and return copies of the raw sums: to be kept secret."""
        self.flush()
        return {name: counts.copy() for name, counts in self.aggregates.items()}

    def restore(
        self, sums: Mapping[str, NDArray[Any]], places: int, last: int, begun_with_noise: bool
    ) -> None:
        """Go on from what `state` returned, with the places that were filled then.

        Raises
        ------
        InvalidSettingError
            If the sums are not those of the blocks, or the places not those of the stage.
        """
        expected = {block.name: f"int64{block.shape}" for block in self.mechanism.blocks}
        found = {name: f"{array.dtype}{array.shape}" for name, array in sums.items()}
        if found != expected or not 0 <= places <= last - self.first <= self.last - self.first:
            raise InvalidSettingError(
                "saved sums must be whole numbers in the shapes of the blocks of their stage, got "
                f"stage={self.name!r} first={self.first} last={last} places={places} "
                f"sums={found} expected={expected}; restore the state whole"
            )
        self.aggregates = {name: sums[name].copy() for name in expected}
        self.places, self.last = places, last
        self._begun_with_noise = begun_with_noise

    def stddevs(self) -> dict[str, float]:
        """Return the standard deviation of the noise in each value of a block."""
        times = math.sqrt(2.0) if self._begun_with_noise else 1.0
        return {name: times * stddev for name, stddev in self.mechanism.stddevs.items()}


class PrefixStage(Stage):
    """A round whose release is that of all rounds so far (`PrefixRelease`)."""

    def __init__(
        self, name: str, first: int, last: int, parts: Sequence[Statistic], prefix: PrefixRelease
    ) -> None:
        super().__init__(name, first, last, parts, prefix.mechanism)
        self._prefix = prefix
        self._round = prefix.rounds + 1

    def release(self, noise: Noise) -> dict[str, Array]:
        """Return the noisy sums of this and all earlier rounds."""
        self.flush()
        return self._prefix.step(self.mechanism.from_grid(self.aggregates), noise)

    def stddevs(self) -> dict[str, float]:
        """Return those of the prefix sum that the release of this round gives, or gave."""
        return self._prefix.stddevs(self._round)


def joint_mechanism(
    parts: Sequence[Statistic], n_max: int, settings: PrivateSettings, multiplier: float
) -> JointGaussian:
    """Return the mechanism of all parts, with the largest groups that rounding allows.

    Parameters
    ----------
    parts : sequence of Part
    n_max : int
        Places of the stage.
    settings : PrivateSettings
    multiplier : float
        Noise multiplier.
    """
    return _with_groups(
        lambda group: JointGaussian(
            unit_blocks(parts, settings),
            multiplier,
            groups_touched=groups_touched(settings),
            **_common(settings, n_max, group),
        ),
        n_max,
    )


def prefix_mechanism(
    parts: Sequence[Statistic], n_max: int, settings: PrivateSettings, multiplier: float
) -> PrefixRelease:
    """Return the mechanism of all rounds of a horizon; `n_max` counts the places of all."""
    assert settings.snapshots is not None
    horizon = settings.snapshots
    return _with_groups(
        lambda group: PrefixRelease(
            unit_blocks(parts, settings),
            multiplier,
            horizon=horizon,
            **_common(settings, n_max, group),
        ),
        n_max,
    )


def restored_prefix(
    state: PrefixState,
    parts: Sequence[Statistic],
    n_max: int,
    settings: PrivateSettings,
    multiplier: float,
) -> PrefixRelease:
    """Return what `prefix_mechanism` made, as far as it was when its state was taken."""
    return _with_groups(
        lambda group: PrefixRelease.from_state(
            state,
            unit_blocks(parts, settings),
            multiplier,
            **_common(settings, n_max, group),
        ),
        n_max,
    )


def unit_blocks(parts: Sequence[Statistic], settings: PrivateSettings) -> list[Any]:
    """Return the blocks of the parts, clip norms as one privacy unit has them.

    A user adds at most g documents to a stage (`UserBound`), of norm at most C each: g C.
    """
    g = settings.documents_per_user or 1
    blocks = [block for part in parts for block in part.blocks()]
    return [replace(block, l2_clip_norm=g * block.l2_clip_norm) for block in blocks]


def groups_touched(settings: PrivateSettings) -> int:
    """Return the most groups of a stage in which two neighbours differ.

    One for documents, g for users. Under replace-one the other user may have blanks in places of
    the first and documents accepted at others: g groups more.
    """
    g = settings.documents_per_user
    if g is None:
        return 1
    return g if settings.neighboring_relation == "add-remove" else 2 * g


def _common(settings: PrivateSettings, n_max: int, group: int) -> dict[str, Any]:
    words = settings.n_features + OTHER_ROUNDINGS
    return {
        "neighboring_relation": settings.neighboring_relation,
        "n_max": n_max,
        "group_max": group,
        "term_roundings": words,
        # The corrections for repeated words sum over the vocabulary once a group.
        "roundings": group + words,
    }


def _with_groups(make: Callable[[int], M], n_max: int) -> M:
    sizes = [min(size, n_max) for size in GROUPS]
    for size in sizes[:-1]:
        try:
            return make(size)
        except InvalidSettingError as error:
            if "rounding" not in str(error):
                raise
    return make(sizes[-1])
