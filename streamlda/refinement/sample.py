"""Documents that stand for a stream: those of every d-th token, or every d-th document."""

from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.text.columns import ColumnChange
from streamlda.utils.arrays import Array, Tree


class SampledDocuments(NamedTuple):
    """Documents of a sample, and how many of its places each holds."""

    documents: DocumentBatch
    hits: Array

    def fewer(self, most: int) -> Self:
        """Return at most `most` of them, spread evenly over their places."""
        if self.documents.n_documents <= most:
            return self
        ends = np.cumsum(self.hits) * (max(1, most) / self.hits.sum())
        hits = np.diff(np.ceil(ends), prepend=0.0)
        chosen = hits > 0
        return type(self)(self.documents.where(chosen), hits[chosen])


class Sample:
    """The documents that hold every d-th token of a stream, or every d-th document.

    At most `most`, and `entries` counts, or one document: when there are more, d doubles. Which
    documents they are depends on the stream alone, not on how it was cut into batches. Every d-th
    document is kept without its counts. Memory: 4 bytes a word and those of its count, 24 a
    document; as much again while documents are joined.
    """

    def __init__(
        self, most: int, entries: int, *, of_tokens: bool = True, begin: float = 0.0
    ) -> None:
        self.most, self.entries, self.of_tokens = most, entries, of_tokens
        #: d, and the tokens or documents before this stream, and until now.
        self.distance, self.begin, self.end = 1.0, begin, begin
        #: Documents, and the places where each begins and ends, (n, 2); each part is longer than
        #: the next one.
        self._parts: list[tuple[DocumentBatch, Array]] = []

    def add(self, batch: DocumentBatch) -> None:
        """Take what is due from the next documents of the stream."""
        sizes = batch.lengths if self.of_tokens else np.ones(batch.n_documents)
        ends = np.cumsum(np.concatenate([[self.end], sizes]))
        places = np.stack([ends[:-1], ends[1:]], axis=1)
        self.end = float(ends[-1])
        due = np.flatnonzero(self._hits(places))
        if not len(due):
            return
        documents = batch.take(due)
        if not self.of_tokens:
            ones = np.ones(documents.n_entries, dtype=np.uint8)
            arrays = ones, documents.word_ids, documents.row_pointers
            documents = DocumentBatch(*arrays, n_features=documents.n_features)
        self._parts.append((documents, places[due]))
        while len(self._parts) > 1 and len(self._parts[-1][1]) >= len(self._parts[-2][1]):
            self._join(-2)
        self._thin()

    def merge(self, *others: Self) -> None:
        """Take the documents of other streams, of which the samples are not changed.

        Several are one, to the last bit, whatever the order and grouping.
        """
        self.end += sum(other.end - other.begin for other in others)
        self.distance = max(self.distance, *(other.distance for other in others))
        self._parts += [part for other in others for part in other._parts]
        if self._parts:
            self._join()
            self._drop()
            self._thin()
            documents, places = self._parts[0]
            # Of documents at one place, by what is in them.
            numbers = np.random.default_rng(0).random(documents.n_features)
            order = np.lexsort((documents.to_csr() @ numbers, places[:, 0]))
            self._parts = [(documents.take(order), places[order])]

    def change_words(self, change: ColumnChange) -> None:
        """Forget words that left, and documents without any other."""
        if self._parts:
            self._join()
            documents, places = self._parts[0]
            documents = change.documents(documents)
            self._parts = _where(documents, places, documents.nonempty)

    def _join(self, first: int = 0) -> None:
        """Make one of the parts from the `first` one on."""
        documents, places = zip(*self._parts[first:], strict=True)
        self._parts[first:] = [(DocumentBatch.joined(documents), np.concatenate(places))]

    def _thin(self) -> None:
        """Double the distance until documents are few enough."""
        while len(self) > 1 and (
            len(self) > self.most or sum(part.n_entries for part, _ in self._parts) > self.entries
        ):
            self.distance *= 2
            self._join()
            self._drop()

    def _drop(self) -> None:
        """Drop what is due no more of the only part."""
        documents, places = self._parts[0]
        self._parts = _where(documents, places, self._hits(places) > 0)

    def _hits(self, places: Array) -> Array:
        """Return how many places at distance d each document holds."""
        return np.diff(np.ceil(places / self.distance), axis=1)[:, 0]

    def __len__(self) -> int:
        return sum(len(places) for _, places in self._parts)

    def collect(self) -> SampledDocuments:
        """Return the documents, one at least."""
        self._join()
        documents, places = self._parts[0]
        return SampledDocuments(documents, self._hits(places))

    def state(self) -> Tree:
        """Return all that is needed to continue but the limits."""
        own: Tree = {"distance": self.distance, "end": self.end}
        if self._parts:
            self._join()
            documents, own["places"] = self._parts[0]
            own["kept"] = {"word_ids": documents.word_ids, "row_pointers": documents.row_pointers}
            own["kept"]["counts"] = documents.raw
        return own

    def restore(self, own: Tree, n_features: int) -> None:
        """Take back what `state` returned."""
        self.distance, self.end = float(own["distance"]), float(own["end"])
        if "kept" in own:
            documents = DocumentBatch(**own["kept"], n_features=n_features, integral=False)
            self._parts = [(documents.copy(), np.array(own["places"]))]


def _where(
    documents: DocumentBatch, places: Array, mask: NDArray[np.bool_]
) -> list[tuple[DocumentBatch, Array]]:
    """Return the chosen documents and their places as a part, if there are any."""
    return [(documents.where(mask), places[mask])] if mask.any() else []
