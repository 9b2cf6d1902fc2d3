"""NPMI coherence of topics over documents: one definition for fits, evaluation and benchmarks.

Of two words, ``log(p(v, w) / (p(v) p(w))) / -log p(v, w)`` (Bouma 2009), with p the share of the
documents that hold a word, or both, among those that hold a known word; -1 where one of them
occurs in none. Of a topic, the mean over all pairs of its ten most probable words (Lau et al.
2014). gensim's ``c_npmi`` gives the same with a window that holds the longest document.
"""

from typing import Any, NamedTuple

import numpy as np
import scipy

from streamlda.documents import DocumentBatch
from streamlda.model.evaluation import top_words
from streamlda.model.faults import check
from streamlda.utils.arrays import Array

#: Words of a topic that go together or not.
NPMI_WORDS = 10

#: Added to the probability of a pair before its logarithm is taken, as gensim does.
NPMI_EPSILON = 1e-12


class Coherence(NamedTuple):
    """NPMI coherence: mean over the topics, -1 to 1; of each topic, (K,); documents counted."""

    mean: float
    per_topic: Array
    documents: int


class NpmiCounter:
    """NPMI coherence over a stream of documents; memory O(K * n**2 + largest id).

    Parameters
    ----------
    topics_top_words : array-like of int, shape (K, n)
        Word ids of the top words of each topic, distinct within a topic; n is usually 10.
    """

    def __init__(self, topics_top_words: Any) -> None:
        top = np.asarray(topics_top_words)
        check(top.ndim == 2 and top.shape[1] > 1, "top words", shape=top.shape)
        self._watched, slots = np.unique(top, return_inverse=True)
        self._slots = slots.reshape(top.shape)
        self._pairs = np.zeros((*top.shape, top.shape[1]))
        self._documents = 0

    def add(self, batch: DocumentBatch) -> None:
        """Count the documents that have a word.

        Time O(nnz + K n^2 (documents of a word)), memory O(nnz).
        """
        self._documents += int(np.count_nonzero(np.diff(batch.row_pointers)))
        slot_of_word = np.full(max(batch.n_features, int(self._watched[-1]) + 1), -1)
        slot_of_word[self._watched] = np.arange(len(self._watched))
        found = slot_of_word[batch.word_ids]
        is_watched = found >= 0
        ends = np.concatenate([[0], np.cumsum(is_watched)])[batch.row_pointers]
        found = found[is_watched]
        shape = len(batch), len(self._watched)
        words: Any = scipy.sparse.csr_matrix((np.ones(len(found)), found, ends), shape).tocsc()
        for pairs, slots in zip(self._pairs, self._slots, strict=True):
            own = words[:, slots]
            pairs += (own.T @ own).toarray()

    def result(self) -> Coherence:
        """Return the coherence over the documents so far. Time O(K * n**2)."""
        check(self._documents, "coherence", documents=0)
        joint = self._pairs / self._documents
        single = np.diagonal(joint, axis1=1, axis2=2)
        product = single[:, :, None] * single[:, None, :]
        seen = product > 0
        npmi = np.full(joint.shape, -1.0)
        smooth = joint[seen] + NPMI_EPSILON
        npmi[seen] = np.log(smooth / product[seen]) / -np.log(smooth)
        others = ~np.eye(joint.shape[1], dtype=np.bool_)
        means = npmi[:, others].mean(axis=1)
        return Coherence(float(means.mean()), means, self._documents)


def topic_npmi(components: Array, documents: DocumentBatch) -> list[float] | None:
    """Return the NPMI of each topic; None where there is no document, or one word alone."""
    if not documents.word_ids.size or documents.n_features < 2:
        return None
    found: list[float] = count_npmi(components, documents).per_topic.tolist()
    return found


def count_npmi(components: Array, documents: DocumentBatch) -> Coherence:
    """Return the coherence of topics in documents."""
    counter = NpmiCounter(top_words(components, min(NPMI_WORDS, documents.n_features)))
    counter.add(documents)
    return counter.result()
