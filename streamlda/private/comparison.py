"""Comparison of refined topics with word frequencies, by held-out documents.

A document with the counts c of l tokens adds, by topics and frequencies of earlier releases::

    preferred     clip(8 m, -1, 1),  m = sum_w h_w (p_w - q_w) / (p_w + q_w) / sum_w h_w
    tokens        min(1, l / L) theta

Half of the tokens, every second one in the order of the words, give proportions of the topics; h
counts the other half, p and q are the probabilities of its words by the topics and by the
frequencies. As (x - 1) / (x + 1) is concave, the expectation of m is at most 0 where documents
follow the frequencies: these win then, as they would by likelihood, but a token has a bounded say.
theta are the proportions of the whole document. L is the 0.95 quantile of the lengths of a
round, from their noisy histogram: a long document counts as L tokens.
"""

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.guarantee.mechanism import Block
from streamlda.guarantee.sums import Contribution
from streamlda.kernels.inference import word_probabilities
from streamlda.model.inference import SMOOTHING, smooth, topic_proportions, word_major
from streamlda.private.contributions import Contributions, View
from streamlda.private.topics import PrivateTopics
from streamlda.refinement.measures import INFERENCE_TOLERANCE
from streamlda.utils.arrays import Array

#: A mean preference of one in this many is a document's whole say.
SCALE = 8.0


class ComparisonStatistic:
    """Sums of the preferences of documents for topics; time O(nnz K iterations)."""

    def __init__(self, topics: PrivateTopics, long: float) -> None:
        self._topics = smooth(topics.components, topics.background, SMOOTHING)
        self._alpha, self._background, self._long = topics.alpha, topics.background, long

    def blocks(self) -> list[Block]:
        """Tokens are not negative."""
        shapes = {"preferred": (), "tokens": self._alpha.shape}
        return [
            Block(name, shape, 1.0, nonnegative=name == "tokens") for name, shape in shapes.items()
        ]

    def contributions(self, view: View) -> Contributions:
        """Return the preference of each document."""
        usable = view.batch.usable
        batch = view.batch.where(usable)
        found = {b.name: np.zeros((len(usable), b.cells)) for b in self.blocks()}
        if batch.n_documents:
            seen, held = halves(batch)
            likely = predict_held_out(batch, seen, self._topics, self._alpha)
            by_frequency = self._background[batch.word_ids]
            found["preferred"][usable, 0] = preferences(batch, held, likely, by_frequency)
            shares = topic_proportions(
                batch, self._topics, self._alpha, tolerance=INFERENCE_TOLERANCE
            )
            found["tokens"][usable] = np.minimum(1.0, batch.lengths / self._long)[:, None] * shares
        return {name: Contribution(values) for name, values in found.items()}

    def doubles(self, distinct: float) -> float:
        """Return proportions, and two probabilities a word."""
        return 2 * distinct + len(self._alpha)


def scores(batch: DocumentBatch, held: Array, values: Array, shift: float = 0.0) -> Array:
    """Return the mean of `values` over the held tokens of each document, shifted, from -1 to 1.

    Quotients and sums of a document's own entries in their order: the same bits beside any others.
    """
    document = np.repeat(np.arange(batch.n_documents), np.diff(batch.row_pointers))
    with np.errstate(invalid="ignore", over="ignore"):
        said = np.bincount(document, held * values) / np.bincount(document, held) + shift
    return np.where(np.isfinite(said), np.clip(said, -1.0, 1.0), 0.0)


def preferences(batch: DocumentBatch, held: Array, refined: Array, start: Array) -> Array:
    """Return the preference of each document, from -1 to 1; probabilities are of its entries."""
    # Without a warning, which would tell of a document.
    with np.errstate(invalid="ignore", over="ignore"):
        gain = SCALE * ((refined - start) / (refined + start))
    return scores(batch, held, gain)


def gain_of(preferred: Array, slots: int) -> Array:
    """Return the nats a token that `slots` documents gain, by the sum of their preferences.

    (p - q) / (p + q) is half of log(p / q) where these are near, and less elsewhere.
    """
    return preferred * 2 / (SCALE * slots)


def predict_held_out(
    batch: DocumentBatch, documents: DocumentBatch, topics: Array, alpha: Array
) -> Array:
    """Return those of the entries of documents, by topics and the part of each that was seen."""
    words, ids = word_major(batch, topics)
    theta = topic_proportions(documents, topics, alpha, tolerance=INFERENCE_TOLERANCE)
    found = np.empty(len(batch.counts))
    word_probabilities(ids, batch.row_pointers, words, theta, found)
    return found


def halves(batch: DocumentBatch) -> tuple[DocumentBatch, Array]:
    """Return the documents by every second of their tokens, and the counts of the others."""
    before = np.cumsum(batch.counts) - batch.counts  # Exact: whole numbers below 2^53.
    before -= np.repeat(before[batch.row_pointers[:-1]], np.diff(batch.row_pointers))
    seen = (batch.counts + (before % 2 == 0)) // 2
    kept = np.flatnonzero(seen)
    pointers = np.searchsorted(kept, batch.row_pointers).astype(np.int64)
    half = DocumentBatch(seen[kept], batch.word_ids[kept], pointers, batch.n_features)
    return half, batch.counts - seen
