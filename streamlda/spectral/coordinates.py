"""Vectors of a power method in whitened coordinates: from one V to the next, and whether sound.

With a whitening V of as many columns as there are topics, a topic mu_i is the vector
a_i ~ V' mu_i, and N = V' M2 V = sum_i a_i a_i' with weights left out. Here is what changes when V
does (`streamlda.engine.power` says when).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamlda.spectral.moments import Moments
from streamlda.spectral.power import unit_columns
from streamlda.spectral.topics import SUPPORT_ANGLE, SpectralTopics
from streamlda.spectral.whitening import centred_pairs
from streamlda.utils.arrays import Arrays

Array = NDArray[np.float64]

#: A direction whose pairs fell below this share of what the warm-up showed was noise: to whiten it
#: again would only enlarge it.
LEAST_PAIR = 0.1


def is_orthogonal_eigenbasis(vectors: Array, images: Array) -> bool:
    """Return whether T(I, v, v) is along v for each v, and they are orthogonal, to 0.5 radians.

    In as many dimensions, only the components themselves are both: a mean of two of them is an
    eigenvector too, but no other one is orthogonal to it, and refining may share one component
    between two equal vectors.
    """
    lengths = np.linalg.norm(images, axis=0)
    along = np.sum(vectors * images, axis=0)
    across = np.abs(vectors.T @ vectors - np.eye(vectors.shape[1]))
    turned_little = bool(np.all(along > np.cos(SUPPORT_ANGLE) * lengths))
    return turned_little and bool(np.all(across < np.sin(SUPPORT_ANGLE)))


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


def warm_start(method: Arrays, before: SpectralTopics, V: Array) -> Arrays:
    """Return the state of a power method that has found these topics, a_i ~ V' mu_i."""
    images = V.T @ before.topics.T
    settings, values = method["settings"].copy(), before.eigenvalues.copy()
    if "vectors" not in method:
        # As many iterations are done as there are to be.
        settings[3] = settings[0]
        return {"settings": settings, "values": values, "probes": _orthonormal(images)}
    vectors = unit_columns(images, np.eye(len(images)))
    # As many components are found as there are to be.
    settings[5] = vectors.shape[1]
    return {"settings": settings, "values": values, "vectors": vectors, "probes": vectors}


def _orthonormal(columns: Array) -> Array:
    """Return orthonormal columns, the first in the direction of the first."""
    directions, corner = np.linalg.qr(columns)
    return np.ascontiguousarray(directions * np.where(np.diag(corner) < 0, -1.0, 1.0))


def pairs_within(moments: Moments, alpha_0: float) -> Array:
    """Return N = V' M2 V over all documents of the sums, shape (k, k); time O(d k^2)."""
    V = moments.whitening
    inner = V.T @ centred_pairs(moments.first_moment(), moments.pair_moment(), V, alpha_0)
    return (inner + inner.T) / 2
