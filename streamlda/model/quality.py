"""Of each topic: how much of its words is its own, and which topic is nearest."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import at_least
from streamlda.model.coherence import NPMI_WORDS
from streamlda.model.diagnostics import hellinger
from streamlda.model.evaluation import top_words

Array = NDArray[np.float64]


class NearTopic(NamedTuple):
    """Row of a topic, and its Hellinger distance, 0 to 1."""

    topic: int
    distance: float


def exclusivity(components: Array, *, n: int = NPMI_WORDS) -> Array:
    """Return how much the most probable words of each topic are its own.

    The mean of ``p(w | k) / sum_j p(w | j)`` over the top words, by their probability in the topic:
    the exclusivity of Bischof & Airoldi [1]_ without a reference to other words. Time O(K V),
    memory O(K V).

    Parameters
    ----------
    components : ndarray of shape (K, V)
        Word probabilities of each topic.
    n : int, default 10
        Top words; all V if there are fewer.

    Returns
    -------
    ndarray of shape (K,)
        From 1 / K, where all topics are the same, to 1, where no other has these words.

    References
    ----------
    .. [1] Bischof, Airoldi (2012), "Summarizing topical content with word frequency and
       exclusivity", ICML.
    """
    at_least(1, n=n)
    top = top_words(components, min(n, components.shape[1]))
    own = np.take_along_axis(components, top, axis=1)
    every = components.sum(axis=0)[top]
    # A topic of fewer words than these has others that no topic may have.
    every[every == 0] = 1.0
    found: Array = (own * own / every).sum(axis=1) / own.sum(axis=1)
    return found


def nearest_topics(components: Array) -> list[NearTopic | None]:
    """Return the topic nearest to each one by `hellinger`; None where there is no other.

    Time O(K^2 V), memory O(K^2).

    Parameters
    ----------
    components : ndarray of shape (K, V)
        Word probabilities of each topic.
    """
    if len(components) < 2:
        return [None] * len(components)
    apart = hellinger(components, components)
    np.fill_diagonal(apart, np.inf)
    nearest = apart.argmin(axis=1).tolist()
    return [NearTopic(j, float(apart[k, j])) for k, j in enumerate(nearest)]
