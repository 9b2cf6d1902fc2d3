"""Endless corpora from planted topics: the only test data whose truth is known."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from streamlda.documents import MIN_TOKENS, DocumentBatch
from streamlda.errors import above, at_least, between, require
from streamlda.kernels.sampling import draw_tokens, tally_tokens
from streamlda.model.inference import checked_alpha

#: Documents drawn at once, and about how many tokens at most: bounds memory for long documents.
BLOCK_DOCUMENTS = 1024
BLOCK_TOKENS = 2**17


class PlantedDocuments(NamedTuple):
    """Planted documents: words in the order drawn, and the proportions (n, K) they are drawn from.

    Document d owns the tokens from ``offsets[d]`` to ``offsets[d + 1]``.
    """

    token_ids: NDArray[np.int32]
    offsets: NDArray[np.int64]
    proportions: NDArray[np.float64]

    def rows(self, start: int, stop: int) -> PlantedDocuments:
        """Return documents `start` to `stop`, sharing memory."""
        bounds = self.offsets[start : stop + 1]
        tokens = self.token_ids[bounds[0] : bounds[-1]]
        return PlantedDocuments(tokens, bounds - bounds[0], self.proportions[start:stop])


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
        at_least(0, seed=seed)
        above(0, topic_concentration=topic_concentration, mean_length=mean_length)
        # 1e9 is where a 32-bit count and the memory of one document end.
        between(0, 1e9, mean_length=mean_length)
        if alpha is None:
            alpha = np.full(n_components, alpha_0 / n_components)
        self.alpha = checked_alpha(alpha)
        rule = "alpha must have one number a topic"
        fits = len(self.alpha) == n_components
        require(fits, rule, alpha=self.alpha.shape, n_components=n_components)
        self.n_components, self.n_features = n_components, n_features
        self.mean_length = float(mean_length)
        self.seed = seed
        width = max(5, len(str(n_features - 1)))
        self.words = [f"w{word:0{width}d}" for word in range(n_features)]
        topics = self._generator(0).dirichlet(
            np.full(n_features, float(topic_concentration)), size=n_components
        )
        self.components: NDArray[np.float64] = topics
        self._word_cdf = _running_sums(topics)
        self._starts = _search_starts(self._word_cdf)
        self._block_documents = int(
            min(BLOCK_DOCUMENTS, max(1, BLOCK_TOKENS // max(1, mean_length)))
        )
        #: Number of the next document, from 0.
        self.position = 0
        self._held: tuple[int, PlantedDocuments] | None = None

    def seek(self, document: int) -> None:
        """Make `document` the next one. Costs nothing until documents are drawn."""
        at_least(0, document=document)
        self.position = document

    def draw(self, n: int) -> PlantedDocuments:
        """Draw the next `n` documents with word order and proportions. Time O(tokens * K)."""
        at_least(0, n=n)
        parts, end = [], self.position + n
        while self.position < end:
            number, first = divmod(self.position, self._block_documents)
            last = min(self._block_documents, first + end - self.position)
            parts.append(self._block(number).rows(first, last))
            self.position += last - first
        if len(parts) == 1:
            return parts[0]
        lengths = np.concatenate([np.zeros(1, np.int64), *(np.diff(p.offsets) for p in parts)])
        return PlantedDocuments(
            np.concatenate([np.empty(0, np.int32), *(p.token_ids for p in parts)]),
            np.cumsum(lengths),
            np.concatenate([np.empty((0, self.n_components)), *(p.proportions for p in parts)]),
        )

    def documents(self, n: int) -> DocumentBatch:
        """Draw the next `n` documents as counts."""
        drawn = self.draw(n)
        word_ids = drawn.token_ids.copy()
        counts = np.empty(len(word_ids))
        distinct = np.empty(n, dtype=np.int64)
        tally_tokens(drawn.offsets, word_ids, counts, distinct)
        kept = counts > 0
        row_pointers = np.concatenate([np.zeros(1, np.int64), np.cumsum(distinct)])
        return DocumentBatch(counts[kept], word_ids[kept], row_pointers, self.n_features)

    def texts(self, n: int) -> list[str]:
        """Draw the next `n` documents as text, words in the order drawn, a space between."""
        drawn = self.draw(n)
        named = [self.words[word] for word in drawn.token_ids.tolist()]
        bounds = drawn.offsets.tolist()
        return [" ".join(named[bounds[d] : bounds[d + 1]]) for d in range(n)]

    def _generator(self, number: int) -> np.random.Generator:
        """Return generator `number` of this corpus: 0 for the topics, b + 1 for block b."""
        return np.random.default_rng(np.random.SeedSequence(self.seed, spawn_key=(number,)))

    def _block(self, number: int) -> PlantedDocuments:
        """Return one whole block, kept until another is needed: small batches share it."""
        if self._held is not None and self._held[0] == number:
            return self._held[1]
        rng = self._generator(number + 1)
        proportions = rng.dirichlet(self.alpha, size=self._block_documents)
        lengths = rng.poisson(self.mean_length, size=self._block_documents)
        offsets = np.zeros(self._block_documents + 1, dtype=np.int64)
        np.cumsum(np.maximum(lengths, MIN_TOKENS), out=offsets[1:])
        tokens = np.empty(offsets[-1], dtype=np.int32)
        uniforms = rng.random((len(tokens), 2))
        draw_tokens(
            uniforms, _running_sums(proportions), self._word_cdf, self._starts, offsets, tokens
        )
        self._held = (number, PlantedDocuments(tokens, offsets, proportions))
        return self._held[1]


def _running_sums(probabilities: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return running sums along rows whose last number is exactly 1."""
    sums: NDArray[np.float64] = np.cumsum(probabilities, axis=1)
    sums /= sums[:, -1:]
    return sums


def _search_starts(cdf: NDArray[np.float64]) -> NDArray[np.int32]:
    """Return, for each row and bucket ``[b / V, (b + 1) / V)``, where the search for a u begins."""
    # Lowered a little, so that rounding of u * V never starts after the word drawn.
    grid = np.arange(cdf.shape[1]) / cdf.shape[1] - 1e-15
    return np.array([np.searchsorted(sums, grid, "right") for sums in cdf], dtype=np.int32)
