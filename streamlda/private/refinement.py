"""Refinement under privacy: rounds in which fresh documents move the topics of noisy moments.

Moments give topics in a few releases, but read a document through pairs and triples of words,
whose noise drowns all but the broadest topics. Topics once known, even badly, a document says more:
how many of its tokens belong to which topic. A round sums that over documents of its own, with the
topics released so far as public parameter; it is a stage like any other
(`streamlda.private.stage`), and what follows is post-processing. For a document with counts c::

    gamma = shares of K topics and of the background in each word        CVB0, topics held fixed
    x_wk  = f c_w a_w gamma_wk                                           k = 1..K
    f     = min(1, 1 / ||c_w a_w gamma_wk||)                             norm over k = 1..K + 1

The background, the released word frequencies, is one more topic, with a prior of its own: it takes
what is common to all texts and is dropped. a_w >= 1 grows as words get rarer, so that the rare ones
stand out of the noise, which is equal in all cells. All documents but very short ones have f < 1:
each has as much weight as a norm of 1 allows.

Privacy of a round
------------------
Unit: a document (at most g of a user, each as below). Relation: both, as for all stages. Public:
the topics, prior, background and a of earlier releases. Sensitivity: x has entries >= 0, and as
f times the norm over K + 1 columns is at most 1, so is ``||x||``, for any shares whatever; even
if they are wrong. Add-remove: at most 1, attained by a document without background and of norm 1 or
more before scaling. Replace-one: ``||x - x'||^2 <= ||x||^2 + ||x'||^2 <= 2``, attained by two
such documents without a word in common. Shares are in single precision and taken as they are: what
is bounded is the product that is added. Shares of a document depend on that document alone. A
document whose norm is not finite has f = 0 and adds exactly nothing: its shares are put to 0, as 0
times NaN would spoil the sum, and so tell of that document.

Without scaling, shares sum to 1 over topics, so ``||x|| <= ||c a||``, attained where each word
goes to one topic: that is the bound that a fixed clip norm would have to cover, and it is larger.

What a round released is added to that of earlier rounds, which fade by `FADING`, and denoised
(`streamlda.private.denoising`).

Measured
--------
195,000 abstracts, 8,000 words, K = 20, delta 1e-6, medians of five runs without rounds and of ten
with them: NPMI of ten words, and perplexity over that of the word frequencies::

    epsilon          without rounds      with 3 rounds
    1                0.111  0.802        0.154  0.791
    3                0.121  0.739        0.151  0.664

Without the background as a topic, all topics begin with the same common words: NPMI 0.08 and 0.12.
More rounds, or longer ones, cost the moments documents, whose topics then are fewer. At epsilon 3,
one norm for all documents took the ratio from 0.68 to 0.66 against f = 1 / ||c||, word weights
from 0.674 to 0.661; 5 sweeps in place of 8 lose 0.02 to 0.04 of it.

It is for text. Where documents follow the model to the letter, without common words, moments are
better: on planted topics (1,500 words, 20,000 documents, K = 10, epsilon 3) errors are 0.18
without rounds and 0.26 with them. Where noise is so large that it hides most topics, so are they.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import InsufficientDataError, InvalidSettingError
from streamlda.kernels.refinement import add_responsibilities, expect_topics
from streamlda.privacy.clipping import clip_factors
from streamlda.privacy.mechanism import Block
from streamlda.private.contributions import View
from streamlda.private.denoising import posterior_mean
from streamlda.private.settings import LEAST_ALPHA_0, MOST_ALPHA_0, PrivateSettings
from streamlda.private.state import from_arrays, to_arrays
from streamlda.private.topics import PrivateTopics
from streamlda.refinement.stepwise_em import blocks, entries_by_word
from streamlda.spectral.topics import SpectralTopics

Array = NDArray[np.float64]

#: Norm of what a document adds to a round, at most.
REFINED_NORM = 1.0

#: Sweeps over the words of a document.
SWEEPS = 8

#: Dirichlet parameter of the background over the sum of those of the topics.
BACKGROUND_PRIOR = 3.5

#: Weight of a word: its frequency to the power of minus this, 1 for the most frequent one.
WORD_POWER = 0.25

#: Frequency added to that of every word before, so that noise in a rare one means little.
LEAST_FREQUENCY = 1e-5

#: Share of the background in the topics of the first round; it falls to 0 in the last.
FLATNESS = 0.5

#: What the sums of a round count for in the next.
FADING = 0.6

#: Share of the prior of the proportions that is equal for all topics.
EVEN_PRIOR = 0.1

#: Topics split as long as a round has so many documents for each, times the noise in a cell.
DOCUMENTS_PER_TOPIC = 800

#: A half of a topic that was split: each word times a Gamma variable of this shape, of mean 1.
SPLIT_SHAPE = 4.0

#: Least probability of a word in the E-step: single precision must not lose it.
LEAST_PROBABILITY = 1e-12

#: Ranges of what comes from earlier releases, in which single precision loses nothing that a share
#: needs, with room for rounding at 1. All that a release gives lies far within.
RANGES = {
    "topics": (0.0, 1 + 1e-9),
    "prior": (1e-18, 1e12),
    "background": (0.0, 1 + 1e-9),
    "word_weights": (1.0, 1e6),
}

#: Numbers of single precision that the shares of some documents take at a time: 32 MiB.
MOST_SHARES = 2**23


class RefinementStatistic:
    """Expected tokens by word and topic, of documents scaled to norm 1: block ``shares``.

    Unit, relation, sensitivity and what is public: see the module. Nothing here is private until it
    is released. Time O(nnz K sweeps) a document, memory O(d K) and that of some documents' shares.

    Parameters
    ----------
    topics : ndarray of shape (K, d)
        Public, rows sum to 1.
    prior : ndarray of shape (K,)
        Dirichlet parameters, above 0. Public.
    background : ndarray of shape (d,)
        Public word frequencies.
    word_weights : ndarray of shape (d,)
        a, public, at least 1.

    Raises
    ------
    InvalidSettingError
        If shapes do not fit together, or a value is out of `RANGES`: kernels read past the end of
        short arrays.
    """

    def __init__(self, topics: Array, prior: Array, background: Array, word_weights: Array) -> None:
        K, d = topics.shape if topics.ndim == 2 else (0, 0)
        shapes = {"topics": (K, d), "prior": (K,), "background": (d,), "word_weights": (d,)}
        given = (topics, prior, background, word_weights)
        for name, array in zip(shapes, given, strict=True):
            check_array(name, array, shapes[name], *RANGES[name])
        words = np.vstack([topics, background]).T
        self._words = np.ascontiguousarray(np.maximum(words, LEAST_PROBABILITY), dtype=np.float32)
        self._prior = np.append(prior, BACKGROUND_PRIOR * prior.sum()).astype(np.float32)
        self._word_weights = word_weights
        self._sums = np.zeros(self._words.shape)

    def blocks(self) -> list[Block]:
        """Entries are not negative and are added once each: nothing cancels."""
        d, columns = self._words.shape
        return [
            Block("shares", (d, columns - 1), REFINED_NORM, 1.0, nonnegative=True, magnitude=1.01)
        ]

    def add(self, view: View) -> None:
        """Add the active documents."""
        start = 0
        for part in blocks(view.batch, MOST_SHARES // len(self._prior)):
            active = view.active[start : start + part.n_documents]
            start += part.n_documents
            rows = part.counts, part.word_ids, part.row_pointers
            responsibilities = np.empty((len(part.counts), len(self._prior)), dtype=np.float32)
            expect_topics(*rows, self._words, self._prior, SWEEPS, responsibilities)
            entries = part.counts * self._word_weights[part.word_ids]
            # What is not a number here gets factor 0 below.
            with np.errstate(over="ignore", invalid="ignore"):
                squares = (
                    np.einsum("ek,ek->e", *[responsibilities] * 2, dtype=np.float64) * entries**2
                )
            document = np.repeat(np.arange(part.n_documents), np.diff(part.row_pointers))
            norms = np.sqrt(np.bincount(document, squares, minlength=part.n_documents))
            factors = (clip_factors(norms, REFINED_NORM) * active)[document]
            responsibilities[factors == 0] = 0.0
            by_word = entries_by_word(part.word_ids, entries * factors, part.n_features)
            add_responsibilities(*by_word, responsibilities, self._sums)

    def take(self) -> dict[str, Array]:
        """Return the sums."""
        sums = {"shares": np.ascontiguousarray(self._sums[:, :-1])}
        self._sums[:] = 0.0
        return sums


class RefinementRounds:
    """Topics that move with every released round; nothing but noisy sums comes in.

    Parameters
    ----------
    settings : PrivateSettings
        With refinement.
    found : PrivateTopics
        What the moments gave: the start.

    Attributes
    ----------
    components : ndarray of shape (K, d)
    shares : ndarray of shape (K,)
        Part of each topic in the tokens that are not background; sums to 1.
    done : int
        Rounds so far.

    Notes
    -----
    Noise may have left fewer topics than were asked for. Broad ones are then split, as many as the
    documents of a round can tell apart (`most_topics`): both halves begin as the topic with every
    word a little more or less likely, from the public seed, and the rounds draw them apart.
    """

    def __init__(self, settings: PrivateSettings, found: PrivateTopics) -> None:
        self._settings = settings
        self._found = split_topics(found, most_topics(settings), settings.seed)
        self.components = self._found.components
        self.shares = self._found.alpha / self._found.alpha.sum()
        self.done = 0
        self._mixed = self._found.mixed
        d, K = self.components.shape[1], len(self.components)
        self._sums, self._variance = np.zeros((d, K)), np.zeros(d)

    @property
    def word_weights(self) -> Array:
        """a, shape (d,): 1 for the most frequent word, more for others."""
        weights = (self._found.background + LEAST_FREQUENCY) ** -WORD_POWER
        scaled: Array = weights / weights.min()
        return scaled

    def part(self) -> RefinementStatistic:
        """Return what the next round sums."""
        rounds = self._settings.n_refinement_rounds
        flat = FLATNESS * (1 - self.done / (rounds - 1)) if rounds > 1 else 0.0
        topics = (1 - flat) * self.components + flat * self._found.background
        prior = self._found.spectral.alpha_0 * self.shares
        return RefinementStatistic(topics, prior, self._found.background, self.word_weights)

    def answer(self, released: Mapping[str, Array], stddevs: Mapping[str, float]) -> None:
        """Move the topics by the released sums of a round. Time O(d K), memory O(d K).

        Raises
        ------
        InsufficientDataError
            If they hold nothing but noise.
        """
        weights = self.word_weights
        sums = FADING * self._sums + released["shares"] / weights[:, None]
        variance = FADING**2 * self._variance + (stddevs["shares"] / weights) ** 2
        total = float(sums.sum())
        if not total > 0:
            raise InsufficientDataError(
                "a round must hold more documents than its noise hides, got "
                f"noisy number of tokens={total:.0f}; take more documents per snapshot, a larger "
                "epsilon, or no refinement"
            )
        K, stddev = sums.shape[1], np.sqrt(variance)
        # Noise must not leave a topic without any tokens.
        tokens = np.maximum(sums.sum(axis=0), 0.2 * total / K)
        expected = posterior_mean(sums, stddev, self._found.background, tokens)
        hidden = expected < stddev[:, None]
        found = expected / expected.sum(axis=0)
        self._mixed = np.sum(found, axis=0, where=hidden)
        self.components = np.ascontiguousarray(found.T)
        self.shares = (1 - EVEN_PRIOR) * tokens / tokens.sum() + EVEN_PRIOR / K
        self._sums, self._variance = sums, variance
        self.done += 1

    def topics(self) -> PrivateTopics:
        """Return the topics of now, most prevalent first.

        What is known of their eigenvalues is that of the topics they began as, and `mixed` the
        part of each on words whose expected tokens are fewer than a standard deviation of noise.
        """
        order = np.argsort(-self.shares, kind="stable")
        alpha = (self._found.spectral.alpha_0 * self.shares)[order]
        chosen = _chosen(self._found, order)
        return replace(
            chosen,
            components=self.components[order],
            alpha=alpha,
            mixed=self._mixed[order],
            spectral=replace(chosen.spectral, alpha=alpha),
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """Return what `restored` needs: noisy values only."""
        arrays = {
            "components": self.components,
            "shares": self.shares,
            "mixed": self._mixed,
            "sums": self._sums,
            "variance": self._variance,
            "done": np.array(self.done),
        }
        found = to_arrays(self._found, "found/", but=("spectral",))
        return arrays | found | to_arrays(self._found.spectral, "found/spectral/")

    @classmethod
    def restored(cls, state: Mapping[str, NDArray[Any]], settings: PrivateSettings) -> Self:
        """Go on where `state` was taken.

        Raises
        ------
        InvalidSettingError, LookupError
            If an array is missing, of another shape than the settings and the others ask for, or
            out of range.
        """
        _check_state(state, settings)
        rounds = cls.__new__(cls)
        rounds._settings = settings
        spectral = from_arrays(SpectralTopics, state, "found/spectral/")
        rounds._found = from_arrays(PrivateTopics, state, "found/", spectral=spectral)
        rounds.components, rounds.shares = state["components"], state["shares"]
        rounds._mixed, rounds._sums = state["mixed"], state["sums"]
        rounds._variance, rounds.done = state["variance"], int(state["done"])
        return rounds


def most_topics(settings: PrivateSettings) -> int:
    """Return how many topics a round can tell apart, at most those asked for: a public number."""
    places = min(last - first for name, first, last in settings.stage_places() if is_round(name))
    noise = settings.noise_in_documents(settings.noise_multiplier)
    return min(settings.n_components, int(places / (DOCUMENTS_PER_TOPIC * noise)))


def is_round(stage: str) -> bool:
    """Return whether a stage of this name is a round of refinement."""
    return stage.startswith("refine ")


def split_topics(found: PrivateTopics, n: int, seed: int) -> PrivateTopics:
    """Split the most prevalent topics until there are n; with more of them, nothing is done."""
    K = len(found.components)
    if n <= K:
        return found
    parents, left = list(range(K)), found.alpha.copy()
    pieces = np.ones(K)
    while len(parents) < n:
        j = int(np.argmax(left))
        pieces[j] += 1
        left[j] = found.alpha[j] / pieces[j]
        parents.append(j)
    chosen = _chosen(found, np.array(parents))
    rng = np.random.default_rng(seed)
    moved = chosen.components * rng.gamma(SPLIT_SHAPE, 1 / SPLIT_SHAPE, chosen.components.shape)
    whole = (pieces == 1)[parents]
    components = np.where(whole[:, None], chosen.components, moved)
    alpha = (found.alpha / pieces)[parents]
    return replace(
        chosen,
        components=components / components.sum(axis=1, keepdims=True),
        alpha=alpha,
        spectral=replace(chosen.spectral, alpha=alpha),
    )


def check_array(
    name: str,
    array: NDArray[Any],
    shape: tuple[int, ...],
    low: float = -np.inf,
    high: float = np.inf,
) -> None:
    """Refuse an array of other numbers than finite float64 of a shape and range.

    Numbers without axes may be int64, too. Time O(values).

    Raises
    ------
    InvalidSettingError
    """
    kinds = (np.dtype(np.float64), np.dtype(np.int64)) if shape == () else (np.dtype(np.float64),)
    if array.dtype not in kinds or array.shape != shape or 0 in shape:
        raise InvalidSettingError(
            "what a stage begins with must have the dtype and shape that follow from the settings, "
            f"got {name} of dtype={array.dtype} shape={array.shape} expected={shape}; restore it "
            "whole"
        )
    if not (np.isfinite(array).all() and np.all(array >= low) and np.all(array <= high)):
        raise InvalidSettingError(
            f"what a stage begins with must be finite and from {low:g} to {high:g}, got other "
            f"values of {name}; restore it whole"
        )


def _check_state(state: Mapping[str, NDArray[Any]], settings: PrivateSettings) -> None:
    """Refuse a state whose arrays do not fit together; see `RefinementRounds.restored`."""
    d, K = settings.n_features, len(np.atleast_1d(state["components"]))
    if not 1 <= K <= settings.n_components:
        raise InvalidSettingError(
            "refinement must have from 1 topic to as many as were asked for, got "
            f"topics={K} n_components={settings.n_components}; restore it whole"
        )
    most = 1 + 1e-9
    rules: dict[str, tuple[Any, ...]] = {
        "components": ((K, d), 0.0, most),
        "shares": ((K,), 1e-9, most),
        "mixed": ((K,),),
        "sums": ((d, K),),
        "variance": ((d,), 0.0),
        "done": ((), 0.0, settings.n_refinement_rounds - 1),
        "found/components": ((K, d), 0.0, most),
        "found/alpha": ((K,), 0.0),
        "found/background": ((d,), 0.0, most),
        "found/mixed": ((K,),),
        "found/spectral/topics": ((K, d),),
        "found/spectral/alpha": ((K,),),
        "found/spectral/eigenvalues": ((K,),),
        "found/spectral/eigenvalue_noise": ((K,),),
        "found/spectral/alpha_0": ((), LEAST_ALPHA_0, MOST_ALPHA_0),
        "found/spectral/alpha_fit": ((),),
        "found/spectral/documents": ((), 0.0),
    }
    for name, rule in rules.items():
        check_array(f"refinement/{name}", state[name], *rule)


def _chosen(found: PrivateTopics, rows: NDArray[np.intp]) -> PrivateTopics:
    spectral = replace(
        found.spectral,
        topics=found.spectral.topics[rows],
        alpha=found.spectral.alpha[rows],
        eigenvalues=found.spectral.eigenvalues[rows],
        eigenvalue_noise=found.spectral.eigenvalue_noise[rows],
    )
    return replace(
        found,
        components=found.components[rows],
        alpha=found.alpha[rows],
        mixed=found.mixed[rows],
        spectral=spectral,
    )
