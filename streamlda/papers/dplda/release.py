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
from streamlda.privacy.mechanism import Block, JointGaussian
from streamlda.privacy.noise import Noise

Array = NDArray[np.float64]

#: Largest norm of a value with a claimed sensitivity, in units of that.
LOCAL_TERMS = 2.0**20


def pair_cells(d: int) -> int:
    """Return how many entries of a symmetric matrix are free."""
    return d * (d + 1) // 2


def triple_cells(d: int) -> int:
    """Return how many entries of a symmetric tensor of order 3 are free."""
    return d * (d + 1) * (d + 2) // 6


def pack(array: Array, power: float) -> Array:
    """Return the free entries of a symmetric array, each times its multiplicity ** power.

    With power 1/2 the Euclidean norm of the result is the Frobenius norm of the array; with power
    1 the l1 norms are equal. Memory 8 bytes a free entry for a matrix, 40 for a tensor.
    """
    if array.ndim == 2:
        rows = [array[i, i:].copy() for i in range(len(array))]
        for row in rows:
            row[1:] *= 2.0**power
        return np.concatenate(rows)
    i, j, k, orders = _free_triples(len(array))
    packed: Array = array[i, j, k] * orders**power
    return packed


def unpack(packed: Array, d: int, ndim: int, power: float) -> Array:
    """Return the symmetric array that `pack` made this of."""
    full = np.empty((d,) * ndim)
    if ndim == 2:
        start = 0
        for first in range(d):
            row = packed[start : start + d - first]
            full[first, first] = row[0]
            full[first, first + 1 :] = row[1:] / 2.0**power
            full[first + 1 :, first] = full[first, first + 1 :]
            start += d - first
        return full
    i, j, k, orders = _free_triples(d)
    values = packed / orders**power
    for a, b, c in ((i, j, k), (i, k, j), (j, i, k), (j, k, i), (k, i, j), (k, j, i)):
        full[a, b, c] = values
    return full


def _free_triples(d: int) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp], Array]:
    """Return i <= j <= k, and how many orders each has: 1, 3 or 6."""
    side = np.arange(d)
    free = (side[:, None, None] <= side[:, None]) & (side[:, None] <= side)
    i, j, k = np.nonzero(free)
    return i, j, k, np.array([1.0, 3.0, 6.0])[(i < j).astype(int) + (j < k)]


class Edges:
    """Puts noise on the values that noised edges carry; one call is one release.

    Parameters
    ----------
    plan : Plan
    sensitivities : dict of str to float
        By edge: l2, or l1 for Laplace noise; finite.
    n_documents : int
        N.
    noise : Noise

    Attributes
    ----------
    scales : dict of str to float
        Of the noise released so far, in an entry that occurs once: standard deviation, or Laplace
        scale.
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

        Parameters
        ----------
        edge : str
        array : ndarray of shape (d, d) or (d, d, d)
        magnitude : float, optional
            Public bound on the sum of all absolute terms behind it; by default that of a value
            with a claimed sensitivity.
        """
        power = 1.0 if self._plan.noise_multiplier is None else 0.5
        noisy = self._noisy(edge, pack(array, power), magnitude)
        return unpack(noisy, len(array), array.ndim, power)

    def vector(self, edge: str, values: Array) -> Array:
        """Return values of any shape with noise."""
        return self._noisy(edge, values, None)

    def _noisy(self, edge: str, values: Array, magnitude: float | None) -> Array:
        plan, moved = self._plan, self._sensitivities[edge]
        size = moved * LOCAL_TERMS if magnitude is None else magnitude
        if plan.noise_multiplier is None:
            answer = release_laplace(
                values,
                moved,
                plan.pure_epsilon,
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
            plan.noise_multiplier,
            n_max=max(1, math.ceil(1.001 * size / moved)),
            term_roundings=self._roundings,
            roundings=1,
        )
        self.scales[edge] = mechanism.stddevs[edge]
        return mechanism.release({edge: values}, self._noise)[edge]
