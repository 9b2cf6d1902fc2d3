"""A step of a stepwise refinement: topics of a minibatch's words, and the sums after it.

A minibatch of few documents has few of the words. Topics are made for these alone; only the decay
goes over all sums, and takes the mass of each topic with it.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import types

from streamlda.kernels import F64_1D, F64_2D, I64_1D, OUT_F64_2D, kernel

_OUT_F32_2D = types.Array(types.float32, 2, "C")


@kernel(
    types.void(F64_2D, I64_1D, F64_1D, types.float64, types.float64, F64_1D, _OUT_F32_2D),
    parallel=True,
)
def gather_topics(
    totals: Any,
    words: Any,
    scale: Any,
    smoothing: float,
    flatness: float,
    background: Any,
    topics: Any,
) -> None:
    """Turn the sums of some words into their rows of the topics.

    Equivalent to ``topics[:] = (totals[words] + smoothing) * scale + flatness *
    background[words, None]``. Time O(len(words) * K), no memory.

    Parameters
    ----------
    totals : array of shape (V, K)
    words : array of shape (U,)
        Numbers of words.
    scale : array of shape (K,)
        ``(1 - flatness) / sum(totals + smoothing, axis=0)``.
    smoothing, flatness : float
    background : array of shape (V,)
    topics : array of shape (U, K), float32, output
    """
    for u in numba.prange(len(words)):
        w = words[u]
        flat = flatness * background[w]
        for k in range(totals.shape[1]):
            topics[u, k] = (totals[w, k] + smoothing) * scale[k] + flat


@kernel(types.void(types.float64, I64_1D, F64_2D, OUT_F64_2D, OUT_F64_2D), parallel=True)
def take_step(kept: float, words: Any, sums: Any, totals: Any, masses: Any) -> None:
    """Let the sums by word and topic decay, add those of some words, and sum up each topic.

    Equivalent to ``totals *= kept; totals[words] += sums`` and then ``masses[t] =
    totals[V * t // T : V * (t + 1) // T].sum(axis=0)``. Time O(V * K), parallel over the T runs
    of words; each sum is taken in the order of the words.

    Parameters
    ----------
    kept : float
    words : array of shape (U,)
        Numbers of words, rising.
    sums : array of shape (U, K)
    totals : array of shape (V, K), input and output
    masses : array of shape (T, K), output
    """
    n_runs, n_words = masses.shape[0], totals.shape[0]
    for run in numba.prange(n_runs):
        first, last = n_words * run // n_runs, n_words * (run + 1) // n_runs
        u = np.searchsorted(words, first)
        for k in range(totals.shape[1]):
            masses[run, k] = 0.0
        for w in range(first, last):
            for k in range(totals.shape[1]):
                totals[w, k] *= kept
            if u < len(words) and words[u] == w:
                for k in range(totals.shape[1]):
                    totals[w, k] += sums[u, k]
                u += 1
            for k in range(totals.shape[1]):
                masses[run, k] += totals[w, k]
