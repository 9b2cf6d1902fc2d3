"""Free entries of symmetric arrays: what noise is put on, once each."""

from itertools import permutations
from math import comb

import numpy as np
from numpy.typing import NDArray

from streamlda.utils.arrays import Array

Index = tuple[NDArray[np.intp], ...]


def count_free(d: int, ndim: int) -> int:
    """Return how many entries of a symmetric array with sides d are free."""
    return comb(d + ndim - 1, ndim)


def find_free(d: int, ndim: int) -> tuple[Index, Array]:
    """Return i <= j (<= k), and how many orders each has: 1 or 2, and 1, 3 or 6."""
    if ndim == 2:
        i, j = np.triu_indices(d)
        return (i, j), np.where(i == j, 1.0, 2.0)
    side = np.arange(d)
    i, j, k = np.nonzero((side[:, None, None] <= side[:, None]) & (side[:, None] <= side))
    return (i, j, k), np.array([1.0, 3.0, 6.0])[(i < j).astype(int) + (j < k)]


def pack(array: Array, power: float) -> Array:
    """Return the free entries of a symmetric array, each times its number of orders ** power.

    With power 1/2 the Euclidean norm of the result is the Frobenius norm of the array; with power
    1 the l1 norms are equal; with power 0 entries are as they are. Memory 40 bytes a free entry.
    """
    index, orders = find_free(len(array), array.ndim)
    return array[index] * orders**power


def unpack(entries: Array, d: int, ndim: int, power: float) -> Array:
    """Return the symmetric array that `pack` made this of."""
    index, orders = find_free(d, ndim)
    full, values = np.empty((d,) * ndim), entries / orders**power
    for order in permutations(index):
        full[order] = values
    return full
