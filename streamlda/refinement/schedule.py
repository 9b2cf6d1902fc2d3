"""Steps of stepwise EM: in passes over a corpus, over a stream, locally on a cluster."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self

from streamlda.documents import DocumentBatch
from streamlda.kernels.refinement import MAX_TOPICS
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.settings import StepwiseEMSettings
from streamlda.spectral.joint_power import MANY_COMPONENTS

#: Fewest and most documents of a step, wherever: of fewer, the statistic is mostly noise.
FEWEST_DOCUMENTS, MOST_DOCUMENTS = 30, 1000


def step_documents(n_documents: int) -> int:
    """Return the documents of a step of which there should be `n_documents`, within the limits."""
    return min(max(n_documents, FEWEST_DOCUMENTS), MOST_DOCUMENTS)


def annealed(settings: StepwiseEMSettings, model: TopicModel) -> StepwiseEMSettings:
    """Return settings with the seeds of these topics that anneal them no further than they return.

    The flat state is a fixed point of EM: deviations from it grow the less, the more topics a
    document mixes. Proportions have 1 / (1 + alpha_0) of the variance that those of one topic a
    document have, and this is the share of the background at first.
    """
    flat = 1 / (1 + model.alpha_0)
    return replace(settings, start_flatness=flat, annealing=flat, seeds=model.seeds)


# --- passes over a corpus --------------------------------------------------------------------

#: Steps of a pass, and of all passes, about; a small corpus has fewer in a pass, a large one more.
STEPS_PER_PASS, STEPS = 100, 400

#: Most passes.
MOST_PASSES = 20

#: A fit has these in place of a number of passes where time matters more, and where it matters
#: less: no sweeps; or longer rounds of them, and twice as many passes.
THOROUGH: Literal["thorough"] = "thorough"
QUICK: Literal["quick"] = "quick"
THOROUGH_TIMES = 2
Passes = int | Literal["quick", "thorough"] | None

#: Inner iterations of an E-step, which is cut short: responsibilities that are not yet sharp make
#: topics more coherent, at the cost of a percent of perplexity.
ITERATIONS = 3

#: The share of the background falls to 0 over half of the steps, as many at most.
MOST_ANNEALING_STEPS = 200


#: One of `MANY_COMPONENTS` topics has few tokens of a step: its sums are of more steps, by weights
#: that fall faster, and half as many steps do. Exponents are for one pass and for several.
MANY_OFFSET, MANY_EXPONENTS = 10.0, (0.9, 0.8)


def passes_for(n_documents: int, n_topics: int = 1, thorough: bool = False) -> int:
    """Return how many passes over N documents make `STEPS`, or `THOROUGH_TIMES` as many."""
    size = step_documents(n_documents // STEPS_PER_PASS)
    steps = STEPS // 2 if n_topics >= MANY_COMPONENTS else STEPS
    passes = min(max(round(steps * size / max(n_documents, 1)), 1), MOST_PASSES)
    return THOROUGH_TIMES * passes if thorough else passes


#: Tokens that passes add to each word of each topic, and the most of them as a share of the mean.
#: The least share is that of a stream, which does not know its tokens.
SMOOTHING_TOKENS, MOST_SMOOTHING = 0.1, 0.1


def smoothing_for(documents: DocumentBatch, n_topics: int) -> float:
    """Return the smoothing of passes over these documents, as a share of the mean."""
    tokens = float(documents.lengths.sum())
    wanted = SMOOTHING_TOKENS * documents.n_features * n_topics / max(tokens, 1.0)
    return min(max(wanted, StepwiseEMSettings().smoothing), MOST_SMOOTHING)


def pass_settings(n_documents: int, passes: int, n_topics: int = 1) -> StepwiseEMSettings:
    """Return the settings of these passes over N documents; step t weighs t^-0.7 for few topics."""
    size = step_documents(n_documents // STEPS_PER_PASS)
    steps = -(-passes * n_documents // size)
    many = n_topics >= MANY_COMPONENTS
    return StepwiseEMSettings(
        batch_documents=size,
        inner_iterations=ITERATIONS,
        step_offset=MANY_OFFSET if many else 0.0,
        step_exponent=MANY_EXPONENTS[passes > 1] if many else StepwiseEMSettings().step_exponent,
        annealing_steps=min(MOST_ANNEALING_STEPS, steps // 2),
    )


# --- sweeps after the passes ------------------------------------------------------------------


class Rounds(NamedTuple):
    """Rounds of `sweeps`, the last of which are averaged.

    Another round follows, up to the `most`, if held-out documents are predicted better by `gain`
    nats a token.
    """

    sweeps: int
    averaged: int
    most: int
    gain: float


#: Rounds after the passes, and after thorough ones (`streamlda.refinement.sweeping`).
USUAL_ROUNDS, THOROUGH_ROUNDS = Rounds(10, 5, 10, 0.01), Rounds(35, 15, 2, 0.001)

#: Tokens of an entry, on average, from which on there are no sweeps: these take time and memory by
#: tokens, and passes by entries. Of text it is 1.1 to 1.5.
MOST_ENTRY_TOKENS = 8


def rounds_for(documents: DocumentBatch, n_topics: int, thorough: bool = False) -> Rounds | None:
    """Return the rounds of sweeps over these documents after their passes; None for none.

    A sampler needs whole counts. Of `MANY_COMPONENTS` it would take longer than all the rest.
    """
    tokens = float(documents.lengths.sum())
    short = tokens <= MOST_ENTRY_TOKENS * documents.n_entries
    few = n_topics <= MAX_TOPICS if thorough else n_topics < MANY_COMPONENTS
    if not (documents.whole and short and few):
        return None
    return THOROUGH_ROUNDS if thorough else USUAL_ROUNDS


# --- a stream --------------------------------------------------------------------------------

#: Steps of a stream that one warm-up makes.
STEPS_PER_WARMUP = 20


def stream_settings(warmup_documents: int) -> StepwiseEMSettings:
    """Return the settings of a stream with this warm-up; step t weighs t^-0.7."""
    size = step_documents(warmup_documents // STEPS_PER_WARMUP)
    return StepwiseEMSettings(
        batch_documents=size,
        inner_iterations=ITERATIONS,
        step_offset=0.0,
        start_flatness=0.0,
        annealing=0.0,
        annealing_steps=0,
    )


# --- local steps on a cluster -----------------------------------------------------------------

#: Documents of a part in all passes, and most parts: as many workers can be busy.
PART_DOCUMENTS, MOST_PARTS = 50_000, 256

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
    def of(cls, documents: int, passes: int, parts: int | None = None) -> Self:
        """Return the schedule for N documents, in parts as many as suit them, or given."""
        # A power of two, for workers come in twos.
        wanted = 2 ** round(math.log2(max(1, passes * documents / PART_DOCUMENTS)))
        wanted = min(max(2, wanted), MOST_PARTS)
        parts = parts or max(1, min(wanted, documents // FEWEST_DOCUMENTS))
        own = max(1, documents // parts)
        size = step_documents(passes * own // LOCAL_STEPS)
        rounds = max(PASS_ROUNDS, -(-ROUNDS // max(1, passes)))
        rounds = max(1, min(rounds, own // size))
        steps = math.ceil(own / (rounds * size))
        most = StepwiseEMSettings().annealing_steps
        annealing = min(most, passes * rounds * steps // 2)
        settings = StepwiseEMSettings(batch_documents=size, annealing_steps=annealing)
        return cls(passes, parts, rounds, steps, settings)
