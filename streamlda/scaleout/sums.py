"""The sums of shards: what a task returns, and how two of them become one. All pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import require
from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.engine.measures import Measures
from streamlda.engine.phase import Counters
from streamlda.engine.settings import EngineSettings
from streamlda.engine.warmup import projection_digest
from streamlda.scaleout.shards import Shard, batches_of, task_of
from streamlda.spectral.moments import Moments
from streamlda.spectral.support import HeldOutPairs
from streamlda.stream.counts import RecordCounts
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import Arrays


@dataclass(frozen=True, eq=False)
class Plan:
    """All that the tasks of a round share: W, shape (d, m), t triple columns, and the words.

    Without triple columns the round is a sketch, which takes the pair statistic only. `digests` of
    projection and words tell sums of this plan from those of another.
    """

    settings: EngineSettings
    whitening: NDArray[np.float64] = field(repr=False)
    triple_columns: int
    vocabulary: Vocabulary | None = None
    digests: tuple[str, str] = field(init=False)

    def __post_init__(self) -> None:
        words = "" if self.vocabulary is None else self.vocabulary.fingerprint
        # Once for all tasks: it takes as long as to sum a hundred documents.
        object.__setattr__(self, "digests", (projection_digest(self.whitening), words))


@dataclass(frozen=True, eq=False)
class Sums:
    """Raw sums of some shards: 8 (3 d + d m + d t + 2 t^2 + 2 t^3) bytes, whatever the documents.

    `usable` has the shards in it, by name, and how many documents of each were learned from.
    """

    arrays: Arrays = field(repr=False)
    usable: Mapping[str, int]
    counts: RecordCounts
    digests: tuple[str, str]
    #: Samples of the documents of each shard; None of a sketch.
    measures: Measures | None = field(default=None, repr=False)

    @property
    def documents(self) -> int:
        """Documents learned from."""
        return sum(self.usable.values())

    def engine(self, plan: Plan, beginning: HeldOutPairs | None = None) -> Engine:
        """Return an engine with a shared projection, as if it had seen the documents itself.

        Of a sketch it makes a better projection, and no topics. `beginning` as `Engine.of_sums`.
        """
        counters = Counters(
            documents_seen=self.documents,
            documents_skipped=int(self.arrays["tally"][1]),
            tokens_seen=self.counts.tokens - self.counts.unseen_tokens,
        )
        moments = Moments.from_state(plan.whitening, self.arrays)
        engine = Engine.of_sums(plan.settings, counters, moments, beginning)
        if self.measures is not None:
            engine.measures = self.measures
        return engine


def accumulate(plan: Plan, shard: Shard, value: object, before: int) -> Sums:
    """Sum all documents of a shard into one set of arrays; the task of a round.

    Documents are dealt by their number to the two halves that noise is measured by
    (`streamlda.spectral.moments.half_of`). With the number of documents in all shards `before`, the
    halves are those of one engine over all. Time O(nnz m + t^3 / 3) a document, memory one set of
    arrays and one block of documents.
    """
    counts = RecordCounts()
    with task_of(shard):
        batches = batches_of(shard, value, plan.vocabulary, counts)
        measures = Measures() if plan.triple_columns else None
        return summed(plan, shard.name, batches, before, counts, measures)


def summed(
    plan: Plan,
    name: str,
    batches: Iterable[DocumentBatch],
    before: int,
    counts: RecordCounts,
    measures: Measures | None = None,
) -> Sums:
    """Sum batches under a name; `before` as in `accumulate`. `counts` is filled as they come."""
    moments = Moments(plan.whitening, plan.triple_columns)
    moments.documents = before
    for batch in batches:
        moments.add(batch)
        if measures is not None:
            measures.add(batch)
    moments.documents -= before
    return Sums(moments.state(), {name: moments.documents}, counts, plan.digests, measures)


def merged(one: Sums, *others: Sums) -> Sums:
    """Return the sums of disjoint sets of shards; none of them is changed.

    Time O((d m + t^3) sets), memory one set of arrays. `InvalidSettingError` if a shard is in two,
    or they were taken through different projections or words.
    """
    arrays = {name: array.copy() for name, array in one.arrays.items()}
    usable = dict(one.usable)
    for other in others:
        check_disjoint(usable, other.usable)
        shapes = [{n: a.shape for n, a in sums.items()} for sums in (arrays, other.arrays)]
        require(
            one.digests == other.digests and shapes[0] == shapes[1],
            "sums can be merged only when they share projection and words",
            projection=f"{one.digests[0]},{other.digests[0]}",
            words=f"{one.digests[1][:16]},{other.digests[1][:16]}",
            remedy="take all of them by one plan",
        )
        usable |= other.usable
        for name, array in arrays.items():
            array += other.arrays[name]
    # The number of triple columns is no sum.
    arrays["tally"][2] = one.arrays["tally"][2]
    every, measures = [one, *others], None
    if all(part.measures is not None for part in every):
        measures = Measures()
        for part in every:
            assert part.measures is not None
            measures.merge(part.measures)
    return Sums(arrays, usable, added([part.counts for part in every]), one.digests, measures)


def check_disjoint(one: Iterable[str], other: Iterable[str]) -> None:
    """Raise `InvalidSettingError` if a shard is in both."""
    twice = sorted({*one} & {*other})
    require(
        not twice,
        "each shard must be summed once",
        shards=",".join(twice[:5]),
        remedy="merge sums of disjoint shards",
    )


def added(parts: Iterable[RecordCounts]) -> RecordCounts:
    """Return what was met in all of them."""
    total = RecordCounts()
    for part in parts:
        total.update(part)
    return total
