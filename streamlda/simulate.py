"""Endless corpora from planted topics: the only test data whose truth is known."""

import numpy as np
import scipy
from numpy.typing import ArrayLike, NDArray

from streamlda.documents import MIN_TOKENS, DocumentBatch
from streamlda.errors import above, at_least
from streamlda.model.inference import check_alpha
from streamlda.utils.arrays import Array

#: Documents drawn at once, and about how many tokens at most: bounds memory for long documents.
BLOCK_DOCUMENTS = 1024
BLOCK_TOKENS = 2**17


class PlantedLDA:
    """LDA with known topics, and an endless, seekable stream of documents drawn from it.

    Topics are Dirichlet(`topic_concentration`); a document has max(3, Poisson(`mean_length`))
    tokens and Dirichlet(alpha) proportions; each token draws a topic, then a word. Documents come
    in fixed blocks with a generator each, so that document n is the same in whatever batches, for
    one version of NumPy. Memory O(K * V) plus one block.

    `alpha_0` is the sum of a symmetric alpha, unless `alpha` (K,) is given. The corpus has
    ``components`` (K, V), ``alpha`` (K,) and made-up ``words``, ``"w00017"`` for id 17.
    """

    def __init__(
        self,
        n_components: int,
        n_features: int,
        *,
        alpha_0: float = 1.0,
        alpha: ArrayLike | None = None,
        topic_concentration: float = 0.05,
        mean_length: float = 80,
        seed: int,
    ) -> None:
        at_least(1, n_components=n_components, n_features=n_features)
        above(0, topic_concentration=topic_concentration, mean_length=mean_length)
        if alpha is None:
            alpha = np.full(n_components, alpha_0 / n_components)
        self.alpha = check_alpha(alpha)
        self.n_components, self.n_features = n_components, n_features
        self.mean_length = float(mean_length)
        self.seed = seed
        width = max(5, len(str(n_features - 1)))
        self.words = [f"w{word:0{width}d}" for word in range(n_features)]
        self.components: Array = self._generator(0).dirichlet(
            np.full(n_features, float(topic_concentration)), size=n_components
        )
        self._word_cdf = _running_sums(self.components)
        most = BLOCK_TOKENS // max(1, mean_length)
        self._block_documents = int(min(BLOCK_DOCUMENTS, max(1, most)))
        #: Number of the next document, from 0.
        self.position = 0
        self._held: tuple[int, list[NDArray[np.int32]], Array] = -1, [], self.components

    def seek(self, document: int) -> None:
        """Make `document` the next one. Costs nothing until documents are drawn."""
        self.position = document

    def draw(self, n: int) -> tuple[list[NDArray[np.int32]], Array]:
        """Draw the next `n` documents: words in the order drawn, and the proportions (n, K)."""
        tokens, proportions = [], np.empty((n, self.n_components))
        for i in range(n):
            number, row = divmod(self.position + i, self._block_documents)
            if self._held[0] != number:
                self._held = number, *self._block(number)
            tokens.append(self._held[1][row])
            proportions[i] = self._held[2][row]
        self.position += n
        return tokens, proportions

    def documents(self, n: int) -> DocumentBatch:
        """Draw the next `n` documents as counts."""
        tokens, _ = self.draw(n)
        ids = np.concatenate([np.empty(0, np.int32), *tokens])
        rows = np.ones(len(ids)), ids, np.cumsum([0, *map(len, tokens)])
        return DocumentBatch.from_matrix(scipy.sparse.csr_array(rows, (n, self.n_features)))

    def texts(self, n: int) -> list[str]:
        """Draw the next `n` documents as text, words in the order drawn, a space between."""
        return [" ".join(map(self.words.__getitem__, own.tolist())) for own in self.draw(n)[0]]

    def _generator(self, number: int) -> np.random.Generator:
        """Return generator `number` of this corpus: 0 for the topics, b + 1 for block b."""
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(number,)))

    def _block(self, number: int) -> tuple[list[NDArray[np.int32]], Array]:
        """Return the tokens of each document of one whole block, and the proportions."""
        rng = self._generator(number + 1)
        proportions = rng.dirichlet(self.alpha, size=self._block_documents)
        lengths = rng.poisson(self.mean_length, size=self._block_documents)
        offsets = np.cumsum([0, *np.maximum(lengths, MIN_TOKENS)])
        uniforms = rng.random((offsets[-1], 2))
        tokens = draw_tokens(uniforms, _running_sums(proportions), self._word_cdf, offsets)
        return np.split(tokens, offsets[1:-1]), proportions


def draw_tokens(
    uniforms: Array, topic_cdf: Array, word_cdf: Array, offsets: NDArray[np.int64]
) -> NDArray[np.int32]:
    """Turn two uniform numbers a token into a topic of its document and a word of that topic."""
    topics, tokens = np.empty(len(uniforms), np.intp), np.empty(len(uniforms), np.int32)
    for cdf, first, last in zip(topic_cdf, offsets[:-1], offsets[1:], strict=True):
        topics[first:last] = cdf.searchsorted(uniforms[first:last, 0], "right")
    order = np.argsort(topics, kind="stable")
    of_topics = np.split(order, np.searchsorted(topics[order], np.arange(1, len(word_cdf))))
    for cdf, own in zip(word_cdf, of_topics, strict=True):
        tokens[own] = cdf.searchsorted(uniforms[own, 1], "right")
    return tokens


def _running_sums(probabilities: Array) -> Array:
    """Return running sums along rows whose last number is exactly 1."""
    sums: Array = np.cumsum(probabilities, axis=1)
    sums /= sums[:, -1:]
    return sums
