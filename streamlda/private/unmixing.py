"""Deconvolve expected counts that were computed with rough topics.

Post-processing: nothing here sees a document. A round that begins with rough topics divides the
tokens of a document by its other words, which are of several topics. A token of topic j then counts
for topic k with the expected responsibility ``B_wjk``, and the released sums of a word are its
tokens by topic, times B, plus noise of known size. B follows from public and released values:
documents are drawn from the topics found so far, and divided as the round divided those of the
window (`responsibilities_of_topics`). The tokens are then the expected ones given the sums of all
topics together, with lifts that have a prior as in `streamlda.private.denoising` (`deconvolve`).

The word frequencies are one more topic of these documents: text has tokens that belong to no topic.
They have half of the share that the round gave them, as topics get the other half where they are
not known.
"""

import math

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.kernels.refinement import NO_SCORES, expect_topics
from streamlda.private.denoising import CLEAR, GROUPS, LIFTS, first_prior
from streamlda.private.responsibilities import INNER_ITERATIONS
from streamlda.private.stage import DOUBLES
from streamlda.utils.arrays import Array

#: Documents drawn for each topic, and their mean number of tokens.
DRAWN = 64

_LIFTS = LIFTS.astype(np.float32)


def draw_documents(topics: Array, alpha: Array, rng: np.random.Generator) -> DocumentBatch:
    """Return `DRAWN` documents for each topic in turn, as one that has a token of it is.

    Proportions are then Dirichlet(alpha + e_j) for topic j. Topics are (J, d), alpha is (J,).
    """
    J, d = topics.shape
    n = J * DRAWN
    first = np.repeat(np.eye(J), DRAWN, axis=0)
    theta = rng.standard_gamma(alpha + first)
    theta /= theta.sum(axis=1, keepdims=True)
    lengths = np.maximum(3, rng.poisson(DRAWN, n))
    document = np.repeat(np.arange(n), lengths)
    chosen = (rng.random(len(document))[:, None] > np.cumsum(theta, axis=1)[document]).sum(axis=1)
    np.minimum(chosen, J - 1, out=chosen)
    words = np.empty(len(document), dtype=np.int64)
    for j in range(J):
        running = np.cumsum(topics[j])
        own = chosen == j
        words[own] = np.searchsorted(running, running[-1] * rng.random(int(own.sum())))
    np.minimum(words, d - 1, out=words)
    cells, counts = np.unique(document * d + words, return_counts=True)
    pointers = np.concatenate([[0], np.cumsum(np.bincount(cells // d, minlength=n))])
    return DocumentBatch(counts.astype(np.float64), (cells % d).astype(np.int32), pointers, d)


def responsibilities_of_topics(
    words: NDArray[np.float32], prior: NDArray[np.float32], documents: DocumentBatch
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return B (U, J, K + 1), of words that differ to a round, and which of these a word is.

    `words` (d, K + 1) and `prior` (K + 1,) are those of the round's E-step, `documents` those of
    `draw_documents`, of J topics. Time O(U J K), memory of B.
    """
    J = documents.n_documents // DRAWN
    rows = documents.counts, documents.word_ids, documents.row_pointers
    gamma = np.empty((len(documents.counts), len(prior)), dtype=np.float32)
    expect_topics(*rows, words, prior, INNER_ITERATIONS, gamma, NO_SCORES)
    tokens = np.add.reduceat(gamma * documents.counts[:, None], documents.row_pointers[:-1])
    shares = (tokens + prior).astype(np.float32)
    # Words whose probabilities are in the same proportion are divided alike.
    likely = np.round(words / words.max(axis=1, keepdims=True), 5)
    kinds, kind = np.unique(likely, axis=0, return_inverse=True)
    found = np.empty((len(kinds), J, len(prior)), dtype=np.float32)
    step = math.ceil(DOUBLES / shares.size)
    for start in range(0, len(kinds), step):
        divided = kinds[start : start + step, None] * shares
        divided /= divided.sum(axis=2, keepdims=True)
        found[start : start + step] = divided.reshape(-1, J, DRAWN, len(prior)).mean(axis=2)
    return found, kind.reshape(-1)


def deconvolve(
    sums: Array,
    stddev: Array,
    background: Array,
    means: Array,
    mixing: NDArray[np.float32],
    kind: NDArray[np.int64],
    spread: float,
) -> Array:
    """Return the expected tokens by word and topic, (d, J), given sums in which they are mixed.

    `sums` (d, K + 1) are these tokens times B, ``mixing[kind]``, and noise of stddev (d,). Lifts
    over `means` (d, J) are as in `denoise`; a topic's, given the other topics' expected
    tokens, in turn (mean-field). Time O(d J (K + LIFTS)) a sweep, memory O(d J K).
    """
    found = np.empty_like(means)
    order = np.argsort(-background, kind="stable")
    for group in np.array_split(order, min(GROUPS, len(order))):
        prior = first_prior(spread)
        B = mixing[kind[group]]
        power: Array = np.einsum("wjk,wjk->wj", B, B, dtype=np.float64)
        scales = means[group]
        own = scales.copy()
        left = sums[group] - np.einsum("wj,wjk->wk", own, B)
        noise: Array = np.divide(stddev[group, None], np.sqrt(power))
        for _ in range(INNER_ITERATIONS):
            seen = np.zeros_like(prior)
            for j, of_topic in enumerate(noise.T):
                x = own[:, j] + np.einsum("wk,wk->w", left, B[:, j]) / power[:, j]
                lifts, weights = _expect_lifts(x / of_topic, scales[:, j] / of_topic, prior)
                seen += weights
                moved = np.where(x > CLEAR * of_topic, x, lifts * scales[:, j])
                left -= (moved - own[:, j])[:, None] * B[:, j]
                own[:, j] = moved
            # No lift is ruled out.
            prior = seen / seen.sum() + 1e-6
            prior /= prior.sum()
        found[group] = own
    return found


def _expect_lifts(sums: Array, scales: Array, prior: Array) -> tuple[Array, Array]:
    """Return the expected lifts of words, and their posteriors' sum; the noise is 1.

    In single precision, whose range suffices: what is clear, or far below 0, is not asked.
    """
    near = np.clip(sums, -CLEAR, CLEAR).astype(np.float32)
    exponents = near[:, None] - np.multiply.outer(scales.astype(np.float32), _LIFTS)
    exponents *= exponents
    exponents *= -0.5
    likelihood = np.exp(exponents, out=exponents)
    norm, lifts = (likelihood @ np.stack([prior, prior * LIFTS], 1).astype(np.float32)).T
    return lifts / norm, prior * ((1 / norm) @ likelihood)


def unmix_tokens(
    sums: Array,
    stddev: Array,
    background: Array,
    rough: Array,
    proportions: Array,
    alpha_0: float,
    words: NDArray[np.float32],
    prior: NDArray[np.float32],
    spread: float,
    seed: int,
) -> Array:
    """Return the expected tokens by word and topic, (d, K), of a round's released sums.

    `sums` (d, K + 1) have the background's column last, `words` and `prior` divided the tokens
    (`get_divisors`). `rough` (K, d) are topics as the sums show them, `proportions` those of their
    tokens, alpha_0 is the sum of the Dirichlet parameters. The seed draws documents.
    """
    total = float(sums.sum())
    # Half of the background's share is of topics.
    of_none = min(max(float(sums[:, -1].sum()) / total, 1e-3), 1.0) / 2
    shares = np.append((1 - of_none) * proportions, of_none)
    topics = np.vstack([rough, background])
    documents = draw_documents(topics, alpha_0 * shares, np.random.default_rng(seed))
    mixing, kind = responsibilities_of_topics(words, prior, documents)
    expected = np.outer(background, total * shares)
    return deconvolve(sums, stddev, background, expected, mixing, kind, spread)[:, :-1]
