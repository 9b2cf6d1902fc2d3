"""The robust tensor power method on a small dense symmetric tensor.

Wang & Anandkumar (2016), Algorithm 1; Anandkumar et al. (2014), Algorithm 1: random restarts,
power iteration ``u <- T(I, u, u)``, the best restart is kept and deflated. A last sweep polishes
each eigenvector against the others, which removes the error that deflation hands down.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import InvalidSettingError

Array = NDArray[np.float64]

#: Relative asymmetry above which a tensor is refused.
SYMMETRY_TOLERANCE = 1e-8


class Eigenpairs(NamedTuple):
    """Eigenvalues and eigenvectors of a symmetric tensor, largest first.

    Attributes
    ----------
    eigenvalues : ndarray of shape (k,)
        lambda_i; may be negative or near 0 where the tensor holds no further component.
    eigenvectors : ndarray of shape (d, k)
        Unit columns v_i with ``T ~ sum_i lambda_i v_i x v_i x v_i``, signed so that lambda_i is
        positive; a zero column where nothing at all is left of the tensor.
    """

    eigenvalues: Array
    eigenvectors: Array


def tensor_power(
    tensor: Array,
    n_components: int,
    *,
    n_restarts: int = 20,
    n_iterations: int = 15,
    n_polish: int = 10,
    start: Array | None = None,
    rng: np.random.Generator,
) -> Eigenpairs:
    """Decompose a symmetric third-order tensor into eigenpairs.

    Time O(k d^3 L R) as matrix products, memory O(d^3 + d^2 L).

    Parameters
    ----------
    tensor : ndarray of shape (d, d, d)
        Symmetric and finite.
    n_components : int
        k, at most d.
    n_restarts : int
        L, random starts for each component.
    n_iterations : int
        R, power iterations for each start; the best start gets as many again.
    n_polish : int
        Sweeps over all components after the last one was found.
    start : ndarray of shape (d, s), optional
        Further starting vectors, tried for every component.
    rng : numpy.random.Generator
        Source of the random starts.

    Returns
    -------
    Eigenpairs

    Raises
    ------
    InvalidSettingError
        If the tensor or a start is not symmetric, finite and of the right shape, or a number is
        out of range.
    """
    residual = _checked(tensor, n_components, n_restarts, n_iterations, n_polish)
    d = len(residual)
    start = _checked_start(start, d)
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
    values = _polish(residual, values, vectors, n_polish)
    order = np.argsort(-values, kind="stable")
    return Eigenpairs(scale * values[order], vectors[:, order])


def polish(tensor: Array, vectors: Array, n_sweeps: int = 10) -> Eigenpairs:
    """Improve approximate eigenvectors by power iteration of each against all others.

    Time O(k d^3) a sweep.

    Parameters
    ----------
    tensor : ndarray of shape (d, d, d)
        Symmetric and finite.
    vectors : ndarray of shape (d, k)
        Approximate eigenvectors, of any length.
    n_sweeps : int
        Iterations of each.

    Returns
    -------
    Eigenpairs
        In the order of `vectors`.
    """
    vectors = _unit(vectors)
    values = _values(tensor, vectors, np.zeros(0), vectors[:, :0])
    return Eigenpairs(_polish(tensor, values, vectors, n_sweeps), vectors)


def _polish(tensor: Array, values: Array, vectors: Array, n_sweeps: int) -> Array:
    """Sweep over the columns of `vectors` in place; return their eigenvalues."""
    for _ in range(n_sweeps):
        for i in range(len(values)):
            others = values.copy()
            others[i] = 0.0
            vectors[:, [i]] = _iterate(tensor, vectors[:, [i]], 1, others, vectors)
            values[i] = _values(tensor, vectors[:, [i]], others, vectors)[0]
    return values


def apply_pairs(tensor: Array, vectors: Array) -> Array:
    """Return T(I, u, u) for each column u of `vectors`, shape (d, n)."""
    d, n = vectors.shape
    products = (vectors[:, None, :] * vectors[None, :, :]).reshape(d * d, n)
    return tensor.reshape(d, d * d) @ products


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


def _checked(
    tensor: Array, n_components: int, n_restarts: int, n_iterations: int, n_polish: int
) -> Array:
    tensor = np.ascontiguousarray(tensor, dtype=np.float64)
    if tensor.ndim != 3 or len(set(tensor.shape)) != 1:
        raise InvalidSettingError(
            f"a symmetric tensor must have three equal sides, got shape={tensor.shape}; "
            "pass T(W, W, W) of one map W"
        )
    if not np.isfinite(tensor).all():
        raise InvalidSettingError(
            "a tensor must be finite, got NaN or infinite entries; check the moments it came from"
        )
    scale = float(np.abs(tensor).max(initial=0.0))
    for axes in ((1, 0, 2), (0, 2, 1)):
        gap = float(np.abs(tensor - tensor.transpose(axes)).max(initial=0.0))
        if gap > SYMMETRY_TOLERANCE * scale:
            raise InvalidSettingError(
                f"a tensor must be symmetric, got largest_difference={gap:.3g} "
                f"largest_entry={scale:.3g}; average it over all orders of its indices first"
            )
    if not 1 <= n_components <= len(tensor):
        raise InvalidSettingError(
            "the number of components must lie between 1 and the side of the tensor, got "
            f"n_components={n_components} side={len(tensor)}; ask for fewer, or widen the map"
        )
    if n_restarts < 1 or n_iterations < 1 or n_polish < 0:
        raise InvalidSettingError(
            "restarts and iterations must be at least 1 and sweeps at least 0, got "
            f"n_restarts={n_restarts} n_iterations={n_iterations} n_polish={n_polish}; "
            "leave them at their defaults"
        )
    return tensor


def _checked_start(start: Array | None, d: int) -> Array:
    if start is None:
        return np.empty((d, 0))
    start = np.asarray(start, dtype=np.float64)
    if start.ndim != 2 or len(start) != d or not np.isfinite(start).all():
        raise InvalidSettingError(
            "starting vectors must be finite columns as long as the side of the tensor, got "
            f"shape={start.shape} side={d}; leave them out to start at random"
        )
    return start
