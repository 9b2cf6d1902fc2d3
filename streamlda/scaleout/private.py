"""Private topics by sums of many workers: what is summed next, and what is made of it.

The sums of a stage are whole numbers of documents, each brought to the grid by itself
(`streamlda.guarantee.sums`). So a task takes any run of slots, and the raw sums that come together
at the driver are, number for number, those of one process: what is proven of its releases holds
here. Who sums what follows from the number of records, which is as public as
slots are.

Workers see raw documents and hold raw sums. They draw no noise, so a task that is done twice
releases nothing; everything that is published goes through the one ledger of the driver.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamlda.guarantee.mechanism import JointGaussian
from streamlda.private import stage as summing
from streamlda.private.contributions import Statistic
from streamlda.private.learner import PrivateLearner
from streamlda.scaleout.cluster import Run, check_cluster, listed
from streamlda.scaleout.faults import check
from streamlda.scaleout.files import SHARDS
from streamlda.scaleout.shards import Corpus, Piece, batches_of, count_rows, task_of
from streamlda.scaleout.sums import Span, Stage, Sums, check_whole, merge
from streamlda.stream.counts import RecordCounts
from streamlda.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from distributed import Client

#: Fewest slots of a task: below it starting one takes longer.
LEAST_SLOTS = 1024


@dataclass(frozen=True, eq=False, kw_only=True)
class PrivateStage(Stage):
    """Slots of the stream, its one span, to be summed in runs.

    Slot n is the n-th record of the corpus, whatever it holds. All of the stage is of releases that
    were made before, and so public.
    """

    name: str
    n_features: int
    statistics: Sequence[Statistic] = field(repr=False)
    mechanism: JointGaussian = field(repr=False)

    @property
    def kind(self) -> str:
        """Its name."""
        return self.name.replace(" ", "-")

    def slots(self, parts: int) -> list[Span]:
        """Cut the slots into at most N parts of about equal size."""
        ((first, last),) = self.spans
        step = max(LEAST_SLOTS, math.ceil((last - first) / parts))
        return [(begin, min(begin + step, last)) for begin in range(first, last, step)]


def stage_of(
    learner: PrivateLearner, slots: int, vocabulary: Vocabulary | None
) -> PrivateStage | None:
    """Return what is to be summed next of a stream of N slots; None if nothing is."""
    engine = learner.engine
    stage, left = engine.stage, slots - engine.slots
    # A rest that gives no snapshot is not paid for.
    if stage is None or left <= 0 or learner.private.least_missing > left:
        return None
    return PrivateStage(
        name=stage.name,
        spans=((engine.slots, min(stage.last, slots)),),
        n_features=engine.settings.n_features,
        statistics=stage.statistics,
        mechanism=stage.mechanism,
        vocabulary=vocabulary,
    )


def take_sums(learner: PrivateLearner, stage: PrivateStage, found: Sums) -> None:
    """Give a learner the sums of all slots of a stage; the caller releases what is due."""
    check_whole(stage, found)
    running = learner.engine.stage
    assert running is not None
    ((first, last),) = stage.spans
    learner.engine.skip(last - first)
    for block, sums in found.arrays.items():
        running.sums.aggregates[block] += sums


def summed_stages(
    client: Client,
    corpus: Corpus,
    learner: PrivateLearner,
    vocabulary: Vocabulary | None,
    slots: int,
) -> Iterator[RecordCounts]:
    """Sum one stage after the other on the workers, and yield what was met in it.

    Every record of a file takes a slot of the stream, in the order of the shards. Each shard is
    read once to count its records, and once or twice for its stages. The caller makes what is due,
    and what may end there, before it continues; the `slots` are those that it noted for a ledger.
    """
    check_cluster(client)
    run = Run(client)
    lengths = row_counts(run, corpus)
    check(slots == sum(lengths), "records", records=sum(lengths), known=slots)
    check(
        slots >= learner.settings.least_slots,
        "window",
        slots=slots,
        documents_per_snapshot=learner.settings.documents_per_snapshot,
    )
    while (stage := stage_of(learner, slots, vocabulary)) is not None:
        found = _sums(run, corpus, lengths, stage)
        take_sums(learner, stage, found)
        yield found.counts


def row_counts(run: Run, corpus: Corpus) -> list[int]:
    """Return how many slots each shard takes: rows of a partition, records of files."""
    tasks = [
        run.task("slots", count_rows, shard, run.given(value))
        for shard, value in zip(corpus.shards, corpus.values, strict=True)
    ]
    counted: list[int] = run.compute(run.task("slots", listed, *tasks))
    return counted


def _sums(run: Run, corpus: Corpus, lengths: Sequence[int], stage: PrivateStage) -> Sums:
    """Sum a stage on the workers."""
    shared = run.given(stage)
    given = Corpus(corpus.shards, tuple(map(run.given, corpus.values)))
    leaves = []
    for first, last in stage.slots(SHARDS):
        pieces, values = given.pieces(lengths, first, last)
        leaves.append(run.task(stage.kind, sum_groups, shared, (first, last), pieces, *values))
    found: Sums = run.compute(run.tree("merge", merge, leaves))
    return found


def sum_groups(stage: PrivateStage, slots: Span, pieces: list[Piece], *values: Any) -> Sums:
    """Sum the rows of some pieces, which are these slots of a stage. A task."""
    counts = RecordCounts()
    own = summing.Stage(stage.name, *slots, stage.statistics, stage.mechanism)
    for piece, value in zip(pieces, values, strict=True):
        with task_of(piece.shard):
            for batch in batches_of(
                *(piece.shard, value, stage.vocabulary, counts),
                slots=True,
                first=piece.first,
                last=piece.last,
            ):
                summing.check_rows(batch, stage.n_features)
                own.add(batch.rows(0, min(batch.n_documents, own.slots_left)))
    return Sums(stage.stage_id, (slots,), own.state(), counts)
