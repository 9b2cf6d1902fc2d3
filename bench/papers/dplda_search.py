"""The grid search of version 2 (section 7, appendix J): parts of a budget, by a noisy likelihood.

For each configuration and each way to divide epsilon between its releases, topics are published,
and with them the sufficient statistics of the documents under these topics, k x d, noisy: S_kv is
the mean over documents of the share of tokens that are word v of topic k. The candidate with the
largest ``sum_kv S_kv log mu_kv`` is kept.

What it costs: the paper counts the topics that are kept. But the choice depends on all, so all
candidates and all statistics are releases of the same documents. `charge="all"`, the default, gives
each so much less that together they cost what is promised; `charge="kept"` is the paper's, and
`Search.epsilon` says what that costs.

Sensitivity of S, replace-one: a document adds numbers from 0 up that sum to 1 (to 0 with fewer than
three tokens), over N: sqrt(2) / N in l2. The paper takes d / N, d / sqrt(2) times as much.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import at_least, between
from streamlda.documents import DocumentBatch
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
from streamlda.privacy import accounting
from streamlda.privacy.events import Composed, GaussianRelease
from streamlda.privacy.noise import Noise, SecureNoise
from streamlda.spectral.moments import document_weights

Array = NDArray[np.float64]

#: Part of epsilon for the statistics; of delta too, the rest being halved between what bounds of
#: Procedure 1 may fail and the noise of candidates.
STATISTICS_PART = 0.2

#: Topics are smoothed with this share of uniform words before logarithms are taken.
UNIFORM = 0.01

#: Of the E-step.
ITERATIONS, TOLERANCE = 20, 1e-3

#: Responsibilities are of single precision: they sum to 1 up to this.
ROUNDED = 1 + 1e-4


@dataclass(frozen=True, slots=True)
class Search:
    """What a grid search published: topics of the best candidate, and what everything cost.

    `settings` are those of all candidates, `log_likelihoods` of a token, by the noisy statistics;
    `promised` is what was asked, and `epsilon` what the event costs at that delta.
    """

    topics: DPLDATopics
    settings: tuple[DPLDASettings, ...]
    log_likelihoods: tuple[float, ...]
    promised: DPLDASettings
    event: Composed
    epsilon: float

    @property
    def private(self) -> bool:
        """Whether all candidates may be called private, at what was promised for everything."""
        proven = all(configuration(one.configuration).proven for one in self.settings)
        return proven and self.topics.secure and self.epsilon <= self.promised.epsilon


def parts_grid(number: str | int, resolution: int) -> list[dict[str, float]]:
    """Return all ways to divide a budget between the releases of a configuration.

    Parts are multiples of 1 / resolution above 0: C(resolution - 1, releases - 1) ways.
    """
    chosen = configuration(number)
    names = (*chosen.bounds, *chosen.edges)
    at_least(len(names), resolution=resolution)
    cuts = itertools.combinations(range(1, resolution), len(names) - 1)
    return [
        {
            name: (end - start) / resolution
            for name, start, end in zip(names, (0, *cut), (*cut, resolution), strict=True)
        }
        for cut in cuts
    ]


def search_parts(
    documents: DocumentBatch,
    settings: DPLDASettings,
    *,
    steps: SpectralSteps | None = None,
    configurations: tuple[str, ...] = ("1",),
    resolution: int = 6,
    charge: str = "all",
    noise: Noise | None = None,
) -> Search:
    """Publish the topics of the configuration and parts whose noisy likelihood is largest.

    epsilon and delta of the settings are those of everything, with Gaussian noise and exact
    accounting. `charge`: whether everything is paid for ("all") or, as in the paper, what is kept.
    """
    between(1e-3, 1e2, epsilon=settings.epsilon)
    steps = steps_of(documents, settings) if steps is None else steps
    drawn = SecureNoise() if noise is None else noise
    tried = [
        replace(settings, configuration=number, parts=parts)
        for number in configurations
        for parts in parts_grid(number, resolution)
    ]
    m, epsilon, delta = len(tried), settings.epsilon, settings.delta
    of_statistics = (STATISTICS_PART * epsilon, STATISTICS_PART * delta)
    shared = m if charge == "all" else 1
    z = accounting.noise_multiplier(*of_statistics, shared)
    statistics = [GaussianRelease(z)] * m
    # What may fail of a plan, and the distance of its samplers, is part of its delta.
    each = (1 - STATISTICS_PART) * delta / 2 / shared
    left = delta - each * shared

    def paid(share: float) -> tuple[list[DPLDASettings], Composed]:
        candidates = [replace(one, epsilon=share * epsilon, delta=each) for one in tried]
        events = [plan_of(steps, one).event for one in candidates]
        return candidates, Composed([*events, *statistics])

    low, high = (1 - STATISTICS_PART) / m, 1 - STATISTICS_PART
    if charge == "kept":
        low = high
    while high - low > 0.01 * high:
        middle = (low + high) / 2
        if accounting.epsilon_spent(paid(middle)[1], left) <= epsilon:
            low = middle
        else:
            high = middle
    candidates, event = paid(low)
    found = [release(steps, one, drawn) for one in candidates]
    plan = Plan({"statistics": z}, {}, 0.0, 0.0, Composed(statistics), False)
    moved = math.sqrt(2) * ROUNDED / len(documents)
    edges = Edges(plan, {"statistics": moved}, len(documents), drawn)
    scores = [_log_likelihood(documents, topics, edges) for topics in found]
    best = found[int(np.argmax(scores))]
    spent = accounting.epsilon_spent(event, left)
    return Search(best, tuple(candidates), tuple(scores), settings, event, spent)


def _log_likelihood(documents: DocumentBatch, topics: DPLDATopics, edges: Edges) -> float:
    """Release the statistics under these topics; return the log-likelihood of a token by them."""
    d = documents.n_features
    if not len(topics.components):
        return -math.log(d)
    smoothed = (1 - UNIFORM) * topics.components + UNIFORM / d
    noisy = edges.vector(
        "statistics", sufficient_statistics(documents, smoothed, topics.alpha), 1.0
    )
    return float((noisy * np.log(smoothed)).sum())


def sufficient_statistics(documents: DocumentBatch, topics: Array, alpha: Array) -> Array:
    """Return S, shape (k, d): the mean over documents of shares of tokens by topic and word."""
    pointers, counts = documents.row_pointers, documents.counts
    shares = np.empty((len(counts), len(topics)), dtype=np.float32)
    layout = (counts, documents.word_ids, pointers)
    words, norms = np.ascontiguousarray(topics.T), np.empty(len(documents))
    variational_responsibilities(*layout, words, alpha, ITERATIONS, TOLERANCE, shares, norms)
    weights = np.repeat(document_weights(documents)[:, 0], np.diff(pointers)) * counts
    by_topic = [
        np.bincount(documents.word_ids, weights * shares[:, k], documents.n_features)
        for k in range(len(topics))
    ]
    return np.stack(by_topic) / len(documents)
