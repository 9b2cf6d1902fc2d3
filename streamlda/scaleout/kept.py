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
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.errors import InvalidDocumentsError
from streamlda.scaleout.cluster import Run
from streamlda.scaleout.shards import Corpus, Shard, rows_of
from streamlda.scaleout.sums import added, told
from streamlda.stream.ingest import Counts
from streamlda.text.vocabulary import Vocabulary
from streamlda.threads import limit_threads, one_blas_thread

if TYPE_CHECKING:
    from distributed import Client

#: Share of the workers' memory limits that documents may take. The sums of a round, the copies on
#: their way and the workers themselves need the rest.
MOST_KEPT = 0.4


@dataclass(frozen=True, slots=True)
class Found:
    """What is known of some shards once they were read.

    Attributes
    ----------
    usable : dict of str to int
        Documents of at least 3 tokens in each shard, by its name.
    counts : Counts
        What was met.
    tokens : int
        Of all documents, in the vocabulary.
    skipped : int
        Documents that are too short.
    nbytes : int
        Of the usable documents as counts.
    frequencies : ndarray of shape (d,)
        Sum of the word frequencies of the usable documents.
    """

    usable: dict[str, int]
    counts: Counts
    tokens: int
    skipped: int
    nbytes: int
    frequencies: NDArray[np.float64] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Piece:
    """Usable documents `first` to `last`, not included, of the shard with this number."""

    number: int
    first: int
    last: int


@dataclass(frozen=True, eq=False)
class Kept:
    """Documents that tasks can ask for, by their number among all usable ones.

    Attributes
    ----------
    run : Run
    corpus : Corpus
        What is read: what the workers keep, or the shards themselves.
    vocabulary : Vocabulary or None
        Of the texts that are still read; None for counts.
    found : Found
        Of all shards.
    in_memory : bool
    starts : list of int
        Number of the first document of each shard, and that of all documents.
    """

    run: Run
    corpus: Corpus
    vocabulary: Vocabulary | None
    found: Found
    in_memory: bool
    _futures: list[Any] = field(repr=False)
    starts: list[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        counted = [self.found.usable[shard.name] for shard in self.corpus.shards]
        object.__setattr__(self, "starts", [*accumulate(counted, initial=0)])

    @property
    def documents(self) -> int:
        """Usable documents of all shards."""
        return self.starts[-1]

    def lanes(self, number: int) -> list[Any]:
        """Cut the documents into so many equal runs, and keep these in place of the shards.

        What lies with other workers moves once.

        Returns
        -------
        list of Future
            Each of one batch. Only where documents are kept at all.
        """
        ends = [self.documents * lane // number for lane in range(number + 1)]
        made = self.run.start([self.task("lane", a, b) for a, b in pairwise(ends)])
        self.run.release(self._futures)
        self._futures[:] = [*self._futures, *made]
        return made

    def pieces(self, first: int, last: int) -> list[Piece]:
        """Return the pieces of shards that documents `first` to `last` (not included) lie in."""
        made = []
        for number, begin in enumerate(self.starts[:-1]):
            low, high = max(first, begin), min(last, self.starts[number + 1])
            if low < high:
                made.append(Piece(number, low - begin, high - begin))
        return made

    def task(self, kind: str, first: int, last: int) -> Any:
        """Return the task that gives documents `first` to `last` as one batch."""
        pieces = self.pieces(first, last)
        shards = [(self.corpus.shards[p.number], p.first, p.last) for p in pieces]
        values = [self.run.given(self.corpus.values[p.number]) for p in pieces]
        return self.run.task(kind, joined, shards, self.run.given(self.vocabulary), *values)


@contextmanager
def keep(
    client: Client,
    corpus: Corpus,
    vocabulary: Vocabulary | None,
    n_features: int,
    *,
    most_bytes: float | None = None,
    on_progress: Callable[[str, Counts], None] | None = None,
) -> Iterator[Kept]:
    """Read all shards on the workers, and keep their documents there until the end of the block.

    Time O(documents); 12 bytes of a worker's memory for each distinct word of a document, and one
    set of d numbers a shard here. Privacy: workers hold raw documents, as they do while reading.

    Parameters
    ----------
    client : distributed.Client
    corpus : Corpus
    vocabulary : Vocabulary or None
        None for counts.
    n_features : int
        Columns that all shards must have.
    most_bytes : float, optional
        What may be kept on all workers together, `MOST_KEPT` of their memory limits by default;
        with more, documents are read again whenever they are needed.
    on_progress : callable of (str, Counts), optional
        Called as shards were read.

    Raises
    ------
    ClusterError, InvalidDocumentsError, SourceError
        As `streamlda.scaleout.learn`.
    """
    run = Run(client)
    limit = memory_for_documents(client) if most_bytes is None else most_bytes
    words = run.given(vocabulary)
    leaves = [
        run.task("keep", kept_of, shard, run.given(value), words, n_features)
        for shard, value in zip(corpus.shards, corpus.values, strict=True)
    ]
    kept = run.start(leaves)
    try:
        try:
            found = _found(
                run, [run.task("found", _second, one) for one in kept], limit, on_progress
            )
            batches = tuple(run.task("batch", _first, one) for one in kept)
            # Shards that were read have no files any more.
            shards = tuple(Shard(shard.name) for shard in corpus.shards)
            made = Kept(run, Corpus(shards, batches), None, found, True, kept)
        except _TooLargeError:
            run.release(kept)
            again = [
                run.task("found", found_of, shard, run.given(value), words, n_features)
                for shard, value in zip(corpus.shards, corpus.values, strict=True)
            ]
            found = _found(run, again, float("inf"), on_progress)
            made = Kept(run, corpus, vocabulary, found, False, kept)
        yield made
    finally:
        run.release(kept)


class _TooLargeError(Exception):
    """Documents that do not fit; never leaves this module."""


def _found(
    run: Run,
    parts: Sequence[Any],
    limit: float,
    on_progress: Callable[[str, Counts], None] | None,
) -> Found:
    met: list[tuple[Counts, int]] = []

    def report(part: tuple[Counts, int]) -> None:
        met.append(part)
        if on_progress is not None:
            on_progress("reading", added([counts for counts, _ in met]))
        if sum(nbytes for _, nbytes in met) > limit:
            raise _TooLargeError

    reports = [run.task("met", _small, part) for part in parts]
    found: Found = run.compute(run.tree("merge", together, parts), reports, report)
    return found


def memory_for_documents(client: Client) -> float:
    """Return the bytes that documents may take on all workers; infinite if these have no limit."""
    answers: Any = client.run(_memory_limit)
    limits = [float("inf") if limit is None else limit for limit in answers.values()]
    return float(MOST_KEPT * sum(limits))


def _memory_limit(dask_worker: Any) -> int | None:
    limit: int | None = dask_worker.memory_manager.memory_limit
    return limit


def kept_of(
    shard: Shard, value: Any, vocabulary: Vocabulary | None, n_features: int
) -> tuple[DocumentBatch, Found]:
    """Return the usable documents of a shard, and what was met. A task; pure.

    Raises
    ------
    InvalidDocumentsError
        If the shard has other columns than `n_features`, or counts cannot be used.
    SourceError
        If a file cannot be read.
    """
    counts, tokens, skipped, batches = Counts(), 0, 0, [_no_documents(n_features)]
    with told(shard):
        for batch in _batches(shard, value, vocabulary, counts):
            if batch.n_features != n_features:
                raise InvalidDocumentsError(
                    "documents must have a column for each word of the vocabulary, got "
                    f"n_features={batch.n_features} expected={n_features}; give all partitions "
                    "the same columns"
                )
            tokens += int(batch.lengths.sum())
            batches.append(batch.where(batch.usable))
            skipped += batch.n_documents - batches[-1].n_documents
        whole = DocumentBatch.joined(batches)
    shares = whole.counts / np.repeat(whole.lengths, np.diff(whole.row_pointers))
    return whole, Found(
        usable={shard.name: whole.n_documents},
        counts=counts,
        tokens=tokens,
        skipped=skipped,
        nbytes=whole.counts.nbytes + whole.word_ids.nbytes + whole.row_pointers.nbytes,
        frequencies=np.bincount(whole.word_ids, shares, minlength=n_features).astype(np.float64),
    )


def found_of(shard: Shard, value: Any, vocabulary: Vocabulary | None, n_features: int) -> Found:
    """Return what `kept_of` says of a shard, without its documents. A task; pure."""
    return kept_of(shard, value, vocabulary, n_features)[1]


def together(one: Found, *others: Found) -> Found:
    """Return what is known of disjoint sets of shards; none of them is changed."""
    parts = [one, *others]
    return Found(
        usable={name: number for part in parts for name, number in part.usable.items()},
        counts=added([part.counts for part in parts]),
        tokens=sum(part.tokens for part in parts),
        skipped=sum(part.skipped for part in parts),
        nbytes=sum(part.nbytes for part in parts),
        frequencies=np.sum([part.frequencies for part in parts], axis=0),
    )


def joined(
    shards: list[tuple[Shard, int, int]], vocabulary: Vocabulary | None, *values: Any
) -> DocumentBatch:
    """Return the usable documents of some pieces as one batch. A task; pure.

    Raises
    ------
    InvalidDocumentsError
        If a shard has fewer documents than when they were counted.
    """
    batches = []
    for (shard, first, last), value in zip(shards, values, strict=True):
        at = 0
        with told(shard):
            for batch in _batches(shard, value, vocabulary, Counts()):
                part = batch.where(batch.usable)
                batches.append(part.rows(max(first - at, 0), max(last - at, 0)))
                at += part.n_documents
                if at >= last:
                    break
            if at < last:
                raise InvalidDocumentsError(
                    "a shard must have the documents that were counted in it, got "
                    f"documents={at} expected at least={last}; let it come out the same each time"
                )
    # What is kept must not keep the whole shard alive that it is a part of.
    whole = DocumentBatch.joined(batches)
    return whole.copy() if len(batches) == 1 else whole


def _batches(
    shard: Shard, value: Any, vocabulary: Vocabulary | None, counts: Counts
) -> Iterator[DocumentBatch]:
    for rows in rows_of(shard, value):
        with limit_threads(1), one_blas_thread():
            batch = rows.encoded(vocabulary, counts)
        yield batch


def _no_documents(n_features: int) -> DocumentBatch:
    return DocumentBatch(np.zeros(0), np.zeros(0, np.int32), np.zeros(1, np.int64), n_features)


def _first(pair: tuple[DocumentBatch, Found]) -> DocumentBatch:
    return pair[0]


def _second(pair: tuple[DocumentBatch, Found]) -> Found:
    return pair[1]


def _small(found: Found) -> tuple[Counts, int]:
    return found.counts, found.nbytes
