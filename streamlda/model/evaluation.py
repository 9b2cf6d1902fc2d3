"""Quality of topics: held-out likelihood, diversity, distance from planted ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.errors import require
from streamlda.kernels.inference import word_probabilities
from streamlda.model.faults import check
from streamlda.model.inference import (
    MAX_ITERATIONS,
    TOLERANCE,
    checked_alpha,
    fold_in_words,
    smoothed,
    word_major,
)


@dataclass(frozen=True, slots=True)
class CompletionResult:
    """Result of document completion, over the same held-out tokens for model and baseline."""

    #: Sums of log p(token) over the held-out tokens: under the model, and under the background.
    log_likelihood_nats: float
    unigram_log_likelihood_nats: float
    #: Documents with both halves non-empty; the others are left out.
    documents: int
    #: Tokens scored.
    held_out_tokens: int
    #: In the same documents, held-out tokens of words the background gives probability 0: no
    #: baseline can score them, so they count for neither.
    unscored_tokens: int

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
        components: NDArray[np.float64],
        alpha: NDArray[np.float64],
        background: NDArray[np.float64],
        *,
        smoothing: float = 0.01,
        seed: int = 0,
        max_iterations: int = MAX_ITERATIONS,
        tolerance: float = TOLERANCE,
    ) -> None:
        self._alpha = checked_alpha(alpha)
        self._background: NDArray[np.float64] = np.asarray(background, dtype=np.float64)
        check(
            np.all(np.isfinite(self._background) & (self._background >= 0)),
            "background",
            min=self._background.min(),
            max=self._background.max(),
        )
        self._components = smoothed(components, self._background, smoothing)
        self._rng = np.random.default_rng(seed)
        self._max_iterations, self._tolerance = max_iterations, tolerance
        self._model_nats, self._unigram_nats = 0.0, 0.0
        self._documents, self._tokens, self._unscored = 0, 0, 0

    def add(self, batch: DocumentBatch) -> NDArray[np.float64]:
        """Split, fold in and score the documents of a batch.

        Time O(nnz * K * iterations + V); memory O(nnz + K * distinct words + V), freed after.
        """
        counts = batch.counts.astype(np.int64)
        check(np.array_equal(counts, batch.counts), "split")
        words, local_ids = word_major(batch, self._components, len(self._alpha))
        observed = self._rng.binomial(counts, 0.5)
        held_out = counts - observed
        row_of_entry = np.repeat(np.arange(len(batch)), np.diff(batch.row_pointers))
        known = self._background[batch.word_ids] > 0
        kept = _rows_with(observed > 0, row_of_entry, len(batch)) & _rows_with(
            (held_out > 0) & known, row_of_entry, len(batch)
        )
        half, entries = _select(batch, observed, (observed > 0) & kept[row_of_entry])
        theta = fold_in_words(
            half, words, local_ids[entries], self._alpha, self._max_iterations, self._tolerance
        )
        probabilities = np.empty(len(counts))
        word_probabilities(local_ids, batch.row_pointers, words, theta, probabilities)
        outside = (held_out > 0) & kept[row_of_entry]
        scored = outside & known
        with np.errstate(divide="ignore"):
            log_model = np.log(probabilities[scored])
        log_unigram = np.log(self._background[batch.word_ids[scored]])
        nats = held_out[scored] * log_model
        self._model_nats += math.fsum(nats)
        self._unigram_nats += math.fsum(held_out[scored] * log_unigram)
        self._documents += int(kept.sum())
        self._tokens += int(held_out[scored].sum())
        self._unscored += int(held_out[outside & ~known].sum())
        by_document: NDArray[np.float64] = np.zeros(len(batch))
        np.add.at(by_document, row_of_entry[scored], nats)
        return by_document

    @property
    def scored_tokens(self) -> int:
        """Held-out tokens scored so far."""
        return self._tokens

    def result(self) -> CompletionResult:
        """Return what the batches so far amount to."""
        check(self._tokens, "halves", held_out_tokens=self._tokens)
        return CompletionResult(
            self._model_nats, self._unigram_nats, self._documents, self._tokens, self._unscored
        )


def document_completion(
    batch: DocumentBatch,
    components: NDArray[np.float64],
    alpha: NDArray[np.float64],
    background: NDArray[np.float64],
    **settings: Any,
) -> CompletionResult:
    """Return the document completion of one batch; `settings` are those of `DocumentCompletion`."""
    completion = DocumentCompletion(components, alpha, background, **settings)
    completion.add(batch)
    return completion.result()


def top_words(components: NDArray[np.float64], n: int = 10) -> NDArray[np.int64]:
    """Return the ids of the `n` most probable words of each topic, most probable first.

    Of equally probable words the lower id comes first. Time O(K * V), memory O(V).
    """
    components = np.asarray(components)
    n_words = components.shape[1]
    holds = 1 <= n <= n_words and not np.isnan(components).any()
    rule = "top words need topics without NaN and n within 1..n_features"
    require(holds, rule, n=n, n_features=n_words)
    top = np.empty((len(components), n), dtype=np.int64)
    # As many parts as the n largest of their maxima need to be close to the n largest words.
    size = max(1, n_words // (8 * n))
    for k, topic in enumerate(components):
        largest = topic[: n_words // size * size].reshape(-1, size).max(axis=1)
        bar = np.partition(largest, len(largest) - n)[len(largest) - n]
        above = np.flatnonzero(topic >= bar)
        top[k] = above[np.argsort(-topic[above], kind="stable")[:n]]
    return top


def topic_diversity(top: Any) -> float:
    """Return the share of distinct words among all top words, as OCTIS's TopicDiversity."""
    words = np.asarray(top)
    holds = words.ndim == 2 and words.size > 0
    check(holds, "diversity", shape=words.shape)
    return len(np.unique(words)) / words.size


class MatchedError(NamedTuple):
    """L1 distance between true and estimated topics under the best one-to-one matching.

    ``per_topic[k] = sum(abs(true[k] - estimated[permutation[k]]))``; their mean is 0 for equal
    topics, and 2 at most for distributions.
    """

    mean: float
    per_topic: NDArray[np.float64]
    permutation: NDArray[np.int64]


def matched_l1_error(true: NDArray[np.float64], estimated: NDArray[np.float64]) -> MatchedError:
    """Compare topics with planted ones, after the matching with the least total L1 distance.

    Time O(K**2 * V + K**3), memory O(K**2).
    """
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    check(
        np.shape(true) == np.shape(estimated) and np.ndim(true) == 2,
        "planted",
        true=np.shape(true),
        estimated=np.shape(estimated),
    )
    distances = cdist(true, estimated, "cityblock")
    rows, columns = linear_sum_assignment(distances)
    errors = distances[rows, columns]
    return MatchedError(float(errors.mean()), errors, columns.astype(np.int64))


def _rows_with(flags: NDArray[np.bool_], row_of_entry: Any, n_rows: int) -> NDArray[np.bool_]:
    """Return which rows have a flagged entry."""
    found = np.zeros(n_rows, dtype=np.bool_)
    found[row_of_entry[flags]] = True
    return found


def _select(
    batch: DocumentBatch, counts: NDArray[np.int64], flags: NDArray[np.bool_]
) -> tuple[DocumentBatch, NDArray[np.bool_]]:
    """Return the flagged entries with new counts, as a batch of as many documents."""
    kept_before = np.concatenate(([0], np.cumsum(flags)))
    half = DocumentBatch(
        counts[flags].astype(np.float64),
        batch.word_ids[flags],
        kept_before[batch.row_pointers],
        batch.n_features,
    )
    return half, flags
