"""Stepwise refinement: each minibatch of fresh documents moves the topics a little.

With S the counts by word and topic, and rho_t = (offset + t)^(-exponent)::

    phi   = (S + s + p) / sum_w (S + s + p)          s = smoothing * mean(S)
    phi   = (1 - f_t) phi + f_t background           f_t falls from `annealing` to 0
    gamma = responsibilities of topics for each word of each document, by CVB0, phi held fixed
    S    <- d_t S + sum_documents min(1, max_tokens / l) c_w gamma_wk
    d_t   = (1 - rho_t) rho_(t-1) / rho_t

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

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.errors import require
from streamlda.kernels.refinement import NO_SCORES, add_responsibilities, expect_topics
from streamlda.kernels.stepwise import gather_topics, take_step
from streamlda.model.inference import checked_alpha
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.prior import Prior
from streamlda.refinement.settings import StepwiseEMSettings
from streamlda.spectral.moments import group_by_word
from streamlda.text.columns import ColumnChange
from streamlda.utils.arrays import Arrays, State, named, with_prefix

Array = NDArray[np.float64]

#: Runs of words in a step: their masses are added in order, whatever the number of threads.
_RUNS = 16

#: Responsibilities that are found at a time, in single precision: 32 MiB.
MOST_RESPONSIBILITIES = 2**23


class StepwiseEM:
    """Topics that every minibatch of documents moves towards higher likelihood.

    A pure state machine: documents in, topics out. Documents wait until a minibatch is full, so
    that the result depends on their order alone, to the last bit: not on how they were cut into
    batches, nor on the number of threads. Nothing is drawn at random.

    It starts from topics of shape (K, V), each with a word above 0, the Dirichlet parameters of the
    proportions, shape (K,), which stay, and word frequencies (background) of shape (V,). `steps`
    are the minibatches learned from, `documents` those in them; `waiting` more wait for theirs.

    Time O(nnz K inner_iterations) for the documents and O(V K) a step, one multiplication a number.
    Memory 8 V K for the sums, and during a step 12 K a word of its documents and at most 32 MiB,
    or 4 K nnz of one document.
    """

    def __init__(
        self,
        components: Array,
        alpha: Array,
        background: Array,
        settings: StepwiseEMSettings | None = None,
    ) -> None:
        self.settings = settings or StepwiseEMSettings()
        self.alpha = checked_alpha(alpha)
        topics = checked_topics(components, len(self.alpha))
        self.background = checked_background(background, topics.shape[1])
        flat = self.settings.start_flatness
        start = (1 - flat) * topics + flat * self.background
        # As a distribution over words and topics, until the first minibatch says how many tokens
        # a step holds.
        prevalence = self.alpha / self.alpha.sum()
        self._begin(np.ascontiguousarray((prevalence[:, None] * start).T), 0, 0)

    def _begin(self, totals: Array, steps: int, documents: int) -> None:
        """Take S, with what it was made of."""
        self._totals, self.steps, self.documents = totals, steps, documents
        #: Log-likelihood of each document of the last step, under the topics before it, in nats a
        #: token; None does not measure it.
        self.scores: Array | None = None
        self._prior = Prior(self.settings.seeds, len(self.alpha))
        self._waiting: list[DocumentBatch] = []
        self._mass = self._masses()

    def _masses(self) -> Array:
        """Return the mass of each topic."""
        return self._take(1.0, np.empty(0, np.int64), np.empty((0, len(self.alpha))))

    @classmethod
    def of_totals(
        cls,
        totals: Array,
        alpha: Array,
        background: Array,
        settings: StepwiseEMSettings,
        *,
        steps: int,
        documents: int,
    ) -> Self:
        """Continue from S, shape (V, K), as it is after these steps; owned from now on."""
        made = cls.__new__(cls)
        made.settings, made.alpha = settings, checked_alpha(alpha)
        made.background = np.array(background, dtype=np.float64)
        made._begin(totals, steps, documents)
        return made

    @classmethod
    def of_model(cls, model: TopicModel, settings: StepwiseEMSettings, steps: int) -> Self:
        """Continue from a model as a stream would after these steps.

        S of a stream holds the tokens of its mean minibatch over rho_t.
        """
        weight = (settings.step_offset + steps) ** settings.step_exponent
        tokens = model.tokens_seen / model.documents_seen * settings.batch_documents * weight
        totals = (model.alpha / model.alpha.sum() * tokens)[:, None] * model.components
        return cls.of_totals(
            np.ascontiguousarray(totals.T),
            *(model.alpha, model.background, settings),
            steps=steps,
            documents=model.documents_seen,
        )

    def copy(self, settings: StepwiseEMSettings | None = None) -> Self:
        """Return a copy, which may continue with other settings; O(V K)."""
        made = self.of_totals(
            self._totals.copy(),
            *(self.alpha, self.background, settings or self.settings),
            steps=self.steps,
            documents=self.documents,
        )
        made._waiting = [*self._waiting]
        return made

    def change_words(self, change: ColumnChange) -> None:
        """Forget words that left; words that enter begin with what the change says. O(V K)."""
        mass = self._mass
        self._totals = change.rows(self._totals)
        self._totals[change.entered] = change.masses(mass)
        self.background = change.distribution(self.background)
        self._waiting = [change.documents(part) for part in self._waiting]
        self._mass = self._masses()

    def flushed(self) -> Self:
        """Return a copy that has learned from the documents that wait; O(V K)."""
        made = self.copy()
        made.flush()
        return made

    @property
    def mean(self) -> Array:
        """Weighted mean of all minibatches, expected tokens by word and topic, (V, K); O(V K)."""
        found: Array = self.rho(max(self.steps, 1)) * self._totals
        return found

    @property
    def totals(self) -> Array:
        """S, shape (V, K): expected tokens by word and topic; not to be changed."""
        return self._totals

    @property
    def waiting(self) -> int:
        """Number of the documents that wait for their minibatch to fill."""
        return sum(part.n_documents for part in self._waiting)

    @property
    def waiting_parts(self) -> list[DocumentBatch]:
        """Documents that wait for their minibatch to fill."""
        return [*self._waiting]

    @property
    def components(self) -> Array:
        """Topics of all minibatches so far, shape (K, V), rows summing to 1. Time O(V K)."""
        smooth = self._totals + self._smoothing
        prior = self._prior
        smooth[prior.columns, prior.topics] += prior.tokens(self._mass)
        return np.ascontiguousarray((smooth / smooth.sum(axis=0)).T)

    def add(self, batch: DocumentBatch) -> None:
        """Learn from documents, or let them wait for their minibatch to fill."""
        self._check(batch)
        start, size = 0, self.settings.batch_documents
        while start < batch.n_documents:
            part = batch.rows(start, start + size - self.waiting)
            start += part.n_documents
            if self.waiting + part.n_documents < size:
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

        Equivalent to ``update(statistic(batch), batch.n_documents)``, to rounding, without the
        O(V K) numbers of a statistic: what the words of the documents do not touch only decays.
        """
        self._check(batch)
        scores = None if self.scores is None else np.empty(batch.n_documents)
        words, sums = self._sums(batch, scores)
        self.scores = scores
        self._step(words, sums, batch.n_documents)

    def scored(self, batch: DocumentBatch) -> Array:
        """Return the log-likelihood of each document, in nats a token; nothing is learned."""
        self._check(batch)
        scores = np.empty(batch.n_documents)
        self._sums(batch, scores)
        return scores

    def statistic(self, batch: DocumentBatch) -> Array:
        """Return what documents would add under the topics of now, shape (V, K).

        Expected tokens by word and topic. The sum of two batches' statistics is that of both
        together, to rounding. Each document contributes numbers >= 0 that sum to
        ``min(length, max_tokens)``, to rounding.
        """
        self._check(batch)
        statistic = np.zeros_like(self._totals)
        words, sums = self._sums(batch)
        statistic[words] = sums
        return statistic

    def update(self, statistic: Array, documents: int) -> None:
        """Take one step with the summed statistics of its documents. Time O(V K)."""
        require(
            statistic.shape == self._totals.shape and is_nonnegative(statistic),
            "a statistic must hold finite numbers >= 0 by word and topic",
            shape=statistic.shape,
            expected=self._totals.shape,
            remedy="take it from StepwiseEM.statistic under the same topics",
        )
        self._step(np.arange(len(statistic)), np.ascontiguousarray(statistic), documents)

    @property
    def flatness(self) -> float:
        """Share of the background in the topics that the next step works with."""
        settings = self.settings
        left = 1 - self.steps / settings.annealing_steps if settings.annealing_steps else 0.0
        return settings.annealing * max(0.0, left)

    def state(self) -> State:
        """Return all that is needed to continue: arrays, and plain JSON values."""
        arrays: Arrays = {
            "totals": self._totals.copy(),
            "alpha": self.alpha,
            "background": self.background,
        }
        if self._waiting:
            arrays |= with_prefix(DocumentBatch.joined(self._waiting).arrays, "waiting.")
        counters = {"steps": self.steps, "documents": self.documents}
        return arrays, {"settings": self.settings.state(), "counters": counters}

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> Self:
        """Continue from what `state` returned, bit for bit."""
        made = cls.of_totals(
            np.array(arrays["totals"], dtype=np.float64),
            *(arrays["alpha"], arrays["background"]),
            StepwiseEMSettings.from_state(values["settings"]),
            steps=int(values["counters"]["steps"]),
            documents=int(values["counters"]["documents"]),
        )
        if waiting := named(arrays, "waiting."):
            n_features = len(made._totals)
            made._waiting = [DocumentBatch(**waiting, n_features=n_features, integral=False)]
        return made

    def _sums(
        self, batch: DocumentBatch, scores: Array | None = None
    ) -> tuple[NDArray[np.int64], Array]:
        """Return the words of some documents, rising, and their expected tokens by topic.

        Write the log-likelihood of each document, in nats a token, to the scores if there are any.
        """
        V, K = self._totals.shape
        words = np.flatnonzero(np.bincount(batch.word_ids, minlength=V))
        numbers = np.empty(V, dtype=np.int32)
        numbers[words] = np.arange(len(words), dtype=np.int32)
        flat, prior = self.flatness, self.alpha.astype(np.float32)
        prior_tokens = self._mass * self._prior.sums
        scale = (1 - flat) / (self._mass + prior_tokens + V * self._smoothing)
        topics = np.empty((len(words), K), dtype=np.float32)
        gather_topics(self._totals, words, scale, self._smoothing, flat, self.background, topics)
        self._prior.add_to(topics, words, scale * self._mass)
        sums, start = np.zeros((len(words), K)), 0
        for part in batch.blocks(MOST_RESPONSIBILITIES // K):
            ids = numbers[part.word_ids]
            gamma = np.empty((len(ids), K), dtype=np.float32)
            stop = start + part.n_documents
            expect_topics(
                *(part.counts, ids, part.row_pointers, topics, prior),
                *(self.settings.inner_iterations, gamma),
                NO_SCORES if scores is None else scores[start:stop],
            )
            start = stop
            by_word = entries_by_word(ids, self._weights(part), len(words))
            add_responsibilities(*by_word, gamma, sums)
        if scores is not None:
            scores /= np.maximum(batch.lengths, 1)
        return words, sums

    def _step(self, words: NDArray[np.int64], sums: Array, documents: int) -> None:
        tokens = float(sums.sum())
        if tokens > 0:
            rho, before = self.rho(self.steps + 1), self.rho(max(self.steps, 1))
            kept = (1 - rho) * (before / rho if self.steps else tokens / rho)
            self._mass = self._take(kept, words, sums)
            self.steps += 1
        self.documents += documents

    def _take(self, kept: float, words: NDArray[np.int64], sums: Array) -> Array:
        """Let the totals decay, add some words' sums, and return the mass of each topic."""
        masses = np.empty((_RUNS, self._totals.shape[1]))
        take_step(kept, words, sums, self._totals, masses)
        mass: Array = masses.sum(axis=0)
        return mass

    def rho(self, step: int) -> float:
        """Return what the minibatch of a step weighs in the mean."""
        return float((self.settings.step_offset + step) ** -self.settings.step_exponent)

    @property
    def _smoothing(self) -> float:
        return self.settings.smoothing * float(self._mass.sum()) / self._totals.size

    def _weights(self, batch: DocumentBatch) -> Array:
        """Return what each entry counts for: its tokens, less in a document that is too long."""
        longest = self.settings.max_tokens
        if math.isinf(longest):
            weights: Array = batch.counts
            return weights
        shrunk = longest / np.maximum(batch.lengths, longest)
        weights = batch.counts * np.repeat(shrunk, np.diff(batch.row_pointers))
        return weights

    def _check(self, batch: DocumentBatch) -> None:
        batch.check_features(len(self._totals), "topics")


def entries_by_word(
    word_ids: NDArray[np.int32], weights: Array, n_words: int
) -> tuple[Array, NDArray[np.int32], NDArray[np.int64]]:
    """Return weights and indices of entries by word, and where each word begins; O(nnz + V)."""
    # Each entry is a document of its own.
    return group_by_word(weights, word_ids, np.arange(len(word_ids) + 1), n_words)


def checked_topics(components: Any, n_topics: int) -> Array:
    """Return topics with rows scaled to sum to 1."""
    topics: Array = np.asarray(components, dtype=np.float64)
    require(
        topics.ndim == 2 and len(topics) == n_topics and is_nonnegative(topics),
        "topics must be a matrix of finite numbers >= 0 with one row for each number in alpha",
        components=topics.shape,
        alpha=(n_topics,),
        remedy="project them onto the simplex",
    )
    mass = topics.sum(axis=1, keepdims=True)
    require(
        np.all((mass > 0) & np.isfinite(mass)),
        "each topic must have a word above 0",
        topic=int(np.argmin(mass)),
        sum=mass.min(),
        remedy="leave the topic out",
    )
    scaled: Array = topics / mass
    return scaled


def checked_background(background: Any, n_words: int) -> Array:
    """Return word frequencies scaled to sum to 1."""
    frequencies: Array = np.asarray(background, dtype=np.float64)
    require(
        frequencies.shape == (n_words,) and is_nonnegative(frequencies) and frequencies.any(),
        "the background must hold a finite number >= 0 for each word, one of them above 0",
        background=frequencies.shape,
        n_features=n_words,
        remedy="pass word frequencies",
    )
    scaled: Array = frequencies / frequencies.sum()
    return scaled


def is_nonnegative(array: Array) -> bool:
    """Return whether all numbers are finite and >= 0."""
    return bool(np.all(np.isfinite(array) & (array >= 0)))
