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

    Equivalent to ``tests.oracle_text.fold_in``: repeat the update
    ``new = alpha + point * (words[ids].T @ (counts / (words[ids] @ point)))`` from
    ``gamma = point = alpha + tokens / K``, at most `max_iterations` times; alpha above 0. The next
    point lies beyond ``new`` by a part of the step from gamma that grows from 1/4 towards 1
    (Nesterov's momentum), but never below half of ``new``. Where the objective falls again at a
    point on its way from gamma, by its gradient ``new / point``, the point is dropped and momentum
    begins again at gamma; the objective is concave, so no step that is kept lowers it.

    Near the optimum the step r of an update is linear in its point p, so the distance left, in L1,
    is about ``abs(r) * abs(change of p) / abs(change of r)``. A document is done where that is at
    most ``tolerance * sum(new)``. Rows of theta sum to 1.
    Time O(nnz * K * iterations); memory O(K) a thread. Each row depends on its document only.
    Entries go four at a time: a load of the point serves four of them, two thirds of the time.
    """
    n_topics = len(alpha)
    for n in range(first, last):
        begin, end = row_pointers[n], row_pointers[n + 1]
        gamma = theta[n]
        new, point = np.empty(n_topics), np.empty(n_topics)
        # The first changes are from 0: with a tolerance below 1, only a step of 0 ends there.
        last_point, last_step = np.empty(n_topics), np.empty(n_topics)
        tokens = 0.0
        for e in range(begin, end):
            tokens += counts[e]
        gamma_sum = 0.0
        for k in range(n_topics):
            gamma[k] = alpha[k] + tokens / n_topics
            point[k] = gamma[k]
            last_point[k], last_step[k] = 0.0, 0.0
            gamma_sum += gamma[k]
        point_sum, speed = gamma_sum, 0
        for _ in range(max_iterations):
            for k in range(n_topics):
                new[k] = 0.0
            for e in range(begin, end - 3, 4):
                one, two = words[word_ids[e]], words[word_ids[e + 1]]
                three, four = words[word_ids[e + 2]], words[word_ids[e + 3]]
                s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
                for k in range(n_topics):
                    s0 += point[k] * one[k]
                    s1 += point[k] * two[k]
                    s2 += point[k] * three[k]
                    s3 += point[k] * four[k]
                r0 = counts[e] / s0 if s0 >= SMALLEST else 0.0
                r1 = counts[e + 1] / s1 if s1 >= SMALLEST else 0.0
                r2 = counts[e + 2] / s2 if s2 >= SMALLEST else 0.0
                r3 = counts[e + 3] / s3 if s3 >= SMALLEST else 0.0
                for k in range(n_topics):
                    new[k] += (r0 * one[k] + r1 * two[k]) + (r2 * three[k] + r3 * four[k])
            for e in range(end - (end - begin) % 4, end):
                beta = words[word_ids[e]]
                s0 = 0.0
                for k in range(n_topics):
                    s0 += point[k] * beta[k]
                r0 = counts[e] / s0 if s0 >= SMALLEST else 0.0
                for k in range(n_topics):
                    new[k] += r0 * beta[k]
            new_sum, rise, size, moved, turned = 0.0, 0.0, 0.0, 0.0, 0.0
            scale = point_sum / gamma_sum
            for k in range(n_topics):
                new[k] = alpha[k] + point[k] * new[k]
                step = new[k] - point[k]
                rise += step * (1.0 - scale * gamma[k] / point[k])
                size += abs(step)
                moved += abs(point[k] - last_point[k])
                turned += abs(step - last_step[k])
                last_point[k], last_step[k] = point[k], step
                new_sum += new[k]
            if rise < 0.0:
                for k in range(n_topics):
                    point[k] = gamma[k]
                point_sum, speed = gamma_sum, 0
                continue
            speed += 1
            momentum = speed / (speed + 3.0)
            point_sum = 0.0
            for k in range(n_topics):
                point[k] = max(0.5 * new[k], new[k] + momentum * (new[k] - gamma[k]))
                point_sum += point[k]
                gamma[k] = new[k]
            gamma_sum = new_sum
            if size * moved <= tolerance * new_sum * turned:
                break
        for k in range(n_topics):
            gamma[k] /= gamma_sum


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
