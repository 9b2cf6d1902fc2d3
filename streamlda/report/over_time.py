"""Shares and words of topics over the time of one corpus, by a pass over its documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import require
from streamlda.documents import UNDATED, DocumentBatch
from streamlda.errors import InvalidDocumentsError
from streamlda.model.evaluation import top_words
from streamlda.model.over_time import Timeline
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.statement import NOT_PRIVATE
from streamlda.storage.newest import words_of
from streamlda.stream.time_bins import TimeBins

Array = NDArray[np.float64]

#: How the start of a bin is written.
_FORMS = {
    "hour": "%Y-%m-%d %H:00",
    "day": "%Y-%m-%d",
    "week": "%Y-%m-%d",
    "month": "%Y-%m",
    "year": "%Y",
}

#: A drawing has no room for more, and memory is O(bins K).
MOST_BINS = 2000

#: Top words of a topic that are counted by bin, and words that are listed as risen or fallen.
COUNTED_WORDS = 200
MOVED_WORDS = 5

#: A word rose or fell if its share of the topic differs between the two halves by this many
#: standard errors: among 200 words of each of 100 topics, chance reaches 5 in 1 topic of 90. Words
#: come in bursts, so that it must also have changed by this factor.
LEAST_ERRORS = 5.0
LEAST_FACTOR = 1.3

#: Documents, and entries times topics, that are looked at together.
_DOCUMENTS = 1000
_CELLS = 2**21


@dataclass(frozen=True, slots=True)
class OverTime:
    """Topics over the time of a corpus: tokens by bin, and what changed in each topic.

    `rose` and `fell` have the words of each of the K topics, those that moved most first, between
    the first and the second half of the tokens; `halves` says where the second begins, and is None
    where all lies in one bin. `unreadable` are the documents with a time that the analyzer of the
    model failed on: they are in no bin.
    """

    timeline: Timeline
    rose: tuple[tuple[str, ...], ...]
    fell: tuple[tuple[str, ...], ...]
    halves: str | None
    unreadable: int = 0


def follow_over_time(
    model: TopicModel, records: Iterable[tuple[str, float | None]], bins: TimeBins | None = None
) -> OverTime:
    """Return how the topics of a model went over the time of a corpus.

    Each document is inferred once and forgotten. Time O(nnz K) an iteration of the inference;
    memory O(K V + bins K `COUNTED_WORDS`).

    Parameters
    ----------
    model : TopicModel
        With a vocabulary, and without privacy.
    records : iterable of (str, float or None)
        Texts with their times, in seconds since 1970 UTC; None is counted as undated. In any
        order.
    bins : TimeBins, optional
        Of the calendar or between times; days by default. What lies before the first of such times
        is counted as undated.

    Raises
    ------
    InvalidSettingError
        If the model is private, no document lies in a bin, or bins are more than `MOST_BINS`.
    InvalidDocumentsError
        If the analyzer of the model fails on all documents with a time.
    VocabularyError
        If the model has no vocabulary.
    """
    bins = bins or TimeBins()
    claim = model.privacy.get("statement")
    require(
        claim in (NOT_PRIVATE, "none", None),
        "documents must not be shown by a private model over time, since the result would be a "
        "function of the documents that no noise protects",
        statement=claim,
        remedy="give the snapshots of its windows instead, oldest first",
    )
    sums = _Sums(model)
    for texts, times in _batches(records):
        sums.add(texts, np.array(times, dtype=np.float64), bins)
    return sums.result(bins.unit)


def written(start: int, unit: str) -> str:
    """Return the start of a bin as text; those of other units by minutes."""
    return f"{datetime.fromtimestamp(start, UTC):{_FORMS.get(unit, '%Y-%m-%d %H:%M')}}"


def _batches(
    records: Iterable[tuple[str, float | None]],
) -> Iterator[tuple[list[str], list[float | None]]]:
    reader = iter(records)
    while batch := list(islice(reader, _DOCUMENTS)):
        yield [text for text, _ in batch], [time for _, time in batch]


class _Sums:
    """Tokens of each topic, and of its top words, in each bin."""

    def __init__(self, model: TopicModel) -> None:
        self._model = model
        self._topics = model.smoothed
        self._top = top_words(model.components, min(COUNTED_WORDS, model.n_features))
        #: Place of each column among those of any top word, the first where it has none; and of
        #: each place its slot among the top words of a topic, -1 where it has none.
        columns, at = np.unique(self._top, return_inverse=True)
        self._place = np.zeros(model.n_features, dtype=np.int64)
        self._place[columns] = np.arange(1, len(columns) + 1)
        self._slots = np.full((len(self._top), len(columns) + 1), -1, dtype=np.int64)
        np.put_along_axis(
            self._slots, at.reshape(self._top.shape) + 1, np.arange(self._top.shape[1])[None], 1
        )
        #: Of each bin: documents, tokens (K,), tokens of top words (K, n).
        self._bins: dict[int, tuple[int, Any, Any]] = {}
        self._undated = self._unreadable = 0

    def add(self, texts: list[str], times: Array, bins: TimeBins) -> None:
        starts = bins.starts(times)
        dated = np.flatnonzero(starts != UNDATED)
        self._undated += len(texts) - len(dated)
        if not len(dated):
            return
        encoded = words_of(self._model).encode([texts[i] for i in dated])
        self._unreadable += len(encoded.unreadable)
        readable = np.ones(len(dated), dtype=np.bool_)
        readable[list(encoded.unreadable)] = False
        batch, dated = encoded.batch.where(readable), dated[readable]
        found, of = np.unique(starts[dated], return_inverse=True)
        n_bins = len(self._bins | dict.fromkeys(found.tolist()))
        require(
            n_bins <= MOST_BINS,
            f"time must have at most {MOST_BINS:,} bins with documents",
            bins=n_bins,
            remedy="choose longer ones, such as years (snapshots.time_bins=year)",
        )
        proportions = self._model.transform(batch)
        tokens = np.zeros((len(found), len(self._top)))
        np.add.at(tokens, of, proportions * batch.lengths[:, None])
        words = self._words(batch, proportions, of, len(found))
        for b, (start, n) in enumerate(zip(found.tolist(), np.bincount(of), strict=True)):
            documents, of_topics, of_words = self._bins.get(start, (0, 0.0, 0.0))
            sums = documents + int(n), of_topics + tokens[b], of_words + words[:, b]
            self._bins[start] = sums

    def _words(
        self, batch: DocumentBatch, proportions: Array, bins: NDArray[np.intp], n_bins: int
    ) -> Array:
        """Return the tokens of top words in their topics, (K, bins, n)."""
        K, n = self._top.shape
        found = np.zeros((K, n_bins * n))
        rows = np.repeat(np.arange(len(batch)), np.diff(batch.row_pointers))
        counted = np.flatnonzero(self._place[batch.word_ids])
        step = max(1, _CELLS // K)
        for at in range(0, len(counted), step):
            part = counted[at : at + step]
            columns = batch.word_ids[part]
            # Tokens of each word in each topic, by what the topics and the document make likely.
            given = proportions[rows[part]] * self._topics[:, columns].T
            given *= (batch.counts[part] / given.sum(axis=1))[:, None]
            place, first = self._place[columns], bins[rows[part]] * n
            for k in range(K):
                slot = self._slots[k, place]
                own = np.flatnonzero(slot >= 0)
                index = first[own] + slot[own]
                found[k] += np.bincount(index, given[own, k], minlength=n_bins * n)
        return found.reshape(K, n_bins, n)

    def result(self, unit: str) -> OverTime:
        require(
            bool(self._bins) or not self._unreadable,
            "a source must have a document with a time that can be read",
            unreadable=self._unreadable,
            remedy="check the analyzer of the model",
            error=InvalidDocumentsError,
        )
        require(
            bool(self._bins),
            "documents must have a time that is not before the first bin, to be shown over time",
            documents=self._undated,
            in_a_bin=0,
            remedy="name the field that holds it (source.time_field)",
        )
        starts = sorted(self._bins)
        tokens = np.array([self._bins[start][1] for start in starts])
        timeline = Timeline(
            unit=unit,
            starts=np.array(starts, dtype=np.int64),
            tokens=tokens,
            documents=np.array([self._bins[start][0] for start in starts], dtype=np.int64),
            undated=self._undated,
        )
        if len(starts) < 2:
            return OverTime(timeline, *2 * (((),) * len(self._top),), None, self._unreadable)
        whole = tokens.sum(axis=1).cumsum()
        second = int(np.clip(np.searchsorted(whole, whole[-1] / 2) + 1, 1, len(starts) - 1))
        halves = [
            (tokens[part].sum(axis=0), sum(self._bins[start][2] for start in starts[part]))
            for part in (slice(0, second), slice(second, None))
        ]
        rose, fell = [], []
        for k, columns in enumerate(self._top):
            (n, before), (m, after) = ((topic[k], words[k]) for topic, words in halves)
            up, down = _moved(before, after, n, m)
            rose.append(tuple(self._model.feature_name(int(columns[j])) for j in up))
            fell.append(tuple(self._model.feature_name(int(columns[j])) for j in down))
        begins = written(starts[second], unit)
        return OverTime(timeline, tuple(rose), tuple(fell), begins, self._unreadable)


def _moved(before: Array, after: Array, n: float, m: float) -> tuple[list[int], list[int]]:
    """Return which words of a topic rose and fell between halves of n and m tokens."""
    if n <= 0 or m <= 0:
        return [], []
    p, q, mean = before / n, after / m, (before + after) / (n + m)
    errors = np.sqrt(mean * np.maximum(1 - mean, 0.0) * (1 / n + 1 / m))
    clear = np.abs(q - p) > LEAST_ERRORS * errors
    clear &= np.maximum(p, q) > LEAST_FACTOR * np.minimum(p, q)
    change = np.sqrt(q) - np.sqrt(p)
    order = np.argsort(-change, kind="stable")
    up = [int(j) for j in order if clear[j] and change[j] > 0]
    down = [int(j) for j in order[::-1] if clear[j] and change[j] < 0]
    return up[:MOVED_WORDS], down[:MOVED_WORDS]
