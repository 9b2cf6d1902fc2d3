"""From the moments of a round to topics: whiten, decompose, un-whiten, and say what is noise.

With W any fixed map, M1, G = E P2 W and T = E P3(W, W, W) [1]_, and a = alpha_0::

    G_c = G - a/(a+1) M1 (W'M1)'                          M2 seen through W
    C   = W' G_c = Q L Q'          R = Q_k L_k^(-1/2)     whitening, k leading directions
    T_c = T - a/(a+2) sym3(W'G x W'M1) + 2a^2/((a+1)(a+2)) (W'M1)^(x3)
    T_c(R, R, R) = sum_i lambda_i v_i x v_i x v_i         orthogonal
    mu_i ~ G_c R v_i         alpha_i = 4 a (a+1) / ((a+2)^2 lambda_i^2)

Everything here is a function of the sums alone (post-processing).

References
----------
.. [1] Anandkumar et al. (2014), JMLR 15, section 3.2 and Theorem 4.3.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment

from streamlda.decomposition.tensor_power import Eigenpairs, apply_pairs, tensor_power
from streamlda.moments import Moments
from streamlda.whitening import centred_pairs

Array = NDArray[np.float64]

#: Range in which alpha_0 is looked for.
ALPHA_0_RANGE = (0.01, 100.0)

#: A topic is supported when noise turns its eigenvector by less than this (radians, first order).
SUPPORT_ANGLE = 0.5


@dataclass(frozen=True, slots=True)
class Seen:
    """The moments of a round as read once, before alpha_0 is applied.

    Attributes
    ----------
    documents : int
    first : ndarray of shape (d,)
        M1.
    pairs : ndarray of shape (d, m)
        G.
    triples : ndarray of shape (m, m, m)
        T.
    whitening : ndarray of shape (d, m)
        W.
    pair_noise, triple_noise : ndarrays of shape (m, m) and (m, m, m)
        One draw of the sampling noise of ``W'G`` and T (`Moments.half_differences`).
    """

    documents: int
    first: Array
    pairs: Array
    triples: Array
    whitening: Array
    pair_noise: Array
    triple_noise: Array

    @classmethod
    def of(cls, moments: Moments) -> Seen:
        """Read the moments of a round."""
        return cls(
            moments.documents,
            moments.first_moment(),
            moments.pair_moment(),
            moments.triple_moment(),
            moments.whitening,
            *moments.half_differences(),
        )


@dataclass(frozen=True, slots=True)
class SpectralTopics:
    """Topics of one round with what is known about their reliability.

    Attributes
    ----------
    topics : ndarray of shape (k, d)
        Estimates of mu_i, rows summing to 1; entries may be slightly negative.
    alpha : ndarray of shape (k,)
        Dirichlet parameters, as the eigenvalues give them (their sum need not be alpha_0).
    alpha_0 : float
    eigenvalues : ndarray of shape (k,)
        lambda_i of the whitened triple moment; ``>= 1`` in exact arithmetic.
    eigenvalue_noise : ndarray of shape (k,)
        Norm of the sampling noise E(I, v_i, v_i) at each topic: to first order the eigenvector
        is turned by ``eigenvalue_noise / eigenvalues`` radians.
    pair_eigenvalues : ndarray of shape (m,)
        Eigenvalues of C, largest first.
    pair_noise : float
        Spectral norm of the sampling noise of C.
    documents : int
        Documents behind the estimate.
    """

    topics: Array
    alpha: Array
    alpha_0: float
    eigenvalues: Array
    eigenvalue_noise: Array
    pair_eigenvalues: Array
    pair_noise: float
    documents: int

    @property
    def condition_number(self) -> float:
        """Largest over k-th pair eigenvalue; infinite when the k-th is not positive."""
        last = self.pair_eigenvalues[len(self.alpha) - 1]
        return float(self.pair_eigenvalues[0] / last) if last > 0 else float("inf")

    @property
    def rank_supported(self) -> int:
        """Pair eigenvalues that stand above the sampling noise."""
        return int(np.sum(self.pair_eigenvalues > self.pair_noise))

    @property
    def supported(self) -> NDArray[np.bool_]:
        """Which topics stand above the sampling noise, shape (k,)."""
        return self.eigenvalue_noise < SUPPORT_ANGLE * self.eigenvalues


class Whitened:
    """The moments of a round in k whitened dimensions, for one alpha_0."""

    def __init__(self, seen: Seen, n_components: int, alpha_0: float) -> None:
        W = seen.whitening
        q = W.T @ seen.first
        pairs = W.T @ seen.pairs
        pairs = (pairs + pairs.T) / 2
        self.alpha_0 = alpha_0
        self.centred = centred_pairs(seen.first, seen.pairs, W, alpha_0)
        values, vectors = np.linalg.eigh(pairs - alpha_0 / (alpha_0 + 1) * np.outer(q, q))
        self.pair_eigenvalues = values[::-1]
        usable = self.pair_eigenvalues > np.finfo(np.float64).eps * len(W) * abs(values).max()
        self.rank = int(min(n_components, np.sum(usable)))
        kept = slice(None, self.rank)
        self.map = vectors[:, ::-1][:, kept] / np.sqrt(self.pair_eigenvalues[kept])
        a = alpha_0
        u = self.map.T @ q
        inner = self.map.T @ pairs @ self.map
        self.tensor = (
            _contract(seen.triples, self.map)
            - a / (a + 2) * _sym3(np.multiply.outer(inner, u))
            + 2 * a**2 / ((a + 1) * (a + 2)) * np.multiply.outer(np.multiply.outer(u, u), u)
        )
        self.noise = _contract(seen.triple_noise, self.map)

    def decompose(self, rng: np.random.Generator, start: Array | None = None) -> Eigenpairs:
        """Find the eigenpairs of the whitened tensor."""
        if start is not None and len(start) != self.rank:
            start = None
        return tensor_power(self.tensor, self.rank, start=start, rng=rng)


def alpha_from(eigenvalues: Array, alpha_0: float) -> Array:
    """Return alpha_i = 4 a (a+1) / ((a+2)^2 lambda_i^2), 0 where the eigenvalue is not positive."""
    factor = 4 * alpha_0 * (alpha_0 + 1) / (alpha_0 + 2) ** 2
    positive = eigenvalues > 0
    alpha = np.zeros_like(eigenvalues)
    alpha[positive] = factor / eigenvalues[positive] ** 2
    return alpha


def _contract(tensor: Array, R: Array) -> Array:
    """Return T(R, R, R) as three matrix products."""
    for _ in range(3):
        tensor = np.tensordot(tensor, R, axes=(0, 0))
    return (tensor + tensor.transpose(1, 0, 2) + tensor.transpose(0, 2, 1)) / 3


def _sym3(E: Array) -> Array:
    return E + E.transpose(0, 2, 1) + E.transpose(2, 0, 1)
