"""Kernels that draw the tokens of planted documents and count them."""

from __future__ import annotations

from streamlda.kernels import (
    F64_2D,
    I32_2D,
    I64_1D,
    OUT_F64_1D,
    OUT_I32_1D,
    OUT_I64_1D,
    parallel_kernel,
)


@parallel_kernel(lambda uniforms, topic_cdf, *rest: (len(topic_cdf), 10 * len(uniforms)))
def draw_tokens(
    first: int,
    last: int,
    uniforms: F64_2D,
    topic_cdf: F64_2D,
    word_cdf: F64_2D,
    starts: I32_2D,
    offsets: I64_1D,
    tokens: OUT_I32_1D,
) -> None:
    """Turn two uniform numbers a token into a topic and then a word of that topic.

    Equivalent to ``k = searchsorted(topic_cdf[d], u[0], "right")`` and
    ``tokens[t] = searchsorted(word_cdf[k], u[1], "right")`` with ``u = uniforms[t]``, for the
    tokens from ``offsets[d]`` to ``offsets[d + 1]`` of each document d. The last of each running
    sum is exactly 1; ``starts[k, b]``, of shape (K, V), is a word not after the one drawn by any u
    in ``[b / V, (b + 1) / V)``. Time O(tokens * K) at most, O(tokens) for documents of few topics:
    a word takes 2 steps from its start on average. No memory.
    """
    n_words = word_cdf.shape[1]
    for d in range(first, last):
        for t in range(offsets[d], offsets[d + 1]):
            topic = 0
            while topic_cdf[d, topic] <= uniforms[t, 0]:
                topic += 1
            u = uniforms[t, 1]
            word = starts[topic, min(int(u * n_words), n_words - 1)]
            while word_cdf[topic, word] <= u:
                word += 1
            tokens[t] = word


@parallel_kernel(lambda offsets, ids, counts, distinct: (len(distinct), 10 * len(ids)))
def tally_tokens(
    first: int,
    last: int,
    offsets: I64_1D,
    word_ids: OUT_I32_1D,
    counts: OUT_F64_1D,
    distinct: OUT_I64_1D,
) -> None:
    """Count the words of every document, in place.

    Equivalent to ``np.unique(tokens of d, return_counts=True)`` for each document, written to
    the front of the document's own span of ``word_ids``, which holds the tokens at first. Behind
    the distinct words counts are 0 and ids are meaningless.
    Time O(tokens * log(tokens of a document)); no memory.
    """
    for d in range(first, last):
        begin, end = offsets[d], offsets[d + 1]
        word_ids[begin:end].sort()
        filled = begin
        for t in range(begin, end):
            counts[t] = 0.0
            # Words are written after the tokens still to be read, or over the one just read.
            word = word_ids[t]
            if filled > begin and word_ids[filled - 1] == word:
                counts[filled - 1] += 1.0
            else:
                word_ids[filled] = word
                counts[filled] = 1.0
                filled += 1
        distinct[d] = filled - begin
