"""The robust tensor power method on symmetric tensors, as printed and as the engine uses it.

Both are Wang & Anandkumar (2016), Algorithm 1; Anandkumar et al. (2014), Algorithm 1: random
restarts, power iteration ``u <- T(I, u, u)``, the best restart is kept and deflated.

`robust_tensor_power` is Algorithm 1 as printed, for any `SymmetricTensor` of any order: it answers
`DeflatedPower` exactly, and says of each component whether it was found. `tensor_power` is for
small arrays of order 3, as whitening makes them: the best restart gets R iterations more, given
starts are tried too, and last iterations refine each eigenvector against the others, which removes
the error that deflation hands down. Without noise both find the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import at_least, require
from streamlda.spectral.power import DeflatedPower, unit_columns
from streamlda.spectral.tensors import DenseTensor, SymmetricTensor, checked_array

Array = NDArray[np.float64]

Status = Literal["found", "below noise floor", "no eigenvalue above zero", "unfinished"]

#: K0 of WA16 equation 3, which the paper leaves open: with 10, few components get 24 restarts.
LEAST_COUNT = 10

#: An eigenvalue below this share of the largest is the rounding of others.
ROUNDING = 1e-12

#: A component is finished when one more iteration moves its unit vector by less.
SETTLED = 1e-6


class Eigenpairs(NamedTuple):
    """Eigenvalues and eigenvectors of a symmetric tensor, largest first.

    Eigenvectors are unit columns v_i with ``T ~ sum_i lambda_i v_i x v_i x v_i``, signed so that
    lambda_i is positive; it may be negative or near 0 where the tensor holds no further component.
    A column is zero where nothing at all is left of the tensor.
    """

    eigenvalues: Array
    eigenvectors: Array


@dataclass(frozen=True, slots=True)
class PowerResult:
    """Eigenpairs with what became of each, largest eigenvalue first, and L and R as used.

    Eigenvectors are unit columns, signed so that eigenvalues are positive where the order is odd.
    The status is the first that applies of:

    - "no eigenvalue above zero": nothing positive is left of the tensor, up to `ROUNDING`;
    - "below noise floor": the eigenvalue is at most the noise floor;
    - "unfinished": one more iteration would move the vector by more than `SETTLED`;
    - "found": the vector has settled and its eigenvalue stands out.
    """

    eigenvalues: Array
    eigenvectors: Array
    status: tuple[Status, ...]
    n_restarts: int
    n_iterations: int

    @property
    def found(self) -> NDArray[np.bool_]:
        """Which components have the status "found", shape (k,)."""
        return np.array([status == "found" for status in self.status], dtype=np.bool_)


def suggest_restarts(n_components: int) -> int:
    """Return L = max(K0, k) log max(K0, k), WA16 equation 3 with K0 = `LEAST_COUNT`."""
    count = max(LEAST_COUNT, n_components)
    return math.ceil(count * math.log(count))


def suggest_iterations(dimension: int) -> int:
    """Return R = 20 + 4 log d.

    Theorem 2.2 asks for a multiple of log(d lambda_max / error). The error term is the 20: without
    noise the last steps square the error, from a ratio of 0.99 to 1e-16 in 12 steps; with noise it
    shrinks to 0.8 a step at worst.
    """
    return 20 + math.ceil(4 * math.log(max(dimension, 1)))


def robust_tensor_power(
    tensor: SymmetricTensor | Array,
    n_components: int,
    n_restarts: int | None = None,
    n_iterations: int | None = None,
    *,
    seed: int = 0,
    noise_floor: float | None = None,
) -> PowerResult:
    """Decompose a symmetric tensor by WA16 Algorithm 1, and say what was not found.

    L and R are `suggest_restarts` and `suggest_iterations` if left out. An eigenvalue that is not
    larger than the noise floor (in its units) is not called found: the operator norm of the noise
    is a sound choice, for no noise alone has a larger eigenvalue.

    Time k (R + 1) answers at L columns each, memory O(d (k + L)) beside the tensor.
    """
    source = DenseTensor(tensor) if isinstance(tensor, np.ndarray) else tensor
    require(
        noise_floor is None or 0 <= noise_floor < math.inf,
        "the noise floor must be finite and at least 0",
        noise_floor=noise_floor,
        remedy="leave it out to accept every positive eigenvalue",
    )
    method = DeflatedPower(
        source.dimension,
        n_components,
        n_restarts=suggest_restarts(n_components) if n_restarts is None else n_restarts,
        n_iterations=suggest_iterations(source.dimension) if n_iterations is None else n_iterations,
        order=source.order,
        seed=seed,
    )
    while not method.finished:
        method.advance(*source.apply(method.probes))
    return judged(method, source, noise_floor)


def judged(
    method: DeflatedPower, tensor: SymmetricTensor, noise_floor: float | None = None
) -> PowerResult:
    """Give each component of a finished method its status, by one more exact answer."""
    found = method.components()
    values, vectors = found.eigenvalues, found.eigenvectors
    # What the iteration saw of the tensor: less the components found before.
    before = np.triu(vectors.T @ vectors, k=1) ** (tensor.order - 1)
    images = tensor.apply(vectors)[0] - vectors @ (values[:, None] * before)
    onward = unit_columns(images, vectors)
    # Where p is even, a negative eigenvalue turns its vector around at every step.
    apart = (np.linalg.norm(onward - sign * vectors, axis=0) for sign in (1, -1))
    moves = np.minimum(*apart)
    nothing = ROUNDING * max(values.max(), 0.0)

    def status(value: float, move: float) -> Status:
        if value <= nothing:
            return "no eigenvalue above zero"
        if noise_floor is not None and value <= noise_floor:
            return "below noise floor"
        return "found" if move <= SETTLED else "unfinished"

    order = np.argsort(-values, kind="stable")
    return PowerResult(
        values[order],
        vectors[:, order],
        tuple(status(float(values[i]), float(moves[i])) for i in order),
        method.n_restarts,
        method.n_iterations,
    )


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
    residual = _checked(tensor, n_components, n_restarts, n_iterations, n_refinements)
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
    tensor: Array, n_components: int, n_restarts: int, n_iterations: int, n_refinements: int
) -> Array:
    tensor = checked_array(tensor, 3)
    require(
        1 <= n_components <= len(tensor),
        "the number of components must lie between 1 and the side of the tensor",
        n_components=n_components,
        side=len(tensor),
        remedy="ask for fewer, or widen the projection",
    )
    at_least(1, n_restarts=n_restarts, n_iterations=n_iterations)
    at_least(0, n_refinements=n_refinements)
    return tensor


def _checked_start(start: Array | None, d: int) -> Array:
    if start is None:
        return np.empty((d, 0))
    start = np.asarray(start, dtype=np.float64)
    require(
        start.ndim == 2 and len(start) == d and np.isfinite(start).all(),
        "starting vectors must be finite columns as long as the side of the tensor",
        shape=start.shape,
        side=d,
        remedy="leave them out to start at random",
    )
    return start
