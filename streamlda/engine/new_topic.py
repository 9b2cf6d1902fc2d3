"""A new topic for the documents that all topics predict worst, in the row of one that goes.

It begins as the word frequencies of these documents. A few steps of EM leave it only what no other
topic explains. Each topic in turn leaves its row to the new one, and either is dropped or merged
with the one most like it; the move that predicts some documents best is kept. The new topic weighs
what it has learned, so that the next documents move it soon. Then all topics learn the documents.
Memoized variational Bayes has moves of this kind [1]_.

References
----------
.. [1] Hughes, Sudderth (2013), "Memoized online variational inference for Dirichlet process
   mixture models", NIPS.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.model.diagnostics import hellinger
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.settings import StepwiseEMSettings
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.utils.arrays import Array

#: One document in `RARE` is predicted worst.
RARE = 100

#: Steps of EM of a proposal.
PROPOSAL_STEPS = 5

#: Documents that are scored to find the topic that is missed least, over all moves.
SCORED = 10_000


def worst_blocks(scores: list[Array], least: int, errors: float) -> int:
    """Return how many of the last blocks have too many badly predicted documents, or 0.

    Badly predicted is a score below that of one in `RARE` documents before them. Too many are more
    than expected, by `errors` standard errors. Tried are `least`, 2 `least`, 4 `least` ... blocks.
    """
    m = least
    while 2 * m <= len(scores):
        before, last = np.concatenate(scores[:-m]), np.concatenate(scores[-m:])
        expected = len(last) / RARE
        error = np.sqrt(expected * (1 + len(last) / len(before)))
        if (last < low_score(before)).sum() - expected > errors * error:
            return m
        m *= 2
    return 0


def low_score(scores: Array) -> float:
    """Return the score below which one in `RARE` documents lies."""
    rank = len(scores) // RARE
    return float(np.partition(scores, rank)[rank])


class Birth(NamedTuple):
    """Topics with a new one, its row, and the tokens that it has learned."""

    model: TopicModel
    row: int
    tokens: float


def make_birth(
    model: TopicModel, worst: DocumentBatch, learned: DocumentBatch, settings: StepwiseEMSettings
) -> Birth:
    """Return a model in which a topic of the worst documents has the row of one that goes."""
    topic, K = _proposal(model, worst, settings), model.n_components
    apart = hellinger(model.components, model.components)
    # Only with itself, where there is no other.
    np.fill_diagonal(apart, 2.0)
    some = learned.rows(0, max(RARE, SCORED // (2 * K)))

    def replace_topic(row: int, near: int) -> TopicModel:
        components, alpha = model.components.copy(), model.alpha.copy()
        if near != row:
            both = alpha[[near, row]]
            components[near] = both @ components[[near, row]] / both.sum()
            alpha[near] = both.sum()
        components[row], alpha[row] = topic, np.median(model.alpha)
        return replace(model, components=components, alpha=alpha)

    def score(move: tuple[int, int]) -> float:
        return float(StepwiseEM.of_model(replace_topic(*move), settings, 1).score(some).mean())

    rows = range(len(model.seeds), K)
    moves = [(row, near) for row in rows for near in (row, int(apart[row].argmin()))]
    row, near = max(moves, key=score)
    best = replace_topic(row, near)
    steps = max(1, model.documents_seen // settings.batch_documents)
    stepwise = StepwiseEM.of_model(best, settings, steps)
    stepwise.weigh(row, stepwise.statistic(worst)[:, row].sum())
    stepwise.add(learned)
    stepwise.flush()
    tokens = float(stepwise.totals[:, row].sum())
    return Birth(replace(best, components=stepwise.components), row, tokens)


def _proposal(model: TopicModel, worst: DocumentBatch, settings: StepwiseEMSettings) -> Array:
    """Return the words of the worst documents that no topic explains."""
    rows = worst.to_csr()
    topic = np.asarray(rows.sum(axis=0)).ravel() / rows.sum()
    alpha = np.append(model.alpha, model.alpha.mean())
    settings = replace(settings, seeds=())
    for _ in range(PROPOSAL_STEPS):
        topics = np.vstack([model.components, topic])
        stepwise = StepwiseEM.of_topics(topics, alpha, model.background, settings)
        found = stepwise.statistic(worst)[:, -1]
        topic = (found + 1e-12) / (found + 1e-12).sum()
    return topic
