"""Documents as counts: one batch type, checked once, from a matrix or a list."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import Faults, InvalidDocumentsError, at_least, require
from streamlda.kernels.copying import copy_documents
from streamlda.utils.arrays import Array

if TYPE_CHECKING:
    import scipy.sparse

S = TypeVar("S", bound=np.generic)

_require = partial(require, error=InvalidDocumentsError)

#: The pair and triple statistics are defined from three tokens on (they divide by l - 2).
MIN_TOKENS = 3

#: Rule, and what to do, where documents are too few for a model.
TOPICS_NEED = f"fewer than 2 documents have {MIN_TOKENS} known words or more"
CHECK_TEXTS = "check the format, the text field, the token pattern and the vocabulary"

#: Largest total count of one document: products of three counts stay finite and sums exact.
MAX_TOKENS = 2**31

#: Rows with fractional entries are scaled to this many tokens, where the correction for
#: words drawn together with themselves vanishes.
PSEUDO_TOKENS = 1e6

#: Most words: their ids are 32-bit numbers.
MOST_FEATURES = 2**31 - 1

_FROM_MATRIX = "build the batch with DocumentBatch.from_matrix"
_FAULTS = Faults(
    {
        InvalidDocumentsError: {
            "columns": f"counts have more than {MOST_FEATURES} columns; keep the columns of "
            "words that some document has",
            "finite": "counts are not finite; remove NaN and infinity",
            "fractions": "counts are no whole numbers of tokens; pass CountVectorizer output, not "
            "TF-IDF",
            "length": f"a document has more than {MAX_TOKENS} tokens; split it",
            "matrix": "counts are no matrix of documents by words; put a single document into a "
            "matrix of one row",
            "negative": "Negative values in data passed to streamlda; pass word counts, not "
            "centred or signed features",
            "order": f"word ids do not rise strictly within a document; {_FROM_MATRIX}",
            "outside": "word ids lie outside 0..n_features-1; encode by the vocabulary",
            "pointers": "row pointers do not rise from 0 to the number of entries, with one count "
            f"a word id; {_FROM_MATRIX}",
            "real": "counts are no real numbers; convert them first",
            "zeros": f"a batch stores counts that are not above 0; {_FROM_MATRIX}",
        },
    }
)
_check = _FAULTS.check

#: Entries that are looked at or moved at a time.
BLOCK_ENTRIES = 2**16

#: Time bins that are held: the oldest goes when a newer one comes.
MOST_BINS = 1000

#: The bin of a document without a time.
UNDATED = int(np.iinfo(np.int64).min)

#: In place of a time bin where the event time lies too far ahead of the clock.
AHEAD = UNDATED + 1


class DocumentBatch:
    """A batch of documents in compressed sparse row form.

    The arrays are checked once, in O(nnz), made read-only and then shared. Counts keep their type;
    `counts` are those that kernels take. `InvalidDocumentsError` names the first wrong document.

    Parameters
    ----------
    counts : ndarray of shape (nnz,), integer or float
        How often the word occurs in the document, in tokens; whole numbers above 0.
    word_ids : ndarray of shape (nnz,), int32
        Word of each count, strictly increasing within a document.
    row_pointers : ndarray of shape (n_documents + 1,), int64
        Document n owns the entries from ``row_pointers[n]`` to ``row_pointers[n + 1]``.
    n_features : int
        Size of the vocabulary.
    bins : ndarray of shape (n_documents,), int64, optional
        Start of the time bin of each document in seconds since 1970 UTC, or `UNDATED`.
    integral : bool, default True
        Insist on whole numbers. Without it, counts are weights, and no privacy bound holds.
    """

    def __init__(
        self,
        counts: NDArray[Any],
        word_ids: NDArray[np.int32],
        row_pointers: NDArray[np.int64],
        n_features: int,
        *,
        bins: NDArray[np.int64] | None = None,
        integral: bool = True,
    ) -> None:
        real = _real(counts)
        # In the order of bytes that kernels take.
        self.raw: NDArray[Any] = _frozen(real, real.dtype.newbyteorder("="))
        self.word_ids = _frozen(_integers("word ids", word_ids, np.int32), np.int32)
        self.row_pointers = _frozen(_integers("row pointers", row_pointers, np.int64), np.int64)
        self.n_features = int(n_features)
        self.bins = None
        self._check(integral)
        self.bins = self._check_bins(bins)

    @classmethod
    def from_matrix(cls, X: Any, *, integral: bool = True) -> DocumentBatch:
        """Make a batch of a matrix of documents by words, dense or scipy.sparse.

        Duplicate entries are summed and zeros dropped on a copy; `X` itself is never changed.
        """
        import scipy.sparse

        matrix: Any = X if scipy.sparse.issparse(X) else np.asarray(X)
        _real(matrix)
        _check(matrix.ndim == 2, "matrix", ndim=matrix.ndim)
        _check(matrix.shape[1] <= MOST_FEATURES, "columns", n_features=matrix.shape[1])
        # Converting another sparse format adds up duplicates, which small integers cannot hold;
        # scipy has no sparse half precision.
        if matrix.dtype == np.float16 or getattr(matrix, "format", "csr") != "csr":
            matrix = matrix.astype(np.float64)
        csr: Any = scipy.sparse.csr_matrix(matrix)
        tidy = csr.has_canonical_format and bool(np.all(csr.data != 0))
        if not tidy:
            csr = csr.astype(np.float64, copy=True)
            csr.sum_duplicates()
            csr.eliminate_zeros()
        return cls(csr.data, csr.indices, csr.indptr, csr.shape[1], integral=integral)

    @cached_property
    def counts(self) -> Array:
        """The counts as kernels take them: `raw`, or a copy, for as long as the batch."""
        return _frozen(self.raw, np.float64)

    @property
    def n_documents(self) -> int:
        """Number of documents, short ones included."""
        return len(self.row_pointers) - 1

    @property
    def n_entries(self) -> int:
        """Number of counts."""
        return int(self.row_pointers[-1])

    def __len__(self) -> int:
        return self.n_documents

    def __repr__(self) -> str:
        sizes = f"n_documents={len(self)}, n_features={self.n_features}, nnz={self.n_entries}"
        return f"DocumentBatch({sizes})"

    def __getstate__(self) -> dict[str, Any]:
        """Travel without a second copy of the counts."""
        return {name: value for name, value in vars(self).items() if name != "counts"}

    @cached_property
    def lengths(self) -> Array:
        """Tokens of each document, shape (n_documents,)."""
        filled = np.flatnonzero(np.diff(self.row_pointers))
        lengths = np.zeros(self.n_documents)
        if len(filled):
            lengths[filled] = np.add.reduceat(self.raw, self.row_pointers[filled], dtype=float)
        return _frozen(lengths, np.float64)

    @cached_property
    def whole(self) -> bool:
        """True if all counts are whole numbers."""
        every = (self.raw[a:][:BLOCK_ENTRIES] for a in range(0, len(self.raw), BLOCK_ENTRIES))
        return self.raw.dtype.kind in "bui" or all(
            np.array_equal(part, np.rint(part)) for part in every
        )

    @cached_property
    def usable(self) -> NDArray[np.bool_]:
        """True for documents of at least `MIN_TOKENS` tokens, shape (n_documents,)."""
        return _frozen(self.lengths >= MIN_TOKENS, np.bool_)

    @cached_property
    def nonempty(self) -> NDArray[np.bool_]:
        """True for documents of one token or more, of which topics can be learned and inferred."""
        return _frozen(self.lengths > 0, np.bool_)

    @property
    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays by name, as the constructor takes them; not copied."""
        arrays: dict[str, NDArray[Any]] = {
            "counts": self.counts,
            "word_ids": self.word_ids,
            "row_pointers": self.row_pointers,
        }
        return arrays if self.bins is None else arrays | {"bins": self.bins}

    def dated(self, bins: NDArray[np.int64]) -> DocumentBatch:
        """Return the documents with these time bins, sharing this batch's arrays."""
        arrays = (self.raw, self.word_ids, self.row_pointers)
        return self._from_checked(*arrays, self.n_features, self._check_bins(bins))

    def check_features(self, expected: int, of: str) -> None:
        """Raise `InvalidDocumentsError` unless the words are as many as those `of` something."""
        rule = f"documents do not use the vocabulary of the {of}"
        _require(self.n_features == expected, rule, n_features=self.n_features, expected=expected)

    def find_end(self, number: int, start: int = 0, mask: NDArray[np.bool_] | None = None) -> int:
        """Return where N documents of a mask (usable ones) from `start` on end, or the batch."""
        if number == 0:
            return start
        found = np.flatnonzero((self.usable if mask is None else mask)[start:])
        return start + int(found[number - 1]) + 1 if number <= len(found) else self.n_documents

    def rows(self, start: int, stop: int) -> DocumentBatch:
        """Return documents `start` to `stop` as a batch that shares this one's arrays."""
        start, stop, _ = slice(start, stop).indices(self.n_documents)
        pointers = self.row_pointers[start : max(start, stop) + 1]
        entries = slice(pointers[0], pointers[-1])
        arrays = self.raw[entries], self.word_ids[entries], pointers - pointers[0]
        bins = None if self.bins is None else self.bins[start : max(start, stop)]
        return self._from_checked(*arrays, self.n_features, bins)

    def blocks(self, most_entries: int = BLOCK_ENTRIES) -> Iterator[DocumentBatch]:
        """Cut the batch into runs of documents within a number of entries, or of one document."""
        start = 0
        while start < self.n_documents:
            last = self.row_pointers[start] + most_entries
            stop = int(np.searchsorted(self.row_pointers, last, side="right")) - 1
            yield self.rows(start, max(start + 1, stop))
            start = max(start + 1, stop)

    def where(self, mask: NDArray[np.bool_]) -> DocumentBatch:
        """Return a copy of the documents that a mask chooses; if all are chosen, the batch."""
        return self if mask.all() else self.take(np.flatnonzero(mask))

    def sharing(self, mask: NDArray[np.bool_]) -> DocumentBatch:
        """Return the documents that `where` does, in the memory of this batch.

        It suits passes over most of a large batch: rows are copied when they are asked for.
        """
        return self if mask.all() else _SharedDocuments(self, np.flatnonzero(mask))

    def take(self, numbers: NDArray[np.intp]) -> DocumentBatch:
        """Return some documents, by rising numbers, in memory of their own; O(what they hold)."""
        starts = self.row_pointers[numbers]
        pointers = np.zeros(len(numbers) + 1, dtype=np.int64)
        np.cumsum(self.row_pointers[numbers + 1] - starts, out=pointers[1:])
        held, word_ids = self.raw, self.word_ids
        counts, words = (np.empty(pointers[-1], array.dtype) for array in (held, word_ids))
        copy_documents(
            *(held.view(np.uint8), held.itemsize, word_ids, starts, pointers),
            *(counts.view(np.uint8), words),
        )
        bins = None if self.bins is None else self.bins[numbers]
        return self._from_checked(counts, words, pointers, self.n_features, bins)

    def without(self, left_out: NDArray[np.bool_], n_features: int) -> DocumentBatch:
        """Return all documents without some words, in a vocabulary of a new size; O(nnz)."""
        kept = ~left_out[self.word_ids]
        ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
        arrays = self.raw[kept], self.word_ids[kept], ends[self.row_pointers]
        return self._from_checked(*arrays, n_features, self.bins)

    def copy(self) -> DocumentBatch:
        """Return the batch in memory of its own, to be kept when the caller reuses its arrays."""
        return self.take(np.arange(self.n_documents))

    @classmethod
    def joined(cls, parts: Sequence[DocumentBatch]) -> DocumentBatch:
        """Return the documents of one or more batches as one, in their order.

        One batch comes back itself. Where some have no times, their documents are undated.
        """
        if len(parts) == 1:
            return parts[0]
        widths = [np.zeros(1, dtype=np.int64), *(np.diff(part.row_pointers) for part in parts)]
        bins = None
        if any(part.bins is not None for part in parts):
            bins = np.concatenate(
                [np.full(len(p), UNDATED) if p.bins is None else p.bins for p in parts]
            )
        return cls._from_checked(
            np.concatenate([part.raw for part in parts]),
            np.concatenate([part.word_ids for part in parts]),
            np.cumsum(np.concatenate(widths)),
            parts[0].n_features,
            bins,
        )

    @classmethod
    def _from_checked(
        cls,
        counts: NDArray[Any],
        word_ids: NDArray[np.int32],
        row_pointers: NDArray[np.int64],
        n_features: int,
        bins: NDArray[np.int64] | None = None,
    ) -> DocumentBatch:
        """Return a batch of arrays that come from checked ones, unchecked."""
        batch: DocumentBatch = object.__new__(cls)
        batch.raw = _frozen(counts, counts.dtype)
        batch.word_ids = _frozen(word_ids, np.int32)
        batch.row_pointers = _frozen(row_pointers, np.int64)
        batch.n_features = n_features
        batch.bins = None if bins is None else _frozen(bins, np.int64)
        return batch

    def to_csr(self) -> scipy.sparse.csr_matrix:
        """Return the batch as a scipy matrix of shape (n_documents, n_features), sharing memory."""
        import scipy.sparse

        shape = (self.n_documents, self.n_features)
        return scipy.sparse.csr_matrix(
            (self.counts, self.word_ids, self.row_pointers), shape=shape, copy=False
        )

    def _check_bins(self, bins: NDArray[np.int64] | None) -> NDArray[np.int64] | None:
        if bins is None:
            return None
        return _frozen(_integers("bins", bins, np.int64), np.int64)

    def _check(self, integral: bool) -> None:
        pointers, ids, nnz = self.row_pointers, self.word_ids, len(self.word_ids)
        shapes = pointers.ndim == 1 and len(pointers) > 0 and self.raw.shape == ids.shape == (nnz,)
        # Compared, not subtracted: a difference of two 64-bit numbers may wrap.
        ends = shapes and (pointers[0], pointers[-1]) == (0, nnz)
        rise = ends and np.all(pointers[1:] >= pointers[:-1])
        found = {"row_pointers": pointers.shape, "counts": self.raw.shape, "word_ids": ids.shape}
        _check(rise, "pointers", **found)
        remedy = "learn the vocabulary from documents that hold words"
        at_least(1, n_features=self.n_features, remedy=remedy, error=InvalidDocumentsError)
        done = 0
        for part in self.blocks():
            for rule, bad in _find_faults(part, integral):
                _check(not bad.any(), rule, document=done + int(np.argmax(bad)))
            done += len(part)


def _find_faults(part: DocumentBatch, integral: bool) -> Iterator[tuple[str, NDArray[np.bool_]]]:
    """Yield rules that documents may break, and which documents break each."""
    counts, ids, starts = part.counts, part.word_ids, part.row_pointers[:-1]
    falling = np.zeros(len(ids), dtype=np.bool_)
    np.less_equal(ids[1:], ids[:-1], out=falling[1:])
    falling[starts[starts < len(ids)]] = False

    def documents(bad: NDArray[np.bool_]) -> NDArray[np.bool_]:
        found = np.zeros(len(part), dtype=np.bool_)
        found[np.searchsorted(starts, np.flatnonzero(bad), side="right") - 1] = True
        return found

    # A negative number is a large one without a sign.
    outside = ids.view(np.uint32) >= part.n_features
    yield "outside", documents(outside)
    yield "order", documents(falling)
    finite = np.isfinite(counts)
    yield "finite", documents(~finite)
    yield "negative", documents(counts < 0)
    yield "zeros", documents(counts == 0)
    with np.errstate(over="ignore"):
        long = part.lengths > MAX_TOKENS
    yield "length", long
    if integral:
        yield "fractions", documents(counts != np.rint(counts))


class _SharedDocuments(DocumentBatch):
    """Some documents of another batch, by rising numbers."""

    def __init__(self, batch: DocumentBatch, numbers: NDArray[np.intp]) -> None:
        self._batch, self._numbers = batch, numbers
        pointers = np.zeros(len(numbers) + 1, dtype=np.int64)
        np.cumsum(np.diff(batch.row_pointers)[numbers], out=pointers[1:])
        self.row_pointers = _frozen(pointers, np.int64)
        self.n_features = batch.n_features
        self.bins = None if batch.bins is None else _frozen(batch.bins[numbers], np.int64)

    @cached_property
    def _copy(self) -> DocumentBatch:
        return self._batch.take(self._numbers)

    @property
    def raw(self) -> NDArray[Any]:  # type: ignore[override]
        return self._copy.raw

    @property
    def word_ids(self) -> NDArray[np.int32]:  # type: ignore[override]
        return self._copy.word_ids

    @cached_property
    def lengths(self) -> Array:
        return _frozen(self._batch.lengths[self._numbers], np.float64)

    @cached_property
    def whole(self) -> bool:
        return self._batch.whole or self._copy.whole

    def rows(self, start: int, stop: int) -> DocumentBatch:
        return self._batch.take(self._numbers[start:stop])

    def take(self, numbers: NDArray[np.intp]) -> DocumentBatch:
        return self._batch.take(self._numbers[numbers])


def read_counts(X: Any, stacklevel: int = 3) -> DocumentBatch:
    """Return a batch of whole tokens; fractional rows become very long documents."""
    batch = DocumentBatch.from_matrix(X, integral=False)
    if batch.whole:
        return batch
    warnings.warn(
        "counts are no whole numbers of tokens: rows are taken as word frequencies without "
        "sampling noise; pass CountVectorizer output, not TF-IDF",
        UserWarning,
        stacklevel=stacklevel,
    )
    rows = np.repeat(np.arange(batch.n_documents), np.diff(batch.row_pointers))
    counts = np.rint(batch.counts * (PSEUDO_TOKENS / batch.lengths[rows]))
    layout = (batch.word_ids, batch.row_pointers, batch.n_features)
    return DocumentBatch(np.maximum(counts, 1.0), *layout)


def _real(array: Any) -> Any:
    """Return `array` (or a sparse matrix) if it holds real numbers."""
    array = array if hasattr(array, "dtype") else np.asarray(array)
    _check(array.dtype.kind in "buif", "real", dtype=array.dtype)
    return array


def _integers(name: str, array: Any, dtype: Any) -> Any:
    """Return `array` if a cast to the integer type `dtype` changes none of its values."""
    array = np.asarray(array)
    if array.dtype == dtype or array.size == 0:
        return array
    limits = np.iinfo(dtype)
    fits = array.dtype.kind in "iu" and array.min() >= limits.min and array.max() <= limits.max
    rule = f"{name} must be integers that fit {np.dtype(dtype)}"
    _require(fits, rule, dtype=array.dtype, remedy=_FROM_MATRIX)
    return array


def _frozen(array: Any, dtype: type[S] | np.dtype[S]) -> NDArray[S]:
    """Return a read-only contiguous view of `array`, converted only where it must be."""
    view = np.ascontiguousarray(array, dtype=dtype).view()
    view.flags.writeable = False
    return view
