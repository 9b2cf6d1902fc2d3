"""Collapsed variational Bayes over documents in memory: what suits up to 50,000 of text best.

Every entry, a word of a document, keeps its responsibilities. They are found again in turn, and the
sums by word follow each one, so that no entry sees itself (CVB0 [1]_). From spectral topics this
settles in fewer sweeps than a sampler, without sampling noise, and at a third of the time: of 1800
documents of 20 newsgroups (K = 20) eighty sweeps had perplexity 2272 in 0.4 processor seconds, 200
sweeps of a sampler, the mean of ten late states, 2262 in 2.7.

An annealed pass before them (`streamlda.refinement.stepwise_em`) takes as long as ten sweeps, and
saves twenty-five. Perplexity and NPMI of fits, K = 20, means of this many orders of the documents,
with sweeps that are not relaxed:

============================== ====== ================ ================
corpus                         orders no pass, 30 + 20 a pass, 15 + 10
============================== ====== ================ ================
3087 documents of kos          5      1626, 0.196      1639, 0.199
1800 of 20 newsgroups          4      2320, 0.233      2306, 0.245
7200 of 20 newsgroups          3      2080, 0.256      2065, 0.260
1800 abstracts                 4      2151, 0.094      2159, 0.081
8100 abstracts                 3      1734, 0.155      1726, 0.157
============================== ====== ================ ================

NPMI has a standard deviation of 0.002 to 0.035 from order to order.

More documents need more passes before them. Fits by four passes and these sweeps, and by the passes
and rounds of a sampler that still more documents have: perplexity, NPMI and processor seconds:

============================== ====== ================ ================ ================
corpus, K = 20                 orders these            passes, rounds   200 of tomotopy
============================== ====== ================ ================ ================
16,962 of 20 newsgroups        4      1906, 0.263, 2.8 1922, 0.259, 4.1 1923, 0.272, 21
..             , thorough      4      1902, 0.267, 5.3 1914, -,      21
15,000 abstracts               2      1536, -,     1.9 1550, -,     3.2 1529, -,     13
..             , thorough      2      1527, -,     3.6 1526, -,      12
30,000 abstracts               2      1510, -,     4.1 1508, -,     6.1 1483, -,     24
..             , thorough      2      1498, -,     8.5 1490, -,      31
============================== ====== ================ ================ ================

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
from streamlda.kernels.refinement import add_responsibilities, collapse_topics, expect_topics
from streamlda.model.inference import checked_alpha
from streamlda.refinement.gibbs import UNSEEN, topics_of
from streamlda.refinement.prior import Prior
from streamlda.refinement.settings import GibbsSettings
from streamlda.refinement.stepwise_em import checked_topics, entries_by_word
from streamlda.utils.progress import progress

Array = NDArray[np.float64]


class Sweeps(NamedTuple):
    """Numbers of sweeps without the documents set aside, and then with these too.

    Responsibilities move by `relaxation` times the way to what a sweep finds (successive
    over-relaxation), so that topics settle in fewer sweeps.
    """

    before: int
    after: int
    relaxation: float


#: Passes that sweeps go on from, and those of at least as many documents.
PASSES_BEFORE, MORE_PASSES_BEFORE, MORE_DOCUMENTS = 1, 4, 5_000

#: Of a fit, and of a thorough one. With 25 sweeps that were not relaxed, 25 relaxed by 1.5, and
#: these 16, fits of 3087 documents of kos had perplexity 1621, 1609 and 1609 (four orders), of 3600
#: of 20 newsgroups 2058, 2011 and 2011, of 3960 abstracts 1877, 1858 and 1861 (three), NPMI 0.197,
#: 0.195 and 0.195; 0.244, 0.265 and 0.267; 0.142, 0.148 and 0.148. A relaxed sweep takes 1.1 to 1.3
#: times as long. Of 68 planted corpora of 2,000 documents 18 had less error (down to 0.72 of it),
#: two more (1.15, 20 topics with alpha_0 = 50), the others the same.
#:
#: Thorough fits of the three corpora of the table with 3087, 4000 and 3600 documents, by 35 and 15
#: sweeps relaxed by 1.5, had 1612, 1692 and 2135, 0.200, 0.151 and 0.252 (six orders, other
#: held-out documents); with 70 sweeps that were not relaxed 1615, 1702 and 2142, 0.197, 0.150 and
#: 0.249. Ten late states of 200 sweeps of tomotopy, eta = 0.1, in the same orders: 1612, 1696 and
#: 2132, 0.209, 0.147 and 0.273. Relaxed by 1.8, 70 sweeps of the first two had 1619 and 1681; 140
#: relaxed by 1.5 1610 and 1683. By these sweeps, in place of the first, kos had 1608.3 and 1609.8
#: (medians of five orders), 4,000 abstracts 1756 and 1763 (three), in 4 % more time.
USUAL_SWEEPS, THOROUGH_SWEEPS = Sweeps(10, 6, 1.7), Sweeps(38, 15, 1.6)

#: As many documents or more are refined by passes, and have rounds of a sampler.
FEW_DOCUMENTS = 50_000

#: Inner iterations of the E-step that it begins with.
START_ITERATIONS = 5

#: Fewest tokens of a document, on average, and most responsibilities, 128 MiB. Topics of 10,800
#: titles of six words had perplexity 2209 by this, and 2149 by sampling.
LEAST_TOKENS, MOST_RESPONSIBILITIES = 20, 2**25

#: Responsibilities for an entry are a multiple of these, the last ones 0, for the processor takes
#: as many at once. A sweep of kos (K = 20, 24 in a row) took 11.7 ms in place of 14.3.
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
        """Go on with other documents too, theirs found under the topics of now."""
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
            *(START_ITERATIONS, found),
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


def passes_before(n_documents: int, quick: bool = False) -> int:
    """Return how many passes over N documents go before the sweeps."""
    return MORE_PASSES_BEFORE if n_documents >= MORE_DOCUMENTS and not quick else PASSES_BEFORE


def suits(documents: DocumentBatch, n_topics: int) -> bool:
    """Return whether documents are few, also for the memory, and long enough."""
    tokens = float(documents.lengths.sum())
    fits = documents.n_entries * row_of(n_topics) <= MOST_RESPONSIBILITIES
    long = tokens >= LEAST_TOKENS * documents.n_documents
    return documents.n_documents < FEW_DOCUMENTS and fits and long
