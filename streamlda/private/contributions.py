"""Contributions of one document to a private release: word frequencies, pairs, triples and norms.

A *statistic* returns what each document of a batch contributes to the blocks of a stage. It is not
trusted: `streamlda.guarantee.sums.Sums.add` measures, clips and counts what it returned. All that
must hold here is that a contribution depends on its own document alone, to the last bit, and on
public numbers: kernels and NumPy go through one document after the other, and no product of
matrices mixes documents.

With y = W'c and l = sum c, P1 is c / l, row w of P2 W is ``c_w (y - W_w) / (l (l - 1))``, and ::

    l (l - 1) (l - 2) P3(W, W, W) = y x y x y - sum_w c_w (W_w x W_w x y, in three orders)
                                    + 2 sum_w c_w W_w x W_w x W_w
"""

from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.errors import require
from streamlda.guarantee.mechanism import Block
from streamlda.guarantee.sums import Contribution
from streamlda.kernels import association
from streamlda.privacy.clipping import N_BINS, norm_edges
from streamlda.private.packing import scales_of_triples
from streamlda.spectral.moments import document_weights
from streamlda.utils.arrays import Array

Contributions = dict[str, Contribution]

#: Weight of the number of documents used for a block, or by length, over that of what they say.
KEPT_FRACTION = 0.005

#: Weight of a lesser statistic of a release beside its main one, 1. Half and twice are as good.
LESSER_WEIGHT = 0.1

#: Fractions of the three moments in the weight of the triple statistic.
TRIPLE_FRACTIONS = {"triple": 0.8, "triple_pair": 0.15, "triple_first": 0.05}


class View:
    """Documents as statistics see them; those too short contribute nothing."""

    def __init__(self, batch: DocumentBatch) -> None:
        self.batch = batch

    @cached_property
    def weights(self) -> Array:
        """1/l, 1/(l(l-1)), 1/(l(l-1)(l-2)); 0 for documents that are too short."""
        return document_weights(self.batch)

    def project(self, whitening: Array) -> Array:
        """Return W'c of each document, shape (n_documents, m)."""
        projections = np.empty((self.batch.n_documents, whitening.shape[1]))
        association.project(*self.rows, whitening, projections)
        return projections

    @property
    def rows(self) -> tuple[Array, NDArray[np.int32], NDArray[np.int64]]:
        """Counts, words and row pointers, as kernels take them."""
        return self.batch.counts, self.batch.word_ids, self.batch.row_pointers

    def by_entry(self, values: NDArray[Any]) -> NDArray[Any]:
        """Return a number of each document for each of its entries."""
        return np.repeat(values, np.diff(self.batch.row_pointers))

    def contribute_by_word(self, values: Array) -> Contribution:
        """Return the addition of each entry to the row of its word."""
        rows = self.batch.word_ids.astype(np.int64)
        values = values if values.ndim == 2 else values[:, None]
        return Contribution(values, rows, self.batch.row_pointers)

    @property
    def kept_part(self) -> Contribution:
        """A document as one: scaled with a block, it counts as much as it does there."""
        return Contribution(self.batch.usable.astype(np.float64)[:, None])


class Statistic(Protocol):
    """One statistic of a stage."""

    def blocks(self) -> list[Block]:
        """Return the blocks of the release that documents contribute to."""

    def contributions(self, view: View) -> Contributions:
        """Return the contribution of each document to each block."""

    def doubles(self, distinct: float) -> float:
        """Return how many doubles a document of so many distinct words takes, about."""


class Lengths:
    """Tokens of a document, for a histogram of 1 to 2^24 of them."""

    name = "length"
    largest_norm = 2.0**24

    def contributions(self, view: View) -> Contributions:
        """Return them."""
        return {self.name: Contribution(view.batch.lengths[:, None])}


class NormStatistic:
    """Histogram of the norms of another statistic's contributions; block ``<name>_norms``.

    Each document adds 1 to one bin.
    """

    def __init__(
        self, of: "FirstStatistic | PairStatistic | TripleStatistic | Lengths", weight: float
    ) -> None:
        self._of, self._weight = of, weight
        self._edges = norm_edges(of.largest_norm)

    def blocks(self) -> list[Block]:
        """Counts are not negative."""
        return [Block(f"{self._of.name}_norms", (N_BINS,), 1.0, self._weight, nonnegative=True)]

    def contributions(self, view: View) -> Contributions:
        """Return a one in the bin of each document."""
        norms = self._of.contributions(view)[self._of.name].norms()
        usable = view.batch.usable
        # NaN sorts after every number.
        bins = np.minimum(np.searchsorted(self._edges, norms[usable]), N_BINS - 1)
        pointers = np.concatenate([[0], np.cumsum(usable)])
        found = Contribution(np.ones((len(bins), 1)), bins, pointers)
        return {f"{self._of.name}_norms": found}

    def doubles(self, distinct: float) -> float:
        """Return those of the other statistic."""
        return 1.0 if isinstance(self._of, Lengths) else self._of.doubles(distinct)


class FirstStatistic:
    """Word frequencies P1 (block ``first``) and documents (``first_kept``)."""

    name = "first"
    largest_norm = 1.0

    def __init__(self, n_features: int, bound: float, weight: float) -> None:
        self._d, self._bound, self._weight = n_features, bound, weight

    def blocks(self) -> list[Block]:
        """Entries of P1 are not negative."""
        first = Block("first", (self._d,), self._bound, self._weight, True, "first")
        return [first, make_kept_block("first", self._weight)]

    def contributions(self, view: View) -> Contributions:
        """Return c / l of each document."""
        first = view.batch.counts * view.by_entry(view.weights[:, 0])
        return {"first": view.contribute_by_word(first), "first_kept": view.kept_part}

    def doubles(self, distinct: float) -> float:
        """Return one a word."""
        return distinct


class PairStatistic:
    """Word pairs: P2 W, or P2 itself without a projection (blocks ``pair`` and ``pair_kept``).

    W is public. Without it (None) the symmetric matrix is kept as its upper triangle, entries off
    the diagonal times sqrt(2), so that the norm stays the Frobenius norm and noise comes out
    symmetric. Time and memory O(nnz m) a document with W, O(nnz^2) without.
    """

    name = "pair"

    def __init__(
        self, n_features: int, whitening: Array | None, bound: float, weight: float
    ) -> None:
        if whitening is not None:
            whitening = check_projection(whitening, n_features)
        self._whitening, self._bound, self._weight, self._d = whitening, bound, weight, n_features
        longest = 1.0 if whitening is None else float(np.sum(whitening**2, axis=1).max()) ** 0.5
        # A little above: the rows' norms are rounded.
        self.largest_norm = longest * (1 + 1e-9)

    def blocks(self) -> list[Block]:
        """Entries of P2 are not negative."""
        d, W = self._d, self._whitening
        shape = (d * (d + 1) // 2,) if W is None else W.shape
        pair = Block("pair", shape, self._bound, self._weight, W is None, "pair")
        return [pair, make_kept_block("pair", self._weight)]

    def contributions(self, view: View) -> Contributions:
        """Return the pairs of each document."""
        W, weights = self._whitening, np.ascontiguousarray(view.weights[:, 1])
        if W is not None:
            pairs = np.repeat(view.project(W), np.diff(view.batch.row_pointers), axis=0)
            pairs -= W[view.batch.word_ids]
            pairs *= (view.batch.counts * view.by_entry(weights))[:, None]
            return {"pair": view.contribute_by_word(pairs), "pair_kept": view.kept_part}
        n = np.diff(view.batch.row_pointers)
        pointers = np.concatenate([[0], np.cumsum(n * (n + 1) // 2)])
        cells, values = np.empty(pointers[-1], dtype=np.int64), np.empty((pointers[-1], 1))
        association.list_pairs(*view.rows, weights, self._d, pointers, cells, values.reshape(-1))
        return {"pair": Contribution(values, cells, pointers), "pair_kept": view.kept_part}

    def doubles(self, distinct: float) -> float:
        """Return a row of W a word, or a number for each pair of words."""
        return distinct * (distinct if self._whitening is None else self._whitening.shape[1])


class TripleStatistic:
    """Word triples seen through W, with the first two moments of the same documents.

    P3(W, W, W), W'P2 W and W'P1 (blocks ``triple``, ``triple_pair``, ``triple_first``) and
    documents (``triple_kept``): the tensor is centred by its own documents, since those of an
    earlier stage may speak of other things. All are scaled together, to C, C^(2/3) and C^(1/3). The
    symmetric arrays are kept as their entries i <= j (<= k), times the square root of how often
    each occurs, so that the norm stays the Frobenius norm.

    W is public. Time O(nnz t^3 / 6) a document, memory t^3.
    """

    name = "triple"

    def __init__(self, whitening: Array, bound: float = 1.0, weight: float = 1.0) -> None:
        self.whitening = check_projection(whitening)
        longest = float(np.sqrt(np.sum(self.whitening**2, axis=1)).max())
        self.largest_norm = longest**3 * (1 + 1e-9)
        powers = {"triple": 1.0, "triple_pair": 2 / 3, "triple_first": 1 / 3}
        self._bounds = {name: bound**power for name, power in powers.items()}
        self._weight = weight

    def _sizes(self) -> dict[str, int]:
        t = self.whitening.shape[1]
        triples, pairs = t * (t + 1) * (t + 2) // 6, t * (t + 1) // 2
        return {"triple": triples, "triple_pair": pairs, "triple_first": t}

    def blocks(self) -> list[Block]:
        """All three moments have entries of both signs."""
        blocks = [
            Block(
                name,
                (size,),
                self._bounds[name],
                self._weight * TRIPLE_FRACTIONS[name],
                scaled_with="triple",
            )
            for name, size in self._sizes().items()
        ]
        return [*blocks, make_kept_block("triple", self._weight)]

    def contributions(self, view: View) -> Contributions:
        """Return the three moments of each document."""
        t, n = self.whitening.shape[1], view.batch.n_documents
        arrays = {name: np.empty((n, size)) for name, size in self._sizes().items()}
        scales = scales_of_triples(t)
        association.moments_through(
            *(*view.rows, self.whitening, view.weights, scales), *arrays.values()
        )
        found = {name: Contribution(array) for name, array in arrays.items()}
        return found | {"triple_kept": view.kept_part}

    def doubles(self, distinct: float) -> float:
        """Return the cells of the blocks."""
        return float(sum(self._sizes().values()))


def check_projection(whitening: Array, n_features: int | None = None) -> Array:
    """Return a projection as contiguous float64; time O(d m)."""
    made = np.ascontiguousarray(whitening, dtype=np.float64)
    fits = made.ndim == 2 and 0 not in made.shape and n_features in (None, len(made))
    rule = "a projection is no matrix with a row for each word"
    remedy = "take the projection of this vocabulary"
    require(fits, rule, shape=made.shape, n_features=n_features, remedy=remedy)
    finite, remedy = np.isfinite(made).all(), "compute it again"
    require(finite, "a projection is not finite", shape=made.shape, remedy=remedy)
    return made


def make_kept_block(name: str, weight: float, fraction: float = KEPT_FRACTION) -> Block:
    """Return the block of the sum of clip factors, a number from 0 to 1 of each document."""
    return Block(f"{name}_kept", (), 1.0, weight * fraction, True, name)
