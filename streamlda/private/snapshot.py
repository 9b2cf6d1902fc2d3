"""What goes in and out of a private engine: a release that is due, and a finished snapshot."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import InvalidSettingError
from streamlda.privacy.clipping import ClipBounds
from streamlda.privacy.events import GaussianRelease
from streamlda.privacy.noise import Noise
from streamlda.privacy.statement import ReleasedStage
from streamlda.private.stage import Stage
from streamlda.private.topics import PrivateTopics
from streamlda.threads import one_blas_thread

Sums = dict[str, NDArray[np.float64]]


@dataclass(frozen=True, slots=True)
class PendingRelease:
    """A release that is due: what to charge, and how to draw its noise.

    Attributes
    ----------
    stage : str
    first, last : int
        Places of its documents, `last` not included.
    event : GaussianRelease
        What each unit in it pays.
    stddevs : dict of str to float
        Of the noise in each value of a block.
    """

    stage: str
    first: int
    last: int
    event: GaussianRelease
    stddevs: dict[str, float]
    _sums: Stage = field(repr=False)

    def release(self, noise: Noise) -> Sums:
        """Draw the noise and return the noisy sums, after the price is paid.

        Raises
        ------
        InvalidSettingError
            At the second call: fresh noise on the same documents is another release.
        """
        if self._sums.drawn:
            raise InvalidSettingError(
                "noise must be drawn once for a release, got a second draw for "
                f"stage={self.stage!r}; accept what the first returned"
            )
        self._sums.drawn = True
        with one_blas_thread():
            return self._sums.release(noise)


@dataclass(frozen=True, slots=True)
class PrivateSnapshot:
    """Topics of one snapshot and where they come from; all of it may be published.

    Attributes
    ----------
    number : int
        From 1.
    topics : PrivateTopics
    stages : tuple of ReleasedStage
        The releases behind it, for the privacy statement.
    bounds : ClipBounds
    """

    number: int
    topics: PrivateTopics
    stages: tuple[ReleasedStage, ...]
    bounds: ClipBounds
