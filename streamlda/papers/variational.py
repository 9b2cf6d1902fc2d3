"""The E-step of variational Bayes for LDA: responsibilities of topics for a document's words.

Used by the published system it belongs to (`streamlda.papers.dpvi`); the engine's own E-step is
in `streamlda.kernels.refinement`.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np
from numba import types

from streamlda.kernels import F64_1D, F64_2D, I32_1D, I64_1D, OUT_F64_1D, kernel

_OUT_F32_2D = types.Array(types.float32, 2, "C")

#: A word less probable than this under every topic is divided evenly: a quotient could overflow.
SMALLEST = 1e-280


@kernel(types.float64(types.float64))
def digamma(x: Any) -> Any:
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


@kernel(
    types.void(
        *(F64_1D, I32_1D, I64_1D, F64_2D, F64_1D, types.int64, types.float64),
        *(_OUT_F32_2D, OUT_F64_1D),
    ),
    parallel=True,
)
def variational_shares(
    counts: Any,
    word_ids: Any,
    row_pointers: Any,
    words: Any,
    alpha: Any,
    max_iterations: int,
    tolerance: float,
    shares: Any,
    norms: Any,
) -> None:
    """Find the variational responsibilities of topics for every entry, topics held fixed.

    Equivalent to ``tests.oracle_variational.variational_shares``: repeat
    ``theta = exp(digamma(gamma)); phi = theta * words[ids]; phi /= phi.sum(1);
    gamma = alpha + counts @ phi`` from ``gamma = alpha + tokens / K`` until
    ``mean(abs(change)) < tolerance``. `words`, of shape (V, K), is exp(E log beta); `norms` become
    the Euclidean norm of ``counts[:, None] * shares`` over the entries of each document. Time
    O(nnz * K * iterations); memory O(K) a thread. Each row depends on its document only.
    """
    n_topics = len(alpha)
    for n in numba.prange(len(row_pointers) - 1):
        first, last = row_pointers[n], row_pointers[n + 1]
        gamma, theta, update = np.empty(n_topics), np.empty(n_topics), np.empty(n_topics)
        tokens = 0.0
        for e in range(first, last):
            tokens += counts[e]
        for k in range(n_topics):
            gamma[k] = alpha[k] + tokens / n_topics
        for iteration in range(max_iterations + 1):
            for k in range(n_topics):
                theta[k] = math.exp(digamma(gamma[k]))
                update[k] = 0.0
            squares = 0.0
            for e in range(first, last):
                beta = words[word_ids[e]]
                total = 0.0
                for k in range(n_topics):
                    total += theta[k] * beta[k]
                for k in range(n_topics):
                    share = theta[k] * beta[k] / total if total >= SMALLEST else 1.0 / n_topics
                    shares[e, k] = share
                    update[k] += counts[e] * share
                    squares += (counts[e] * shares[e, k]) ** 2
            norms[n] = math.sqrt(squares)
            change = 0.0
            for k in range(n_topics):
                change += abs(alpha[k] + update[k] - gamma[k])
                gamma[k] = alpha[k] + update[k]
            if change < tolerance * n_topics or iteration == max_iterations:
                break
