"""Documents that a model shows beside its topics: documents of a sample with most of each topic.

Topics move while a stream is learned, so documents cannot be chosen when they come. A uniform
sample of all documents is kept, and the topics as published choose from it. Which documents are in
the sample depends on their numbers in the stream and on the seed alone.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import DocumentBatch
from streamlda.model.topic_model import TopicModel
from streamlda.text.columns import ColumnChange
from streamlda.utils.arrays import Tree

#: Documents in the sample for each one that is shown.
CANDIDATES = 50

#: Characters that are kept of a text, or of an id.
TEXT_CHARACTERS = 1000


class CandidateDocuments:
    """A uniform sample of the documents of at least 3 tokens: `most` are kept for each topic.

    Memory: `CANDIDATES` * `most` * `n_components` documents, twice while some are taken: 12 bytes
    each distinct word, the id and, with `texts`, the first 1000 characters of the text.
    """

    def __init__(self, most: int, n_components: int, seed: int, *, texts: bool = False) -> None:
        self._most, self._size = most, CANDIDATES * most * n_components
        self._seed, self._with_text = seed, texts
        self._met = 0
        # Documents with a number below it are in the sample; all of them at first.
        self._limit = 2**63 - 1
        self._entries: list[dict[str, str]] = []
        self._numbers = np.empty(0, np.int64)
        #: One batch of them, or none.
        self._rows: list[DocumentBatch] = []

    def add(self, batch: DocumentBatch, ids: Sequence[str], texts: Sequence[str]) -> None:
        """Take the documents that are in the sample. Time O(documents + sample)."""
        numbers = draw_ranks(self._met, batch.n_documents, self._seed)
        self._met += batch.n_documents
        taken = batch.usable & (numbers < self._limit)
        if not taken.any():
            return
        self._numbers = np.concatenate([self._numbers, numbers[taken]])
        rows = DocumentBatch.joined([*self._rows, batch.where(taken).copy()])
        for n in np.flatnonzero(taken).tolist():
            text = {"text": _shorten(texts[n])} if self._with_text else {}
            self._entries.append({"id": _shorten(ids[n]), **text})
        if len(self._numbers) > self._size:
            self._limit = int(np.partition(self._numbers, self._size)[self._size])
            kept = self._numbers < self._limit
            self._entries = [self._entries[n] for n in np.flatnonzero(kept).tolist()]
            rows, self._numbers = rows.where(kept), self._numbers[kept]
        self._rows = [rows]

    def change_words(self, change: ColumnChange) -> None:
        """Forget words that left."""
        self._rows = [change.documents(rows) for rows in self._rows]

    def show(self, model: TopicModel) -> list[list[dict[str, Any]]] | None:
        """Return the documents most of each topic, as `most_of_topics`; None without a sample."""
        if not self._rows:
            return None
        theta = model.transform(self._rows[0])
        return [
            [{**self._entries[n], "proportion": float(theta[n, k])} for n in rows]
            for k, rows in enumerate(most_of_topics(theta, self._most))
        ]

    def state(self) -> Tree:
        """Return all that is needed to continue, copied."""
        entries = np.frombuffer(json.dumps(self._entries).encode("ascii"), dtype=np.uint8)
        found: Tree = {"met": self._met, "limit": self._limit, "entries": entries}
        for rows in self._rows:
            found["rows"] = {name: array.copy() for name, array in rows.arrays.items()}
            found["numbers"] = self._numbers
        return found

    def restore(self, own: Tree, n_features: int) -> None:
        """Continue from what `state` returned."""
        self._met, self._limit = own["met"], own["limit"]
        self._entries = json.loads(own["entries"].tobytes())
        if "rows" in own:
            self._rows = [DocumentBatch(**own["rows"], n_features=n_features, integral=False)]
            self._numbers = own["numbers"]


def most_of_topics(theta: NDArray[np.float64], n: int) -> list[list[int]]:
    """Return n documents with most of each topic, among documents whose largest topic it is."""
    largest = theta.argmax(axis=1)
    order = np.argsort(-theta.max(axis=1), kind="stable")
    return [order[largest[order] == k][:n].tolist() for k in range(theta.shape[1])]


def draw_ranks(first: int, n: int, seed: int) -> NDArray[np.int64]:
    """Return n numbers below 2^63 of a random sequence, from number `first` on."""
    found: NDArray[np.uint64] = np.random.PCG64(seed).advance(first).random_raw(n)
    return (found >> np.uint64(1)).astype(np.int64)


def _shorten(text: str) -> str:
    return text if len(text) <= TEXT_CHARACTERS else text[: TEXT_CHARACTERS - 1] + "…"
