"""The robust tensor power method as printed: Wang & Anandkumar (2016), Algorithm 1.

Also Anandkumar et al. (2014), Algorithm 1. Random restarts (line 3), power iteration
``u <- T(I, u, u)`` (line 4), choice of the best restart (line 5, where u^(tau) is a misprint for
u^(tau*)) and deflation (line 6) are those of `DeflatedPower`, which is answered exactly here, for
any `SymmetricTensor` of any order; each component is said to be found or not.
`streamlda.spectral.joint_power` has the method of the engine; without noise both find the same.

Appendix B has random-marginal whitening: M(theta) = T(I, I, theta) = sum_i l_i (v_i'theta)
v_i v_i' has the span of the components as its leading eigenspace, so T can be decomposed there. The
smallest l_i |v_i'theta| is of the order l_min / sqrt(d), so noise above that spoils the span
(Proposition B.1), where the power method on T itself tolerates more.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamlda.papers.wang_anandkumar.tensors import DenseTensor, SymmetricTensor
from streamlda.spectral.power import DeflatedPower, unit_columns
from streamlda.utils.arrays import Array

Status = Literal["found", "below noise floor", "no eigenvalue above zero", "unfinished"]

#: K0 of WA16 equation 3, which the paper leaves open: with 10, few components get 24 restarts.
LEAST_COUNT = 10

#: An eigenvalue below this share of the largest is the rounding of others.
ROUNDING = 1e-12

#: A component is finished when one more iteration moves its unit vector by less.
SETTLED = 1e-6


@dataclass(frozen=True, slots=True)
class PowerResult:
    """Eigenpairs with what became of each, largest eigenvalue first, and L and R as used.

    Eigenvectors are unit columns, signed so that eigenvalues are positive where the order is odd;
    where it is even, an eigenvalue has a sign that no vector changes, and size is what counts. The
    status is the first that applies of:

    - "no eigenvalue above zero": nothing is left of the tensor, up to `ROUNDING`;
    - "below noise floor": the size of the eigenvalue is at most the noise floor;
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
        """True for components of the status "found", shape (k,)."""
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
    tensor: SymmetricTensor | ArrayLike,
    n_components: int,
    n_restarts: int | None = None,
    n_iterations: int | None = None,
    *,
    seed: int = 0,
    noise_floor: float | None = None,
) -> PowerResult:
    """Decompose a symmetric tensor by WA16 Algorithm 1, and say what was not found.

    Time k (R + 1) answers at L columns each; twice that where the order is even, for eigenvalues
    below zero.

    Parameters
    ----------
    tensor : SymmetricTensor or array_like of shape (d, ..., d)
    n_components : int
        k, at most d.
    n_restarts, n_iterations : int, optional
        L and R; `suggest_restarts` and `suggest_iterations` if left out.
    seed : int
        Of the random starts.
    noise_floor : float, optional
        At least 0, in units of the eigenvalues: one that is not larger is not called found. The
        operator norm of the noise is a sound choice: no noise alone has a larger eigenvalue.
    """
    source: Any = tensor if hasattr(tensor, "dimension") else DenseTensor(tensor)
    restarts = suggest_restarts(n_components) if n_restarts is None else n_restarts
    iterations = suggest_iterations(source.dimension) if n_iterations is None else n_iterations

    def decompose(tensor: SymmetricTensor) -> PowerResult:
        d, order = tensor.dimension, tensor.order
        lengths: Any = {"n_restarts": restarts, "n_iterations": iterations}
        method = DeflatedPower(d, n_components, **lengths, order=order, seed=seed)
        while not method.finished:
            method.advance(*tensor.apply(method.probes))
        return judge_components(method, tensor, noise_floor)

    above = decompose(source)
    if source.order % 2:
        return above
    negated = SymmetricTensor(source.dimension, lambda u: -source.apply(u)[0], source.order)
    return largest_of(above, decompose(negated))


def largest_of(above: PowerResult, below: PowerResult) -> PowerResult:
    """Join the components of T and of -T: the k largest in size, what was not found last."""
    k, status = len(above.status), above.status + below.status
    values = np.concatenate([above.eigenvalues, below.eigenvalues])
    missing = np.array([one == "no eigenvalue above zero" for one in status])
    kept = np.lexsort((-values, missing))[:k]
    signs = np.where(np.arange(2 * k) < k, 1.0, -1.0)
    return replace(
        above,
        eigenvalues=(signs * values)[kept],
        eigenvectors=np.hstack([above.eigenvectors, below.eigenvectors])[:, kept],
        status=tuple(status[i] for i in kept),
    )


def judge_components(
    method: DeflatedPower, tensor: SymmetricTensor, noise_floor: float | None = None
) -> PowerResult:
    """Give each component of a finished method its status, by one more exact answer."""
    found = method.components()
    values, vectors = found.eigenvalues, found.eigenvectors
    # What the iteration saw of the tensor: less the components found before.
    before = np.triu(vectors.T @ vectors, k=1) ** (tensor.order - 1)
    images = tensor.apply(vectors)[0] - vectors @ (values[:, None] * before)
    onward = unit_columns(images, vectors)
    # A negative eigenvalue turns its vector around at every step.
    moves = np.linalg.norm(onward - np.where(values < 0, -vectors, vectors), axis=0)
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


def random_marginal(tensor: SymmetricTensor, theta: Array) -> Array:
    """Return M(theta) = T(I, I, theta), shape (d, d), for a tensor of order 3.

    By polarisation, ``4 T(I, e, theta) = T(I, e + theta, e + theta) - T(I, e - theta, e - theta)``:
    exact, at 2 d columns.
    """
    basis, across = np.eye(tensor.dimension), theta[:, None]
    plus, minus = (tensor.apply(basis + sign * across)[0] for sign in (1, -1))
    marginal = (plus - minus) / 4
    return (marginal + marginal.T) / 2


def random_marginal_power(
    tensor: SymmetricTensor | Array,
    n_components: int,
    n_restarts: int | None = None,
    n_iterations: int | None = None,
    *,
    seed: int = 0,
) -> PowerResult:
    """Find the span of the components from a random marginal, then decompose within it.

    The span is that of the k eigenvectors of M(theta) of the largest eigenvalues in size. What the
    tensor holds outside the span is lost.

    Parameters
    ----------
    tensor : SymmetricTensor of order 3 or ndarray of shape (d, d, d)
    n_components : int
        k, at most d.
    n_restarts, n_iterations
        As in `robust_tensor_power`.
    seed : int
        Of theta and of the random starts. Whether a vector has settled is judged in the span.
    """
    queried = DenseTensor(tensor) if isinstance(tensor, np.ndarray) else tensor
    d = queried.dimension
    # Not the stream of the starts, [seed, i].
    theta = np.random.default_rng([seed, 0, 1]).standard_normal((d, 1))
    marginal = random_marginal(queried, unit_columns(theta, theta)[:, 0])
    span = np.linalg.eigh(marginal @ marginal)[1][:, : -n_components - 1 : -1]
    inner = SymmetricTensor(n_components, lambda u: span.T @ queried.apply(span @ u)[0])
    within = robust_tensor_power(inner, n_components, n_restarts, n_iterations, seed=seed)
    return replace(within, eigenvectors=span @ within.eigenvectors)
