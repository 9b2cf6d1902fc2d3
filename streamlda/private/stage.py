"""One stage: the sums of the documents at its record slots, and their release."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidDocumentsError, require, require_state
from streamlda.guarantee.matrix_mechanism import BufferedToeplitz
from streamlda.guarantee.mechanism import Array, Block, Counts, JointGaussian
from streamlda.guarantee.noise import Noise
from streamlda.guarantee.sums import Contribution, Sums
from streamlda.guarantee.users import UserBound
from streamlda.privacy.prefix_release import SAME_NOISE, PrefixRelease
from streamlda.private.contributions import Statistic, View
from streamlda.private.settings import PrivateSettings
from streamlda.utils.threads import one_blas_thread

#: Doubles that statistics return at a time, about: 4 MiB.
DOUBLES = 2**19


class Stage:
    """Sums of the statistics of one stage, over the slots from `first` to before `last`.

    With a `prefix`, its release is that of this round and all rounds before.
    """

    def __init__(
        self,
        name: str,
        first: int,
        last: int,
        statistics: Sequence[Statistic],
        mechanism: JointGaussian,
        *,
        by_user: bool = False,
        prefix: PrefixRelease | None = None,
    ) -> None:
        self.name, self.first, self.last = name, first, last
        self.mechanism, self.statistics = mechanism, statistics
        self.drawn = False  # Whether its release was made.
        self.sums = Sums(mechanism, by_user=by_user)
        self.prefix = prefix
        self._round = 0 if prefix is None else prefix.rounds + 1

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
        step = math.ceil(DOUBLES / max(1.0, doubles))
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
        """Draw the noise and return the noisy sums, after the price is paid; once."""
        require(
            not self.drawn,
            "the noise of a release was drawn: more on the same documents is another release",
            stage=self.name,
            remedy="accept what the first draw returned",
        )
        self.drawn = True
        with one_blas_thread():
            if self.prefix is None:
                return self.mechanism.release_grid(self.sums.aggregates, noise)
            return self.prefix.step(self.mechanism.from_grid(self.sums.aggregates), noise)

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
        fits = found == expected and 0 <= slots <= last - self.first <= self.last - self.first
        require_state(fits, stage=self.name, slots=slots, last=last, sums=found, expected=expected)
        for name, sigma in (stddevs or {}).items():
            same = math.isclose(sigma, self.stddevs()[name], rel_tol=SAME_NOISE)
            require_state(same, block=name, stddev="of other noise")
        self.sums.aggregates = {name: sums[name].copy() for name in expected}
        self.sums.slots, self.last = slots, last
        if users is not None:
            self.sums.users = UserBound.from_state(users)

    def stddevs(self) -> dict[str, float]:
        """Return the standard deviation of the noise in each value of a block of the release."""
        if self.prefix is None:
            return dict(self.mechanism.stddevs)
        return self.prefix.stddevs(self._round)


def check_rows(batch: DocumentBatch, n_features: int) -> None:
    """Refuse rows of other columns, or of weights."""
    batch.check_features(n_features, "engine")
    require(
        np.array_equal(batch.counts, np.rint(batch.counts)),
        "counts of a private run are not whole",
        remedy="pass counts of words, not weights",
        error=InvalidDocumentsError,
    )


def joint_mechanism(
    statistics: Sequence[Statistic], n_max: int, settings: PrivateSettings, multiplier: float
) -> JointGaussian:
    """Return the mechanism of a stage of `n_max` slots."""
    return JointGaussian(blocks_of(statistics), multiplier, n_max=n_max, **_unit(settings))


def prefix_mechanism(
    statistics: Sequence[Statistic], n_max: int, settings: PrivateSettings, multiplier: float
) -> PrefixRelease:
    """Return the mechanism of all rounds, of `n_max` slots each.

    A user is in every round and pays for each: the rows are the rounds themselves, so that the last
    sum has the noise of one release of it, which no other rows can be below.
    """
    strategy = BufferedToeplitz(horizon=settings.snapshots)
    if settings.privacy_unit == "user":
        strategy = BufferedToeplitz((), (), settings.snapshots)
    how = {"strategy": strategy, "n_max": n_max, **_unit(settings)}
    return PrefixRelease(blocks_of(statistics), multiplier, **how)


def blocks_of(statistics: Sequence[Statistic]) -> list[Block]:
    """Return the blocks of all statistics of a release."""
    return [block for statistic in statistics for block in statistic.blocks()]


def _unit(settings: PrivateSettings) -> dict[str, Any]:
    return {
        "neighboring_relation": settings.neighboring_relation,
        "documents_per_unit": settings.documents_per_user or 1,
    }
