"""Test which directions of the word pairs are real: found in some documents, tested on others.

A projection W is made of documents, and the noise of these is what it looks for too: through it
the same documents show noise as large as a topic. Other documents know nothing of it. With W from
elsewhere, the eigenvalues of C = W' M2 W that are noise are no larger than a draw of this noise,
half the difference of C over two halves of the documents (`Moments.half_differences`).
"""

from bisect import bisect_left
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.spectral.moments import Moments, half_of
from streamlda.utils.arrays import Array

#: A direction is real when its eigenvalue exceeds the noise that was drawn by this factor: without
#: topics it was 1.41 times the noise at most, in 1000 corpora.
NOISE_MARGIN = 1.5

#: What is said of one direction or none.
SHOW_NONE = "the documents show no topics beyond their word frequencies"


class Spectrum(NamedTuple):
    """Eigenvalues of the pair moment of words, and what sampling noise alone would reach.

    Attributes
    ----------
    eigenvalues : ndarray of shape (t,)
        Largest first, without unit. With k topics in the documents k of them are not noise.
    floor : ndarray of shape (t,) or None
        What noise reaches outside the directions above it. None if the fit measured none.
    """

    eigenvalues: Array
    floor: Array | None

    @classmethod
    def pad(cls, eigenvalues: Array, noise: Array) -> Self:
        """Return a spectrum whose noise was measured up to some direction."""
        noise = noise[: len(eigenvalues)]
        rest = np.full(len(eigenvalues) - len(noise), noise[-1])
        return cls(eigenvalues, np.append(noise, rest))

    @property
    def above(self) -> int | None:
        """Number of directions above the noise; None if the noise was not measured."""
        return None if self.floor is None else int(np.sum(self.eigenvalues > self.floor))


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
        pairs = moments.pairs_within(moments.triple_columns)
        noise, _ = moments.half_differences()
        return cls(moments.documents, W.T @ moments.first_moment(), (pairs + pairs.T) / 2, noise)

    @classmethod
    def of_documents(cls, documents: DocumentBatch, projection: Array) -> Self:
        """Sum documents of 3 tokens or more, 2 at least, in two halves; O(nnz t + d t^2)."""
        n, half = documents.n_documents, half_of(0, documents.n_documents)
        first, means = np.zeros(projection.shape[1]), []
        for which in range(2):
            sums = Moments(projection, triple_columns=0)
            sums.add(documents.where(half == which))
            first += projection.T @ sums.word_totals[:, 0] / n
            pairs = sums.pairs_within()
            means.append((pairs + pairs.T) / 2)
        return cls(n, first, (means[0] + means[1]) / 2, (means[0] - means[1]) / 2)

    def spectrum(self, alpha_0: float) -> Spectrum:
        """Return the eigenvalues of C, largest first, and what noise reaches from each on."""
        centre = alpha_0 / (alpha_0 + 1.0)
        values, vectors = np.linalg.eigh(self.pairs - centre * np.outer(self.first, self.first))
        values, vectors = values[::-1], vectors[:, ::-1]
        noise = vectors.T @ self.noise @ vectors

        def reach(i: int) -> float:
            return NOISE_MARGIN * float(np.linalg.norm(noise[i:, i:], 2))

        # Noise outside the first i directions falls with i, as eigenvalues do.
        rest = range(len(values) - 1)
        above = bisect_left(rest, True, key=lambda i: bool(values[i] <= reach(i)))
        return Spectrum(values, np.full(len(values), reach(above)))
