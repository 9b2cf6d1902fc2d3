"""Symmetric tensors, by what a power method needs of them: T(I, u, ..., u) at many u at once.

A tensor may be an array (`DenseTensor`), a sum of powers of vectors (`FactoredTensor`), or any
function (`ImplicitTensor`); one that is not symmetric is embedded in one that is (`symmetrised`).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamlda.checks import at_least, require
from streamlda.spectral.tensor_power import check_finite, checked_array

Array = NDArray[np.float64]


class SymmetricTensor(Protocol):
    """A symmetric tensor T of order p over d dimensions."""

    @property
    def dimension(self) -> int:
        """Return d."""

    @property
    def order(self) -> int:
        """Return p, at least 3."""

    def apply(self, vectors: Array) -> tuple[Array, Array]:
        """Return T(I, u, ..., u), shape (d, L), and T(u, ..., u), shape (L,), at L columns u."""


class DenseTensor:
    """A symmetric array, stored with one index for each set of the last p - 1 (half, for p = 3).

    Parameters
    ----------
    array : array_like of shape (d, ..., d)
        Finite and symmetric; copied.
    order : int, optional
        p, to hold the array to; its number of axes by default.
    """

    def __init__(self, array: ArrayLike, order: int | None = None) -> None:
        checked = checked_array(array, order)
        self.dimension, self.order = len(checked), checked_order(checked.ndim)
        others = (self.dimension,) * (self.order - 1)
        tuples = np.sort(np.indices(others).reshape(self.order - 1, -1), axis=0)
        # A sorted tuple stands for all its orders; how many these are is its weight.
        codes, weights = np.unique(np.ravel_multi_index(tuple(tuples), others), return_counts=True)
        self._sets = np.unravel_index(codes, others)
        self._packed = checked.reshape(self.dimension, -1)[:, codes] * weights

    def apply(self, vectors: Array) -> tuple[Array, Array]:
        """Return T(I, u, ..., u) and T(u, ..., u) at the columns u."""
        products = vectors[self._sets[0]]
        for index in self._sets[1:]:
            products = products * vectors[index]
        return _answer(self._packed @ products, vectors)


class FactoredTensor:
    """T = sum_i l_i v_i x ... x v_i, never formed: time and memory O(d k) a column.

    Parameters
    ----------
    eigenvalues : array_like of shape (k,)
        l_i.
    eigenvectors : array_like of shape (d, k)
        v_i as columns; eigenpairs of T where these are orthonormal.
    order : int, default 3
        p.
    """

    def __init__(self, eigenvalues: ArrayLike, eigenvectors: ArrayLike, order: int = 3) -> None:
        self._values = np.array(eigenvalues, dtype=np.float64)
        self._vectors = np.array(eigenvectors, dtype=np.float64)
        require(
            self._vectors.ndim == 2 and self._values.shape == self._vectors.shape[1:],
            "there must be one eigenvalue for each column",
            eigenvalues=self._values.shape,
            eigenvectors=self._vectors.shape,
            remedy="pass k numbers and a d by k matrix",
        )
        check_finite(self._values)
        check_finite(self._vectors)
        self.dimension, self.order = len(self._vectors), checked_order(order)

    def apply(self, vectors: Array) -> tuple[Array, Array]:
        """Return T(I, u, ..., u) and T(u, ..., u) at the columns u."""
        across = self._vectors.T @ vectors
        images = self._vectors @ (self._values[:, None] * across ** (self.order - 1))
        return _answer(images, vectors)


class ImplicitTensor:
    """A tensor known by a function alone, from columns u, shape (d, L), to T(I, u, ..., u)."""

    def __init__(self, dimension: int, apply: Callable[[Array], Array], order: int = 3) -> None:
        at_least(1, dimension=dimension)
        self.dimension, self.order, self._apply = dimension, checked_order(order), apply

    def apply(self, vectors: Array) -> tuple[Array, Array]:
        """Return T(I, u, ..., u) and T(u, ..., u) at the columns u."""
        images = np.asarray(self._apply(vectors), dtype=np.float64)
        require(
            images.shape == vectors.shape,
            "an image must be as long as its vector",
            images=images.shape,
            vectors=vectors.shape,
            remedy="correct the function",
        )
        return _answer(images, vectors)


def symmetrised(array: ArrayLike) -> DenseTensor:
    """Embed a d1 x d2 x d3 tensor in a symmetric one, whose eigenvectors hold its triples.

    C has side d1 + d2 + d3, block (1, 2, 3) is A, the other orders of 1, 2, 3 are its transposes,
    all other blocks are 0 [1]_. With x = (u, v, w) it follows that C(x, x, x) = 6 A(u, v, w) and
    C(I, x, x) = 2 (A(I, v, w), A(u, I, w), A(u, v, I)). So (s; u, v, w), s > 0, is a singular
    triple of A exactly if (2 s / sqrt 3, (u, v, w) / sqrt 3) is an eigenpair of C; the operator
    norm of C is 2 / sqrt 3 that of A.

    Each triple makes four eigenvectors, (u, v, w) and those with two signs changed, which are not
    orthogonal: to find more triples, subtract one from A, not from C. The power method without a
    shift turns the blocks the right way but swaps their lengths at every step; `z_eigenpairs`
    settles. Time and memory O((d1 + d2 + d3)^3).

    Parameters
    ----------
    array : array_like of shape (d1, d2, d3)

    References
    ----------
    .. [1] Ragnarsson, Van Loan (2013), "Block tensors and symmetric embeddings", Linear Algebra
       and its Applications 438, 853-874.
    """
    given = np.array(array, dtype=np.float64)
    require(
        given.ndim == 3 and given.size > 0,
        "an array to embed must have three sides of at least 1",
        shape=given.shape,
        remedy="pass a d1 by d2 by d3 array",
    )
    ends = np.cumsum(given.shape)
    blocks = [slice(end - side, end) for end, side in zip(ends, given.shape, strict=True)]
    whole = np.zeros((ends[-1],) * 3)
    for order in permutations(range(3)):
        whole[tuple(blocks[i] for i in order)] = given.transpose(order)
    return DenseTensor(whole)


def checked_order(order: int) -> int:
    """Return p, which must be at least 3."""
    at_least(3, order=order, remedy="a matrix has its own eigenvectors")
    return order


def _answer(images: Array, vectors: Array) -> tuple[Array, Array]:
    values: Array = np.einsum("dn,dn->n", vectors, images)
    return images, values
