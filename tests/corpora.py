"""Small corpora that more than one test module draws from."""

import numpy as np
from hypothesis import strategies as st
from scipy.sparse import coo_array

from streamlda.documents import DocumentBatch
from tests import oracle

KINDS = [
    "random",
    "no documents",
    "empty",
    "one token",
    "repeated word",
    "three tokens",
    "100,000 tokens",
]


def corpus(kind, d=9):
    rng = np.random.default_rng(0)
    if kind == "random":
        return [rng.integers(d, size=n).tolist() for n in rng.integers(0, 13, 40)]
    if kind == "100,000 tokens":
        return [rng.choice(d, 100_000, p=rng.dirichlet(np.full(d, 0.3))).tolist()]
    return {
        "no documents": [],
        "empty": [[], []],
        "one token": [[d - 1]],
        "repeated word": [[0] * 50, [d // 2] * 3, [0, 0, 0, d - 1]],
        "three tokens": [[0, d // 2, d - 1], [d - 1, 0, d - 1]],
    }[kind]


def batch_of(documents, d):
    counts, word_ids, row_pointers = oracle.rows(documents)
    return DocumentBatch(
        np.array(counts, dtype=np.float64),
        np.array(word_ids, dtype=np.int32),
        np.array(row_pointers, dtype=np.int64),
        d,
    )


@st.composite
def small_corpora(draw):
    """Draw up to 8 documents of up to 7 tokens over up to 6 words, and a map of up to 4 columns."""
    d = draw(st.integers(1, 6))
    documents = draw(st.lists(st.lists(st.integers(0, d - 1), max_size=7), max_size=8))
    m = draw(st.integers(1, 4))
    W = np.random.default_rng(draw(st.integers(0, 2**32 - 1))).uniform(-1, 1, (d, m))
    return documents, W


#: Laws of lengths, with a mean of some 40 tokens where they have one.
LENGTHS = {
    "constant": lambda rng, n: np.full(n, 40),
    "Poisson": lambda rng, n: rng.poisson(40, n),
    "geometric": lambda rng, n: rng.geometric(1 / 40, n),
    "heavy": lambda rng, n: np.minimum(3000, 10 * rng.pareto(1.2, n)),
    "three tokens": lambda rng, n: np.full(n, 3),
}


def unigram(n, n_features, lengths, *, zipf, seed):
    """Return documents without topics: all of their words are drawn from one distribution."""
    rng = np.random.default_rng(seed)
    sizes = np.maximum(3, LENGTHS[lengths](rng, n)).astype(np.int64)
    weights = 1 / np.arange(1, n_features + 1) if zipf else np.ones(n_features)
    tokens = rng.choice(n_features, sizes.sum(), p=weights / weights.sum())
    owner = np.repeat(np.arange(n), sizes)
    shape = (n, n_features)
    return DocumentBatch.from_matrix(coo_array((np.ones(len(tokens)), (owner, tokens)), shape))


class LikeText:
    """Documents as of text: words by rank, a few large topics and many small, lengths spread."""

    def __init__(
        self,
        n_components,
        n_features,
        *,
        seed,
        alpha=None,
        spread=0.8,
        concentration=None,
        bursts=None,
    ):
        """With `bursts`, words come again: each document has Dirichlet(bursts p) of its own."""
        self._rng = np.random.default_rng(seed)
        frequency = 1 / np.arange(1.0, n_features + 1)
        strength = 30.0 * frequency / frequency.sum()
        if concentration is not None:
            strength = np.full(n_features, concentration)
        self.components = self._rng.dirichlet(strength, n_components) + 1e-9
        self.components /= self.components.sum(axis=1, keepdims=True)
        self.alpha = np.geomspace(0.3, 0.02, n_components) if alpha is None else alpha
        self.prevalence = self.alpha / self.alpha.sum()
        self._spread, self._bursts = spread, bursts

    def documents(self, n, alpha=None, mean_length=100):
        lengths = mean_length * np.exp(
            self._spread * self._rng.normal(size=n) - self._spread**2 / 2
        )
        theta = self._rng.dirichlet(self.alpha if alpha is None else alpha, n)
        words = theta @ self.components
        if self._bursts is not None:
            words = self._rng.gamma(self._bursts * words) + 1e-12
        words /= words.sum(axis=1, keepdims=True)
        return DocumentBatch.from_matrix(
            self._rng.multinomial(np.maximum(5, lengths.astype(int)), words)
        )
