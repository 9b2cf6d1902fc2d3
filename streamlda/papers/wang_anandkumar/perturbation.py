"""Input perturbation: a tensor is made private once, by noise on every entry, then used freely.

What Wang & Anandkumar (2016), section 4, compare their Algorithm 3 with: the noise of d^3 entries
outgrows a component of d entries, so that epsilon has to grow with d.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import one_of
from streamlda.guarantee.mechanism import Block
from streamlda.guarantee.noise import Noise
from streamlda.papers.rounding import mechanism_of_ratio
from streamlda.papers.symmetric import find_free, unpack
from streamlda.papers.wang_anandkumar.neighbours import Neighbours
from streamlda.papers.wang_anandkumar.noisy import Schedule
from streamlda.privacy.events import GaussianRelease
from streamlda.spectral.tensor_power import checked_array

Array = NDArray[np.float64]


class PerturbedTensor(NamedTuple):
    """A symmetric tensor with noise, free to be used in any way, and what it cost."""

    tensor: Array
    event: GaussianRelease
    private: bool
    tv_distance_bound: float


def perturb_tensor(
    tensor: Array, epsilon: float, delta: float, neighbours: Neighbours, noise: Noise
) -> PerturbedTensor:
    """Add symmetric Gaussian noise to every entry, once: input perturbation.

    Unit and relation are those of neighbours that differ in an entry (`Neighbours("entry")`);
    public are d, epsilon, delta and the magnitude. Let t_ijk, i <= j <= k, be the free entries and
    m the number of orders of (i, j, k): 6, 3 or 1. Neighbours differ in a single free entry, by
    6 / m (6 where i = j = k, 2 where two are equal, else 1). So one vector of ``(m / 6) t_ijk``,
    released by one Gaussian mechanism, has sensitivity 1 exactly, attained by every entry.

    Parameters
    ----------
    tensor : ndarray of shape (d, d, d)
        Symmetric.
    epsilon, delta : float
        epsilon in nats.
    neighbours : Neighbours
    noise : Noise
    """
    checked = checked_array(tensor, 3)
    one_of(("entry",), notion=neighbours.notion, remedy="documents have sums to add noise to")
    assert neighbours.magnitude is not None
    index, orders = find_free(len(checked), 3)
    weights = orders / 6
    multiplier = Schedule(epsilon, delta, neighbours).noise_multiplier(1)
    blocks, roundings = [Block("entries", orders.shape, 1.0)], neighbours.roundings_of(len(checked))
    mechanism = mechanism_of_ratio(blocks, multiplier, neighbours.magnitude, roundings)
    noisy = mechanism.release({"entries": checked[index] * weights}, noise)["entries"] / weights
    full, event = unpack(noisy, len(checked), 3, 0.0), GaussianRelease(multiplier)
    return PerturbedTensor(full, event, noise.secure, mechanism.tv_distance_bound)
