"""Classes of words that go together in public documents, as a prior for noisy word frequencies.

A word in 30 of 16,000 documents cannot be seen beside noise of 32 documents, but 80 such words can
together. Which words go together is public: a public model of any field says it, also one whose
topics do not fit the private documents. Words are k-means clusters of their topics' shares, square
roots taken (Hellinger distances). Within a class words are first as frequent in proportion as in
public documents, and then as the noisy sums say (`streamlda.private.denoising`).

Classes of another language or of chance would bend frequencies. So the noisy sums themselves
decide, at no cost: classes are used where they make the sums more likely than equal frequencies do,
by one nat for each class (Akaike).
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import require_state
from streamlda.private.denoising import LEAST_FREQUENCY, DenoisedTokens, denoise
from streamlda.utils.arrays import Array


def cluster_words(components: Array, alpha: Array) -> NDArray[np.int64]:
    """Return the class of each word by topics (K, d) with Dirichlet parameters alpha.

    There are sqrt(d) classes: 40 to 300 are as good (`private-public` in ``bench/``).
    """
    from sklearn.cluster import KMeans

    shares = alpha[:, None] * components
    vectors = np.sqrt(shares / shares.sum(axis=0)).T
    n = min(math.isqrt(len(vectors)), len(np.unique(vectors.round(6), axis=0)))
    found = KMeans(n, n_init=1, random_state=0).fit(vectors)
    classes: NDArray[np.int64] = found.labels_.astype(np.int64)
    return classes


@dataclass(frozen=True, slots=True)
class PublicWords:
    """Frequencies of words in public documents, and their classes; both have shape (d,)."""

    frequencies: Array
    classes: NDArray[np.int64]

    def __post_init__(self) -> None:
        d, of = len(self.frequencies), self.classes
        whole = of.dtype == np.int64 and of.shape == (d,) and bool(np.all((of >= 0) & (of < d)))
        require_state(whole, classes=of.dtype, shape=of.shape, words=d)

    def denoise(self, noisy: Array, stddev: Array, otherwise: DenoisedTokens) -> DenoisedTokens:
        """Return frequencies (d, 1) by classes, or `otherwise` where noisy ones speak for these."""
        d, public, of = len(noisy), self.frequencies, self.classes
        of_class = np.bincount(of, public).astype(float)
        sums = np.bincount(of, noisy[:, 0]).astype(float)
        noise = np.sqrt(np.bincount(of, stddev**2))
        known = denoise(sums[:, None], noise, of_class, of_class[:, None]).tokens[:, 0]
        expected = np.maximum(public * (known / of_class)[of], LEAST_FREQUENCY / d)
        found = denoise(noisy, stddev, public, expected[:, None])
        better = found.log_likelihood - len(of_class) > otherwise.log_likelihood
        return found if better else otherwise
