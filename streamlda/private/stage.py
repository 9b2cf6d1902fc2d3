"""One stage: the sums of the documents at its record slots, and their release."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidDocumentsError, require, require_state
from streamlda.guarantee.matrix_mechanism import BufferedToeplitz
from streamlda.guarantee.mechanism import Array, Counts, JointGaussian
from streamlda.guarantee.noise import Noise
from streamlda.guarantee.sums import Contribution, Sums
from streamlda.guarantee.users import UserBound
from streamlda.privacy.events import Approximate
from streamlda.privacy.prefix_release import SAME_NOISE, PrefixRelease
from streamlda.private.contributions import Statistic, View
from streamlda.private.settings import PrivateSettings
from streamlda.utils.threads import one_blas_thread

#: Doubles that statistics return at a time, about: 4 MiB.
DOUBLES = 2**19

#: Fewest documents that they return them of: each call takes time of its own.
LEAST_DOCUMENTS = 16


class Stage:
    """Sums of the statistics of one stage, over the slots from `first` to before `last`."""

    def __init__(
        self,
        name: str,
        first: int,
        last: int,
        statistics: Sequence[Statistic],
        mechanism: JointGaussian,
        *,
        by_user: bool = False,
    ) -> None:
        self.name, self.first, self.last = name, first, last
        self.mechanism = mechanism
        self.drawn = False  # Whether its release was made; see `PendingRelease`.
        self.sums = Sums(mechanism, by_user=by_user)
        self.statistics = statistics

    @property
    def slots_filled(self) -> int:
        """Slots so far."""
        return self.sums.slots

    @property
    def slots_left(self) -> int:
        """Slots that are still to be filled."""
        return self.last - self.first - self.sums.slots

    def add(self, batch: DocumentBatch, users: Sequence[str | bytes | None] | None = None) -> None:
        """Add the documents of a batch of at most `slots_left`; all rows take a slot."""
        n = batch.n_documents
        distinct = batch.n_entries / max(1, n)
        doubles = max(statistic.doubles(distinct) for statistic in self.statistics)
        step = max(LEAST_DOCUMENTS, int(DOUBLES / max(1.0, doubles)))
        for start in range(0, n, step):
            part = batch.rows(start, min(start + step, n))
            view, found = View(part), dict[str, Contribution]()
            with one_blas_thread():
                for statistic in self.statistics:
                    found |= statistic.contributions(view)
            whose = None if users is None else users[start : start + step]
            self.sums.add(found, part.n_documents, whose)

    def skip(self, n: int) -> None:
        """Leave slots empty, at most `slots_left`: the same sums as from as many blank rows."""
        self.sums.skip(n)

    def release(self, noise: Noise) -> dict[str, Array]:
        """Return the sums with noise; see `JointGaussian.release_grid`."""
        return self.mechanism.release_grid(self.sums.aggregates, noise)

    def state(self) -> dict[str, Counts]:
        """Return copies of the raw sums, in steps of the grid: to be kept secret."""
        return {name: counts.copy() for name, counts in self.sums.aggregates.items()}

    def restore(
        self,
        sums: Mapping[str, NDArray[Any]],
        slots: int,
        last: int,
        users: Mapping[str, NDArray[Any]] | None = None,
        stddevs: Mapping[str, float] | None = None,
    ) -> None:
        """Resume from what `state` returned, with the slots that were filled and users then.

        Steps of sums follow from the noise, so that of then must be that of now.
        """
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
        for name, sigma in (stddevs or {}).items():
            same = math.isclose(sigma, self.stddevs()[name], rel_tol=SAME_NOISE)
            require_state(same, block=name, stddev="of other noise")
        self.sums.aggregates = {name: sums[name].copy() for name in expected}
        self.sums.slots, self.last = slots, last
        if users is not None:
            self.sums.users = UserBound.from_state(users)

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
        *,
        by_user: bool = False,
    ) -> None:
        super().__init__(name, first, last, statistics, prefix.mechanism, by_user=by_user)
        self._prefix = prefix
        self._round = prefix.rounds + 1

    def release(self, noise: Noise) -> dict[str, Array]:
        """Return the noisy sums of this and all earlier rounds."""
        return self._prefix.step(self.mechanism.from_grid(self.sums.aggregates), noise)

    def stddevs(self) -> dict[str, float]:
        """Return those of the prefix sum that the release of this round gives, or gave."""
        return self._prefix.stddevs(self._round)


def check_rows(batch: DocumentBatch, n_features: int) -> None:
    """Refuse rows of other columns, or of weights."""
    batch.check_features(n_features, "engine")
    require(
        np.array_equal(batch.counts, np.rint(batch.counts)),
        "a private run must be given whole counts",
        remedy="pass counts of words, not weights",
        error=InvalidDocumentsError,
    )


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
    """Return the mechanism of a stage of `n_max` slots."""
    blocks = [block for statistic in statistics for block in statistic.blocks()]
    return JointGaussian(blocks, multiplier, n_max=n_max, **_unit(settings))


def prefix_mechanism(
    statistics: Sequence[Statistic], n_max: int, settings: PrivateSettings, multiplier: float
) -> PrefixRelease:
    """Return the mechanism of all rounds, of `n_max` slots each.

    A user is in every round and pays for each, so the rows are the rounds themselves: that gives
    the last sum the noise of one release of it, which no other rows can be below.
    """
    blocks = [block for statistic in statistics for block in statistic.blocks()]
    strategy = BufferedToeplitz(horizon=settings.snapshots)
    if settings.privacy_unit == "user":
        strategy = BufferedToeplitz((), (), settings.snapshots)
    return PrefixRelease(blocks, multiplier, strategy=strategy, n_max=n_max, **_unit(settings))


def _unit(settings: PrivateSettings) -> dict[str, Any]:
    return {
        "neighboring_relation": settings.neighboring_relation,
        "documents_per_unit": settings.documents_per_user or 1,
    }
