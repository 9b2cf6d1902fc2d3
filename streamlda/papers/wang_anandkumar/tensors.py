"""Symmetric tensors, by what a power method needs of them: T(I, u, ..., u) at many u at once.

A tensor may be an array (`DenseTensor`), a sum of powers of vectors (`FactoredTensor`), or any
function (`SymmetricTensor`); one that is not symmetric is embedded in one that is (`symmetrised`).
Z-eigenpairs and operator norms are found by the shifted power method.
"""

from collections.abc import Callable
from itertools import permutations
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamlda.errors import at_least, require
from streamlda.papers.faults import check
from streamlda.spectral.power import unit_columns
from streamlda.utils.arrays import Array

#: Relative asymmetry above which a tensor is refused.
SYMMETRY_TOLERANCE = 1e-8


class SymmetricTensor:
    """A symmetric tensor T of order p over d dimensions, known by a function alone.

    The function takes columns u, shape (d, L), and returns T(I, u, ..., u), shape (d, L).
    """

    def __init__(self, dimension: int, images: Callable[[Array], Array], order: int = 3) -> None:
        at_least(3, order=order, remedy="a matrix has its own eigenvectors")
        self.dimension, self.order, self._images = dimension, order, images

    def apply(self, vectors: Array) -> tuple[Array, Array]:
        """Return T(I, u, ..., u), shape (d, L), and T(u, ..., u), shape (L,), at L columns u."""
        images = np.asarray(self._images(vectors), dtype=np.float64)
        values: Array = np.einsum("dn,dn->n", vectors, images)
        return images, values


class DenseTensor(SymmetricTensor):
    """A symmetric array, stored with one index for each set of the last p - 1 (half, for p = 3).

    Parameters
    ----------
    array : array_like of shape (d, ..., d)
        Finite and symmetric; copied.
    order : int, optional
        p, to hold the array to; its number of axes by default.
    """

    def __init__(self, array: ArrayLike, order: int | None = None) -> None:
        checked = check_array(array, order)
        others = checked.shape[1:]
        tuples = np.sort(np.indices(others).reshape(len(others), -1), axis=0)
        # A sorted tuple stands for all its orders; how many these are is its weight.
        codes, weights = np.unique(np.ravel_multi_index(tuple(tuples), others), return_counts=True)
        sets = np.unravel_index(codes, others)
        packed = checked.reshape(len(checked), -1)[:, codes] * weights

        def images(vectors: Array) -> Array:
            products = vectors[sets[0]]
            for index in sets[1:]:
                products = products * vectors[index]
            return packed @ products

        super().__init__(len(checked), images, checked.ndim)


def check_array(array: ArrayLike, order: int | None = None) -> Array:
    """Return a tensor as a contiguous array if it is symmetric and finite, and of this order."""
    checked: Array = np.ascontiguousarray(array, dtype=np.float64)
    order = order or max(checked.ndim, 3)
    require(
        len(set(checked.shape)) == 1 and checked.ndim == order,
        f"a symmetric tensor has not {'three' if order == 3 else order} equal sides",
        shape=checked.shape,
        remedy="pass T(W, W, W) of one projection W",
    )
    most = SYMMETRY_TOLERANCE * np.abs(checked).max(initial=0.0)
    # Swaps of neighbouring axes make up every order of the axes.
    for axis in range(order - 1):
        gap = float(np.abs(checked - checked.swapaxes(axis, axis + 1)).max(initial=0.0))
        check(gap <= most, "symmetry", largest_difference=gap)
    return checked


class FactoredTensor(SymmetricTensor):
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
        values, v = (np.array(each, dtype=np.float64) for each in (eigenvalues, eigenvectors))
        power = order - 1
        super().__init__(len(v), lambda u: v @ (values[:, None] * (v.T @ u) ** power), order)


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
    ends = np.cumsum(given.shape)
    blocks = [slice(end - side, end) for end, side in zip(ends, given.shape, strict=True)]
    whole = np.zeros((ends[-1],) * 3)
    for order in permutations(range(3)):
        whole[tuple(blocks[i] for i in order)] = given.transpose(order)
    return DenseTensor(whole)


#: Steps of a climb at most.
MOST_CLIMBS = 2000

#: Values of T(u, ..., u) that differ by less than this share of the norm are taken as equal.
ROUNDING = 1e-14


class ZEigenpairs(NamedTuple):
    """T(I, u, ..., u) = l u for each start, largest l first; `settled` below the tolerance."""

    eigenvalues: Array
    eigenvectors: Array
    settled: NDArray[np.bool_]


def z_eigenpairs(
    tensor: SymmetricTensor,
    n_starts: int = 50,
    seed: int = 0,
    *,
    sign: int = 1,
    tolerance: float = 1e-8,
) -> ZEigenpairs:
    """Climb ``sign * T(u, ..., u)`` from random starts by the shifted power method (SS-HOPM).

    ``u <- (T(I, u, ..., u) + a u) / ||...||``. For a large enough shift every step climbs [1]_; a
    small one climbs faster. Here each start has its own shift: it grows when a step would lead
    down, which is then not taken, and is halved when it leads up. That is the adaptive shift of
    [2]_, judged by the step itself and not by the least eigenvalue of the Hessian, which would cost
    a d x d decomposition a step.

    With sign -1 the least eigenvalues are found. `tolerance` is of the residual
    ``||T(I, u, ..., u) - l u||``, in units of the largest ``||T(I, u, ..., u)||`` met; the error of
    an eigenvalue is of second order in it.

    References
    ----------
    .. [1] Kolda, Mayo (2011), "Shifted power method for computing tensor eigenpairs", SIMAX 32.
    .. [2] Kolda, Mayo (2014), "An adaptive shifted power method for computing generalized tensor
       eigenpairs", SIMAX 35.
    """

    def answer(vectors: Array) -> tuple[Array, Array]:
        images, values = tensor.apply(vectors)
        return sign * images, sign * values

    starts = np.random.default_rng(seed).standard_normal((tensor.dimension, n_starts))
    u = unit_columns(starts, starts)
    image, value = answer(u)
    shift, settled = np.zeros(n_starts), np.zeros(n_starts, dtype=np.bool_)
    largest = 0.0
    for _ in range(MOST_CLIMBS):
        # A bound of the operator norm from below, at which rounding and residuals are measured.
        largest = max(largest, float(np.linalg.norm(image, axis=0).max()))
        residual = np.linalg.norm(image - value * u, axis=0)
        settled = residual <= tolerance * largest
        going = np.flatnonzero(~settled)
        if not len(going):
            break
        old = u[:, going]
        moved = unit_columns(image[:, going] + shift[going] * old, old)
        its_image, its_value = answer(moved)
        # Near a top values differ by the square of residuals: below rounding these decide.
        climbed = its_value - value[going]
        nearer = np.linalg.norm(its_image - its_value * moved, axis=0) < residual[going]
        up = (climbed > ROUNDING * largest) | ((climbed >= -ROUNDING * largest) & nearer)
        taken = going[up]
        u[:, taken], image[:, taken], value[taken] = moved[:, up], its_image[:, up], its_value[up]
        shift[taken] /= 2
        back = going[~up]
        shift[back] = 2 * shift[back] + 0.1 * largest
    order = np.argsort(-value, kind="stable")
    return ZEigenpairs(sign * value[order], u[:, order], settled[order])


def operator_norm(
    tensor: SymmetricTensor, n_starts: int = 50, seed: int = 0, *, tolerance: float = 1e-8
) -> float:
    """Return the largest |T(u, ..., u)| over unit u that climbing from random starts finds.

    For a symmetric tensor that is ``||T||_op`` (Banach). To find it is NP-hard in general, so this
    is a lower bound; it is attained at a vector, and exact as soon as one start climbs the highest
    top. Both signs are tried where p is even; where p is odd, -u has the value of the other sign.

    Parameters
    ----------
    tensor : SymmetricTensor
    n_starts, seed, tolerance
        As in `z_eigenpairs`.
    """
    signs = (1,) if tensor.order % 2 else (1, -1)
    tops = (
        z_eigenpairs(tensor, n_starts, seed, sign=sign, tolerance=tolerance).eigenvalues[0]
        for sign in signs
    )
    return float(max(abs(top) for top in tops))
