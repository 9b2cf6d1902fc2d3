"""NPMI coherence of the top words of topics, over a stream of documents."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import at_least, require
from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError
from streamlda.kernels.cooccurrence import count_documents, count_windows
from streamlda.model.evaluation import top_words
from streamlda.model.faults import check

#: Window of the coherence whose numbers are published, in tokens.
NPMI_WINDOW_TOKENS = 10

#: Words of a topic that go together or not.
NPMI_WORDS = 10

#: Added to the probability of a pair before its logarithm is taken, as published numbers do.
NPMI_EPSILON = 1e-12


class Coherence(NamedTuple):
    """NPMI coherence: mean over the topics, -1 to 1; per topic, (K,), over pairs of its words."""

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
    """

    def __init__(self, topics_top_words: Any, *, window: int | None = NPMI_WINDOW_TOKENS) -> None:
        top = np.asarray(topics_top_words)
        is_table = top.ndim == 2 and top.size and top.shape[1] > 1 and top.dtype.kind in "iu"
        check(
            is_table and top.min() >= 0 and all(len(np.unique(row)) == len(row) for row in top),
            "top words",
            shape=top.shape,
            dtype=top.dtype,
        )
        if window is not None:
            at_least(1, window=window)
        self._window = window
        watched, slots = np.unique(top, return_inverse=True)
        self._slots = slots.reshape(top.shape)
        self._slot_of_word = np.full(int(watched[-1]) + 1, -1, dtype=np.int32)
        self._slot_of_word[watched] = np.arange(len(watched), dtype=np.int32)
        self._slot_of_entry = self._slots.ravel().astype(np.int32)
        self._entries = np.argsort(self._slot_of_entry, kind="stable")
        self._entry_pointers = np.zeros(len(watched) + 1, dtype=np.int64)
        np.cumsum(np.bincount(self._slot_of_entry), out=self._entry_pointers[1:])
        self._since = np.full(len(watched), -1, dtype=np.int64)
        self._occurrences = np.zeros(len(watched), dtype=np.int64)
        self._pairs = np.zeros((top.size, top.shape[1]), dtype=np.int64)
        self._windows = 0

    def add(self, token_ids: NDArray[np.int32], offsets: NDArray[np.int64]) -> None:
        """Count the windows of documents with word order, as `Vocabulary.token_ids` gives them.

        A word outside the vocabulary (-1) still fills the window. Time O(tokens + top tokens * n).
        """
        tokens = np.ascontiguousarray(token_ids, dtype=np.int32)
        bounds = np.ascontiguousarray(offsets, dtype=np.int64)
        rises = len(bounds) > 0 and not np.any(np.diff(bounds, prepend=0) < 0)
        check(
            rises and bounds[0] == 0 and bounds[-1] == len(tokens),
            "offsets",
            offsets=bounds.shape,
            tokens=len(tokens),
        )
        self._count(tokens, bounds)

    def add_batch(self, batch: DocumentBatch) -> None:
        """Count documents without word order, each as one window.

        Time O(nnz + K n^2 documents / 64).
        """
        check(self._window is None, "no order", window=self._window)
        self._count(batch.word_ids, batch.row_pointers)

    def _count(self, tokens: NDArray[np.int32], offsets: NDArray[np.int64]) -> None:
        if self._window is None:
            self._windows += len(offsets) - 1
            count_documents(
                *(tokens, offsets, self._slot_of_word, self._slot_of_entry),
                *(self._occurrences, self._pairs),
            )
            return
        self._windows += count_windows(
            *(tokens, offsets, self._window, self._slot_of_word, self._slot_of_entry),
            *(self._entry_pointers, self._entries),
            *(self._since, self._occurrences, self._pairs),
        )

    def result(self) -> Coherence:
        """Return the coherence over the documents so far. Time O(K * n**2).

        A pair with a word that never occurred scores -1: gensim's formula divides by zero there.
        """
        rule = "coherence needs at least 1 document"
        require(self._windows, rule, windows=0, remedy="add documents", error=InsufficientDataError)
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


def topic_npmi(
    components: NDArray[np.float64],
    documents: DocumentBatch,
    *,
    n: int = NPMI_WORDS,
) -> list[float] | None:
    """Return the NPMI of each topic's most probable words, each document one window.

    As `NpmiCounter` with ``window=None``. Time O(nnz + K n^2 documents / 64).
    """
    at_least(2, n=n)
    documents.check_features(components.shape[1], "topics")
    if not len(documents) or documents.n_features < 2:
        return None
    counter = NpmiCounter(top_words(components, min(n, documents.n_features)), window=None)
    counter.add_batch(documents)
    found: list[float] = counter.result().per_topic.tolist()
    return found
