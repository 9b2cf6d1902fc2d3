"""Shares and words of topics over the time of one corpus, by a pass over its documents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import one_of, require
from streamlda.documents import DocumentBatch
from streamlda.model.evaluation import top_words
from streamlda.model.inference import SMOOTHING, smoothed
from streamlda.model.over_time import Timeline
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.statement import NOT_PRIVATE

Array = NDArray[np.float64]

#: Units of the bins, with the form in which the start of one is written.
UNITS = {
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
    where all lies in one bin.
    """

    timeline: Timeline
    rose: tuple[tuple[str, ...], ...]
    fell: tuple[tuple[str, ...], ...]
    halves: str | None


def follow_over_time(
    model: TopicModel, records: Iterable[tuple[str, float | None]], unit: str = "month"
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
    unit : {"hour", "day", "week", "month", "year"}, default "month"
        Length of a bin, in UTC; weeks begin on Mondays.

    Raises
    ------
    InvalidSettingError
        If the model is private, or bins are more than `MOST_BINS`.
    VocabularyError
        If the model has no vocabulary.
    """
    one_of(UNITS, unit=unit)
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
        sums.add(texts, times, unit)
    return sums.result(unit)


def bin_starts(times: Sequence[float], unit: str) -> NDArray[np.int64]:
    """Return the start of the bin of each time, in seconds since 1970 UTC."""
    seconds = np.floor(np.asarray(times, dtype=np.float64)).astype(np.int64)
    if unit in ("month", "year"):
        moments = seconds.astype("datetime64[s]").astype(f"datetime64[{unit[0].upper()}]")
        return moments.astype("datetime64[s]").astype(np.int64)
    length = {"hour": 3600, "day": 86_400, "week": 7 * 86_400}[unit]
    # 1970 began on a Thursday.
    offset = 3 * 86_400 if unit == "week" else 0
    return (seconds + offset) // length * length - offset


def written(start: int, unit: str) -> str:
    """Return the start of a bin as text; those of other units by minutes."""
    return f"{datetime.fromtimestamp(start, UTC):{UNITS.get(unit, '%Y-%m-%d %H:%M')}}"


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
        self._topics = smoothed(model.components, model.background, SMOOTHING)
        self._top = top_words(model.components, min(COUNTED_WORDS, model.n_features))
        #: Of each bin: documents, tokens (K,), tokens of top words (K, n).
        self._bins: dict[int, tuple[int, Array, Array]] = {}
        self._undated = 0

    def add(self, texts: list[str], times: list[float | None], unit: str) -> None:
        dated = [i for i, time in enumerate(times) if time is not None]
        self._undated += len(texts) - len(dated)
        if not dated:
            return
        starts = bin_starts([times[i] or 0.0 for i in dated], unit)
        batch = self._model.encoded([texts[i] for i in dated])
        proportions = self._model.transform(batch)
        tokens = proportions * batch.lengths[:, None]
        for start in np.unique(starts).tolist():
            rows = starts == start
            self._take(start, tokens[rows], batch.where(rows), proportions[rows])

    def _take(self, start: int, tokens: Array, batch: DocumentBatch, proportions: Array) -> None:
        K = len(self._top)
        if start not in self._bins:
            require(
                len(self._bins) < MOST_BINS,
                f"time must have at most {MOST_BINS:,} bins with documents",
                remedy="choose longer bins",
            )
            self._bins[start] = 0, np.zeros(K), np.zeros(self._top.shape)
        documents, of_topics, of_words = self._bins[start]
        rows = np.repeat(np.arange(len(batch)), np.diff(batch.row_pointers))
        step = max(1, _CELLS // K)
        for at in range(0, len(rows), step):
            part = slice(at, at + step)
            words = batch.word_ids[part]
            # Tokens of each word in each topic, by what the topics and the document make likely.
            given = proportions[rows[part]] * self._topics[:, words].T
            given *= (batch.counts[part] / given.sum(axis=1))[:, None]
            for k in range(K):
                sums = np.bincount(words, given[:, k], minlength=self._model.n_features)
                of_words[k] += sums[self._top[k]]
        self._bins[start] = documents + len(tokens), of_topics + tokens.sum(axis=0), of_words

    def result(self, unit: str) -> OverTime:
        starts = sorted(self._bins)
        tokens = np.array([self._bins[start][1] for start in starts]).reshape(-1, len(self._top))
        timeline = Timeline(
            unit=unit,
            starts=np.array(starts, dtype=np.int64),
            tokens=tokens,
            documents=np.array([self._bins[start][0] for start in starts], dtype=np.int64),
            undated=self._undated,
        )
        if len(starts) < 2:
            return OverTime(timeline, *2 * (((),) * len(self._top),), None)
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
        return OverTime(timeline, tuple(rose), tuple(fell), written(starts[second], unit))


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
