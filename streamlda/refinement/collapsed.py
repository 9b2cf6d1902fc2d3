"""Collapsed variational Bayes over documents whose responsibilities fit into memory.

Every entry, a word of a document, keeps its responsibilities. They are found again in turn, and the
sums by word follow each one, so that no entry sees itself (CVB0 [1]_). From spectral topics this
settles in fewer sweeps than a sampler, without sampling noise, and at a third of the time.
Annealed passes go before them (`streamlda.refinement.stepwise_em`).

References
----------
.. [1] Asuncion, Welling, Smyth, Teh (2009), "On smoothing and inference for topic models", UAI.
"""

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.kernels import refinement
from streamlda.model.inference import check_alpha
from streamlda.refinement.gibbs import RELAXATION, UNSEEN
from streamlda.refinement.prior import Prior
from streamlda.refinement.settings import GibbsSettings
from streamlda.refinement.stepwise_em import ITERATIONS, MOST_RESPONSIBILITIES, entries_by_word
from streamlda.utils.arrays import Array, row_blocks
from streamlda.utils.progress import progress

#: Responsibilities for an entry are a multiple of these, the last ones 0, for speed.
LANES = 8


class CollapsedVariational:
    """Responsibilities of topics for every entry, found again in every sweep.

    A pure state machine, with equal results to the last bit for any number of threads. Documents
    are kept by reference. Topics have shape (K, V), each with a word above 0; alpha, shape (K,),
    stays; the first topics have a prior on the columns of seeds. Time O(nnz K) a sweep; memory
    4 K nnz and 12 V K, with K a multiple of `LANES`.
    """

    def __init__(
        self,
        documents: DocumentBatch,
        components: Array,
        alpha: Array,
        settings: GibbsSettings | None = None,
    ) -> None:
        settings = settings or GibbsSettings()
        self.alpha, self.smoothing = check_alpha(alpha), settings.smoothing
        K = len(self.alpha)
        documents.check_features(components.shape[1], "topics")
        #: alpha as wide as the responsibilities for an entry.
        self._row = np.zeros(_row_of(K), dtype=np.float32)
        self._row[:K] = self.alpha
        self._prior = Prior(settings.seeds, K)
        #: Documents, and the responsibilities for their entries.
        self._parts: list[tuple[DocumentBatch, NDArray[np.float32]]] = []
        self.sweeps, self.totals = 0, np.zeros(components.T.shape)
        self._add(documents, components)

    @staticmethod
    def count_parts(documents: DocumentBatch, n_topics: int) -> int:
        """Return the parts of documents whose responsibilities take about 128 MiB at most each."""
        return -(-documents.n_entries * _row_of(n_topics) // (8 * MOST_RESPONSIBILITIES))

    def sweep(self, n: int = 1) -> None:
        """Find all responsibilities again, `n` times."""
        totals, at = self._widen(self.totals), (self._prior.columns, self._prior.topics)
        held = np.zeros(len(at[0]), dtype=np.float32)
        with progress("collapsed sweeps", n) as advance:
            for _ in range(n):
                totals[at] -= held
                held = self._prior.tokens(totals.sum(axis=0, dtype=np.float64)).astype(np.float32)
                totals[at] += held
                masses = totals.sum(axis=0, dtype=np.float64).astype(np.float32)
                for rows, responsibilities in self._parts:
                    refinement.collapse_topics(
                        *(rows.counts, rows.word_ids, rows.row_pointers, self._row, self.smoothing),
                        *(RELAXATION, masses, responsibilities, totals),
                    )
                advance(1)
        self.sweeps += n
        # Without the rounding of many small changes.
        self.totals.fill(0.0)
        for part in self._parts:
            self._sum(*part)

    def learn(self, batch: DocumentBatch) -> None:
        """Sweep over other documents too, half as often as before."""
        self._add(batch, self.components)
        self.sweep(self.sweeps // 2)

    @property
    def components(self) -> Array:
        """Topics of the totals, shape (K, V), rows summing to 1."""
        return self._prior.components(self.totals, self.smoothing)

    def _add(self, batch: DocumentBatch, topics: Array) -> None:
        """Begin with the mean-field answer under some topics."""
        found = np.empty((batch.n_entries, len(self._row)), dtype=np.float32)
        words = self._widen(topics.T, UNSEEN / topics.size)
        refinement.expect_topics(
            *(batch.counts, batch.word_ids, batch.row_pointers, words, self._row),
            *(ITERATIONS, found, refinement.NO_SCORES),
        )
        self._parts.append((batch, found))
        self._sum(batch, found)

    def _sum(self, rows: DocumentBatch, responsibilities: NDArray[np.float32]) -> None:
        by_word = entries_by_word(rows.word_ids, rows.counts, rows.n_features)
        refinement.add_responsibilities(*by_word, responsibilities, self.totals)

    def _widen(self, numbers: Array, more: float = 0.0) -> NDArray[np.float32]:
        """Return numbers by word and topic, and some more, in rows as wide as responsibilities."""
        found = np.zeros((len(numbers), len(self._row)), dtype=np.float32)
        for rows in row_blocks(len(numbers)):
            found[rows, : numbers.shape[1]] = numbers[rows] + more
        return found


def _row_of(n_topics: int) -> int:
    """Return how many responsibilities an entry has."""
    return -(-n_topics // LANES) * LANES
