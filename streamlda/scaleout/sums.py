"""Sums of documents in stages: the protocol of a fit on many workers.

A stage says what is summed next: runs of documents (`spans`), by what. A worker sums any span of
it, from documents that it reads or keeps (`FoldedStage.fold`). Sums of disjoint spans merge, in any
order and in any tree; the sums of no document are the identity. The driver makes the next stage of
them.

Documents of 3 known words or more are numbered through all shards, in order. Shorter ones go with
the number after them, or the last of their shard. Stages and sums are pickled as they are.
"""

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.engine.measures import Measures
from streamlda.refinement.choice import hold_out
from streamlda.refinement.stepwise_em import StepwiseEM
from streamlda.scaleout.faults import check, fault
from streamlda.scaleout.row_files import borders_of
from streamlda.scaleout.shards import Shard, rows_of, task_of
from streamlda.spectral.moments import Moments
from streamlda.stream.counts import RecordCounts
from streamlda.stream.pipeline import find_cut
from streamlda.text.encoding import EncodedTexts
from streamlda.text.vocabulary import Vocabulary
from streamlda.utils.arrays import Tree

Span = tuple[int, int]

#: Documents, and which of them have a number.
Numbered = tuple[DocumentBatch, NDArray[np.bool_]]

#: Returns documents from a number to before another, in blocks.
Read = Callable[[int, int], Iterator[DocumentBatch]]


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
    spans = join_spans(span for part in every for span in part.spans)
    parts = sorted((p for part in every for p in part.parts), key=lambda found: found[0])
    return Sums(one.stage_id, spans, arrays, measures, tuple(parts))


def join_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
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


def check_whole(stage: "Stage", sums: Sums) -> None:
    """Raise `InvalidDocumentsError` unless every document of a stage was summed."""
    same, wanted = sums.stage_id == stage.stage_id, join_spans(stage.spans)
    check(same, "stage", stages=f"{stage.stage_id},{sums.stage_id}")
    shown = [",".join(f"{a}-{b}" for a, b in each[:5]) for each in (sums.spans, wanted)]
    check(sums.spans == wanted, "missing", spans=shown[0], expected=shown[1])


@dataclass(frozen=True, eq=False, kw_only=True)
class Stage:
    """Base of stages."""

    spans: tuple[Span, ...]
    #: Number of the first document of each shard, and that of all documents.
    starts: tuple[int, ...] = field(default=(), repr=False)
    #: Random, so that sums of this stage are told from those of any other, in any fit.
    stage_id: str = field(default_factory=partial(secrets.token_hex, 8))

    def span_of(self, shard: int) -> Span:
        """Return the span of a shard that is summed, which may be empty."""
        begin, end = self.starts[shard], self.starts[shard + 1]
        found = ((max(a, begin), min(b, end)) for a, b in self.spans)
        return next((span for span in found if span[0] < span[1]), (begin, begin))


@dataclass(frozen=True, eq=False, kw_only=True)
class Census(Stage):
    """The first stage, whose spans number shards: counts of the records of each."""

    n_features: int
    #: What texts are read by.
    vocabulary: Vocabulary | None = field(default=None, repr=False)
    #: Whether documents of one and two words are learned.
    learns_short: bool = True
    #: Whether every record has a row and a number, which is a slot of a private stream.
    slots: bool = False

    def batches(self, shard: Shard, value: Any, counts: RecordCounts) -> Iterator[Numbered]:
        """Read a shard, and yield its rows as counts; with slots a blank one for no document."""
        for found in rows_of(shard, value):
            if isinstance(found, DocumentBatch):
                counts.records += len(found)
                counts.documents += len(found)
                yield self._count(EncodedTexts(found, int(found.lengths.sum()), 0), counts)
                continue
            if self.vocabulary is None:
                raise fault("no words", vocabulary=None)
            counts.add_batch(found)
            texts = [text or "" for text in found.texts] if self.slots else found.documents
            start, blank = 0, len(texts) - found.n_documents
            while start < len(texts):
                stop = find_cut([(text, None, None) for text in texts], start, len(texts))
                yield self._count(self.vocabulary.encode(texts[start:stop]), counts, blank)
                start, blank = stop, 0

    def _count(self, texts: EncodedTexts, counts: RecordCounts, blank: int = 0) -> Numbered:
        batch, expected = texts.batch, self.n_features
        check(batch.n_features == expected, "words", n_features=batch.n_features, expected=expected)
        counts.add_encoded(texts, len(batch) - blank, learns_short=self.learns_short)
        return batch, np.ones(len(batch), np.bool_) if self.slots else batch.usable

    def count_numbered(self, counts: RecordCounts) -> int:
        """Return how many documents have a number."""
        return counts.records if self.slots else counts.documents - counts.short


class FoldedStage(Stage, ABC):
    """Base of stages that sum the counts of documents which were read before."""

    @abstractmethod
    def fold(self, span: Span, read: Read) -> Sums:
        """Sum the documents of a span, which `read` returns in blocks by their numbers."""

    def sums(self, shard: int, numbered: int, read: Read) -> Sums:
        """Sum the documents of a shard that are in the stage; `read` takes numbers in the shard."""
        (begin, end), (first, last) = self.starts[shard : shard + 2], self.span_of(shard)
        with task_of(Shard(f"shard {shard}")):
            check(numbered == end - begin, "documents", documents=numbered, expected=end - begin)
            if first == last:
                return Sums(self.stage_id)
            return self.fold((first, last), lambda a, b: read(a - begin, b - begin))


@dataclass(frozen=True, eq=False, kw_only=True)
class Plan(FoldedStage):
    """Sums through a projection, shape (V, m): 8 (3 V + V m + V t + 2 t^2 + 2 t^3) bytes."""

    whitening: NDArray[np.float64] = field(repr=False)
    #: Triple columns, and documents of the round before these.
    columns: int
    before: int = 0

    def fold(self, span: Span, read: Read) -> Sums:
        """Sum documents, dealt to two halves by their number; time O(nnz m + t^3 / 3) each."""
        moments = Moments(self.whitening, self.columns)
        moments.documents = before = self.before + span[0] - self.spans[0][0]
        for batch in read(*span):
            moments.add(batch)
        moments.documents -= before
        return Sums(self.stage_id, (span,), moments.state())


class Rows(FoldedStage):
    """The documents themselves."""

    def fold(self, span: Span, read: Read) -> Sums:
        """Return the documents as one batch."""
        return Sums(self.stage_id, (span,), parts=((span, DocumentBatch.joined([*read(*span)])),))


@dataclass(frozen=True, eq=False, kw_only=True)
class Samples(FoldedStage):
    """Word frequencies, the samples that one process takes, and the documents of some numbers.

    Before each span there are as many documents and tokens that are learned as `begins` say.
    """

    n_features: int
    learns_short: bool
    begins: Mapping[int, tuple[int, float]] = field(repr=False)
    held_out: NDArray[np.int64] = field(repr=False)

    def fold(self, span: Span, read: Read) -> Sums:
        """Return the samples of a shard, and the sum of word frequencies over its documents."""
        measures, frequencies = Measures(*self.begins[span[0]]), np.zeros(self.n_features)
        number, held_out = span[0], list[DocumentBatch]()
        for batch in read(*span):
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
    state: Tree = field(repr=False)
    #: Numbers, from 1, of documents that are held out.
    held_out: NDArray[np.int64] = field(repr=False)

    def fold(self, span: Span, read: Read) -> Sums:
        """Take the steps of one part over its documents; time O(nnz K) each."""
        refinement = StepwiseEM.from_state(self.state)
        before = refinement.documents
        for first, last in cut(span, self.steps):
            rows = DocumentBatch.joined([*read(first, last)])
            known, _ = hold_out(rows, first, self.held_out)
            refinement.learn(known.where(known.nonempty))
        found = np.array(refinement.documents - before)
        arrays = {"totals": refinement.totals, "documents": found}
        return Sums(self.stage_id, (span,), arrays)


def cut(span: Span, parts: int) -> list[Span]:
    """Cut a span into this many, of about equal length."""
    ends = [span[0] + (span[1] - span[0]) * part // parts for part in range(parts + 1)]
    return [*pairwise(ends)]


class Documents:
    """Numbered documents of all shards, for any engine that sums shards; shorter ones beside."""

    def __init__(
        self, census: Census, counts: Sequence[RecordCounts], sum_stage: Callable[[Stage], Sums]
    ) -> None:
        self.census, self.met, self._summed = census, counts, sum_stage
        self.starts = (*accumulate(map(census.count_numbered, counts), initial=0),)
        self.counts = join_counts(counts)

    @property
    def total(self) -> int:
        """Numbered documents of all shards."""
        return self.starts[-1]

    @property
    def spans(self) -> list[Span]:
        """Numbers of the documents of each shard that has some."""
        return [*pairwise(sorted({*self.starts}))]

    def sum_stage(self, kind: type[Stage], *spans: Span, **how: Any) -> Sums:
        """Return the sums of a stage over these documents."""
        stage = kind(spans=spans, starts=self.starts, **how)
        found = self._summed(stage)
        check_whole(stage, found)
        return found

    def rows(self, first: int, last: int) -> DocumentBatch:
        """Return documents here."""
        found = self.sum_stage(Rows, (first, min(last, self.total)))
        return DocumentBatch.joined([batch for _, batch in found.parts])

    def moments(self, first: int, last: int, before: Moments) -> Moments:
        """Return the sums of documents `first` to `last`, which follow those of others."""
        how = {"whitening": before.whitening, "columns": before.triple_columns}
        found = self.sum_stage(Plan, (first, last), before=before.documents, **how).arrays
        tally = found["tally"].copy()
        # The number of triple columns is no sum.
        tally[2] = before.triple_columns
        return Moments.from_state(before.whitening, {**found, "tally": tally})

    def samples(self, held_out: NDArray[np.int64]) -> Sums:
        """Return the samples that one process takes, word frequencies, and those held out."""
        # Of shards that begin with the same number, the last one has documents.
        before = accumulate(self.met, lambda *own: join_counts(own), initial=RecordCounts())
        begins = {
            start: (met.documents - met.short + met.few_words, met.tokens - met.unseen_tokens)
            for start, met in zip(self.starts, before, strict=True)
        }
        how = {"n_features": self.census.n_features, "learns_short": self.census.learns_short}
        return self.sum_stage(Samples, *self.spans, begins=begins, held_out=held_out, **how)


def join_counts(parts: Iterable[RecordCounts]) -> RecordCounts:
    """Return the counts of several shards."""
    counts = RecordCounts()
    for part in parts:
        counts.update(part)
    return counts


def sums_of(documents: Any, stage: Stage, *, shard: int) -> Sums:
    """Return the sums of the documents of a shard through a stage.

    Parameters
    ----------
    documents : matrix of counts or DocumentBatch
        Of texts, what `Vocabulary.encode` returns.
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
        If the shard has other documents than when it was first summed, or texts.

    Notes
    -----
    Time O(nnz m + t^3 / 3) a document, O(nnz K) in a refinement, in one thread. Equal documents of
    an equal shard give equal bits.
    """
    held = isinstance(documents, DocumentBatch)
    batch = documents if held else DocumentBatch.from_matrix(documents)
    if isinstance(stage, Census):
        own, counts, span = Shard(f"shard {shard}"), RecordCounts(), (shard, shard + 1)
        with task_of(own):
            for _ in stage.batches(own, batch, counts):
                pass
        return Sums(stage.stage_id, (span,), parts=((span, counts),))
    assert isinstance(stage, FoldedStage)
    borders = borders_of(batch.usable)
    return stage.sums(shard, len(borders) - 1, lambda a, b: batch.rows(*borders[[a, b]]).blocks())
