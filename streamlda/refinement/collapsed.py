"""Collapsed variational Bayes over documents in memory: what suits text best while it fits.

Every entry, a word of a document, keeps its responsibilities. They are found again in turn, and the
sums by word follow each one, so that no entry sees itself (CVB0 [1]_). From spectral topics this
settles in fewer sweeps than a sampler, without sampling noise, and at a third of the time.
Annealed passes go before them (`streamlda.refinement.stepwise_em`).

References
----------
.. [1] Asuncion, Welling, Smyth, Teh (2009), "On smoothing and inference for topic models", UAI.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.kernels.refinement import (
    NO_SCORES,
    add_responsibilities,
    collapse_topics,
    expect_topics,
)
from streamlda.model.inference import checked_alpha
from streamlda.refinement.gibbs import UNSEEN, topics_of
from streamlda.refinement.prior import Prior
from streamlda.refinement.settings import GibbsSettings
from streamlda.refinement.stepwise_em import checked_topics, entries_by_word
from streamlda.utils.progress import progress

Array = NDArray[np.float64]


class Sweeps(NamedTuple):
    """Numbers of sweeps without the held-out documents, and then with these too.

    Responsibilities move by `relaxation` times the way to what a sweep finds (successive
    over-relaxation), so that topics settle in fewer sweeps.
    """

    before: int
    after: int
    relaxation: float


#: Of a fit, and of a thorough one: 16 sweeps that are relaxed reach what 25 plain ones do.
USUAL_SWEEPS, THOROUGH_SWEEPS = Sweeps(10, 6, 1.7), Sweeps(38, 15, 1.6)

#: Inner iterations of the E-step that it begins with.
START_ITERATIONS = 5

#: Fewest tokens of a document, on average, for titles gain more by sampling; and most
#: responsibilities, 128 MiB.
LEAST_TOKENS, MOST_RESPONSIBILITIES = 20, 2**25

#: Responsibilities for an entry are a multiple of these, the last ones 0, for speed.
LANES = 8


class CollapsedVariational:
    """Responsibilities of topics for every entry, found again in every sweep.

    A pure state machine, with equal results to the last bit for any number of threads. Documents
    are kept by reference. Topics have shape (K, V), each with a word above 0; alpha, shape (K,),
    stays; the first topics have a prior on the columns of `seeds`. Time O(nnz K) a sweep; memory
    4 K nnz and 12 V K, with K a multiple of `LANES`.
    """

    def __init__(
        self,
        documents: DocumentBatch,
        components: Array,
        alpha: Array,
        smoothing: float = GibbsSettings().smoothing,
        seeds: Sequence[tuple[int, ...]] = (),
        relaxation: float = USUAL_SWEEPS.relaxation,
    ) -> None:
        self.alpha, self.smoothing = checked_alpha(alpha), smoothing
        self.relaxation = relaxation
        topics = checked_topics(components, len(self.alpha))
        documents.check_features(topics.shape[1], "topics")
        #: alpha as wide as the responsibilities for an entry.
        self._row = np.zeros(row_of(len(self.alpha)), dtype=np.float32)
        self._row[: len(self.alpha)] = self.alpha
        self._prior = Prior(seeds, len(self.alpha))
        self._parts = [_Part.expected(documents, topics, self._row)]
        self.sweeps, self.totals = 0, np.zeros(topics.T.shape)
        self._sum(self._parts)

    def sweep(self, n: int = 1) -> None:
        """Find all responsibilities again, `n` times."""
        totals, at = _widened(self.totals, self._row), (self._prior.columns, self._prior.topics)
        held = np.zeros(len(at[0]), dtype=np.float32)
        with progress("collapsed sweeps", n) as advance:
            for _ in range(n):
                totals[at] -= held
                held = self._prior.tokens(totals.sum(axis=0, dtype=np.float64)).astype(np.float32)
                totals[at] += held
                masses = totals.sum(axis=0, dtype=np.float64).astype(np.float32)
                for rows, responsibilities in self._parts:
                    collapse_topics(
                        *(rows.counts, rows.word_ids, rows.row_pointers, self._row, self.smoothing),
                        *(self.relaxation, masses, responsibilities, totals),
                    )
                advance(1)
        self.sweeps += n
        # Without the rounding of many small changes.
        self.totals = np.zeros(self.totals.shape)
        self._sum(self._parts)

    @property
    def components(self) -> Array:
        """Topics of the totals, shape (K, V), rows summing to 1."""
        return topics_of(self._prior.on(self.totals), self.smoothing)

    def add(self, batch: DocumentBatch) -> None:
        """Continue with other documents too, theirs found under the topics of now."""
        self._parts.append(_Part.expected(batch, self.components, self._row))
        self._sum(self._parts[-1:])

    def _sum(self, parts: Sequence[_Part]) -> None:
        for rows, responsibilities in parts:
            by_word = entries_by_word(rows.word_ids, rows.counts, rows.n_features)
            add_responsibilities(*by_word, responsibilities, self.totals)


class _Part(NamedTuple):
    """Documents, and the responsibilities for their entries."""

    documents: DocumentBatch
    responsibilities: NDArray[np.float32]

    @classmethod
    def expected(cls, batch: DocumentBatch, topics: Array, row: NDArray[np.float32]) -> Self:
        """Begin with the mean-field answer under some topics; `row` is alpha, widened."""
        found = np.empty((batch.n_entries, len(row)), dtype=np.float32)
        words = _widened(topics.T + UNSEEN / topics.size, row)
        expect_topics(
            *(batch.counts, batch.word_ids, batch.row_pointers, words, row),
            *(START_ITERATIONS, found, NO_SCORES),
        )
        return cls(batch, found)


def _widened(numbers: Array, row: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return numbers by word and topic in rows that are as wide as another."""
    found = np.zeros((len(numbers), len(row)), dtype=np.float32)
    found[:, : numbers.shape[1]] = numbers
    return found


def row_of(n_topics: int) -> int:
    """Return how many responsibilities an entry has."""
    return -(-n_topics // LANES) * LANES


def sweeps_for(thorough: bool) -> Sweeps:
    """Return how many sweeps a fit makes."""
    return THOROUGH_SWEEPS if thorough else USUAL_SWEEPS


def suits(documents: DocumentBatch, n_topics: int) -> bool:
    """Return whether documents are few, also for the memory, and long enough."""
    tokens = float(documents.lengths.sum())
    fits = documents.n_entries * row_of(n_topics) <= MOST_RESPONSIBILITIES
    long = tokens >= LEAST_TOKENS * documents.n_documents
    return fits and long
