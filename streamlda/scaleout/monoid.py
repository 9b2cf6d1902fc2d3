"""The sums of documents as a monoid, for other engines: Spark, Ray, processes, a queue.

::

    projection = projection_of(some_texts, settings, vocabulary)
    sums = merge(*[sums_of(texts, projection, shard=name) for name, texts in ...])     # anywhere
    refinement = refinement_of(sums, projection, some_texts)
    while refinement.rounds_left:
        found = merge(*[sums_of(texts, refinement, shard=name) for name, texts in ...])
        refinement = refinement.after(found)
    model = topics(sums, projection, refinement, texts_in_no_shard)

Privately (`streamlda.scaleout.private_sums`)::

    with PrivateFit(settings, releaser, len(texts), vocabulary) as fit:
        while (stage := fit.stage) is not None:
            runs = stage.cuts(8)
            fit.release(merge(*[sums_of(texts[a:b], stage, shard=(a, b)) for a, b in runs]))
        model = fit.model()

Sums, projections, refinements and stages are pickled as they are. `merge` may be called in any
order and any tree: equal trees give equal bits, others differ by rounding; private sums are whole
numbers, and do not. Sums name the shards that are in them, and a shard that is merged twice, as
where a task was done again, is refused.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Any, overload

from streamlda.checks import require
from streamlda.documents import CHECK_TEXTS, TOPICS_NEED, DocumentBatch
from streamlda.engine.measures import of_one_interval
from streamlda.engine.settings import EngineSettings
from streamlda.engine.warmup import first_projection
from streamlda.errors import InsufficientDataError
from streamlda.model.topic_model import TopicModel
from streamlda.refinement.choice import chosen
from streamlda.refinement.refine import most_prevalent_first
from streamlda.refinement.schedule import (
    GROWTH_DOCUMENTS,
    LocalSchedule,
    passes_for,
    unflattened,
)
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.scaleout.local_steps import LocalTotals, mean_of, published, stepped, summed
from streamlda.scaleout.private_sums import Aggregates, PrivateFit, PrivateStage
from streamlda.scaleout.private_sums import merged as merged_slots
from streamlda.scaleout.shards import Shard, batches_of, no_documents, task_of
from streamlda.scaleout.sums import Plan, Sums, accumulate, merged
from streamlda.stream.counts import RecordCounts
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import State

__all__ = [
    "PrivateFit",
    "PrivateStage",
    "Refinement",
    "better_projection",
    "merge",
    "projection_of",
    "refinement_of",
    "sums_of",
    "topics",
]


def projection_of(
    documents: Iterable[Any], settings: EngineSettings, vocabulary: Vocabulary | None = None
) -> Plan:
    """Return what all shards are summed through, found from some of the documents.

    Parameters
    ----------
    documents : list of str, sparse matrix or DocumentBatch
        Some 10,000 documents, better spread over the corpus than the first ones.
    settings : EngineSettings
        `n_features` is replaced by the columns of the documents.
    vocabulary : Vocabulary, optional
        By which texts are read, here and in `sums_of`; left out for counts.

    Returns
    -------
    Plan
        The projection, shape (V, m), with settings and words: 8 V m bytes.

    Raises
    ------
    InsufficientDataError
        Without a document of 3 known words.

    Notes
    -----
    Time O(documents nnz m).
    """
    batch = _joined(documents, vocabulary, settings.n_features)
    settings = replace(settings, n_features=batch.n_features)
    whitening = first_projection(batch, settings)
    return Plan(settings, whitening, settings.n_triple_columns, vocabulary)


@dataclass(frozen=True, eq=False)
class Refinement:
    """Topics between two rounds of a refinement over the shards of some sums.

    A round goes over the documents of all shards once, or over a part of them. `documents` are
    those of each shard, by name.
    """

    documents: Mapping[str, int]
    schedule: LocalSchedule
    vocabulary: Vocabulary | None = field(repr=False)
    #: By which it is known that sums and refinement belong together.
    digests: tuple[str, str]
    rounds: int
    _state: State = field(repr=False)
    _some: DocumentBatch = field(repr=False)

    @property
    def rounds_left(self) -> int:
        """Rounds until the end."""
        return self.schedule.rounds * self.schedule.passes - self.rounds

    def after(self, found: LocalTotals) -> Refinement:
        """Return the refinement after a round, from the merged sums of all shards."""
        state = mean_of(StepwiseEM.from_state(*self._state), found, self.schedule).state()
        return replace(self, rounds=self.rounds + 1, _state=state)

    def totals_of(self, documents: Iterable[Any], shard: str) -> LocalTotals:
        """Take the steps of a shard in this round."""
        require(
            shard in self.documents,
            "a refinement must be of the shards that were summed",
            shard=shard,
            shards=len(self.documents),
            remedy="name shards as in the sums",
        )
        at, size = self.rounds % self.schedule.rounds, self.documents[shard]
        low, high = (size * r // self.schedule.rounds for r in (at, at + 1))
        task = Shard(shard)
        with task_of(task):
            batches = _usable(task, documents, self.vocabulary, low, high)
            return stepped(self._state, shard, high - low, self.schedule.steps, batches)


@overload
def sums_of(documents: Iterable[Any], projection: Plan, *, shard: str) -> Sums: ...
@overload
def sums_of(documents: Iterable[Any], projection: Refinement, *, shard: str) -> LocalTotals: ...
@overload
def sums_of(
    documents: Iterable[Any], projection: PrivateStage, *, shard: tuple[int, int]
) -> Aggregates: ...
def sums_of(
    documents: Iterable[Any], projection: Plan | Refinement | PrivateStage, *, shard: Any
) -> Sums | LocalTotals | Aggregates:
    """Return the sums of the documents of a shard, or what they make of topics in a round.

    Parameters
    ----------
    documents : iterable of str, sparse matrix, list of these, or DocumentBatch
        Taken block by block: an iterator of texts may be of any length.
    projection : Plan, Refinement or PrivateStage
        Equal for all shards that are merged.
    shard : str
        Unique name of the shard, the same when it is read again. Of a private stage in its place
        the slots of the documents, from and to (not included): a run of `PrivateStage.cuts`.

    Returns
    -------
    Sums, LocalTotals or Aggregates
        8 (3 V + V m + V t + 2 t^2 + 2 t^3) bytes, or 8 V K of a refinement, whatever the documents.

    Raises
    ------
    InvalidDocumentsError
        In a refinement, if the shard has fewer documents than when it was summed; in a private
        stage, unless there is a document for each slot.

    Notes
    -----
    Time O(nnz m + t^3 / 3) a document, O(nnz K) in a refinement, in one thread. Equal documents of
    an equal shard give equal bits. The name decides which documents are in which of the two halves
    by which noise is measured.
    """
    if isinstance(projection, Refinement):
        return projection.totals_of(documents, shard)
    if isinstance(projection, PrivateStage):
        return _private_sums(documents, projection, shard)
    digest = int.from_bytes(blake2b(shard.encode(), digest_size=2).digest(), "big")
    return accumulate(projection, Shard(shard), documents, digest << 40)


@overload
def merge(one: Sums, *others: Sums) -> Sums: ...
@overload
def merge(one: LocalTotals, *others: LocalTotals) -> LocalTotals: ...
@overload
def merge(one: Aggregates, *others: Aggregates) -> Aggregates: ...
def merge(one: Any, *others: Any) -> Any:
    """Return the sums of disjoint sets of shards; none of them is changed.

    Parameters
    ----------
    one, *others : Sums, LocalTotals or Aggregates
        Of one projection, one round of a refinement, or one private stage.

    Returns
    -------
    Sums, LocalTotals or Aggregates

    Raises
    ------
    InvalidSettingError
        If a shard is in two of them, or they do not belong together.

    Notes
    -----
    Time O((V m + t^3) sets), or O(V K sets); memory one set.
    """
    if isinstance(one, Aggregates):
        return merged_slots(one, *others)
    return merged(one, *others) if isinstance(one, Sums) else summed(one, *others)


def better_projection(sums: Sums, projection: Plan) -> Plan:
    """Return a projection found from all summed documents, for another round over them.

    Topics of two rounds are better than those of one, as `streamlda.scaleout.fit.ROUNDS` says.
    """
    return replace(projection, whitening=sums.engine(projection).better_projection())


def refinement_of(sums: Sums, projection: Plan, documents: Iterable[Any]) -> Refinement:
    """Return the topics of sums, to be refined over the same shards.

    Parameters
    ----------
    sums : Sums
        Of all shards.
    projection : Plan
        Through which they were taken.
    documents : list of str, sparse matrix or DocumentBatch
        Some of the documents, 1,000 or more: how flat topics may become is measured on them.

    Returns
    -------
    Refinement
        16 V K bytes, with as many rounds as `streamlda.refinement.schedule` has for the documents.

    Raises
    ------
    InsufficientDataError
        If a shard has fewer documents than steps: shards should be of like size, and each of about
        50,000 documents, for a shard takes 200 steps in all.
    """
    shards = {name: size for name, size in sums.usable.items() if size}
    passes = passes_for(sums.documents)
    plan = LocalSchedule.of(sums.documents, passes, len(shards))
    least = min(shards.values())
    require(
        least >= plan.rounds * plan.steps,
        "each shard must have a document for each step of a refinement",
        documents=least,
        steps=plan.rounds * plan.steps,
        shards=len(shards),
        remedy="cut the documents into fewer shards, of like size",
        error=InsufficientDataError,
    )
    start = topics(sums, projection)
    some = _joined(documents, projection.vocabulary, start.n_features).rows(0, GROWTH_DOCUMENTS)
    plan = replace(plan, settings=unflattened(plan.settings, start, some))
    stepwise = StepwiseEM(start.components, start.alpha, start.background, plan.settings)
    return Refinement(
        shards, plan, projection.vocabulary, sums.digests, 0, stepwise.state(), some.copy()
    )


def topics(
    sums: Sums,
    projection: Plan,
    refinement: Refinement | None = None,
    aside: Iterable[Any] | None = None,
) -> TopicModel:
    """Return the topics of all documents in the sums.

    Parameters
    ----------
    sums : Sums
        Of all shards.
    projection : Plan
        Through which they were taken.
    refinement : Refinement, optional
        After its last round. Without it topics are not refined.
    aside : list of str, sparse matrix or DocumentBatch, optional
        Documents that are in no shard, some 1,000: refined topics are kept, and learn these too,
        only if they predict them better. Needed with a refinement.

    Returns
    -------
    TopicModel
    """
    start = sums.engine(projection).snapshot(projection.vocabulary)
    if refinement is None:
        return start
    require(
        not refinement.rounds_left and aside is not None and sums.digests == refinement.digests,
        "a refinement must be at its end, of these sums, and judged by documents of no shard",
        rounds_left=refinement.rounds_left,
        aside=aside is not None,
        same_projection=sums.digests == refinement.digests,
        remedy="make the rounds that are left, and pass documents that were set aside",
    )
    assert aside is not None
    assert sums.measures is not None
    judged = _joined(aside, projection.vocabulary, start.n_features)
    stepwise = StepwiseEM.from_state(*refinement._state)
    passed = replace(start, components=stepwise.components)
    model, kept = chosen(start, passed, judged, refinement._some)
    if not kept:
        return model
    stepwise.add(judged)
    stepwise.flush()
    documents = sums.documents + judged.n_documents
    found = published(model, stepwise, refinement.schedule, documents)
    return of_one_interval(most_prevalent_first(found, sums.measures.samples))


def _private_sums(
    documents: Iterable[Any], stage: PrivateStage, slots: tuple[int, int]
) -> Aggregates:
    shard, counts = Shard("slots {}-{}".format(*slots)), RecordCounts()
    with task_of(shard):
        batches = batches_of(shard, documents, stage.vocabulary, counts, slots=True)
        return stage.sums_of(batches, slots, counts)


def _joined(documents: Iterable[Any], vocabulary: Vocabulary | None, width: int) -> DocumentBatch:
    """Return the usable ones of some documents, at least one."""
    shard, counts = Shard("some documents"), RecordCounts()
    with task_of(shard):
        batches = list(_usable(shard, documents, vocabulary, counts=counts))
    batch = DocumentBatch.joined(batches or [no_documents(width)])
    require(
        batch.n_documents,
        TOPICS_NEED,
        usable=0,
        documents=counts.documents,
        remedy=CHECK_TEXTS,
        error=InsufficientDataError,
    )
    return batch


def _usable(
    shard: Shard,
    documents: Iterable[Any],
    vocabulary: Vocabulary | None,
    first: int = 0,
    last: int = sys.maxsize,
    counts: RecordCounts | None = None,
) -> Iterator[DocumentBatch]:
    """Yield usable documents of a shard, from number `first` to `last`, not included."""
    at = 0
    for batch in batches_of(shard, documents, vocabulary, counts or RecordCounts()):
        part = batch.where(batch.usable)
        yield part.rows(max(first - at, 0), max(last - at, 0))
        at += part.n_documents
        if at >= last:
            return
