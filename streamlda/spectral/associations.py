"""Answers of documents to a power method: sums over one round at its current probes.

The "data association" of Wang & Anandkumar [1]_, Algorithm 2, line 6 (where x_i means x_l): for
real vectors as printed, and for the documents of an LDA model seen through a whitening projection.

Privacy: sums and answers are raw; nothing read from here is private.

References
----------
.. [1] Wang, Anandkumar (2016), "Online and differentially-private tensor decomposition", NIPS,
   section 3.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sized
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, InvalidDocumentsError, at_least, require
from streamlda.kernels import association
from streamlda.spectral.moments import BLOCK_DOCUMENTS, document_weights, grouped_by_word
from streamlda.utils.arrays import Arrays, fill
from streamlda.utils.threads import one_blas_thread

Array = NDArray[np.float64]

#: Vectors per block of `VectorAssociation`.
BLOCK_VECTORS = 1024

Batch = TypeVar("Batch", bound=Sized)


class Association(ABC, Generic[Batch]):
    """Sums over the documents of one round, at the probes it began with.

    Kept are those of images T(I, u, ..., u), of values T(u, ..., u) and of squared values.
    """

    order: int
    _width: int

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._images = np.empty((0, 0))
        self.begin(np.zeros((dimension, 0)))

    def begin(self, probes: Array, *, values_only: bool = False) -> None:
        """Begin a round at probes u, columns of shape (dimension, L); kept by reference."""
        require(
            probes.ndim == 2 and len(probes) == self.dimension,
            "probes must be columns of the association's dimension",
            probes=probes.shape,
            dimension=self.dimension,
            remedy="make both for one dimension",
        )
        self._probes = np.ascontiguousarray(probes, dtype=np.float64)
        self._values_only = values_only
        self.documents = 0
        n_probes = probes.shape[1]
        shape = (self._width, 0 if values_only else n_probes)
        if self._images.shape == shape:
            self._images.fill(0.0)
        else:
            self._images = np.zeros(shape)
        # Of values, and of their squares.
        self._totals = np.zeros((2, n_probes))

    @abstractmethod
    def check(self, batch: Batch) -> None:
        """Raise if a batch cannot be added."""

    @abstractmethod
    def add(self, batch: Batch, start: int = 0, limit: int | None = None) -> int:
        """Add rows from `start` until `limit` have counted; return the row after the last."""

    @abstractmethod
    def answer(self) -> tuple[Array | None, Array]:
        """Return the means of T(I, u, ..., u), shape (d, L), and T(u, ..., u), shape (L,)."""

    def spread(self) -> Array:
        """Return the standard deviation of T(u, ..., u) of one document, shape (L,).

        Of documents without the Dirichlet corrections, which are the same for all.
        """
        self._require_documents()
        mean, square = self._totals / self.documents
        spread: Array = np.sqrt(np.maximum(square - mean**2, 0.0))
        return spread

    def state(self) -> Arrays:
        """Return copies of the sums."""
        return {
            "documents": np.array([self.documents], dtype=np.int64),
            "images": self._images.copy(),
            "totals": self._totals.copy(),
        }

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back what `state` returned, bit for bit, after `begin` at the same probes."""
        fill(
            {"images": self._images, "totals": self._totals},
            state,
            "stored sums must fit the association",
            "restore them with the settings they were made with",
        )
        self.documents = int(state["documents"][0])

    def _require_documents(self) -> None:
        require(
            self.documents >= 1,
            "an answer must be a mean over documents",
            documents=self.documents,
            remedy="add some first",
            error=InsufficientDataError,
        )


class VectorAssociation(Association[Array]):
    """Sums of (x'u)^(p-1) x and (x'u)^p over real vectors x.

    Two matrix products a block: BLAS was measured to be 2 to 5 times as fast as compiled loops
    from d = 20, L = 4 to d = 2000, L = 32. Time O(n d L), memory O(d L) and one block of
    1024 vectors. Sums do not depend on the cut into batches, up to rounding.

    Parameters
    ----------
    dimension : int
        d.
    order : int, default 3
        p.
    """

    def __init__(self, dimension: int, order: int = 3) -> None:
        at_least(1, dimension=dimension)
        at_least(3, order=order)
        self.order = self._order = order
        self._width = dimension
        super().__init__(dimension)

    def check(self, batch: Array) -> None:
        """Raise `InvalidDocumentsError` unless `batch` holds finite rows of length d."""
        require(
            batch.ndim == 2 and batch.shape[1] == self.dimension,
            "vectors must be rows of the association's dimension",
            shape=batch.shape,
            dimension=self.dimension,
            remedy="reshape them",
            error=InvalidDocumentsError,
        )
        for start in range(0, len(batch), BLOCK_VECTORS):
            finite = np.isfinite(batch[start : start + BLOCK_VECTORS]).all(axis=1)
            require(
                finite.all(),
                "vectors must be finite, got NaN or infinity in "
                f"row={start + int(np.argmin(finite))}",
                remedy="remove such rows",
                error=InvalidDocumentsError,
            )

    def add(self, batch: Array, start: int = 0, limit: int | None = None) -> int:
        """Add rows from `start` on, at most `limit`; return the row after the last one added."""
        stop = len(batch) if limit is None else min(len(batch), start + limit)
        # What overflows becomes infinite, and the power method refuses it.
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            for first in range(start, stop, BLOCK_VECTORS):
                x = np.asarray(batch[first : min(stop, first + BLOCK_VECTORS)], dtype=np.float64)
                inner = x @ self._probes
                power = inner.copy()
                for _ in range(self._order - 2):
                    power *= inner
                if not self._values_only:
                    self._images += x.T @ power
                power *= inner
                self._totals[0] += power.sum(axis=0)
                power *= power
                self._totals[1] += power.sum(axis=0)
        self.documents += stop - start
        return stop

    def answer(self) -> tuple[Array | None, Array]:
        """Return the means so far: images, shape (d, L), or None, and values, shape (L,)."""
        self._require_documents()
        images = None if self._values_only else self._images / self.documents
        return images, self._totals[0] / self.documents


class DocumentAssociation(Association[DocumentBatch]):
    """Answers for the third LDA moment M3 seen through W, without forming it.

    Probes u have the m coordinates of W. Each document adds P3(I, v, v) at v = W u in word space,
    with words that are drawn together with themselves taken out; the sum is seen through W once a
    round. The Dirichlet corrections are then made from the first two moments::

        M3(W, v, v) = P3(W, v, v) - a/(a+2) (2 (q'u) N u + (u'N u) q)
                      + 2 a^2/((a+1)(a+2)) (q'u)^2 q          q = W'M1, N = W' P2 W, a = alpha_0

    Time O(nnz L) a document, O(d m L) a round; memory O(d (m + L)) and one block of documents.
    Documents shorter than 3 tokens do not count. Sums do not depend on the cut into batches nor on
    the number of threads, to the last bit.

    W, kept by reference, has W' M2 W = I, so that the moment is orthogonal. M1 and N (raw, without
    correction) are from documents before.
    """

    order = 3

    def __init__(
        self, whitening: Array, alpha_0: float, first_moment: Array, pair_moment: Array
    ) -> None:
        self._W = np.ascontiguousarray(whitening, dtype=np.float64)
        shapes = first_moment.shape, pair_moment.shape
        require(
            self._W.ndim == 2 and shapes == (self._W.shape[:1], self._W.shape[1:] * 2),
            "moments must fit the projection",
            whitening=self._W.shape,
            first_moment=first_moment.shape,
            pair_moment=pair_moment.shape,
            remedy="pass M1 over words and the pairs seen through W",
        )
        require(
            math.isfinite(alpha_0) and alpha_0 >= 0,
            "alpha_0 must be finite and not negative",
            alpha_0=alpha_0,
        )
        require(
            all(np.isfinite(array).all() for array in (self._W, first_moment, pair_moment)),
            "projection and moments must be finite, got NaN or infinite entries",
            remedy="check what they were made from",
        )
        self.alpha_0 = float(alpha_0)
        self._first: Array = self._W.T @ first_moment
        self._pairs: Array = (pair_moment + pair_moment.T) / 2
        self._width = len(self._W)
        self._directions = np.empty((0, 0))
        # Kept from block to block: new pages cost more than what is written into them.
        self._powers = np.empty((3, 0, 0))
        super().__init__(self._W.shape[1])

    def begin(self, probes: Array, *, values_only: bool = False) -> None:
        """Begin a round at probes of shape (m, L)."""
        super().begin(probes, values_only=values_only)
        shape = (self._width, probes.shape[1])
        if self._directions.shape != shape:
            self._directions = np.empty(shape)
        np.matmul(self._W, self._probes, out=self._directions)

    def check(self, batch: DocumentBatch) -> None:
        """Raise `InvalidDocumentsError` unless the batch is over the d words of W."""
        batch.check_features(self._width, "projection")

    def add(self, batch: DocumentBatch, start: int = 0, limit: int | None = None) -> int:
        """Add documents from `start` until `limit` usable ones; return the one after the last."""
        stop = len(batch) if limit is None else batch.find_end(limit, start)
        for first in range(start, stop, BLOCK_DOCUMENTS):
            self._add_block(batch.rows(first, min(stop, first + BLOCK_DOCUMENTS)))
        return stop

    def _add_block(self, block: DocumentBatch) -> None:
        rows = block.counts, block.word_ids, block.row_pointers
        weights = np.ascontiguousarray(document_weights(block)[:, 2])
        shape = (3, block.n_documents, self._directions.shape[1])
        if self._powers.shape != shape:
            self._powers = np.empty(shape)
        association.project_powers(*rows, self._directions, self._powers)
        s, s2, _ = self._powers
        if not self._values_only:
            by_word = grouped_by_word(block)
            association.associate_triples(*by_word, self._directions, s, s2, weights, self._images)
        association.associate_values(self._powers, weights, self._totals)
        self.documents += int(np.sum(block.usable))

    def answer(self) -> tuple[Array | None, Array]:
        """Return M3(W, Wu, Wu), shape (m, L), or None, and M3(Wu, Wu, Wu), shape (L,)."""
        self._require_documents()
        u, a = self._probes, self.alpha_0
        across = self._first @ u
        paired = self._pairs @ u
        square = np.sum(u * paired, axis=0)
        mixed, cube = a / (a + 2), 2 * a**2 / ((a + 1) * (a + 2))
        values = self._totals[0] / self.documents - 3 * mixed * across * square + cube * across**3
        if self._values_only:
            return None, values
        with one_blas_thread():
            images = self._W.T @ self._images / self.documents
        images -= mixed * (2 * across * paired + np.outer(self._first, square))
        images += cube * np.outer(self._first, across**2)
        return images, values
