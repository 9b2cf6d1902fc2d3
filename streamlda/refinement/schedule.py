"""Steps of stepwise EM: in passes over a corpus, over a stream, locally on a cluster."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.kernels.refinement import MAX_TOPICS
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

#: Most passes, and the share of the background in the topics that all begin from.
MOST_PASSES, START_FLATNESS = 20, 0.5


#: What a fit has in place of a number of passes where time matters more, and where it matters less:
#: no sweeps; or longer rounds of them, longer E-steps, and as many times as many passes below
#: `LARGE` documents, and beyond where sweeps follow. Passes alone took perplexity of kos (K = 20)
#: from 1489 to 1458, of 8100 abstracts by about one percent; of 60,000 (K = 50) eight took it from
#: 1387 to 1396. With sweeps 195,000 (K = 50) had 1287, thorough 1278.
THOROUGH: Literal["thorough"] = "thorough"
QUICK: Literal["quick"] = "quick"
THOROUGH_PASSES, THOROUGH_BEFORE_SWEEPS, THOROUGH_ITERATIONS = 4, 2, 6
LARGE = 50_000
Passes = int | Literal["quick", "thorough"] | None


class CorpusSchedule(NamedTuple):
    """Refinement of a corpus of `documents` or more.

    `steps` is what all passes make up, about; None for one pass. `annealing` is the share of the
    background in the topics of the first step; it falls to 0 over the part `annealed` of the steps
    (at most `annealing_steps`): topics that are still held near the background at the end were
    never sharp. The E-step is cut short after `inner_iterations`: responsibilities that are not yet
    sharp make topics more coherent, at the cost of a percent of perplexity. With an `even` prior
    all topics have the mean of alpha while they are refined; else each has that of its start.
    """

    documents: int
    steps: int | None
    annealing: float
    annealed: float
    inner_iterations: int
    step_offset: float = 10.0
    step_exponent: float = 0.7
    even: bool = True
    annealing_steps: int = 200
    most_passes: int = MOST_PASSES


#: The statistic of few documents is noisy, which anneals by itself. Long first steps suit one pass
#: over many documents; of fewer, they suited 20 newsgroups (perplexity 1012 in place of 1019, NPMI
#: 0.298 in place of 0.289), not 30,000 of the abstracts (1626 in place of 1602, 0.163 in place of
#: 0.178; 200 sweeps of tomotopy had 1610 and 0.167).
SCHEDULES = (
    CorpusSchedule(0, 400, annealing=0.6, annealed=0.5, inner_iterations=4, even=False),
    CorpusSchedule(5_000, 400, 0.6, 0.5, 4),
    CorpusSchedule(10_000, 800, 0.85, 0.5, 3, step_offset=1.0, step_exponent=0.65),
    CorpusSchedule(LARGE, 400, 0.8, 0.5, 4),
    CorpusSchedule(150_000, None, 0.85, 0.75, 4, 1.0, 0.65, even=False),
)


#: From how many topics on the statistic is of more documents, by steps that fall faster; exponents
#: for one pass and for several. On 195,000 abstracts with K = 200, one pass, perplexity was 1237
#: with 0.65 (as for fewer topics), 1195 with 0.8 and 1182 with 0.9, NPMI 0.165, 0.172 and 0.176; on
#: 20 newsgroups with K = 100, eight passes, 1634, 1593 and 1604, 0.246, 0.248 and 0.243. The
#: abstracts with K = 50 had 1383 with 0.65 and 1401 with 0.8.
MANY_TOPICS, MANY_TOPICS_OFFSET, MANY_TOPICS_EXPONENTS = 100, 10.0, (0.9, 0.8)


#: Passes over many documents before Gibbs sweeps. The statistic forgets as fast as it may, and its
#: noise anneals too; sweeps make topics sharp. With 20 of them 195,000 abstracts (K = 50), two
#: orders, had perplexity 1295 and 1304 in place of 1327 and 1328, NPMI 0.168 and 0.169 in place of
#: 0.163 and 0.159; 60,000 (K = 50) 1327 and 1333 in place of 1339 and 1349, 100,000 (K = 20) 1511
#: and 1522 in place of 1525 and 1524.
BEFORE_SWEEPS = CorpusSchedule(
    LARGE,
    *(800, 0.85, 0.5, 4, 1.0, 0.51),
    even=False,
    annealing_steps=800,
    most_passes=4,
)


def schedule_for(n_documents: int, swept: bool = False) -> CorpusSchedule:
    """Return the schedule of a corpus of N documents, and whether Gibbs sweeps follow."""
    if swept and n_documents >= BEFORE_SWEEPS.documents:
        return BEFORE_SWEEPS
    return next(found for found in reversed(SCHEDULES) if n_documents >= found.documents)


def passes_for(n_documents: int, thorough: bool = False, swept: bool = False) -> int:
    """Return how many passes over N documents topics need, by `schedule_for`.

    Four below 10,000 documents, and below 3000, of which a step takes 30, up to twenty; eight below
    50,000; four beyond, and one from 150,000 on, or with sweeps to follow from 530,000 on. Thorough
    are `THOROUGH_PASSES` times as many below `LARGE`, beyond `THOROUGH_BEFORE_SWEEPS` times.
    """
    found = schedule_for(n_documents, swept)
    times = THOROUGH_BEFORE_SWEEPS if thorough and swept else 1
    if thorough and n_documents < LARGE:
        times = THOROUGH_PASSES
    if found.steps is None:
        return times
    size = step_documents(n_documents // STEPS_PER_PASS)
    return times * min(max(round(found.steps * size / max(n_documents, 1)), 1), found.most_passes)


def prior_of(
    alpha: NDArray[np.float64], n_documents: int, thorough: bool = False, swept: bool = False
) -> NDArray[np.float64]:
    """Return the prior of proportions while topics are refined by passes over N documents.

    What was learned of alpha with topics that overlap holds them there. With K = 20, three seeds,
    an even one took perplexity of 60,000 abstracts from 1600 to 1564, of 20 newsgroups from 1981 to
    1933, of 8100 abstracts from 1787 to 1768. Of fewer documents it was no better: kos 1472 in
    place of 1487 with NPMI 0.187 in place of 0.216, 1980 of 20 newsgroups 2416 in place of 2394.
    """
    even = schedule_for(n_documents, swept).even or (thorough and n_documents < LARGE)
    return np.full_like(alpha, alpha.mean()) if even else alpha


#: Tokens that passes add to each word of each topic, and the most of them as a share of the mean.
#: The least share is that of a stream, which does not know its tokens. Of five corpora of text the
#: best was 0.05 to 0.2 tokens: K = 20, 0.1 in place of a hundredth of the mean, 20 newsgroups'
#: first 1980 documents (1.2 tokens a word and topic) had perplexity 2337 in place of 2519, kos
#: (3) 1487 in place of 1494, 8100 abstracts (3) 1800 in place of 1816; where the mean was 10 and
#: 22 tokens nothing changed.
SMOOTHING_TOKENS, MOST_SMOOTHING = 0.1, 0.1


def smoothing_for(documents: DocumentBatch, n_topics: int) -> float:
    """Return the smoothing of passes over these documents, as a share of the mean."""
    tokens = float(documents.lengths.sum())
    wanted = SMOOTHING_TOKENS * documents.n_features * n_topics / max(tokens, 1.0)
    return min(max(wanted, StepwiseEMSettings().smoothing), MOST_SMOOTHING)


def pass_settings(
    n_documents: int,
    passes: int,
    n_topics: int = 1,
    thorough: bool = False,
    swept: bool = False,
) -> StepwiseEMSettings:
    """Return the settings of these passes over N documents, and whether sweeps follow."""
    size, found = step_documents(n_documents // STEPS_PER_PASS), schedule_for(n_documents, swept)
    if n_topics >= MANY_TOPICS:
        exponent = MANY_TOPICS_EXPONENTS[passes > 1]
        found = found._replace(step_offset=MANY_TOPICS_OFFSET, step_exponent=exponent)
    steps = -(-passes * n_documents // size)
    return StepwiseEMSettings(
        batch_documents=size,
        inner_iterations=THOROUGH_ITERATIONS if thorough else found.inner_iterations,
        step_offset=found.step_offset,
        step_exponent=found.step_exponent,
        start_flatness=START_FLATNESS,
        annealing=found.annealing,
        annealing_steps=min(found.annealing_steps, int(found.annealed * steps)),
    )


# --- sweeps after the passes ------------------------------------------------------------------


class Rounds(NamedTuple):
    """Rounds of `sweeps`, the last of which are averaged.

    Another round follows, up to the `most`, if documents set aside are predicted better by `gain`
    nats a token.
    """

    sweeps: int
    averaged: int
    most: int
    gain: float


#: Rounds after the passes, and after thorough ones (`streamlda.refinement.sweeping`). With K = 50
#: on 60,000 abstracts rounds of ten gained 0.030 and 0.007, with K = 20 on 40,000 titles of six
#: words 0.072, 0.011, 0.025 and 0.010: perplexity 1343 in place of 1388, 1758 in place of 1928, in
#: 12 and 2.4 processor seconds. Ten late states of 200 sweeps of tomotopy, eta = 0.1, had 1323 and
#: 1807, in 91 and 14.
USUAL_ROUNDS, THOROUGH_ROUNDS = Rounds(10, 5, 10, 0.01), Rounds(35, 15, 2, 0.001)

#: Tokens of an entry, on average, from which on there are no sweeps: these take time and memory by
#: tokens, and passes by entries. Of text it is 1.1 to 1.5.
MOST_ENTRY_TOKENS = 8


def rounds_for(documents: DocumentBatch, n_topics: int, thorough: bool = False) -> Rounds | None:
    """Return the rounds of sweeps over these documents after their passes; None for none.

    A sampler needs whole counts. Of `MANY_TOPICS` it would take longer than all the rest.
    """
    tokens = float(documents.lengths.sum())
    short = tokens <= MOST_ENTRY_TOKENS * documents.n_entries
    few = n_topics <= MAX_TOPICS if thorough else n_topics < MANY_TOPICS
    if not (documents.whole and short and few):
        return None
    return THOROUGH_ROUNDS if thorough else USUAL_ROUNDS


# --- a stream --------------------------------------------------------------------------------

#: Steps of a stream that one warm-up makes.
STEPS_PER_WARMUP = 20

#: Inner iterations of the E-step: three in place of five made topics more coherent (NPMI 0.178 in
#: place of 0.172 on 195,000 abstracts, K = 50) in four fifths of the time.
STREAM_ITERATIONS = 3


def stream_settings(warmup_documents: int) -> StepwiseEMSettings:
    """Return the settings of a stream with this warm-up; step t weighs t^-0.7."""
    size = step_documents(warmup_documents // STEPS_PER_WARMUP)
    return StepwiseEMSettings(
        batch_documents=size,
        inner_iterations=STREAM_ITERATIONS,
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
