"""Documents read once and kept as counts in the memory of the workers that read them.

What is kept is a result of Dask like any other: a lost worker's part is read again by another one,
and is the same again. Where the documents would not fit, nothing is kept, and every task reads the
part that it needs: slower, with equal results.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import require
from streamlda.documents import DocumentBatch
from streamlda.engine.measures import Measures
from streamlda.errors import InvalidDocumentsError
from streamlda.refinement.choice import ASIDE, documents_before, learned_before, parted
from streamlda.scaleout.cluster import Progress, Run, no_progress
from streamlda.scaleout.shards import (
    SHARD_TOKENS,
    Corpus,
    Piece,
    Shard,
    batches_of,
    check_columns,
    no_documents,
    task_of,
)
from streamlda.scaleout.sums import added
from streamlda.stream.counts import RecordCounts
from streamlda.text.column_words import ColumnWords, column_words, merged_words
from streamlda.text.vocabulary import Vocabulary

if TYPE_CHECKING:
    from distributed import Client

#: Fraction of the workers' memory limits that documents may take. The sums of a round, the copies
#: on their way and the workers themselves need the rest.
MOST_KEPT = 0.4


@dataclass(frozen=True, slots=True)
class Contents:
    """What is known of some shards once they were read.

    `usable` has the documents of at least 3 tokens in each shard, by its name, `tokens` theirs, and
    `nbytes` what they take as counts; `frequencies`, shape (d,), sums their word frequencies.
    Hashed columns are shown by `column_words`.
    """

    usable: dict[str, int]
    tokens: dict[str, float]
    counts: RecordCounts
    nbytes: int
    frequencies: NDArray[np.float64] = field(repr=False)
    column_words: ColumnWords | None = field(default=None, repr=False)


@dataclass(eq=False)
class DocumentStore:
    """Documents that tasks can ask for, by their number among all usable ones.

    `corpus` is what is read: what the workers keep, or the shards themselves, with the `vocabulary`
    of the texts that are still read. `starts` are the numbers of the first document of each shard,
    and that of all documents.
    """

    #: Documents that refined topics are judged by: none.
    aside: ClassVar[Any] = None

    run: Run
    corpus: Corpus
    vocabulary: Vocabulary | None
    contents: Contents
    in_memory: bool
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

    def task(self, kind: str, first: int, last: int, *, learned: bool = False) -> Any:
        """Return the task that gives documents `first` to `last` (not included) as one batch.

        Those to be `learned` leave out what is set aside (`streamlda.refinement.choice`).
        """
        lengths = [b - a for a, b in pairwise(self.starts)]
        pieces, values = self.corpus.pieces(lengths, first, last)
        given = self.run.given(self.vocabulary), *map(self.run.given, values)
        rows = self.run.task(kind, joined, pieces, *given)
        return self.run.task("learned", to_learn, rows, first) if learned else rows

    def cut(self, ends: Sequence[int]) -> list[tuple[Any, int | None]]:
        """Return `parts`, each with nothing to be left out."""
        return [(part, None) for part in self.parts(ends)]


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
    def in_memory(self) -> bool:
        """Whether workers keep them."""
        return self.store.in_memory

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

    def task(self, kind: str, first: int, last: int) -> Any:
        """Return the task that gives documents `first` to `last` (not included) as one batch."""
        return self.store.task(kind, self._before(first), self._before(last), learned=True)

    def cut(self, ends: Sequence[int]) -> list[tuple[Any, int | None]]:
        """Cut the store into parts; each has what is set aside, and how many are before it."""
        places = [0, *(self._before(end) for end in ends[1:-1]), self.store.documents]
        return [*zip(self.store.parts(places), places[:-1], strict=True)]

    def _before(self, number: int) -> int:
        return min(documents_before(number), self.store.documents)


Documents = DocumentStore | LearnedDocuments


def to_learn(batch: DocumentBatch, before: int) -> DocumentBatch:
    """Return documents without those set aside. A task; pure."""
    return parted(batch, before)[0]


def to_judge(batch: DocumentBatch) -> DocumentBatch:
    """Return those of the first documents that are set aside. A task; pure."""
    return parted(batch)[1].copy()


def measures_of(store: DocumentStore) -> Measures:
    """Return the samples that one process takes of all documents, in one graph."""
    leaves, tokens = [], 0.0
    for shard, (begin, end) in zip(store.corpus.shards, pairwise(store.starts), strict=True):
        if begin < end:
            batch = store.task("rows", begin, end)
            leaves.append(store.run.task("samples", sampled, batch, begin, tokens))
        tokens += store.contents.tokens[shard.name]
    found: Measures = store.run.compute(store.run.tree("merge", consecutive, leaves))
    return found


def sampled(batch: DocumentBatch, documents: int, tokens: float) -> Measures:
    """Return the samples of a batch behind these documents and tokens. A task; pure."""
    measures = Measures(documents, tokens)
    measures.add(batch)
    return measures


def consecutive(*parts: Measures) -> Measures:
    """Return the samples of the whole of consecutive parts; none of them is changed."""
    return Measures.consecutive(parts)


@contextmanager
def store_documents(
    client: Client,
    corpus: Corpus,
    vocabulary: Vocabulary | None,
    n_features: int,
    *,
    most_bytes: float | None = None,
    on_progress: Progress = no_progress,
) -> Iterator[DocumentStore]:
    """Read all shards on the workers, and keep their documents there until the end of the block.

    At most `most_bytes` are kept on all workers together, `MOST_KEPT` of their memory limits by
    default; with more, documents are read again whenever they are needed. Time O(documents); 12
    bytes of a worker's memory for each distinct word of a document, and one set of d numbers a
    shard here. Privacy: workers hold raw documents, as they do while reading.
    """
    run = Run(client)
    limit = memory_for_documents(client) if most_bytes is None else most_bytes
    words = run.given(vocabulary)

    def tasks(kind: str, function: Callable[..., Any]) -> list[Any]:
        return [
            run.task(kind, function, shard, run.given(value), words, n_features)
            for shard, value in zip(corpus.shards, corpus.values, strict=True)
        ]

    kept = run.start(tasks("keep", documents_of))
    try:
        try:
            parts = [run.task("contents", itemgetter(1), one) for one in kept]
            contents = _contents(run, parts, limit, on_progress)
            batches = tuple(run.task("batch", itemgetter(0), one) for one in kept)
            # Shards that were read have no files any more.
            shards = tuple(Shard(shard.name) for shard in corpus.shards)
            made = DocumentStore(run, Corpus(shards, batches), None, contents, True, kept)
        except _TooLargeError:
            run.release(kept)
            again = tasks("contents", contents_of)
            contents = _contents(run, again, float("inf"), on_progress)
            made = DocumentStore(run, corpus, vocabulary, contents, False, kept)
        yield made
    finally:
        run.release(kept)


class _TooLargeError(Exception):
    """Documents that do not fit; never leaves this module."""


def _contents(run: Run, parts: Sequence[Any], limit: float, on_progress: Progress) -> Contents:
    counts, nbytes = RecordCounts(), 0

    def report(part: tuple[RecordCounts, int]) -> None:
        nonlocal nbytes
        counts.update(part[0])
        nbytes += part[1]
        on_progress("reading", counts)
        if nbytes > limit:
            raise _TooLargeError

    reports = [run.task("report", attrgetter("counts", "nbytes"), part) for part in parts]
    found: Contents = run.compute(run.tree("merge", together, parts), reports, report)
    return found


def memory_for_documents(client: Client) -> float:
    """Return the bytes that documents may take on all workers; infinite if these have no limit."""
    answers: Any = client.run(_memory_limit)
    limits = [float("inf") if limit is None else limit for limit in answers.values()]
    return float(MOST_KEPT * sum(limits))


def _memory_limit(dask_worker: Any) -> int | None:
    limit: int | None = dask_worker.memory_manager.memory_limit
    return limit


def documents_of(
    shard: Shard, value: Any, vocabulary: Vocabulary | None, n_features: int
) -> tuple[DocumentBatch, Contents]:
    """Return the usable documents of a shard, and what was met. A task; pure."""
    counts, batches = RecordCounts(), [no_documents(n_features)]
    words = column_words(vocabulary, full_tokens=SHARD_TOKENS)
    with task_of(shard):
        for batch in batches_of(shard, value, vocabulary, counts, column_words=words):
            check_columns(batch, n_features)
            batches.append(batch.where(batch.usable))
        whole = DocumentBatch.joined(batches)
    fractions = whole.counts / np.repeat(whole.lengths, np.diff(whole.row_pointers))
    return whole, Contents(
        usable={shard.name: whole.n_documents},
        tokens={shard.name: float(whole.lengths.sum())},
        counts=counts,
        nbytes=whole.counts.nbytes + whole.word_ids.nbytes + whole.row_pointers.nbytes,
        frequencies=np.bincount(whole.word_ids, fractions, minlength=n_features).astype(float),
        column_words=words,
    )


def contents_of(
    shard: Shard, value: Any, vocabulary: Vocabulary | None, n_features: int
) -> Contents:
    """Return what `documents_of` says of a shard, without its documents. A task; pure."""
    return documents_of(shard, value, vocabulary, n_features)[1]


def together(one: Contents, *others: Contents) -> Contents:
    """Return what is known of disjoint sets of shards; none of them is changed."""
    parts = [one, *others]
    return Contents(
        usable={name: number for part in parts for name, number in part.usable.items()},
        tokens={name: tokens for part in parts for name, tokens in part.tokens.items()},
        counts=added(part.counts for part in parts),
        nbytes=sum(part.nbytes for part in parts),
        frequencies=np.sum([part.frequencies for part in parts], axis=0),
        column_words=merged_words(part.column_words for part in parts),
    )


def joined(pieces: list[Piece], vocabulary: Vocabulary | None, *values: Any) -> DocumentBatch:
    """Return the usable documents of some pieces as one batch. A task; pure."""
    batches = []
    for piece, value in zip(pieces, values, strict=True):
        at = 0
        with task_of(piece.shard):
            for batch in batches_of(piece.shard, value, vocabulary, RecordCounts()):
                part = batch.where(batch.usable)
                batches.append(part.rows(max(piece.first - at, 0), max(piece.last - at, 0)))
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
    # What is kept must not keep the whole shard alive that it is a part of.
    whole = DocumentBatch.joined(batches)
    return whole.copy() if len(batches) == 1 else whole
