"""Kernels that fold documents into fixed topics and score words under the result.

Both read the topics word-major, shape (n_words, K): the K numbers a token needs lie side by side.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import types

from streamlda.kernels import F64_1D, F64_2D, I32_1D, I64_1D, OUT_F64_1D, OUT_F64_2D, kernel

#: A word less probable than this under every topic is ignored: dividing by it could overflow.
SMALLEST = 1e-280


@kernel(
    types.void(F64_1D, I32_1D, I64_1D, F64_2D, F64_1D, types.int64, types.float64, OUT_F64_2D),
    parallel=True,
)
def fold_in(
    counts: Any,
    word_ids: Any,
    row_pointers: Any,
    words: Any,
    alpha: Any,
    max_iterations: int,
    tolerance: float,
    theta: Any,
) -> None:
    """Find the topic proportions of every document, topics held fixed.

    Equivalent to ``tests.oracle_text.fold_in``: repeat
    ``gamma = alpha + gamma * (words[ids].T @ (counts / (words[ids] @ gamma)))`` from
    ``gamma = alpha + tokens / K`` until ``sum(abs(change)) <= tolerance * sum(gamma)``.
    Time O(nnz * K * iterations); memory O(K) a thread. Each row depends on its document only.

    Parameters
    ----------
    counts, word_ids, row_pointers
        Documents in compressed sparse row form, counts in tokens.
    words : array of shape (n_words, K)
        Probability of each word in each topic.
    alpha : array of shape (K,)
        Parameters of the Dirichlet prior, all above 0.
    max_iterations : int
        Most updates of one document.
    tolerance : float
        Change of the proportions, summed over topics, at which a document is done.
    theta : array of shape (n_documents, K), output
        Rows that sum to 1.
    """
    n_topics = len(alpha)
    blocks = n_topics // 4
    for n in numba.prange(len(row_pointers) - 1):
        first, last = row_pointers[n], row_pointers[n + 1]
        gamma = theta[n]
        update = np.empty(n_topics)
        tokens = 0.0
        for e in range(first, last):
            tokens += counts[e]
        for k in range(n_topics):
            gamma[k] = alpha[k] + tokens / n_topics
        for _ in range(max_iterations):
            for k in range(n_topics):
                update[k] = 0.0
            for e in range(first, last):
                beta = words[word_ids[e]]
                # Four sums that do not wait for each other; their order is fixed.
                s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
                for block in range(blocks):
                    k = 4 * block
                    s0 += gamma[k] * beta[k]
                    s1 += gamma[k + 1] * beta[k + 1]
                    s2 += gamma[k + 2] * beta[k + 2]
                    s3 += gamma[k + 3] * beta[k + 3]
                for k in range(4 * blocks, n_topics):
                    s0 += gamma[k] * beta[k]
                probability = (s0 + s1) + (s2 + s3)
                if probability >= SMALLEST:
                    ratio = counts[e] / probability
                    for k in range(n_topics):
                        update[k] += ratio * beta[k]
            total, change = 0.0, 0.0
            for k in range(n_topics):
                new = alpha[k] + gamma[k] * update[k]
                change += abs(new - gamma[k])
                total += new
                gamma[k] = new
            if change <= tolerance * total:
                break
        total = 0.0
        for k in range(n_topics):
            total += gamma[k]
        for k in range(n_topics):
            gamma[k] /= total


@kernel(types.void(I32_1D, I64_1D, F64_2D, F64_2D, OUT_F64_1D), parallel=True)
def word_probabilities(
    word_ids: Any, row_pointers: Any, words: Any, theta: Any, probabilities: Any
) -> None:
    """Find the probability of every entry's word under its document's proportions.

    Equivalent to ``probabilities[e] = theta[n] @ words[word_ids[e]]`` for the entries e of
    document n. Time O(nnz * K); no memory.

    Parameters
    ----------
    word_ids, row_pointers
        Documents in compressed sparse row form.
    words : array of shape (n_words, K)
        Probability of each word in each topic.
    theta : array of shape (n_documents, K)
        Topic proportions.
    probabilities : array of shape (nnz,), output
        One probability an entry.
    """
    for n in numba.prange(len(row_pointers) - 1):
        for e in range(row_pointers[n], row_pointers[n + 1]):
            total = 0.0
            for k in range(theta.shape[1]):
                total += theta[n, k] * words[word_ids[e], k]
            probabilities[e] = total
