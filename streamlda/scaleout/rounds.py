"""The rounds of one engine, each summed on all workers: its topics, to rounding.

An `Engine` reads each document once, and takes a better projection whenever a round is full
(`round_length`). Where documents are numbered, what belongs to which round is known, and a round is
a sum like any other.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

from streamlda.engine.engine import Engine
from streamlda.engine.phase import Counters
from streamlda.engine.rounds import round_length
from streamlda.engine.warmup import better_projection
from streamlda.scaleout.beginning import Beginning
from streamlda.scaleout.store import Documents, documents
from streamlda.scaleout.sums import Plan, Sums, merged, summed
from streamlda.spectral.moments import Moments
from streamlda.stream.counts import RecordCounts
from streamlda.utils.threads import limit_threads, one_blas_thread

#: Tasks of a round, and the fewest and most documents of one. With 50 topics of 8000 words a task
#: takes 0.05 ms for a document, and its sums are 17 MB.
TASKS, LEAST_DOCUMENTS, MOST_DOCUMENTS = 64, 2500, 100_000

#: Bytes of sums that a task may have for each of its documents.
SUMS_BYTES = 2**14


def one_engine(store: Documents, beginning: Beginning, last: int) -> Engine:
    """Return an engine as if it had been given documents 0 to `last` in order.

    It has the projection of the warm-up documents at first, or a shared one. Sums differ from those
    of one process by rounding alone, and so do projections and topics. It can go on with further
    documents. Time O(nnz m + t^3 / 3) a document; here O(d m^2) a round.
    """
    plan, used = beginning.plan, beginning.projection_documents
    shared = used == 0
    finished, rounds, begin = None, 0, 0
    while True:
        length = last + 1 if shared else round_length(used, first=rounds == 0)
        end = min(begin + length, last)
        sums = _round(store, plan, begin, end)
        current = Moments.from_state(plan.whitening, sums.arrays)
        if end - begin < length:
            break
        # The round is full, and the next one begins, if only with its projection.
        finished, rounds, used, begin = current, rounds + 1, end - begin, end
        with one_blas_thread():
            plan = replace(plan, whitening=better_projection(current, plan.settings))
    counts = store.contents.counts
    counters = Counters(
        documents_seen=last,
        documents_skipped=counts.short if last == store.documents else 0,
        tokens_seen=counts.tokens - counts.unseen_tokens,
        rounds_finished=rounds,
        projection_documents=used,
    )
    if shared:
        current.skipped = counters.documents_skipped
        return Engine.of_sums(plan.settings, counters, current)
    return Engine.of_rounds(plan.settings, counters, current, finished, beginning.held_out)


def _round(store: Documents, plan: Plan, first: int, last: int) -> Sums:
    """Sum documents `first` to `last` through the projection of a plan, in one graph."""
    if first == last:
        empty = Moments(plan.whitening, plan.triple_columns)
        return Sums(empty.state(), {}, RecordCounts(), plan.digests)
    run = store.run
    shared = run.given(plan)
    leaves = []
    d, m = plan.whitening.shape
    least = max(LEAST_DOCUMENTS, 8 * d * (m + plan.triple_columns) // SUMS_BYTES)
    for begin, end in _cuts(store, first, last, least):
        given = f"documents {begin}-{end}", begin - first, *store.given(begin, end)
        leaves.append(run.task("sums", sum_documents, shared, *given))
    found: Sums = run.compute(run.tree("merge", merged, leaves))
    return found


def _cuts(store: Documents, first: int, last: int, least: int) -> list[tuple[int, int]]:
    """Cut a run of documents at the ends of shards if it can be, since a shard lies on one worker.

    Small shards are taken together and large ones cut, whatever the number of workers.
    """
    step = max(least, min(-(-(last - first) // TASKS), MOST_DOCUMENTS))
    ends = [first]
    for end in [*(s for s in store.starts if first < s < last), last]:
        parts = (end - ends[-1]) // step
        if parts or end == last:
            begin, parts = ends[-1], max(parts, 1)
            ends += [begin + (end - begin) * part // parts for part in range(1, parts + 1)]
    return list(pairwise(ends))


def sum_documents(plan: Plan, name: str, before: int, *given: Any) -> Sums:
    """Sum `documents` that have some before them in the round. A task; pure."""
    with limit_threads(1), one_blas_thread():
        return summed(plan, name, documents(*given), before, RecordCounts())
