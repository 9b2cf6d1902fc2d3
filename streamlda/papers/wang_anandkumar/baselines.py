"""Random-marginal whitening: the usual way to reduce a tensor of low rank, for comparison.

Wang & Anandkumar (2016), appendix B: M(theta) = T(I, I, theta) = sum_i l_i (v_i'theta) v_i v_i' has
the span of the components as its leading eigenspace, so T can be decomposed there, in k dimensions.
The smallest l_i |v_i'theta| is of the order l_min / sqrt(d), so noise above that spoils the span
(Proposition B.1), where the power method on T itself tolerates more.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import between, require
from streamlda.papers.wang_anandkumar.algorithm_1 import PowerResult, as_tensor, robust_tensor_power
from streamlda.papers.wang_anandkumar.tensors import ImplicitTensor, SymmetricTensor
from streamlda.spectral.power import unit_columns

Array = NDArray[np.float64]


def random_marginal(tensor: SymmetricTensor, theta: Array) -> Array:
    """Return M(theta) = T(I, I, theta), shape (d, d), for a tensor of order 3.

    By polarisation, ``4 T(I, e, theta) = T(I, e + theta, e + theta) - T(I, e - theta, e - theta)``:
    exact, at 2 d columns.
    """
    require(
        tensor.order == 3,
        "a marginal over one index must be a matrix",
        order=tensor.order,
        remedy="pass a tensor of order 3",
    )
    basis, across = np.eye(tensor.dimension), theta[:, None]
    plus, minus = (tensor.apply(basis + sign * across)[0] for sign in (1, -1))
    marginal = (plus - minus) / 4
    symmetric: Array = (marginal + marginal.T) / 2
    return symmetric


def random_marginal_power(
    tensor: SymmetricTensor | Array | Sequence[Any],
    n_components: int,
    n_restarts: int | None = None,
    n_iterations: int | None = None,
    *,
    seed: int = 0,
    noise_floor: float | None = None,
) -> PowerResult:
    """Find the span of the components from a random marginal, then decompose within it.

    The span is that of the k eigenvectors of M(theta) of the largest eigenvalues in size. What the
    tensor holds outside the span is lost.

    Parameters
    ----------
    tensor : SymmetricTensor of order 3 or array_like of shape (d, d, d)
    n_components : int
        k, at most d.
    n_restarts, n_iterations, noise_floor
        As in `robust_tensor_power`.
    seed : int
        Of theta and of the random starts. Whether a vector has settled is judged in the span.
    """
    queried = as_tensor(tensor)
    d = queried.dimension
    between(1, d, n_components=n_components)
    # Not the stream of the starts, [seed, i].
    theta = np.random.default_rng([seed, 0, 1]).standard_normal((d, 1))
    marginal = random_marginal(queried, unit_columns(theta, theta)[:, 0])
    span = np.linalg.eigh(marginal @ marginal)[1][:, : -n_components - 1 : -1]
    inner = ImplicitTensor(n_components, lambda u: span.T @ queried.apply(span @ u)[0])
    within = robust_tensor_power(
        inner, n_components, n_restarts, n_iterations, seed=seed, noise_floor=noise_floor
    )
    return dataclasses.replace(within, eigenvectors=span @ within.eigenvectors)
