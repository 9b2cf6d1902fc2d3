"""Noisy tokens by word and topic, shrunk to expectations as far as noise hides them.

Post-processing: nothing here sees a document.
"""

from typing import NamedTuple

import numpy as np

from streamlda.private.stage import DOUBLES
from streamlda.utils.arrays import Array

#: Lifts (tokens over those expected) among which the prior is sought.
LIFTS = np.concatenate([[0.0], np.geomspace(0.01, 300.0, 60)])

#: Entries this many standard deviations above 0 stay as they are: there, `LIFTS` are wider apart
#: than the noise.
CLEAR = float(LIFTS[-2] / (LIFTS[-1] - LIFTS[-2]))

#: Words of like frequency share a prior: number of groups, and steps of the fit.
GROUPS, FIT_STEPS = 8, 30

#: Most entries that one is fitted to.
FITTED = DOUBLES // len(LIFTS)

#: Least expected frequency of a word, over that of the mean word.
LEAST_FREQUENCY = 1e-9


class DenoisedTokens(NamedTuple):
    """Expected tokens by word and topic, and how likely the noisy ones were by their prior."""

    tokens: Array
    log_likelihood: float  # Up to what does not depend on what was expected.
    #: Nats a token by which the tokens are expected to surprise more than the true ones would.
    surprise: float


def denoise(
    sums: Array, stddev: Array, background: Array, means: Array, spread: float = np.inf
) -> DenoisedTokens:
    """Return the expected tokens by word and topic, given them with noise of known size.

    `sums` has shape (d, K), `stddev` (d,) is that of the noise in a row and above 0. A word's
    tokens in a topic are its lift times those `means`, (d, K): what the background would give
    it, or a public topic. Lifts of words of like frequency have one prior, of any form on `LIFTS`,
    whose weights are those of highest likelihood (empirical Bayes, by EM). The steps begin with
    logarithms of lifts of mean distance `spread` from 0, and stay there where noise hides even the
    sums of a group. Time O(d K), memory O(FITTED).
    """
    K = sums.shape[1]
    begun = first_prior(spread)
    found, log_likelihood, surprise = np.empty_like(sums), 0.0, 0.0
    entropies = LIFTS * np.log(np.maximum(LIFTS, LIFTS[1]))
    words = np.argsort(-background, kind="stable")
    for group in np.array_split(words, min(GROUPS, len(words))):
        group_sums = sums[group].ravel()
        scales = means[group].ravel()
        noise = np.repeat(stddev[group], K)
        # Of all topics: words at equal distances.
        fitted = np.arange(0, len(group), -(-len(group_sums) // FITTED))
        some = (fitted[:, None] * K + np.arange(K)).ravel()
        likelihood, _ = _likelihood(group_sums[some], scales[some], noise[some])
        prior = begun.copy()
        for _ in range(FIT_STEPS):
            # Mean of the posteriors; no lift is ruled out.
            prior *= likelihood.T @ (1 / (likelihood @ prior)) / len(likelihood)
            prior += 1e-6
            prior /= prior.sum()
        lifts, said, unsure = (np.empty_like(group_sums) for _ in range(3))
        for start in range(0, len(lifts), FITTED):
            run = slice(start, start + FITTED)
            likelihood, largest = _likelihood(group_sums[run], scales[run], noise[run])
            powers = prior * np.stack([np.ones_like(LIFTS), LIFTS, entropies])
            norm, lifts[run], unsure[run] = (likelihood @ powers.T).T
            lifts[run] /= norm
            logs = np.log(np.maximum(lifts[run], 1e-300))
            unsure[run] = scales[run] * (unsure[run] / norm - lifts[run] * logs)
            said[run] = np.log(norm) + largest
        clear = group_sums > CLEAR * noise
        # `LIFTS` are too far apart for the noise of what is clear: the prior is read between them.
        at = np.log(group_sums[clear] / scales[clear])
        said[clear] = np.interp(at, np.log(LIFTS[1:]), np.log(prior[1:]))
        unsure[clear] = noise[clear] ** 2 / (2 * group_sums[clear])
        log_likelihood += float(said.sum())
        surprise += float(unsure.sum())
        found[group] = np.where(clear, group_sums, lifts * scales).reshape(-1, K)
    return DenoisedTokens(found, log_likelihood, surprise / float(found.sum()))


def first_prior(spread: float) -> Array:
    """Return weights of `LIFTS` whose logarithms are at this mean distance from 0."""
    begun = np.exp(-np.abs(np.log(np.maximum(LIFTS, LIFTS[1]))) / spread)
    weights: Array = begun / begun.sum()
    return weights


def _likelihood(sums: Array, scales: Array, stddev: Array) -> tuple[Array, Array]:
    """Return that of each lift, (entries, lifts), the largest scaled to 1, whose logarithm too."""
    exponents = (sums / stddev)[:, None] - np.multiply.outer(scales / stddev, LIFTS)
    exponents *= exponents
    exponents *= -0.5
    largest = exponents.max(axis=1)
    exponents -= largest[:, None]
    return np.exp(exponents, out=exponents), largest
