"""Slow twins of the kernels of text, inference, co-occurrence and sampling: no shared code."""

from __future__ import annotations

import math
from bisect import bisect_right
from itertools import groupby, pairwise

import numpy as np
from scipy.optimize import minimize
from scipy.special import softmax
from sklearn.utils import murmurhash3_32


def fold_in(counts, word_ids, row_pointers, words, alpha, max_iterations, tolerance):
    rows, topics = [], range(len(alpha))

    def updated(document, gamma):
        split_seeds = [[a] for a in alpha]
        for count, word in document:
            joint = [gamma[k] * words[word][k] for k in topics]
            if math.fsum(joint) >= 1e-280:
                for k in topics:
                    split_seeds[k].append(count * joint[k] / math.fsum(joint))
        return [math.fsum(tokens) for tokens in split_seeds]

    def distance(a, b):
        return math.fsum(abs(x - y) for x, y in zip(a, b, strict=True))

    for first, last in pairwise(row_pointers):
        document = list(zip(counts[first:last], word_ids[first:last], strict=True))
        tokens = math.fsum(count for count, _ in document)
        gamma = point = [a + tokens / len(alpha) for a in alpha]
        before = [0.0 for _ in topics], [0.0 for _ in topics]
        speed = 0
        for _ in range(max_iterations):
            new = updated(document, point)
            step = [new[k] - point[k] for k in topics]
            moved, turned = distance(point, before[0]), distance(step, before[1])
            before = point, step
            # The way from gamma to the point, as proportions, along the gradient at the point.
            way = [point[k] / math.fsum(point) - gamma[k] / math.fsum(gamma) for k in topics]
            if math.fsum(new[k] / point[k] * way[k] for k in topics) < 0:
                point, speed = gamma, 0
                continue
            speed += 1
            beyond = [new[k] + speed / (speed + 3) * (new[k] - gamma[k]) for k in topics]
            point = [max(new[k] / 2, beyond[k]) for k in topics]
            gamma = new
            if math.fsum(map(abs, step)) * moved <= tolerance * math.fsum(new) * turned:
                break
        rows.append([g / math.fsum(gamma) for g in gamma])
    return rows


def optimum(counts, components, alpha):
    """Return the proportions that maximize ``counts log p + alpha log theta``."""
    counts, components = counts[counts > 0], components[:, counts > 0]

    def value_and_gradient(x):
        theta = softmax(x)
        p = theta @ components
        gradient = components @ (counts / p) + alpha / theta
        value = counts @ np.log(p) + alpha @ np.log(theta)
        return -value, -theta * (gradient - theta @ gradient)

    found = minimize(value_and_gradient, np.zeros(len(alpha)), jac=True, options={"gtol": 1e-8})
    assert np.abs(found.jac).max() < 1e-6
    return softmax(found.x)


def word_probabilities(word_ids, row_pointers, words, theta):
    return [
        math.fsum(t * b for t, b in zip(theta[n], words[word_ids[e]], strict=True))
        for n in range(len(theta))
        for e in range(row_pointers[n], row_pointers[n + 1])
    ]


def draw_tokens(uniforms, topic_cdf, word_cdf, offsets):
    tokens = []
    for d, (first, last) in enumerate(pairwise(offsets)):
        for t in range(first, last):
            topic = bisect_right(topic_cdf[d], uniforms[t][0])
            tokens.append(bisect_right(word_cdf[topic], uniforms[t][1]))
    return tokens


def find_words(texts, lowercase, known, mask, most):
    """Return one list of numbers a text, by hash of words that do not enter; `known` may grow."""
    found = []
    for text in texts:
        padded = f" {text} "
        joins = [
            each == "_" and padded[i - 1].isalnum() and padded[i + 1].isalnum()
            for i, each in enumerate(padded)
        ]
        runs = groupby(range(len(padded)), lambda i, on=joins, of=padded: of[i].isalnum() or on[i])
        words = ["".join(padded[i] for i in run) for inside, run in runs if inside]
        words = [word for word in words if len(word) > 1 and any(map(str.isalpha, word))]
        words = [word.lower() if lowercase else word for word in words]
        found.append([number_word(word, known, mask, most) for word in words])
    return found


def number_word(word, known, mask, most):
    if word not in known and len(known) < most:
        known[word] = len(known)
    hashed = abs(murmurhash3_32(word.encode())) & mask if mask >= 0 else 0
    return known.get(word, -1 - hashed)
