"""Sums of documents in stages: the protocol of a fit on many workers.

A stage says what is summed next: runs of documents (`spans`), by what. A worker sums any span of
it, from documents that it reads or keeps (`FoldedStage.fold`). Sums of disjoint spans merge, in any
order and in any tree; the sums of no document are the identity. The driver makes the next stage of
them.

Documents of 3 known words or more are numbered through all shards, in order. Shorter ones go with
the number after them, or the last of their shard. Stages and sums are pickled as they are.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.engine.measures import Measures
from streamlda.refinement.choice import hold_out
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.scaleout.faults import check
from streamlda.scaleout.shards import Shard, batches_of
from streamlda.spectral.moments import Moments
from streamlda.stream.counts import RecordCounts
from streamlda.stream.pipeline import Blocks
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import State

Span = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums over some spans of a stage.

    `arrays` add up, and samples (`measures`) merge. `parts` are values of a span that the driver
    joins in the order of spans.
    """

    stage_id: str
    spans: tuple[Span, ...] = ()
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict, repr=False)
    measures: Measures | None = field(default=None, repr=False)
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
    every, arrays, measures = [one, *others], dict[str, NDArray[Any]](), None
    if samples := [part.measures for part in every if part.measures is not None]:
        measures = Measures()
        measures.merge(*samples)
    for part in every:
        check(part.stage_id == one.stage_id, "stage", stages=f"{one.stage_id},{part.stage_id}")
        for name, array in part.arrays.items():
            if name in arrays:
                arrays[name] += array
            else:
                arrays[name] = array.copy()
    spans = joined_spans(span for part in every for span in part.spans)
    parts = sorted((p for part in every for p in part.parts), key=lambda found: found[0])
    return Sums(one.stage_id, spans, arrays, measures, tuple(parts))


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
    same, wanted = found.stage_id == stage.stage_id, joined_spans(stage.spans)
    check(same, "stage", stages=f"{stage.stage_id},{found.stage_id}")
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

    def span_of(self, shard: int) -> Span:
        """Return the span of a shard that is summed, which may be empty."""
        begin, end = self.starts[shard], self.starts[shard + 1]
        found = ((max(a, begin), min(b, end)) for a, b in self.spans)
        return next((span for span in found if span[0] < span[1]), (begin, begin))


class Met(NamedTuple):
    """Contents of a shard: documents with a number, those that are learned, and their tokens."""

    numbered: int
    learned: int
    tokens: float
    counts: RecordCounts

    @classmethod
    def joined(cls, parts: Sequence[Met]) -> Met:
        """Return the contents of several shards."""
        counts = RecordCounts()
        for part in parts:
            counts.update(part.counts)
        numbered, learned, tokens, _ = zip(*parts, strict=True)
        return cls(sum(numbered), sum(learned), sum(tokens), counts)


@dataclass(frozen=True, eq=False, kw_only=True)
class Census(Stage):
    """The first stage, whose spans number shards: the documents of each."""

    n_features: int
    #: Whether documents of one and two words are learned.
    learns_short: bool = True
    #: Whether every record has a row and a number, which is a slot of a private stream.
    slots: bool = False

    def read(self, number: int, shard: Shard, value: Any, keep: Callable[..., object]) -> Sums:
        """Read a shard once, and give its rows to `keep`, with a mask of those with a number."""
        counts, numbered, learned, tokens = RecordCounts(), 0, 0, 0.0
        how: dict[str, Any] = {"slots": self.slots, "learns_short": self.learns_short}
        for batch in batches_of(shard, value, self.vocabulary, counts, **how):
            width = batch.n_features
            check(width == self.n_features, "words", n_features=width, expected=self.n_features)
            chosen = batch.known if self.learns_short else batch.usable
            learned, tokens = learned + int(chosen.sum()), tokens + batch.lengths[chosen].sum()
            mask = np.ones(len(batch), np.bool_) if self.slots else batch.usable
            numbered += int(mask.sum())
            keep(batch, mask)
        span = number, number + 1
        met = Met(numbered, learned, float(tokens), counts)
        return Sums(self.stage_id, (span,), parts=((span, met),))


class FoldedStage(Stage, ABC):
    """Base of stages that sum the counts of documents which were read before."""

    @abstractmethod
    def fold(self, span: Span, batches: Iterable[DocumentBatch]) -> Sums:
        """Sum the documents of a span, in batches that depend on these documents alone."""


def in_blocks(batches: Iterable[DocumentBatch]) -> Iterator[DocumentBatch]:
    """Yield documents in blocks that depend on them alone."""
    blocks = Blocks()
    for batch in batches:
        yield from blocks.add(batch)
    if blocks.waiting is not None:
        yield blocks.flush()


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan(FoldedStage):
    """Sums through a projection, shape (V, m): 8 (3 V + V m + V t + 2 t^2 + 2 t^3) bytes."""

    whitening: NDArray[np.float64] = field(repr=False)
    #: Triple columns, and documents of the round before these.
    columns: int
    before: int = 0

    def fold(self, span: Span, batches: Iterable[DocumentBatch]) -> Sums:
        """Sum documents, dealt to two halves by their number; time O(nnz m + t^3 / 3) each."""
        moments = Moments(self.whitening, self.columns)
        moments.documents = before = self.before + span[0] - self.spans[0][0]
        for batch in batches:
            moments.add(batch)
        moments.documents -= before
        return Sums(self.stage_id, (span,), moments.state())


class Rows(FoldedStage):
    """The documents themselves."""

    def fold(self, span: Span, batches: Iterable[DocumentBatch]) -> Sums:
        """Return the documents as one batch."""
        found = [*batches]
        parts = ((span, DocumentBatch.joined(found)),) if found else ()
        return Sums(self.stage_id, (span,), parts=parts)


@dataclass(frozen=True, eq=False, kw_only=True)
class Samples(FoldedStage):
    """Word frequencies, the samples that one process takes, and the documents of some numbers.

    Before each span there are as many documents and tokens that are learned as `begins` say.
    """

    n_features: int
    learns_short: bool
    begins: Mapping[int, tuple[int, float]] = field(repr=False)
    held_out: NDArray[np.int64] = field(repr=False)

    def fold(self, span: Span, batches: Iterable[DocumentBatch]) -> Sums:
        """Return the samples of a shard, and the sum of word frequencies over its documents."""
        measures, frequencies = Measures(*self.begins[span[0]]), np.zeros(self.n_features)
        number, held_out = span[0], list[DocumentBatch]()
        for batch in batches:
            measures.add(batch, short=self.learns_short)
            held_out.append(hold_out(batch, number, self.held_out)[1])
            number += int(batch.usable.sum())
            shares = batch.counts / np.repeat(batch.lengths, np.diff(batch.row_pointers))
            frequencies += np.bincount(batch.word_ids, shares, minlength=self.n_features)
        parts, arrays = ((span, DocumentBatch.joined(held_out)),), {"frequencies": frequencies}
        return Sums(self.stage_id, (span,), arrays, measures, parts)


@dataclass(frozen=True, eq=False, kw_only=True)
class Refine(FoldedStage):
    """A round: every part takes the next steps from the topics of all; 8 V K bytes."""

    steps: int
    state: State = field(repr=False)
    #: Numbers, from 1, of documents that are held out.
    held_out: NDArray[np.int64] = field(repr=False)

    def fold(self, span: Span, batches: Iterable[DocumentBatch]) -> Sums:
        """Take the steps of one part over its documents; time O(nnz K) each."""
        refinement = StepwiseEM.from_state(*self.state)
        before, number = refinement.documents, learned(span, self.held_out)
        ends = [number * step // self.steps for step in range(1, self.steps)]
        for batch in cut_at(ends, drop_held_out(span[0], batches, self.held_out)):
            refinement.learn(batch)
        found = np.array(refinement.documents - before)
        arrays = {"totals": refinement.totals, "documents": found}
        return Sums(self.stage_id, (span,), arrays)


def learned(span: Span, held_out: NDArray[np.int64]) -> int:
    """Return how many numbered documents of a span are not held out."""
    first, last = np.searchsorted(held_out, span, side="right")
    return int(span[1] - span[0] - last + first)


def drop_held_out(
    number: int, batches: Iterable[DocumentBatch], held_out: NDArray[np.int64]
) -> Iterator[DocumentBatch]:
    """Yield documents, which begin with this number, without those held out."""
    for batch in batches:
        yield hold_out(batch, number, held_out)[0]
        number += int(batch.usable.sum())


def cut_at(ends: Sequence[int], batches: Iterable[DocumentBatch]) -> Iterator[DocumentBatch]:
    """Yield runs of documents with tokens, cut behind these numbers; the last one is the rest."""
    waiting: list[DocumentBatch] = []
    at, left = 0, [*ends]
    for whole in batches:
        batch, low = whole.where(whole.known), 0
        reached = at + np.cumsum(batch.usable)
        while left and len(batch) and left[0] <= reached[-1]:
            high = int(np.searchsorted(reached, left.pop(0))) + 1
            yield DocumentBatch.joined([*waiting, batch.rows(low, high)])
            waiting, low = [], high
        waiting.append(batch.rows(low, len(batch)))
        at += int(batch.usable.sum())
    yield DocumentBatch.joined(waiting)
