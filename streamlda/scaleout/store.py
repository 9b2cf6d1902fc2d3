"""Documents that the driver asks for sums: encoded once by the workers of Dask, or by any engine.

On Dask what a shard is read to is a result like any other, a file of the worker that read it: a
lost worker's shard is read again by another one, and is the same again.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

from streamlda.documents import DocumentBatch
from streamlda.scaleout.cluster import Progress, Run, StoppedError
from streamlda.scaleout.faults import check
from streamlda.scaleout.row_files import FileRows, write
from streamlda.scaleout.shards import Corpus, FirstRecords, Shard, groups_of, rows_of, task_of
from streamlda.scaleout.sums import Census, Documents, FoldedStage, Stage, Sums, join_counts, merge
from streamlda.stream.counts import RecordCounts
from streamlda.stream.source import RecordBatch
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.vocabulary import Vocabulary


class KeptShard(NamedTuple):
    """Documents in files of a worker, and the counts of their shard."""

    files: list[FileRows]
    met: RecordCounts

    def read(self, first: int, last: int) -> Iterator[DocumentBatch]:
        """Read documents by their numbers here, from one file after the other."""
        for rows in self.files:
            low, high = max(first, 0), min(last, len(rows))
            if low < high:
                yield from rows.batches(low, high)
            first, last = first - len(rows), last - len(rows)


def fold(kept: KeptShard, stage: FoldedStage, shard: int) -> Sums:
    """Sum the documents of a shard that are kept. A task; pure."""
    return stage.sums(shard, sum(map(len, kept.files)), kept.read)


def join(*kept: KeptShard) -> KeptShard:
    """Return the documents of several shards, without reading them. A task; pure."""
    files = [rows for own in kept for rows in own.files]
    return KeptShard(files, join_counts(own.met for own in kept))


def keep(census: Census, shard: Shard, value: Any) -> KeptShard:
    """Write the documents of a shard to a file, and count its records. A task; pure."""
    counts = RecordCounts()
    with task_of(shard):
        rows = write(census.batches(shard, value, counts), census.n_features)
    return KeptShard([rows], counts)


def meet(number: int, shard: KeptShard) -> tuple[int, RecordCounts]:
    """Return the counts of a shard, by its number. A task; pure."""
    return number, shard.met


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
    from then on. What was `read` before, by its place in the corpus, is not read again. Where the
    caller stops the run, documents are those of the shards read until then. More arguments are
    those of `Census`. Privacy: the files that workers keep are raw documents.
    """
    census = Census(spans=((0, len(corpus.shards)),), **how)
    kept, met, all_met = list[Any](), dict[int, RecordCounts](), RecordCounts()

    def report(found: tuple[int, RecordCounts]) -> None:
        met.update([found])
        all_met.update(found[1])
        on_progress("reading", all_met, len(met), len(kept))

    def sum_stage(stage: Stage) -> Sums:
        shared, kind = run.send(stage), type(stage).__name__.lower()
        spans = [stage.span_of(number) for number in range(len(kept))]
        numbers = [number for number, (first, last) in enumerate(spans) if first < last]
        leaves = [run.task(kind, fold, kept[number], shared, number) for number in numbers]
        found: Sums
        (found,) = run.compute([run.tree("merge", merge, leaves)])
        return found

    with run.set_workers():
        try:
            # Sent once, and for shards of a lost worker again.
            (shared,) = run.start([run.send(census)])
            values = [read.get(n, value) for n, value in enumerate(corpus.values)]
            pairs = zip(corpus.shards, map(run.send, values), strict=True)
            kept = run.start([run.task("keep", keep, shared, *pair) for pair in pairs])
            run.release([*read.values()])
            try:
                run.compute([run.task("met", meet, n, one) for n, one in enumerate(kept)], report)
            except StoppedError:
                if not met:
                    raise
            shards, numbers = kept, sorted(met)
            kept, counts = [shards[n] for n in numbers], [met[n] for n in numbers]
            if parts is not None:
                sizes = [*map(census.count_numbered, counts)]
                groups = groups_of(sizes, parts(sum(sizes)))
                kept = run.start([run.task("part", join, *kept[own]) for own in groups])
                counts = [join_counts(counts[own]) for own in groups]
                run.release(shards)
            yield Documents(census, counts, sum_stage)
        finally:
            run.release([*kept, shared])


def read_beginning(
    run: Run, corpus: Corpus, words: VocabularyLearner
) -> tuple[Vocabulary | None, int, int, Mapping[int, Any]]:
    """Return words that are those of one process, or None for counts, and how many columns.

    The texts that words are learned from come here, from one shard after the other: how many, and
    what the first shards were read to, by number, are returned too, for the rest of them.
    """
    texts, read = list[str](), dict[int, Any]()
    for n, (shard, value) in enumerate(zip(corpus.shards, corpus.values, strict=True)):
        if words.is_enough(len(texts), sum(map(len, texts))):
            break
        (read[n],) = run.start([run.task("first", read_first, shard, run.send(value), words)])
        ((columns, own),) = run.compute([run.task("texts", _texts, read[n])])
        if columns and not texts:
            return None, columns, 0, read
        texts += own
    check(texts, "no documents", documents=0, shards=len(corpus.shards))
    given = words.cut_beginning(texts)
    learned = words.learn(given)
    return learned, learned.n_features, len(given), read


def read_first(shard: Shard, value: Any, words: VocabularyLearner) -> FirstRecords:
    """Return as many rows of a shard as are enough to learn words. A task; pure."""
    found, texts = list[RecordBatch | DocumentBatch](), list[str]()
    with task_of(shard):
        for rows in rows_of(shard, value):
            found.append(rows)
            texts += rows.documents if isinstance(rows, RecordBatch) else ()
            if shard.readings and words.is_enough(len(texts), sum(map(len, texts))):
                break
    return FirstRecords(found)


def _texts(first: FirstRecords) -> tuple[int, list[str]]:
    """Return columns, and documents of a shard. A task."""
    counts = [rows.n_features for rows in first.batches if isinstance(rows, DocumentBatch)]
    texts = (r.documents for r in first.batches if isinstance(r, RecordBatch))
    return max(counts, default=0), [*chain.from_iterable(texts)]
