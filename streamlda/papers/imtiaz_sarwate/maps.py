"""Projection that sites look at their triples through, once the pairs are known."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

#: What is tried: scales of words and how fast they change, and powers of eigenvalues.
_LEVEL_STEPS, _LEVEL_RATE = 30, 0.2
_POWERS = (0.0, 0.25, 0.5)


def chosen_projection(
    moment: Array, n_columns: int, frequencies: Array, sampling: float, noise: float
) -> Array:
    """Return the projection W through which noisy triples show the topics best.

    Tried are ``W = s U L^(-p)``, with U and L the leading eigenvectors and values of s M s: p = 1/2
    whitens before the noise, p = 0 leaves that to later, and the scale s of a word falls where its
    row is long. Any such projection will do; they differ by what noise does. With r_j the direction
    of eigenvector j of M in the space of W after whitening, R the longest row of W and V the
    whitened projection, the squared relative error of a topic along j is, to first order, about ::

        noise^2 R^6 ||r_j||^4 sum_i L_i ||r_i||^2 / tr M  +  sampling^2 (sum_w M1_w ||V_w||^2)^3

    for noise of one size on all triples of orthonormal directions. The projection with the least
    sum of its root over j, the first term counted as 1 at most, is taken. Time O(d^3) for each of
    `_LEVEL_STEPS` scales.

    M and the frequencies M1 are public, from an earlier release; k is at most the rank of M.
    `sampling` and `noise`, at least 0, are those of the mean of P3(W, W, W): 1 / sqrt(N), and the
    standard deviation of the noise in a packed entry where R = 1.
    """
    leading = slice(None, -n_columns - 1, -1)
    values, vectors = np.linalg.eigh(moment)
    axes, sizes = vectors[:, leading], np.maximum(values[leading], 0.0)
    scale = np.ones(len(moment))
    best, least = axes, math.inf
    for _ in range(_LEVEL_STEPS):
        values, vectors = np.linalg.eigh(scale[:, None] * moment * scale)
        values, vectors = values[leading], vectors[:, leading]
        if values[-1] <= 0:
            break
        V = scale[:, None] * vectors / np.sqrt(values)
        rows = np.linalg.norm(V, axis=1)
        sampled = sampling**2 * float(frequencies @ rows**2) ** 3
        # Columns: the eigenvectors of M in whitened coordinates.
        rotated = V.T @ (axes * np.sqrt(sizes))
        for power in _POWERS:
            W = V * values ** (0.5 - power)
            longest = float(np.linalg.norm(W, axis=1).max())
            squares = np.sum((values[:, None] ** (power - 0.5) * rotated) ** 2, axis=0)
            noisy = (noise * longest**3 * squares) ** 2 * float(sizes @ squares) / sizes.sum()
            error = float(np.sqrt(np.minimum(noisy, 1.0) + sampled).sum())
            if error < least:
                best, least = W, error
        scale = scale * np.maximum(rows / rows.max(), 1e-6) ** -_LEVEL_RATE
        scale /= scale.max()
    return np.ascontiguousarray(best)
