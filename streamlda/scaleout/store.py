"""Documents that the driver asks for sums: encoded once by the workers of Dask, or by any engine.

On Dask what a shard is read to is a result like any other, a file of the worker that read it: a
lost worker's shard is read again by another one, and is the same again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate, chain, pairwise
from operator import attrgetter
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.refinement.schedule import LocalSchedule
from streamlda.scaleout.cluster import Progress, Run, StoppedError
from streamlda.scaleout.faults import check
from streamlda.scaleout.kept import FileRows, Writer, read_range
from streamlda.scaleout.shards import Corpus, FirstRecords, Shard, batches_of, rows_of, task_of
from streamlda.scaleout.sums import (
    Census,
    FoldedStage,
    Met,
    Plan,
    Rows,
    Samples,
    Span,
    Stage,
    Sums,
    check_whole,
    in_blocks,
    learned,
    merge,
)
from streamlda.spectral.moments import Moments
from streamlda.stream.counts import RecordCounts
from streamlda.stream.source import RecordBatch
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.vocabulary import Vocabulary

#: Returns the merged sums of all shards through a stage.
Summed = Callable[[Stage], Sums]


class Documents:
    """Numbered documents of all shards, for any engine that sums shards; shorter ones beside."""

    def __init__(self, census: Census, met: Sequence[Met], summed: Summed) -> None:
        self.census, self.met, self._summed = census, met, summed
        self.starts = (*accumulate((shard.numbered for shard in met), initial=0),)
        self.counts = Met.joined(met).counts

    @property
    def total(self) -> int:
        """Numbered documents of all shards."""
        return self.starts[-1]

    def summed(self, kind: type[Stage], *spans: Span, **how: Any) -> Sums:
        """Return the sums of a stage over these documents."""
        stage = kind(spans=spans, starts=self.starts, vocabulary=self.census.vocabulary, **how)
        found = self._summed(stage)
        check_whole(stage, found)
        return found

    def rows(self, first: int, last: int) -> DocumentBatch:
        """Return documents here."""
        found = self.summed(Rows, (first, min(last, self.total)))
        return DocumentBatch.joined([batch for _, batch in found.parts])

    def moments(self, first: int, last: int, before: Moments) -> Moments:
        """Return the sums of documents `first` to `last`, which follow those of others."""
        how = {"whitening": before.whitening, "columns": before.triple_columns}
        found = self.summed(Plan, (first, last), before=before.documents, **how).arrays
        tally = found["tally"].copy()
        # The number of triple columns is no sum.
        tally[2] = before.triple_columns
        return Moments.from_state(before.whitening, {**found, "tally": tally})

    def samples(self, held_out: NDArray[np.int64]) -> Sums:
        """Return the samples that one process takes, word frequencies, and those held out."""
        learned = accumulate((shard.learned for shard in self.met), initial=0)
        tokens = accumulate((shard.tokens for shard in self.met), initial=0.0)
        # Of shards that begin with the same number, the last one has documents.
        begins = dict(zip(self.starts, zip(learned, tokens, strict=True), strict=True))
        how = {"n_features": self.census.n_features, "learns_short": self.census.learns_short}
        spans = pairwise(sorted({*self.starts}))
        return self.summed(Samples, *spans, begins=begins, held_out=held_out, **how)

    def parts(self, passes: int, held_out: NDArray[np.int64]) -> tuple[LocalSchedule, list[int]]:
        """Return the schedule of a refinement, and the borders of its parts: the shards."""
        borders = sorted({*self.starts})
        spans = [*pairwise(borders)]
        plan = LocalSchedule.of(learned((0, self.total), held_out), passes, len(spans))
        least, steps = min(learned(s, held_out) for s in spans), plan.rounds * plan.steps
        check(least >= steps, "few documents", documents=least, steps=steps, shards=len(spans))
        return plan, borders


class Kept(NamedTuple):
    """Documents in files of a worker, and what was met in their shard, if they are a whole one."""

    files: list[FileRows]
    met: Met | None = None


def fold(kept: Kept, stage: Stage, shard: int) -> Sums:
    """Sum the documents of a shard that are kept. A task; pure."""
    return sums_of(kept, stage, shard=shard)


def join(*kept: Kept) -> Kept:
    """Return the documents of several shards, without reading them. A task; pure."""
    return Kept([rows for own in kept for rows in own.files])


def keep(census: Census, number: int, shard: Shard, value: Any) -> Kept:
    """Write the documents of a shard to a file, and note what was met. A task; pure."""
    with task_of(shard), Writer(census.n_features) as writer:
        ((_, met),) = census.read(number, shard, value, writer.add).parts
    return Kept([writer.rows()], met)


def groups_of(met: Sequence[Met], parts: int) -> list[slice]:
    """Return runs of shards that have about equally many documents, in at most so many parts."""
    least, found, begin, documents = sum(one.numbered for one in met) / parts, [], 0, 0
    for number, one in enumerate(met, 1):
        documents += one.numbered
        if documents >= least:
            found.append(slice(begin, number))
            begin, documents = number, 0
    if begin < len(met) and (documents >= least / 2 or not found):
        found.append(slice(begin, len(met)))
    return [*found[:-1], slice(found[-1].start, len(met))]


@contextmanager
def keep_documents(
    run: Run,
    corpus: Corpus,
    *,
    parts: Callable[[int], int] | None = None,
    read: Mapping[int, Any] = MappingProxyType({}),
    on_progress: Progress = lambda *_: None,
    **how: Any,
) -> Iterator[Documents]:
    """Read all shards once on the workers, and keep their documents there until the block ends.

    Neighbours are joined to as many `parts` as suit a number of documents, which are the shards
    from then on: what lies with other workers moves once. What was `read` before, by its place in
    the corpus, is not read again. Where the caller stops the run, documents are those of the shards
    read until then. More arguments are those of `Census`.

    Time O(documents); 12 bytes of a worker's disk for each distinct word of a document. Privacy:
    these files are raw documents.
    """
    census, kept = Census(spans=((0, len(corpus.shards)),), **how), list[Any]()

    def get_met(kept: Sequence[Any]) -> list[Met]:
        """Return what was met in shards as soon as all are read, and report them as they are."""
        counts, done = RecordCounts(), 0

        def report(met: Met) -> None:
            nonlocal done
            counts.update(met.counts)
            done += 1
            on_progress("reading", counts, done, len(kept))

        return run.compute([run.task("met", attrgetter("met"), one) for one in kept], report)

    def summed(stage: Stage) -> Sums:
        shared = run.given(stage)
        spans = (stage.span_of(number) for number in range(len(kept)))
        leaves = [
            run.task(stage.kind, fold, kept[number], shared, number)
            for number, (first, last) in enumerate(spans)
            if first < last
        ]
        found: Sums
        (found,) = run.compute([run.tree("merge", merge, leaves)])
        return found

    with run.set_workers():
        try:
            # Sent once, and for shards of a lost worker again.
            (shared,) = run.start([run.given(census)])
            made = [
                run.task("keep", keep, shared, n, shard, run.given(read.get(n, value)))
                for n, (shard, value) in enumerate(zip(corpus.shards, corpus.values, strict=True))
            ]
            kept = run.start(made)
            run.release([*read.values()])
            try:
                met = get_met(kept)
            except StoppedError:
                whole = [future for future in kept if future.status == "finished"]
                run.release([future for future in kept if future not in whole])
                kept = whole
                if not kept:
                    raise
                met = get_met(kept)
            if parts is not None:
                groups = groups_of(met, parts(sum(one.numbered for one in met)))
                shards = kept
                kept = run.start([run.task("part", join, *shards[own]) for own in groups])
                run.release(shards)
                met = [Met.joined(met[own]) for own in groups]
            yield Documents(census, met, summed)
        finally:
            run.release([*kept, shared])


class Beginning(NamedTuple):
    """Words of texts, or None for counts; what they were learned from, and what was read for it."""

    words: Vocabulary | None
    n_features: int
    documents: int = 0
    #: Records that shards begin with, by the number of the shard.
    read: Mapping[int, Any] = MappingProxyType({})


def read_beginning(run: Run, corpus: Corpus, words: VocabularyLearner) -> Beginning:
    """Return words that are those of one process, or the number of columns of counts.

    The texts that they are learned from come here, by `VocabularyLearner.is_enough` of each shard:
    of the first one, then of as many as all before. Their records stay with the workers, so that
    none is read twice.
    """
    pairs = [*zip(corpus.shards, corpus.values, strict=True)]
    texts, read, at, step = list[str](), dict[int, Any](), 0, 1
    while at < len(pairs) and not words.is_enough(len(texts), sum(map(len, texts))):
        made = run.start(
            [
                run.task("first", _read, shard, run.given(value), words)
                for shard, value in pairs[at : at + step]
            ]
        )
        found = run.compute([run.task("texts", _texts, one) for one in made])
        if not texts and (columns := max(width for width, _ in found)):
            return Beginning(None, columns)
        texts += chain.from_iterable(own for _, own in found)
        read |= dict(enumerate(made, at))
        at = step = len(read)
    check(texts, "no documents", documents=0, shards=len(pairs))
    given = words.beginning(texts)
    learned = words.learn(given)
    return Beginning(learned, learned.n_features, len(given), read)


def _read(shard: Shard, value: Any, words: VocabularyLearner) -> FirstRecords:
    """Return as many records of a shard as are enough to learn words. A task; pure.

    Of a partition, which is here as a whole, all of them.
    """
    found, documents, characters = list[RecordBatch](), 0, 0
    with task_of(shard):
        for rows in rows_of(shard, value):
            if isinstance(rows, DocumentBatch):
                return FirstRecords([], whole=False, columns=rows.n_features)
            found.append(rows)
            documents += len(rows.documents)
            characters += sum(map(len, rows.documents))
            if shard.readings and words.is_enough(documents, characters):
                return FirstRecords(found, whole=False)
    return FirstRecords(found, whole=True)


def _texts(first: FirstRecords) -> tuple[int, list[str]]:
    """Return columns, and documents of a shard. A task."""
    return first.columns, [text for batch in first.batches for text in batch.documents]


def sums_of(documents: Any, stage: Stage, *, shard: int) -> Sums:
    """Return the sums of the documents of a shard through a stage.

    Parameters
    ----------
    documents : iterable of str, matrix of counts, or DocumentBatch
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
            return stage.read(shard, own, documents, lambda *_: None)
    assert isinstance(stage, FoldedStage)
    (begin, end), (first, last) = stage.starts[shard : shard + 2], stage.span_of(shard)
    if first == last:
        return Sums(stage.stage_id)
    with task_of(own):
        if isinstance(documents, Kept):
            kept = sum(map(len, documents.files))
            check(kept == end - begin, "documents", documents=kept, expected=end - begin)
            found = read_range(documents.files, first - begin, last - begin)
        else:
            batches = batches_of(own, documents, stage.vocabulary, RecordCounts())
            found = _range_of(batches, first - begin, last - begin, end - begin)
        return stage.fold((first, last), in_blocks(found))


def _range_of(
    batches: Iterator[DocumentBatch], first: int, last: int, whole: int
) -> Iterator[DocumentBatch]:
    """Yield the rows of a span of the documents of a `whole` shard."""
    at = 0
    for batch in batches:
        reached = at + np.cumsum(batch.usable)
        numbers, at = reached - batch.usable, int(reached[-1])
        yield batch.where((numbers >= first) & ((numbers < last) | (last == whole)))
        if whole > last <= at:
            return
    check(at == whole, "documents", documents=at, expected=whole)
