"""Free entries of symmetric arrays: what noise is put on, once each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


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
    i, j, k, orders = free_triples(len(array))
    packed: Array = array[i, j, k] * orders**power
    return packed


def unpack(packed: Array, d: int, ndim: int, power: float) -> Array:
    """Return the symmetric array that `pack` made this of."""
    if ndim == 3:
        i, j, k, orders = free_triples(d)
        return spread_triples(packed / orders**power, d, i, j, k)
    full = np.empty((d, d))
    start = 0
    for first in range(d):
        row = packed[start : start + d - first]
        full[first, first] = row[0]
        full[first, first + 1 :] = row[1:] / 2.0**power
        full[first + 1 :, first] = full[first, first + 1 :]
        start += d - first
    return full


def spread_triples(values: Array, d: int, i: Indices, j: Indices, k: Indices) -> Array:
    """Return the symmetric tensor of these free entries, at indices of `free_triples`."""
    full = np.empty((d, d, d))
    for a, b, c in ((i, j, k), (i, k, j), (j, i, k), (j, k, i), (k, i, j), (k, j, i)):
        full[a, b, c] = values
    return full


def free_triples(d: int) -> tuple[Indices, Indices, Indices, Array]:
    """Return i <= j <= k, and how many orders each has: 1, 3 or 6."""
    side = np.arange(d)
    free = (side[:, None, None] <= side[:, None]) & (side[:, None] <= side)
    i, j, k = np.nonzero(free)
    return i, j, k, np.array([1.0, 3.0, 6.0])[(i < j).astype(int) + (j < k)]
