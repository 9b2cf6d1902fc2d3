"""How good topics are: held-out likelihood, coherence, diversity, distance from planted ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, InvalidDocumentsError, InvalidSettingError
from streamlda.inference import checked_alpha, fold_in_words, smoothed, word_major
from streamlda.kernels.cooccurrence import count_windows
from streamlda.kernels.inference import word_probabilities

#: Window of the coherence whose numbers are published, in tokens.
NPMI_WINDOW_TOKENS = 10

#: Added to the probability of a pair before its logarithm is taken, as published numbers do.
NPMI_EPSILON = 1e-12


@dataclass(frozen=True, slots=True)
class CompletionResult:
    """What document completion measured, over the same held-out tokens for model and baseline.

    Attributes
    ----------
    log_likelihood_nats : float
        Sum of log p(token) over the held-out tokens under the model.
    unigram_log_likelihood_nats : float
        The same under the background distribution alone.
    documents : int
        Documents with both halves non-empty; the others are left out.
    held_out_tokens : int
        Tokens scored.
    unscored_tokens : int
        In the same documents, held-out tokens of words the background gives probability 0: no
        baseline can score them, so they count for neither.
    """

    log_likelihood_nats: float
    unigram_log_likelihood_nats: float
    documents: int
    held_out_tokens: int
    unscored_tokens: int

    @property
    def perplexity(self) -> float:
        """Perplexity a held-out token, ``exp(-log_likelihood / tokens)``; lower is better."""
        return _perplexity(self.log_likelihood_nats, self.held_out_tokens)

    @property
    def unigram_perplexity(self) -> float:
        """Perplexity of the background distribution on the same tokens."""
        return _perplexity(self.unigram_log_likelihood_nats, self.held_out_tokens)


class DocumentCompletion:
    """Document completion over a stream of batches.

    Each token goes to the observed or the held-out half with probability 1/2. The document is
    folded in on its observed half, and the held-out half is scored with
    ``p(w) = sum_k theta_k * ((1 - smoothing) * components[k, w] + smoothing * background[w])``.
    The split is drawn in stream order from one generator, so it does not depend on how the
    documents are cut into batches. Memory O(K * V), independent of documents seen.

    Parameters
    ----------
    components : ndarray of shape (K, V)
        Probability of each word in each topic.
    alpha : ndarray of shape (K,)
        Parameters of the Dirichlet prior, above 0.
    background : ndarray of shape (V,)
        Probability of each word over all documents: the unigram baseline.
    smoothing : float, default 0.01
        Weight of the background in every topic, in 0..1. With 0, a held-out word that is in no
        topic makes the perplexity infinite.
    seed : int, default 0
        Seed of the split; results compare only under the same seed.
    max_iterations, tolerance
        As in `streamlda.inference.topic_proportions`.

    Raises
    ------
    InvalidSettingError
        If shapes disagree or a number is out of range.
    """

    def __init__(
        self,
        components: NDArray[np.float64],
        alpha: NDArray[np.float64],
        background: NDArray[np.float64],
        *,
        smoothing: float = 0.01,
        seed: int = 0,
        max_iterations: int = 100,
        tolerance: float = 1e-4,
    ) -> None:
        self._alpha = checked_alpha(alpha)
        self._background: NDArray[np.float64] = np.asarray(background, dtype=np.float64)
        if not np.all(np.isfinite(self._background) & (self._background >= 0)):
            raise InvalidSettingError(
                "the background must hold finite numbers >= 0, got "
                f"min={self._background.min()} max={self._background.max()}; pass word frequencies"
            )
        self._components = smoothed(components, self._background, smoothing)
        self._rng = np.random.default_rng(seed)
        self._max_iterations, self._tolerance = max_iterations, tolerance
        self._model_nats, self._unigram_nats = 0.0, 0.0
        self._documents, self._tokens, self._unscored = 0, 0, 0

    def add(self, batch: DocumentBatch) -> None:
        """Split, fold in and score the documents of a batch.

        Time O(nnz * K * iterations + V); memory O(nnz + K * distinct words + V), freed after.

        Raises
        ------
        InvalidDocumentsError
            If counts are not whole numbers: only tokens can be split.
        InvalidSettingError
            If the batch has another number of words than the topics.
        """
        counts = batch.counts.astype(np.int64)
        if not np.array_equal(counts, batch.counts):
            raise InvalidDocumentsError(
                "document completion splits tokens, so counts must be whole numbers, got "
                "fractional counts; pass CountVectorizer output, not TF-IDF"
            )
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
        self._model_nats += math.fsum(held_out[scored] * log_model)
        self._unigram_nats += math.fsum(held_out[scored] * log_unigram)
        self._documents += int(kept.sum())
        self._tokens += int(held_out[scored].sum())
        self._unscored += int(held_out[outside & ~known].sum())

    def result(self) -> CompletionResult:
        """Return what the batches so far amount to.

        Raises
        ------
        InsufficientDataError
            If no document so far had two non-empty halves.
        """
        if self._tokens == 0:
            raise InsufficientDataError(
                "document completion needs a document with both halves non-empty, got "
                f"held_out_tokens={self._tokens}; evaluate on more or longer documents"
            )
        return CompletionResult(
            self._model_nats, self._unigram_nats, self._documents, self._tokens, self._unscored
        )


def document_completion(
    batch: DocumentBatch,
    components: NDArray[np.float64],
    alpha: NDArray[np.float64],
    background: NDArray[np.float64],
    *,
    seed: int = 0,
    smoothing: float = 0.01,
    max_iterations: int = 100,
    tolerance: float = 1e-4,
) -> CompletionResult:
    """Return the document completion of one batch; see `DocumentCompletion`.

    Parameters and errors are those of `DocumentCompletion`, its `add` and its `result`; topics
    are smoothed with weight 0.01 unless told otherwise.
    """
    completion = DocumentCompletion(
        components,
        alpha,
        background,
        smoothing=smoothing,
        seed=seed,
        max_iterations=max_iterations,
        tolerance=tolerance,
    )
    completion.add(batch)
    return completion.result()


class Coherence(NamedTuple):
    """NPMI coherence of topics.

    Attributes
    ----------
    mean : float
        Arithmetic mean over the topics, between -1 and 1.
    per_topic : ndarray of shape (K,)
        Mean over the pairs of a topic's words.
    windows : int
        Windows counted.
    """

    mean: float
    per_topic: NDArray[np.float64]
    windows: int


class NpmiCounter:
    """NPMI coherence over a stream of documents, as gensim's ``c_npmi`` (OCTIS's default).

    Slides a boolean window over the ordered tokens, one token at a time, and compares how often
    two top words share a window with what independence would give. Two particulars of gensim
    are kept, so that numbers compare: an empty document counts as a window, and a word stops
    being present when one of its tokens leaves the window, even if the window holds another.
    Memory O(K * n**2 + largest id), independent of documents seen.

    Parameters
    ----------
    topics_top_words : array-like of int, shape (K, n)
        Word ids of the top words of each topic, distinct within a topic; n is usually 10.
    window : int or None, default 10
        Tokens of a window; None takes each document whole, which needs no order.

    Raises
    ------
    InvalidSettingError
        If the top words are no such array or `window` < 1.
    """

    def __init__(self, topics_top_words: Any, *, window: int | None = NPMI_WINDOW_TOKENS) -> None:
        top = np.asarray(topics_top_words)
        if top.ndim != 2 or top.shape[0] < 1 or top.shape[1] < 2 or top.dtype.kind not in "iu":
            raise InvalidSettingError(
                "top words must be an integer array with a row a topic and 2 or more columns, "
                f"got shape={top.shape} dtype={top.dtype}; make it with top_words"
            )
        if top.min() < 0 or any(len(np.unique(row)) < len(row) for row in top):
            raise InvalidSettingError(
                "top words must be ids >= 0, distinct within a topic, "
                f"got min={top.min()} shape={top.shape}; make them with top_words"
            )
        if window is not None and window < 1:
            raise InvalidSettingError(f"the window must hold at least 1 token, got window={window}")
        self._window = window
        watched, slots = np.unique(top, return_inverse=True)
        self._slots = slots.reshape(top.shape)
        self._slot_of_word = np.full(int(watched[-1]) + 1, -1, dtype=np.int32)
        self._slot_of_word[watched] = np.arange(len(watched), dtype=np.int32)
        self._slot_of_place = self._slots.ravel().astype(np.int32)
        self._places = np.argsort(self._slot_of_place, kind="stable")
        self._place_pointers = np.zeros(len(watched) + 1, dtype=np.int64)
        np.cumsum(np.bincount(self._slot_of_place), out=self._place_pointers[1:])
        self._since = np.full(len(watched), -1, dtype=np.int64)
        self._occurrences = np.zeros(len(watched), dtype=np.int64)
        self._pairs = np.zeros((top.size, top.shape[1]), dtype=np.int64)
        self._windows = 0

    def add(self, token_ids: NDArray[np.int32], offsets: NDArray[np.int64]) -> None:
        """Count the windows of documents with word order. Time O(tokens + top tokens * n).

        Parameters
        ----------
        token_ids : ndarray of shape (n_tokens,), int32
            Words in order; -1 for a word outside the vocabulary, which still takes its place.
        offsets : ndarray of shape (n_documents + 1,), int64
            Document d owns the tokens from ``offsets[d]`` to ``offsets[d + 1]``.

        Raises
        ------
        InvalidDocumentsError
            If the offsets do not rise from 0 to the number of tokens.
        """
        tokens = np.ascontiguousarray(token_ids, dtype=np.int32)
        bounds = np.ascontiguousarray(offsets, dtype=np.int64)
        if (
            len(bounds) == 0
            or bounds[0] != 0
            or bounds[-1] != len(tokens)
            or np.any(np.diff(bounds) < 0)
        ):
            raise InvalidDocumentsError(
                "offsets must rise from 0 to the number of tokens, got "
                f"offsets={bounds.shape} tokens={len(tokens)}; give each document's first token"
            )
        self._count(tokens, bounds)

    def add_batch(self, batch: DocumentBatch) -> None:
        """Count documents without word order, each as one window. Time O(nnz + top words * n).

        Raises
        ------
        InvalidSettingError
            If the counter has a window of tokens: counts have no order to slide over.
        """
        if self._window is not None:
            raise InvalidSettingError(
                "counts without word order can only be taken document by document, got "
                f"window={self._window}; make the counter with window=None"
            )
        self._count(batch.word_ids, batch.row_pointers)

    def _count(self, tokens: NDArray[np.int32], offsets: NDArray[np.int64]) -> None:
        width = np.iinfo(np.int64).max if self._window is None else self._window
        self._windows += count_windows(
            tokens,
            offsets,
            width,
            self._slot_of_word,
            self._slot_of_place,
            self._place_pointers,
            self._places,
            self._since,
            self._occurrences,
            self._pairs,
        )

    def result(self) -> Coherence:
        """Return the coherence over the documents so far. Time O(K * n**2).

        A pair with a word that never occurred scores -1: gensim's formula divides by zero there.

        Raises
        ------
        InsufficientDataError
            If no document was added.
        """
        if self._windows == 0:
            raise InsufficientDataError(
                f"coherence needs at least 1 document, got windows={self._windows}; add documents"
            )
        per_topic = self._pairs.shape[1]
        halves = self._pairs.reshape(-1, per_topic, per_topic)
        joint = (halves + halves.transpose(0, 2, 1)) / self._windows
        single = self._occurrences[self._slots] / self._windows
        product = single[:, :, None] * single[:, None, :]
        seen = product > 0
        npmi = np.full(joint.shape, -1.0)
        smooth = joint[seen] + NPMI_EPSILON
        npmi[seen] = np.log(smooth / product[seen]) / -np.log(smooth)
        others = ~np.eye(per_topic, dtype=np.bool_)
        means = npmi[:, others].mean(axis=1)
        return Coherence(float(means.mean()), means, self._windows)


def top_words(components: NDArray[np.float64], n: int = 10) -> NDArray[np.int64]:
    """Return the ids of the `n` most probable words of each topic, most probable first.

    Of equally probable words the lower id comes first. Time O(K * V), memory O(V).

    Parameters
    ----------
    components : ndarray of shape (K, V)
        Probability of each word in each topic.
    n : int, default 10
        Words a topic, between 1 and V.

    Returns
    -------
    ndarray of shape (K, n), int64

    Raises
    ------
    InvalidSettingError
        If `n` lies outside 1..V or the topics hold NaN.
    """
    components = np.asarray(components)
    n_words = components.shape[1]
    if not 1 <= n <= n_words or bool(np.isnan(components).any()):
        raise InvalidSettingError(
            "top words need topics without NaN and n within 1..n_features, got "
            f"n={n} n_features={n_words}"
        )
    top = np.empty((len(components), n), dtype=np.int64)
    for k, topic in enumerate(components):
        bar = np.partition(topic, n_words - n)[n_words - n]
        above = np.flatnonzero(topic >= bar)
        top[k] = above[np.argsort(-topic[above], kind="stable")[:n]]
    return top


def topic_diversity(top: Any) -> float:
    """Return the share of distinct words among all top words, as OCTIS's TopicDiversity.

    Parameters
    ----------
    top : array-like of shape (K, n)
        Top words of each topic, ids or strings; n is usually 10.

    Returns
    -------
    float
        Between 1/K (all topics alike) and 1 (no word shared).

    Raises
    ------
    InvalidSettingError
        If there are no top words.
    """
    words = np.asarray(top)
    if words.ndim != 2 or words.size == 0:
        raise InvalidSettingError(
            f"diversity needs a row of top words for each topic, got shape={words.shape}"
        )
    return len(np.unique(words)) / words.size


class MatchedError(NamedTuple):
    """L1 distance between true and estimated topics under the best one-to-one matching.

    Attributes
    ----------
    mean : float
        Mean of `per_topic`; 0 is perfect, 2 the largest value for distributions.
    per_topic : ndarray of shape (K,)
        ``sum(abs(true[k] - estimated[permutation[k]]))``.
    permutation : ndarray of shape (K,), int64
        Estimated topic matched to each true one.
    """

    mean: float
    per_topic: NDArray[np.float64]
    permutation: NDArray[np.int64]


def matched_l1_error(true: NDArray[np.float64], estimated: NDArray[np.float64]) -> MatchedError:
    """Compare topics with planted ones, after the matching with the least total L1 distance.

    Time O(K**2 * V + K**3), memory O(K**2).

    Parameters
    ----------
    true, estimated : ndarray of shape (K, V)
        Probability of each word in each topic.

    Raises
    ------
    InvalidSettingError
        If the shapes differ.
    """
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    if np.shape(true) != np.shape(estimated) or np.ndim(true) != 2:
        raise InvalidSettingError(
            "topics must be compared at the same shape, got "
            f"true={np.shape(true)} estimated={np.shape(estimated)}"
        )
    distances = cdist(true, estimated, "cityblock")
    rows, columns = linear_sum_assignment(distances)
    errors = distances[rows, columns]
    return MatchedError(float(errors.mean()), errors, columns.astype(np.int64))


def _perplexity(log_likelihood: float, tokens: int) -> float:
    """Return exp(-mean log-likelihood), infinite where that overflows."""
    with np.errstate(over="ignore"):
        return float(np.exp(-log_likelihood / tokens))


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
