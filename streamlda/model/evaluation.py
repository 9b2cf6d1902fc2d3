"""Quality of topics: held-out likelihood, diversity, distance from planted ones."""

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.errors import between
from streamlda.kernels.inference import word_probabilities
from streamlda.model.faults import check
from streamlda.model.inference import TOLERANCE, check_alpha, fold_in_words, word_major
from streamlda.utils.arrays import Array


@dataclass(frozen=True, slots=True)
class CompletionResult:
    """Result of document completion, over the same held-out tokens for model and baseline."""

    #: Sums of log p(token) over the held-out tokens: under the model, and under the background.
    log_likelihood_nats: float
    unigram_log_likelihood_nats: float
    #: Documents with both halves non-empty; the others are left out.
    documents: int
    #: Tokens scored: those of words that the background has, for no baseline can score others.
    held_out_tokens: int

    @property
    def perplexity(self) -> float:
        """Perplexity a held-out token, ``exp(-log_likelihood / tokens)``; lower is better."""
        return self._perplexity(self.log_likelihood_nats)

    @property
    def unigram_perplexity(self) -> float:
        """Perplexity of the background distribution on the same tokens."""
        return self._perplexity(self.unigram_log_likelihood_nats)

    def _perplexity(self, nats: float) -> float:
        # Infinite where it overflows.
        with np.errstate(over="ignore"):
            return float(np.exp(-nats / self.held_out_tokens))


class DocumentCompletion:
    """Document completion over a stream of batches.

    Each token goes to the observed or the held-out half with probability 1/2. The document is
    folded in on its observed half, and the held-out half is scored with
    ``p(w) = sum_k theta_k * ((1 - smoothing) * components[k, w] + smoothing * background[w])``.
    The split is drawn in stream order from one generator, so it does not depend on how the
    documents are cut into batches; results compare only under the same `seed`. With a `smoothing`
    of 0, a held-out word that is in no topic makes the perplexity infinite. Topics, prior and
    background are those of `TopicModel`. Memory O(K * V).
    """

    def __init__(
        self,
        components: Array,
        alpha: Array,
        background: Array,
        *,
        smoothing: float = 0.01,
        seed: int = 0,
        tolerance: float = TOLERANCE,
    ) -> None:
        self._alpha, self._background = check_alpha(alpha), background
        between(0, 1, weight=smoothing)
        self._components, self._smoothing = components, smoothing
        self._rng, self._tolerance = np.random.default_rng(seed), tolerance
        self._model_nats, self._unigram_nats = 0.0, 0.0
        #: Held-out tokens scored so far.
        self._documents, self.scored_tokens = 0, 0

    def add(self, batch: DocumentBatch) -> Array:
        """Split, fold in and score the documents of a batch.

        Time O(nnz * K * iterations + V); memory O(nnz + K * distinct words + V), freed after.
        """
        counts = batch.counts.astype(np.int64)
        check(np.array_equal(counts, batch.counts), "split")
        words, local_ids = word_major(batch, self._components, self._background, self._smoothing)
        observed = self._rng.binomial(counts, 0.5)
        held_out = (counts - observed) * (self._background[batch.word_ids] > 0)
        n, row_of_entry = len(batch), np.repeat(np.arange(len(batch)), np.diff(batch.row_pointers))
        seen_of, scored_of = (np.bincount(row_of_entry, half, n) for half in (observed, held_out))
        kept = (seen_of > 0) & (scored_of > 0)
        seen = (observed > 0) & kept[row_of_entry]
        seen_before = np.concatenate(([0], np.cumsum(seen)))
        half = DocumentBatch(
            observed[seen].astype(np.float64),
            batch.word_ids[seen],
            seen_before[batch.row_pointers],
            batch.n_features,
        )
        theta = fold_in_words(half, words, local_ids[seen], self._alpha, self._tolerance)
        probabilities = np.empty(len(counts))
        word_probabilities(local_ids, batch.row_pointers, words, theta, probabilities)
        scored = (held_out > 0) & kept[row_of_entry]
        tokens = held_out[scored]
        with np.errstate(divide="ignore"):
            nats = tokens * np.log(probabilities[scored])
        self._model_nats += math.fsum(nats)
        self._unigram_nats += math.fsum(tokens * np.log(self._background[batch.word_ids[scored]]))
        self._documents += int(kept.sum())
        self.scored_tokens += int(tokens.sum())
        return np.bincount(row_of_entry[scored], nats, n).astype(np.float64)

    def result(self) -> CompletionResult:
        """Return the result of all batches so far."""
        check(self.scored_tokens, "halves", held_out_tokens=self.scored_tokens)
        nats = self._model_nats, self._unigram_nats
        return CompletionResult(*nats, self._documents, self.scored_tokens)


def document_completion(
    batch: DocumentBatch, components: Array, alpha: Array, background: Array, **settings: Any
) -> CompletionResult:
    """Return the document completion of one batch; `settings` are those of `DocumentCompletion`."""
    completion = DocumentCompletion(components, alpha, background, **settings)
    completion.add(batch)
    return completion.result()


def top_words(components: Array, n: int = 10) -> NDArray[np.int64]:
    """Return the ids of the `n` most probable words of each topic, most probable first.

    Of equally probable words the lower id comes first. Time O(K * V), memory O(V).
    """
    components = np.asarray(components)
    n_words = components.shape[1]
    top = np.empty((len(components), n), dtype=np.int64)
    for k, topic in enumerate(components):
        above = np.flatnonzero(topic >= np.partition(topic, n_words - n)[n_words - n])
        top[k] = above[np.argsort(-topic[above], kind="stable")[:n]]
    return top


def topic_diversity(top: Any) -> float:
    """Return the share of distinct words among all top words, as OCTIS's TopicDiversity."""
    words = np.asarray(top)
    return len(np.unique(words)) / words.size


class MatchedError(NamedTuple):
    """L1 distances of true topics and estimated ones in the best matching: 0 to 2, and the mean."""

    mean: float
    per_topic: Array
    permutation: NDArray[np.int64]


def matched_l1_error(true: Array, estimate: Array) -> MatchedError:
    """Compare topics with planted ones, after the matching with the least total L1 distance.

    Time O(K**2 * V + K**3), memory O(K**2).
    """
    distances = scipy.spatial.distance.cdist(true, estimate, "cityblock")
    rows, columns = scipy.optimize.linear_sum_assignment(distances)
    errors = distances[rows, columns]
    return MatchedError(float(errors.mean()), errors, columns.astype(np.int64))
