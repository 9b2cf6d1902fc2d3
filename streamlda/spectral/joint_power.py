"""The tensor power method: all components are turned at once, as products of matrices.

K vectors start at once, from words that are far from each other; a step is ``U <- P(T(I, u, u))``
for all columns u, where P is the nearest matrix with orthonormal columns (the symmetric form of
Wang & Lu's simultaneous iteration [1]_). At last each column is turned by the tensor less all
others, without P: whitening with estimated moments leaves components that are not quite orthogonal.

References
----------
.. [1] Wang, Lu (2017), "Tensor decomposition via simultaneous power iteration", ICML.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy

from streamlda.spectral.power import unit_columns
from streamlda.utils.arrays import Array

#: Components from which on documents in memory answer in place of their triple moment.
MANY_COMPONENTS = 100

#: Most steps of all vectors, the mean cosine between two steps from which on they stand still, and
#: most steps of each against all others.
MOST_STEPS, STILL, N_REFINEMENTS = 30, 0.999, 5


class Eigenpairs(NamedTuple):
    """Eigenvalues and unit eigenvectors (columns) of a symmetric tensor, largest first.

    ``T ~ sum_i lambda_i v_i x v_i x v_i``; an eigenvalue is near 0 where T holds no further one.
    `noise` is the norm of the sampling noise E(I, v_i, v_i).
    """

    eigenvalues: Array
    eigenvectors: Array
    noise: Array


def joint_power(apply: Callable[[Array], tuple[Array, Array]], start: Array) -> Eigenpairs:
    """Return K eigenpairs of a symmetric tensor from as many starts, columns of shape (d, K).

    `apply` returns T(I, u, u) for columns u, and one draw of its sampling noise. Steps end that
    move vectors by less than the noise of their images. A vector on which the tensor is zero has
    the eigenvalue 0. Time that of 3 to 36 calls, and O(d K^2) each; memory O(d K).
    """
    vectors = _orthonormal(start)
    for _ in range(MOST_STEPS):
        images, noise = apply(vectors)
        before, vectors = vectors, _orthonormal(images)
        if _measure_move(before, vectors) < max(1 - STILL, _measure_turn(images, noise, before)):
            break
    images, noise = apply(vectors)
    values = np.sum(vectors * images, axis=0)
    for _ in range(N_REFINEMENTS):
        others = values[:, None] * _across(vectors) ** 2
        before, vectors = vectors, unit_columns(images - vectors @ others, vectors)
        images, noise = apply(vectors)
        others = values[:, None] * _across(vectors) ** 3
        values = np.sum(vectors * images, axis=0) - others.sum(axis=0)
        if _measure_move(before, vectors) < _measure_turn(images, noise, vectors):
            break
    order = np.argsort(-values, kind="stable")
    return Eigenpairs(values[order], vectors[:, order], np.linalg.norm(noise, axis=0)[order])


def exact(apply: Callable[[Array], Array]) -> Callable[[Array], tuple[Array, Array]]:
    """Return answers without noise, for steps until vectors stand still."""
    return lambda vectors: (apply(vectors), np.zeros_like(vectors))


def apply_pairs(tensor: Array, vectors: Array) -> Array:
    """Return T(I, u, u) for each column u of `vectors`, shape (d, n); memory O(d^2 n)."""
    products = vectors[:, None] * vectors[None]
    return np.tensordot(tensor, products, axes=([1, 2], [0, 1]))


def word_starts(whitening: Array) -> Array:
    """Return K words far from each other as columns, from V of shape (d, K); time O(d K^2)."""
    K = whitening.shape[1]
    # A pivoted QR; `scipy.linalg.qr` would copy the triangle, and count from 0.
    chosen = scipy.linalg.lapack.dgeqp3(whitening.T)[1]
    starts = np.ascontiguousarray(whitening[chosen[:K] - 1].T)
    return unit_columns(starts, starts)


def _measure_move(before: Array, after: Array) -> float:
    """Return the mean of 1 - cos of the angles between unit vectors."""
    return float(np.sum((before - after) ** 2, axis=0).mean()) / 2


def _measure_turn(images: Array, noise: Array, otherwise: Array) -> float:
    """Return how far noise turns images, as `_measure_move` counts."""
    return _measure_move(unit_columns(images, otherwise), unit_columns(images + noise, otherwise))


def _across(vectors: Array) -> Array:
    across: Array = vectors.T @ vectors
    np.fill_diagonal(across, 0.0)
    return across


def _orthonormal(vectors: Array) -> Array:
    """Return the nearest matrix with orthonormal columns."""
    left, _, right = np.linalg.svd(vectors, full_matrices=False)
    return np.asarray(left @ right)
