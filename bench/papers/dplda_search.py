"""The grid search of version 2 (section 7, appendix J): parts of a budget, by a noisy likelihood.

For each way to divide epsilon between the releases of a configuration, topics are published, and
with them the sufficient statistics of the documents under these topics, noisy: S_kv is the mean
over documents of the share of tokens that are word v of topic k. The candidate with the largest
``sum_kv S_kv log mu_kv`` is kept.

The paper counts the topics that are kept (`charge="kept"`). But the choice depends on all, so all
candidates and all statistics are releases of the same documents; with `charge="all"` each gets so
much less that together they cost what is promised.

Sensitivity of S, replace-one: a document adds numbers from 0 up that sum to 1 (to 0 with fewer than
three tokens), over N: sqrt(2) / N in l2. The paper takes d / N, d / sqrt(2) times as much.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.guarantee.accounting import noise_multiplier
from streamlda.guarantee.noise import Noise, SecureNoise
from streamlda.papers.dplda.calibration import Plan
from streamlda.papers.dplda.configurations import (
    DPLDASettings,
    DPLDATopics,
    Edges,
    plan_of,
    release,
    steps_of,
)
from streamlda.papers.dplda.flow import configuration
from streamlda.papers.dplda.spectral import SpectralSteps
from streamlda.papers.variational import variational_responsibilities
from streamlda.privacy.costs import epsilon_spent
from streamlda.privacy.events import Composed, GaussianRelease
from streamlda.spectral.moments import document_weights

#: Parts are multiples of one over this.
RESOLUTION = 6

#: Part of epsilon for the statistics; of delta too, the rest being halved between what bounds of
#: Procedure 1 may fail and the noise of candidates.
STATISTICS_PART = 0.2

#: Topics are smoothed with this share of uniform words before logarithms are taken.
UNIFORM = 0.01

#: Responsibilities are of single precision: they sum to 1 up to this.
ROUNDED = 1 + 1e-4


class Search(NamedTuple):
    """Topics of the best candidate, and what all releases cost together."""

    topics: DPLDATopics
    tried: list[DPLDASettings]
    log_likelihoods: list[float]
    event: Composed
    epsilon: float


def parts_grid(number: str, resolution: int = RESOLUTION) -> list[dict[str, float]]:
    """Return all ways to divide a budget between the releases of a configuration."""
    chosen = configuration(number)
    names = (*chosen.bounds, *chosen.edges)
    cuts = itertools.combinations(range(1, resolution), len(names) - 1)
    return [
        dict(zip(names, np.diff([0, *cut, resolution]) / resolution, strict=True)) for cut in cuts
    ]


def search_parts(
    documents: DocumentBatch,
    settings: DPLDASettings,
    *,
    steps: SpectralSteps | None = None,
    charge: str = "all",
    resolution: int = RESOLUTION,
    noise: Noise | None = None,
) -> Search:
    """Publish the topics of the parts whose noisy likelihood is largest.

    epsilon and delta of the settings are those of everything, with Gaussian noise and exact
    accounting, or of what is kept.
    """
    steps = steps_of(documents, settings) if steps is None else steps
    drawn = SecureNoise() if noise is None else noise
    grid = parts_grid(settings.configuration, resolution)
    m, epsilon, delta = len(grid), settings.epsilon, settings.delta
    shared = m if charge == "all" else 1
    z = noise_multiplier(STATISTICS_PART * epsilon, STATISTICS_PART * delta, shared)
    statistics = [GaussianRelease(z)] * m
    # What may fail of a plan, and the distance of its samplers, is part of its delta.
    each = (1 - STATISTICS_PART) * delta / 2 / shared
    left = delta - each * shared

    def paid(share: float) -> tuple[list[DPLDASettings], Composed]:
        tried = [replace(settings, parts=x, epsilon=share * epsilon, delta=each) for x in grid]
        return tried, Composed([*(plan_of(steps, one).event for one in tried), *statistics])

    low, high = (1 - STATISTICS_PART) / shared, 1 - STATISTICS_PART
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        fits = epsilon_spent(paid(middle)[1], left) <= epsilon
        low, high = (middle, high) if fits else (low, middle)
    tried, event = paid(low)
    plan = Plan({"statistics": z}, {}, 0.0, 0.0, Composed(statistics), False)
    moved = {"statistics": math.sqrt(2) * ROUNDED / len(documents)}
    edges = Edges(plan, moved, len(documents), drawn)
    found = [release(steps, one, drawn) for one in tried]
    scores = [log_likelihood(documents, topics, edges) for topics in found]
    best = found[int(np.argmax(scores))]
    return Search(best, tried, scores, event, epsilon_spent(event, left))


def log_likelihood(documents: DocumentBatch, topics: DPLDATopics, edges: Edges) -> float:
    """Release the statistics under these topics; return the log-likelihood of a token by them."""
    d = documents.n_features
    if not len(topics.components):
        return -math.log(d)
    smoothed = (1 - UNIFORM) * topics.components + UNIFORM / d
    exact = sufficient_statistics(documents, smoothed, topics.alpha)
    return float((edges.vector("statistics", exact, 1.0) * np.log(smoothed)).sum())


def sufficient_statistics(documents: DocumentBatch, topics: Any, alpha: Any) -> Any:
    """Return S, shape (k, d): the mean over documents of shares of tokens by topic and word."""
    pointers, counts, ids = documents.row_pointers, documents.counts, documents.word_ids
    shares = np.empty((len(counts), len(topics)), dtype=np.float32)
    words, norms = np.ascontiguousarray(topics.T), np.empty(len(documents))
    variational_responsibilities(counts, ids, pointers, words, alpha, 20, 1e-3, shares, norms)
    weights = np.repeat(document_weights(documents)[:, 0], np.diff(pointers)) * counts
    sums = [np.bincount(ids, weights * share, documents.n_features) for share in shares.T]
    return np.stack(sums) / len(documents)
