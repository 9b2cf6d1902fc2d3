"""Contribution of one document to a private release: its statistics, scaled to a bounded norm.

A *statistic* is summed over documents, each scaled by its own factor f so that its norm is at most
the clip bound C of that statistic, and knows the `Block` of the mechanism that this makes true. The
norms are of P1, of P2 W (or of P2 itself, without a projection W) and a bound on that of
P3(W, W, W), with y = W'c, s_p = sum_w c_w^p and r = sum_w c_w ||W_w||^2::

    ||p1||          = sqrt(s_2) / l
    ||P2||_F        = sqrt(s_2^2 - 2 s_3 + s_2) / (l (l - 1))
    ||P2 W||_F      = sqrt(s_2 ||y||^2 - 2 y'W'(c c) + sum_w c_w^2 ||W_w||^2) / (l (l - 1))
    ||P3(W,W,W)||_F <= (||y||^3 + 3 ||y|| r + 2 sum_w c_w ||W_w||^3) / (l (l - 1) (l - 2))
    ||P3(W,W,W)||_F <= (sum_w c_w ||W_w|| / l)^3

The third line is row by row: row w of P2 W is ``c_w (y - W_w)``. The fourth is the triangle
inequality over the terms of P3, the last that over triples of different tokens, with Maclaurin's
inequality for the mean of products. The smaller of the two is taken. Factors are found from
computed norms with a margin (`streamlda.privacy.clipping.clip_factors`). Where terms cancel, a norm
may come out too small; so pairs are clipped by the larger of the norm and a quarter of the norm of
the *absolute* terms, and the margin covers what is left.

Unit of all statistics: a document. Nothing here is private: the sums go to
`streamlda.guarantee.mechanism.JointGaussian`, which adds the noise.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import require
from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidDocumentsError
from streamlda.guarantee.mechanism import Block
from streamlda.kernels import association
from streamlda.privacy.clipping import N_BINS, NormHistogram, clip_factors
from streamlda.private.packing import pack_pairs, pack_triples
from streamlda.spectral.moments import Moments, document_weights, grouped_by_word

Array = NDArray[np.float64]

#: Absolute terms of a document's pair statistic over the clip bound, at most.
CANCELLATION = 4.0

#: Fraction of the privacy budget of a block that goes to the number of documents used for it.
KEPT_FRACTION = 0.005

#: Absolute terms of P3(W, W, W) over the last bound above, at most: 6 of at most (l A)^3, over
#: l (l - 1) (l - 2), which is 27 A^3 at l = 3.
TRIPLE_TERMS = 27.0

#: Longest row of a projection: its cube must stay a number, as those of `ClipBounds` must.
LONGEST_ROW = 1e33

#: Fractions of the three moments in the weight of the triple statistic.
TRIPLE_FRACTIONS = {"triple": 0.8, "triple_pair": 0.15, "triple_first": 0.05}


class View:
    """Documents of a batch as statistics see them; what two of them need is computed once.

    Documents that are not `active` contribute nothing.
    """

    def __init__(self, batch: DocumentBatch, active: NDArray[np.bool_]) -> None:
        require(
            active.dtype == np.bool_ and active.shape == (batch.n_documents,),
            "which documents count must be one boolean for each",
            dtype=active.dtype,
            shape=active.shape,
            documents=batch.n_documents,
            remedy="pass a mask of the batch",
            error=InvalidDocumentsError,
        )
        self.batch = batch
        self.active = active & batch.usable

    @cached_property
    def weights(self) -> Array:
        """1/l, 1/(l(l-1)), 1/(l(l-1)(l-2)); 0 for documents that do not count."""
        return document_weights(self.batch) * self.active[:, None]

    @cached_property
    def by_word(self) -> tuple[Array, NDArray[np.int32], NDArray[np.int64]]:
        """The batch regrouped by word."""
        return grouped_by_word(self.batch)

    def power_sums(self, power: int, by_word: Array | None = None) -> Array:
        """Return sum_w c_w^power, times by_word[w] if given, of each document."""
        entries = self.batch.counts**power
        if by_word is not None:
            entries *= by_word[self.batch.word_ids]
        pointers = self.batch.row_pointers
        sums = np.zeros(self.batch.n_documents)
        filled = pointers[:-1] < pointers[1:]
        sums[filled] = np.add.reduceat(entries, pointers[:-1][filled]) if filled.any() else 0.0
        return sums

    def project(self, whitening: Array) -> Array:
        """Return W'c of each document, shape (n_documents, m)."""
        rows = self.batch.counts, self.batch.word_ids, self.batch.row_pointers
        return _projected(*rows, whitening)

    def project_excess(self, whitening: Array) -> Array:
        """Return W'(c c - c), shape (n_documents, m): only words that are repeated count."""
        repeated = np.flatnonzero(self.batch.counts != 1.0)
        counts = self.batch.counts[repeated]
        pointers = np.searchsorted(repeated, self.batch.row_pointers).astype(np.int64)
        return _projected(
            counts * (counts - 1.0), self.batch.word_ids[repeated], pointers, whitening
        )


def _projected(
    counts: Array, word_ids: NDArray[np.int32], pointers: NDArray[np.int64], whitening: Array
) -> Array:
    projections = np.empty((len(pointers) - 1, whitening.shape[1]))
    association.project(counts, word_ids, pointers, whitening, projections)
    return projections


class Statistic(Protocol):
    """One statistic of a stage."""

    def blocks(self) -> list[Block]:
        """Return what the mechanism may rely on."""

    def add(self, view: View) -> None:
        """Add the active documents."""

    def take(self) -> dict[str, Array]:
        """Return the sums since the last call, by block, and start from 0 again."""


class Lengths:
    """Tokens of a document, for a histogram of 1 to 2^24 of them."""

    name = "length"
    largest_norm = 2.0**24

    def norms(self, view: View) -> Array:
        """Return them, shape (n_documents,)."""
        return view.batch.lengths


class NormStatistic:
    """Histogram of the norms that another statistic would clip by; block ``<name>_norms``."""

    def __init__(
        self, of: FirstStatistic | PairStatistic | TripleNorms | Lengths, weight: float
    ) -> None:
        self._of, self._weight = of, weight
        self.histogram = NormHistogram(of.largest_norm)

    def blocks(self) -> list[Block]:
        """Each document adds 1 to one bin."""
        return [self.histogram.block(f"{self._of.name}_norms", self._weight)]

    def add(self, view: View) -> None:
        """Count the norms of the active documents."""
        self.histogram.add(self._of.norms(view)[view.active])

    def take(self) -> dict[str, Array]:
        """Return the counts."""
        counts, self.histogram.counts = self.histogram.counts, np.zeros(N_BINS)
        return {f"{self._of.name}_norms": counts}


class FirstStatistic:
    """Word frequencies: the sum of f p1, and of f (blocks ``first`` and ``first_kept``).

    Time O(nnz + d) a batch, memory O(d).
    """

    name = "first"
    largest_norm = 1.0

    def __init__(self, n_features: int, bound: float, weight: float) -> None:
        self._bound, self._weight = bound, weight
        self._total, self._kept = np.zeros((n_features, 1)), 0.0

    def blocks(self) -> list[Block]:
        """Entries of p1 are not negative and are added once each: nothing cancels."""
        shape = (len(self._total),)
        first = Block("first", shape, self._bound, self._weight, nonnegative=True, magnitude=1.01)
        return [first, _kept_block("first", self._weight)]

    def norms(self, view: View) -> Array:
        """Return ||p1||, shape (n_documents,)."""
        return np.sqrt(view.power_sums(2)) * view.weights[:, 0]

    def add(self, view: View) -> None:
        """Add the active documents."""
        factors = clip_factors(self.norms(view), self._bound) * view.active
        weights = view.weights[:, :1] * factors[:, None]
        association.associate_words(*view.by_word, weights, self._total)
        self._kept += float(factors.sum())

    def take(self) -> dict[str, Array]:
        """Return the sums."""
        sums = {"first": self._total[:, 0].copy(), "first_kept": np.array(self._kept)}
        self._total[:], self._kept = 0.0, 0.0
        return sums


class PairStatistic:
    """Word pairs: the sum of f P2 W, or of f P2 itself (blocks ``pair`` and ``pair_kept``).

    W is public. Without it (None) the symmetric matrix is kept as its upper triangle, entries off
    the diagonal times sqrt(2), so that the norm stays the Frobenius norm and noise comes out
    symmetric. Time O(nnz m) a document with W, O(nnz^2) without; memory O(d m) or O(d^2).
    """

    name = "pair"

    def __init__(
        self, n_features: int, whitening: Array | None, bound: float, weight: float
    ) -> None:
        if whitening is not None:
            whitening = checked_projection(whitening, n_features)
        self._whitening, self._bound, self._weight = whitening, bound, weight
        m = n_features if whitening is None else whitening.shape[1]
        self._cross, self._words = np.zeros((n_features, m)), np.zeros((n_features, 1))
        self._kept = 0.0
        squares = np.ones(n_features) if whitening is None else np.sum(whitening**2, axis=1)
        self._row_squares = squares
        # A little above: the rows' norms are rounded.
        self.largest_norm = float(np.sqrt(squares.max())) * (1 + 1e-9)

    def blocks(self) -> list[Block]:
        """Absolute terms are at most (l + 1)/(l - 1) <= 2 rows of W before clipping."""
        d, m = self._cross.shape
        dense = self._whitening is None
        pair = Block(
            "pair",
            (d * (d + 1) // 2,) if dense else (d, m),
            self._bound,
            self._weight,
            nonnegative=dense,
            magnitude=max(1.0, 2 * self.largest_norm / self._bound),
            sum_magnitude=CANCELLATION * 1.01,
        )
        return [pair, _kept_block("pair", self._weight)]

    def norms(self, view: View) -> Array:
        """Return the norms to clip by, shape (n_documents,); see the module."""
        return self._norms(view, None if self._whitening is None else view.project(self._whitening))

    def _norms(self, view: View, projections: Array | None) -> Array:
        squares = view.power_sums(2)
        if projections is None:
            cubes = view.power_sums(3)
            norm = squares**2 - 2 * cubes + squares
            absolute = np.sqrt(squares**2 + 2 * cubes + squares)
        else:
            assert self._whitening is not None
            length = np.einsum("nm,nm->n", projections, projections)
            own = view.power_sums(2, self._row_squares)
            # W'(c c) is y and what repeated words add to it.
            excess = view.project_excess(self._whitening)
            across = length + np.einsum("nm,nm->n", projections, excess)
            norm = squares * length - 2 * across + own
            absolute = np.sqrt(squares * length) + np.sqrt(own)
        norm = np.maximum(np.sqrt(np.maximum(norm, 0.0)), absolute / CANCELLATION)
        return norm * view.weights[:, 1]

    def add(self, view: View) -> None:
        """Add the active documents."""
        W, batch = self._whitening, view.batch
        projections = None if W is None else view.project(W)
        factors = clip_factors(self._norms(view, projections), self._bound) * view.active
        weights = view.weights[:, 1] * factors
        association.associate_words(*view.by_word, weights[:, None], self._words)
        if projections is None:
            rows = batch.counts, batch.word_ids, batch.row_pointers
            association.associate_pairs(*view.by_word, *rows, weights, self._cross)
        else:
            association.associate_projections(
                *view.by_word, projections, weights[:, None], self._cross[None]
            )
        self._kept += float(factors.sum())

    def take(self) -> dict[str, Array]:
        """Return the sums."""
        if self._whitening is None:
            pair = pack_pairs(self._cross - np.diag(self._words[:, 0]))
            # A word that occurs once in each of its documents: its diagonal is 0 up to rounding.
            np.maximum(pair, 0.0, out=pair)
        else:
            pair = self._cross - self._words * self._whitening
        sums = {"pair": pair, "pair_kept": np.array(self._kept)}
        self._cross[:], self._words[:], self._kept = 0.0, 0.0, 0.0
        return sums


class TripleNorms:
    """What a document's triple statistic is clipped by: a bound on ||P3(W, W, W)||.

    W is public, of any real dtype, taken as float64. Time O(nnz t) a document, memory O(d + t)
    beside W.
    """

    name = "triple"

    def __init__(self, whitening: Array) -> None:
        self.whitening = checked_projection(whitening)
        # Of what is summed through: squares of another dtype could overflow, and clip nothing.
        self._rows = np.sqrt(np.sum(self.whitening**2, axis=1))
        self.largest_norm = float(self._rows.max()) ** 3 * (1 + 1e-9)

    def norms(self, view: View) -> Array:
        """Return the bound of each document, shape (n_documents,); see the module."""
        once = (view.power_sums(1, self._rows) * view.weights[:, 0]) ** 3
        y = view.project(self.whitening)
        length = np.sqrt(np.einsum("nm,nm->n", y, y))
        twice = view.power_sums(1, self._rows**2)
        thrice = view.power_sums(1, self._rows**3)
        terms = (length**3 + 3 * length * twice + 2 * thrice) * view.weights[:, 2]
        smaller: Array = np.minimum(terms, once)
        return smaller


class TripleStatistic(TripleNorms):
    """Word triples seen through W, with the first two moments of the same documents.

    Sums of f P3(W, W, W), f W'P2 W and f W'p1, and of f (blocks ``triple``, ``triple_pair``,
    ``triple_first`` and ``triple_kept``): the tensor is centred by its own documents, since those
    of an earlier stage may speak of other things. One factor f serves all three: the largest with
    f ||P3(W, W, W)|| <= C, f ||W'P2 W|| <= C^(2/3) and f ||W'p1|| <= C^(1/3), where for the first
    the bound of the module is taken, and for the others ::

        ||W'p1||   = ||y|| / l
        ||W'P2 W|| <= (||y||^2 + sum_w c_w ||W_w||^2) / (l (l - 1))
        ||W'P2 W|| <= (sum_w c_w ||W_w|| / l)^2

    As W'P2 W l (l - 1) is y y' less sum_w c_w W_w W_w', the second is the triangle inequality; the
    third is that over pairs of different tokens, with Maclaurin's inequality. A document of one
    word with ||W_w|| = C^(1/3) attains all three bounds at once. Both bounds on P3 are at least
    (||y|| / l)^3, so W'p1 never asks for a smaller f than P3 does; W'P2 W does where y cancels in a
    long document.

    The symmetric arrays are kept as their entries i <= j (<= k), times the square root of how
    often each occurs, so that the norm stays the Frobenius norm. Time O(nnz t + t^3 / 3) a
    document and O(d t^3) a call of `take`; memory O(d t + t^3).
    """

    def __init__(self, whitening: Array, bound: float, weight: float) -> None:
        super().__init__(whitening)
        self._bounds = {
            "triple": bound,
            "triple_pair": bound ** (2 / 3),
            "triple_first": bound ** (1 / 3),
        }
        self._weight = weight
        self._moments = Moments(self.whitening)
        self._kept = 0.0

    def blocks(self) -> list[Block]:
        """Absolute terms of P3 are at most `TRIPLE_TERMS` times the norm that is clipped by.

        Those of the lower moments are bounded before clipping: at most (l + 1)/(l - 1) <= 2
        products of two rows, and one row. As 0 <= f <= 1 this holds for what is added, too; a
        smaller `sum_magnitude` would not hold, since terms of W'p1 cancel in the norm that is
        clipped by.
        """
        t = self._moments.triple_columns
        longest = float(self._rows.max())
        sizes_and_terms = {
            "triple": (t * (t + 1) * (t + 2) // 6, TRIPLE_TERMS * self.largest_norm),
            "triple_pair": (t * (t + 1) // 2, 2.1 * longest**2),
            "triple_first": (t, 1.1 * longest),
        }
        blocks = [
            Block(
                name,
                (size,),
                self._bounds[name],
                self._weight * TRIPLE_FRACTIONS[name],
                magnitude=max(1.0, terms / self._bounds[name]),
                sum_magnitude=TRIPLE_TERMS * 1.01 if name == "triple" else None,
            )
            for name, (size, terms) in sizes_and_terms.items()
        ]
        return [*blocks, _kept_block("triple", self._weight)]

    def add(self, view: View) -> None:
        """Add the active documents."""
        y = view.project(self.whitening)
        length = np.sqrt(np.einsum("nm,nm->n", y, y))
        mean = view.power_sums(1, self._rows) * view.weights[:, 0]
        by_terms = (length**2 + view.power_sums(1, self._rows**2)) * view.weights[:, 1]
        norms = {
            "triple": self.norms(view),
            "triple_pair": np.minimum(by_terms, mean**2),
            "triple_first": length * view.weights[:, 0],
        }
        factors = np.min(
            [clip_factors(norms[name], bound) for name, bound in self._bounds.items()], axis=0
        )
        factors *= view.active
        self._moments.add(view.batch, np.repeat(factors[:, None], 3, axis=1))
        self._kept += float(factors.sum())

    def take(self) -> dict[str, Array]:
        """Return the sums."""
        moments, W = self._moments, self.whitening
        pair = W.T @ (moments.pair_cross - moments.word_totals[:, 1, None] * W)
        sums = {
            "triple": pack_triples(moments.triple_sum()),
            "triple_pair": pack_pairs((pair + pair.T) / 2),
            "triple_first": W.T @ moments.word_totals[:, 0],
            "triple_kept": np.array(self._kept),
        }
        moments.restart(W)
        self._kept = 0.0
        return sums


def checked_projection(whitening: Array, n_features: int | None = None) -> Array:
    """Return a projection as contiguous float64, whatever real dtype it came in; time O(d m)."""
    found = np.asarray(whitening)
    real = found.dtype.kind in "fiu" and found.ndim == 2 and 0 not in found.shape
    rule, remedy = "a projection must be a matrix of real numbers", "compute it again"
    require(real, rule, dtype=found.dtype, shape=found.shape, remedy=remedy)
    require(
        n_features in (None, len(found)),
        "a projection must have a row for each word",
        rows=len(found),
        n_features=n_features,
        remedy="take the projection of this vocabulary",
    )
    made = np.ascontiguousarray(found, dtype=np.float64)
    # False for NaN.
    short = np.max(np.abs(made)) <= LONGEST_ROW / np.sqrt(made.shape[1])
    rule = f"the rows of a projection must be finite and of norm at most {LONGEST_ROW:g}"
    require(short, rule, shape=found.shape, remedy=remedy)
    return made


def _kept_block(name: str, weight: float) -> Block:
    """Return the block of the sum of clip factors, a number from 0 to 1 of each document."""
    weight *= KEPT_FRACTION
    return Block(f"{name}_kept", (), 1.0, weight, nonnegative=True, magnitude=1.01)
