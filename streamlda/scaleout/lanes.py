"""Refinement on a cluster: lanes of documents, each with its own steps, brought together in rounds.

Documents are cut into L equal *lanes*. In a round every lane takes the next steps of a `StepwiseEM`
over its own documents, beginning from the topics of all; then the sums S of the lanes are averaged,
and the next round begins from the mean. What a lane adds in a step is additive and bounded, its
weights depend on the number of the step alone, so the mean is S of minibatches L times as large,
but for topics that are some steps old: a round may have many steps, and messages are few.

Held-out perplexity over that of the same passes in one process, from the same start (arXiv
abstracts, K = 50, V = 8000, one start each, which moves it by some 2 %):

=========  ======  =====  ====================  ==============  ==========
documents  passes  lanes  documents of a step   rounds in all   perplexity
=========  ======  =====  ====================  ==============  ==========
20,000          4      2  200                   16              0.988
50,000          2      2  250                   4 / 8           0.981 / 0.980
195,000         1      4  243                   2 / 4           0.967 / 0.962
=========  ======  =====  ====================  ==============  ==========

Plain sums over all workers, one step a round, would need a message for each step: with 50 steps of
2,000 documents in all, 50,000 documents were at 1.016, with 24 steps of 4,000 at 1.06. More and
shorter lanes cost as well: with 8 lanes of 100 steps, 50,000 documents were at 1.01. So a lane has
about 200 steps, there are 2 rounds a pass and 4 in all, and lanes grow in number with the
documents. A round of 12,500 documents and 8,000 words on two workers took 0.35 s of their time for
the steps and 0.1 s for all else; what else there is does not depend on the documents.

Dask's nannies start workers with ``MALLOC_TRIM_THRESHOLD_=65536``, by which every array that is let
go of goes back to the system, and the steps took 1.8 times as long. Where memory allows, set
``distributed.nanny.pre-spawn-environ`` to leave it out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import at_least
from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidDocumentsError
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.schedule import LANE_STEPS, LaneSchedule
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.scaleout.kept import Kept
from streamlda.stream.ingest import Counts
from streamlda.threads import limit_threads, one_blas_thread

State = tuple[Mapping[str, NDArray[Any]], Mapping[str, Any]]


def refined_on(
    kept: Kept,
    model: TopicModel,
    passes: int,
    on_progress: Callable[[str, Counts], None] | None = None,
) -> TopicModel:
    """Return a model with topics of higher likelihood, refined over all documents on the workers.

    Equal documents in equal order give equal topics, to the last bit, on any number of workers,
    whoever is lost and however they were cut. The topics are not those of
    `streamlda.refinement.refine`, which takes other steps, but as good (see the module).

    Time O(nnz K) a document and pass, and 8 V K bytes from and to each lane in each round. Memory
    of a worker 24 V K bytes and 32 MiB beside its documents, here 16 V K.

    Parameters
    ----------
    kept : Kept
        With at least one document. Its lanes take the place of its shards.
    model : TopicModel
        Spectral topics of these documents.
    passes : int
        At least 0; with 0 the model comes back.
    on_progress : callable of (str, Counts), optional
        Called after each round.

    Raises
    ------
    InvalidSettingError
        If `passes` is below 0.
    ClusterError, InvalidDocumentsError, SourceError
        As `streamlda.scaleout.learn`.
    """
    at_least(0, passes=passes)
    if not passes:
        return model
    run, plan = kept.run, LaneSchedule.of(kept.documents, passes)
    refinement = StepwiseEM(model.components, model.alpha, model.background, plan.settings)
    lanes = kept.lanes(plan.lanes) if kept.in_memory else None
    ends = [kept.documents * lane // plan.lanes for lane in range(plan.lanes + 1)]
    total = plan.rounds * passes
    for number in range(total):
        state = run.given(refinement.state())
        leaves = []
        for lane in range(plan.lanes):
            size = ends[lane + 1] - ends[lane]
            at = number % plan.rounds
            first, last = (size * r // plan.rounds for r in (at, at + 1))
            if lanes is None:
                batch = kept.task("rows", ends[lane] + first, ends[lane] + last)
                first, last = 0, last - first
            else:
                batch = lanes[lane]
            leaves.append(run.task("refine", walked, state, batch, first, last, plan.steps))
        found: Walked = run.compute(run.tree("merge", summed, leaves))
        refinement = _mean(refinement, found, plan)
        if on_progress is not None:
            on_progress(f"refinement {number + 1} of {total}", kept.found.counts)
    return _published(model, refinement, plan, kept)


@dataclass(frozen=True, eq=False)
class Walked:
    """Where lanes ended.

    Attributes
    ----------
    totals : ndarray of shape (V, K)
        Sum of their S.
    lanes : int
    documents : int
        That they went over in the round.
    """

    totals: NDArray[np.float64]
    lanes: int
    documents: int


def walked(state: State, batch: DocumentBatch, first: int, last: int, steps: int) -> Walked:
    """Take the steps of one lane over documents `first` to `last` of a batch. A task; pure."""
    with limit_threads(1), one_blas_thread():
        # To make one runs a parallel kernel too.
        refinement = StepwiseEM.from_state(*state)
        before = refinement.steps
        for step in range(steps):
            low, high = (first + (last - first) * s // steps for s in (step, step + 1))
            refinement.learn(batch.rows(low, high))
    if refinement.steps != before + steps:
        raise InvalidDocumentsError(
            "every step of a lane must have a document, got "
            f"steps={refinement.steps - before} expected={steps}; let partitions come out the "
            "same each time they are made"
        )
    arrays, _ = refinement.state()
    return Walked(arrays["totals"], 1, last - first)


def summed(one: Walked, *others: Walked) -> Walked:
    """Return the sum of several lanes; none of them is changed."""
    totals = one.totals.copy()
    for other in others:
        totals += other.totals
    parts = [one, *others]
    return Walked(totals, sum(p.lanes for p in parts), sum(p.documents for p in parts))


def _mean(refinement: StepwiseEM, found: Walked, plan: LaneSchedule) -> StepwiseEM:
    if found.lanes != plan.lanes:
        raise InvalidDocumentsError(
            f"each lane must be counted once, got lanes={found.lanes} expected={plan.lanes}; "
            "let partitions come out the same each time they are made"
        )
    return StepwiseEM.of_totals(
        found.totals / found.lanes,
        *(refinement.alpha, refinement.background, refinement.settings),
        steps=refinement.steps + plan.steps,
        documents=refinement.documents + found.documents,
    )


def _published(
    model: TopicModel, refinement: StepwiseEM, plan: LaneSchedule, kept: Kept
) -> TopicModel:
    done = {
        "documents": kept.documents,
        "passes": plan.passes,
        "sweeps": 0,
        "steps": refinement.steps,
        "batch_documents": plan.settings.batch_documents,
        "lanes": plan.lanes,
        "rounds": plan.rounds * plan.passes,
        # Alpha stays, and so does the order of the topics.
        "start_topics": list(range(model.n_components)),
    }
    warnings = [f"before refinement: {text}" for text in model.diagnostics.get("warnings", [])]
    if refinement.steps < LANE_STEPS // 2:
        warnings.append(
            f"a refinement must take some {LANE_STEPS} steps for topics to settle, got "
            f"steps={refinement.steps} refinement_passes={plan.passes}; make more passes, or none"
        )
    return replace(
        model,
        components=refinement.components,
        settings={**model.settings, "refinement_passes": plan.passes, "refinement_sweeps": 0},
        diagnostics={**model.diagnostics, "warnings": warnings, "refinement": done},
    )
