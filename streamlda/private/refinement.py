"""Refinement under privacy: fresh documents move topics of common words, and say whether they help.

Pairs of words give topics in a few releases, but their noise drowns all but the broadest topics.
Topics once known, even badly, a document says more: how many of its tokens belong to which topic.

1. *Round.* Documents of their own sum that (`streamlda.private.responsibilities`), with the topics
   released so far as public parameter. The tokens, which rough topics have mixed, are deconvolved
   (`streamlda.private.unmixing`), each word drawn to its frequency as far as noise hides it.
2. *Choice.* Further documents say whether they prefer the topics to the word frequencies
   (`streamlda.private.comparison`); if not, these are published as the only topic.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from streamlda.privacy.clipping import norm_edges, private_quantile
from streamlda.private import responsibilities
from streamlda.private.common_words import Frequencies
from streamlda.private.comparison import ComparisonStatistic, gain_of
from streamlda.private.contributions import KEPT_FRACTION, Lengths, NormStatistic, Statistic
from streamlda.private.denoising import denoise
from streamlda.private.settings import PrivateSettings
from streamlda.private.topics import PrivateTopics, check_documents, mixture_shares
from streamlda.private.unmixing import unmix_tokens
from streamlda.utils.arrays import Array

Released = Mapping[str, Array]

#: Weight of the block of all words, over the noise in the frequency of a mean word, d z / N.
WORDS_WEIGHT = 0.4


class Refinement:
    """Topics that a round moves and documents judge; nothing but noisy sums comes in.

    `frequencies` are what releases say of all words, and learn from the round.
    """

    def __init__(
        self, settings: PrivateSettings, start: PrivateTopics, frequencies: Frequencies
    ) -> None:
        self._settings, self._frequencies = settings, frequencies
        #: Topics of now, in the order of the sums.
        self.found = replace(start, prevalence=None)
        self._refined = False
        #: Tokens from which on documents count alike; all do if it is not known.
        self._long = 1.0
        self._compared: tuple[Released, Mapping[str, float], int] | None = None

    def round(self) -> list[Statistic]:
        """Return the statistics of the round."""
        given, weights = (
            self._parameters(),
            responsibilities.weights_of_words(self.found.background),
        )
        sums = responsibilities.RefinementStatistic(
            *given,
            weights,
            background_prior=responsibilities.ROUGH_PRIOR.background,
            totals_weight=WORDS_WEIGHT * self._settings.word_noise,
        )
        return [sums, NormStatistic(Lengths(), KEPT_FRACTION)]

    def choice(self) -> list[Statistic]:
        """Return the comparison that documents make after the round."""
        return [ComparisonStatistic(self.found, self._long)]

    def _parameters(self) -> tuple[Array, Array, Array]:
        """Return topics, prior and background of the round."""
        start = self.found
        proportions = start.alpha / start.alpha.sum()
        return start.components, start.spectral.alpha_0 * proportions, start.background

    def answer(self, released: Released, stddevs: Mapping[str, float]) -> None:
        """Move the topics by the released sums of the round; time and memory O(d K).

        `mixed` is then the fraction on words whose expected tokens are fewer than a deviation of
        noise.
        """
        given, K = self._parameters(), len(self.found.alpha)
        weights = responsibilities.weights_of_words(given[2])
        sums, stddev = released["shares"] / weights[:, None], stddevs["shares"] / weights
        self._frequencies.add(sums.sum(axis=1), stddev * np.sqrt(K + 1))
        self._frequencies.add(released["words"] / weights, stddevs["words"] / weights)
        background, of_topics = self._frequencies.distribution(), sums[:, :K]
        check_documents(
            float(of_topics.sum()), "take larger windows, a larger epsilon, or no refinement"
        )
        tokens = of_topics.sum(axis=0)
        scales = np.outer(background, tokens.sum() * responsibilities.proportions_of(tokens))
        rough = denoise(
            of_topics, stddev, background, scales, responsibilities.ROUGH_PRIOR.spread
        ).tokens
        words, prior = responsibilities.get_divisors(
            *given, responsibilities.ROUGH_PRIOR.background
        )
        expected = unmix_tokens(
            *(sums, stddev, background, (rough / rough.sum(axis=0)).T),
            *(given[1] / given[1].sum(), float(given[1].sum())),
            words,
            prior,
            responsibilities.ROUGH_PRIOR.spread,
            self._settings.seed,
        )
        components = expected / expected.sum(axis=0)
        alpha = self.found.spectral.alpha_0 * responsibilities.proportions_of(expected.sum(axis=0))
        self.found = replace(
            self.found,
            components=np.ascontiguousarray(components.T),
            alpha=alpha,
            background=background,
            spectral=replace(self.found.spectral, alpha=alpha),
            mixed=np.sum(components, axis=0, where=expected < stddev[:, None]),
        )
        edges = norm_edges(Lengths.largest_norm)
        counts, stddev_of = released["length_norms"], stddevs["length_norms"]
        long = private_quantile(counts, edges, q=0.95, stddev=stddev_of)
        # The largest length there can be says that the noise hides all others.
        self._long, self._refined = long if long < edges[-1] else 1.0, True

    def compare(self, sums: Released, stddevs: Mapping[str, float], slots: int) -> None:
        """Add the comparison of topics by documents in `slots` slots."""
        self._compared = sums, stddevs, slots

    def topics(self) -> PrivateTopics:
        """Return the topics of now, or the word frequencies if documents prefer these.

        Released frequencies surprise more than true ones, by what noise leaves open, and topics
        less, by what documents prefer them (`gain_of`).
        """
        found = self.found
        if self._compared is None:
            said = np.array([1.0, np.nan, np.nan]) if self._refined else None
            shares = mixture_shares(found.components, found.background)
            found = replace(found, refinement=said, prevalence=shares)
            return found.rows(np.argsort(-shares, kind="stable"))
        released, stddevs, slots = self._compared
        preferred, noise = float(released["preferred"]), stddevs["preferred"]
        kept = preferred > 0
        gain = kept * gain_of(np.array([preferred, noise]), slots)
        ratio = np.array([self._frequencies.denoise().surprise - gain[0], gain[1]])
        said = np.array([float(kept), preferred, noise])
        if kept:
            found = found.measure(released["tokens"], stddevs["tokens"])
        else:
            found = _frequencies_alone(found)
        return replace(found, refinement=said, ratio=ratio)


def _frequencies_alone(topics: PrivateTopics) -> PrivateTopics:
    """Return the word frequencies as the only topic."""
    one, words = topics.rows(np.zeros(1, dtype=np.intp)), topics.background[None]
    alpha = np.array([topics.spectral.alpha_0])
    return replace(
        one,
        components=words,
        alpha=alpha,
        spectral=replace(one.spectral, topics=words, alpha=alpha),
        mixed=np.ones(1),
        prevalence=np.ones(1),
    )
