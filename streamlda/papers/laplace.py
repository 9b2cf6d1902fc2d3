"""Noise of textbooks: the Gaussian's formula, and Laplace noise on a grid.

`streamlda.guarantee.noise` draws discrete Gaussians only. Laplace noise, for pure epsilon, is made
here by exact integer sampling [1]_ from uniform bits, and those are the low 32 bits of discrete
Gaussians with sigma = 2^40: over that number of residues a discrete Gaussian is uniform up to
exp(-2 pi^2 2^16), so all that is lost is the sampler's own 2^-60.

References
----------
.. [1] Canonne, Kamath, Steinke (2020), "The discrete Gaussian for differential privacy", NeurIPS,
   algorithm 2.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import between
from streamlda.guarantee.noise import Noise
from streamlda.papers.faults import check
from streamlda.privacy.events import LaplaceRelease
from streamlda.utils.arrays import Array

Counts = NDArray[np.int64]

#: Bound on the total variation distance between one value and the discrete Laplace distribution:
#: an acceptance is rounded by 2^-53, a geometric draw by 2^-53 in all and cut at e^-42; the rest is
#: below 2^-55, and half of all attempts or more are accepted.
TV_DISTANCE_BOUND = 2.0**-50

#: Steps of the grid in the scale of a release, at least; and how much of the sensitivity rounding
#: may cost.
_SCALE_STEPS = 2.0**30
_MAX_INCREASE = 0.01

_UNIT_ROUNDOFF = 2.0**-53
_SIGMA, _LOW_BITS = 2.0**40, 2**32 - 1
_WORD = 2**62

#: P(V >= j) 2^62 for a geometric V with ratio 1/e, from j = 42 down to 1.
_TAILS = np.array([int(math.exp(-j) * _WORD) for j in range(42, 0, -1)], dtype=np.int64)


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """Return sqrt(2 ln(1.25 / delta)) / epsilon, proven for epsilon <= 1 (Dwork & Roth, Thm. A.1).

    All three papers calibrate by it. `streamlda.guarantee.accounting.noise_multiplier` is exact
    and needs less.
    """
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon


class LaplaceAnswer(NamedTuple):
    """Values with Laplace noise, in whole steps of the grid, and what they cost.

    `tv_distance_bound` of all values from exact noise: an epsilon release has delta
    ``(1 + e^epsilon)`` times this.
    """

    values: Array
    scale: float
    event: LaplaceRelease
    tv_distance_bound: float


def release_laplace(
    values: Array,
    l1_sensitivity: float,
    epsilon: float,
    noise: Noise,
    *,
    magnitude: float,
    roundings: int,
) -> LaplaceAnswer:
    """Add Laplace noise of scale l1_sensitivity / epsilon to values on a grid.

    Unit and relation are those of `l1_sensitivity`, the largest l1 distance between the exact
    values of two neighbours. What is added to the noise is the computed values rounded to the grid:
    each neighbour errs by at most half a step a cell, and by ``gamma_R magnitude`` in l1 from R
    roundings; both are added to the sensitivity, and more than 1 % is refused. Public: shape,
    sensitivity, epsilon, magnitude, roundings.

    Parameters
    ----------
    values : ndarray
        Not private; not changed.
    l1_sensitivity : float
        Above 0.
    epsilon : float
        In nats.
    noise : Noise
    magnitude : float
        Public bound on the l1 norm of all absolute terms behind the values.
    roundings : int
        Public bound on the roundings behind one term.
    """
    event = LaplaceRelease(epsilon)
    between(1e-100, 1e100, l1_sensitivity=l1_sensitivity)
    between(0.0, 1e100, magnitude=magnitude)
    exact = float(l1_sensitivity)
    step = math.ldexp(0.5, math.frexp(exact / event.epsilon / _SCALE_STEPS)[1])
    error = roundings * _UNIT_ROUNDOFF
    moved = exact + values.size * step + 2 * error / (1 - error) * magnitude if error < 0.5 else 1e9
    about = {"cells": values.size, "roundings": roundings, "epsilon": event.epsilon}
    check(moved <= exact * (1 + _MAX_INCREASE), "rounding", **about)
    scale = math.ceil(moved / event.epsilon / step * (1 + 2.0**-40))
    check(magnitude <= 2.0**61 * step, "grid", magnitude=magnitude, epsilon=event.epsilon)
    # Exact: the step is a power of two.
    drawn = np.rint(values / step).astype(np.int64) + discrete_laplace(noise, scale, values.shape)
    distance = TV_DISTANCE_BOUND * values.size
    return LaplaceAnswer(drawn.astype(np.float64) * step, scale * step, event, distance)


def discrete_laplace(noise: Noise, scale: int, shape: int | tuple[int, ...] = ()) -> Counts:
    """Draw integers y with mass proportional to exp(-|y| / scale).

    A magnitude is u + scale v, with u uniform below the scale and accepted with probability
    exp(-u / scale), and v geometric with ratio 1/e; then a sign, where -0 is drawn again. All
    values are independent and within 43 scales of zero.
    """
    out = np.empty(shape, dtype=np.int64)
    flat, filled = out.reshape(-1), 0
    while filled < len(flat):
        attempts = min(2**16, 2 * (len(flat) - filled) + 16)
        found = _attempts(noise, scale, attempts)[: len(flat) - filled]
        flat[filled : filled + len(found)] = found
        filled += len(found)
    return out


def _attempts(noise: Noise, scale: int, n: int) -> Counts:
    """Return the values that n attempts yield, in order."""
    first, second, third = (_words(noise, n) for _ in range(3))
    even = first < _WORD - _WORD % scale
    place = first % scale
    # 53 of its bits, against a probability that is right to 2^-53.
    accepted = (second >> 9) < np.ceil(np.exp(-place / scale) * 2.0**53).astype(np.int64)
    # The largest tail that the word is below says how many scales it continues.
    blocks = len(_TAILS) - np.searchsorted(_TAILS, third, side="right")
    magnitude = place + scale * blocks
    negative = (second & 1).astype(bool)
    kept = even & accepted & ~(negative & (magnitude == 0))
    values: Counts = np.where(negative, -magnitude, magnitude)[kept]
    return values


def _words(noise: Noise, n: int) -> Counts:
    """Return n uniform numbers of 62 bits."""
    halves = noise.discrete_gaussian(_SIGMA, (2, n)) & _LOW_BITS
    words: Counts = (halves[0] << 30) | (halves[1] & (2**30 - 1))
    return words
