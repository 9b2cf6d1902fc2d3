"""Tokens of topics by event time: documents and words of each bin are counted, topics are fitted.

Shares of topics in a bin are EM steps for the tokens of its words n_w, from prevalence q on, as if
the bin were one document without a prior::

    s_k <- sum_w n_w s_k phi_kw / sum_j s_j phi_jw      `STEPS` times

    share_k ~ s_k q_k / s_k of all bins together

so that they are of the topics as published, whenever the documents came, and agree with prevalence,
which is by inference in documents. More steps fit the noise of a bin, fewer leave all bins alike.
Words are counted in one row for each bin, of `MOST_CELLS` numbers in all. Where these are too few
for all words, several share a column, and so do their probabilities.
"""

from typing import Self

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import AHEAD, MOST_BINS, UNDATED, DocumentBatch
from streamlda.model.over_time import Timeline
from streamlda.model.topic_model import TopicModel
from streamlda.text.columns import ColumnChange
from streamlda.utils.arrays import Array, Tree

#: Steps of EM from prevalence to the shares of a bin.
STEPS = 4

#: Numbers of all rows of words: 16 MiB. 256 bins have columns of 8192 words each.
MOST_CELLS = 2**21

_COUNTS = "undated", "ahead", "evicted", "first", "floor", "dated"


class Bins:
    """Documents, tokens and words by time bin, of 1000 bins at most.

    Beyond these the oldest bin is evicted, or the newest one where that is far from the bulk of the
    documents. So a clock that is wrong for a few of them empties no timeline.

    Memory: 8 bytes a cell, and as much again while columns are joined.
    """

    def __init__(self) -> None:
        self.held: dict[int, tuple[int, float]] = {}
        self.undated = self.ahead = 0
        #: Documents of bins that were evicted as the oldest, and as the newest.
        self.evicted = [0, 0]
        #: Start of the last bin evicted as the oldest: later documents up to it are evicted too.
        self.floor = UNDATED
        #: Start of the oldest bin that any document had.
        self.first: int | None = None
        #: Whether any document had a time.
        self.dated = False
        #: Tokens of words by bin: the column of word w is w modulo their number.
        self.words: dict[int, Array] = {}
        self._columns = 0

    @property
    def late(self) -> int:
        """Documents of bins that are not held any more."""
        return sum(self.evicted)

    def add(self, batch: DocumentBatch) -> None:
        """Count documents, one after the other, so that it does not matter how they were cut."""
        if batch.bins is None:
            self.undated += batch.n_documents
            return
        self.dated = True
        for start, tokens in zip(batch.bins.tolist(), batch.lengths.tolist(), strict=True):
            if start == UNDATED:
                self.undated += 1
            elif start == AHEAD:
                self.ahead += 1
            else:
                self._add_one(start, tokens)
        self._count(batch, batch.bins)

    def _add_one(self, start: int, tokens: float) -> None:
        if start <= self.floor:
            self.evicted = [self.evicted[0] + 1, self.evicted[1]]
            return
        self.first = start if self.first is None else min(start, self.first)
        n, total = self.held.get(start, (0, 0.0))
        self.held[start] = (n + 1, total + tokens)
        if len(self.held) > MOST_BINS:
            self._evict()

    def _evict(self) -> None:
        """Evict the oldest bin, or the newest where that is far from the bulk of the documents.

        It is far beyond a gap that is wider than the time from the first document to the gap, if
        more documents came before it than after it.
        """
        starts = np.sort(np.fromiter(self.held, dtype=np.int64))
        before, after = self.evicted
        assert self.first is not None
        wide = np.flatnonzero(np.diff(starts) > starts[:-1] - self.first)
        older = before + np.cumsum([self.held[start][0] for start in starts.tolist()])
        is_far = bool(np.any(older[wide] > older[-1] - older[wide] + after))
        self.floor = self.floor if is_far else int(starts[0])
        n, _ = self.held.pop(int(starts[-1] if is_far else starts[0]))
        self.evicted = [before, after + n] if is_far else [before + n, after]

    def _count(self, batch: DocumentBatch, bins: NDArray[np.int64]) -> None:
        """Add the words of documents whose bin is held."""
        self._fit(self._columns or batch.n_features)
        for start in np.unique(bins).tolist():
            if start in self.held:
                part = batch.where(bins == start)
                row = self.words.setdefault(start, np.zeros(self._columns))
                np.add.at(row, part.word_ids % self._columns, part.counts)

    def _fit(self, columns: int) -> None:
        """Drop rows of bins that are not held, and let words share columns if they must."""
        while columns * len(self.held) > MOST_CELLS:
            # The largest power of two below: words that share a column continue to share one.
            columns = 1 << (columns - 1).bit_length() - 1
        held = {start: row for start, row in self.words.items() if start in self.held}
        self.words = {start: fold_row(row, columns) for start, row in held.items()}
        self._columns = columns

    def change_words(self, change: ColumnChange) -> None:
        """Forget words that left, where they shared their columns with no others."""
        if self._columns == change.before:
            self.words = {start: change.rows(row) for start, row in self.words.items()}
            self._fit(change.after)

    def merge(self, other: Self) -> None:
        """Add what was counted of other documents; `other` is not changed."""
        self.dated |= other.dated
        self.undated, self.ahead = self.undated + other.undated, self.ahead + other.ahead
        self.evicted = [mine + its for mine, its in zip(self.evicted, other.evicted, strict=True)]
        self.floor = max(self.floor, other.floor)
        known = [first for first in (self.first, other.first) if first is not None]
        self.first = min(known, default=None)
        for start, (n, tokens) in other.held.items():
            mine = self.held.get(start, (0, 0.0))
            self.held[start] = (mine[0] + n, mine[1] + tokens)
        for start in [start for start in self.held if start <= self.floor]:
            self.evicted = [self.evicted[0] + self.held.pop(start)[0], self.evicted[1]]
        while len(self.held) > MOST_BINS:
            self._evict()
        known = [bins._columns for bins in (self, other) if bins._columns]
        self._fit(min(known, default=0))
        for start, row in other.words.items():
            if start in self.held:
                row = fold_row(row, self._columns)
                self.words[start] = self.words.get(start, np.zeros_like(row)) + row

    def timeline(self, model: TopicModel) -> Timeline:
        """Return the tokens of topics in each bin, for a model with prevalence. O(V K) a bin."""
        starts = sorted(self.held)
        tokens = np.zeros((len(starts), model.n_components))
        if self.words:
            assert model.prevalence is not None
            topics = np.stack([fold_row(row, self._columns) for row in model.smoothed], axis=1)
            ratio = _ratio(np.sum([*self.words.values()], axis=0), topics, model.prevalence)
            for row, start in zip(tokens, starts, strict=True):
                if start in self.words:
                    row += ratio * _shares(self.words[start], topics, model.prevalence)
                if row.sum() > 0:
                    row *= self.held[start][1] / row.sum()
        return Timeline(
            # The bins are those of who gave them, and so is the name of their unit.
            unit="custom",
            starts=np.array(starts, dtype=np.int64),
            tokens=tokens,
            documents=np.array([self.held[start][0] for start in starts], dtype=np.int64),
            undated=self.undated,
            ahead=self.ahead,
            late=self.late,
        )

    def state(self) -> Tree:
        """Return all that is needed to continue; no arrays where no document had a time."""
        own: Tree = {name: getattr(self, name) for name in _COUNTS}
        if self.dated:
            starts = sorted(self.held)
            own["starts"] = np.array(starts, dtype=np.int64)
            own["documents"] = np.array([self.held[s][0] for s in starts], dtype=np.int64)
            own["tokens"] = np.array([self.held[s][1] for s in starts])
        if self.words:
            counted = sorted(self.words)
            own["counted"] = np.array(counted, dtype=np.int64)
            own["words"] = np.stack([self.words[start] for start in counted])
        return own

    def restore(self, own: Tree) -> None:
        """Take back what `state` returned."""
        for name in _COUNTS:
            setattr(self, name, own[name])
        if self.dated:
            columns = (own[name].tolist() for name in ("starts", "documents", "tokens"))
            self.held = {start: (n, tokens) for start, n, tokens in zip(*columns, strict=True)}
        if "words" in own:
            rows = np.array(own["words"], dtype=np.float64)
            self.words = dict(zip(own["counted"].tolist(), rows, strict=True))
            self._columns = rows.shape[1]


def fold_row(row: Array, columns: int) -> Array:
    """Return the sums of the numbers of a row whose places are equal modulo some columns."""
    if columns == len(row):
        return row
    found = np.zeros(columns)
    np.add.at(found, np.arange(len(row)) % columns, row)
    return found


def shares_since(model: TopicModel, before: TopicModel) -> Array | None:
    """Return the share of each topic in the documents since an earlier model of the same words.

    They are estimated as those of a bin, with each document of the same weight. None where nothing
    came, or prevalence was not measured. Time O(V K).
    """
    n, earlier = model.documents_seen, before.documents_seen
    words = np.maximum(model.background * n - before.background * earlier, 0.0)
    if n <= earlier or model.prevalence is None or not words.any():
        return None
    topics = np.ascontiguousarray(model.smoothed.T)
    found = _ratio(model.background, topics, model.prevalence)
    found *= _shares(words, topics, model.prevalence)
    total = found.sum()
    return found / total if total > 0 else None


def _ratio(words: Array, topics: Array, prevalence: Array) -> Array:
    """Return the factors that make the shares of all documents their prevalence."""
    of_all = _shares(words, topics, prevalence)
    return np.divide(prevalence, of_all, out=np.zeros_like(of_all), where=of_all > 0)


def _shares(words: Array, topics: Array, first: Array) -> Array:
    """Return what EM makes of some shares of topics, (words, K), for the tokens of words."""
    seen = np.flatnonzero(words)
    tokens, own, shares = words[seen], topics[seen], first
    for _ in range(STEPS):
        found = own * shares
        total = found.sum(axis=1, keepdims=True)
        found *= tokens[:, None] / np.where(total > 0, total, 1.0)
        shares = found.sum(axis=0) / max(found.sum(), np.finfo(float).tiny)
    return shares
