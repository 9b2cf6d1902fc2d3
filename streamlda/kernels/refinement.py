"""Which topic each token of a document belongs to, topics held fixed; sums of that by word.

Two answers are computed: the mean-field one, a share of every topic for each distinct word of a
document (zero-order collapsed variational Bayes [1]_), and a sample, one topic for each token
(Gibbs sampling [2]_ with the decomposition of SparseLDA [3]_). Both read the topics word-major,
shape (V, K), in single precision: an entry needs the K numbers of its word side by side.

Random numbers are a hash of seed, document number, sweep and token, so that a document draws the
same ones whatever thread has it, and whatever batch.

References
----------
.. [1] Asuncion, Welling, Smyth, Teh (2009), "On smoothing and inference for topic models", UAI.
.. [2] Griffiths, Steyvers (2004), "Finding scientific topics", PNAS 101.
.. [3] Yao, Mimno, McCallum (2009), "Efficient methods for topic model inference on streaming
   document collections", KDD, section 3.3.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from numba import types

from streamlda.kernels import (
    F64_1D,
    F64_2D,
    I32_1D,
    I64_1D,
    OUT_F64_2D,
    OUT_I64_1D,
    OUT_I64_2D,
    kernel,
)

#: Topics of tokens: two bytes each.
MAX_TOPICS = 2**15 - 1

#: Words are dealt to this many tasks in turn, so that a vocabulary sorted by frequency is balanced.
_TASKS = 64

_F32_1D = types.Array(types.float32, 1, "C", readonly=True)
_F32_2D = types.Array(types.float32, 2, "C", readonly=True)
_OUT_F32_2D = types.Array(types.float32, 2, "C")
_I16_1D = types.Array(types.int16, 1, "C", readonly=True)
_OUT_I16_1D = types.Array(types.int16, 1, "C")

_ONE = np.float32(1)
_LOW_32 = 0xFFFFFFFF
_TO_UNIT = np.float32(2.0**-24)


@kernel(types.int64(types.int64))
def scramble(x: Any) -> Any:
    """Return a hash of the 32-bit number `x`, a bijection of 0..2^32-1.

    Two rounds of multiplication and shift. All products stay below 2^63, so that nothing wraps
    around and the compiled function equals the plain one.
    """
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & _LOW_32
    x = ((x ^ (x >> 15)) * 0x735A2D97) & _LOW_32
    return x ^ (x >> 15)


@kernel(types.int64(types.int64, types.int64, types.int64))
def stream_key(seed: Any, document: Any, sweep: Any) -> Any:
    """Return the 32-bit key of one document's random numbers in one sweep; all arguments >= 0."""
    key = scramble((seed ^ (seed >> 32)) & _LOW_32)
    key = scramble(key ^ (document & _LOW_32))
    key = scramble(key ^ ((document >> 32) & _LOW_32))
    key = scramble(key ^ (sweep & _LOW_32))
    return key


@kernel(types.float32(types.int64, types.int64))
def unit(key: Any, number: Any) -> Any:
    """Return random number `number` of a stream, uniform on the multiples of 2^-24 in [0, 1)."""
    return np.float32(scramble((key + number * 0x9E3779B1) & _LOW_32) >> 8) * _TO_UNIT


@kernel(
    types.void(F64_1D, I32_1D, I64_1D, _F32_2D, _F32_1D, types.int64, _OUT_F32_2D), parallel=True
)
def expect_topics(
    counts: Any,
    word_ids: Any,
    row_pointers: Any,
    words: Any,
    alpha: Any,
    sweeps: int,
    shares: Any,
) -> None:
    """Find the share of each topic in each entry, topics held fixed.

    Equivalent to ``tests.oracle_refinement.expect_topics``: entry after entry, `sweeps` times
    over, ``shares[e] = p / sum(p)`` with ``p = words[w] * (alpha + rest)``, where rest is the sum
    of ``counts * shares`` over the document less one token of the entry itself (CVB0 with fixed
    topics). In the first sweep the entries behind e have no share yet.
    Time O(nnz * K * sweeps); memory O(K) a document at work.

    Parameters
    ----------
    counts, word_ids, row_pointers : arrays of a `DocumentBatch`
    words : array of shape (V, K), float32
        Probability of each word in each topic, above 0.
    alpha : array of shape (K,), float32
        Parameters of the Dirichlet prior, above 0.
    sweeps : int
        At least 1.
    shares : array of shape (nnz, K), float32, output
        Rows that sum to 1 to rounding.
    """
    n_topics = len(alpha)
    blocks = n_topics // 8
    for d in numba.prange(len(row_pointers) - 1):
        first, last = row_pointers[d], row_pointers[d + 1]
        # alpha and the expected tokens of each topic.
        gamma = np.empty(n_topics, dtype=np.float32)
        for k in range(n_topics):
            gamma[k] = alpha[k]
        for sweep in range(sweeps):
            for e in range(first, last):
                word = words[word_ids[e]]
                share = shares[e]
                count = np.float32(counts[e])
                if sweep == 0:
                    for k in range(n_topics):
                        share[k] = word[k] * gamma[k]
                else:
                    own = min(count, _ONE)
                    rest = count - own
                    for k in range(n_topics):
                        gamma[k] -= count * share[k]
                        # Rounding must not take more than there was.
                        gamma[k] = max(gamma[k], alpha[k])
                        share[k] = word[k] * (gamma[k] + rest * share[k])
                total = np.float32(0)
                for block in range(blocks):
                    k = 8 * block
                    total += ((share[k] + share[k + 1]) + (share[k + 2] + share[k + 3])) + (
                        (share[k + 4] + share[k + 5]) + (share[k + 6] + share[k + 7])
                    )
                for k in range(8 * blocks, n_topics):
                    total += share[k]
                scale = _ONE / total
                for k in range(n_topics):
                    share[k] *= scale
                    gamma[k] += count * share[k]


@kernel(types.void(_F32_2D, I64_1D, I64_1D, types.int64, types.int64, _OUT_I16_1D), parallel=True)
def draw_topics(
    shares: Any,
    row_pointers: Any,
    token_pointers: Any,
    seed: int,
    first_document: int,
    topics: Any,
) -> None:
    """Draw a topic for each token from the shares of its entry.

    Equivalent to ``topics[t] = searchsorted(cumsum(shares[e]), u, "right")`` with u from sweep 0
    of the document's random numbers. Time O(tokens * K); no memory.

    Parameters
    ----------
    shares : array of shape (nnz, K), float32
        From `expect_topics`.
    row_pointers : array of shape (n_documents + 1,)
        Entries of each document.
    token_pointers : array of shape (nnz + 1,)
        Entry e owns the tokens from ``token_pointers[e]`` to ``token_pointers[e + 1]``.
    seed, first_document : int
        Document d of the batch has the number ``first_document + d``; both >= 0.
    topics : array of shape (n_tokens,), int16, output
    """
    last_topic = shares.shape[1] - 1
    for d in numba.prange(len(row_pointers) - 1):
        key = stream_key(seed, first_document + d, 0)
        begin = token_pointers[row_pointers[d]]
        for e in range(row_pointers[d], row_pointers[d + 1]):
            for t in range(token_pointers[e], token_pointers[e + 1]):
                u = unit(key, t - begin)
                k = 0
                total = shares[e, 0]
                while u >= total and k < last_topic:
                    k += 1
                    total += shares[e, k]
                topics[t] = k


@kernel(
    types.void(
        *(I32_1D, I64_1D, I64_1D, _F32_2D, _F32_2D),
        *(types.int64, types.int64, types.int64, _OUT_I16_1D),
    ),
    parallel=True,
)
def resample_topics(
    word_ids: Any,
    row_pointers: Any,
    token_pointers: Any,
    words: Any,
    running: Any,
    seed: int,
    first_document: int,
    sweep: int,
    topics: Any,
) -> None:
    """Draw the topic of each token anew given those of the document's other tokens.

    Equivalent to ``tests.oracle_refinement.resample_topics``: token after token, topic k is drawn
    with probability in proportion to ``words[w, k] * (alpha[k] + n[k])``, with n[k] the other
    tokens of topic k: the conditional of the posterior under these topics. The part with n is
    summed over the topics that the document has, the part with alpha is found by bisection in
    `running`. Time O(tokens * (topics of a document + log K)); memory O(K) a document at work.

    Parameters
    ----------
    word_ids, row_pointers : arrays of a `DocumentBatch`
    token_pointers : array of shape (nnz + 1,)
        As for `draw_topics`.
    words : array of shape (V, K), float32
        Probability of each word in each topic, above 0.
    running : array of shape (V, K), float32
        ``cumsum(words * alpha, axis=1)``.
    seed, first_document : int
        As for `draw_topics`.
    sweep : int
        Which random numbers are used; 0 is for `draw_topics`.
    topics : array of shape (n_tokens,), int16, input and output
        Topic of each token.
    """
    n_topics = words.shape[1]
    for d in numba.prange(len(row_pointers) - 1):
        first, last = row_pointers[d], row_pointers[d + 1]
        begin = token_pointers[first]
        tokens = np.zeros(n_topics, dtype=np.int64)
        # Topics that the document has, in no order, and where each stands among them.
        present = np.empty(n_topics, dtype=np.int32)
        place = np.empty(n_topics, dtype=np.int32)
        sums = np.empty(n_topics, dtype=np.float32)
        n_present = 0
        for t in range(begin, token_pointers[last]):
            k = np.int64(topics[t])
            if tokens[k] == 0:
                place[k] = n_present
                present[n_present] = k
                n_present += 1
            tokens[k] += 1
        key = stream_key(seed, first_document + d, sweep)
        for e in range(first, last):
            word = words[word_ids[e]]
            prior = running[word_ids[e]]
            for t in range(token_pointers[e], token_pointers[e + 1]):
                k = np.int64(topics[t])
                tokens[k] -= 1
                if tokens[k] == 0:
                    n_present -= 1
                    moved = present[n_present]
                    present[place[k]] = moved
                    place[moved] = place[k]
                total = np.float32(0)
                for i in range(n_present):
                    total += word[present[i]] * np.float32(tokens[present[i]])
                    sums[i] = total
                u = unit(key, t - begin) * (total + prior[n_topics - 1])
                if u < total:
                    i = 0
                    while u >= sums[i]:
                        i += 1
                    k = np.int64(present[i])
                else:
                    u -= total
                    low, high = 0, n_topics - 1
                    while low < high:
                        middle = (low + high) >> 1
                        if u >= prior[middle]:
                            low = middle + 1
                        else:
                            high = middle
                    k = np.int64(low)
                if tokens[k] == 0:
                    place[k] = n_present
                    present[n_present] = k
                    n_present += 1
                tokens[k] += 1
                topics[t] = k


@kernel(types.void(I32_1D, OUT_I64_1D, OUT_I64_1D))
def entries_by_word(word_ids: Any, entries: Any, word_pointers: Any) -> None:
    """List the entries of each word, rising.

    Equivalent to ``entries[:] = argsort(word_ids, kind="stable")``. Time O(nnz + V), serial.

    Parameters
    ----------
    word_ids : array of shape (nnz,)
    entries : array of shape (nnz,), output
    word_pointers : array of shape (V + 1,), output
        Word w owns ``entries[word_pointers[w] : word_pointers[w + 1]]``.
    """
    n_words = len(word_pointers) - 1
    for w in range(n_words + 1):
        word_pointers[w] = 0
    # Slot w + 1 first holds the size of word w, then the place of its next entry.
    for e in range(len(word_ids)):
        word_pointers[word_ids[e] + 1] += 1
    for w in range(n_words):
        word_pointers[w + 1] += word_pointers[w]
    for e in range(len(word_ids)):
        entries[word_pointers[word_ids[e]]] = e
        word_pointers[word_ids[e]] += 1
    for w in range(n_words, 0, -1):
        word_pointers[w] = word_pointers[w - 1]
    word_pointers[0] = 0


@kernel(types.void(I64_1D, I64_1D, F64_1D, _F32_2D, OUT_F64_2D), parallel=True)
def add_shares(entries: Any, word_pointers: Any, weights: Any, shares: Any, totals: Any) -> None:
    """Add the weighted shares of all entries to their words.

    Equivalent to ``np.add.at(totals, word_ids, weights[:, None] * shares)``. Time O(nnz * K),
    parallel over words; each sum is taken in the order of the entries.

    Parameters
    ----------
    entries, word_pointers : arrays from `entries_by_word`
    weights : array of shape (nnz,)
    shares : array of shape (nnz, K), float32
    totals : array of shape (V, K), output
        Added to.
    """
    for task in numba.prange(_TASKS):
        for w in range(task, len(word_pointers) - 1, _TASKS):
            for i in range(word_pointers[w], word_pointers[w + 1]):
                e = entries[i]
                for k in range(totals.shape[1]):
                    totals[w, k] += weights[e] * shares[e, k]


@kernel(types.void(I32_1D, I64_1D, _I16_1D, types.float64, OUT_F64_2D))
def add_tokens(word_ids: Any, token_pointers: Any, topics: Any, weight: float, totals: Any) -> None:
    """Add a weight to word and topic of each token.

    Equivalent to ``np.add.at(totals, (word of t, topics[t]), weight)``. Time O(tokens), serial:
    two threads that share the words out were measured to take longer.

    Parameters
    ----------
    word_ids : array of shape (nnz,)
    token_pointers : array of shape (nnz + 1,)
        As for `draw_topics`.
    topics : array of shape (n_tokens,), int16
    weight : float
        -1 takes tokens away.
    totals : array of shape (V, K), output
        Added to.
    """
    for e in range(len(word_ids)):
        row = totals[word_ids[e]]
        for t in range(token_pointers[e], token_pointers[e + 1]):
            row[topics[t]] += weight


@kernel(types.void(I64_1D, I64_1D, _I16_1D, OUT_I64_2D))
def tally_topics(row_pointers: Any, token_pointers: Any, topics: Any, at_least: Any) -> None:
    """Count, for each topic and each j, the documents with more than j tokens of that topic.

    Equivalent to ``at_least[k, j] += 1`` for every document, topic k and j below the document's
    tokens of k. Time O(tokens + n_documents * K), serial; memory O(K).

    Parameters
    ----------
    row_pointers, token_pointers, topics
        As for `resample_topics`.
    at_least : array of shape (K, longest document), output
        Added to.
    """
    tokens = np.zeros(at_least.shape[0], dtype=np.int64)
    for d in range(len(row_pointers) - 1):
        tokens[:] = 0
        for t in range(token_pointers[row_pointers[d]], token_pointers[row_pointers[d + 1]]):
            k = topics[t]
            at_least[k, tokens[k]] += 1
            tokens[k] += 1


@kernel(
    types.void(
        *(F64_2D, F64_1D, types.float64, types.float64, F64_1D, _F32_1D),
        *(_OUT_F32_2D, _OUT_F32_2D),
    ),
    parallel=True,
)
def spread_topics(
    totals: Any,
    scale: Any,
    smoothing: float,
    flatness: float,
    background: Any,
    alpha: Any,
    words: Any,
    running: Any,
) -> None:
    """Turn sums by word and topic into topics, and into the running sums that sampling needs.

    Equivalent to ``words[:] = (totals + smoothing) * scale + flatness * background[:, None]`` and
    ``running[:] = cumsum(words * alpha, axis=1)``. Time O(V * K), no memory.

    Parameters
    ----------
    totals : array of shape (V, K)
    scale : array of shape (K,)
        ``(1 - flatness) / sum(totals + smoothing, axis=0)``.
    smoothing, flatness : float
    background : array of shape (V,)
    alpha : array of shape (K,), float32
    words, running : arrays of shape (V, K), float32, output
    """
    for w in numba.prange(totals.shape[0]):
        total = np.float32(0)
        for k in range(totals.shape[1]):
            value = (totals[w, k] + smoothing) * scale[k] + flatness * background[w]
            words[w, k] = value
            total += words[w, k] * alpha[k]
            running[w, k] = total
