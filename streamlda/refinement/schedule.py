"""Which steps stepwise EM takes: in passes over a corpus, over a stream, locally on a cluster."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.settings import StepwiseEMSettings
from streamlda.refinement.stepwise_em import StepwiseEM

#: Fewest and most documents of a step, wherever: of fewer, the statistic is mostly noise.
FEWEST_DOCUMENTS, MOST_DOCUMENTS = 30, 1000


def step_documents(n_documents: int) -> int:
    """Return the documents of a step of which there should be `n_documents`, within the limits."""
    return min(max(n_documents, FEWEST_DOCUMENTS), MOST_DOCUMENTS)


# --- how flat topics may become ---------------------------------------------------------------

#: Documents that the growth of topics is measured on, and the part of the topics beside the
#: background.
GROWTH_DOCUMENTS, GROWTH_SHARE = 1000, 1 / 16

#: Growths below which topics are not flattened at all, and from which on as a schedule says.
#: Between them the flatness rises in proportion.
NO_ANNEALING, FULL_ANNEALING = 2.0, 4.0


def growth(model: TopicModel, documents: DocumentBatch, inner_iterations: int) -> float:
    """Return how many times further from the background one E-step makes nearly flat topics.

    The flat state is a fixed point of EM. Where a deviation grows g times a step, topics mixed with
    the background by f come back if ``g (1 - f) > 1``, and those that are nearly flat grow by
    ``exp((g - 1) sum rho_t)`` at most until the steps end, with a sum of 10 for 200 steps. It was
    3.6 to 4.8 for three corpora of text with alpha_0 = 1, and 4 to 9 for planted documents with
    alpha_0 = 1 or less; planted ones with alpha_0 = 5, 10 and 20 had 1.9, 1.35 and 1.15, whatever
    alpha_0 they were fitted with. Annealed, the last three ended as K copies of the background.
    """
    background = model.background
    inverse = np.divide(1.0, background, out=np.zeros_like(background), where=background > 0)
    settings = StepwiseEMSettings(
        inner_iterations=inner_iterations, start_flatness=1 - GROWTH_SHARE, annealing=0.0
    )
    stepwise = StepwiseEM(model.components, model.alpha, background, settings)
    found = stepwise.statistic(documents.rows(0, GROWTH_DOCUMENTS)).T
    mass = found.sum(axis=1, keepdims=True)
    moved = np.divide(found, mass, out=np.zeros_like(found), where=mass > 0)
    away = model.components - background
    weighted = (model.alpha / model.alpha.sum())[:, None] * away * inverse
    before = float((weighted * away).sum())
    after = float((weighted * (moved - found.sum(axis=0) / max(found.sum(), 1e-300))).sum())
    return after / (GROWTH_SHARE * before) if before > 0 else 0.0


def unflattened(
    settings: StepwiseEMSettings, model: TopicModel, documents: DocumentBatch
) -> StepwiseEMSettings:
    """Return settings with the seeds of these topics that anneal them no further than they return.

    Time O(nnz K) of `GROWTH_DOCUMENTS`.
    """
    found = growth(model, documents, settings.inner_iterations)
    part = min(max((found - NO_ANNEALING) / (FULL_ANNEALING - NO_ANNEALING), 0.0), 1.0)
    return replace(
        settings,
        start_flatness=part * settings.start_flatness,
        annealing=part * settings.annealing,
        seeds=model.seeds,
    )


# --- passes over a corpus --------------------------------------------------------------------

#: Steps of a pass: a small corpus has fewer and a large one more.
STEPS_PER_PASS = 100

#: Most steps until the annealing ends, most passes, and the share of the background in the topics
#: that all begin from.
ANNEALING_STEPS, MOST_PASSES, START_FLATNESS = 200, 20, 0.5


class CorpusSchedule(NamedTuple):
    """How a corpus of `documents` or more is refined.

    `steps` is what all passes make up, about; None for one pass. `annealing` is the share of the
    background in the topics of the first step; it falls to 0 over the part `annealed` of the steps
    (at most `ANNEALING_STEPS`): topics that are still held near the background at the end were
    never sharp. The E-step is cut short after `inner_iterations`: responsibilities that are not yet
    sharp make topics more coherent, at the cost of a percent of perplexity.
    """

    documents: int
    steps: int | None
    annealing: float
    annealed: float
    inner_iterations: int
    step_offset: float = 10.0
    step_exponent: float = 0.7


#: The statistic of few documents is noisy, which anneals by itself. Long first steps suit one pass
#: over many documents; of fewer, they suited 20 newsgroups (perplexity 1012 in place of 1019, NPMI
#: 0.298 in place of 0.289), not 30,000 of the abstracts (1626 in place of 1602, 0.163 in place of
#: 0.178; 200 sweeps of tomotopy had 1610 and 0.167).
SCHEDULES = (
    CorpusSchedule(0, 400, annealing=0.6, annealed=0.5, inner_iterations=3),
    CorpusSchedule(10_000, 800, 0.85, 0.5, 3, step_offset=1.0, step_exponent=0.65),
    CorpusSchedule(50_000, 400, 0.8, 0.5, 3),
    CorpusSchedule(150_000, None, 0.85, 0.75, 4, step_offset=1.0, step_exponent=0.65),
)


def schedule_for(n_documents: int) -> CorpusSchedule:
    """Return the schedule of a corpus of N documents."""
    return next(found for found in reversed(SCHEDULES) if n_documents >= found.documents)


def passes_for(n_documents: int) -> int:
    """Return how many passes over N documents topics need, by `SCHEDULES`.

    Four below 10,000 documents, and below 3000, of which a step takes 30, up to twenty; eight below
    50,000; four beyond, and one from 150,000 on.
    """
    wanted = schedule_for(n_documents).steps
    if wanted is None:
        return 1
    size = step_documents(n_documents // STEPS_PER_PASS)
    return min(max(round(wanted * size / max(n_documents, 1)), 1), MOST_PASSES)


def pass_settings(n_documents: int, passes: int) -> StepwiseEMSettings:
    """Return the settings of these passes over N documents."""
    size, found = step_documents(n_documents // STEPS_PER_PASS), schedule_for(n_documents)
    steps = -(-passes * n_documents // size)
    return StepwiseEMSettings(
        batch_documents=size,
        inner_iterations=found.inner_iterations,
        step_offset=found.step_offset,
        step_exponent=found.step_exponent,
        start_flatness=START_FLATNESS,
        annealing=found.annealing,
        annealing_steps=min(ANNEALING_STEPS, int(found.annealed * steps)),
    )


# --- a stream --------------------------------------------------------------------------------

#: Steps of a stream that one warm-up makes.
STEPS_PER_WARMUP = 20

#: Topics of a stream; it is annealed over 100 steps. Three inner iterations in place of five, and a
#: start that is half as flat, made topics more coherent (NPMI 0.178 in place of 0.172 at the end of
#: the table in `streamlda.engine.refining`) in four fifths of the time, for 0.8 % of perplexity.
STREAM = StepwiseEMSettings(
    inner_iterations=3, start_flatness=0.5, annealing=0.8, annealing_steps=100
)

#: Steps that end the annealing in a copy, half of them annealed.
ENDING_STEPS = 80


def stream_settings(warmup_documents: int) -> StepwiseEMSettings:
    """Return the settings of a stream with this warm-up."""
    return replace(STREAM, batch_documents=step_documents(warmup_documents // STEPS_PER_WARMUP))


def ending_settings(stepwise: StepwiseEM, n_documents: int) -> tuple[StepwiseEMSettings, int]:
    """Return the settings and passes that end an annealing over N documents."""
    most = stepwise.settings.batch_documents
    size = min(max(n_documents // ENDING_STEPS, min(FEWEST_DOCUMENTS, most)), most)
    # The line that falls from the flatness of now to 0 in half of the steps.
    half = ENDING_STEPS // 2
    settings = replace(
        stepwise.settings,
        batch_documents=size,
        annealing=min(1.0, stepwise.flatness * (stepwise.steps + half) / half),
        annealing_steps=stepwise.steps + half,
    )
    return settings, -(-ENDING_STEPS * size // n_documents)


# --- local steps on a cluster -----------------------------------------------------------------

#: Documents of a part in all passes, and most parts.
PART_DOCUMENTS, MOST_PARTS = 50_000, 64

#: Steps of a part in all passes.
LOCAL_STEPS = 200

#: Fewest rounds of a pass, and of all passes, if there are documents for as many.
PASS_ROUNDS, ROUNDS = 2, 4


@dataclass(frozen=True, slots=True)
class LocalSchedule:
    """Local steps on equal parts of the documents: by their number alone, so whatever the cluster.

    `rounds` are those of a pass, `steps` those of a part in a round.
    """

    passes: int
    parts: int
    rounds: int
    steps: int
    settings: StepwiseEMSettings

    @classmethod
    def of(cls, documents: int, passes: int) -> Self:
        """Return the schedule for N documents."""
        # A power of two, for workers come in twos.
        wanted = 2 ** round(math.log2(max(1, passes * documents / PART_DOCUMENTS)))
        wanted = min(max(2, wanted), MOST_PARTS)
        parts = max(1, min(wanted, documents // FEWEST_DOCUMENTS))
        own = max(1, documents // parts)
        size = step_documents(passes * own // LOCAL_STEPS)
        rounds = max(PASS_ROUNDS, -(-ROUNDS // max(1, passes)))
        rounds = max(1, min(rounds, own // size))
        steps = math.ceil(own / (rounds * size))
        most = StepwiseEMSettings().annealing_steps
        annealing = min(most, passes * rounds * steps // 2)
        settings = StepwiseEMSettings(batch_documents=size, annealing_steps=annealing)
        return cls(passes, parts, rounds, steps, settings)
