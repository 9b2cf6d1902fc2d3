"""Slow twin of the kernel of variational Bayes."""

from itertools import pairwise

import numpy as np
from scipy.special import digamma


def variational_responsibilities(
    counts, word_ids, row_pointers, words, alpha, max_iterations, tolerance
):
    responsibilities, norms = [], []
    for first, last in pairwise(row_pointers):
        ids, c = word_ids[first:last], counts[first:last]
        gamma = alpha + c.sum() / len(alpha)
        for _ in range(max_iterations + 1):
            phi = np.exp(digamma(gamma)) * words[ids]
            phi /= phi.sum(axis=1, keepdims=True)
            before, gamma = gamma, alpha + c @ phi
            if np.mean(abs(gamma - before)) < tolerance:
                break
        responsibilities.append(phi)
        norms.append(np.linalg.norm(c[:, None] * phi))
    return np.concatenate(responsibilities), np.array(norms)
