"""Topics of public documents as the start of a private window.

The first stage of a window asks documents whether the topics are of use: a document shows half of
its tokens and hides the others, as in `streamlda.private.comparison`. With p the probabilities of
the hidden words h_w by the public topics, and H the entropy of the public word frequencies, it adds
clip(sum_w h_w log p_w / sum_w h_w + H, -1, 1) to the block ``public_fits``. Where the noisy sum is
above 0, one release takes the place of all moments. Against the frequencies of the public words
themselves topics of another field would look good, since these frequencies are as wrong.

That release is of a round (`streamlda.private.responsibilities`). With n_k the noisy tokens of
topic k, a word's tokens are its lift times n_k times its public probability
(`streamlda.private.denoising`): what noise hides stays public. A further topic, where more are
wanted than the public model has, is what a topic got beyond its public tokens,
sum_w max(x_wk - n_k p_wk, 0), and is taken off that topic; topics with the most of it first.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import VocabularyError, require
from streamlda.guarantee.mechanism import Block
from streamlda.guarantee.sums import Contribution
from streamlda.model.inference import SMOOTHING, smooth
from streamlda.model.topic_model import TopicModel
from streamlda.private import responsibilities
from streamlda.private.comparison import halves, predict_held_out, scores
from streamlda.private.contributions import LESSER_WEIGHT, Contributions, View
from streamlda.private.denoising import denoise
from streamlda.private.settings import DENSE_FEATURES
from streamlda.private.topics import PrivateTopics, check_documents
from streamlda.private.word_classes import PublicWords, cluster_words
from streamlda.spectral.topics import SpectralTopics
from streamlda.utils.arrays import Array, Arrays, from_arrays, to_arrays

#: Name of the stage, and of the block that says whether it comes.
PUBLIC, FITS = "public", "public_fits"

#: Where its arrays are in states, and in the first release of a window.
PUBLIC_ARRAYS = "public/"

#: Least fraction of the columns that a public model must have a word for: of fewer its topics are
#: so alike that noise decides whether they are used.
LEAST_COMMON = 0.1


@dataclass(frozen=True)
class PublicTopics:
    """Topics of a public model over the columns of a private run; `digest` is that of the model."""

    components: Array  # (K', d)
    alpha: Array  # (K',)
    background: Array  # (d,)
    digest: str
    #: Classes of words, where windows can begin with common ones: see `words`.
    classes: NDArray[np.int64] | None = None  # (d,)

    @classmethod
    def of(
        cls, model: TopicModel, n_components: int, n_features: int, words: Sequence[str] | None
    ) -> Self:
        """Return those of a model over words, or over as many columns where these have no names.

        A word that the model lacks is as probable in all topics as the median of those it has. Time
        O(K d).
        """
        require(
            model.n_components <= n_components,
            "a public model has more topics than are wanted",
            topics=model.n_components,
            n_components=n_components,
            remedy="take n_components (--topics) from its number on: further ones are private",
        )
        columns = np.arange(n_features)
        if words is None:
            require(
                model.n_features == n_features,
                "a public model has other columns than the private rows",
                columns=model.n_features,
                n_features=n_features,
                remedy="count the same words in the same order",
                error=VocabularyError,
            )
        else:
            column = {word: i for i, word in enumerate(words_of(model))}
            columns = np.array([column.get(word, -1) for word in words])
        background = np.where(columns >= 0, model.background[columns], 0.0)
        common = background > 0
        share = float(common.mean())
        require(
            share >= LEAST_COMMON,
            f"a public model has less than {LEAST_COMMON:.0%} of the words",
            share=f"{share:.1%}",
            words=n_features,
            remedy="take a model of the same language, or its words in place of others",
            error=VocabularyError,
        )
        background[~common] = np.median(background[common])
        components = np.where(common, model.components[:, columns], background)
        background /= background.sum()
        components /= components.sum(axis=1, keepdims=True)
        # A word that a topic lacks can be learned.
        components = smooth(components, background, SMOOTHING)
        classes = None
        if n_features > DENSE_FEATURES:
            classes = cluster_words(components, model.alpha)
        return cls(components, model.alpha, background, model.digest, classes)

    @property
    def words(self) -> PublicWords | None:
        """Public words, which help whether or not the topics are used."""
        return None if self.classes is None else PublicWords(self.background, self.classes)

    def arrays(self, prefix: str) -> Arrays:
        """Return the arrays of `of_arrays`, which needs the digest too."""
        return to_arrays(self, prefix, but=("digest",))

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, NDArray[Any]], prefix: str, digest: str) -> Self:
        """Return what `arrays` was called on."""
        return from_arrays(cls, arrays, prefix, digest=digest)

    def shares(self) -> responsibilities.RefinementStatistic:
        """Return the statistic of the one release: tokens by word, topic and background."""
        weights = responsibilities.weights_of_words(self.background)
        given = self.components, self.alpha, self.background, weights
        return responsibilities.RefinementStatistic(
            *given, background_prior=responsibilities.PUBLIC_PRIOR.background
        )

    def move_topics(
        self,
        released: Mapping[str, Array],
        stddevs: Mapping[str, float],
        n_components: int,
        alpha_0: float | None,
        documents: int,
    ) -> PrivateTopics:
        """Return the topics by what was released, further ones included; O(d K)."""
        weights, K = responsibilities.weights_of_words(self.background), len(self.alpha)
        spread = responsibilities.PUBLIC_PRIOR.spread
        sums, stddev = released["shares"] / weights[:, None], stddevs["shares"] / weights
        by_topic, by_word = sums[:, :K], sums.sum(axis=1)
        total = float(by_topic.sum())
        check_documents(min(total, float(by_word.sum())))
        public = total * responsibilities.proportions_of(by_topic.sum(axis=0)) * self.components.T
        expected = denoise(by_topic, stddev, self.background, public, spread).tokens
        beyond = np.maximum(expected - public, 0.0)
        divided = np.argsort(-beyond.sum(axis=0), kind="stable")[: n_components - K]
        expected[:, divided] -= beyond[:, divided]
        expected = np.hstack([expected, beyond[:, divided]])
        words = (by_word.sum() * self.background)[:, None]
        of_word = stddev * np.sqrt(K + 1)
        frequencies = denoise(by_word[:, None], of_word, self.background, words, spread).tokens
        tokens = expected.sum(axis=0)
        components = np.ascontiguousarray((expected / tokens).T)
        alpha = (
            self.alpha.sum() if alpha_0 is None else alpha_0
        ) * responsibilities.proportions_of(tokens)
        none = np.zeros(len(tokens))
        spectral = SpectralTopics(
            *(components, alpha, float(alpha.sum()), none, none, none[:0], none[:0]), documents
        )
        found = PrivateTopics(
            *(components, alpha, frequencies[:, 0] / frequencies.sum(), spectral, none),
            prevalence=tokens / tokens.sum(),
        )
        return found.rows(np.argsort(-tokens, kind="stable"))


class FitsStatistic:
    """Sum of the gain of documents by public topics over word frequencies; see the module."""

    def __init__(self, public: PublicTopics) -> None:
        self._topics = smooth(public.components, public.background, SMOOTHING)
        self._alpha, words = public.alpha, public.background
        self._entropy = float(-np.sum(words * np.log(words)))

    def blocks(self) -> list[Block]:
        """A document contributes one number of either sign."""
        return [Block(FITS, (), 1.0, LESSER_WEIGHT)]

    def contributions(self, view: View) -> Contributions:
        """Return what each document says."""
        usable = view.batch.usable
        batch, found = view.batch.where(usable), np.zeros((len(usable), 1))
        if not batch.n_documents:
            return {FITS: Contribution(found)}
        seen, held = halves(batch)
        probable = np.log(predict_held_out(batch, seen, self._topics, self._alpha))
        found[usable, 0] = scores(batch, held, probable, self._entropy)
        return {FITS: Contribution(found)}

    def doubles(self, distinct: float) -> float:
        """Return a probability a word."""
        return distinct


def words_of(model: TopicModel) -> Sequence[str]:
    """Return the words of a public model, which must have some."""
    vocabulary = model.vocabulary
    words = None if vocabulary is None else vocabulary.words
    require(
        words is not None,
        "a public model has no words, but hashed or nameless columns",
        vocabulary=None if vocabulary is None else vocabulary.kind,
        remedy="learn it from text with words of its own",
        error=VocabularyError,
    )
    assert words is not None
    return words
