"""Responsibilities of a document: its tokens by word and topic, for topics known even roughly.

With the topics as public parameter, for a document with counts c::

    gamma = responsibilities of K topics and the background in each word  CVB0, topics held fixed
    x_wk  = f c_w a_w gamma_wk                                           k = 1..K
    f     = min(1, 1 / ||c_w a_w gamma_wk||)                             norm over k = 1..K + 1

The background, the word frequencies, is one more topic, with a prior of its own: it takes what is
common to all texts, and is dropped unless it is wanted too. a_w >= 1 grows as words get rarer, so
that the rare ones stand out of the noise, which is equal in all cells. All documents but very short
ones have f < 1: each has as much weight as a norm of 1 allows.

Privacy of a round
------------------
Unit: a document (at most g of a user, each as below). Relation: both, as for all stages. Public:
the topics, prior, background and a of earlier releases. Sensitivity: x has entries >= 0, and as
f times the norm over K + 1 columns is at most 1, so is ``||x||``, with the background's column or
without it, for any responsibilities, even if they are wrong. Add-remove: at most 1, attained by a
document without background and of norm 1 or more before scaling. Replace-one:
``||x - x'||^2 <= ||x||^2 + ||x'||^2 <= 2``, attained by two such documents without a word in
common. Responsibilities are in single precision and taken as they are: what is bounded is the
product that is added. Those of a document depend on that document alone. A document whose norm is
not finite has f = 0 and adds exactly nothing: its responsibilities are set to 0, as 0 times NaN
would spoil the sum, and so tell of that document. The sum of all words is of c a itself, with a
factor of its own: norm at most 1, attained by any document of norm 1 or more.

Without scaling, responsibilities sum to 1 over topics, so ``||x|| <= ||c a||``, attained where each
word goes to one topic: that is the bound that a fixed clip norm would have to cover, and it is
larger.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import require
from streamlda.documents import DocumentBatch
from streamlda.guarantee.mechanism import Block
from streamlda.kernels.refinement import add_responsibilities, expect_topics
from streamlda.privacy.clipping import clip_factors
from streamlda.private.contributions import View
from streamlda.private.settings import PrivateSettings
from streamlda.refinement.stepwise_em import entries_by_word

Array = NDArray[np.float64]

#: Norm of what a document adds to a round, at most.
REFINED_NORM = 1.0

#: Iterations over the words of a document.
INNER_ITERATIONS = 8

#: Dirichlet parameter of the background over the sum of those of the topics.
BACKGROUND_PRIOR = 3.5

#: Weight of a word: its frequency to the power of minus this, 1 for the most frequent one.
WORD_POWER = 0.25

#: Frequency added to that of every word before, so that noise in a rare one means little.
LEAST_FREQUENCY = 1e-5

#: Fraction of the prior of the proportions that is equal for all topics.
EVEN_PRIOR = 0.1

#: Tokens of a topic, at least, over those of the mean topic: noise must not leave one without any.
LEAST_TOKENS = 0.2

#: Least probability of a word in the E-step: single precision must not lose it.
LEAST_PROBABILITY = 1e-12

#: Documents of a round for each topic that it tells apart, over the noise in a cell.
DOCUMENTS_PER_TOPIC = 800

#: Ranges of what comes from earlier releases, in which single precision loses nothing that matters,
#: with room for rounding at 1. All that a release gives lies far within.
RANGES = {
    "topics": (0.0, 1 + 1e-9),
    "prior": (1e-18, 1e12),
    "background": (0.0, 1 + 1e-9),
    "word_weights": (1.0, 1e6),
}

#: Most responsibilities, in single precision, that are held at a time: 32 MiB.
MOST_RESPONSIBILITIES = 2**23


class RefinementStatistic:
    """Expected tokens by word and topic, of documents scaled to norm 1: block ``shares``.

    Unit, relation, sensitivity and what is public: see the module. Nothing here is private until it
    is released. Topics (K, d) have rows that sum to 1; the prior holds Dirichlet parameters. Arrays
    of other shapes are refused, since kernels read past the end of short ones. The background's
    column is the last of the sums, and is dropped unless it is wanted too. With a weight for totals
    c a is summed too, scaled to norm 1 by itself: block ``words``. Time O(nnz K iterations) a
    document, memory O(d K) and that of some documents' responsibilities.
    """

    def __init__(
        self,
        topics: Array,
        prior: Array,
        background: Array,
        word_weights: Array,
        *,
        background_too: bool = False,
        background_prior: float | None = None,
        totals_weight: float | None = None,
    ) -> None:
        K, d = topics.shape if topics.ndim == 2 else (0, 0)
        shapes = {"topics": (K, d), "prior": (K,), "background": (d,), "word_weights": (d,)}
        given = (topics, prior, background, word_weights)
        for name, array in zip(shapes, given, strict=True):
            check_array(name, array, shapes[name], *RANGES[name])
        self._words, self._prior = divided_by(topics, prior, background, background_prior)
        self._word_weights = word_weights
        self._sums = np.zeros(self._words.shape)
        self._columns = K + background_too
        self._totals_weight, self._totals = totals_weight, np.zeros(d)

    def blocks(self) -> list[Block]:
        """Entries are not negative and are added once each: nothing cancels."""
        shapes: dict[str, tuple[tuple[int, ...], float]] = {
            "shares": ((len(self._words), self._columns), 1.0)
        }
        if self._totals_weight is not None:
            shapes["words"] = (len(self._words),), self._totals_weight
        return [
            Block(name, shape, REFINED_NORM, weight, nonnegative=True, magnitude=1.01)
            for name, (shape, weight) in shapes.items()
        ]

    def add(self, view: View) -> None:
        """Add the active documents."""
        start = 0
        for part in view.batch.blocks(MOST_RESPONSIBILITIES // len(self._prior)):
            active = view.active[start : start + part.n_documents]
            start += part.n_documents
            rows = part.counts, part.word_ids, part.row_pointers
            gamma = np.empty((len(part.counts), len(self._prior)), dtype=np.float32)
            expect_topics(*rows, self._words, self._prior, INNER_ITERATIONS, gamma)
            entries = part.counts * self._word_weights[part.word_ids]
            # What is not a number here gets factor 0 below.
            with np.errstate(over="ignore", invalid="ignore"):
                squares = np.einsum("ek,ek->e", gamma, gamma, dtype=np.float64) * entries**2
            document = np.repeat(np.arange(part.n_documents), np.diff(part.row_pointers))
            norms = np.sqrt(np.bincount(document, squares, minlength=part.n_documents))
            factors = (clip_factors(norms, REFINED_NORM) * active)[document]
            gamma[factors == 0] = 0.0
            by_word = entries_by_word(part.word_ids, entries * factors, part.n_features)
            add_responsibilities(*by_word, gamma, self._sums)
            if self._totals_weight is not None:
                self._add_totals(part, entries, document, active)

    def _add_totals(
        self,
        part: DocumentBatch,
        entries: Array,
        document: NDArray[np.int64],
        active: NDArray[np.bool_],
    ) -> None:
        """Add c a of each document, scaled to norm 1, entry by entry in their order."""
        with np.errstate(over="ignore"):
            squares = np.bincount(document, entries**2, minlength=part.n_documents)
        factors = (clip_factors(np.sqrt(squares), REFINED_NORM) * active)[document]
        np.add.at(self._totals, part.word_ids, np.where(factors > 0, entries, 0.0) * factors)

    def take(self) -> dict[str, Array]:
        """Return the sums."""
        sums = {"shares": self._sums[:, : self._columns].copy()}
        if self._totals_weight is not None:
            sums["words"], self._totals = self._totals, np.zeros(len(self._totals))
        self._sums[:] = 0.0
        return sums


def divided_by(
    topics: Array, prior: Array, background: Array, background_prior: float | None = None
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return what tokens are divided by: words by topic, (d, K + 1), and the prior, (K + 1,)."""
    weight = BACKGROUND_PRIOR if background_prior is None else background_prior
    words = np.maximum(np.vstack([topics, background]).T, LEAST_PROBABILITY)
    return (
        np.ascontiguousarray(words, dtype=np.float32),
        np.append(prior, weight * prior.sum()).astype(np.float32),
    )


def is_round(stage: str) -> bool:
    """Return whether a stage of this name is a round of refinement."""
    return stage.startswith("refine ")


def most_topics(settings: PrivateSettings) -> int:
    """Return how many topics a round can tell apart, from 1 to those wanted: a public number."""
    slots = min(last - first for name, first, last in settings.stage_slots() if is_round(name))
    noise = settings.noise_in_documents(settings.noise_multiplier)
    return min(settings.n_components, max(1, int(slots / (DOCUMENTS_PER_TOPIC * noise))))


def weights_of_words(background: Array) -> Array:
    """Return a, shape (d,): 1 for the most frequent word, more for others."""
    weights = (background + LEAST_FREQUENCY) ** -WORD_POWER
    scaled: Array = weights / weights.min()
    return scaled


def even_proportions(tokens: Array) -> Array:
    """Return the shares of tokens, a little of each equal for all."""
    proportions: Array = (1 - EVEN_PRIOR) * tokens / tokens.sum() + EVEN_PRIOR / len(tokens)
    return proportions


def check_array(
    name: str,
    array: NDArray[Any],
    shape: tuple[int, ...],
    low: float = -np.inf,
    high: float = np.inf,
) -> None:
    """Refuse an array of other numbers than finite float64 of a shape and range.

    Numbers without axes may be int64, too. Time O(values).
    """
    kinds = (np.dtype(np.float64), np.dtype(np.int64)) if shape == () else (np.dtype(np.float64),)
    require(
        array.dtype in kinds and array.shape == shape and 0 not in shape,
        f"{name} must have the dtype and shape that follow from the settings",
        dtype=array.dtype,
        shape=array.shape,
        expected=shape,
        remedy="restore it whole",
    )
    finite = np.isfinite(array).all() and np.all(array >= low) and np.all(array <= high)
    rule = f"{name} must be finite and from {low:g} to {high:g}"
    require(finite, rule, remedy="restore it whole")
