"""Documents that stand for a stream: those of every d-th token, or every d-th document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.kernels.words import add_words, drop_undue, keep_due
from streamlda.text.columns import ColumnChange
from streamlda.utils.arrays import Arrays, State

Array = NDArray[np.float64]


class Sample:
    """The documents that hold every d-th token of a stream, or every d-th document.

    At most `most`, and `entries` counts, or one document: when there are more, d doubles. Which
    documents they are depends on the stream alone, not on how it was cut into batches. A sample by
    tokens counts each word in all documents as well. Memory: 12 bytes a count, 24 a document, 8 a
    word counted; a state of every d-th document keeps which words these have, in 4.
    """

    def __init__(self, most: int, entries: int, *, of_tokens: bool = True) -> None:
        self.most, self.entries, self.of_tokens = most, entries, of_tokens
        #: d, and the tokens or documents so far.
        self.distance, self.end = 1.0, 0.0
        #: Tokens of each word so far, (V,), empty before the first document; of tokens only.
        self.totals = np.zeros(0)
        #: Tokens of words that left the vocabulary, among those so far.
        self.forgotten = 0.0
        #: Documents that are kept, at the beginning of the arrays, which may have room for more.
        self._held, self._n_features = 0, 0
        self._counts, self._word_ids = np.empty(0), np.empty(0, dtype=np.int32)
        #: Where the counts of each begin; the place that it begins at, and how many it has, (n, 2).
        self._pointers, self._places = np.zeros(1, dtype=np.int64), np.empty((0, 2))

    @classmethod
    def consecutive(cls, samples: Sequence[Sample]) -> Sample:
        """Return the sample of a stream of those of its parts, each begun at the end of the last.

        It is that of the whole stream. The parts are not changed.
        """
        first, last = samples[0], samples[-1]
        made = cls(first.most, first.entries, of_tokens=first.of_tokens)
        made.end, made.distance = last.end, max(sample.distance for sample in samples)
        made._take(samples)
        made._thin()
        return made

    def add(self, batch: DocumentBatch) -> None:
        """Take what is due from the next documents of the stream."""
        if self.of_tokens:
            if not len(self.totals):
                self.totals = np.zeros(batch.n_features)
            add_words(batch.counts, batch.word_ids, self.totals)
        sizes, end, room = self._sizes(batch), np.array([self.end]), self.entries
        given = batch.counts, batch.word_ids, batch.row_pointers, sizes
        while True:
            self._make_room(room)
            limits = self.distance, self._held, self.most, self.entries
            found = keep_due(*given, *limits, end, *self._arrays)
            if found >= 0:
                break
            if found == -1:
                self.distance *= 2
                self._drop()
            else:
                room = -1 - found
        self._held, self._n_features, self.end = found, batch.n_features, float(end[0])

    def merge(self, other: Sample) -> None:
        """Take the documents of another stream, of which the sample is not changed.

        Several are one, to the last bit, whatever the order and grouping.
        """
        self.end += other.end
        self.distance = max(self.distance, other.distance)
        self._take([self, other])
        self._thin()
        if self._held:
            documents, places = self._documents(), self._places[: self._held]
            order = _by_place(documents, places[:, 0])
            self._hold(documents.take(order), places[order])

    def change_words(self, change: ColumnChange) -> None:
        """Forget words that left; documents keep their places.

        Of a sample by tokens, those without any go. Another has no tokens in its state.
        """
        if len(self.totals):
            self.forgotten += float(self.totals[change.replaced].sum())
            self.totals = change.rows(self.totals)
        if self._held:
            documents = change.documents(self._documents())
            usable = np.flatnonzero(documents.known | (not self.of_tokens))
            self._hold(documents.take(usable), self._places[usable])

    def _take(self, samples: Sequence[Sample]) -> None:
        """Hold the documents of some samples, this one or others, and what they counted."""
        totals, forgotten = np.zeros(0), 0.0
        for sample in samples:
            totals, forgotten = _sum(totals, sample.totals), forgotten + sample.forgotten
        self.totals, self.forgotten = totals, forgotten
        kept = [sample for sample in samples if sample._held]
        if kept:
            # Not as batches, whose checks take longer than all else where many parts are joined.
            counts, word_ids, pointers, places = zip(*(one._own for one in kept), strict=True)
            before = np.cumsum([0, *map(len, counts[:-1])])
            ends = [own[1:] + n for own, n in zip(pointers, before, strict=True)]
            self._counts, self._word_ids = np.concatenate(counts), np.concatenate(word_ids)
            self._pointers = np.concatenate([np.zeros(1, dtype=np.int64), *ends])
            self._places = np.concatenate(places)
            self._held, self._n_features = len(self._places), kept[-1]._n_features

    def _hold(self, documents: DocumentBatch, places: Array) -> None:
        """Keep documents in place of all before."""
        self._held, self._n_features = documents.n_documents, documents.n_features
        self._counts, self._word_ids = documents.counts.copy(), documents.word_ids.copy()
        self._pointers, self._places = documents.row_pointers.copy(), places.copy()

    @property
    def _arrays(self) -> tuple[NDArray[Any], ...]:
        """What `streamlda.kernels.words` fills."""
        return self._counts, self._word_ids, self._pointers, self._places

    def _make_room(self, entries: int) -> None:
        """Let the arrays have room for as many documents as there may be, and some counts."""
        if len(self._places) < self.most or len(self._counts) < entries:
            lengths = entries, entries, self.most + 1, self.most
            roomy = map(_with_room, self._arrays, lengths)
            self._counts, self._word_ids, self._pointers, self._places = roomy

    def __getstate__(self) -> dict[str, Any]:
        """Return what a pickle holds: no room for more."""
        names = "_counts", "_word_ids", "_pointers", "_places"
        return {**vars(self), **dict(zip(names, self._own, strict=True))}

    @property
    def _own(self) -> tuple[NDArray[Any], ...]:
        """The arrays of the documents that are kept, without room for more."""
        entries = self._pointers[self._held]
        documents = self._pointers[: self._held + 1], self._places[: self._held]
        return self._counts[:entries], self._word_ids[:entries], *documents

    def _documents(self) -> DocumentBatch:
        """Return a copy of the documents, one at least."""
        counts, word_ids, pointers, _ = (array.copy() for array in self._own)
        return DocumentBatch(counts, word_ids, pointers, self._n_features, integral=False)

    def _thin(self) -> None:
        """Leave out what is due no more, and what is too much."""
        self._drop()
        while self._held > 1 and (
            self._held > self.most or self._pointers[self._held] > self.entries
        ):
            self.distance *= 2
            self._drop()

    def _drop(self) -> None:
        """Leave out what is due no more."""
        self._held = drop_undue(self.distance, self._held, *self._arrays)

    def _sizes(self, batch: DocumentBatch) -> Array:
        return batch.lengths if self.of_tokens else np.ones(batch.n_documents)

    def _hits(self, starts: Array, sizes: Array) -> Array:
        """Return how many places at distance d each document holds."""
        found: Array = np.ceil((starts + sizes) / self.distance) - np.ceil(starts / self.distance)
        return found

    def __len__(self) -> int:
        return self._held

    def drawn(self) -> Drawn:
        """Return the documents, one at least."""
        starts, sizes = self._places[: self._held].T.copy()
        totals = self.totals if self.of_tokens else None
        return Drawn(self._documents(), self._hits(starts, sizes), starts, totals)

    def state(self) -> State:
        """Return all that is needed to continue but the limits."""
        arrays: Arrays = {}
        if self._held:
            drawn = self.drawn()
            arrays = {**drawn.documents.arrays, "starts": drawn.starts}
            if self.forgotten:
                arrays["sizes"] = self._places[: self._held, 1].copy()
            if self.of_tokens:
                arrays["totals"] = self.totals.copy()
            else:
                del arrays["counts"]
        return arrays, {"distance": self.distance, "end": self.end, "forgotten": self.forgotten}

    def restore(self, arrays: Arrays, values: Mapping[str, Any], n_features: int) -> None:
        """Take back what `state` returned."""
        self.distance, self.end = float(values["distance"]), float(values["end"])
        self.forgotten = float(values["forgotten"])
        if arrays:
            own = {"counts": np.ones(len(arrays["word_ids"])), **arrays}
            starts, sizes = np.array(own.pop("starts")), own.pop("sizes", None)
            self.totals = np.array(own.pop("totals", np.zeros(0)))
            documents = DocumentBatch(**own, n_features=n_features, integral=False)
            sizes = self._sizes(documents) if sizes is None else np.array(sizes)
            self._hold(documents, np.stack([starts, sizes], axis=1))


def _by_place(documents: DocumentBatch, starts: Array) -> NDArray[np.intp]:
    """Return the order of places, and by what is in documents where two have the same."""
    owner = np.repeat(np.arange(len(documents)), np.diff(documents.row_pointers))
    # A word has a number of its own (Knuth), so that sums tell documents apart by their content;
    # counts come last, for a state of every d-th document has none.
    numbers = documents.word_ids.astype(np.uint64) * np.uint64(2654435761) % np.uint64(2**32)
    words = np.bincount(owner, numbers, len(documents))
    counts = np.bincount(owner, numbers * documents.counts, len(documents))
    return np.lexsort((counts, words, starts))


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


def _with_room(array: NDArray[Any], length: int) -> NDArray[Any]:
    """Return an array of some rows at least that begins with these."""
    if length <= len(array):
        return array
    larger = np.empty((length, *array.shape[1:]), dtype=array.dtype)
    larger[: len(array)] = array
    return larger
