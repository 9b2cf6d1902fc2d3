"""Documents that the driver asks for sums: encoded once by the workers of Dask, or by any engine.

On Dask what a shard is read to is a result like any other, a file of the worker that read it: a
lost worker's shard is read again by another one, and is the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.engine.measures import Measures
from streamlda.engine.settings import EngineSettings
from streamlda.refinement.choice import documents_before, learned_before
from streamlda.refinement.schedule import LocalSchedule
from streamlda.scaleout.cluster import Progress, Run, StoppedError, no_progress
from streamlda.scaleout.faults import check
from streamlda.scaleout.kept import Kept, Writer
from streamlda.scaleout.shards import Corpus, Shard, batches_of, task_of
from streamlda.scaleout.sums import (
    Census,
    Contents,
    FoldedStage,
    Plan,
    Rows,
    Samples,
    Span,
    Stage,
    Sums,
    check_whole,
    in_blocks,
    merge,
)
from streamlda.spectral.moments import Moments
from streamlda.stream.counts import RecordCounts
from streamlda.text.vocabulary import Vocabulary

#: Returns the merged sums of all shards through a stage.
Summed = Callable[[Stage], Sums]


class Documents:
    """Usable documents of all shards, by their number, for any engine that sums shards."""

    def __init__(self, contents: Contents, vocabulary: Vocabulary | None, summed: Summed) -> None:
        self.contents, self._vocabulary, self._summed = contents, vocabulary, summed
        self.starts = contents.starts

    @property
    def total(self) -> int:
        """Usable documents of all shards."""
        return self.starts[-1]

    def summed(self, kind: type[Stage], *spans: Span, **how: Any) -> Any:
        """Return a stage over these documents, and its sums."""
        stage = kind(spans=spans, starts=self.starts, vocabulary=self._vocabulary, **how)
        found = self._summed(stage)
        check_whole(stage, found)
        return stage, found

    def rows(self, first: int, last: int) -> DocumentBatch:
        """Return documents here."""
        _, found = self.summed(Rows, (first, min(last, self.total)))
        return DocumentBatch.joined([batch for _, batch in found.parts])

    def moments(
        self,
        first: int,
        last: int,
        settings: EngineSettings,
        whitening: NDArray[np.float64],
    ) -> Moments:
        """Return the sums of documents `first` to `last`."""
        if first == last:
            return Moments(whitening, settings.n_triple_columns)
        how = {"settings": settings, "whitening": whitening}
        plan, found = self.summed(Plan, (first, last), **how)
        made: Moments = plan.moments(found)
        return made

    def measures(self) -> Measures:
        """Return the samples that one process takes of all documents."""
        tokens = np.cumsum([0.0, *(shard.tokens for shard in self.contents.shards)])
        borders = dict(zip(self.starts, map(float, tokens), strict=True))
        whole = [*pairwise(sorted(borders))]
        given = {first: borders[first] for first, _ in whole}
        _, found = self.summed(Samples, *whole, tokens=given)
        made = Measures()
        made.merge(*(part for _, part in found.parts))
        return made

    def parts(self, passes: int, skips_held_out: bool) -> tuple[LocalSchedule, list[int]]:
        """Return the schedule of a refinement, and the borders of its parts: the shards."""
        borders = sorted({*self.starts})
        learned = learned_before(self.total) if skips_held_out else self.total
        plan = LocalSchedule.of(learned, passes, len(borders) - 1)
        least, steps = min(b - a for a, b in pairwise(borders)), plan.rounds * plan.steps
        shards = len(borders) - 1
        check(least >= steps, "few documents", documents=least, steps=steps, shards=shards)
        return plan, borders


class DaskDocuments(Documents):
    """Documents in files of the workers of a run; `futures` are those of their shards or parts."""

    def __init__(
        self, run: Run, futures: list[Any], contents: Contents, starts: Sequence[int]
    ) -> None:
        super().__init__(contents, None, self._computed)
        self.run, self._futures, self._borders = run, futures, starts

    def _computed(self, stage: Stage) -> Sums:
        shared = self.run.given(stage)
        leaves = [
            self.run.task(stage.kind, fold, shared, span, *self._given(span))
            for span in stage.cuts()
        ]
        found: Sums = self.run.compute(self.run.tree("merge", merge, leaves))
        return found

    def _given(self, span: Span) -> list[Any]:
        """Return where a span lies: rows of one file, or of several that are asked for."""
        pieces, borders = [], np.asarray(self._borders)
        at = int(np.searchsorted(borders, span[0], side="right")) - 1
        while at < len(self._futures) and borders[at] < span[1]:
            low, high = max(span[0] - borders[at], 0), min(span[1], borders[at + 1]) - borders[at]
            if low < high:
                pieces.append((self._futures[at], int(low), int(high)))
            at += 1
        if len(pieces) == 1:
            ((future, low, high),) = pieces
            return [(low, high), future]
        views = [self.run.task("range", part_of, (low, high), one) for one, low, high in pieces]
        return [(0, span[1] - span[0]), *views]

    def parts(self, passes: int, skips_held_out: bool) -> tuple[LocalSchedule, list[int]]:
        """Return the schedule and equal parts; what lies with other workers moves once."""
        learned = learned_before(self.total) if skips_held_out else self.total
        plan = LocalSchedule.of(learned, passes)
        ends = [learned * n // plan.parts for n in range(plan.parts)]
        ends = [*(map(documents_before, ends) if skips_held_out else ends), self.total]
        made = [self._given(span) for span in pairwise(ends)]
        parts = self.run.start([self.run.task("part", part_of, *given) for given in made])
        self.run.release(self._futures)
        self._futures[:], self._borders = parts, ends
        return plan, ends


def fold(stage: FoldedStage, span: Span, rows: Span, *found: Any) -> Sums:
    """Sum a span of a stage, which these rows of kept documents are. A task; pure."""
    kept = part_of(rows, *found)
    check(
        len(kept) == span[1] - span[0], "documents", documents=len(kept), expected=span[1] - span[0]
    )
    with task_of(Shard(f"documents {span[0]}-{span[1]}")):
        return stage.fold(span, in_blocks(kept.batches()))


def part_of(rows: Span, *found: Any) -> Kept:
    """Return rows of kept documents, which are read where they are used. A task; pure."""
    # A shard has what was met in it as well.
    return Kept.joined(*(one[0] if isinstance(one, tuple) else one for one in found)).rows(*rows)


def keep(census: Census, number: int, shard: Shard, value: Any) -> tuple[Kept, Sums]:
    """Write the usable documents of a shard to a file, and return what was met. A task; pure."""
    with task_of(shard), Writer(census.n_features) as writer:
        found = census.read(number, shard, value, writer.add)
    return writer.kept, found


@contextmanager
def keep_documents(
    run: Run,
    corpus: Corpus,
    vocabulary: Vocabulary | None,
    n_features: int,
    warmup: int,
    *,
    read: Mapping[int, Any],
    slots: bool = False,
    on_progress: Progress = no_progress,
) -> Iterator[DaskDocuments]:
    """Read all shards once on the workers, and keep their documents there until the block ends.

    Time O(documents); 12 bytes of a worker's disk for each distinct word of a document. Privacy:
    these files are raw documents. What was `read` before, by its place in the corpus, is not read
    again. Where the caller stops the run, documents are those of the shards read until then. With
    `slots` all records are documents.
    """
    census = Census(
        spans=((0, len(corpus.shards)),),
        vocabulary=vocabulary,
        n_features=n_features,
        warmup=warmup,
        slots=slots,
    )
    futures = list[Any]()
    with run.set_workers():
        try:
            # Sent once, and for shards of a lost worker again.
            (shared,) = run.start([run.given(census)])
            made = [
                run.task("keep", keep, shared, n, shard, run.given(read.get(n, value)))
                for n, (shard, value) in enumerate(zip(corpus.shards, corpus.values, strict=True))
            ]
            kept = futures[:] = run.start(made)
            run.release([*read.values()])
            try:
                contents = _contents(run, kept, on_progress)
            except StoppedError:
                futures[:] = [future for future in kept if future.status == "finished"]
                run.release([future for future in kept if future not in futures])
                if not futures:
                    raise
                contents = _contents(run, [*futures], on_progress)
            yield DaskDocuments(run, futures, contents, contents.starts)
        finally:
            run.release([*futures, shared])


def _contents(run: Run, kept: Sequence[Any], on_progress: Progress) -> Contents:
    """Return what was met in shards as soon as all are read, and report them as they are."""
    counts, done = RecordCounts(), 0
    parts = [run.task("contents", itemgetter(1), one) for one in kept]

    def report(met: RecordCounts) -> None:
        nonlocal done
        counts.update(met)
        done += 1
        on_progress("reading", counts, done, len(parts))

    reports = [run.task("report", attrgetter("counts"), part) for part in parts]
    return Contents(run.compute(run.tree("merge", merge, parts), reports, report))


def sums_of(documents: Any, stage: Stage, *, shard: int) -> Sums:
    """Return the sums of the documents of a shard through a stage.

    Parameters
    ----------
    documents : iterable of str, sparse matrix, list of these, or DocumentBatch
        Taken block by block: an iterator of texts may be of any length. Texts are read by the words
        of the fit, in each stage: keep them encoded where they are used again.
    stage : Stage
        From the function that `fit_with` is given.
    shard : int
        Number of the shard, from 0, the same in each stage.

    Returns
    -------
    Sums
        To be merged with those of other shards.

    Raises
    ------
    InvalidDocumentsError
        If the shard has fewer documents than when it was first summed.

    Notes
    -----
    Time O(nnz m + t^3 / 3) a document, O(nnz K) in a refinement, in one thread. Equal documents of
    an equal shard give equal bits.
    """
    own = Shard(f"shard {shard}")
    if isinstance(stage, Census):
        with task_of(own):
            return stage.read(shard, own, documents, len)
    assert isinstance(stage, FoldedStage)
    begin, end = stage.starts[shard], stage.starts[shard + 1]
    spans = [(max(a, begin), min(b, end)) for a, b in stage.spans if a < end and b > begin]
    if not spans:
        return Sums(stage.stage_id)
    (span,) = spans
    with task_of(own):
        usable = _usable(stage, own, documents, span[0] - begin, span[1] - begin)
        return stage.fold(span, in_blocks(usable))


def _usable(
    stage: Stage, shard: Shard, documents: Any, first: int, last: int
) -> Iterator[DocumentBatch]:
    at = 0
    for batch in batches_of(shard, documents, stage.vocabulary, RecordCounts()):
        part = batch if batch.usable.all() else batch.where(batch.usable)
        yield part.rows(max(first - at, 0), max(last - at, 0))
        at += part.n_documents
        if at >= last:
            return
    check(at >= last, "documents", documents=at, at_least=last)
