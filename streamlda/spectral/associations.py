"""Answers of documents to a power method: sums over one round at its current probes.

The "data association" of Wang & Anandkumar [1]_, Algorithm 2, line 6 (where x_i means x_l): for
real vectors as printed, and for the documents of an LDA model seen through a whitening projection.

Privacy: sums and answers are raw; nothing read from here is private.

References
----------
.. [1] Wang, Anandkumar (2016), "Online and differentially-private tensor decomposition", NIPS,
   section 3.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sized
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidDocumentsError, at_least, require
from streamlda.kernels import association
from streamlda.spectral.moments import BLOCK_DOCUMENTS, document_weights, group_by_word
from streamlda.utils.arrays import Array, Arrays
from streamlda.utils.threads import one_blas_thread

#: Vectors per block of `VectorAssociation`.
BLOCK_VECTORS = 1024

Batch = TypeVar("Batch", bound=Sized)


class Association(ABC, Generic[Batch]):
    """Sums of T(I, u, ..., u) over the documents of one round, at the probes it began with."""

    order: int
    #: Arrays that are made for a round, at its probes.
    _of_round: tuple[str, ...] = ("_images",)

    @cached_property
    def _images(self) -> Array:
        return np.zeros((self._width, self._probes.shape[1]))

    def __init__(self, dimension: int, width: int) -> None:
        self.dimension, self._width = dimension, width
        self.begin(np.zeros((dimension, 0)))

    def begin(self, probes: Array) -> None:
        """Begin a round at probes u, columns of shape (dimension, L); kept by reference."""
        self._probes = np.ascontiguousarray(probes, dtype=np.float64)
        self.documents = 0
        # Made again by the first document: a round that has none takes no memory.
        for name in self._of_round:
            vars(self).pop(name, None)

    @abstractmethod
    def add(self, batch: Batch, start: int = 0, limit: int | None = None) -> int:
        """Add rows from `start` until `limit` have counted; return the row after the last."""

    def answer(self) -> Array:
        """Return the means of T(I, u, ..., u) over one document or more, shape (dimension, L)."""
        return self._project(self._images) / self.documents

    def _project(self, images: Array) -> Array:
        """Return sums in the coordinates of the probes."""
        return images

    def state(self) -> Arrays:
        """Return copies of the sums."""
        return {"documents": np.array([self.documents]), "images": self._images.copy()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back what `state` returned, bit for bit, after `begin` at the same probes."""
        self._images[...] = state["images"]
        self.documents = int(state["documents"][0])


class VectorAssociation(Association[Array]):
    """Sums of (x'u)^(p-1) x over real vectors x.

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
        self.order = order
        super().__init__(dimension, dimension)

    def add(self, batch: Array, start: int = 0, limit: int | None = None) -> int:
        """Add rows from `start` on, at most `limit`; return the row after the last one added.

        Raises `InvalidDocumentsError` if one of them is not a finite vector of length d; then the
        blocks before it have been added.
        """
        fits = batch.ndim == 2 and batch.shape[1] == self.dimension
        rule = "vectors are no rows of the association's dimension"
        about: dict[str, Any] = {"shape": batch.shape, "dimension": self.dimension}
        require(fits, rule, **about, remedy="reshape them", error=InvalidDocumentsError)
        stop = len(batch) if limit is None else min(len(batch), start + limit)
        # What overflows becomes infinite, and the power method refuses it.
        with one_blas_thread(), np.errstate(over="ignore", invalid="ignore"):
            for first in range(start, stop, BLOCK_VECTORS):
                x = np.asarray(batch[first : min(stop, first + BLOCK_VECTORS)], dtype=np.float64)
                finite = np.isfinite(x).all(axis=1)
                require(
                    finite.all(),
                    f"vectors are not finite, got NaN or infinity in row={first + finite.argmin()}",
                    remedy="remove such rows",
                    error=InvalidDocumentsError,
                )
                self._images += x.T @ (x @ self._probes) ** (self.order - 1)
                self.documents += len(x)
        return stop


class DocumentAssociation(Association[DocumentBatch]):
    """Answers for the third LDA moment M3 seen through W, without forming it.

    Probes u have the m coordinates of W. Each document adds P3(I, v, v) at v = W u in word space,
    with words that are drawn together with themselves taken out; the sum is seen through W once a
    round, and `centre_images` makes the Dirichlet corrections.

    Time O(nnz L) a document, O(d m L) a round; memory O(d (m + L)) and one block of documents.
    Documents shorter than 3 tokens do not count. Sums do not depend on the cut into batches nor on
    the number of threads, to the last bit.

    W, kept by reference, has W' M2 W = I, so that the moment is orthogonal. M1 and N = W' P2 W
    (raw, without correction) are from other documents, or from more (`centre`).
    """

    order = 3
    _of_round = ("_images", "_directions", "_squares")

    def __init__(
        self, whitening: Array, alpha_0: float, first_moment: Array, pair_moment: Array
    ) -> None:
        self._W = np.ascontiguousarray(whitening, dtype=np.float64)
        self.alpha_0 = alpha_0
        self.centre(first_moment, pair_moment)
        # Kept from block to block: new pages cost more than what is written into them.
        self._powers = np.empty((2, 0, 0))
        super().__init__(self._W.shape[1], len(self._W))

    def centre(self, first_moment: Array, pair_moment: Array) -> None:
        """Make corrections by M1, shape (d,), and by N, shape (m, m)."""
        self._first: Array = self._W.T @ first_moment
        self._pairs: Array = (pair_moment + pair_moment.T) / 2

    @cached_property
    def _directions(self) -> Array:
        return self._W @ self._probes

    @cached_property
    def _squares(self) -> Array:
        return self._directions**2

    def add(self, batch: DocumentBatch, start: int = 0, limit: int | None = None) -> int:
        """Add documents from `start` until `limit` usable ones; return the one after the last."""
        batch.check_features(self._width, "projection")
        stop = len(batch) if limit is None else batch.find_end(limit, start)
        for first in range(start, stop, BLOCK_DOCUMENTS):
            self._add_block(batch.rows(first, min(stop, first + BLOCK_DOCUMENTS)))
        return stop

    def _add_block(self, block: DocumentBatch) -> None:
        rows = block.counts, block.word_ids, block.row_pointers
        weights = np.ascontiguousarray(document_weights(block)[:, 2])
        shape = (2, block.n_documents, self._directions.shape[1])
        if self._powers.shape != shape:
            self._powers = np.empty(shape)
        s, squares = self._powers
        association.project(*rows, self._directions, s)
        association.project(*rows, self._squares, squares)
        by_word = group_by_word(*rows, block.n_features)
        association.associate_triples(*by_word, self._directions, s, squares, weights, self._images)
        self.documents += int(np.sum(block.usable))

    def answer(self) -> Array:
        """Return M3(W, Wu, Wu), shape (m, L)."""
        how = self._probes, self._first, self._pairs, self.alpha_0
        return centre_images(super().answer(), *how)

    def _project(self, images: Array) -> Array:
        with one_blas_thread():
            found: Array = self._W.T @ images
        return found


def centre_images(
    images: Array, probes: Array, first: Array, pairs: Array, alpha_0: float
) -> Array:
    """Turn means of P3(W, v, v), v = W u, into those of M3: the Dirichlet corrections.

    With q = W'M1 (`first`), N = W' E P2 W (`pairs`), a = alpha_0::

        M3(W, v, v) = P3(W, v, v) - a/(a+2) (2 (q'u) N u + (u'N u) q) + 2a^2/((a+1)(a+2)) (q'u)^2 q
    """
    a, across, paired = alpha_0, first @ probes, pairs @ probes
    mixed = 2 * across * paired + np.outer(first, np.sum(probes * paired, axis=0))
    cube = np.outer(first, across**2)
    return images - a / (a + 2) * mixed + 2 * a**2 / ((a + 1) * (a + 2)) * cube
