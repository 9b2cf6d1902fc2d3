"""Steps of stepwise EM: in passes over a corpus, over a stream, locally on a cluster."""

import math
from dataclasses import dataclass, replace
from typing import Literal, Self

from streamlda.documents import DocumentBatch
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.settings import StepwiseEMSettings

#: Fewest and most documents of a step, wherever: of fewer, the statistic is mostly noise.
FEWEST_DOCUMENTS, MOST_DOCUMENTS = 30, 1000


def step_documents(n_documents: int) -> int:
    """Return the documents of a step of which there should be `n_documents`, within the limits."""
    return min(max(n_documents, FEWEST_DOCUMENTS), MOST_DOCUMENTS)


def limit_annealing(settings: StepwiseEMSettings, model: TopicModel) -> StepwiseEMSettings:
    """Return settings with the seeds of these topics that anneal them no further than they return.

    The flat state is a fixed point of EM: deviations from it grow the less, the more topics a
    document mixes. Proportions have 1 / (1 + alpha_0) of the variance that those of one topic a
    document have, and this is the share of the background at first.
    """
    flat = 1 / (1 + model.alpha_0)
    return replace(settings, annealing=flat, seeds=model.seeds)


# --- passes over a corpus, and sweeps after them -----------------------------------------------

#: Steps of all passes, about, half of them in one: a small corpus has fewer, a large one more.
STEPS = 200

#: Sweeps after the passes (`streamlda.refinement.refine`).
SWEEPS = 8

#: A fit has this in place of a number of passes where time matters less, for so many times as many
#: passes and sweeps.
THOROUGH: Literal["thorough"] = "thorough"
THOROUGH_TIMES = 4
Passes = int | Literal["thorough"] | None


def passes_for(n_documents: int) -> int:
    """Return how many passes over N documents make `STEPS`."""
    return max(1, round(STEPS * step_documents(n_documents // (STEPS // 2)) / n_documents))


def pass_settings(documents: DocumentBatch, passes: int, total: int = 0) -> StepwiseEMSettings:
    """Return the settings of these passes; topics are annealed over half of their steps.

    A step over a part of `total` documents has as many as one over all of them.
    """
    n = documents.n_documents
    size = step_documents((total or n) // (STEPS // 2))
    steps = -(-passes * n // size)
    return StepwiseEMSettings(batch_documents=size, annealing_steps=steps // 2)


# --- a stream --------------------------------------------------------------------------------

#: Steps of a stream that one warm-up makes.
STEPS_PER_WARMUP = 20


def stream_settings(warmup_documents: int) -> StepwiseEMSettings:
    """Return the settings of a stream with this warm-up; step t weighs t^-0.7."""
    return StepwiseEMSettings(batch_documents=step_documents(warmup_documents // STEPS_PER_WARMUP))


# --- local steps on a cluster -----------------------------------------------------------------

#: Documents of a part in all passes, in which it makes `STEPS`, and rounds of a pass.
PART_DOCUMENTS, LOCAL_ROUNDS = 50_000, 4

#: Most parts, for each takes a task and moves the topics in every round.
MOST_PARTS = 1024


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
    def of(cls, documents: int, passes: int, parts: int | None = None) -> Self:
        """Return the schedule for N documents, in parts as many as suit them, or given."""
        # A power of two, for workers come in twos.
        wanted = 2 ** max(1, round(math.log2(max(1, passes * documents / PART_DOCUMENTS))))
        parts = parts or max(1, min(wanted, MOST_PARTS, documents // FEWEST_DOCUMENTS))
        own = max(1, documents // parts)
        size = step_documents(passes * own // STEPS)
        rounds = max(1, min(LOCAL_ROUNDS, own // size))
        steps = math.ceil(own / (rounds * size))
        # A step of a part has few tokens of a topic: the first ones must not outweigh the start.
        settings = StepwiseEMSettings(
            batch_documents=size, step_offset=10.0, annealing_steps=passes * rounds * steps // 2
        )
        return cls(passes, parts, rounds, steps, settings)
