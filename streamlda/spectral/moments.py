"""The additive statistics of a round: raw first, pair and triple moments seen through W.

For a document with counts c and length l >= 3 (shorter ones are counted and skipped) [1]_ [2]_::

    p1 = c / l
    P2 = (c c' - diag c) / (l (l - 1))
    P3 = (c x c x c - words drawn together with themselves) / (l (l - 1) (l - 2))

`Moments` sums p1, ``P2 W`` and ``P3(W, W, W)`` over documents. The sums are raw: the Dirichlet
correction (alpha_0) is applied when they are read (`streamlda.spectral.topics`), so that it can be
chosen afterwards. Sums add, merge and resume; their size depends on the vocabulary and on W alone.

References
----------
.. [1] Anandkumar, Ge, Hsu, Kakade, Telgarsky (2014), "Tensor decompositions for learning latent
   variable models", JMLR 15, section 3.
.. [2] Wang, Anandkumar (2016), "Online and differentially-private tensor decomposition", NIPS,
   section 3.
"""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, require
from streamlda.kernels import association
from streamlda.utils.arrays import Array, Arrays, row_blocks
from streamlda.utils.threads import one_blas_thread, run_pieces

#: Documents per block: projections of one block stay in cache between the kernels.
BLOCK_DOCUMENTS = 4096

#: Columns of `Moments.word_totals`.
_FIRST, _PAIR, _TRIPLE = 0, 1, 2


class Moments:
    """Sums of the per-document statistics of one round, for a fixed projection W of shape (d, m).

    W (`whitening`) is kept by reference, never changed. The triple statistic is taken through its
    t leading columns: all of them by default, 0 to leave it out (a sketch needs the pairs only).

    Memory in bytes: ``8 (3 d + d m + d t + 2 t^2 + 2 t^3)``. Time of `add`:
    O(nnz m + n_documents t^3 / 3), and O(d) a call. The word sums do not depend on how the stream
    was cut into batches; the gram and cube sums do, by rounding.

    Privacy: holds raw sums; nothing read from here is private.
    """

    def __init__(self, whitening: Array, triple_columns: int | None = None) -> None:
        self.whitening = np.ascontiguousarray(whitening, dtype=np.float64)
        d, m = self.whitening.shape
        t = m if triple_columns is None else triple_columns
        #: Documents in the sums, those that were too short, and those in the first half.
        self.documents = self.skipped = self.first_half = 0
        #: Sums of c weighted for the first, pair and triple moment.
        self.word_totals = np.zeros((d, 3))
        #: Sums of c y' weighted for the pair and for the triple moment, y = W'c.
        self.pair_cross = np.zeros((d, m))
        self.triple_cross = np.zeros((d, t))
        #: Sums of y y' weighted for the pair moment, and of y x y x y for the triple moment, over
        #: two random halves of the documents, which differ by sampling noise alone. Entry
        #: [h, i, j, k] of the cube is kept for i <= j <= k; others are unspecified.
        self.gram = np.zeros((2, t, t))
        self.cube = np.zeros((2, t, t, t))

    @property
    def triple_columns(self) -> int:
        """Columns t of W that the triple statistic is taken through."""
        return self.triple_cross.shape[1]

    def add(self, batch: DocumentBatch) -> None:
        """Add the documents of a batch."""
        batch.check_features(len(self.whitening), "moments")
        for start in range(0, batch.n_documents, BLOCK_DOCUMENTS):
            self._add_block(batch.rows(start, start + BLOCK_DOCUMENTS))

    def _add_block(self, block: DocumentBatch) -> None:
        weights, rows = document_weights(block), (block.counts, block.word_ids, block.row_pointers)
        by_word = group_by_word(*rows, block.n_features)
        ones = np.ones((block.n_documents, 1))
        association.associate_projections(*by_word, weights, ones, self.word_totals[None])
        y = np.empty((block.n_documents, self.whitening.shape[1]))
        association.project(*rows, self.whitening, y)
        w2, w3 = (np.ascontiguousarray(weights[:, [column]]) for column in (_PAIR, _TRIPLE))
        association.associate_projections(*by_word, y, w2, self.pair_cross[None])
        usable = np.flatnonzero(block.usable)
        coins = half_of(self.documents, len(usable))
        self.first_half += int(np.sum(coins == 0))
        if self.triple_columns:
            leading = np.ascontiguousarray(y[:, : self.triple_columns])
            association.associate_projections(*by_word, leading, w3, self.triple_cross[None])
            halves = [usable[coins == half] for half in range(2)]
            self._add_halves([(leading[half], weights[half]) for half in halves])
        self.documents += len(usable)
        self.skipped += block.n_documents - len(usable)

    def _add_halves(self, halves: list[tuple[Array, Array]]) -> None:
        def add(first: int, last: int) -> None:
            for half in range(first, last):
                y, weights = halves[half]
                self.gram[half] += (y * weights[:, _PAIR, None]).T @ y
                _add_cube(np.asfortranarray(y), weights[:, _TRIPLE], self.cube[half])

        with one_blas_thread():
            run_pieces(add, 2)

    def merge(self, other: Self) -> None:
        """Add the sums of `other`, which must have been taken through the same projection."""
        require(
            self.triple_columns == other.triple_columns
            and np.array_equal(self.whitening, other.whitening),
            "moments to merge differ in projection or triple columns, got "
            f"triple_columns={self.triple_columns},{other.triple_columns}",
            remedy="accumulate both from one engine state",
        )
        self.first_half += other.first_half
        self.documents += other.documents
        self.skipped += other.skipped
        for name, theirs in other._sums().items():
            mine = self._sums()[name]
            mine += theirs

    def first_moment(self) -> Array:
        """Return M1 = mean of p1, shape (d,)."""
        self._require(1)
        return self.word_totals[:, _FIRST] / self.documents

    def pair_moment(self, columns: int | None = None, *, spend: bool = False) -> Array:
        """Return G = mean of P2 W over the leading columns, shape (d, m) by default.

        With `spend`, it takes the memory of the sums of pairs, which are lost.
        """
        self._require(1)
        mean: Array = self.pair_cross if spend else self.pair_cross[:, :columns].copy()
        for rows in row_blocks(len(mean)):
            repeats = self.word_totals[rows, _PAIR, None] * self.whitening[rows, :columns]
            mean[rows] -= repeats
        mean /= self.documents
        return mean

    def pairs_within(self, columns: int | None = None) -> Array:
        """Return W'G over the leading columns, shape (m, m) by default; time O(d m^2)."""
        self._require(1)
        within: Array = np.zeros((self.whitening[:, :columns].shape[1],) * 2)
        for rows in row_blocks(len(self.whitening)):
            W = self.whitening[rows, :columns]
            pairs = self.pair_cross[rows, :columns] - self.word_totals[rows, _PAIR, None] * W
            within += W.T @ pairs
        within /= self.documents
        return within

    def narrow(self) -> None:
        """Drop what topics are not read from: the columns of W beyond t, and their sums."""
        self.whitening = np.ascontiguousarray(self.whitening[:, : self.triple_columns])
        self.pair_cross = np.ascontiguousarray(self.pair_cross[:, : self.triple_columns])

    def triple_moment(self) -> Array:
        """Return T = mean of P3(W, W, W) over the t leading columns, shape (t, t, t).

        Time O(d t^3), once a round.
        """
        self._require(1)
        return self.triple_sum() / self.documents

    def triple_sum(self) -> Array:
        """Return the sum that `triple_moment` is the mean of."""
        total = fill_symmetric(self.cube.sum(axis=0))
        # Words drawn together with themselves: -sym(W W B) + W W W a, contracted over words.
        repeated = np.zeros_like(total)

        def contract(first: int, last: int, W: Array, repeats: Array) -> None:
            for i in range(first, last):
                repeated[i, i:] += (W[:, i:] * W[:, i, None]).T @ repeats

        with one_blas_thread():
            for rows in row_blocks(len(self.whitening)):
                W = np.ascontiguousarray(self.whitening[rows, : self.triple_columns])
                repeats = (
                    self.triple_cross[rows] - 2 / 3 * self.word_totals[rows, _TRIPLE, None] * W
                )
                run_pieces(contract, self.triple_columns, W, repeats)
        for i in range(self.triple_columns):
            repeated[i:, i] = repeated[i, i:]
        for order in ((0, 1, 2), (0, 2, 1), (2, 0, 1)):
            total -= repeated.transpose(order)
        return total

    def half_differences(self) -> tuple[Array, Array]:
        """Return the sampling noise of ``W' G`` and of T, shapes (t, t) and (t, t, t).

        Half the difference of the means over the two halves of the documents: it has mean zero and
        the covariance of the sampling error of the whole. The corrections for repeated words are
        left out; they change it by a relative O(1 / l). At least 2 documents.
        """
        self._require(2)
        n = np.maximum([self.first_half, self.documents - self.first_half], 1)
        pair = (self.gram[0] / n[0] - self.gram[1] / n[1]) / 2
        return pair, fill_symmetric(self.cube[0] / n[0] - self.cube[1] / n[1]) / 2

    def state(self) -> Arrays:
        """Return everything but W: the sums themselves, to be stored before the next `add`."""
        numbers = [self.documents, self.skipped, self.triple_columns, self.first_half]
        tally = np.array(numbers, dtype=np.int64)
        return {"tally": tally, **self._sums()}

    @classmethod
    def from_state(cls, whitening: Array, state: Mapping[str, NDArray[Any]]) -> Self:
        """Continue from what `state` returned, bit for bit; the sums are copied."""
        documents, skipped, triple_columns, first_half = state["tally"].tolist()
        moments = cls(whitening, triple_columns)
        moments.documents, moments.skipped = documents, skipped
        moments.first_half = first_half
        for name, sums in moments._sums().items():
            sums[...] = state[name]
        return moments

    def _require(self, documents: int) -> None:
        require(
            self.documents >= documents,
            f"a mean is over fewer than {documents} documents of 3 tokens or more",
            documents=self.documents,
            skipped=self.skipped,
            remedy="add more documents first",
            error=InsufficientDataError,
        )

    def _sums(self) -> dict[str, Array]:
        names = ("word_totals", "pair_cross", "triple_cross", "gram", "cube")
        return {name: getattr(self, name) for name in names}


def half_of(first: int, n: int) -> NDArray[np.uint64]:
    """Return the half, 0 or 1, of documents number `first` to `first + n - 1`.

    Of each two neighbours one goes to either half, which one is decided by hashing their number:
    so the halves are equal, and no periodic order of the stream can tell them apart.
    """
    number = np.arange(first, first + n, dtype=np.uint64)
    return (hash_numbers(number // np.uint64(2) + np.uint64(1)) ^ number) & np.uint64(1)


def hash_numbers(numbers: NDArray[np.uint64], seed: int = 0) -> NDArray[np.uint64]:
    """Return SplitMix64 of some numbers; arrays of unsigned numbers wrap around."""
    z = np.uint64(seed) + numbers * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def document_weights(batch: DocumentBatch) -> Array:
    """Return 1/l, 1/(l(l-1)), 1/(l(l-1)(l-2)), shape (n_documents, 3); 0 where l < 3."""
    lengths = np.where(batch.usable, batch.lengths, np.inf)
    weights = np.empty((batch.n_documents, 3))
    weights[:, _FIRST] = 1.0 / lengths
    weights[:, _PAIR] = weights[:, _FIRST] / (lengths - 1.0)
    weights[:, _TRIPLE] = weights[:, _PAIR] / (lengths - 2.0)
    return weights


def group_by_word(
    counts: Array, word_ids: NDArray[np.int32], row_pointers: NDArray[np.int64], n_words: int
) -> tuple[Array, NDArray[np.int32], NDArray[np.int64]]:
    """Return counts, documents and pointers by word, documents in order; time O(nnz + d)."""
    pointers = row_pointers.astype(np.int32)
    rows = scipy.sparse.csr_array((counts, word_ids, pointers), shape=(len(pointers) - 1, n_words))
    columns = rows.tocsc()
    return columns.data, columns.indices, columns.indptr.astype(np.int64)


def fill_symmetric(entries: Array) -> Array:
    """Spread entries [i, j, k] with i <= j <= k over all orders of the indices."""
    full = np.empty_like(entries)
    for i in range(len(entries)):
        upper = np.triu(entries[i, i:, i:])
        block = upper + np.triu(upper, 1).T
        full[i, i:, i:] = block
        full[i:, i, i:] = block
        full[i:, i:, i] = block
    return full


def _add_cube(y: Array, weights: Array, cube: Array) -> None:
    """Add ``sum_n weights[n] y_n x y_n x y_n`` at [i, j, k] for i <= j and i <= k.

    `y` in column-major order is fastest.
    """
    # One buffer, so that the products stay in cache.
    buffer = np.empty(y.shape, order="F")
    for i in range(y.shape[1]):
        weighted = np.multiply(y[:, i:], (y[:, i] * weights)[:, None], out=buffer[:, i:])
        cube[i, i:, i:] += weighted.T @ y[:, i:]
