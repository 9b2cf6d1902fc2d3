"""Topics of the tokens of a document, topics held fixed; sums of these by word.

Two answers are computed: the mean-field one, the responsibility of every topic for each distinct
word of a document (zero-order collapsed variational Bayes [1]_), and a sample, one topic for each
token (Gibbs sampling [2]_ with the decomposition of SparseLDA [3]_). Both read the topics
word-major, shape (V, K), in single precision and above 0: an entry needs the K numbers of its word
side by side.

Random numbers are a hash of seed, document number, sweep and token, so that a document draws the
same ones whatever thread has it, and whatever batch. Entry e of a batch owns the tokens from
``token_pointers[e]`` to ``token_pointers[e + 1]``.

References
----------
.. [1] Asuncion, Welling, Smyth, Teh (2009), "On smoothing and inference for topic models", UAI.
.. [2] Griffiths, Steyvers (2004), "Finding scientific topics", PNAS 101.
.. [3] Yao, Mimno, McCallum (2009), "Efficient methods for topic model inference on streaming
   document collections", KDD, section 3.3.
"""

from __future__ import annotations

import numpy as np

from streamlda.kernels import (
    F32,
    F32_1D,
    F32_2D,
    F64_1D,
    I16_1D,
    I16_2D,
    I32_1D,
    I64,
    I64_1D,
    OUT_F32_2D,
    OUT_F64_1D,
    OUT_F64_2D,
    OUT_I16_1D,
    OUT_I16_2D,
    OUT_I32_2D,
    kernel,
    parallel_kernel,
)
from streamlda.kernels.association import TASKS

#: Topics of tokens: two bytes each.
MAX_TOPICS = 2**15 - 1

#: Documents that take turns in the search for topics, up to a number of topics: with 20 topics and
#: documents of 88 entries it takes 7.3 us a document in place of 12.6; with 50 topics no less.
_TURNS, _FEW_TOPICS = 2, 40
_ONE = np.float32(1)
#: For `expect_topics` without scores.
NO_SCORES = np.empty(0)
_LOW_32 = 0xFFFFFFFF
_TO_UNIT = np.float32(2.0**-24)


@kernel
def scramble(x: I64) -> I64:
    """Return a hash of the 32-bit number `x`, a bijection of 0..2^32-1.

    Two rounds of multiplication and shift. All products stay below 2^63, so that nothing wraps
    around and the compiled function equals the plain one.
    """
    x = ((x ^ (x >> 16)) * 0x21F0AAAD) & _LOW_32
    x = ((x ^ (x >> 15)) * 0x735A2D97) & _LOW_32
    return x ^ (x >> 15)


@kernel
def stream_key(seed: I64, document: I64, sweep: I64) -> I64:
    """Return the 32-bit key of one document's random numbers in one sweep; all arguments >= 0."""
    key = scramble((seed ^ (seed >> 32)) & _LOW_32)
    key = scramble(key ^ (document & _LOW_32))
    key = scramble(key ^ ((document >> 32) & _LOW_32))
    key = scramble(key ^ (sweep & _LOW_32))
    return key


@kernel
def unit(key: I64, number: I64) -> F32:
    """Return random number `number` of a stream, uniform on the multiples of 2^-24 in [0, 1)."""
    return np.float32(scramble((key + number * 0x9E3779B1) & _LOW_32) >> 8) * _TO_UNIT


@parallel_kernel(lambda counts, ids, rows, words, a, n, r, nats: (len(rows) - 1, 2 * n * r.size))
def expect_topics(
    first: int,
    last: int,
    counts: F64_1D,
    word_ids: I32_1D,
    row_pointers: I64_1D,
    words: F32_2D,
    alpha: F32_1D,
    inner_iterations: int,
    responsibilities: OUT_F32_2D,
    nats: OUT_F64_1D,
) -> None:
    """Find the responsibility of each topic for each entry, topics held fixed; score documents.

    Equivalent to ``tests.oracle_refinement.expect_topics``: entry after entry, `inner_iterations`
    (at least 1) times over, ``responsibilities[e] = p / sum(p)`` with ``p = words[w] * (alpha +
    rest)``, where rest is the sum of ``counts * responsibilities`` over the document less one token
    of the entry itself (CVB0 with fixed topics). In the first iteration the entries after e have
    none yet. Rows sum to 1 to rounding. `nats` has a number for each document, or none: the sum of
    ``counts * log(sum(p) / sum(alpha + rest))`` in the last iteration, where the other tokens of a
    document predict each one.
    Time O(nnz * K * inner_iterations); memory O(K) a document at work.
    """
    n_topics, r = len(alpha), responsibilities
    blocks, scored = n_topics // 8, inner_iterations - 1 if len(nats) else -1
    whole = np.float64(0)
    for k in range(n_topics):
        whole += alpha[k]
    # An entry waits for the one before it; meanwhile the processor works on another document.
    together = _TURNS if n_topics <= _FEW_TOPICS else 1
    # alpha and the expected tokens of each topic.
    gammas = np.empty((together, n_topics), dtype=np.float32)
    masses, found = np.empty(together), np.empty(together)
    for d in range(first, last, together):
        turns, longest = min(together, last - d), 0
        for turn in range(turns):
            masses[turn], found[turn] = whole, 0.0
            longest = max(longest, row_pointers[d + turn + 1] - row_pointers[d + turn])
            for k in range(n_topics):
                gammas[turn, k] = alpha[k]
        for iteration in range(inner_iterations):
            for place in range(longest):
                for turn in range(turns):
                    e = row_pointers[d + turn] + place
                    if e >= row_pointers[d + turn + 1]:
                        continue
                    gamma = gammas[turn]
                    w = word_ids[e]
                    count = np.float32(counts[e])
                    others = masses[turn]
                    if iteration == 0:
                        masses[turn] += counts[e]
                        for k in range(n_topics):
                            r[e, k] = words[w, k] * gamma[k]
                    else:
                        rest = count - min(count, _ONE)
                        others -= min(counts[e], 1.0)
                        for k in range(n_topics):
                            gamma[k] -= count * r[e, k]
                            # Rounding must not take more than there was.
                            gamma[k] = max(gamma[k], alpha[k])
                            r[e, k] = words[w, k] * (gamma[k] + rest * r[e, k])
                    total = np.float32(0)
                    for block in range(blocks):
                        k = 8 * block
                        total += ((r[e, k] + r[e, k + 1]) + (r[e, k + 2] + r[e, k + 3])) + (
                            (r[e, k + 4] + r[e, k + 5]) + (r[e, k + 6] + r[e, k + 7])
                        )
                    for k in range(8 * blocks, n_topics):
                        total += r[e, k]
                    if iteration == scored:
                        found[turn] += counts[e] * np.log(total / others)
                    scale = _ONE / total
                    for k in range(n_topics):
                        r[e, k] *= scale
                        gamma[k] += count * r[e, k]
        if scored >= 0:
            for turn in range(turns):
                nats[d + turn] = found[turn]


@parallel_kernel(lambda counts, ids, rows, words, p, a, *rest: (len(rows) - 1, len(ids) * a.size))
def expect_few_topics(
    first: int,
    last: int,
    counts: F64_1D,
    word_ids: I32_1D,
    row_pointers: I64_1D,
    words: F32_2D,
    masses: F32_1D,
    alpha: F32_1D,
    inner_iterations: int,
    topics: OUT_I16_2D,
    responsibilities: OUT_F32_2D,
    nats: OUT_F64_1D,
) -> None:
    """Find responsibilities of those topics alone that a document shows most of, as many as fit.

    A topic shows ``alpha[k] * sum(counts * words[w, k] / masses[w])``, with ``masses = words @
    alpha``: its expected tokens, each token by itself. Row d of `topics` lists those of document
    d, rising; columns of the responsibilities are in this order, and the answer is that of
    `expect_topics` for them. Time O(nnz * K) once, then O(nnz * columns) an iteration; memory
    O(K + words of a document * columns) a document at work.
    """
    n_topics, n_kept = len(alpha), topics.shape[1]
    shown = np.empty(n_topics, dtype=np.float32)
    kept_alpha = np.empty(n_kept, dtype=np.float32)
    ends = np.zeros(2, dtype=np.int64)
    longest = 0
    for d in range(first, last):
        longest = max(longest, row_pointers[d + 1] - row_pointers[d])
    found = np.empty((longest, n_kept), dtype=np.float32)
    ids = np.arange(longest).astype(np.int32)
    for d in range(first, last):
        begin, end = row_pointers[d], row_pointers[d + 1]
        for k in range(n_topics):
            shown[k] = 0.0
        for e in range(begin, end):
            w = word_ids[e]
            share = np.float32(counts[e]) / masses[w]
            for k in range(n_topics):
                shown[k] += share * words[w, k]
        most = np.float32(0)
        for k in range(n_topics):
            shown[k] *= alpha[k]
            most = max(most, shown[k])
        # Fewer than fit show more than `above`, and at least as many show `least` or more.
        least, above = np.float32(0), most
        for _ in range(20):
            middle = np.float32(0.5) * (least + above)
            more = 0
            for k in range(n_topics):
                more += shown[k] > middle
            if more < n_kept:
                above = middle
            else:
                least = middle
        more = 0
        for k in range(n_topics):
            more += shown[k] > above
        left, at = n_kept - more, 0
        for k in range(n_topics):
            chosen = shown[k] > above
            if not chosen and left > 0 and shown[k] >= least:
                chosen = True
                left -= 1
            if chosen:
                topics[d, at] = k
                kept_alpha[at] = alpha[k]
                at += 1
        for e in range(begin, end):
            for i in range(n_kept):
                found[e - begin, i] = words[word_ids[e], topics[d, i]]
        ends[1] = end - begin
        own = nats[d : d + 1] if len(nats) else nats
        one, its = counts[begin:end], responsibilities[begin:end]
        expect_topics(0, 1, one, ids, ends, found, kept_alpha, inner_iterations, its, own)


@kernel
def collapse_topics(
    counts: F64_1D,
    word_ids: I32_1D,
    row_pointers: I64_1D,
    alpha: F32_1D,
    smoothing: float,
    relaxation: float,
    masses: F32_1D,
    responsibilities: OUT_F32_2D,
    totals: OUT_F32_2D,
) -> None:
    """Find the responsibilities again, entry after entry, while the topics follow each of them.

    Equivalent to ``tests.oracle_refinement.collapse_topics``: ``p = (totals[w] - r + smoothing) /
    (masses + V smoothing) * (alpha + n - r)`` over its sum, with r what the entry had, of one token
    of it, n the expected tokens of the document, and the sums by word kept up with every entry
    (CVB0 [1]_). The responsibilities move by `relaxation` times the way to p, with 1 to p itself,
    and to 0 where that is below 0; they sum to 1 again. The masses of topics stay. Time
    O(nnz * K), serial, for each entry changes what the next one sees; memory O(K).
    """
    n_topics, one = len(alpha), _ONE
    blocks = n_topics // 8
    extra, none = np.float32(smoothing), np.float32(0)
    there, stays = np.float32(relaxation), np.float32(1 - relaxation)
    scale = np.empty(n_topics, dtype=np.float32)
    gamma = np.empty(n_topics, dtype=np.float32)
    p = np.empty(n_topics, dtype=np.float32)
    for k in range(n_topics):
        scale[k] = one / (masses[k] + np.float32(len(totals) * smoothing))
    for d in range(len(row_pointers) - 1):
        for k in range(n_topics):
            gamma[k] = alpha[k]
        for e in range(row_pointers[d], row_pointers[d + 1]):
            count = np.float32(counts[e])
            for k in range(n_topics):
                gamma[k] += count * responsibilities[e, k]
        for e in range(row_pointers[d], row_pointers[d + 1]):
            w, count = word_ids[e], np.float32(counts[e])
            least = min(count, one)
            for k in range(n_topics):
                own = least * responsibilities[e, k]
                # Rounding must not take more than there was.
                word = max(totals[w, k] - own, none) + extra
                p[k] = word * scale[k] * max(gamma[k] - own, alpha[k])
            total = none
            for block in range(blocks):
                k = 8 * block
                total += ((p[k] + p[k + 1]) + (p[k + 2] + p[k + 3])) + (
                    (p[k + 4] + p[k + 5]) + (p[k + 6] + p[k + 7])
                )
            for k in range(8 * blocks, n_topics):
                total += p[k]
            share = there / total
            for k in range(n_topics):
                p[k] = max(share * p[k] + stays * responsibilities[e, k], none)
            total = none
            for block in range(blocks):
                k = 8 * block
                total += ((p[k] + p[k + 1]) + (p[k + 2] + p[k + 3])) + (
                    (p[k + 4] + p[k + 5]) + (p[k + 6] + p[k + 7])
                )
            for k in range(8 * blocks, n_topics):
                total += p[k]
            share = one / total
            for k in range(n_topics):
                found = p[k] * share
                moved = count * (found - responsibilities[e, k])
                totals[w, k] += moved
                gamma[k] += moved
                responsibilities[e, k] = found


@parallel_kernel(lambda *inputs: (len(inputs[1]) - 1, 20 * len(inputs[-1])))
def resample_topics(
    first: int,
    last: int,
    word_ids: I32_1D,
    row_pointers: I64_1D,
    token_pointers: I64_1D,
    words: F32_2D,
    running: F32_2D,
    own: F32_1D,
    alpha: F32_1D,
    seed: int,
    first_document: int,
    sweep: int,
    topics: OUT_I16_1D,
) -> None:
    """Draw the topic of each token again, given those of the document's other tokens.

    Equivalent to ``tests.oracle_refinement.resample_topics``: token after token, topic k is drawn
    with probability in proportion to ``words[w, k] * (alpha[k] + n[k])``, with n[k] the other
    tokens of topic k. A token that has topic z takes ``own[z]`` out of ``words[w, z]``: what it
    adds there itself, below that. With own 0 this is the conditional of the posterior under fixed
    topics. Topic -1 is none yet. The part with n is summed over the topics that the document has,
    the part with alpha is found by bisection in ``running = cumsum(words * alpha, axis=1)``.
    Time O(tokens * (topics of a document + log K)); memory O(K) a document at work.
    """
    n_topics = words.shape[1]
    # Topics that the document has, in no order, their tokens, and where each stands among them.
    present = np.empty(n_topics, dtype=np.int32)
    tokens = np.empty(n_topics, dtype=np.float32)
    slot = np.full(n_topics, -1, dtype=np.int32)
    sums = np.empty(n_topics, dtype=np.float32)
    for d in range(first, last):
        start, end = row_pointers[d], row_pointers[d + 1]
        begin = token_pointers[start]
        n_present = 0
        for t in range(begin, token_pointers[end]):
            k = np.int64(topics[t])
            if k >= 0:
                if slot[k] < 0:
                    slot[k] = n_present
                    present[n_present] = k
                    tokens[n_present] = 0.0
                    n_present += 1
                tokens[slot[k]] += _ONE
        key = stream_key(seed, first_document + d, sweep)
        for e in range(start, end):
            word = words[word_ids[e]]
            prior = running[word_ids[e]]
            for t in range(token_pointers[e], token_pointers[e + 1]):
                before = np.int64(topics[t])
                taken, taken_prior = np.float32(0), np.float32(0)
                if before >= 0:
                    taken = own[before]
                    taken_prior = taken * alpha[before]
                    left = np.int64(slot[before])
                    tokens[left] -= _ONE
                    if tokens[left] == 0:
                        n_present -= 1
                        moved = present[n_present]
                        present[left] = moved
                        tokens[left] = tokens[n_present]
                        slot[moved] = left
                        slot[before] = -1
                total = np.float32(0)
                for i in range(n_present):
                    k = np.int64(present[i])
                    p = word[k] - taken if k == before else word[k]
                    total += p * tokens[i]
                    sums[i] = total
                u = unit(key, t - begin) * (total + (prior[n_topics - 1] - taken_prior))
                if u < total:
                    # Counted in whole: a loop that ends at once is foreseen wrongly every time.
                    at = 0
                    for i in range(n_present):
                        at += u >= sums[i]
                    k = np.int64(present[at])
                else:
                    u -= total
                    low, high = 0, n_topics - 1
                    while low < high:
                        middle = (low + high) >> 1
                        # The token's own part lies behind its topic in the sums.
                        there = prior[middle] - taken_prior if middle >= before else prior[middle]
                        if u >= there:
                            low = middle + 1
                        else:
                            high = middle
                    k = np.int64(low)
                    if slot[k] < 0:
                        slot[k] = n_present
                        present[n_present] = k
                        tokens[n_present] = 0.0
                        n_present += 1
                tokens[slot[k]] += _ONE
                topics[t] = k
        for i in range(n_present):
            slot[present[i]] = -1


@parallel_kernel(lambda *inputs: (TASKS, inputs[3].size))
def add_responsibilities(
    first: int,
    last: int,
    word_weights: F64_1D,
    entries: I32_1D,
    word_pointers: I64_1D,
    responsibilities: F32_2D,
    totals: OUT_F64_2D,
) -> None:
    """Add the weighted responsibilities for all entries to their words.

    Equivalent to ``np.add.at(totals, word_ids, weights[:, None] * responsibilities)``; weights and
    entries are grouped by word, with each entry a document of its own. Time O(nnz * K),
    parallel over words; each sum is taken in the order of the entries.
    """
    for task in range(first, last):
        for w in range(task, len(word_pointers) - 1, TASKS):
            for i in range(word_pointers[w], word_pointers[w + 1]):
                # Without a sign, as in `project`.
                e, weight = np.uint32(entries[i]), word_weights[i]
                for k in range(totals.shape[1]):
                    totals[w, k] += weight * responsibilities[e, k]


@parallel_kernel(lambda *inputs: (TASKS, inputs[5].size))
def add_few_responsibilities(
    first: int,
    last: int,
    word_weights: F64_1D,
    entries: I32_1D,
    word_pointers: I64_1D,
    documents: I32_1D,
    topics: I16_2D,
    responsibilities: F32_2D,
    totals: OUT_F64_2D,
) -> None:
    """Add the weighted responsibilities of `expect_few_topics` to their words, as above."""
    for task in range(first, last):
        for w in range(task, len(word_pointers) - 1, TASKS):
            for i in range(word_pointers[w], word_pointers[w + 1]):
                e, weight = np.uint32(entries[i]), word_weights[i]
                d = documents[e]
                for j in range(topics.shape[1]):
                    totals[w, topics[d, j]] += weight * responsibilities[e, j]


@kernel
def move_tokens(
    word_ids: I32_1D, token_pointers: I64_1D, before: I16_1D, topics: I16_1D, totals: OUT_I32_2D
) -> None:
    """Move each token in the counts by word and topic, from its topic `before`, -1 if it had none.

    Equivalent to ``np.add.at(totals, (word of t, topics[t]), 1)`` and the opposite for `before`.
    Time O(tokens), serial: two threads that divide the words were measured to take longer.
    """
    for e in range(len(word_ids)):
        w = word_ids[e]
        for t in range(token_pointers[e], token_pointers[e + 1]):
            if before[t] != topics[t]:
                if before[t] >= 0:
                    totals[w, before[t]] -= 1
                totals[w, topics[t]] += 1
