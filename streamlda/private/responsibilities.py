"""Responsibilities of a document: its tokens by word and topic, for topics known even roughly.

With the topics as public parameter, for a document with counts c::

    gamma = responsibilities of K topics and the background in each word  CVB0, topics held fixed
    x_wk  = f c_w a_w gamma_wk                                           k = 1..K + 1
    f     = min(1, 1 / ||c_w a_w gamma_wk||)

The background, the word frequencies, is one more topic, with a prior of its own: it takes what is
common to all texts. a_w >= 1 grows as words get rarer, so that the rare ones stand out of the
noise, which is equal in all cells. All documents but very short ones have f < 1: each has as much
weight as a norm of 1 allows. Public are the topics, prior, background and a of earlier releases.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import require
from streamlda.guarantee.mechanism import Block
from streamlda.guarantee.sums import Contribution
from streamlda.kernels.refinement import NO_SCORES, expect_topics
from streamlda.private.contributions import Contributions, View
from streamlda.private.settings import REFINE, REFINEMENT_STAGES, PrivateSettings
from streamlda.utils.arrays import Array

#: Iterations over the words of a document, and of other mixtures that are not to converge.
INNER_ITERATIONS = 8

#: Frequency added to that of every word before, so that noise in a rare one means little.
LEAST_FREQUENCY = 1e-5

#: Tokens of a topic, at least, over those of the mean topic: noise must not leave one without any.
LEAST_TOKENS = 0.2

#: Documents of a round for each topic that it begins with, over the noise in a cell: a third of
#: what tells a topic apart.
DOCUMENTS_PER_TOPIC = 270


class RoundPrior(NamedTuple):
    """Prior of a round, which holds until its sums say otherwise."""

    #: Dirichlet parameter of the background over the sum of those of the topics.
    background: float
    #: Mean distance of logarithms of lifts from 0.
    spread: float


#: Of topics of common words, and of those of a public model.
ROUGH_PRIOR, PUBLIC_PRIOR = RoundPrior(1.5, 0.7), RoundPrior(3.5, 0.3)


class RefinementStatistic:
    """Expected tokens by word and topic, of documents scaled to norm 1: block ``shares``.

    Topics (K, d) have rows that sum to 1; the prior holds Dirichlet parameters. The background's
    column is the last of the sums. With a weight for totals c a is summed too, scaled to norm 1 by
    itself: block ``words``. Time O(nnz K iterations) a document.
    """

    def __init__(
        self,
        topics: Array,
        prior: Array,
        background: Array,
        word_weights: Array,
        *,
        background_prior: float,
        totals_weight: float | None = None,
    ) -> None:
        K, (d,) = len(prior), background.shape
        shapes: dict[str, Any] = {"topics": topics.shape, "prior": prior.shape}
        shapes["word_weights"] = word_weights.shape
        fit = list(shapes.values()) == [(K, d), (K,), (d,)]
        rule = "topics, prior, background and weights of words do not fit together"
        require(fit, rule, **shapes, background=background.shape, remedy="pass those of one round")
        self._words, self._prior = get_divisors(topics, prior, background, background_prior)
        self._word_weights = word_weights
        self._totals_weight = totals_weight

    def blocks(self) -> list[Block]:
        """Tokens are not negative."""
        d = len(self._words)
        blocks = [Block("shares", self._words.shape, 1.0, 1.0, nonnegative=True)]
        if self._totals_weight is None:
            return blocks
        return [*blocks, Block("words", (d,), 1.0, self._totals_weight, nonnegative=True)]

    def contributions(self, view: View) -> Contributions:
        """Return the tokens of each document by word and topic, and by word."""
        batch = view.batch
        gamma = np.empty((batch.n_entries, len(self._prior)), dtype=np.float32)
        expect_topics(*view.rows, self._words, self._prior, INNER_ITERATIONS, gamma, NO_SCORES)
        weights = batch.counts * self._word_weights[batch.word_ids]
        weights *= view.by_entry(batch.usable)
        # What is not a number here is nothing in the sums.
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            tokens = gamma * weights[:, None]
            whole = Contribution(tokens, pointers=batch.row_pointers).norms()
            tokens *= view.by_entry(np.minimum(1.0, 1.0 / whole))[:, None]
        found = {"shares": view.contribute_by_word(tokens)}
        if self._totals_weight is not None:
            found["words"] = view.contribute_by_word(weights)
        return found

    def doubles(self, distinct: float) -> float:
        """Return one for each word and topic."""
        return distinct * len(self._prior)


def get_divisors(
    topics: Array, prior: Array, background: Array, background_prior: float
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return divisors of tokens: words by topic, (d, K + 1), and the prior, (K + 1,)."""
    return (
        np.ascontiguousarray(np.vstack([topics, background]).T, dtype=np.float32),
        np.append(prior, background_prior * prior.sum()).astype(np.float32),
    )


def most_topics(settings: PrivateSettings) -> int:
    """Return how many topics a round begins with, from 1 to those wanted: a public number."""
    slots = REFINEMENT_STAGES[REFINE] * settings.documents_per_snapshot
    noise = settings.noise_in_documents(settings.noise_multiplier)
    return min(settings.n_components, max(1, int(slots / (DOCUMENTS_PER_TOPIC * noise))))


def weights_of_words(background: Array) -> Array:
    """Return a, shape (d,): 1 for the most frequent word, and the fourth root of frequencies."""
    weights = (background + LEAST_FREQUENCY) ** -0.25
    scaled: Array = weights / weights.min()
    return scaled


def proportions_of(tokens: Array) -> Array:
    """Return the shares of tokens, of topics with hardly any a little more; see `LEAST_TOKENS`."""
    least = np.maximum(tokens, LEAST_TOKENS * tokens.sum() / len(tokens))
    proportions: Array = least / least.sum()
    return proportions
