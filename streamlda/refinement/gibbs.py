"""Gibbs sampling over documents in memory: the last few percent, at a byte or two a token.

Every token has a topic. A sweep draws all of them again, document by document, from the counts N
by word and topic as they were when it began, less the token itself::

    p(z = k | the rest) ~ (N_wk + smoothing) / sum_w (N_wk + smoothing) * (alpha_k + n_dk)

N holds the prior of seeded topics too (`streamlda.refinement.prior`). That is collapsed Gibbs
sampling [1]_, but documents do not see each other's changes before the next sweep [2]_, and that
takes counts further on the way from those before (`RELAXATION`).

References
----------
.. [1] Griffiths, Steyvers (2004), "Finding scientific topics", PNAS 101.
.. [2] Newman, Asuncion, Smyth, Welling (2009), "Distributed algorithms for topic models", JMLR 10.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.kernels import refinement
from streamlda.model.inference import check_alpha
from streamlda.refinement.prior import Prior
from streamlda.refinement.settings import GibbsSettings
from streamlda.refinement.stepwise_em import ITERATIONS, entries_by_word
from streamlda.utils.arrays import Array, row_blocks
from streamlda.utils.progress import progress

#: Mass spread over all words and topics of a start, so that no word is impossible.
UNSEEN = 1e-6

#: Share of the way to what a sweep finds that sweeps move (successive over-relaxation): 16 such
#: collapsed sweeps reach what 25 plain ones do.
RELAXATION = 1.7

#: Documents that alpha is fitted to, and the tokens that longer documents count as if they had, or
#: one of each word.
ALPHA_DOCUMENTS, LONGEST_TOKENS = 500, 1000

#: How many times alpha the first draws are made with. Sharper ones give a document few topics from
#: its first words on, and fewer words tell the topics apart later.
FIRST_ALPHA_TIMES = 10

#: Least parameter: inference divides by them, and a topic that lost all its tokens may come back.
SMALLEST_ALPHA = 1e-5


class GibbsSampler:
    """A topic for every token of the documents, drawn again in every sweep.

    A pure state machine. Equal documents, topics and settings give equal results to the last bit
    for any number of threads, and for any number of sweeps a call.

    Documents have integer counts, and are kept by reference. It starts from topics of shape (K, V),
    each with a word above 0, and Dirichlet parameters `alpha` of shape (K,), K at most
    `MAX_TOPICS`. After every sweep `drawn_alpha` has the sum that fits the draws, for topics would
    settle slowly, and too flat or too sharp, under a false one. Its proportions stay: of a few
    tokens a document, those that follow the sweeps let small topics starve.

    Time of a sweep O(tokens (topics of a document + log K) + V K). Memory a byte a token (2 from
    257 topics on) besides the documents, 4 V K for the counts, and as much for those before,
    8 V K for the mean of sweeps, and 8 V K during a sweep.
    """

    def __init__(
        self,
        documents: DocumentBatch,
        components: Array,
        alpha: Array,
        settings: GibbsSettings | None = None,
    ) -> None:
        self.settings = settings or GibbsSettings()
        self.alpha = self.drawn_alpha = check_alpha(alpha)
        K = len(self.alpha)
        documents.check_features(components.shape[1], "topics")
        self._documents = documents
        self.prior = Prior(self.settings.seeds, K)
        self.sweeps = 0
        #: The topic of every token, words of a document in order.
        self.topics = np.empty(int(documents.lengths.sum()), np.uint8 if K <= 2**8 else np.int16)
        self._counts = np.zeros((documents.n_features, K), dtype=np.int32)
        #: The counts before the last sweep.
        self._before: NDArray[np.int32] | None = None
        short = np.flatnonzero((documents.lengths > 0) & (documents.lengths <= LONGEST_TOKENS))
        chosen = np.zeros(len(documents), dtype=np.bool_)
        chosen[short[:: max(1, -(-len(short) // ALPHA_DOCUMENTS))]] = True
        #: Documents that alpha is fitted to, and the numbers of their tokens.
        self._sample = documents.where(chosen)
        self._sampled = np.flatnonzero(np.repeat(chosen, documents.lengths.astype(np.int64)))
        words = np.add(components.T, UNSEEN / components.size, dtype=np.float32)
        self._draw(np.ascontiguousarray(words), FIRST_ALPHA_TIMES * self.alpha, np.zeros(K))
        #: Tokens by word and topic, shape (V, K): the mean of averaged sweeps, else of the last.
        self.totals = self._counts.astype(np.float64)

    def sweep(self, n: int = 1, *, averaged: int = 1) -> None:
        """Draw the topics of all tokens `n` times.

        `totals` and `components` are then those of the mean of the last sweeps, as many as are
        `averaged`: it has less sampling noise than the last one.
        """
        averaged = min(n, max(1, averaged))
        with progress("Gibbs sweeps", n) as advance:
            for left in range(n, 0, -1):
                self.sweeps += 1
                self._draw(*self._topics(self._next_counts()))
                self._fit_alpha_0()
                if left == averaged:
                    self.totals = self._counts.astype(np.float64)
                elif left < averaged:
                    self.totals += self._counts
                advance(1)
        self.totals /= max(1, averaged)

    def learn(self, batch: DocumentBatch) -> None:
        """Add the expected tokens of documents that are not swept over to `totals`."""
        words, alpha, _ = self._topics(self.totals)
        found = np.empty((batch.n_entries, len(alpha)), dtype=np.float32)
        refinement.expect_topics(
            *(batch.counts, batch.word_ids, batch.row_pointers, words),
            *(alpha.astype(np.float32), ITERATIONS, found, refinement.NO_SCORES),
        )
        by_word = entries_by_word(batch.word_ids, batch.counts, batch.n_features)
        refinement.add_responsibilities(*by_word, found, self.totals)

    @property
    def components(self) -> Array:
        """Topics of the totals, shape (K, V), rows summing to 1."""
        return self.prior.components(self.totals, self.settings.smoothing)

    def _fit_alpha_0(self) -> None:
        """Fit the sum of alpha to the topics of tokens."""
        pointers = np.concatenate(
            [np.zeros(1, np.int64), np.cumsum(self._sample.counts, dtype=np.int64)]
        )
        labels = self.topics[self._sampled].astype(np.int16)
        found = tally(self._sample.row_pointers, pointers, labels, len(self.alpha))
        self.drawn_alpha = fit_alpha(*found, self.drawn_alpha, even=True)

    def _next_counts(self) -> NDArray[np.float32]:
        """Return counts further on the way from those before the last sweep, and keep these."""
        found = self._counts.astype(np.float32)
        if self._before is None:
            self._before = self._counts.copy()
            return found
        for rows in row_blocks(len(found)):
            now, before = self._counts[rows], self._before[rows]
            found[rows] += np.float32(RELAXATION - 1) * (now - before)
            # A token takes itself out of the topic that it has.
            np.maximum(found[rows], np.minimum(now, 1), out=found[rows])
            before[:] = now
        return found

    def _topics(self, counts: NDArray[Any]) -> tuple[NDArray[np.float32], Array, Array]:
        """Return the topics of some counts word by word, alpha, and what a token adds to each.

        Counts in single precision are overwritten.
        """
        words = counts.astype(np.float32, copy=False)
        self.prior.add(words)
        words += np.float32(self.settings.smoothing)
        own = 1 / words.sum(axis=0, dtype=np.float64)
        words *= own.astype(np.float32)
        return words, self.drawn_alpha, own

    def _draw(self, words: NDArray[np.float32], alpha: Array, own: Array) -> None:
        """Draw the topics of all tokens."""
        prior = alpha.astype(np.float32)
        running = words * prior
        np.cumsum(running, axis=1, out=running)
        document = token = 0
        for rows in self._documents.blocks():
            pointers = np.zeros(rows.n_entries + 1, dtype=np.int64)
            np.cumsum(rows.counts, out=pointers[1:], dtype=np.int64)
            tokens = slice(token, token + int(pointers[-1]))
            # Before the first sweep tokens have no topic.
            before = self.topics[tokens].astype(np.int16)
            if not self.sweeps:
                before[:] = -1
            topics = before.copy()
            refinement.resample_topics(
                *(rows.word_ids, rows.row_pointers, pointers, words, running),
                *(own.astype(np.float32), prior, self.settings.seed, document, self.sweeps, topics),
            )
            refinement.move_tokens(rows.word_ids, pointers, before, topics, self._counts)
            self.topics[tokens] = topics
            document, token = document + rows.n_documents, tokens.stop


def tally(
    row_pointers: NDArray[np.int64],
    token_pointers: NDArray[np.int64],
    topics: NDArray[np.int16],
    n_topics: int,
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return how many documents have more than j tokens of each topic, and of all."""
    ends = token_pointers[row_pointers]
    lengths = np.diff(ends)
    most = int(lengths.max(initial=0))
    # Documents by their tokens of each topic.
    found = np.zeros((n_topics, most + 1), dtype=np.int64)
    for rows in row_blocks(len(lengths)):
        own = lengths[rows]
        documents = np.repeat(np.arange(len(own)), own)
        part = topics[ends[rows.start] : ends[rows.start + len(own)]]
        counts = np.bincount(documents * n_topics + part, minlength=len(own) * n_topics)
        places = counts.reshape(-1, n_topics) + np.arange(n_topics) * (most + 1)
        found += np.bincount(places.ravel(), minlength=found.size).reshape(found.shape)
    found = np.vstack([found, np.bincount(lengths, minlength=most + 1)])
    longer = found[:, :0:-1].cumsum(axis=1)[:, ::-1]
    return longer[:-1], longer[-1]


def fit_alpha(
    at_least: NDArray[np.int64],
    longer: NDArray[np.int64],
    alpha: NDArray[np.float64],
    *,
    alpha_0: float | None = None,
    even: bool = False,
) -> NDArray[np.float64]:
    """Return alpha of the maximum likelihood, or after 100 fixed-point steps towards it.

    A step is ``alpha[k] *= sum_j at_least[k, j] / (alpha[k] + j)`` over
    ``sum_j longer[j] / (sum(alpha) + j)``: Minka's fixed point [1]_, with the differences of
    digamma functions written as sums [2]_. The likelihood, that of the Dirichlet-multinomial,
    rises with every step, and the last one changes alpha by less than a thousandth. With `alpha_0`
    alpha keeps this sum, and its proportions follow; `even` keeps the proportions, and the sum
    follows. Time O(K * longest document) a step.

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
        for _ in range(100):
            before, rises = found, (at_least / (found[:, None] + j)).sum(axis=1)
            if even:
                rises = (found * rises).sum() / found.sum()
            falls = (longer / (found.sum() + j)).sum()
            found = np.maximum(found * rises / falls, SMALLEST_ALPHA)
            if alpha_0 is not None:
                found *= alpha_0 / found.sum()
            if np.abs(found - before).sum() < 1e-3 * before.sum():
                break
    return found
