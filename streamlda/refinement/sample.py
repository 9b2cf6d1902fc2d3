"""Documents that stand for a stream: those of every d-th token, or every d-th document."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.arrays import Arrays, State
from streamlda.columns import ColumnChange
from streamlda.documents import DocumentBatch
from streamlda.kernels.words import add_words

Array = NDArray[np.float64]


#: Parts that a sample consists of at most: each is one batch that gave documents.
MOST_PARTS = 64


class _Part(NamedTuple):
    """Some documents of a sample, the place that each begins at, and how many places it has."""

    documents: DocumentBatch
    starts: Array
    sizes: Array

    def take(self, numbers: NDArray[np.intp]) -> _Part:
        return _Part(self.documents.take(numbers), self.starts[numbers], self.sizes[numbers])


class Sample:
    """The documents that hold every d-th token of a stream, or every d-th document.

    At most `most`, and `entries` counts, or one document: when there are more, d doubles. Which
    documents they are depends on the stream alone, not on how it was cut into batches. A sample by
    tokens counts each word in all documents as well. Memory: 12 bytes a count, 8 a word counted; a
    state of every d-th document keeps which words these have, in 4.
    """

    def __init__(self, most: int, entries: int, *, of_tokens: bool = True) -> None:
        self.most, self.entries, self.of_tokens = most, entries, of_tokens
        #: d, and the tokens or documents so far.
        self.distance, self.end = 1.0, 0.0
        #: Tokens of each word so far, (V,), empty before the first document; of tokens only.
        self.totals = np.zeros(0)
        #: Tokens of words that left the vocabulary, among those so far.
        self.forgotten = 0.0
        self._parts: list[_Part] = []
        #: Documents and counts of the parts.
        self._held = 0, 0

    @classmethod
    def consecutive(cls, samples: Sequence[Sample]) -> Sample:
        """Return the sample of a stream of those of its parts, each begun at the end of the last.

        It is that of the whole stream. The parts are not changed.
        """
        first, last = samples[0], samples[-1]
        made = cls(first.most, first.entries, of_tokens=first.of_tokens)
        made.end, made.distance = last.end, max(sample.distance for sample in samples)
        made._parts = [part for sample in samples for part in sample._parts]
        for sample in samples:
            made.totals = _sum(made.totals, sample.totals)
            made.forgotten += sample.forgotten
        made._drop()
        made._thin()
        return made

    def add(self, batch: DocumentBatch) -> None:
        """Take what is due from the next documents of the stream."""
        # One after the other, so that fractions do not depend on how the stream was cut.
        sizes = self._sizes(batch)
        places = np.cumsum(np.concatenate([[self.end], sizes]))
        self.end = float(places[-1])
        if self.of_tokens:
            if not len(self.totals):
                self.totals = np.zeros(batch.n_features)
            add_words(batch.counts, batch.word_ids, self.totals)
        pointers = batch.row_pointers
        while True:
            chosen = np.flatnonzero(np.diff(np.ceil(places / self.distance)))
            documents = len(self) + len(chosen)
            entries = self._held[1] + int((pointers[chosen + 1] - pointers[chosen]).sum())
            if not self._over(documents, entries):
                break
            self.distance *= 2
            self._drop()
        if len(chosen):
            self._parts.append(_Part(batch.take(chosen), places[chosen], sizes[chosen]))
            self._held = documents, entries
            if len(self._parts) > MOST_PARTS:
                self._join()

    def merge(self, other: Sample) -> None:
        """Take the documents of another stream, of which the sample is not changed.

        Several are one, to the last bit, whatever the order and grouping.
        """
        self.end += other.end
        self.totals = _sum(self.totals, other.totals)
        self.forgotten += other.forgotten
        self.distance = max(self.distance, other.distance)
        self._parts = [*self._parts, *other._parts]
        self._drop()
        self._thin()
        if self._parts:
            self._join()
            self._parts = [_by_place(self._parts[0])]

    def change_words(self, change: ColumnChange) -> None:
        """Forget words that left; documents keep their places.

        Of a sample by tokens, those of fewer than 3 go. Another has no tokens in its state.
        """
        if len(self.totals):
            self.forgotten += float(self.totals[change.replaced].sum())
            self.totals = change.rows(self.totals)
        kept = []
        for part in self._parts:
            documents = change.documents(part.documents)
            usable = np.flatnonzero(documents.usable | (not self.of_tokens))
            if len(usable):
                kept.append(part._replace(documents=documents).take(usable))
        self._parts = kept
        self._count()

    def _thin(self) -> None:
        while self._over(*self._held):
            self.distance *= 2
            self._drop()

    def _over(self, documents: int, entries: int) -> bool:
        return documents > 1 and (documents > self.most or entries > self.entries)

    def _count(self) -> None:
        parts = [part.documents for part in self._parts]
        self._held = sum(map(len, parts)), sum(len(part.counts) for part in parts)

    def _join(self) -> None:
        documents, starts, sizes = zip(*self._parts, strict=True)
        joined = DocumentBatch.joined(documents)
        self._parts = [_Part(joined, np.concatenate(starts), np.concatenate(sizes))]

    def _drop(self) -> None:
        """Leave out what is due no more."""
        kept = []
        for part in self._parts:
            chosen = np.flatnonzero(self._hits(part.starts, part.sizes))
            if len(chosen) == len(part.starts):
                kept.append(part)
            elif len(chosen):
                kept.append(part.take(chosen))
        self._parts = kept
        self._count()

    def _sizes(self, batch: DocumentBatch) -> Array:
        return batch.lengths if self.of_tokens else np.ones(batch.n_documents)

    def _hits(self, starts: Array, sizes: Array) -> Array:
        """Return how many places at distance d each document holds."""
        found: Array = np.ceil((starts + sizes) / self.distance) - np.ceil(starts / self.distance)
        return found

    def __len__(self) -> int:
        return self._held[0]

    def drawn(self) -> Drawn:
        """Return the documents, one at least."""
        if len(self._parts) > 1:
            self._join()
        batch, first, sizes = self._parts[0]
        # A state of before words were counted lacks those before it.
        counted = self.totals.sum() + self.forgotten
        all_counted = math.isclose(counted, self.end, rel_tol=1e-9)
        totals = self.totals if all_counted else None
        return Drawn(batch, self._hits(first, sizes), first, totals)

    def state(self) -> State:
        """Return all that is needed to go on but the limits."""
        arrays: Arrays = {}
        if self._parts:
            drawn = self.drawn()
            arrays = {**drawn.documents.arrays, "starts": drawn.starts}
            if self.forgotten:
                arrays["sizes"] = self._parts[0].sizes
            if self.of_tokens:
                arrays["totals"] = self.totals.copy()
            else:
                del arrays["counts"]
        values = {"distance": self.distance, "end": self.end}
        return arrays, values | ({"forgotten": self.forgotten} if self.forgotten else {})

    def restore(self, arrays: Arrays, values: Mapping[str, Any], n_features: int) -> None:
        """Take back what `state` returned."""
        self.distance, self.end = float(values["distance"]), float(values["end"])
        self.forgotten = float(values.get("forgotten", 0.0))
        if arrays:
            own = {"counts": np.ones(len(arrays["word_ids"])), **arrays}
            starts, sizes = np.array(own.pop("starts")), own.pop("sizes", None)
            self.totals = np.array(own.pop("totals", np.zeros(0)))
            documents = DocumentBatch(**own, n_features=n_features, integral=False)
            sizes = self._sizes(documents) if sizes is None else np.array(sizes)
            self._parts = [_Part(documents, starts, sizes)]
            self._count()


def _by_place(part: _Part) -> _Part:
    """Return documents by their places, and by what is in them where two have the same."""
    documents = part.documents
    owner = np.repeat(np.arange(len(documents)), np.diff(documents.row_pointers))
    # A word has a number of its own (Knuth), so that sums tell documents apart by their content;
    # counts come last, for a state of every d-th document has none.
    numbers = documents.word_ids.astype(np.uint64) * np.uint64(2654435761) % np.uint64(2**32)
    words = np.bincount(owner, numbers, len(documents))
    counts = np.bincount(owner, numbers * documents.counts, len(documents))
    order = np.lexsort((counts, words, part.starts))
    return part.take(order)


class Drawn(NamedTuple):
    """Documents of a sample, how many of its places each holds, and the place it begins at.

    With the tokens of each word in the whole stream, (V,), where they are known.
    """

    documents: DocumentBatch
    hits: Array
    starts: Array
    totals: Array | None = None

    def fewer(self, most: int) -> Drawn:
        """Return at most `most` of them, spread evenly over their places."""
        if self.documents.n_documents <= most:
            return self
        ends = np.cumsum(self.hits) * (max(1, most) / self.hits.sum())
        hits = np.ceil(ends) - np.ceil(np.concatenate([np.zeros(1), ends[:-1]]))
        chosen = hits > 0
        documents = self.documents.where(chosen)
        return Drawn(documents, hits[chosen], self.starts[chosen], self.totals)


def _sum(one: Array, other: Array) -> Array:
    """Return the sum of two counts of words, of which either may be empty."""
    if not (len(one) and len(other)):
        return one if len(one) else other.copy()
    found: Array = one + other
    return found
