"""Refinement on a cluster: local steps on equal parts of the documents, averaged in rounds.

Documents are cut into L equal parts. In a round every part takes the next steps of a `StepwiseEM`
over its own documents, beginning from the topics of all; then the sums S of the parts are averaged,
and the next round begins from the mean. What a part adds in a step is additive and bounded, its
weights depend on the number of the step alone, so the mean is S of minibatches L times as large,
but for topics that are some steps old: a round may have many steps, and messages are few.

Held-out perplexity over that of the same passes in one process, from the same start (arXiv
abstracts, K = 50, V = 8000, one start each, which moves it by some 2 %):

=========  ======  =====  ====================  ==============  ==========
documents  passes  parts  documents of a step   rounds in all   perplexity
=========  ======  =====  ====================  ==============  ==========
20,000          4      2  200                   16              0.988
50,000          2      2  250                   4 / 8           0.981 / 0.980
195,000         1      4  243                   2 / 4           0.967 / 0.962
=========  ======  =====  ====================  ==============  ==========

Plain sums over all workers, one step a round, would need a message for each step: with 50 steps of
2,000 documents in all, 50,000 documents were at 1.016, with 24 steps of 4,000 at 1.06. More and
smaller parts cost as well: with 8 parts of 100 steps, 50,000 documents were at 1.01. So a part has
about 200 steps, there are 2 rounds a pass and 4 in all, and parts grow in number with the
documents. A round of 12,500 documents and 8,000 words on two workers took 0.35 s of their time for
the steps and 0.1 s for all else; what else there is does not depend on the documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import require
from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidDocumentsError
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.choice import chosen
from streamlda.refinement.refine import of_start
from streamlda.refinement.schedule import (
    GROWTH_DOCUMENTS,
    LOCAL_STEPS,
    LocalSchedule,
    unflattened,
)
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.scaleout.cluster import Progress, no_progress
from streamlda.scaleout.resume import SavedRounds, digest_of
from streamlda.scaleout.store import Documents, documents
from streamlda.scaleout.sums import check_disjoint
from streamlda.utils.arrays import State
from streamlda.utils.threads import limit_threads, one_blas_thread


def refined_on(
    store: Documents,
    model: TopicModel,
    passes: int,
    on_progress: Progress = no_progress,
    rival: Callable[[], TopicModel] | None = None,
    saved: SavedRounds | None = None,
) -> TopicModel:
    """Return a spectral model of stored documents, refined over all of them on the workers.

    Equal documents in equal order give equal topics, to the last bit, on any number of workers,
    whoever is lost and however they were cut. The topics are not those of
    `streamlda.refinement.refine`, which takes other steps, but as good (see the module). The parts
    take the place of the shards in the store. Without passes the model comes back.

    Of a store with documents set aside, the topics are kept, and learn these too, only if they
    predict them better than the model does, or the `rival` (`streamlda.refinement.choice`). Else
    the model comes back, and says so.

    Rounds that were `saved` are not made again, and each one is saved.

    Time O(nnz K) a document and pass, and 8 V K bytes from and to each part in each round. Memory
    of a worker 24 V K bytes and 32 MiB beside its documents, here 16 V K.
    """
    if not passes:
        return model
    run, plan = store.run, LocalSchedule.of(store.documents, passes)
    first = run.compute(store.task("rows", 0, min(GROWTH_DOCUMENTS, store.documents)))
    aside = store.aside if store.aside is None else run.compute(store.aside)
    plan = replace(plan, settings=unflattened(plan.settings, model, first))
    refinement = StepwiseEM(model.components, model.alpha, model.background, plan.settings)
    ends = [store.documents * part // plan.parts for part in range(plan.parts + 1)]
    if store.fits(plan.parts):
        store.parts(ends)
    total, done, digest = plan.rounds * passes, 0, digest_of(model, plan, store.documents)
    if saved is not None and (before := saved.load(digest)) is not None:
        done, refinement = before[0], StepwiseEM.from_state(*before[1])
    for number in range(done, total):
        state = run.given(refinement.state())
        at = number % plan.rounds
        leaves = []
        for begin, end in pairwise(ends):
            low, high = (begin + (end - begin) * r // plan.rounds for r in (at, at + 1))
            given = f"{begin}-{end}", high - low, plan.steps, *store.given(low, high)
            leaves.append(run.task("refine", local_steps, state, *given))
        found: LocalTotals = run.compute(run.tree("merge", summed, leaves))
        refinement = mean_of(refinement, found, plan)
        if saved is not None:
            saved.save(digest, number + 1, refinement.state())
        on_progress("refinement", store.contents.counts, number + 1, total)
    if aside is not None:
        averaged = replace(model, components=refinement.components)
        model, kept = chosen(model, averaged, aside, first, rival)
        if not kept:
            return model
        refinement.add(aside)
        refinement.flush()
    return published(model, refinement, plan, sum(store.contents.usable.values()))


@dataclass(frozen=True, eq=False)
class LocalTotals:
    """Sum of S where the local steps of some parts ended.

    `documents` has the parts, by name, and the documents that each went over; `steps` are those
    before.
    """

    totals: NDArray[np.float64] = field(repr=False)
    documents: Mapping[str, int]
    steps: int


def local_steps(state: State, name: str, number: int, steps: int, *given: Any) -> LocalTotals:
    """Take the steps of one part over a number of `documents`. A task; pure."""
    with limit_threads(1), one_blas_thread():
        # To make one runs a parallel kernel too.
        return stepped(state, name, number, steps, documents(*given))


def stepped(
    state: State, name: str, number: int, steps: int, batches: Iterable[DocumentBatch]
) -> LocalTotals:
    """Take the steps of one part over a number of documents."""
    refinement = StepwiseEM.from_state(*state)
    before = refinement.steps
    ends = [number * step // steps for step in range(1, steps + 1)]
    for batch in cut_at(ends, batches):
        refinement.learn(batch)
    require(
        refinement.steps == before + steps,
        "every local step must have a document",
        steps=refinement.steps - before,
        expected=steps,
        remedy="let partitions come out the same each time they are made",
        error=InvalidDocumentsError,
    )
    return LocalTotals(refinement.totals, {name: number}, before)


def cut_at(ends: Sequence[int], batches: Iterable[DocumentBatch]) -> Iterator[DocumentBatch]:
    """Yield runs of documents that end at these numbers, and are joined or cut for it."""
    waiting: list[DocumentBatch] = []
    at, left = 0, iter(ends)
    end = next(left, None)
    for batch in batches:
        low = 0
        while end is not None and at + batch.n_documents - low >= end:
            high = low + end - at
            yield DocumentBatch.joined([*waiting, batch.rows(low, high)])
            waiting.clear()
            at, low, end = end, high, next(left, None)
        if low < batch.n_documents:
            waiting.append(batch.rows(low, batch.n_documents))
            at += batch.n_documents - low


def summed(one: LocalTotals, *others: LocalTotals) -> LocalTotals:
    """Return the sum of several parts; none of them is changed.

    `InvalidSettingError` if a part is in two, or they are not of one round.
    """
    totals, found = one.totals.copy(), dict(one.documents)
    for other in others:
        check_disjoint(found, other.documents)
        require(
            other.steps == one.steps and other.totals.shape == totals.shape,
            "local steps can be averaged only when they begin from the same topics",
            steps=f"{one.steps},{other.steps}",
            shapes=f"{totals.shape},{other.totals.shape}",
            remedy="take those of one round",
        )
        totals += other.totals
        found |= other.documents
    return LocalTotals(totals, found, one.steps)


def mean_of(refinement: StepwiseEM, found: LocalTotals, plan: LocalSchedule) -> StepwiseEM:
    """Return the refinement after a round, from the totals of all its parts."""
    require(
        len(found.documents) == plan.parts and found.steps == refinement.steps,
        "each part must be counted once in each round",
        parts=len(found.documents),
        expected=plan.parts,
        steps=found.steps,
        expected_steps=refinement.steps,
        remedy="let partitions come out the same each time they are made",
        error=InvalidDocumentsError,
    )
    return StepwiseEM.of_totals(
        found.totals / plan.parts,
        *(refinement.alpha, refinement.background, refinement.settings),
        steps=refinement.steps + plan.steps,
        documents=refinement.documents + sum(found.documents.values()),
    )


def published(
    model: TopicModel, refinement: StepwiseEM, plan: LocalSchedule, documents: int
) -> TopicModel:
    """Return the start with the topics of a refinement of `documents` in all."""
    done = {
        "documents": documents,
        "passes": plan.passes,
        "sweeps": 0,
        "steps": refinement.steps,
        "batch_documents": plan.settings.batch_documents,
        "lanes": plan.parts,
        "rounds": plan.rounds * plan.passes,
        "start_topics": list(range(model.n_components)),
    }
    known = of_start(model.diagnostics)
    if refinement.steps < LOCAL_STEPS // 2:
        known["warnings"] += [
            f"a refinement must take some {LOCAL_STEPS} steps for topics to settle, got "
            f"steps={refinement.steps} refinement_passes={plan.passes}; make more passes, or none"
        ]
    return replace(
        model,
        components=refinement.components,
        settings={**model.settings, "refinement_passes": plan.passes, "refinement_sweeps": 0},
        diagnostics={**known, "refinement": done},
    )
