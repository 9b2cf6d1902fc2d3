"""Kernels that fold documents into fixed topics and score words under the result.

Both read the topics word-major, shape (n_words, K): the K numbers a token needs lie side by side.
"""

from __future__ import annotations

import numpy as np

from streamlda.kernels import (
    F64_1D,
    F64_2D,
    I32_1D,
    I64_1D,
    OUT_F64_1D,
    OUT_F64_2D,
    parallel_kernel,
)

#: A word less probable than this under every topic is ignored: dividing by it could overflow.
SMALLEST = 1e-280


@parallel_kernel(lambda counts, *rest: (len(rest[-1]), 10 * len(counts) * rest[-1].shape[1]))
def fold_in(
    first: int,
    last: int,
    counts: F64_1D,
    word_ids: I32_1D,
    row_pointers: I64_1D,
    words: F64_2D,
    alpha: F64_1D,
    max_iterations: int,
    tolerance: float,
    theta: OUT_F64_2D,
) -> None:
    """Find the topic proportions of every document, topics held fixed.

    Equivalent to ``tests.oracle_text.fold_in``: repeat
    ``gamma = alpha + gamma * (words[ids].T @ (counts / (words[ids] @ gamma)))`` from
    ``gamma = alpha + tokens / K`` until ``sum(abs(change)) <= tolerance * sum(gamma)``, at most
    `max_iterations` times; alpha above 0. Rows of theta sum to 1.
    Time O(nnz * K * iterations); memory O(K) a thread. Each row depends on its document only.
    """
    n_topics = len(alpha)
    blocks = n_topics // 4
    for n in range(first, last):
        begin, end = row_pointers[n], row_pointers[n + 1]
        gamma = theta[n]
        update = np.empty(n_topics)
        tokens = 0.0
        for e in range(begin, end):
            tokens += counts[e]
        for k in range(n_topics):
            gamma[k] = alpha[k] + tokens / n_topics
        for _ in range(max_iterations):
            for k in range(n_topics):
                update[k] = 0.0
            for e in range(begin, end):
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


@parallel_kernel(lambda ids, rows, words, theta, out: (len(theta), len(ids) * theta.shape[1]))
def word_probabilities(
    first: int,
    last: int,
    word_ids: I32_1D,
    row_pointers: I64_1D,
    words: F64_2D,
    theta: F64_2D,
    probabilities: OUT_F64_1D,
) -> None:
    """Find the probability of every entry's word under its document's proportions.

    Equivalent to ``probabilities[e] = theta[n] @ words[word_ids[e]]`` for the entries e of
    document n. Time O(nnz * K); no memory.
    """
    for n in range(first, last):
        for e in range(row_pointers[n], row_pointers[n + 1]):
            total = 0.0
            for k in range(theta.shape[1]):
                total += theta[n, k] * words[word_ids[e], k]
            probabilities[e] = total
