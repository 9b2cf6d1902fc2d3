"""Gibbs sampling over documents in memory: the last few percent, at a byte or two a token.

Every token has a topic. A sweep takes the tokens of a minibatch out of the counts N by word and
topic, draws their topics again, document by document, and puts them back::

    p(z = k | the rest) ~ (N_wk + smoothing) / sum_w (N_wk + smoothing) * (alpha_k + n_dk)

N holds the prior of seeded topics too (`streamlda.refinement.prior`). That is collapsed Gibbs
sampling [1]_, but the documents of a minibatch do not see each other's changes [2]_.

References
----------
.. [1] Griffiths, Steyvers (2004), "Finding scientific topics", PNAS 101.
.. [2] Newman, Asuncion, Smyth, Welling (2009), "Distributed algorithms for topic models", JMLR 10.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidDocumentsError, require
from streamlda.kernels.refinement import (
    MAX_TOPICS,
    NO_SCORES,
    add_responsibilities,
    add_tokens,
    draw_topics,
    expect_topics,
    resample_topics,
    tally_topics,
)
from streamlda.model.inference import checked_alpha
from streamlda.refinement.prior import Prior
from streamlda.refinement.settings import GibbsSettings
from streamlda.refinement.stepwise_em import ITERATIONS, MOST_RESPONSIBILITIES, entries_by_word
from streamlda.utils.progress import progress

Array = NDArray[np.float64]

#: Mass spread over all words and topics of a start, so that no word is impossible.
UNSEEN = 1e-6

#: Minibatches of a sweep, whose documents are drawn side by side: the others say what the topics
#: are. Each takes O(V K), so more would cost a small corpus as much as its tokens do.
MINIBATCHES = 20

#: Least parameter: inference divides by them, and a topic that lost all its tokens may come back.
SMALLEST_ALPHA = 1e-5


class GibbsSampler:
    """A topic for every token of the documents, drawn again in every sweep.

    A pure state machine. Equal documents, topics and settings give equal results to the last bit
    for any number of threads, and for any number of sweeps a call.

    Documents have integer counts, and are kept by reference. It starts from topics of shape (K, V),
    each with a word above 0, and Dirichlet parameters of shape (K,), which follow the sweeps.

    Time of a sweep O(tokens (topics of a document + log K) + V K a minibatch). Memory a byte a
    token (2 from 257 topics on) and 8 a document besides the documents, 8 V K for the counts, and
    as much again for the mean of sweeps.
    """

    def __init__(
        self,
        documents: DocumentBatch,
        components: Array,
        alpha: Array,
        settings: GibbsSettings | None = None,
    ) -> None:
        self.settings = settings or GibbsSettings()
        self.alpha = checked_alpha(alpha)
        K = len(self.alpha)
        require(
            K <= MAX_TOPICS,
            "Gibbs sampling holds topics in two bytes at most",
            n_components=K,
            most=MAX_TOPICS,
            remedy="ask for fewer topics",
        )
        documents.check_features(components.shape[1], "topics")
        require(
            documents.whole,
            "Gibbs sampling gives a topic to every token, so counts must be whole numbers",
            counts="fractional",
            remedy="pass CountVectorizer output, not TF-IDF",
            error=InvalidDocumentsError,
        )
        self._documents = documents
        lengths = documents.lengths.astype(np.int64)
        # The first token of each document, and of one behind the last.
        self._first_tokens = np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)])
        lengths = np.bincount(lengths, minlength=1)
        # Documents with more than j tokens, j = 0, 1, ...
        self._longer = np.cumsum(lengths[::-1])[::-1][1:]
        self._alpha_0 = None if self.settings.fits_alpha_0 else float(self.alpha.sum())
        self.prior = Prior(self.settings.seeds, K)
        self.sweeps = 0
        #: The topic of every token, words of a document in order.
        self.topics = np.empty(self._first_tokens[-1], np.uint8 if K <= 2**8 else np.int16)
        self._counts = np.zeros((documents.n_features, K))
        self._mean: Array | None = None
        self._begin(components)

    def sweep(self, n: int = 1, *, averaged: int = 0) -> None:
        """Draw the topics of all tokens `n` times.

        `totals` and `components` are then those of the mean of the last sweeps, as many as are
        `averaged`: it has less sampling noise than the last one.
        """
        self._mean = None
        with progress("Gibbs sweeps", n) as advance:
            for left in range(n, 0, -1):
                self._sweep()
                self.sweeps += 1
                if self._mean is not None:
                    self._mean += (self._counts - self._mean) / (averaged - left + 1)
                elif left <= averaged:
                    averaged, self._mean = left, self._counts.copy()
                advance(1)

    def learn(self, batch: DocumentBatch) -> None:
        """Add the expected tokens of documents that are not swept over to `totals`."""
        words, prior = (
            self._spread(self.prior.on(self.totals), self.settings.smoothing)[0],
            self.alpha.astype(np.float32),
        )
        found = np.empty((batch.n_entries, len(prior)), dtype=np.float32)
        expect_topics(
            *(batch.counts, batch.word_ids, batch.row_pointers, words, prior),
            *(ITERATIONS, found, NO_SCORES),
        )
        self._mean = self.totals.copy()
        by_word = entries_by_word(batch.word_ids, batch.counts, batch.n_features)
        add_responsibilities(*by_word, found, self._mean)

    @property
    def totals(self) -> Array:
        """Tokens by word and topic, shape (V, K): the mean of averaged sweeps, else of the last."""
        return self._counts if self._mean is None else self._mean

    @property
    def components(self) -> Array:
        """Topics of the totals, shape (K, V), rows summing to 1."""
        return topics_of(self.prior.on(self.totals), self.settings.smoothing)

    def _minibatches(self) -> Iterator[_Minibatch]:
        n = self._documents.n_documents
        size = max(1, -(-n // MINIBATCHES))
        for start in range(0, n, size):
            yield self._minibatch(self._documents.rows(start, start + size), start)

    def _minibatch(self, rows: DocumentBatch, start: int) -> _Minibatch:
        pointers = np.zeros(len(rows.counts) + 1, dtype=np.int64)
        np.cumsum(rows.counts, out=pointers[1:], dtype=np.int64)
        first = self._first_tokens[start]
        topics = self.topics[first : first + pointers[-1]].astype(np.int16)
        return _Minibatch(rows, start, pointers, topics)

    def _keep(self, part: _Minibatch) -> None:
        """Keep the topics that were drawn, and put them into the counts."""
        first = self._first_tokens[part.first]
        self.topics[first : first + len(part.topics)] = part.topics
        self._add(part, 1.0)

    def _begin(self, components: Array) -> None:
        """Draw first topics from the mean-field answer under the topics given."""
        K = len(self.alpha)
        prior = self.alpha.astype(np.float32)
        words = self._spread(components.T, UNSEEN / components.size)[0]
        at = 0
        for rows in self._documents.blocks(MOST_RESPONSIBILITIES // K):
            part = self._minibatch(rows, at)
            responsibilities = np.empty((len(rows.counts), K), dtype=np.float32)
            expect_topics(
                *(rows.counts, rows.word_ids, rows.row_pointers, words, prior),
                *(ITERATIONS, responsibilities, NO_SCORES),
            )
            draw_topics(
                *(responsibilities, rows.row_pointers, part.token_pointers),
                *(self.settings.seed, at, part.topics),
            )
            self._keep(part)
            at += rows.n_documents

    def _sweep(self) -> None:
        at_least = np.zeros((len(self.alpha), len(self._longer)), dtype=np.int64)
        for part in self._minibatches():
            self._add(part, -1.0)
            counts = self.prior.on(self._counts)
            words, running = self._spread(counts, self.settings.smoothing)
            resample_topics(
                *(part.rows.word_ids, part.rows.row_pointers, part.token_pointers, words, running),
                *(self.settings.seed, part.first, self.sweeps + 1, part.topics),
            )
            self._keep(part)
            tally_topics(part.rows.row_pointers, part.token_pointers, part.topics, at_least)
        self.alpha = fit_alpha(at_least, self._longer, self.alpha, alpha_0=self._alpha_0)

    def _add(self, part: _Minibatch, sign: float) -> None:
        """Put the tokens of a minibatch into the counts, or take them out (sign -1); exact."""
        add_tokens(part.rows.word_ids, part.token_pointers, part.topics, sign, self._counts)

    def _spread(
        self, counts: Array, smoothing: float
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Return the topics of some counts word by word, and what sampling needs of them."""
        counts = np.ascontiguousarray(counts)
        scale = 1 / (counts.sum(axis=0) + len(counts) * smoothing)
        words = ((counts + smoothing) * scale).astype(np.float32)
        return words, np.cumsum(words * self.alpha.astype(np.float32), axis=1)


class _Minibatch(NamedTuple):
    """Documents of one step, the number of the first, and of tokens pointers and copied topics."""

    rows: DocumentBatch
    first: int
    token_pointers: NDArray[np.int64]
    topics: NDArray[np.int16]


def topics_of(totals: Array, smoothing: float) -> Array:
    """Return topics, shape (K, V), of tokens by word and topic, and some more of each word."""
    topics = totals + smoothing
    topics /= topics.sum(axis=0)
    return np.ascontiguousarray(topics.T)


def fit_alpha(
    at_least: NDArray[np.int64],
    longer: NDArray[np.int64],
    alpha: NDArray[np.float64],
    steps: int = 5,
    *,
    alpha_0: float | None = None,
) -> NDArray[np.float64]:
    """Return alpha after some fixed-point steps towards its maximum likelihood.

    A step is ``alpha[k] *= sum_j at_least[k, j] / (alpha[k] + j)`` over
    ``sum_j longer[j] / (sum(alpha) + j)``: Minka's fixed point [1]_, with the differences of
    digamma functions written as sums [2]_. The likelihood, that of the Dirichlet-multinomial,
    rises with every step. With `alpha_0` alpha keeps this sum, and its proportions follow.
    Time O(K * longest document * steps).

    `at_least`, shape (K, L), are the documents with more than j tokens of topic k, `longer`, shape
    (L,), those with more than j tokens. The result is at least 1e-5; without a token it is `alpha`.

    References
    ----------
    .. [1] Minka (2000), "Estimating a Dirichlet distribution", equation 55.
    .. [2] Wallach (2008), "Structured topic models for language", section 2.3.
    """
    found = alpha.copy()
    j = np.arange(len(longer))
    if longer.any():
        for _ in range(steps):
            rises = (at_least / (found[:, None] + j)).sum(axis=1)
            falls = (longer / (found.sum() + j)).sum()
            found = np.maximum(found * rises / falls, SMALLEST_ALPHA)
            if alpha_0 is not None:
                found *= alpha_0 / found.sum()
    return found
