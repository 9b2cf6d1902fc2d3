"""Documents read once and kept as counts in the memory of the workers that read them.

What is kept is a result of Dask like any other: a lost worker's part is read again by another one,
and is the same again. Where the documents would not fit, nothing is kept, and every task reads the
part that it needs, block by block: slower, with equal results.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import attrgetter, itemgetter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import require
from streamlda.documents import DocumentBatch
from streamlda.engine.measures import Measures
from streamlda.engine.warmup import WarmUpDocuments
from streamlda.errors import InvalidDocumentsError
from streamlda.refinement.choice import ASIDE, documents_before, learned_before, parted
from streamlda.scaleout.cluster import Progress, Run, StoppedError, no_progress
from streamlda.scaleout.shards import (
    Corpus,
    Piece,
    Shard,
    batches_of,
    check_columns,
    no_documents,
    task_of,
)
from streamlda.scaleout.sums import added
from streamlda.stream.blocks import Blocks
from streamlda.stream.counts import RecordCounts
from streamlda.stream.source import Reject
from streamlda.text.vocabulary import Vocabulary

#: Fraction of the workers' memory limits that documents may take, and of the least limit that one
#: part of them may. The sums of a round, the copies on their way and the workers themselves need
#: the rest.
MOST_KEPT, MOST_OF_WORKER = 0.4, 0.15

#: Most rejects of a shard that are named; others are counted.
MOST_REJECTS = 10_000


@dataclass(frozen=True, slots=True)
class Contents:
    """What is known of some shards once they were read.

    `usable` has the documents of at least 3 tokens in each shard, by its name, `tokens` theirs, and
    `nbytes` what they take as counts; `frequencies`, shape (d,), sums their word frequencies.
    `whole` says that no shard is too large to be kept; `rejects` are named where that is wanted,
    and `places` has the records of each part of a file then, by its location.
    """

    usable: dict[str, int]
    tokens: dict[str, float]
    counts: RecordCounts
    nbytes: int
    frequencies: NDArray[np.float64] = field(repr=False)
    whole: bool = True
    rejects: tuple[Reject, ...] = field(default=(), repr=False)
    places: Mapping[str, int] = field(default_factory=dict, repr=False)


@dataclass(eq=False)
class DocumentStore:
    """Documents that tasks can ask for, by their number among all usable ones.

    `corpus` is what is read: what the workers keep, or the shards themselves, with the future of
    the `vocabulary` by which texts are still read. `starts` are the numbers of the first document
    of each shard, and that of all documents.
    """

    #: Documents that refined topics are judged by: none.
    aside: ClassVar[Any] = None

    run: Run
    corpus: Corpus
    vocabulary: Any
    contents: Contents
    in_memory: bool
    most_of_worker: float
    _futures: list[Any] = field(repr=False)
    starts: list[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        counted = [self.contents.usable[shard.name] for shard in self.corpus.shards]
        self.starts = [*accumulate(counted, initial=0)]

    @property
    def documents(self) -> int:
        """Usable documents of all shards."""
        return self.starts[-1]

    def parts(self, ends: Sequence[int]) -> list[Any]:
        """Cut the documents into runs that end here, and keep these in place of the shards.

        What lies with other workers moves once. Returns a future of one batch for each; only where
        documents are kept at all.
        """
        made = self.run.start([self.task("part", a, b) for a, b in pairwise(ends)])
        self.run.release(self._futures)
        self._futures[:] = made
        self.starts = [*ends]
        self.corpus = Corpus(tuple(Shard(f"part {n}") for n in range(len(made))), tuple(made))
        return made

    def given(self, first: int, last: int) -> tuple[Any, ...]:
        """Return what `documents` takes, as arguments of a task, for numbers `first` to `last`."""
        lengths = [b - a for a, b in pairwise(self.starts)]
        pieces, values = self.corpus.pieces(lengths, first, last)
        return None, pieces, self.vocabulary, *map(self.run.given, values)

    def task(self, kind: str, first: int, last: int) -> Any:
        """Return the task that gives documents `first` to `last` (not included) as one batch."""
        return self.run.task(kind, joined, *self.given(first, last))

    def beginning(self, most: int) -> DocumentBatch:
        """Return the first documents that a projection is made of: at most `most`, here."""
        first = self.given(0, min(self.documents, most))
        found: DocumentBatch = self.run.compute(self.run.task("first", warmup, most, *first))
        return found

    def fits(self, parts: int) -> bool:
        """Return whether workers keep the documents, and may keep one of equal parts."""
        return self.in_memory and self.contents.nbytes <= self.most_of_worker * parts


@dataclass(frozen=True, eq=False)
class LearnedDocuments:
    """The documents of a store but for those set aside, numbered among themselves."""

    store: DocumentStore

    @property
    def run(self) -> Run:
        """What makes the tasks."""
        return self.store.run

    @property
    def contents(self) -> Contents:
        """What is known of all documents of the store."""
        return self.store.contents

    @property
    def documents(self) -> int:
        """How many they are."""
        return learned_before(self.store.documents)

    @property
    def starts(self) -> list[int]:
        """Numbers of the first one of each shard, and that of all."""
        return [learned_before(start) for start in self.store.starts]

    @property
    def aside(self) -> Any:
        """The task that gives those set aside."""
        rows = self.store.task("rows", 0, min(self.store.documents, int(ASIDE[-1])))
        return self.run.task("aside", to_judge, rows)

    def given(self, first: int, last: int) -> tuple[Any, ...]:
        """Return what `documents` takes, as arguments of a task, for numbers `first` to `last`."""
        begin = self._before(first)
        return begin, *self.store.given(begin, self._before(last))[1:]

    def task(self, kind: str, first: int, last: int) -> Any:
        """Return the task that gives documents `first` to `last` (not included) as one batch."""
        return self.run.task(kind, joined, *self.given(first, last))

    def fits(self, parts: int) -> bool:
        """As `DocumentStore.fits`."""
        return self.store.fits(parts)

    def parts(self, ends: Sequence[int]) -> list[Any]:
        """Cut the store; what is set aside lies with the documents before it."""
        places = [0, *(self._before(end) for end in ends[1:-1]), self.store.documents]
        return self.store.parts(places)

    def _before(self, number: int) -> int:
        return min(documents_before(number), self.store.documents)


Documents = DocumentStore | LearnedDocuments


def to_judge(batch: DocumentBatch) -> DocumentBatch:
    """Return those of the first documents that are set aside. A task; pure."""
    return parted(batch)[1].copy()


def warmup(most: int, *given: Any) -> DocumentBatch:
    """Return the `documents` that a warm-up has room for. A task; pure."""
    kept = WarmUpDocuments(most)
    for batch in documents(*given):
        kept.add(batch, 0)
        if kept.full:
            break
    return kept.batch()


def measures_of(store: DocumentStore) -> Measures:
    """Return the samples that one process takes of all documents, in one graph."""
    leaves, tokens = [], 0.0
    for shard, (begin, end) in zip(store.corpus.shards, pairwise(store.starts), strict=True):
        if begin < end:
            given = begin, tokens, *store.given(begin, end)
            leaves.append(store.run.task("samples", sampled, *given))
        tokens += store.contents.tokens[shard.name]
    found: Measures = store.run.compute(store.run.tree("merge", consecutive, leaves))
    return found


def sampled(number: int, tokens: float, *given: Any) -> Measures:
    """Return the samples of `documents` after others and their tokens. A task; pure."""
    measures = Measures(number, tokens)
    for batch in documents(*given):
        measures.add(batch)
    return measures


def consecutive(*parts: Measures) -> Measures:
    """Return the samples of the whole of consecutive parts; none of them is changed."""
    return Measures.consecutive(parts)


@contextmanager
def store_documents(
    run: Run,
    corpus: Corpus,
    vocabulary: Vocabulary | None,
    n_features: int,
    *,
    limits: Sequence[float],
    most_bytes: float,
    read: Mapping[int, Any],
    names_rejects: bool = False,
    on_progress: Progress = no_progress,
) -> Iterator[DocumentStore]:
    """Read all shards on the workers, and keep their documents there until the end of the block.

    At most `most_bytes` are kept on all workers together, and a share of its memory limit on each;
    with more, documents are read again whenever they are needed. Time O(documents); 12
    bytes of a worker's memory for each distinct word of a document, and one set of d numbers a
    shard here. Privacy: workers hold raw documents, as they do while reading.

    What was `read` before, by its place in the corpus, is not read again. Where the caller stops
    the run, the store has the shards that were read until then.
    """
    limit, most_of_worker = most_bytes, min(most_bytes, MOST_OF_WORKER * min(limits))
    words = None if vocabulary is None else run.start([run.given(vocabulary)])[0]
    how = n_features, most_of_worker, names_rejects
    kept = run.start(
        [
            run.task("keep", documents_of, shard, run.given(read.get(n, value)), words, *how)
            for n, (shard, value) in enumerate(zip(corpus.shards, corpus.values, strict=True))
        ]
    )
    run.release([*read.values()])
    futures = [*kept]
    try:
        try:
            contents, in_memory = _contents(run, kept, limit, on_progress)
        except StoppedError:
            done = [n for n, future in enumerate(kept) if future.status == "finished"]
            if not done:
                raise
            run.release([future for n, future in enumerate(kept) if n not in done])
            kept = [kept[n] for n in done]
            shards, values = (tuple(of[n] for n in done) for of in (corpus.shards, corpus.values))
            corpus = Corpus(shards, values, corpus.stored_bytes)
            contents, in_memory = _contents(run, kept, limit, on_progress)
        if in_memory:
            batches = run.start([run.task("batch", itemgetter(0), one) for one in kept])
            # What was met is not kept a second time.
            run.release(futures)
            futures[:] = batches
            # Shards that were read have no files any more.
            corpus = Corpus(tuple(Shard(shard.name) for shard in corpus.shards), tuple(batches))
            run.release([] if words is None else [words])
            words = None
        yield DocumentStore(run, corpus, words, contents, in_memory, most_of_worker, futures)
    finally:
        run.release([*futures, *([] if words is None else [words])])


def _contents(
    run: Run, kept: Sequence[Any], limit: float, on_progress: Progress
) -> tuple[Contents, bool]:
    """Return what was met, and whether all of it is kept; what is too much is let fall."""
    counts, nbytes, done, whole = RecordCounts(), 0, 0, True
    parts = [run.task("contents", itemgetter(1), one) for one in kept]

    def report(part: tuple[RecordCounts, int, bool]) -> None:
        nonlocal nbytes, done, whole
        counts.update(part[0])
        nbytes, done = nbytes + part[1], done + 1
        if whole and (nbytes > limit or not part[2]):
            whole = False
            run.release(kept)
        on_progress("reading", counts, done, len(parts))

    reports = [run.task("report", attrgetter("counts", "nbytes", "whole"), part) for part in parts]
    found: Contents = run.compute(run.tree("merge", together, parts), reports, report)
    return found, whole


def documents_of(
    shard: Shard,
    value: Any,
    vocabulary: Vocabulary | None,
    n_features: int,
    most_bytes: float = float("inf"),
    names_rejects: bool = False,
) -> tuple[DocumentBatch | None, Contents]:
    """Return the usable documents of a shard, and what was met. A task; pure.

    There are no documents where they would take more than `most_bytes`: memory is that and a block.
    """
    counts, batches = RecordCounts(), [no_documents(n_features)]
    rejects, places = list[Reject](), dict[str, int]()
    documents, tokens, nbytes, frequencies = 0, 0.0, 0, np.zeros(n_features)

    def note(reject: Reject) -> None:
        if len(rejects) < MOST_REJECTS:
            rejects.append(reject)

    with task_of(shard):
        given = (note, places) if names_rejects else ()
        for batch in batches_of(shard, value, vocabulary, counts, *given):
            check_columns(batch, n_features)
            part = batch.where(batch.usable)
            fractions = part.counts / np.repeat(part.lengths, np.diff(part.row_pointers))
            frequencies += np.bincount(part.word_ids, fractions, minlength=n_features)
            documents, tokens = documents + part.n_documents, tokens + float(part.lengths.sum())
            nbytes += part.counts.nbytes + part.word_ids.nbytes + part.row_pointers.nbytes
            if nbytes <= most_bytes:
                batches.append(part)
            else:
                batches.clear()
        whole = DocumentBatch.joined(batches) if nbytes <= most_bytes else None
    return whole, Contents(
        usable={shard.name: documents},
        tokens={shard.name: tokens},
        counts=counts,
        nbytes=nbytes,
        frequencies=frequencies,
        whole=whole is not None,
        rejects=tuple(rejects),
        places=places,
    )


def together(one: Contents, *others: Contents) -> Contents:
    """Return what is known of disjoint sets of shards; none of them is changed."""
    parts = [one, *others]
    return Contents(
        usable={name: number for part in parts for name, number in part.usable.items()},
        tokens={name: tokens for part in parts for name, tokens in part.tokens.items()},
        counts=added(part.counts for part in parts),
        nbytes=sum(part.nbytes for part in parts),
        frequencies=np.sum([part.frequencies for part in parts], axis=0),
        whole=all(part.whole for part in parts),
        rejects=tuple(reject for part in parts for reject in part.rejects),
        places={place: n for part in parts for place, n in part.places.items()},
    )


def documents(
    number: int | None, pieces: list[Piece], vocabulary: Vocabulary | None, *values: Any
) -> Iterator[DocumentBatch]:
    """Yield the usable documents of some pieces in blocks, which depend on these documents alone.

    With the `number` of the first one, those set aside are left out (`refinement.choice`). Memory:
    a block, or a partition.
    """
    blocks = Blocks()
    last = int(ASIDE[-1])
    for batch in _usable(pieces, vocabulary, *values):
        learned = batch if number is None or number >= last else parted(batch, number)[0]
        number = None if number is None else number + batch.n_documents
        yield from blocks.add(learned)
    if blocks.waiting is not None:
        yield blocks.flush()


def _usable(
    pieces: list[Piece], vocabulary: Vocabulary | None, *values: Any
) -> Iterator[DocumentBatch]:
    for piece, value in zip(pieces, values, strict=True):
        at = 0
        with task_of(piece.shard):
            for batch in batches_of(piece.shard, value, vocabulary, RecordCounts()):
                part = batch if batch.usable.all() else batch.where(batch.usable)
                yield part.rows(max(piece.first - at, 0), max(piece.last - at, 0))
                at += part.n_documents
                if at >= piece.last:
                    break
            require(
                at >= piece.last,
                "a shard must have the documents that were counted in it",
                documents=at,
                at_least=piece.last,
                remedy="let it come out the same each time",
                error=InvalidDocumentsError,
            )


def joined(*given: Any) -> DocumentBatch:
    """Return `documents` as one batch, which keeps nothing else alive. A task; pure."""
    return DocumentBatch.joined([*documents(*given)])
