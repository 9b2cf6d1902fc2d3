"""A topic model refined over documents that are at hand: passes of steps, then sweeps.

`passes_for` says how many passes suit so many documents; sweeps are made only where they are asked
for. Medians of five seeds, V = 8000 (kos 6874), against 200 sweeps of tomotopy, which starts at
random; times are in bench/README.md (``python -m bench compare``):

============= ========= == =================== ========== ===== =========
corpus        documents K  topics              perplexity NPMI  diversity
============= ========= == =================== ========== ===== =========
kos           3087      20 spectral            1860       0.184 0.61
..                         4 passes            1664       0.209 0.70
..                         tomotopy            1717       0.201 0.68
20 newsgroups 16,962    20 spectral            1379       0.207 0.70
..                         8 passes            1012       0.298 0.81
..                         tomotopy            1013       0.288 0.86
abstracts     195,000   50 spectral            1624       0.164 0.45
..                         1 pass              1379       0.183 0.81
..                         2 passes, 10 sweeps 1311       0.180 0.76
..                         tomotopy            1284       0.178 0.64
============= ========= == =================== ========== ===== =========

Coherence differs by 0.005 (abstracts) to 0.015 (20 newsgroups) between seeds, more than most
settings change it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.gibbs import GibbsSampler
from streamlda.refinement.settings import GibbsSettings, StepwiseEMSettings, at_least
from streamlda.refinement.stepwise_em import StepwiseEM

#: Topics are the mean of so many last sweeps, or of the last third if these are more; the sweeps
#: before only bring the sampler there.
AVERAGED_SWEEPS = 3

#: Steps of a pass, and the fewest and most documents of one: a small corpus has fewer steps a pass
#: and a large one more.
STEPS_PER_PASS = 100
FEWEST_DOCUMENTS, MOST_DOCUMENTS = 30, 1000

#: Most steps until the annealing ends, most passes, and the share of the background in the topics
#: that all begin from.
ANNEALING_STEPS, MOST_PASSES, START_FLATNESS = 200, 20, 0.5


class Schedule(NamedTuple):
    """How a corpus is refined that has so many documents or more.

    Parameters
    ----------
    documents : int
    steps : int or None
        That all passes make up, about; None for one pass.
    annealing : float
        Share of the background in the topics of the first step.
    annealed : float
        Share of the steps until it is 0, at most `ANNEALING_STEPS`: topics that are still held near
        the background at the end were never sharp.
    sweeps : int
        Of an E-step, which is cut short: shares that are not yet sharp make topics more coherent,
        at the cost of a percent of perplexity.
    step_offset, step_exponent : float
    """

    documents: int
    steps: int | None
    annealing: float
    annealed: float
    sweeps: int
    step_offset: float = 10.0
    step_exponent: float = 0.7


#: The statistic of few documents is noisy, which anneals by itself. Long first steps suit one pass
#: over many documents; of fewer, they suited 20 newsgroups (perplexity 1012 in place of 1019, NPMI
#: 0.298 in place of 0.289), not 30,000 of the abstracts (1626 in place of 1602, 0.163 in place of
#: 0.178; 200 sweeps of tomotopy had 1610 and 0.167).
SCHEDULES = (
    Schedule(0, 400, annealing=0.6, annealed=0.5, sweeps=3),
    Schedule(10_000, 800, 0.85, 0.5, 3, step_offset=1.0, step_exponent=0.65),
    Schedule(50_000, 400, 0.8, 0.5, 3),
    Schedule(150_000, None, 0.85, 0.75, 4, step_offset=1.0, step_exponent=0.65),
)

#: With fewer steps in all, topics may end nearer to the background than they began.
LEAST_STEPS = 100

#: Members of the diagnostics of a spectral fit with a number for each topic.
_BY_TOPIC = ("eigenvalues", "eigenvalue_noise", "topic_supported")


def schedule_for(n_documents: int) -> Schedule:
    """Return the schedule for so many documents."""
    return next(found for found in reversed(SCHEDULES) if n_documents >= found.documents)


def passes_for(n_documents: int) -> int:
    """Return how many passes over so many documents topics need, by `SCHEDULES`.

    Four below 10,000 documents, and below 3000, of which a step takes 30, up to twenty; eight below
    50,000; four beyond, and one from 150,000 on.
    """
    wanted = schedule_for(n_documents).steps
    if wanted is None:
        return 1
    passes = round(wanted * _step_documents(n_documents) / max(n_documents, 1))
    return min(max(passes, 1), MOST_PASSES)


def refined(
    model: TopicModel, documents: DocumentBatch, *, passes: int = 0, sweeps: int = 0, seed: int = 0
) -> TopicModel:
    """Return a spectral model with topics of higher likelihood; the model given stays as it is.

    First `StepwiseEM` goes over the documents `passes` times, in steps of a hundredth of them
    (30 at least, 1000 at most), as `SCHEDULES` says. Then `GibbsSampler` draws topics of all
    tokens `sweeps` times, and makes the topics of the mean of the last three sweeps, or the last
    third; alpha follows them. Documents of fewer than 3 tokens are passed over, as the engine does.
    Equal arguments give equal results for any number of threads.

    Parameters
    ----------
    model : TopicModel
        Of K topics over V words.
    documents : DocumentBatch
        Documents that the model was learned from, or others like them; whole counts for sweeps.
    passes, sweeps : int, default 0
        At least 0 each.
    seed : int, default 0
        Of the sweeps: 0 <= seed < 2^63.

    Returns
    -------
    TopicModel
        Most prevalent topic first. Settings say ``refinement_passes`` and ``refinement_sweeps``;
        the diagnostic ``refinement`` says what was done, and which topic of the spectral model each
        one began as (``start_topics``). Numbers of the spectral fit for each topic follow their
        topics, and its warnings are marked as such: they number topics as they were.

    Raises
    ------
    InvalidSettingError
        If a number is out of range.
    InvalidDocumentsError
        If the vocabulary has another size, or sweeps are asked for and counts are not whole.
    InsufficientDataError
        If no document has 3 tokens.

    Notes
    -----
    Time O(nnz K) a pass, O(tokens (topics of a document + log K) + 50 V K) a sweep. Memory 24 V K
    and 32 MiB for passes; for sweeps 32 V K, 2 bytes a token and 8 an entry of the documents, 24 K
    a token of the longest document, and a copy of the documents if some are too short.
    """
    at_least("passes", passes, 0)
    at_least("sweeps", sweeps, 0)
    if not passes and not sweeps:
        return model
    documents = documents.where(documents.usable)
    if not documents.n_documents:
        raise InsufficientDataError(
            "a refinement must have a document of at least 3 tokens, got documents=0; "
            "pass longer documents, or leave the refinement out"
        )
    done: dict[str, Any] = {"documents": documents.n_documents, "passes": passes, "sweeps": sweeps}
    components, alpha = model.components, model.alpha
    warnings: list[str] = []
    if passes:
        settings = _steps_of(documents.n_documents, passes)
        stepwise = StepwiseEM(components, alpha, model.background, settings)
        for _ in range(passes):
            stepwise.add(documents)
        stepwise.flush()
        components = stepwise.components
        done |= {"steps": stepwise.steps, "batch_documents": settings.batch_documents}
        if stepwise.steps < LEAST_STEPS:
            warnings.append(
                f"a refinement must take about 200 steps for topics to settle, got "
                f"steps={stepwise.steps} refinement_passes={passes}; make more passes, or none"
            )
    if sweeps:
        sampler = GibbsSampler(documents, components, alpha, GibbsSettings(seed=seed))
        averaged = min(max(AVERAGED_SWEEPS, sweeps // 3), sweeps)
        sampler.sweep(sweeps - averaged)
        sampler.sweep(averaged, average=True)
        components, alpha = sampler.components, sampler.alpha
        done["averaged_sweeps"] = averaged
    order = np.argsort(-alpha, kind="stable")
    done["start_topics"] = order.tolist()
    return replace(
        model,
        components=components[order],
        alpha=alpha[order],
        settings={**model.settings, "refinement_passes": passes, "refinement_sweeps": sweeps},
        diagnostics={
            **_follow(model.diagnostics, done["start_topics"], warnings),
            "refinement": done,
        },
    )


def _step_documents(n_documents: int) -> int:
    return min(max(n_documents // STEPS_PER_PASS, FEWEST_DOCUMENTS), MOST_DOCUMENTS)


def _steps_of(n_documents: int, passes: int) -> StepwiseEMSettings:
    size, found = _step_documents(n_documents), schedule_for(n_documents)
    steps = -(-passes * n_documents // size)
    return StepwiseEMSettings(
        batch_documents=size,
        sweeps=found.sweeps,
        step_offset=found.step_offset,
        step_exponent=found.step_exponent,
        start_flatness=START_FLATNESS,
        annealing=found.annealing,
        annealing_steps=min(ANNEALING_STEPS, int(found.annealed * steps)),
    )


def _follow(found: Mapping[str, Any], order: list[int], warnings: list[str]) -> dict[str, Any]:
    """Return the diagnostics of the spectral fit for topics in a new order."""
    moved = {name: [found[name][i] for i in order] for name in _BY_TOPIC if name in found}
    earlier = [f"before refinement: {text}" for text in found.get("warnings", [])]
    return {**found, **moved, "warnings": [*earlier, *warnings]}
