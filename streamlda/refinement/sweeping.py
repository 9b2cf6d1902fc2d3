"""Gibbs sweeps after passes: repeated while held-out likelihood improves.

A round of sweeps is kept if its topics predict the held-out documents better than those before,
with one prior for both. The topics kept learn these documents at last. The sum of alpha stays:
fitted to the tokens drawn it made held-out likelihood lower.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.choice import gain_of
from streamlda.refinement.gibbs import GibbsSampler, topics_of
from streamlda.refinement.schedule import Rounds
from streamlda.refinement.settings import GibbsSettings, StepwiseEMSettings
from streamlda.refinement.stepwise_em import StepwiseEM

Array = NDArray[np.float64]


class SweepResult(NamedTuple):
    """Topics and alpha after sweeps, how many there were, and of how many topics are the mean.

    `unaware` are the topics without the held-out documents, which `components` have learned.
    """

    unaware: Array
    components: Array
    alpha: Array
    sweeps: int
    averaged: int


def sweep_topics(
    model: TopicModel, documents: DocumentBatch, held_out: DocumentBatch, rounds: Rounds, seed: int
) -> SweepResult | None:
    """Return what rounds of sweeps make of a model of these documents, None without a gain.

    Only an alpha_0 that is to be estimated is fitted. Time and memory of `GibbsSampler`, 16 V K
    more, and for each round that of scoring the held-out documents twice.
    """
    free = model.settings.get("alpha_0", 1.0) is None
    settings = GibbsSettings(seed=seed, fits_alpha_0=free, seeds=model.seeds)
    sampler = GibbsSampler(documents, model.components, model.alpha, settings)
    kept, totals, sweeps = model, None, 0
    for _ in range(rounds.most):
        sampler.sweep(rounds.sweeps, averaged=rounds.averaged)
        found = replace(model, components=sampler.components, alpha=sampler.alpha)
        gain = gain_of(replace(kept, alpha=found.alpha), found, held_out)
        if gain > 0:
            kept, totals, sweeps = found, sampler.totals, sampler.sweeps
        if gain < rounds.gain:
            break
    prior = sampler.prior
    # The topics of all tokens are as large as all the rest.
    del sampler
    if totals is None:
        return None
    fixed = StepwiseEM.of_totals(
        totals,
        *(kept.alpha, kept.background, StepwiseEMSettings(annealing=0.0, seeds=model.seeds)),
        steps=1,
        documents=documents.n_documents,
    )
    learned = prior.on(totals + fixed.statistic(held_out))
    components = topics_of(learned, settings.smoothing)
    return SweepResult(kept.components, components, kept.alpha, sweeps, rounds.averaged)
