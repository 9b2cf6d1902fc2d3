"""Noise on the edges of the flow graph: symmetric arrays and vectors, on a grid.

Unit, relation and sensitivity are those of the edge (`sensitivity`). Public: shapes, the plan, the
sensitivities used (those of configurations 2 to 4 follow from what Procedure 1 released, and
from sigma_1, which it does not release).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamlda.papers.dplda.calibration import ROUNDINGS, Plan
from streamlda.papers.laplace import release_laplace
from streamlda.papers.symmetric import pack, unpack
from streamlda.privacy.mechanism import Block, JointGaussian
from streamlda.privacy.noise import Noise

Array = NDArray[np.float64]

#: Largest norm of a value with a claimed sensitivity, in units of that.
LOCAL_TERMS = 2.0**20


class Edges:
    """Puts noise on the values that noised edges carry; one call is one release.

    `sensitivities` by edge: l2, or l1 for Laplace noise; finite. `scales` of the noise released so
    far, in an entry that occurs once: standard deviation, or Laplace scale.
    """

    def __init__(
        self, plan: Plan, sensitivities: dict[str, float], n_documents: int, noise: Noise
    ) -> None:
        self._plan, self._sensitivities, self._noise = plan, sensitivities, noise
        self._roundings = ROUNDINGS + n_documents
        self.scales: dict[str, float] = {}

    def symmetric(self, edge: str, array: Array, magnitude: float | None = None) -> Array:
        """Return a symmetric array with noise, symmetric.

        Time about 0.15 us and memory 40 bytes a free entry (Laplace: 3 us, 200 bytes).

        `magnitude`: public bound on the sum of all absolute terms behind it; by default that of a
        value with a claimed sensitivity.
        """
        power = 1.0 if not self._plan.multipliers else 0.5
        noisy = self._noisy(edge, pack(array, power), magnitude)
        return unpack(noisy, len(array), array.ndim, power)

    def vector(self, edge: str, values: Array, magnitude: float | None = None) -> Array:
        """Return values of any shape with noise; `magnitude` as for `symmetric`."""
        return self._noisy(edge, values, magnitude)

    def _noisy(self, edge: str, values: Array, magnitude: float | None) -> Array:
        plan, moved = self._plan, self._sensitivities[edge]
        size = moved * LOCAL_TERMS if magnitude is None else magnitude
        if not plan.multipliers:
            answer = release_laplace(
                values,
                moved,
                plan.pure[edge],
                self._noise,
                magnitude=size,
                roundings=self._roundings,
            )
            self.scales[edge] = answer.scale
            return answer.values
        # A neighbour counts as one contribution more or less, of norm at most the sensitivity;
        # rounding errors are those of as many as make up the magnitude.
        mechanism = JointGaussian(
            [Block(edge, values.shape, moved)],
            plan.multipliers[edge],
            n_max=max(1, math.ceil(1.001 * size / moved)),
            term_roundings=self._roundings,
            roundings=1,
        )
        self.scales[edge] = mechanism.stddevs[edge]
        return mechanism.release({edge: values}, self._noise)[edge]
