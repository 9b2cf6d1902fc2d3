"""Vectors of a power method in whitened coordinates, from one V to the next.

With a whitening V of as many columns as there are topics, a topic mu_i is the vector
a_i ~ V' mu_i, and N = V' M2 V = sum_i a_i a_i' with weights left out. Here is what changes when V
does (`streamlda.engine.power` says when).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamlda.spectral.moments import Moments
from streamlda.spectral.power import unit_columns
from streamlda.spectral.whitening import centred_pairs
from streamlda.utils.arrays import Arrays

Array = NDArray[np.float64]

#: A direction whose pairs fell below this share of what the warm-up showed was noise: to whiten it
#: again would only enlarge it.
LEAST_PAIR = 0.1


def inverse_root(pairs: Array) -> Array:
    """Return N^(-1/2) on directions that are there, and the identity on the others."""
    values, vectors = np.linalg.eigh(pairs)
    scale = np.ones_like(values)
    np.divide(1.0, np.sqrt(np.maximum(values, LEAST_PAIR)), out=scale, where=values >= LEAST_PAIR)
    root: Array = (vectors * scale) @ vectors.T
    return root


def change_basis(method: Arrays, basis: Array) -> Arrays:
    """Return the state of a power method in the coordinates of V `basis`."""
    probes = basis @ method["probes"]
    if "vectors" not in method:
        return {"probes": _orthonormal(probes)}
    vectors = basis @ method["vectors"]
    # l v x v x v with v of length 1 becomes l |v|^3 times such a cube.
    values = method["values"] * np.linalg.norm(vectors, axis=0) ** 3
    return {
        "probes": unit_columns(probes, method["probes"]),
        "vectors": unit_columns(vectors, method["vectors"]),
        "values": values,
    }


def _orthonormal(columns: Array) -> Array:
    """Return orthonormal columns, the first in the direction of the first."""
    directions, corner = np.linalg.qr(columns)
    return np.ascontiguousarray(directions * np.where(np.diag(corner) < 0, -1.0, 1.0))


def pairs_within(moments: Moments, alpha_0: float) -> Array:
    """Return N = V' M2 V over all documents of the sums, shape (k, k); time O(d k^2)."""
    V = moments.whitening
    inner = V.T @ centred_pairs(moments.first_moment(), moments.pair_moment(), V, alpha_0)
    return (inner + inner.T) / 2
