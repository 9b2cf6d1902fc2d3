"""The robust tensor power method as printed: Wang & Anandkumar (2016), Algorithm 1.

Also Anandkumar et al. (2014), Algorithm 1: random restarts, power iteration ``u <- T(I, u, u)``,
the best restart is kept and deflated. It answers `DeflatedPower` exactly, for any
`SymmetricTensor` of any order, and says of each component whether it was found.
`streamlda.spectral.tensor_power` has the method of the engine; without noise both find the same.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import require
from streamlda.papers.wang_anandkumar.tensors import DenseTensor, SymmetricTensor
from streamlda.spectral.power import DeflatedPower, unit_columns

Array = NDArray[np.float64]

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

    Time k (R + 1) answers at L columns each, memory O(d (k + L)) beside the tensor.

    Parameters
    ----------
    tensor : SymmetricTensor or ndarray of shape (d, ..., d)
    n_components : int
        k, at most d.
    n_restarts, n_iterations : int, optional
        L and R; `suggest_restarts` and `suggest_iterations` if left out.
    seed : int
        Of the random starts.
    noise_floor : float, optional
        At least 0, in units of the eigenvalues: one that is not larger is not called found. The
        operator norm of the noise is a sound choice: no noise alone has a larger eigenvalue.

    Returns
    -------
    PowerResult

    Raises
    ------
    InvalidSettingError
        If a number is out of range, or an array is not symmetric and finite.
    InvalidDocumentsError
        If a tensor answers with NaN or infinity.
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
