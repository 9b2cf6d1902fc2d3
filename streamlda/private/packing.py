"""Symmetric arrays as vectors of their different entries, so that noise is drawn once for each.

Entries are scaled by the square root of how often they occur: norms stay Frobenius norms.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from streamlda.utils.arrays import Array


def unpack_pairs(entries: Array, d: int) -> Array:
    """Return the symmetric matrix of an upper triangle, times sqrt(2) off the diagonal."""
    i, j = np.triu_indices(d)
    full = np.empty((d, d))
    full[i, j] = full[j, i] = entries / np.where(i == j, 1.0, np.sqrt(2.0))
    return full


def unpack_triples(entries: Array, t: int) -> Array:
    """Return the symmetric tensor of its entries i <= j <= k, times `scales_of_triples`."""
    i, j, k, scale = _triples(t)
    full = np.empty((t, t, t))
    for a, b, c in ((i, j, k), (i, k, j), (j, i, k), (j, k, i), (k, i, j), (k, j, i)):
        full[a, b, c] = entries / scale
    return full


@lru_cache(maxsize=4)
def scales_of_triples(t: int) -> Array:
    """Return the square root of how often each entry i <= j <= k of a tensor occurs."""
    return _triples(t)[3]


def _triples(t: int) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64], Array]:
    i, j, k = (index.astype(np.int64) for index in np.indices((t, t, t)).reshape(3, -1))
    chosen = (i <= j) & (j <= k)
    i, j, k = i[chosen], j[chosen], k[chosen]
    times = np.where((i == j) & (j == k), 1.0, np.where((i == j) | (j == k), 3.0, 6.0))
    return i, j, k, np.sqrt(times)
