"""Refinement under privacy: rounds in which fresh documents move the topics of noisy moments.

Moments give topics in a few releases, but read a document through pairs and triples of words,
whose noise drowns all but the broadest topics. Topics once known, even badly, a document says more:
how many of its tokens belong to which topic. A round sums that over documents of its own, with the
topics released so far as public parameter: `streamlda.private.responsibilities` has the sums and
their sensitivity. It is a stage like any other (`streamlda.private.stage`), and what follows is
post-processing.

What a round released is added to that of earlier rounds, which fade by `FADING`, and denoised
(`streamlda.private.denoising`).

It is for text. Where documents follow the model to the letter, without common words, a background
of its own takes from topics, the more so the flatter they are and the larger alpha_0 is: planted
topics (1,500 words, K = 10, epsilon 3) have errors of 0.10 by moments and 0.07 by rounds at alpha_0
1 and 100,000 documents, 0.62 and 0.49 at alpha_0 10 and 50,000, but are lost at alpha_0 20. So the
documents of the last round say which topics they prefer (`streamlda.private.comparison`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from streamlda.privacy.clipping import norm_edges, private_quantile
from streamlda.private.common_words import Frequencies
from streamlda.private.comparison import LONG, WEIGHTS, ComparisonStatistic, gain_of
from streamlda.private.contributions import Lengths, NormStatistic, Statistic
from streamlda.private.denoising import denoise
from streamlda.private.responsibilities import (
    LEAST_TOKENS,
    RefinementStatistic,
    divided_by,
    even_proportions,
    most_topics,
    weights_of_words,
)
from streamlda.private.settings import CHOICE, PrivateSettings
from streamlda.private.topics import PrivateTopics, check_documents, mixture_shares
from streamlda.private.unmixing import unmixed_tokens

Array = NDArray[np.float64]

#: Fraction of the background in the topics of the first round, at most, and over what noise has
#: hidden of them; it falls to 0 in the last.
FLATNESS, FLATNESS_HIDDEN = 0.5, 2.0

#: What the sums of a round count for in the next.
FADING = 0.6

#: With common words: weight of the background as `BACKGROUND_PRIOR`, and mean distance of
#: logarithms of lifts from 0 until sums say otherwise.
COMMON_BACKGROUND_PRIOR, COMMON_SPREAD = 1.5, 0.7

#: Weight of the block of all words, over the noise in the frequency of a mean word, d z / N, and at
#: most.
WORDS_WEIGHT, MOST_WORDS_WEIGHT = 0.4, 4.0

#: A half of a topic that was split: each word times a Gamma variable of this shape, of mean 1.
SPLIT_SHAPE = 4.0


class RefinementRounds:
    """Topics that move with every released round; nothing but noisy sums comes in.

    Documents of the last round compare them with their start, if there are two rounds or more.

    Noise may have left fewer topics than were wanted. Broad ones are then split, as many as the
    documents of a round can tell apart (`most_topics`): both halves begin as the topic with every
    word a little more or less likely, from the public seed, and the rounds draw them apart.
    """

    def __init__(
        self,
        settings: PrivateSettings,
        start: PrivateTopics,
        frequencies: Frequencies | None = None,
    ) -> None:
        self._settings, start = settings, replace(start, prevalence=None)
        #: What releases say of all words, if rounds continue with it (common words).
        self._frequencies = frequencies
        #: The topics of the moments, which are published if documents prefer them.
        self._moments = start
        self._start = start
        if frequencies is None:
            self._start = split_topics(start, most_topics(settings), settings.seed)
        self.components = self._start.components
        #: Fraction of each topic in the tokens that are not background; sums to 1.
        self.proportions = self._start.alpha / self._start.alpha.sum()
        self.rounds_done = 0
        self._mixed = self._start.mixed
        d, K = self.components.shape[1], len(self.components)
        self._sums, self._variance = np.zeros((d, K)), np.zeros(d)
        #: Tokens from which on documents count alike; all do if it is not known.
        self._long = 1.0
        self._compared: tuple[Mapping[str, Array], Mapping[str, float]] | None = None
        self._slots = 0  # Of the stage in which documents compared.

    @property
    def word_weights(self) -> Array:
        """a, shape (d,)."""
        return weights_of_words(self._start.background)

    @property
    def stage(self) -> str | None:
        """Name of the stage that comes next, None after the last."""
        if self.rounds_done < self._settings.n_refinement_rounds:
            return f"refine {self.rounds_done + 1}"
        return CHOICE if self._frequencies is not None and self._compared is None else None

    def statistics(self) -> list[Statistic]:
        """Return what the next stage sums."""
        rounds = self._settings.n_refinement_rounds
        common = self._frequencies is not None
        if common and self.rounds_done == rounds:
            return [ComparisonStatistic(self._refined(), self._frequencies_alone(), self._long)]
        sums: list[Statistic] = [
            RefinementStatistic(
                *self._round_begins_with(),
                self.word_weights,
                background_too=common,
                background_prior=COMMON_BACKGROUND_PRIOR if common else None,
                totals_weight=words_weight(self._settings) if common else None,
            )
        ]
        # The round before documents compare; with common words a stage of its own is for that.
        if self.rounds_done == rounds - 2 + common:
            sums.append(NormStatistic(Lengths(), WEIGHTS["length_norms"]))
        # The first round begins with the topics of the moments: there is nothing to compare.
        if 1 < rounds == self.rounds_done + 1 and not common:
            sums.append(ComparisonStatistic(self._refined(), self._moments, self._long))
        return sums

    def _round_begins_with(self) -> tuple[Array, Array, Array]:
        """Return the topics, prior and background of the next round."""
        rounds = self._settings.n_refinement_rounds
        flat = self._flatness * (1 - self.rounds_done / (rounds - 1)) if rounds > 1 else 0.0
        topics = (1 - flat) * self.components + flat * self._start.background
        return topics, self._start.spectral.alpha_0 * self.proportions, self._start.background

    @property
    def _flatness(self) -> float:
        """Fraction of the background in the topics of the first round."""
        hidden = float(np.average(self._moments.mixed, weights=self._moments.alpha))
        return min(FLATNESS, FLATNESS_HIDDEN * hidden)

    def answer(self, released: Mapping[str, Array], stddevs: Mapping[str, float]) -> None:
        """Move the topics by the released sums of a round; time and memory O(d K)."""
        weights, K = self.word_weights, len(self.components)
        fresh, of_round = released["shares"] / weights[:, None], stddevs["shares"] / weights
        begun, spread = self._round_begins_with(), np.inf
        if self._frequencies is not None:
            spread = COMMON_SPREAD
            self._frequencies.add(fresh.sum(axis=1), of_round * np.sqrt(K + 1))
            self._frequencies.add(released["words"] / weights, stddevs["words"] / weights)
            self._start = replace(self._start, background=self._frequencies.distribution())
        sums = FADING * self._sums + fresh[:, :K]
        variance = FADING**2 * self._variance + of_round**2
        total = float(sums.sum())
        check_documents(total, "take larger windows, a larger epsilon, or no refinement")
        stddev = np.sqrt(variance)
        tokens = np.maximum(sums.sum(axis=0), LEAST_TOKENS * total / K)
        background = self._start.background
        scales = np.outer(background, tokens)
        expected = denoise(sums, stddev, background, scales, spread).tokens
        if self._frequencies is not None and self._settings.n_refinement_rounds == 1:
            rough = (expected / expected.sum(axis=0)).T
            expected = unmixed_tokens(
                *(fresh, of_round, background, rough, self.proportions, begun[1].sum()),
                *(*divided_by(*begun, COMMON_BACKGROUND_PRIOR), spread, self._settings.seed),
            )
            total = float(expected.sum())
            tokens = np.maximum(expected.sum(axis=0), LEAST_TOKENS * total / K)
        hidden = expected < stddev[:, None]
        found = expected / expected.sum(axis=0)
        self._mixed = np.sum(found, axis=0, where=hidden)
        self.components = np.ascontiguousarray(found.T)
        self.proportions = even_proportions(tokens)
        self._sums, self._variance = sums, variance
        self.rounds_done += 1
        if "length_norms" in released:
            edges = norm_edges(Lengths.largest_norm)
            counts, noise = released["length_norms"], stddevs["length_norms"]
            found = private_quantile(counts, edges, LONG, noise)
            # The largest length there can be says that the noise hides all others.
            self._long = found if found < edges[-1] else 1.0
        if "preferred" in released:
            self._compared = released, stddevs

    def compare(
        self, released: Mapping[str, Array], stddevs: Mapping[str, float], slots: int
    ) -> None:
        """Take what documents in `slots` slots say of the topics."""
        self._compared, self._slots = (released, stddevs), slots

    def _frequencies_alone(self) -> PrivateTopics:
        """Return the word frequencies of now as the only topic."""
        found = self._refined().rows(np.zeros(1, dtype=np.intp))
        alpha = np.array([self._start.spectral.alpha_0])
        components = self._start.background[None]
        spectral = replace(found.spectral, topics=components, alpha=alpha)
        return replace(
            found, components=components, alpha=alpha, spectral=spectral, mixed=np.ones(1)
        )

    def topics(self) -> PrivateTopics:
        """Return the topics of now, or those of the moments if documents prefer these.

        What documents compare with are the topics that the last round began with: those of now have
        one round more. With common words they compare those of now with the released word
        frequencies alone: these surprise more than true ones, by what noise leaves open, and the
        topics less, by what documents prefer them (`gain_of`). The most prevalent are first. Before
        the last round nothing was compared.
        """
        refined = self._refined()
        if self._compared is None:
            found = replace(refined, refinement=np.array([1.0, np.nan, np.nan]))
            if not self.rounds_done:
                found = self._moments
            shares = mixture_shares(found.components, found.background)
            found = replace(found, prevalence=shares)
            return found.rows(np.argsort(-shares, kind="stable"))
        other = self._moments if self._frequencies is None else self._frequencies_alone()
        released, stddevs = self._compared
        preferred = float(released["preferred"])
        kept = preferred > 0
        name, found = ("tokens", refined) if kept else ("start_tokens", other)
        said = np.array([float(kept), preferred, stddevs["preferred"]])
        ratio = None
        if self._frequencies is not None:
            gain = kept * gain_of(np.array([preferred, stddevs["preferred"]]), self._slots)
            ratio = np.array([self._frequencies.denoised().surprise - gain[0], gain[1]])
        found = replace(found, refinement=said, ratio=ratio)
        return found.measured(released[name], stddevs[name])

    def _refined(self) -> PrivateTopics:
        """Return the topics of now, in the order of the sums.

        What is known of their eigenvalues is that of the topics they began as, and `mixed` the
        fraction of each on words whose expected tokens are fewer than a standard deviation of
        noise.
        """
        alpha = self._start.spectral.alpha_0 * self.proportions
        return replace(
            self._start,
            components=self.components,
            alpha=alpha,
            spectral=replace(self._start.spectral, alpha=alpha),
            mixed=self._mixed,
        )


def words_weight(settings: PrivateSettings) -> float:
    """Return the weight of the block of all words; see `WORDS_WEIGHT`."""
    return min(WORDS_WEIGHT * settings.word_noise, MOST_WORDS_WEIGHT)


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
    chosen = found.rows(np.array(parents))
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
