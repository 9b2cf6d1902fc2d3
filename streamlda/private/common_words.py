"""Start of a window of text: topics over its common words alone, for a round to refine.

The noise of word pairs has a spectral norm in proportion to the square root of the number of words,
while most of what pairs say of broad topics is in a few hundred words. So a first stage finds these
("common words"), a second sums their pairs without a projection ("common pairs"), and a long round
of refinement (`streamlda.private.refinement`) finds the topics' other words, which begin as the
word frequencies. Bounds are so low that all documents but very long ones are scaled to them.

A pair of two words of frequency p is in about N p^2 documents, beside a noise of z. So words are
common from a released frequency of `LEAST` sqrt(z / N) on, `WORDS_FOR_TOPIC` K to `DENSE_FEATURES`
of them. Topics are the columns of a nonnegative H with H H' nearest to the sums of pairs, of which
the eigenvectors above the spectral norm of the noise alone are kept (`ABOVE`): as many as there are
of these, at most K and what a round can tell apart.
"""

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.guarantee.mechanism import Block
from streamlda.privacy.clipping import ClipBounds
from streamlda.private.contributions import (
    LESSER_WEIGHT,
    Contributions,
    FirstStatistic,
    PairStatistic,
    Statistic,
    View,
)
from streamlda.private.denoising import LEAST_FREQUENCY, DenoisedTokens, denoise
from streamlda.private.packing import unpack_pairs
from streamlda.private.responsibilities import most_topics
from streamlda.private.settings import DENSE_FEATURES, PrivateSettings
from streamlda.private.topics import PrivateTopics, check_documents
from streamlda.private.word_classes import PublicWords
from streamlda.spectral.topics import SpectralTopics
from streamlda.utils.arrays import Array

#: Names of the stages.
WORDS, PAIRS = "common words", "common pairs"

#: What documents are scaled to: the norm of a document of 1,024 words, each once, and of pairs of
#: 512 of them. There are no triples.
BOUNDS = ClipBounds(2.0**-5, 2.0**-9, 1.0, "fixed")

#: Least frequency of a common word, over sqrt(z / N); fewest words for each topic.
LEAST, WORDS_FOR_TOPIC = 0.04, 5

#: Least eigenvalue that is kept, over the spectral norm of the noise alone.
ABOVE = 1.15

#: Sum of the Dirichlet parameters where it is not given: of topics, and for what pairs of
#: independent words take off before H is sought, a / (a + 1) of them: columns of H are topics then,
#: not mixtures of these.
USUAL_ALPHA_0 = 0.12, 0.5

#: Steps of a fit of H.
STEPS = 300


class OfCommon:
    """A statistic of documents without all but some public words, numbered in their order."""

    def __init__(self, statistic: Statistic, words: NDArray[np.int64]) -> None:
        self._statistic, self._words = statistic, words

    def blocks(self) -> list[Block]:
        """Blocks of the statistic, which sees these documents as any others."""
        return self._statistic.blocks()

    def contributions(self, view: View) -> Contributions:
        """Return the contributions of the documents without their other words."""
        batch = view.batch
        column = np.full(batch.n_features, -1, dtype=np.int32)
        column[self._words] = np.arange(len(self._words), dtype=np.int32)
        found = column[batch.word_ids]
        kept = np.flatnonzero(found >= 0)
        pointers = np.searchsorted(kept, batch.row_pointers).astype(np.int64)
        rows = batch.counts[kept], found[kept], pointers
        return self._statistic.contributions(View(DocumentBatch(*rows, len(self._words))))

    def doubles(self, distinct: float) -> float:
        """Return those of the statistic."""
        return self._statistic.doubles(distinct)


class Frequencies:
    """Word frequencies from all releases that show them, each by how little noise it has.

    A public model tells of words that noise hides (`streamlda.private.word_classes`).
    """

    def __init__(self, n_features: int, public: PublicWords | None = None) -> None:
        self._sums, self._precision = np.zeros(n_features), np.zeros(n_features)
        self._public = public

    def add(self, sums: Array, stddev: float | Array) -> None:
        """Add released values of the words, shape (d,), with noise of known size."""
        total = float(sums.sum())
        check_documents(total)
        precision = np.broadcast_to((total / np.asarray(stddev)) ** 2, sums.shape)
        self._sums = self._sums + precision * (sums / total)
        self._precision = self._precision + precision

    def denoise(self) -> DenoisedTokens:
        """Return the expected frequencies, (d, 1); the prior is fitted to them, O(d)."""
        d = len(self._sums)
        noisy, stddev = (self._sums / self._precision)[:, None], self._precision**-0.5
        found = denoise(noisy, stddev, np.zeros(d), np.full((d, 1), 1 / d))
        return found if self._public is None else self._public.denoise(noisy, stddev, found)

    def distribution(self) -> Array:
        """Return the expected frequencies, all above 0; O(d)."""
        expected = np.maximum(self.denoise().tokens[:, 0], LEAST_FREQUENCY / len(self._sums))
        distribution: Array = expected / expected.sum()
        return distribution


def common_words(frequencies: Array, settings: PrivateSettings) -> NDArray[np.int64]:
    """Return the columns of the words that count as common by released frequencies, rising."""
    noise = settings.noise_in_documents(settings.noise_multiplier)
    least = LEAST * np.sqrt(noise / settings.documents_per_snapshot)
    fewest = min(settings.n_features, WORDS_FOR_TOPIC * settings.n_components)
    n = min(max(int(np.sum(frequencies >= least)), fewest), DENSE_FEATURES)
    return np.sort(np.argsort(-frequencies, kind="stable")[:n]).astype(np.int64)


def statistics(stage: str, words: NDArray[np.int64] | None, n_features: int) -> list[Statistic]:
    """Return the statistics of a stage."""
    if words is None:
        assert stage == WORDS
        return [FirstStatistic(n_features, BOUNDS.first, 1.0)]
    pairs = PairStatistic(len(words), None, BOUNDS.pair, 1.0)
    first = FirstStatistic(n_features, BOUNDS.first, LESSER_WEIGHT)
    return [first, OfCommon(pairs, words)]


def concentrations(settings: PrivateSettings) -> tuple[float, float]:
    """Return alpha_0 of the topics that a round begins with, and of the centring of pairs.

    A given one counts as at most the usual ones where noise in the mean word exceeds its frequency:
    such a window shows broad topics, of which a document has one.
    """
    given = settings.alpha_0
    if given is None:
        return USUAL_ALPHA_0
    if settings.word_noise <= 1:
        return given, given
    topics, centring = USUAL_ALPHA_0
    return min(given, topics), min(given, centring)


def topics_of(
    entries: Array,
    stddev: float,
    words: NDArray[np.int64],
    frequencies: Array,
    settings: PrivateSettings,
    documents: int,
) -> PrivateTopics:
    """Return topics by the noisy sums of the pairs of common words; O(words^3).

    `stddev` is that of the noise in a packed entry; the seed makes the starts of the fit.
    """
    pairs, share = unpack_pairs(entries, len(words)), frequencies[words] / frequencies[words].sum()
    alpha_0, centring = concentrations(settings)
    independent = centring / (centring + 1) * pairs.sum() * np.outer(share, share)
    values, vectors = np.linalg.eigh(pairs - independent)
    values, vectors = values[::-1], vectors[:, ::-1]
    floor = stddev * np.sqrt(2.0 * len(words))  # Off the diagonal noise has stddev / sqrt(2).
    known = max(1, int(np.sum(values > ABOVE * floor)))
    K = min(known, most_topics(settings))
    rng = np.random.default_rng(settings.seed)
    # One is kept even if it is noise; it must not be negative.
    kept = np.maximum(values[:known], 1e-6 * floor)
    H = _nonnegative(kept, vectors[:, :known], K, rng, settings.n_restarts)
    strength = np.sum(H**2, axis=0)
    order = np.argsort(-strength, kind="stable")
    H, strength = H[:, order], strength[order]
    components = np.tile(frequencies, (K, 1))
    components[:, words] = (H / H.sum(axis=0)).T * frequencies[words].sum()
    components /= components.sum(axis=1, keepdims=True)
    alpha = np.full(K, alpha_0 / K)
    spectrum = values[: settings.n_components]
    turned, noise = np.full(K, floor / 2), np.full(len(spectrum), floor)
    spectral = SpectralTopics(
        *(components, alpha, alpha_0, strength, turned, spectrum, noise), documents
    )
    return PrivateTopics(components, alpha, frequencies, spectral, np.zeros(K))


def _nonnegative(
    values: Array, vectors: Array, K: int, rng: np.random.Generator, starts: int
) -> Array:
    """Return H >= 0, shape (words, K), with H H' near the matrix of these eigenpairs.

    By multiplicative steps, each halfway (Ding et al. 2008); the best of some random starts.
    """

    def image(of: Array) -> Array:
        return (vectors * values) @ (vectors.T @ of)

    whole = float(values @ values)
    row = np.maximum(image(np.ones((len(vectors), 1))), 1e-12 * values[0])
    best, least = row, np.inf
    for _ in range(starts):
        H = row * rng.standard_exponential((len(vectors), K))
        H *= np.sqrt(values[0] / np.linalg.norm(H.T @ H))
        for _ in range(STEPS):
            H *= 0.5 + 0.5 * np.maximum(image(H), 0.0) / (H @ (H.T @ H) + 1e-300)
        gram = H.T @ H
        error = whole - 2 * float(np.sum(H * image(H))) + float(np.sum(gram**2))
        if error < least:
            best, least = H, error
    # A topic must have words.
    found: Array = np.maximum(best, 1e-12 * best.max())
    return found
