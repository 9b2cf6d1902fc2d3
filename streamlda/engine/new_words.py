"""Assign new words to topics when many enter the vocabulary at once.

Where a stream turns to other things, words that enter are of themes that no topic knows, and with
their share of every topic EM does not tell them apart for long. So topics are found in documents
that have the words, from moments as at the start of a stream, and matched with those of the stream
by all other words, each with one. A word that enters begins in the topics of the stream as it is
divided among those that they are matched with; all other words, and all ids, stay.
"""

import numpy as np
import scipy

from streamlda.documents import DocumentBatch
from streamlda.model.topic_model import TopicModel
from streamlda.text.columns import ColumnChange
from streamlda.utils.arrays import Array


def divide_words(
    model: TopicModel, change: ColumnChange, topics: Array, documents: DocumentBatch
) -> Array:
    """Return the part of each topic in each word that enters, (words, K).

    `model` are topics of the documents over the columns after the change; `topics` are those
    before it. Rows sum to 1, or to 0 for a word that the documents do not have.
    """
    kept = np.ones(change.before, dtype=np.bool_)
    kept[change.replaced] = False
    known = np.sqrt(topics[:, kept])
    known /= np.maximum(np.sqrt((known**2).sum(axis=1, keepdims=True)), np.finfo(float).tiny)
    # Not scaled: a topic of words that enter is like no other.
    likeness = np.sqrt(model.components[:, : change.before][:, kept]) @ known.T
    rows, matched = scipy.optimize.linear_sum_assignment(-likeness)
    divided = np.zeros((len(change.entered_columns), len(topics)))
    entering = model.components[rows][:, change.entered_columns]
    divided[:, matched] = (model.weights[rows, None] * entering).T
    met = np.bincount(documents.word_ids, minlength=change.after)[change.entered_columns] > 0
    divided[~met] = 0.0
    total = divided.sum(axis=1, keepdims=True)
    parts: Array = np.divide(divided, total, out=np.zeros_like(divided), where=total > 0)
    return parts
