"""Test which directions of the word pairs are real: found in some documents, tested on others.

A projection W is made of documents, and the noise of these is what it looks for too: through it
the same documents show noise as large as a topic. Other documents know nothing of it. With W from
elsewhere, the eigenvalues of C = W' M2 W that are noise are no larger than a draw of this noise,
half the difference of C over two halves of the documents (`Moments.half_differences`).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.kernels import association
from streamlda.spectral.moments import Moments, document_weights, half_of
from streamlda.utils.arrays import Arrays

Array = NDArray[np.float64]

#: A direction is real when its eigenvalue exceeds the noise that was drawn by this factor: without
#: topics it was 1.41 times the noise at most, in 1000 corpora.
NOISE_MARGIN = 1.5

#: What is said of one direction or none.
SHOW_NONE = "the documents show no topics beyond their word frequencies"

#: Directions whose noise is measured; of 520 columns all of them would take 7 s.
MOST_NORMS = 128


class Spectrum(NamedTuple):
    """Eigenvalues of the pair moment of words, and what sampling noise alone would reach.

    Attributes
    ----------
    eigenvalues : ndarray of shape (t,)
        Largest first, without unit. With k topics in the documents k of them are not noise.
    floor : ndarray of shape (t,) or None
        What noise reaches outside the larger directions; beyond the last one measured it stays as
        it is there. None if the fit measured none.
    """

    eigenvalues: Array
    floor: Array | None

    @classmethod
    def padded(cls, eigenvalues: Array, noise: Array) -> Self:
        """Return a spectrum whose noise was measured up to some direction."""
        noise = noise[: len(eigenvalues)]
        rest = np.full(len(eigenvalues) - len(noise), noise[-1])
        return cls(eigenvalues, np.append(noise, rest))

    @property
    def above(self) -> int | None:
        """How many directions are above the noise; None if it was not measured."""
        return None if self.floor is None else int(np.sum(self.eigenvalues > self.floor))


def trailing_norms(noise: Array, n: int) -> Array:
    """Return the spectral norm of noise outside the first 0, 1, ..., n-1 directions.

    Of more than `MOST_NORMS` directions some are measured; those between have what the one before
    has, which is no less. Time O(min(n, 128) t^3).
    """
    every = -(-n // MOST_NORMS)
    measured = [float(np.linalg.norm(noise[i:, i:], 2)) for i in range(0, n, every)]
    return np.repeat(measured, every)[:n]


@dataclass(frozen=True, slots=True)
class HeldOutPairs:
    """Pair moments through a projection that knows nothing of their `documents`.

    `first` is W'M1, (t,), `pairs` is W'G, and `noise` one draw of its sampling noise, both (t, t).
    """

    documents: int
    first: Array
    pairs: Array
    noise: Array

    @classmethod
    def of(cls, moments: Moments) -> Self:
        """Read sums whose projection was made of other documents. At least 2; O(d t^2)."""
        W = moments.whitening[:, : moments.triple_columns]
        pairs = W.T @ moments.pair_moment()[:, : moments.triple_columns]
        noise, _ = moments.half_differences()
        return cls(moments.documents, W.T @ moments.first_moment(), (pairs + pairs.T) / 2, noise)

    @classmethod
    def of_documents(cls, documents: DocumentBatch, projection: Array) -> Self:
        """Sum documents of 3 tokens or more, 2 at least, in two halves; O(nnz t + d t^2)."""
        n, t = documents.n_documents, projection.shape[1]
        rows = documents.counts, documents.word_ids, documents.row_pointers
        y, weights = np.empty((n, t)), document_weights(documents)
        association.project(*rows, projection, y)
        counts = documents.counts * np.repeat(weights[:, 1], np.diff(documents.row_pointers))
        half = half_of(0, n)
        owner = np.repeat(half, np.diff(documents.row_pointers))
        means = []
        for which in range(2):
            # Words drawn together with themselves are left out.
            own = np.where(owner == which, counts, 0.0)
            alone = np.bincount(documents.word_ids, own, minlength=documents.n_features)
            seen = y[half == which]
            pairs = (seen * weights[half == which, 1, None]).T @ seen
            means.append((pairs - (projection * alone[:, None]).T @ projection) / len(seen))
        first = weights[:, 0] @ y / n
        return cls(n, first, (means[0] + means[1]) / 2, (means[0] - means[1]) / 2)

    def spectrum(self, alpha_0: float) -> Spectrum:
        """Return the eigenvalues of C, largest first, and what noise reaches from each on."""
        centre = alpha_0 / (alpha_0 + 1.0)
        values, vectors = np.linalg.eigh(self.pairs - centre * np.outer(self.first, self.first))
        values, vectors = values[::-1], vectors[:, ::-1]
        noise = vectors.T @ self.noise @ vectors
        return Spectrum(values, NOISE_MARGIN * trailing_norms(noise, len(values)))

    def state(self) -> Arrays:
        """Return it as named arrays."""
        return {field.name: np.array(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_state(cls, state: Arrays) -> Self:
        """Return what `state` was called on."""
        arrays: dict[str, Any] = {field.name: state[field.name] for field in fields(cls)}
        return cls(**{**arrays, "documents": int(arrays["documents"])})
