"""The steps of the spectral algorithm without noise: values of the nodes of `flow`.

Nothing here is private unless what goes in is.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse.linalg

from streamlda.errors import between
from streamlda.papers.dplda.moments import LDAMoments
from streamlda.papers.wang_anandkumar.tensors import DenseTensor
from streamlda.spectral.power import SimultaneousPower
from streamlda.utils.arrays import Array

#: Most words for which all eigenpairs are computed; beyond, the leading ones by Lanczos.
FULL_EIGENPAIRS = 512

#: An eigenvalue of M2 below this share of the largest is raised to it, so that W is finite.
EIGENVALUE_FLOOR = 1e-6

#: Iterations and random starts of the simultaneous power method; the start that explains most of
#: the tensor is kept.
ITERATIONS, RESTARTS = 40, 10


class LeadingPairs(NamedTuple):
    """The k leading eigenpairs of M2: values falling and above 0, vectors of shape (d, k).

    M2 is positive semidefinite up to sampling and noise, so the values are its singular values.
    The entry of largest size of a vector is positive: a fixed sign is needed because W and W^+ may
    come from different releases of M2.
    """

    values: Array
    vectors: Array

    @property
    def whitening(self) -> Array:
        """W = U Sigma^(-1/2), shape (d, k)."""
        return self.vectors / np.sqrt(self.values)

    @property
    def unwhitening(self) -> Array:
        """The transpose of W^+ = Sigma^(1/2) U', shape (d, k)."""
        return self.vectors * np.sqrt(self.values)


class Factors(NamedTuple):
    """Eigenpairs of a whitened tensor: falling values, mu_bar_i as columns."""

    values: Array
    vectors: Array

    @property
    def gap(self) -> float:
        """A quarter of the least gap between neighbouring eigenvalues, 0 after the last."""
        return float(-np.diff(self.values, append=0.0).max() / 4)


def find_leading_pairs(matrix: Array, n: int) -> LeadingPairs:
    """Return the n leading eigenpairs of a symmetric matrix; time O(d^2 n) or so, or O(d^3)."""
    d = len(matrix)
    if d <= FULL_EIGENPAIRS:
        values, vectors = scipy.linalg.eigh(matrix, subset_by_index=(d - n, d - 1))
    else:
        # The edge of a spectrum of noise is crowded: a wide basis needs far fewer products. A fixed
        # start, so that the same released matrix always gives the same topics.
        values, vectors = scipy.sparse.linalg.eigsh(
            matrix, n, which="LA", v0=np.ones(d), tol=1e-6, ncv=min(d, 3 * n + 60)
        )
    order = np.argsort(-values, kind="stable")
    values, vectors = values[order], vectors[:, order]
    largest = np.abs(vectors).argmax(axis=0)
    signs = np.where(vectors[largest, np.arange(len(order))] < 0, -1.0, 1.0)
    least = EIGENVALUE_FLOOR * max(float(values[0]), np.finfo(np.float64).tiny / EIGENVALUE_FLOOR)
    return LeadingPairs(np.maximum(values, least), vectors * signs)


def unwhiten(unwhitening: Array, vectors: Array) -> Array:
    """Return mu_i as rows, each scaled to sum to 1; shape (k, d).

    mu_i is proportional to (W^+)' mu_bar_i; where that sums to less than 0, noise has changed
    its sign, which is changed back.
    """
    topics = (unwhitening @ vectors).T
    sums = topics.sum(axis=1)
    tiny = np.finfo(np.float64).tiny
    return topics / np.where(np.abs(sums) > tiny, sums, 1.0)[:, None]


class SpectralSteps:
    """The nodes of the flow graph for one set of documents, each computed once.

    `n_components` is k, below d; `n_iterations`, `n_restarts` and `seed` of the power method are
    public.
    """

    def __init__(
        self,
        moments: LDAMoments,
        n_components: int,
        n_iterations: int = ITERATIONS,
        n_restarts: int = RESTARTS,
        seed: int = 0,
    ) -> None:
        between(1, moments.n_features - 1, n_components=n_components, remedy="take fewer topics")
        self.moments, self.n_components = moments, n_components
        self._method = n_iterations, n_restarts, seed

    @cached_property
    def pairs(self) -> Array:
        """M2."""
        return self.moments.pairs()

    @cached_property
    def triples(self) -> Array:
        """M3; few words only."""
        return self.moments.triples()

    @cached_property
    def leading_pairs(self) -> LeadingPairs:
        """Singular values and vectors of M2."""
        k = self.n_components
        return LeadingPairs(self._one_more.values[:k], self._one_more.vectors[:, :k])

    @property
    def sigma_next(self) -> float:
        """The singular value of M2 after the k-th."""
        return float(self._one_more.values[-1])

    @cached_property
    def _one_more(self) -> LeadingPairs:
        return find_leading_pairs(self.moments.pairs(), self.n_components + 1)

    @cached_property
    def whitened(self) -> Array:
        """T = M3(W, W, W), symmetric to the last bit."""
        return symmetrised(self.moments.triples_through(self.leading_pairs.whitening))

    @cached_property
    def factors(self) -> Factors:
        """Eigenvalues and mu_bar_i."""
        return self.decompose(self.whitened)

    @cached_property
    def topics(self) -> Array:
        """mu_i before they are projected onto the simplex, shape (k, d)."""
        return unwhiten(self.leading_pairs.unwhitening, self.factors.vectors)

    def decompose(self, tensor: Array) -> Factors:
        """Decompose any whitened tensor, (k, k, k), by the simultaneous power method."""
        queried, (iterations, restarts, seed) = DenseTensor(tensor, 3), self._method
        found = []
        for restart in range(restarts):
            k, own = len(tensor), seed + restart
            method = SimultaneousPower(k, k, n_iterations=iterations, seed=own)
            while not method.finished:
                method.advance(*queried.apply(method.probes))
            values = queried.apply(method.probes)[1]
            order = np.argsort(-values, kind="stable")
            found.append(Factors(values[order], method.probes[:, order]))
        return max(found, key=lambda each: float(np.sum(each.values**2)))


def symmetrised(tensor: Array) -> Array:
    """Return the mean over all orders of the indices."""
    orders = ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
    mean: Array = np.mean([tensor.transpose(order) for order in orders], axis=0)
    return mean
