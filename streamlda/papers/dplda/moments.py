"""The moments of LDA as [DP-LDA] estimates them: unbiased, by means over pairs of documents too.

With p1, P2, P3 of a document as in `streamlda.spectral.moments`, N documents, a = alpha_0 and sums
over
*different* documents m, n, o::

    M1 = 1/N sum p1
    M2 = 1/N sum P2 - a/(a+1) 1/(N(N-1)) sum p1_m x p1_n
    M3 = 1/N sum P3 - a/(a+2) 1/(N(N-1)) sym3 sum P2_m x p1_n
         + 2a^2/((a+1)(a+2)) 1/(N(N-1)(N-2)) sum p1_m x p1_n x p1_o

sym3 adds the three places of the vector. Products of *means* would be biased by 1/N, since a
document is not independent of itself. Sums over different documents are sums over all, less those
of documents with themselves, which are sums over documents again.
"""

from functools import cached_property
from typing import NamedTuple

import numpy as np
import scipy.sparse

from streamlda.documents import DocumentBatch
from streamlda.errors import above
from streamlda.papers.faults import check
from streamlda.spectral.moments import Moments, document_weights
from streamlda.utils.arrays import Array

#: Most words for which the triple moment is formed: 17 MB.
DENSE_WORDS = 128

#: Documents, or words, whose outer products are formed at once.
_BLOCK = 1024


class Coefficients(NamedTuple):
    """Weights of M1 x M1 in M2 (subtracted), and of each E P2 x M1 and of M1 x M1 x M1 in M3."""

    squared: float
    mixed: float
    cubed: float


def coefficients(alpha_0: float) -> Coefficients:
    """Return the weights for alpha_0."""
    above(0, alpha_0=alpha_0, remedy="take 1 if it is not known")
    a = float(alpha_0)
    return Coefficients(a / (a + 1), -a / (a + 2), 2 * a * a / ((a + 1) * (a + 2)))


class LDAMoments:
    """Unbiased M1, M2 and M3 of a batch, dense or seen through a projection.

    A document with fewer than three tokens counts as a blank: its p1, P2, P3 are 0, and N counts it
    all the same, so that N is the public number of slots. Privacy: everything here is raw.
    """

    def __init__(self, documents: DocumentBatch, alpha_0: float) -> None:
        self.coefficients, self.alpha_0 = coefficients(alpha_0), float(alpha_0)
        check(documents.n_documents >= 3, "documents", documents=documents.n_documents)
        check(documents.whole, "fractions")
        self._documents = documents
        self.n_documents, self.n_features = documents.n_documents, documents.n_features
        # p1 as rows, 0 for blanks.
        weights, lengths = document_weights(documents), documents.lengths
        self._first: scipy.sparse.csr_array[np.float64] = scipy.sparse.csr_array(
            scipy.sparse.diags_array(weights[:, 0]) @ documents.to_csr()
        )
        # l/(l-1) and 1/(l-1): P2 = l/(l-1) p1 p1' - diag(p1)/(l-1).
        self._outer, self._repeated = weights[:, 1] * lengths**2, weights[:, 1] * lengths
        self._first_sum: Array = np.asarray(self._first.sum(axis=0), dtype=np.float64).ravel()

    def first(self) -> Array:
        """Return M1, shape (d,)."""
        return self._first_sum / self.n_documents

    def pairs(self) -> Array:
        """Return M2, shape (d, d), symmetric to the last bit; memory O(d^2)."""
        N, p = self.n_documents, self._first
        total = np.empty((self.n_features, self.n_features))
        weight = self.coefficients.squared / (N * (N - 1))
        combined = scipy.sparse.diags_array(self._outer / N + weight) @ p
        for start in range(0, self.n_features, _BLOCK):
            rows = slice(start, start + _BLOCK)
            total[rows] = (p[:, rows].T @ combined).toarray()
            total[rows] -= weight * np.outer(self._first_sum[rows], self._first_sum)
        total[np.diag_indices_from(total)] -= self._pair_diagonal / N
        # The upper half decides: what is released is that half.
        for i in range(1, self.n_features):
            total[i, :i] = total[:i, i]
        return total

    def triples(self) -> Array:
        """Return M3, shape (d, d, d), of few words. Time O(N d^3), memory O(d^3)."""
        n_features = self.n_features
        check(n_features <= DENSE_WORDS, "triples", most=DENSE_WORDS, n_features=n_features)
        return self.triples_through(np.eye(self.n_features))

    def triples_through(self, W: Array) -> Array:
        """Return M3(W, W, W), shape (m, m, m), symmetric up to rounding; W of shape (d, m)."""
        N, p = self.n_documents, self._first
        W = np.ascontiguousarray(W, dtype=np.float64)
        raw = Moments(W)
        raw.add(self._documents)
        seen: Array = np.asarray(p @ W)
        first = seen.sum(axis=0)
        pair_sum = (seen * self._outer[:, None]).T @ seen - W.T @ (self._pair_diagonal[:, None] * W)
        repeats: Array = np.asarray(p.T @ (self._repeated[:, None] * seen))
        _, mixed, cubed = self.coefficients
        mixed /= N * (N - 1)
        cubed /= N * (N - 1) * (N - 2)
        # sym3 of P2 x p1 of one document: three times the cube, less the repeated words.
        cubes = 2 * cubed - 3 * mixed * self._outer
        total = _sum_of_products(seen, cubes[:, None] * seen, seen)
        total += cubed * np.einsum("i,j,k->ijk", first, first, first)
        if raw.documents:
            total += raw.triple_sum() / N
        placed = mixed * (np.multiply.outer(pair_sum, first) + _sum_of_products(W, W, repeats))
        placed -= cubed * np.multiply.outer(seen.T @ seen, first)
        for order in ((0, 1, 2), (0, 2, 1), (2, 0, 1)):
            total += placed.transpose(order)
        return total

    @cached_property
    def _pair_diagonal(self) -> Array:
        """Sum of p1 / (l - 1), shape (d,)."""
        return np.asarray(self._first.T @ self._repeated, dtype=np.float64)


def _sum_of_products(a: Array, b: Array, c: Array) -> Array:
    """Return sum_n a_n x b_n x c_n over rows, shape (m, m, m)."""
    m = a.shape[1]
    total = np.zeros((m * m, m))
    size = max(1, _BLOCK * _BLOCK // (m * m))
    for start in range(0, len(a), size):
        rows = slice(start, start + size)
        outer = (a[rows, :, None] * b[rows, None, :]).reshape(-1, m * m)
        total += outer.T @ c[rows]
    return total.reshape(m, m, m)
