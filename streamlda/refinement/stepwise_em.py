"""Stepwise refinement: each minibatch of fresh documents moves the topics a little.

With S the counts by word and topic, and rho_t = (offset + t)^(-exponent)::

    phi   = (S + s) / sum_w (S + s)                  s = smoothing * mean(S)
    phi   = (1 - f_t) phi + f_t background           f_t falls from `annealing` to 0
    gamma = shares of topics in each word of each document, by CVB0 with phi held fixed
    S    <- d_t S + sum_documents min(1, max_tokens / l) c_w gamma_wk
    d_t   = (1 - rho_t) rho_(t-1) / rho_t

This is stepwise EM [1]_, [2]_ with the average kept as a sum: rho_t S is the weighted mean of all
minibatches so far, and S itself holds as many tokens as still count. What a document adds has an
l1 norm of at most `max_tokens` (its l2 norm is no larger), and sums over documents may be taken
in parts and added: `statistic` and `update` are these two halves.

The start matters more than the steps: from sharp spectral topics the likelihood soon stops at a
poor optimum. Flattened towards the background, and held there for the first steps, topics keep
their direction and find a better one (deterministic annealing [3]_, with the background as the
state of high temperature, for a mixture costs no power of every entry). On 195,000 abstracts with
K = 50, one pass took held-out perplexity from 1648 to 1443 without it, and to 1362 with it.

What was flattened must be learned again, so a refinement needs steps: about 200, half of them
behind the annealing. On planted documents, where spectral topics are consistent already, 60 steps
left 1.5 to 1.8 times the spectral error, and 180 took it to 0.8 to 0.9 times that.

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
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidDocumentsError, InvalidSettingError
from streamlda.kernels.association import group_by_word
from streamlda.kernels.refinement import add_responsibilities, expect_topics
from streamlda.kernels.stepwise import gather_topics, take_step
from streamlda.model.inference import checked_alpha
from streamlda.refinement.inputs import checked_background, checked_topics, proper
from streamlda.refinement.settings import StepwiseEMSettings

Array = NDArray[np.float64]

#: Runs of words in a step: their masses are added in order, whatever the number of threads.
_RUNS = 16

#: Numbers of single precision that the shares of some documents take at a time: 32 MiB.
MOST_SHARES = 2**23


class StepwiseEM:
    """Topics that every minibatch of documents moves towards higher likelihood.

    A pure state machine: documents in, topics out. Documents wait until a minibatch is full, so
    that the result depends on their order alone, to the last bit: not on how they were cut into
    batches, nor on the number of threads. Nothing is drawn at random.

    Parameters
    ----------
    components : ndarray of shape (K, V)
        Topics to start from, finite and >= 0, each with a word above 0.
    alpha : ndarray of shape (K,)
        Parameters of the Dirichlet prior of the proportions, above 0; they stay.
    background : ndarray of shape (V,)
        Word frequencies, >= 0, summing to 1 after scaling.
    settings : RefinementSettings, optional

    Raises
    ------
    InvalidSettingError
        If shapes disagree or a number is out of range.

    Attributes
    ----------
    settings : RefinementSettings
    alpha, background : ndarrays
    steps : int
        Minibatches learned from.
    documents : int
        Documents in these; `waiting` more wait for their minibatch to fill.

    Notes
    -----
    Time O(nnz * K * sweeps) for the documents and O(V K) a step, one multiplication a number.
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
        self.steps = self.documents = 0
        self._waiting: list[DocumentBatch] = []
        flat = self.settings.start_flatness
        start = (1 - flat) * topics + flat * self.background
        # As a distribution over words and topics, until the first minibatch says how many tokens
        # a step holds.
        prevalence = self.alpha / self.alpha.sum()
        self._totals = np.ascontiguousarray((prevalence[:, None] * start).T)
        self._mass = self._take(1.0, np.empty(0, np.int64), np.empty((0, len(topics))))

    @property
    def waiting(self) -> int:
        """Documents that wait for their minibatch to fill."""
        return sum(part.n_documents for part in self._waiting)

    @property
    def components(self) -> Array:
        """Topics of all minibatches so far, shape (K, V), rows summing to 1. Time O(V K)."""
        smooth = self._totals + self._smoothing
        return np.ascontiguousarray((smooth / smooth.sum(axis=0)).T)

    def add(self, batch: DocumentBatch) -> None:
        """Learn from documents, or let them wait for their minibatch to fill.

        Raises
        ------
        InvalidDocumentsError
            If they have another vocabulary size; nothing is learned then.
        """
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
        """Take one step with these documents alone, many or few; those that wait go on waiting.

        Equivalent to ``update(statistic(batch), batch.n_documents)``, to rounding, without the
        O(V K) numbers of a statistic: what the words of the documents do not touch only decays.

        Raises
        ------
        InvalidDocumentsError
            If they have another vocabulary size; nothing is learned then.
        """
        self._check(batch)
        self._step(*self._sums(batch), batch.n_documents)

    def statistic(self, batch: DocumentBatch) -> Array:
        """Return what documents would add under the topics of now; nothing is changed.

        The sum of two batches' statistics is that of both together, to rounding. Each document
        contributes numbers >= 0 that sum to ``min(length, max_tokens)``, to rounding.

        Returns
        -------
        ndarray of shape (V, K)
            Expected tokens by word and topic.

        Raises
        ------
        InvalidDocumentsError
            If they have another vocabulary size.
        """
        self._check(batch)
        statistic = np.zeros_like(self._totals)
        words, sums = self._sums(batch)
        statistic[words] = sums
        return statistic

    def update(self, statistic: Array, documents: int) -> None:
        """Take one step with the summed statistics of its documents. Time O(V K).

        Parameters
        ----------
        statistic : ndarray of shape (V, K)
            From `statistic`, of all documents of the minibatch.
        documents : int
            How many they are.

        Raises
        ------
        InvalidSettingError
            If it has another shape, or holds a negative or non-finite number; nothing is changed.
        """
        if statistic.shape != self._totals.shape or not proper(statistic):
            raise InvalidSettingError(
                "a statistic must hold finite numbers >= 0 by word and topic, got "
                f"shape={statistic.shape} expected={self._totals.shape}; "
                "take it from Refinement.statistic under the same topics"
            )
        self._step(np.arange(len(statistic)), np.ascontiguousarray(statistic), documents)

    @property
    def flatness(self) -> float:
        """Share of the background in the topics that the next step works with."""
        settings = self.settings
        left = 1 - self.steps / settings.annealing_steps if settings.annealing_steps else 0.0
        return settings.annealing * max(0.0, left)

    def state(self) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
        """Return all that is needed to go on: arrays, and plain JSON values."""
        arrays: dict[str, NDArray[Any]] = {
            "totals": self._totals.copy(),
            "alpha": self.alpha,
            "background": self.background,
        }
        if self._waiting:
            batch = DocumentBatch.joined(self._waiting)
            arrays["waiting.counts"] = batch.counts
            arrays["waiting.word_ids"] = batch.word_ids
            arrays["waiting.row_pointers"] = batch.row_pointers
        counters = {"steps": self.steps, "documents": self.documents}
        return arrays, {"settings": asdict(self.settings), "counters": counters}

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], values: Mapping[str, Any]) -> Self:
        """Go on from what `state` returned, bit for bit."""
        made = cls.__new__(cls)
        made.settings = StepwiseEMSettings(**values["settings"])
        made.alpha = checked_alpha(arrays["alpha"])
        made.background = np.array(arrays["background"], dtype=np.float64)
        made._totals = np.array(arrays["totals"], dtype=np.float64)
        made.steps = int(values["counters"]["steps"])
        made.documents = int(values["counters"]["documents"])
        made._mass = made._take(1.0, np.empty(0, np.int64), np.empty((0, len(made.alpha))))
        made._waiting = []
        if "waiting.counts" in arrays:
            batch = DocumentBatch(
                arrays["waiting.counts"],
                arrays["waiting.word_ids"],
                arrays["waiting.row_pointers"],
                len(made._totals),
                integral=False,
            )
            made._waiting = [batch]
        return made

    def _sums(self, batch: DocumentBatch) -> tuple[NDArray[np.int64], Array]:
        """Return the words of some documents, rising, and their expected tokens by topic."""
        V, K = self._totals.shape
        words = np.flatnonzero(np.bincount(batch.word_ids, minlength=V))
        places = np.empty(V, dtype=np.int32)
        places[words] = np.arange(len(words), dtype=np.int32)
        flat, prior = self.flatness, self.alpha.astype(np.float32)
        scale = (1 - flat) / (self._mass + V * self._smoothing)
        topics = np.empty((len(words), K), dtype=np.float32)
        gather_topics(self._totals, words, scale, self._smoothing, flat, self.background, topics)
        sums = np.zeros((len(words), K))
        for part in blocks(batch, MOST_SHARES // K):
            ids = places[part.word_ids]
            responsibilities = np.empty((len(ids), K), dtype=np.float32)
            expect_topics(
                *(part.counts, ids, part.row_pointers, topics, prior),
                *(self.settings.sweeps, responsibilities),
            )
            by_word = entries_by_word(ids, self._weights(part), len(words))
            add_responsibilities(*by_word, responsibilities, sums)
        return words, sums

    def _step(self, words: NDArray[np.int64], sums: Array, documents: int) -> None:
        tokens = float(sums.sum())
        if tokens > 0:
            rho, before = self._rho(self.steps + 1), self._rho(max(self.steps, 1))
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

    def _rho(self, step: int) -> float:
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
        if batch.n_features != len(self._totals):
            raise InvalidDocumentsError(
                "documents must use the vocabulary of the topics, got "
                f"n_features={batch.n_features} expected={len(self._totals)}"
            )


def blocks(batch: DocumentBatch, most_entries: int) -> Iterator[DocumentBatch]:
    """Cut a batch into runs of documents with at most so many entries, or of one document."""
    start = 0
    while start < batch.n_documents:
        last = batch.row_pointers[start] + most_entries
        stop = int(np.searchsorted(batch.row_pointers, last, side="right")) - 1
        yield batch.rows(start, max(start + 1, stop))
        start = max(start + 1, stop)


def entries_by_word(
    word_ids: NDArray[np.int32], weights: Array, n_words: int
) -> tuple[Array, NDArray[np.int32], NDArray[np.int64]]:
    """Return weights and indices of entries by word, and where each word begins; O(nnz + V)."""
    found = (
        np.empty(len(word_ids)),
        np.empty(len(word_ids), dtype=np.int32),
        np.empty(n_words + 1, dtype=np.int64),
    )
    # Each entry is a document of its own.
    group_by_word(weights, word_ids, np.arange(len(word_ids) + 1), *found)
    return found
