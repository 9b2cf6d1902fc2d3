"""The tensor power method on small symmetric arrays of order 3, as whitening makes them.

Wang & Anandkumar (2016), Algorithm 1; Anandkumar et al. (2014), Algorithm 1: random restarts, power
iteration ``u <- T(I, u, u)``, the best restart is kept and deflated. Here the best restart gets R
iterations more, given starts are tried too, and last iterations refine each eigenvector against the
others, which removes the error that deflation hands down. `streamlda.papers.wang_anandkumar` has
the algorithm as printed; without noise both find the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamlda.errors import failure, require

Array = NDArray[np.float64]

#: Relative asymmetry above which a tensor is refused.
SYMMETRY_TOLERANCE = 1e-8

#: Columns of one product of `apply_pairs`.
_BLOCK_COLUMNS = 100


class Eigenpairs(NamedTuple):
    """Eigenvalues and eigenvectors of a symmetric tensor, largest first.

    Eigenvectors are unit columns v_i with ``T ~ sum_i lambda_i v_i x v_i x v_i``, signed so that
    lambda_i is positive; it may be negative or near 0 where the tensor holds no further component.
    A column is zero where nothing at all is left of the tensor.
    """

    eigenvalues: Array
    eigenvectors: Array


def tensor_power(
    tensor: Array,
    n_components: int,
    *,
    n_restarts: int = 20,
    n_iterations: int = 15,
    n_refinements: int = 10,
    start: Array | None = None,
    rng: np.random.Generator,
) -> Eigenpairs:
    """Decompose a symmetric third-order tensor into eigenpairs, as whitening makes it.

    From `n_restarts` random starts and the columns of `start`, tried for every component; the best
    of them gets `n_iterations` again. Time O(k d^3 L R) as matrix products, memory O(d^3 + d^2 L).
    """
    residual = checked_array(tensor, 3)
    d = len(residual)
    require(
        1 <= n_components <= d,
        "the number of components must lie between 1 and the side of the tensor",
        n_components=n_components,
        side=d,
        remedy="ask for fewer, or widen the projection",
    )
    start = np.empty((d, 0)) if start is None else start
    # Largest entry 1, so that no norm over- or underflows.
    scale = float(np.abs(residual).max()) or 1.0
    residual = residual / scale
    values = np.zeros(n_components)
    vectors = np.zeros((d, n_components))
    for i in range(n_components):
        starts = _unit(np.hstack([start, rng.standard_normal((d, n_restarts))]))
        found = _iterate(residual, starts, n_iterations, values, vectors)
        best = int(np.argmax(_values(residual, found, values, vectors)))
        vector = _iterate(residual, found[:, [best]], n_iterations, values, vectors)
        values[i] = _values(residual, vector, values, vectors)[0]
        vectors[:, i] = vector[:, 0]
    values = _refine_eigenpairs(residual, values, vectors, n_refinements)
    order = np.argsort(-values, kind="stable")
    return Eigenpairs(scale * values[order], vectors[:, order])


def refine_eigenpairs(tensor: Array, vectors: Array, n_iterations: int = 10) -> Eigenpairs:
    """Improve approximate eigenvectors by power iteration of each against all others.

    In the order of `vectors`, which may have any length. Time O(k d^3) an iteration of all.
    """
    vectors = _unit(vectors)
    values = _values(tensor, vectors, np.zeros(0), vectors[:, :0])
    return Eigenpairs(_refine_eigenpairs(tensor, values, vectors, n_iterations), vectors)


def _refine_eigenpairs(tensor: Array, values: Array, vectors: Array, n_iterations: int) -> Array:
    """Refine the columns of `vectors` in turn, in place; return their eigenvalues."""
    for _ in range(n_iterations):
        for i in range(len(values)):
            others = values.copy()
            others[i] = 0.0
            vectors[:, [i]] = _iterate(tensor, vectors[:, [i]], 1, others, vectors)
            values[i] = _values(tensor, vectors[:, [i]], others, vectors)[0]
    return values


def apply_pairs(tensor: Array, vectors: Array) -> Array:
    """Return T(I, u, u) for each column u of `vectors`, shape (d, n); memory O(d^2 min(n, 100))."""
    d, n = vectors.shape
    images = np.empty((d, n))
    for first in range(0, n, _BLOCK_COLUMNS):
        block = vectors[:, first : first + _BLOCK_COLUMNS]
        products = (block[:, None, :] * block[None, :, :]).reshape(d * d, -1)
        np.matmul(tensor.reshape(d, d * d), products, out=images[:, first : first + _BLOCK_COLUMNS])
    return images


def _apply_deflated(tensor: Array, vectors: Array, values: Array, found: Array) -> Array:
    """Apply the tensor less ``sum_j values[j] found_j x found_j x found_j``, never formed."""
    return apply_pairs(tensor, vectors) - (found * values) @ (found.T @ vectors) ** 2


def _iterate(
    tensor: Array, vectors: Array, n_iterations: int, values: Array, found: Array
) -> Array:
    for _ in range(n_iterations):
        vectors = _unit(_apply_deflated(tensor, vectors, values, found))
    return vectors


def _values(tensor: Array, vectors: Array, values: Array, found: Array) -> Array:
    applied = _apply_deflated(tensor, vectors, values, found)
    eigenvalues: Array = np.einsum("dn,dn->n", vectors, applied)
    return eigenvalues


def _unit(vectors: Array) -> Array:
    # A zero column stays zero: its eigenvalue is then 0, which the caller sees.
    norms = np.maximum(np.linalg.norm(vectors, axis=0), np.finfo(np.float64).tiny)
    unit: Array = vectors / norms
    return unit


def checked_array(array: ArrayLike, order: int | None = None) -> Array:
    """Return a tensor as a contiguous array if it is symmetric and finite, and of this order."""
    checked: Array = np.ascontiguousarray(array, dtype=np.float64)
    if len(set(checked.shape)) != 1 or checked.ndim != (order or max(checked.ndim, 3)):
        sides = "three equal sides" if order in (None, 3) else f"{order} equal sides"
        raise failure(
            f"a symmetric tensor must have {sides}",
            shape=checked.shape,
            remedy="pass T(W, W, W) of one projection W",
        )
    check_finite(checked)
    scale = float(np.abs(checked).max(initial=0.0))
    # Swaps of neighbouring axes make up every order of the axes.
    for axis in range(checked.ndim - 1):
        gaps = np.abs(checked - checked.swapaxes(axis, axis + 1))
        if gaps.max(initial=0.0) > SYMMETRY_TOLERANCE * scale:
            first = np.unravel_index(np.argmax(gaps > SYMMETRY_TOLERANCE * scale), gaps.shape)
            partner = _swapped(first, axis)
            raise failure(
                f"a tensor must be symmetric, got largest_difference={gaps.max():.3g} "
                f"largest_entry={scale:.3g} first_entry={_text(first)} unlike={_text(partner)}",
                remedy="average it over all orders of its indices, or embed it by `symmetrised`",
            )
    return checked


def _swapped(index: Sequence[np.intp], axis: int) -> list[np.intp]:
    swapped = list(index)
    swapped[axis], swapped[axis + 1] = swapped[axis + 1], swapped[axis]
    return swapped


def _text(index: Sequence[np.intp]) -> str:
    return f"({', '.join(str(int(i)) for i in index)})"


def check_finite(array: Array) -> None:
    """Raise unless all entries are finite."""
    require(
        np.isfinite(array).all(),
        "a tensor must be finite, got NaN or infinite entries",
        remedy="check what it was made from",
    )
