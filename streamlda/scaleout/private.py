"""A private fit on a cluster: workers sum the stages of `private_sums`, the driver releases."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from streamlda.checks import require
from streamlda.documents import DocumentBatch
from streamlda.errors import SourceError
from streamlda.model.topic_model import TopicModel
from streamlda.private.learner import PrivateLearner
from streamlda.private.public_start import PublicTopics
from streamlda.private.release_manager import ReleaseManager
from streamlda.private.settings import PrivateSettings
from streamlda.scaleout.cluster import Run, check_cluster
from streamlda.scaleout.files import SHARDS
from streamlda.scaleout.private_sums import (
    Aggregates,
    PrivateFit,
    PrivateStage,
    check_allowed,
    check_slots,
    merged,
    stage_of,
    take_sums,
)
from streamlda.scaleout.shards import Corpus, Piece, batches_of, count_rows, task_of
from streamlda.stream.counts import RecordCounts
from streamlda.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from distributed import Client


def fit_privately(
    client: Client,
    corpus: Corpus,
    settings: PrivateSettings,
    releaser: ReleaseManager,
    vocabulary: Vocabulary | None = None,
    public: PublicTopics | None = None,
) -> TopicModel:
    """Learn topics privately; the same releases as from one process over all shards.

    Every record of a file, and every row of a partition, takes a slot of the stream, in the order
    of the shards. Each shard is read once to count its records, once for the ledger, if there is
    one, and once or twice for its stages. A window that the documents do not fill up gives no
    snapshot, as in one process. All else is said at `PrivateFit`.
    """
    check_allowed(settings, releaser, vocabulary)
    check_cluster(client)
    run = Run(client)
    lengths = row_counts(run, corpus)
    with PrivateFit(settings, releaser, sum(lengths), vocabulary, public) as fit:
        while fit.stage is not None:
            fit.release(_sums(run, corpus, lengths, fit.stage))
        return fit.model()


def summed_stages(
    client: Client,
    corpus: Corpus,
    learner: PrivateLearner,
    vocabulary: Vocabulary | None,
    slots: int,
) -> Iterator[RecordCounts]:
    """Sum one stage after the other on the workers, and yield what was met in it.

    The caller makes what is due, and what may end there, before it goes on; the `slots` are those
    that it noted for a ledger.
    """
    check_cluster(client)
    run = Run(client)
    lengths = row_counts(run, corpus)
    require(
        slots == sum(lengths),
        "workers must find the records that the ledger will know",
        records=sum(lengths),
        known=slots,
        remedy="nothing was released: fit files that nobody writes to, and that all machines see "
        "alike",
        error=SourceError,
    )
    check_slots(slots, learner.settings)
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
    counted: list[int] = run.compute(run.task("slots", lambda *counts: list(counts), *tasks))
    return counted


def _sums(run: Run, corpus: Corpus, lengths: Sequence[int], stage: PrivateStage) -> Aggregates:
    """Sum a stage on the workers."""
    shared = run.given(stage)
    given = Corpus(corpus.shards, tuple(map(run.given, corpus.values)))
    leaves = []
    for first, last in stage.cuts(SHARDS):
        pieces, values = given.pieces(lengths, first, last)
        name = stage.name.replace(" ", "-")
        leaves.append(run.task(name, sum_groups, shared, (first, last), pieces, *values))
    found: Aggregates = run.compute(run.tree("merge", merged, leaves))
    return found


def sum_groups(
    stage: PrivateStage, slots: tuple[int, int], pieces: list[Piece], *values: Any
) -> Aggregates:
    """Sum the rows of some pieces, which are these slots of a stage. A task."""
    counts = RecordCounts()
    return stage.sums_of(_rows(stage.vocabulary, counts, pieces, values), slots, counts)


def _rows(
    vocabulary: Vocabulary | None, counts: RecordCounts, pieces: list[Piece], values: Sequence[Any]
) -> Iterator[DocumentBatch]:
    for piece, value in zip(pieces, values, strict=True):
        shard, first, last = piece.shard, piece.first, piece.last
        with task_of(shard):
            yield from batches_of(
                shard, value, vocabulary, counts, slots=True, first=first, last=last
            )
