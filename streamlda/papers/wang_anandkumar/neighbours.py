"""Distance between answers of two neighbouring tensors, for three notions of neighbours.

A query asks a symmetric tensor T over d dimensions for ``T(I, u, u)`` or ``T(u, u, u)`` at a public
vector u. Here stands how far neighbours move the answer (l2), with s the largest |entry| of u, or
of v = W u where documents are seen through a public map W; r is the largest norm of a row of W
(1 without a map), n a public number of documents. Units are those of T.

============== ========================= ============= =============
notion         neighbours differ by      T(I, u, u)    T(u, u, u)
============== ========================= ============= =============
entry          [WA16] Definition 4.2     6 s^2         6 s^3
add-remove     a document or a blank     r s^2 / n     s^3 / n
============== ========================= ============= =============

**entry.** T' - T = +-D, D the sum of ``e_a x e_b x e_c`` over all six orders of (i, j, k), with
i, j, k any indices, equal ones included. ``D(I, u, u)`` is

- ``2 (u_j u_k, u_i u_k, u_i u_j)`` for different indices, of norm at most 2 sqrt(3) s^2;
- ``2 (2 u_i u_k, u_i^2)`` for (i, i, k), of norm ``2 |u_i| sqrt(4 u_k^2 + u_i^2)``, at most
  2 sqrt(5) s^2;
- ``6 u_i^2`` for (i, i, i).

So 6 s^2, which the paper reaches by the triangle inequality, is the supremum itself, attained by
(i, i, i) at the largest entry of u; nothing tighter holds for this definition. ``D(u, u, u) =
6 u_i u_j u_k`` gives 6 s^3 likewise. The Frobenius norm of D is sqrt(6), sqrt(12) and 6.

**Documents.** T = (1/n) sum of P3 over documents, contracted with W. P3 of a document is the mean,
over all choices of three of its tokens x, y, z, of S_xyz, the average of ``e_a x e_b x e_c`` over
the orders of (x, y, z); of a blank or shorter document it is 0. So a norm of P3 is at most the
largest norm of an S. As
``S_xyz(I, v, v) = (e_x v_y v_z + e_y v_x v_z + e_z v_x v_y) / 3``, its l1 norm is at most s^2, and
so is its l2 norm; through W' it is at most r s^2; and ``|v_x v_y v_z| <= s^3``. A document of the
word with the largest |v| attains the bounds without a map, and those with one if its row of W is
the longest.
"""

from dataclasses import dataclass

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.errors import between, one_of
from streamlda.kernels.association import associate_triples, project
from streamlda.papers.faults import check
from streamlda.papers.wang_anandkumar.tensors import SymmetricTensor
from streamlda.spectral.moments import document_weights, group_by_word
from streamlda.utils.arrays import Array

#: What neighbouring tensors may differ by.
NOTIONS = ("entry", "add-remove")

#: Largest l1 norm of the absolute terms by which a document is computed, in units of s^2: that of
#: three equal tokens, (l + 1)(l + 2) / ((l - 1)(l - 2)) at l = 3.
TERMS = 10.0

#: Roundings behind one term of an answer, but for those of a dense array and of adding documents.
ROUNDINGS = 2**20


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Relation of tensors that must be indistinguishable; all of it is public.

    Parameters
    ----------
    notion : {"entry", "add-remove"}
        One entry of a tensor (with those that symmetry makes equal), or a document.
    magnitude : float, optional
        Public bound, for every tensor in question and every unit u, on
        ``|| |T|(I, |u|, |u|) ||``, absolute values taken of all terms that are added: of the
        entries, for an array, so that its Frobenius norm will do; for sum_i l_i v_i^(x3), sum |l_i|
        will. It bounds rounding errors only. Required for ``"entry"``; documents have one without.
    n_documents : int, default 1
        n: slots of the documents, blank ones included, not how many were usable.
    whitening : ndarray of shape (n_features, d), optional
        W, if the tensor is that of documents through a map.
    roundings : int, optional
        Public bound on the roundings behind one term of an answer, and of any array it came from;
        by default 2^20 + 2 d^2 + n, which holds for arrays and documents. A sum of k powers of
        vectors needs no more than 2 d + k + 4.
    """

    notion: str
    magnitude: float | None = None
    n_documents: int = 1
    whitening: Array | None = None
    roundings: int | None = None

    def __post_init__(self) -> None:
        remedy = "take 'add-remove' for tensors of documents"
        one_of(NOTIONS, notion=self.notion, remedy=remedy)
        if self.magnitude is not None:
            between(1e-100, 1e100, magnitude=self.magnitude)
        between(1, 2**40, n_documents=self.n_documents)
        if self.roundings is not None:
            between(1, 2**50, roundings=self.roundings)
        if self.notion == "entry":
            size, n, mapped = self.magnitude, self.n_documents, self.whitening is not None
            fits = size is not None and n == 1 and not mapped
            check(fits, "entry", magnitude=size, n_documents=n, whitening=mapped)

    @property
    def row_norm(self) -> float:
        """r, rounded up: the largest norm of a row of W; 1 without a map."""
        if self.whitening is None:
            return 1.0
        largest = float(np.linalg.norm(self.whitening, axis=1).max())
        return float(largest * (1 + self.whitening.shape[1] * 2.0**-51))

    def largest_entries(self, probes: Array) -> Array:
        """Return s for each column u, rounded up; time O(d L), or that of W u."""
        if self.whitening is None:
            return np.asarray(np.abs(probes).max(axis=0), dtype=np.float64)
        # The tensor may round W u otherwise; this is more than two such products are apart.
        apart = self.row_norm * self.whitening.shape[1] * 2.0**-50
        return np.asarray(np.abs(self.whitening @ probes).max(axis=0) + apart, dtype=np.float64)

    def sensitivities(self, probes: Array, *, values: bool) -> Array:
        """Return how far neighbours move ``T(I, u, u)`` (l2), or T(u, u, u), at each column u."""
        s = self.largest_entries(probes)
        power = s**3 if values else s**2
        if self.notion == "entry":
            return 6.0 * power
        return (1.0 if values else self.row_norm) * power / self.n_documents

    def magnitudes(self, probes: Array, *, values: bool) -> Array:
        """Return the bound on the norm of all absolute terms behind an answer at each column u."""
        if self.magnitude is not None:
            return np.full(probes.shape[1], self.magnitude)
        s = self.largest_entries(probes)
        return TERMS * (s**3 if values else self.row_norm * s**2)

    def roundings_of(self, dimension: int) -> int:
        """Return most roundings behind one term of an answer."""
        default = ROUNDINGS + 2 * dimension**2 + self.n_documents
        return int(default if self.roundings is None else self.roundings)


class DocumentTensor(SymmetricTensor):
    """T = (1/n) sum P3(W, W, W) over documents, known by its documents alone.

    Those with fewer than three tokens count as blanks; counts are whole, as the bounds of
    `Neighbours` do not hold for weights. `n_documents`: n, slots, at least the documents in the
    batch; `whitening`: W.
    """

    def __init__(
        self, batch: DocumentBatch, n_documents: int, whitening: Array | None = None
    ) -> None:
        dimension = batch.n_features if whitening is None else whitening.shape[1]
        super().__init__(dimension, lambda vectors: self.apply(vectors)[0])
        self._batch, self._whitening = batch, whitening
        self._weights = document_weights(batch)[:, 2] / n_documents
        rows = batch.counts, batch.word_ids, batch.row_pointers
        self._by_word = group_by_word(*rows, batch.n_features)

    def apply(self, vectors: Array) -> tuple[Array, Array]:
        """Return T(I, u, u), shape (d, L), and T(u, u, u), shape (L,), at the columns u."""
        W, batch = self._whitening, self._batch
        v = np.ascontiguousarray(vectors if W is None else W @ vectors)
        powers, seen = np.empty((2, len(self._weights), v.shape[1])), np.zeros_like(v)
        for power, projections in enumerate(powers, start=1):
            project(batch.counts, batch.word_ids, batch.row_pointers, v**power, projections)
        associate_triples(*self._by_word, v, powers[0], powers[1], self._weights, seen)
        values = np.einsum("dn,dn->n", v, seen)
        return seen if W is None else W.T @ seen, values
