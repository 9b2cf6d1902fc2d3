"""Kernels that draw the tokens of planted documents and count them."""

from __future__ import annotations

from typing import Any

import numba
from numba import types

from streamlda.kernels import F64_2D, I32_2D, I64_1D, OUT_F64_1D, OUT_I32_1D, OUT_I64_1D, kernel


@kernel(types.void(F64_2D, F64_2D, F64_2D, I32_2D, I64_1D, OUT_I32_1D), parallel=True)
def draw_tokens(
    uniforms: Any, topic_cdf: Any, word_cdf: Any, starts: Any, offsets: Any, tokens: Any
) -> None:
    """Turn two uniform numbers a token into a topic and then a word of that topic.

    Equivalent to ``k = searchsorted(topic_cdf[d], u[0], "right")`` and
    ``tokens[t] = searchsorted(word_cdf[k], u[1], "right")`` with ``u = uniforms[t]``.
    Time O(tokens * K) at most, O(tokens) for documents of few topics: a word takes 2 steps from
    its place in `starts` on average. No memory.

    Parameters
    ----------
    uniforms : array of shape (n_tokens, 2)
        Numbers in [0, 1).
    topic_cdf : array of shape (n_documents, K)
        Running sums of each document's proportions; the last is exactly 1.
    word_cdf : array of shape (K, V)
        Running sums of each topic; the last is exactly 1.
    starts : array of shape (K, V)
        A word not behind the one drawn by any u in ``[b / V, (b + 1) / V)``, for each b.
    offsets : array of shape (n_documents + 1,)
        Document d owns the tokens from ``offsets[d]`` to ``offsets[d + 1]``.
    tokens : array of shape (n_tokens,), output
        Word ids.
    """
    n_words = word_cdf.shape[1]
    for d in numba.prange(len(offsets) - 1):
        for t in range(offsets[d], offsets[d + 1]):
            topic = 0
            while topic_cdf[d, topic] <= uniforms[t, 0]:
                topic += 1
            u = uniforms[t, 1]
            word = starts[topic, min(int(u * n_words), n_words - 1)]
            while word_cdf[topic, word] <= u:
                word += 1
            tokens[t] = word


@kernel(types.void(I64_1D, OUT_I32_1D, OUT_F64_1D, OUT_I64_1D), parallel=True)
def tally_tokens(offsets: Any, word_ids: Any, counts: Any, distinct: Any) -> None:
    """Count the words of every document, in place.

    Equivalent to ``np.unique(tokens of d, return_counts=True)`` for each document, written to
    the front of the document's own span, with counts of 0 behind.
    Time O(tokens * log(tokens of a document)); no memory.

    Parameters
    ----------
    offsets : array of shape (n_documents + 1,)
        Document d owns the tokens from ``offsets[d]`` to ``offsets[d + 1]``.
    word_ids : array of shape (n_tokens,), input and output
        The tokens; afterwards the distinct words of each document, rising. What stands behind
        them, where the count is 0, is meaningless.
    counts : array of shape (n_tokens,), output
        How often each of these words occurs, in tokens.
    distinct : array of shape (n_documents,), output
        Number of distinct words.
    """
    for d in numba.prange(len(offsets) - 1):
        first, last = offsets[d], offsets[d + 1]
        word_ids[first:last].sort()
        filled = first
        for t in range(first, last):
            counts[t] = 0.0
            # Words are written behind the tokens still to be read, or in their place.
            word = word_ids[t]
            if filled > first and word_ids[filled - 1] == word:
                counts[filled - 1] += 1.0
            else:
                word_ids[filled] = word
                counts[filled] = 1.0
                filled += 1
        distinct[d] = filled - first
