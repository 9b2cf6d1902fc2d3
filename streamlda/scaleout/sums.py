"""Sums of documents in stages: the protocol of a fit on many workers.

A stage says what is summed next: runs of documents (`spans`), by what. A worker sums any span of
it, from documents that it reads or keeps (`Stage.fold`). Sums of disjoint spans merge, in any order
and in any tree; the sums of no document are the identity. The driver makes the next stage of them.

Documents of 3 known words or more are numbered through all shards, in order. Stages and sums are
pickled as they are.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.engine.measures import Measures
from streamlda.engine.settings import EngineSettings
from streamlda.scaleout.faults import check
from streamlda.scaleout.shards import Shard, batches_of, check_columns
from streamlda.spectral.moments import Moments
from streamlda.stream.counts import RecordCounts
from streamlda.stream.pipeline import Blocks
from streamlda.text.vocabulary import Vocabulary

Span = tuple[int, int]

#: Spans that a stage of sums is cut into, and the fewest and most documents of one: with 50 topics
#: of 8000 words a task takes 0.05 ms for a document, and its sums are 17 MB.
TASKS, LEAST_DOCUMENTS, MOST_DOCUMENTS = 64, 2500, 100_000

#: Bytes of sums that a task may have for each of its documents.
SUMS_BYTES = 2**14


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over some spans of a stage.

    `arrays` add up. `parts` are values of a span that the driver joins in the order of spans.
    """

    stage_id: str
    spans: tuple[Span, ...] = ()
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)
    counts: RecordCounts = field(default_factory=RecordCounts)
    parts: tuple[tuple[Span, Any], ...] = field(default=(), repr=False)


def merge(one: Sums, *others: Sums) -> Sums:
    """Return the sums of disjoint spans of one stage; none of them is changed.

    Parameters
    ----------
    one, *others : Sums
        Of one stage.

    Returns
    -------
    Sums

    Raises
    ------
    InvalidSettingError
        If a document is in two of them, or they are of different stages.

    Notes
    -----
    Equal trees give equal bits, others differ by rounding; private sums are whole numbers, and do
    not. Memory: one set of arrays.
    """
    every, arrays, counts = [one, *others], dict[str, NDArray[Any]](), RecordCounts()
    for part in every:
        check_same_stage(one.stage_id, part.stage_id)
        for name, array in part.arrays.items():
            if name in arrays:
                arrays[name] += array
            else:
                arrays[name] = array.copy()
        counts.update(part.counts)
    spans = joined_spans(span for part in every for span in part.spans)
    parts = sorted((p for part in every for p in part.parts), key=lambda found: found[0])
    return Sums(one.stage_id, spans, arrays, counts, tuple(parts))


def check_same_stage(one: str, other: str) -> None:
    """Refuse sums of another stage: they were taken from other topics, or clipped by others."""
    check(one == other, "stage", stages=f"{one},{other}")


def joined_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Return disjoint spans in order, neighbours as one."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        last = found[-1][1] if found else begin
        check(last <= begin, "twice", first=begin, last=last)
        if found and last == begin:
            found[-1] = found[-1][0], end
        else:
            found.append((begin, end))
    return tuple(found)


def check_whole(stage: Stage, found: Sums) -> None:
    """Raise `InvalidDocumentsError` unless every document of a stage was summed."""
    check_same_stage(stage.stage_id, found.stage_id)
    wanted = joined_spans(stage.spans)
    check(
        found.spans == wanted,
        "missing",
        spans=",".join(f"{a}-{b}" for a, b in found.spans[:5]),
        expected=",".join(f"{a}-{b}" for a, b in wanted[:5]),
    )


@dataclass(frozen=True, eq=False, kw_only=True)
class Stage:
    """Base of stages."""

    spans: tuple[Span, ...]
    #: Number of the first document of each shard, and that of all documents.
    starts: tuple[int, ...] = field(default=(), repr=False)
    vocabulary: Vocabulary | None = field(default=None, repr=False)
    #: Random, so that sums of this stage are told from those of any other, in any fit.
    stage_id: str = field(default_factory=partial(secrets.token_hex, 8))

    @property
    def kind(self) -> str:
        """A name for tasks."""
        return type(self).__name__.lower()

    def cuts(self) -> list[Span]:
        """Return the spans that are tasks, whatever the number of workers."""
        return [*self.spans]


def cut(span: Span, least: int) -> list[Span]:
    """Return equal parts of a span, of at least so many documents."""
    step = max(least, min(-(-(span[1] - span[0]) // TASKS), MOST_DOCUMENTS))
    return [(first, min(first + step, span[1])) for first in range(*span, step)]


def in_blocks(batches: Iterable[DocumentBatch]) -> Iterator[DocumentBatch]:
    """Yield documents in blocks that depend on them alone."""
    blocks = Blocks()
    for batch in batches:
        yield from blocks.add(batch)
    if blocks.waiting is not None:
        yield blocks.flush()


class FoldedStage(Stage, ABC):
    """Base of stages that sum the counts of documents which were read before."""

    @abstractmethod
    def fold(self, span: Span, batches: Iterable[DocumentBatch]) -> Sums:
        """Sum the documents of a span, in batches that depend on these documents alone."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan(FoldedStage):
    """Sums through a projection, shape (V, m): 8 (3 V + V m + V t + 2 t^2 + 2 t^3) bytes."""

    settings: EngineSettings
    whitening: NDArray[np.float64] = field(repr=False)

    def cuts(self) -> list[Span]:
        """Cut the span by its documents: sums of a task are small beside what it reads."""
        d, m = self.whitening.shape
        least = 8 * d * (m + self.settings.n_triple_columns) // SUMS_BYTES
        return cut(self.spans[0], max(LEAST_DOCUMENTS, least))

    def fold(self, span: Span, batches: Iterable[DocumentBatch]) -> Sums:
        """Sum documents, dealt to two halves by their number; time O(nnz m + t^3 / 3) each."""
        moments = Moments(self.whitening, self.settings.n_triple_columns)
        moments.documents = before = span[0] - self.spans[0][0]
        for batch in batches:
            moments.add(batch)
        moments.documents -= before
        arrays = moments.state()
        # The number of triple columns is no sum.
        arrays["tally"][2] = 0
        return Sums(self.stage_id, (span,), arrays)

    def moments(self, found: Sums) -> Moments:
        """Return the merged sums as an engine has them."""
        tally = found.arrays["tally"].copy()
        tally[2] = self.settings.n_triple_columns
        return Moments.from_state(self.whitening, {**found.arrays, "tally": tally})


class Rows(FoldedStage):
    """The documents themselves."""

    def fold(self, span: Span, batches: Iterable[DocumentBatch]) -> Sums:
        """Return the documents as one batch."""
        found = [*batches]
        parts = ((span, DocumentBatch.joined(found)),) if found else ()
        return Sums(self.stage_id, (span,), parts=parts)


@dataclass(frozen=True, eq=False, kw_only=True)
class Samples(FoldedStage):
    """The samples that one process takes; `tokens` are those before each span."""

    tokens: Mapping[int, float] = field(repr=False)

    def fold(self, span: Span, batches: Iterable[DocumentBatch]) -> Sums:
        """Return the samples of a shard."""
        measures = Measures(span[0], self.tokens[span[0]])
        for batch in batches:
            measures.add(batch)
        return Sums(self.stage_id, (span,), parts=((span, measures),))


@dataclass(frozen=True, slots=True)
class ShardContents:
    """Known of a shard that was read: usable documents and their tokens, among all documents.

    `short` has the numbers of the first documents that are too short.
    """

    usable: int
    tokens: float
    documents: int
    short: NDArray[np.int64]


@dataclass(frozen=True, eq=False, kw_only=True)
class Census(Stage):
    """The first stage, whose spans number shards: documents of each, and word frequencies."""

    n_features: int
    #: Documents of a warm-up: of as many it is noted which are too short.
    warmup: int
    #: Whether every record has a row, which is a slot of a private stream.
    slots: bool = False

    def read(
        self, number: int, shard: Shard, value: Any, keep: Callable[[DocumentBatch], object]
    ) -> Sums:
        """Read a shard once, give its usable rows or slots to `keep`; return what was met."""
        counts = RecordCounts()
        short = list[NDArray[np.int64]]()
        usable, tokens, frequencies = 0, 0.0, np.zeros(self.n_features)
        before = 0
        for batch in batches_of(shard, value, self.vocabulary, counts, slots=self.slots):
            check_columns(batch, self.n_features)
            if before < self.warmup:
                short.append(before + np.flatnonzero(~batch.usable))
            before += batch.n_documents
            part = batch if self.slots or batch.usable.all() else batch.where(batch.usable)
            fractions = part.counts / np.repeat(part.lengths, np.diff(part.row_pointers))
            frequencies += np.bincount(part.word_ids, fractions, minlength=self.n_features)
            usable, tokens = usable + part.n_documents, tokens + float(part.lengths.sum())
            keep(part)
        numbers = np.concatenate(short) if short else np.zeros(0, np.int64)
        about = ShardContents(usable, tokens, before, numbers)
        span = number, number + 1
        arrays = {"frequencies": frequencies}
        return Sums(self.stage_id, (span,), arrays, counts, ((span, about),))


class Contents:
    """All that is known of the documents once they were read."""

    def __init__(self, found: Sums) -> None:
        self.shards: list[ShardContents] = [part for _, part in found.parts]
        self.counts = found.counts
        self.frequencies = found.arrays["frequencies"]
        self.starts = (*accumulate((shard.usable for shard in self.shards), initial=0),)

    def warmup(self, most: int) -> int:
        """Return how many usable documents are among the first N."""
        left, used = most, 0
        for shard in self.shards:
            own = min(left, shard.documents)
            used += own - int(np.searchsorted(shard.short, own))
            left -= own
        return used or min(most, self.starts[-1])
