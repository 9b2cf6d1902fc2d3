"""Z-eigenpairs and operator norms of symmetric tensors, by the shifted power method."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import above, at_least, one_of
from streamlda.papers.wang_anandkumar.tensors import SymmetricTensor
from streamlda.spectral.power import unit_columns

Array = NDArray[np.float64]

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
    n_iterations: int = 2000,
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
    at_least(1, n_starts=n_starts, n_iterations=n_iterations)
    above(0, tolerance=tolerance)
    one_of((1, -1), sign=sign)

    def answer(vectors: Array) -> tuple[Array, Array]:
        images, values = tensor.apply(vectors)
        return sign * images, sign * values

    starts = np.random.default_rng(seed).standard_normal((tensor.dimension, n_starts))
    u = unit_columns(starts, starts)
    image, value = answer(u)
    shift, settled = np.zeros(n_starts), np.zeros(n_starts, dtype=np.bool_)
    largest = 0.0
    for _ in range(n_iterations):
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
