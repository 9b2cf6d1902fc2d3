"""Documents as counts: one batch type, checked once, shared by every step after it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import InvalidDocumentsError

if TYPE_CHECKING:
    import scipy.sparse

#: The pair and triple statistics are defined from three tokens on (they divide by l - 2).
MIN_TOKENS = 3

#: Largest total count of one document: products of three counts stay finite and sums exact.
MAX_TOKENS = 2**31


class DocumentBatch:
    """A batch of documents in compressed sparse row form.

    The arrays are checked once, made read-only and then shared, never copied: kernels take them
    as they are. Cost: O(nnz) time for the checks, no memory when the dtypes already fit.

    Parameters
    ----------
    counts : ndarray of shape (nnz,), float64
        How often the word occurs in the document, in tokens; whole numbers above 0.
    word_ids : ndarray of shape (nnz,), int32
        Word of each count, strictly increasing within a document.
    row_pointers : ndarray of shape (n_documents + 1,), int64
        Document n owns the entries from ``row_pointers[n]`` to ``row_pointers[n + 1]``.
    n_features : int
        Size of the vocabulary.
    integral : bool, default True
        Insist on whole numbers. Without it, counts are weights: the moments are still defined
        but no longer those of a probability object, so no privacy bound holds.

    Raises
    ------
    InvalidDocumentsError
        Naming the rule, the first offending document and the remedy.
    """

    def __init__(
        self,
        counts: NDArray[np.float64],
        word_ids: NDArray[np.int32],
        row_pointers: NDArray[np.int64],
        n_features: int,
        *,
        integral: bool = True,
    ) -> None:
        self.counts = _frozen(counts, np.float64)
        self.word_ids = _frozen(word_ids, np.int32)
        self.row_pointers = _frozen(row_pointers, np.int64)
        self.n_features = int(n_features)
        self._check_layout()
        self._check_words()
        self._check_counts(integral)

    @classmethod
    def from_matrix(cls, X: Any, *, integral: bool = True) -> DocumentBatch:
        """Make a batch of a document-word matrix, dense or scipy.sparse.

        Duplicate entries are summed and zeros dropped on a copy; `X` itself is never changed.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_documents, n_features)
            Counts in tokens.
        integral : bool, default True
            As in the constructor.
        """
        import scipy.sparse

        csr = scipy.sparse.csr_matrix(X)
        if csr.dtype.kind not in "buif":
            raise InvalidDocumentsError(
                f"counts must be real numbers, got dtype={csr.dtype}; convert them first"
            )
        if csr.dtype.kind != "f" and csr.nnz and int(csr.data.max()) > MAX_TOKENS:
            raise InvalidDocumentsError(_too_many(int(csr.data.max())))
        tidy = csr.has_canonical_format and bool(np.all(csr.data != 0))
        if not tidy:
            csr = csr.astype(np.float64, copy=True)
            csr.sum_duplicates()
            csr.eliminate_zeros()
        if csr.shape[1] > np.iinfo(np.int32).max:
            raise InvalidDocumentsError(
                f"a vocabulary must have fewer than 2^31 words, got n_features={csr.shape[1]}"
            )
        return cls(csr.data, csr.indices, csr.indptr, csr.shape[1], integral=integral)

    @property
    def n_documents(self) -> int:
        """Number of documents, short ones included."""
        return len(self.row_pointers) - 1

    def __len__(self) -> int:
        return self.n_documents

    def __repr__(self) -> str:
        return (
            f"DocumentBatch(n_documents={self.n_documents}, n_features={self.n_features}, "
            f"nnz={len(self.counts)})"
        )

    @cached_property
    def lengths(self) -> NDArray[np.float64]:
        """Tokens of each document, shape (n_documents,)."""
        filled = np.flatnonzero(np.diff(self.row_pointers))
        lengths = np.zeros(self.n_documents)
        if len(filled):
            lengths[filled] = np.add.reduceat(self.counts, self.row_pointers[filled])
        return _frozen(lengths, np.float64)

    @cached_property
    def usable(self) -> NDArray[np.bool_]:
        """Which documents have at least `MIN_TOKENS` tokens, shape (n_documents,)."""
        return self.lengths >= MIN_TOKENS

    def rows(self, start: int, stop: int) -> DocumentBatch:
        """Return documents `start` to `stop` as a batch that shares this one's arrays."""
        part: DocumentBatch = object.__new__(type(self))
        start, stop, _ = slice(start, stop).indices(self.n_documents)
        pointers = self.row_pointers[start : max(start, stop) + 1]
        part.counts = self.counts[pointers[0] : pointers[-1]]
        part.word_ids = self.word_ids[pointers[0] : pointers[-1]]
        part.row_pointers = _frozen(pointers - pointers[0], np.int64)
        part.n_features = self.n_features
        return part

    def to_csr(self) -> scipy.sparse.csr_matrix:
        """Return the batch as a scipy matrix of shape (n_documents, n_features), sharing memory."""
        import scipy.sparse

        shape = (self.n_documents, self.n_features)
        return scipy.sparse.csr_matrix(
            (self.counts, self.word_ids, self.row_pointers), shape=shape, copy=False
        )

    def _check_layout(self) -> None:
        pointers, nnz = self.row_pointers, len(self.word_ids)
        if pointers.ndim != 1 or len(pointers) == 0 or self.counts.shape != (nnz,):
            raise InvalidDocumentsError(
                "a batch must have one row pointer more than documents and one count a word id, "
                f"got row_pointers={pointers.shape} counts={self.counts.shape} word_ids=({nnz},)"
            )
        if pointers[0] != 0 or pointers[-1] != nnz or bool(np.any(np.diff(pointers) < 0)):
            raise InvalidDocumentsError(
                f"row pointers must rise from 0 to the number of entries, got first={pointers[0]} "
                f"last={pointers[-1]} entries={nnz}; build the batch with DocumentBatch.from_matrix"
            )

    def _check_words(self) -> None:
        if self.n_features < 1:
            raise InvalidDocumentsError(
                f"a vocabulary must have at least 1 word, got n_features={self.n_features}"
            )
        ids = self.word_ids
        if len(ids) == 0:
            return
        low, high = int(ids.min()), int(ids.max())
        if low < 0 or high >= self.n_features:
            raise InvalidDocumentsError(
                f"word ids must lie in 0..n_features-1, got min={low} max={high} "
                f"n_features={self.n_features}; encode the documents with the model's vocabulary"
            )
        rising = np.diff(ids) > 0
        starts = self.row_pointers[1:-1]
        rising[starts[(starts > 0) & (starts < len(ids))] - 1] = True
        if not rising.all():
            where = int(np.argmin(rising))
            row = int(np.searchsorted(self.row_pointers, where, side="right")) - 1
            raise InvalidDocumentsError(
                "word ids must rise strictly within a document, each word once, got "
                f"document={row}; build the batch with DocumentBatch.from_matrix"
            )

    def _check_counts(self, integral: bool) -> None:
        counts = self.counts
        if len(counts) == 0:
            return
        low = float(counts.min())
        if np.isnan(low) or not np.isfinite(counts.max()):
            bad = int(np.argmin(np.isfinite(counts)))
            raise InvalidDocumentsError(
                f"counts must be finite, got counts[{bad}]={counts[bad]}; "
                "remove NaN and infinity before fitting"
            )
        if low < 0:
            raise InvalidDocumentsError(
                f"Negative values in data passed to streamlda: counts must be >= 0, got min={low}; "
                "pass word counts, not centred or signed features"
            )
        if low == 0:
            raise InvalidDocumentsError(
                "a batch stores counts above 0 only, got an explicit zero; "
                "build the batch with DocumentBatch.from_matrix"
            )
        if integral and bool(np.any(counts != np.rint(counts))):
            raise InvalidDocumentsError(
                "counts must be whole numbers of tokens, got fractional values; "
                "pass CountVectorizer output, not TF-IDF"
            )
        longest = float(self.lengths.max())
        if longest > MAX_TOKENS:
            raise InvalidDocumentsError(_too_many(longest))


def _too_many(tokens: float) -> str:
    return (
        f"a document must have at most {MAX_TOKENS} tokens, got tokens={tokens:.0f}; "
        "split it, or check the counts for overflow"
    )


def _frozen(array: Any, dtype: Any) -> Any:
    """Return a read-only contiguous view of `array`, converted only where it must be."""
    view = np.ascontiguousarray(array, dtype=dtype).view()
    view.flags.writeable = False
    return view
