"""Stepwise refinement: each minibatch of fresh documents moves the topics a little.

With S the counts by word and topic, and rho_t = (offset + t)^(-exponent)::

    phi   = (S + s + p) / sum_w (S + s + p)          s = smoothing * mean(S)
    phi   = (1 - f_t) phi + f_t background           f_t falls from `annealing` to 0
    gamma = responsibilities of topics for each word of each document, by CVB0, phi held fixed
    S    <- d_t S + sum_documents c_w gamma_wk       d_t = (1 - rho_t) rho_(t-1) / rho_t

with p the prior of seeded topics (`streamlda.spectral.seeds`). This is stepwise EM [1]_ with
CVB0 [2]_: rho_t S is the weighted mean of all minibatches so far. Topics flattened towards the
background keep their direction and find a better optimum than sharp ones (annealing [3]_).

References
----------
.. [1] Cappe, Moulines (2009), "On-line expectation-maximization algorithm for latent data
   models", JRSS B 71.
.. [2] Foulds et al. (2013), "Stochastic collapsed variational Bayesian inference for latent
   Dirichlet allocation", KDD.
.. [3] Ueda, Nakano (1998), "Deterministic annealing EM algorithm", Neural Networks 11.
"""

import math
from copy import copy
from dataclasses import asdict
from typing import Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.kernels.refinement import (
    MAX_TOPICS,
    NO_SCORES,
    add_few_responsibilities,
    add_responsibilities,
    expect_few_topics,
    expect_topics,
)
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.prior import Prior
from streamlda.refinement.settings import StepwiseEMSettings
from streamlda.text.columns import ColumnChange
from streamlda.utils.arrays import Array, Tree, row_blocks

#: Inner iterations of an E-step, which is cut short: responsibilities that are not yet sharp make
#: topics more coherent, at the cost of a percent of perplexity.
ITERATIONS = 3

#: Responsibilities that are found at a time, in single precision: 16 MiB.
MOST_RESPONSIBILITIES = 2**22

#: Numbers of the sums that are worked on at a time: 256 KiB.
CACHED_NUMBERS = 2**15

#: Topics from which on a document moves few of them: with 500 the steps of all take half of a fit,
#: with 200 a fifth, and topics are less coherent.
FEW_OF_COMPONENTS = 300

#: Topics of a document that have responsibilities, over those that it shows: with half as many,
#: planted topics are found less well than with all.
KEPT_TIMES = 8


class StepwiseEM:
    """Topics that every minibatch of documents moves towards higher likelihood.

    A pure state machine: documents in, topics out. Documents wait until a minibatch is full, so
    that the result depends on their order alone, to the last bit: not on how they were cut into
    batches, nor on the number of threads. Nothing is drawn at random.

    It holds S (`totals`, shape (V, K)), the Dirichlet parameters of the proportions, which stay,
    and word frequencies (background). `steps` are the minibatches learned from, `documents` those
    in them; `waiting` more wait for theirs.

    Of `FEW_OF_COMPONENTS` topics or more each document moves those that it shows most of.

    Time O(nnz K) for the documents and O(V K) a step. Memory 8 V K for the sums, and during a step
    12 K a word of its documents and at most 16 MiB, or 4 K nnz of one document.
    """

    def __init__(
        self,
        totals: Array,
        alpha: Array,
        background: Array,
        settings: StepwiseEMSettings,
        *,
        steps: int = 0,
        documents: int = 0,
    ) -> None:
        """Continue from S, as it is after these steps; owned from now on."""
        self.totals, self.alpha, self.background = totals, alpha, background
        self.settings, self.steps, self.documents = settings, steps, documents
        #: Log-likelihood of each document of the last step, under the topics before it, in nats a
        #: token; None does not measure it.
        self.scores: Array | None = None
        self._prior = Prior(settings.seeds, len(alpha))
        self._waiting: list[DocumentBatch] = []
        self._mass = _masses(totals)

    @classmethod
    def of_topics(
        cls, components: Array, alpha: Array, background: Array, settings: StepwiseEMSettings
    ) -> Self:
        """Begin with topics, shape (K, V), flattened as the first step works with them."""
        # As a distribution over words and topics, until the first minibatch says how many tokens
        # a step holds.
        totals, shares = np.empty(components.T.shape), alpha / alpha.sum()
        for words in row_blocks(len(totals)):
            flat = settings.annealing * background[words, None]
            totals[words] = ((1 - settings.annealing) * components[:, words].T + flat) * shares
        return cls(totals, alpha, background, settings)

    @classmethod
    def of_model(cls, model: TopicModel, settings: StepwiseEMSettings, steps: int) -> Self:
        """Continue from a model as a stream would after these steps.

        S of a stream holds the tokens of its mean minibatch over rho_t.
        """
        weight = (settings.step_offset + steps) ** settings.step_exponent
        tokens = model.tokens_seen / model.documents_seen * settings.batch_documents * weight
        totals, shares = np.empty(model.components.T.shape), model.alpha / model.alpha.sum()
        for words in row_blocks(len(totals)):
            totals[words] = model.components[:, words].T * (shares * tokens)
        return cls(
            totals,
            *(model.alpha, model.background, settings),
            steps=steps,
            documents=model.documents_seen,
        )

    def copy(self) -> Self:
        """Return a copy; O(V K)."""
        made = copy(self)
        made.totals, made._waiting = self.totals.copy(), [*self._waiting]
        return made

    def change_words(self, change: ColumnChange) -> None:
        """Forget words that left; words that enter begin with what the change says. O(V K)."""
        self.totals = change.rows(self.totals)
        self.totals[change.entered_columns] = change.masses(self._mass)
        self.background = change.distribution(self.background)
        self._waiting = [change.documents(part) for part in self._waiting]
        self._mass = _masses(self.totals)

    def copy_flushed(self) -> Self:
        """Return a copy that has learned from the documents that wait; O(V K)."""
        made = self.copy()
        made.flush()
        return made

    @property
    def mean(self) -> Array:
        """Weighted mean of all minibatches, expected tokens by word and topic, (V, K); O(V K)."""
        return self.rho(max(self.steps, 1)) * self.totals

    @property
    def n_waiting(self) -> int:
        """Number of the documents that wait for their minibatch to fill."""
        return sum(part.n_documents for part in self._waiting)

    @property
    def waiting_parts(self) -> list[DocumentBatch]:
        """Documents that wait for their minibatch to fill."""
        return [*self._waiting]

    @property
    def components(self) -> Array:
        """Topics of all minibatches so far, shape (K, V), rows summing to 1. Time O(V K)."""
        return self._prior.components(self.totals, self._smoothing)

    def weigh(self, topic: int, tokens: float) -> None:
        """Let a topic weigh as if it had learned so many tokens: the next ones move it by more."""
        self.totals[:, topic] *= tokens / self._mass[topic]
        self._mass = _masses(self.totals)

    def add(self, batch: DocumentBatch) -> None:
        """Learn from documents, or let them wait for their minibatch to fill."""
        self._check(batch)
        start, size = 0, self.settings.batch_documents
        while start < batch.n_documents:
            part = batch.rows(start, start + size - self.n_waiting)
            start += part.n_documents
            if self.n_waiting + part.n_documents < size:
                self._waiting.append(part.copy())
            else:
                self._waiting.append(part)
                self.flush()

    def flush(self) -> None:
        """Learn from the documents that wait, few as they may be; for the end of a stream."""
        if self._waiting:
            batch = DocumentBatch.joined(self._waiting)
            self._waiting = []
            self.learn(batch)

    def learn(self, batch: DocumentBatch) -> None:
        """Take one step with these documents alone, many or few; those that wait continue waiting.

        What the words of the documents do not touch only decays.
        """
        self._check(batch)
        scores = None if self.scores is None else np.empty(batch.n_documents)
        words, sums = self._sums(batch, scores)
        self.scores = scores
        tokens = float(sums.sum())
        if tokens > 0:
            rho, before = self.rho(self.steps + 1), self.rho(max(self.steps, 1))
            left = (1 - rho) * (before / rho if self.steps else tokens / rho)
            for rows in row_blocks(len(self.totals), self._cached_rows):
                self.totals[rows] *= left
                found = slice(*np.searchsorted(words, (rows.start, rows.stop)))
                self.totals[words[found]] += sums[found]
            self._mass = _masses(self.totals)
            self.steps += 1
        self.documents += batch.n_documents

    def score(self, batch: DocumentBatch) -> Array:
        """Return the log-likelihood of each document, in nats a token; nothing is learned."""
        self._check(batch)
        scores = np.empty(batch.n_documents)
        self._sums(batch, scores)
        return scores

    def statistic(self, batch: DocumentBatch) -> Array:
        """Return the tokens by word and topic that documents would add now, shape (V, K)."""
        self._check(batch)
        statistic = np.zeros_like(self.totals)
        words, sums = self._sums(batch)
        statistic[words] = sums
        return statistic

    def state(self) -> Tree:
        """Return all that is needed to continue."""
        waiting = DocumentBatch.joined(self._waiting).arrays if self._waiting else {}
        own = {"totals": self.totals.copy(), "waiting": waiting, "settings": asdict(self.settings)}
        names = "alpha", "background", "steps", "documents"
        return own | {name: getattr(self, name) for name in names}

    @classmethod
    def from_state(cls, own: Tree) -> Self:
        """Continue from what `state` returned, bit for bit."""
        settings = {**own["settings"], "seeds": tuple(map(tuple, own["settings"]["seeds"]))}
        made = cls(
            np.array(own["totals"], dtype=np.float64),
            *(own["alpha"], own["background"], StepwiseEMSettings(**settings)),
            **{name: own[name] for name in ("steps", "documents")},
        )
        if waiting := own["waiting"]:
            n_features = len(made.totals)
            made._waiting = [DocumentBatch(**waiting, n_features=n_features, integral=False)]
        return made

    def _sums(
        self, batch: DocumentBatch, scores: Array | None = None
    ) -> tuple[NDArray[np.int64], Array]:
        """Return the words of some documents, rising, and their expected tokens by topic.

        Write the log-likelihood of each document, in nats a token, to the scores if there are any.
        """
        V, K = self.totals.shape
        words = np.flatnonzero(np.bincount(batch.word_ids, minlength=V))
        numbers = np.empty(V, dtype=np.int32)
        numbers[words] = np.arange(len(words), dtype=np.int32)
        # The share of the background that is left in the topics.
        ending = self.settings.annealing_steps
        flat = self.settings.annealing * max(0.0, 1 - self.steps / ending) if ending else 0.0
        prior_tokens = self._mass * self._prior.sums
        scale = (1 - flat) / (self._mass + prior_tokens + V * self._smoothing)
        topics = np.empty((len(words), K), dtype=np.float32)
        # A few rows at a time stay in cache.
        for rows in row_blocks(len(words), self._cached_rows):
            gathered = self.totals[words[rows]]
            gathered += self._smoothing
            gathered *= scale
            gathered += flat * self.background[words[rows], None]
            topics[rows] = gathered
        self._prior.add_to(topics, words, scale * self._mass)
        alpha = self.alpha.astype(np.float32)
        sums, start, most = np.zeros((len(words), K)), 0, self._count_topics(batch)
        masses = np.einsum("wk,k->w", topics, alpha) if most < K else np.empty(0)
        for part in batch.blocks(MOST_RESPONSIBILITIES // most):
            ids = numbers[part.word_ids]
            gamma = np.empty((len(ids), most), dtype=np.float32)
            stop = start + part.n_documents
            nats = NO_SCORES if scores is None else scores[start:stop]
            entries = part.counts, ids, part.row_pointers
            by_word = entries_by_word(ids, part.counts, len(words))
            if most < K:
                shown = np.empty((len(part), most), dtype=np.int16)
                expect_few_topics(*entries, topics, masses, alpha, ITERATIONS, shown, gamma, nats)
                numbered = np.arange(len(part), dtype=np.int32)
                document_of_entry = np.repeat(numbered, np.diff(part.row_pointers))
                add_few_responsibilities(*by_word, document_of_entry, shown, gamma, sums)
            else:
                expect_topics(*entries, topics, alpha, ITERATIONS, gamma, nats)
                add_responsibilities(*by_word, gamma, sums)
            start = stop
        if scores is not None:
            scores /= np.maximum(batch.lengths, 1)
        return words, sums

    def _count_topics(self, batch: DocumentBatch) -> int:
        """Return how many topics of a document have responsibilities: all, or those it shows most.

        Of many topics these are `KEPT_TIMES` the topics that a mean document draws from the prior,
        ``sum_i alpha_0 / (alpha_0 + i)`` over its tokens: others have noise alone.
        """
        K, alpha_0 = len(self.alpha), float(self.alpha.sum())
        if not FEW_OF_COMPONENTS <= K <= MAX_TOPICS:
            return K
        tokens = math.ceil(batch.lengths.sum() / max(1, np.count_nonzero(batch.lengths)))
        shown = float((alpha_0 / (alpha_0 + np.arange(tokens))).sum())
        return min(K, max(1, round(KEPT_TIMES * shown)))

    def rho(self, step: int) -> float:
        """Return what the minibatch of a step weighs in the mean."""
        return float((self.settings.step_offset + step) ** -self.settings.step_exponent)

    @property
    def _cached_rows(self) -> int:
        return max(1, CACHED_NUMBERS // len(self.alpha))

    @property
    def _smoothing(self) -> float:
        return self.settings.smoothing * float(self._mass.sum()) / self.totals.size

    def _check(self, batch: DocumentBatch) -> None:
        batch.check_features(len(self.totals), "topics")


def _masses(totals: Array) -> Array:
    # Row by row, in less than half of the time of `totals.sum(axis=0)`.
    found: Array = np.einsum("wk->k", totals)
    return found


def entries_by_word(
    word_ids: NDArray[np.int32], weights: Array, n_words: int
) -> tuple[Array, NDArray[np.int32], NDArray[np.int64]]:
    """Return weights and indices of entries by word, and where each word begins; O(nnz + V)."""
    # Of numbers of 16 bits NumPy's stable sort counts, in linear time.
    fits = n_words <= 2**16
    order = np.argsort(word_ids.astype(np.uint16) if fits else word_ids, kind="stable")
    pointers = np.zeros(n_words + 1, dtype=np.int64)
    np.cumsum(np.bincount(word_ids, minlength=n_words), out=pointers[1:])
    return weights[order], order.astype(np.int32), pointers
