"""Documents that a model shows beside its topics: those of a sample that are most of each topic.

Topics move while a stream is learned, so documents cannot be chosen when they come. A uniform
sample of all documents is kept, and the topics as published choose from it. Which documents are in
the sample depends on their numbers in the stream and on the seed alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.model.topic_model import TopicModel
from streamlda.text.columns import ColumnChange
from streamlda.utils.arrays import Arrays, named, with_prefix

#: Documents in the sample for each one that is shown.
CANDIDATES = 50

#: Characters that are kept of a text, or of an id.
TEXT_CHARACTERS = 1000


class CandidateDocuments:
    """A uniform sample of the documents of at least 3 tokens: `most` are kept for each topic.

    Memory: `CANDIDATES` * `most` * `n_components` documents, twice for a while: 12 bytes each
    distinct word, the id and, with `texts`, the first 1000 characters of the text.
    """

    def __init__(self, most: int, n_components: int, seed: int, *, texts: bool = False) -> None:
        self._most, self._size = most, CANDIDATES * most * n_components
        self._seed, self._with_text = seed, texts
        self._met = 0
        # Documents with a number below it are in the sample; all of them at first.
        self._limit = 2**63 - 1
        self._parts: list[DocumentBatch] = []
        self._numbers: list[NDArray[np.int64]] = []
        self._entries: list[dict[str, str]] = []

    def add(self, batch: DocumentBatch, ids: Sequence[str], texts: Sequence[str]) -> None:
        """Take the documents that are in the sample. Time O(documents + counts taken)."""
        places = np.arange(self._met, self._met + batch.n_documents, dtype=np.uint64)
        self._met += batch.n_documents
        numbers = shuffled(places, self._seed)
        taken = batch.usable & (numbers < self._limit)
        if not taken.any():
            return
        self._parts.append(batch.where(taken).copy())
        self._numbers.append(numbers[taken])
        for n in np.flatnonzero(taken).tolist():
            text = {"text": _beginning(texts[n])} if self._with_text else {}
            self._entries.append({"id": _beginning(ids[n]), **text})
        if len(self._entries) > 2 * self._size:
            self._trim()

    def change_words(self, change: ColumnChange) -> None:
        """Forget words that left."""
        self._parts = [change.documents(part) for part in self._parts]

    def _trim(self) -> None:
        """Keep the documents with the lowest numbers, in their order."""
        if not self._parts:
            return
        batch, numbers = DocumentBatch.joined(self._parts), np.concatenate(self._numbers)
        if len(numbers) > self._size:
            self._limit = int(np.partition(numbers, self._size)[self._size])
            kept = numbers < self._limit
            self._entries = [self._entries[n] for n in np.flatnonzero(kept).tolist()]
            batch, numbers = batch.where(kept), numbers[kept]
        self._parts, self._numbers = [batch], [numbers]

    def shown_by(self, model: TopicModel) -> list[list[dict[str, Any]]] | None:
        """Return the documents most of each topic, as `most_of_topics`; None without a sample.

        Time of inference over the sample, O(its counts * K) an iteration.
        """
        self._trim()
        if not self._parts:
            return None
        theta = model.transform(self._parts[0])
        return [
            [{**self._entries[n], "proportion": float(theta[n, k])} for n in rows]
            for k, rows in enumerate(most_of_topics(theta, self._most))
        ]

    def state(self) -> Arrays:
        """Return all that is needed to continue, copied."""
        self._trim()
        entries = json.dumps(self._entries).encode("ascii")
        found: Arrays = {
            "tally": np.array([self._met, self._limit], dtype=np.int64),
            "entries": np.frombuffer(entries, dtype=np.uint8),
        }
        if self._parts:
            rows = {name: array.copy() for name, array in self._parts[0].arrays.items()}
            found |= {"numbers": self._numbers[0].copy(), **with_prefix(rows, "rows.")}
        return found

    def restore(self, arrays: Mapping[str, NDArray[Any]], n_features: int) -> None:
        """Continue from what `state` returned."""
        self._met, self._limit = arrays["tally"].tolist()
        self._entries = json.loads(arrays["entries"].tobytes())
        if rows := named(arrays, "rows."):
            self._parts = [DocumentBatch(**rows, n_features=n_features, integral=False)]
            self._numbers = [arrays["numbers"]]


def most_of_topics(theta: NDArray[np.float64], n: int) -> list[list[int]]:
    """Return the rows with the n largest proportions of each topic, the largest first.

    Only of documents that have no more of another topic: of some topics there may be fewer than n,
    or none. Equal ones come in their order. Time O(documents * (K + log documents)).
    """
    largest = theta.argmax(axis=1)
    order = np.argsort(-theta.max(axis=1), kind="stable")
    return [order[largest[order] == k][:n].tolist() for k in range(theta.shape[1])]


def shuffled(places: NDArray[np.uint64], seed: int) -> NDArray[np.int64]:
    """Return a number below 2^63 for each place: the output of SplitMix64 (Steele et al., 2014)."""
    state = (places + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(seed)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: NDArray[np.int64] = ((state ^ (state >> np.uint64(31))) >> np.uint64(1)).astype(np.int64)
    return found


def _beginning(text: str) -> str:
    return text if len(text) <= TEXT_CHARACTERS else text[: TEXT_CHARACTERS - 1] + "…"
