"""The E-step of variational Bayes for LDA: responsibilities of topics for a document's words.

Used by the published system it belongs to (`streamlda.papers.dpvi`); the engine's own E-step is
in `streamlda.kernels.refinement`.
"""

from __future__ import annotations

import math

import numpy as np

from streamlda.kernels import (
    F64_1D,
    F64_2D,
    I32_1D,
    I64_1D,
    OUT_F32_2D,
    OUT_F64_1D,
    kernel,
    parallel_kernel,
)

#: A word less probable than this under every topic is divided evenly: a quotient could overflow.
SMALLEST = 1e-280


@kernel
def digamma(x: float) -> float:
    """Return the digamma function of x > 0, to 1e-12 of max(1, its absolute value).

    Recurrence up to 6, then the asymptotic series.
    """
    shift = 0.0
    while x < 6.0:
        shift -= 1.0 / x
        x += 1.0
    r = 1.0 / (x * x)
    tail = r * (1 / 12 - r * (1 / 120 - r * (1 / 252 - r * (1 / 240 - r * (1 / 132 - r / 47.3)))))
    return shift + math.log(x) - 0.5 / x - tail


@parallel_kernel(lambda *inputs: (len(inputs[2]) - 1, 10 * inputs[-2].size))
def variational_responsibilities(
    first: int,
    last: int,
    counts: F64_1D,
    word_ids: I32_1D,
    row_pointers: I64_1D,
    words: F64_2D,
    alpha: F64_1D,
    max_iterations: int,
    tolerance: float,
    responsibilities: OUT_F32_2D,
    norms: OUT_F64_1D,
) -> None:
    """Find the variational responsibilities of topics for every entry, topics held fixed.

    Equivalent to ``tests.oracle_variational.variational_responsibilities``: repeat
    ``theta = exp(digamma(gamma)); phi = theta * words[ids]; phi /= phi.sum(1);
    gamma = alpha + counts @ phi`` from ``gamma = alpha + tokens / K`` until
    ``mean(abs(change)) < tolerance``, at most `max_iterations` times. `words`, of shape (V, K), is
    exp(E log beta); `norms` become the Euclidean norm of ``counts[:, None] * responsibilities``
    over the entries of each document. Time O(nnz * K * iterations); memory O(K) a thread. Each row
    depends on its document only.
    """
    n_topics = len(alpha)
    for n in range(first, last):
        begin, end = row_pointers[n], row_pointers[n + 1]
        gamma, theta, update = np.empty(n_topics), np.empty(n_topics), np.empty(n_topics)
        tokens = 0.0
        for e in range(begin, end):
            tokens += counts[e]
        for k in range(n_topics):
            gamma[k] = alpha[k] + tokens / n_topics
        for iteration in range(max_iterations + 1):
            for k in range(n_topics):
                theta[k] = math.exp(digamma(gamma[k]))
                update[k] = 0.0
            squares = 0.0
            for e in range(begin, end):
                beta = words[word_ids[e]]
                total = 0.0
                for k in range(n_topics):
                    total += theta[k] * beta[k]
                for k in range(n_topics):
                    own = theta[k] * beta[k] / total if total >= SMALLEST else 1.0 / n_topics
                    responsibilities[e, k] = own
                    update[k] += counts[e] * own
                    squares += (counts[e] * responsibilities[e, k]) ** 2
            norms[n] = math.sqrt(squares)
            change = 0.0
            for k in range(n_topics):
                change += abs(alpha[k] + update[k] - gamma[k])
                gamma[k] = alpha[k] + update[k]
            if change < tolerance * n_topics or iteration == max_iterations:
                break
