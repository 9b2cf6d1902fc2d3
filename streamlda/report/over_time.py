"""Shares of topics over time: by a pass over documents, or from model to model."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import islice, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import one_of, require
from streamlda.documents import UNDATED
from streamlda.errors import InvalidDocumentsError
from streamlda.model.over_time import Timeline
from streamlda.model.topic_model import TopicModel
from streamlda.privacy.statement import NOT_PRIVATE
from streamlda.storage.newest import get_words
from streamlda.stream.event_time import UNITS, find_bins

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

#: Documents that are looked at together.
_DOCUMENTS = 1000


@dataclass(frozen=True, slots=True)
class OverTime:
    """Topics over the time of a corpus: tokens by bin.

    `unreadable` are the documents with a time that the analyzer of the model failed on: they are in
    no bin.
    """

    timeline: Timeline
    unreadable: int = 0


def follow_over_time(
    model: TopicModel, records: Iterable[tuple[str, float | None]], bins: str = "day"
) -> OverTime:
    """Return how the topics of a model went over the time of a corpus.

    Each document is inferred once and forgotten. Time O(nnz K) an iteration of the inference;
    memory O(K V + bins K).

    Parameters
    ----------
    model : TopicModel
        With a vocabulary, and without privacy.
    records : iterable of (str, float or None)
        Texts with their times, in seconds since 1970 UTC; None is counted as undated. In any
        order.
    bins : {"hour", "day", "week", "month", "year"}, default "day"
        Bins of time, of the calendar in UTC.

    Raises
    ------
    InvalidSettingError
        If the model is private, no document has a time, or bins are more than `MOST_BINS`.
    InvalidDocumentsError
        If the analyzer of the model fails on all documents with a time.
    VocabularyError
        If the model has no vocabulary.
    """
    one_of(UNITS, bins=bins)
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
    return sums.result(bins)


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
    """Documents, and tokens of each topic, in each bin."""

    def __init__(self, model: TopicModel) -> None:
        self._model = model
        #: Of each bin: documents, and tokens (K,).
        self._bins: dict[int, tuple[int, Any]] = {}
        self._undated = self._unreadable = 0

    def add(self, texts: list[str], times: Array, unit: str) -> None:
        starts = find_bins(times, unit)
        dated = np.flatnonzero(starts != UNDATED)
        self._undated += len(texts) - len(dated)
        if not len(dated):
            return
        encoded = get_words(self._model).encode([texts[i] for i in dated])
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
        tokens = np.zeros((len(found), self._model.n_components))
        np.add.at(tokens, of, proportions * batch.lengths[:, None])
        for b, (start, n) in enumerate(zip(found.tolist(), np.bincount(of), strict=True)):
            documents, of_topics = self._bins.get(start, (0, 0.0))
            self._bins[start] = documents + int(n), of_topics + tokens[b]

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
            "documents must have a time to be shown over time",
            documents=self._undated,
            with_time=0,
            remedy="name the field that holds it (source.time_field)",
        )
        starts = sorted(self._bins)
        timeline = Timeline(
            unit=unit,
            starts=np.array(starts, dtype=np.int64),
            tokens=np.array([self._bins[start][1] for start in starts]),
            documents=np.array([self._bins[start][0] for start in starts], dtype=np.int64),
            undated=self._undated,
        )
        return OverTime(timeline, self._unreadable)


Share = float | None

#: Moments that are drawn at most: lines of more are a thicket, on a screen of any width.
MOST_MOMENTS = 100


@dataclass(frozen=True, slots=True)
class Course:
    """Shares of topics at some moments, the earliest first."""

    labels: tuple[str, ...]
    #: Where the moments stand between the first (0) and the last (1).
    at: tuple[float, ...]
    #: Of each topic, by its number; None where it was not measured, or the topic not there.
    shares: dict[int, tuple[Share, ...]]
    #: Documents of each moment; None for models that do not say.
    documents: tuple[int, ...] | None
    #: What a moment is: ``"model"``, or a unit of time.
    unit: str
    #: Whether models say the shares of what came since the model before, or of all they learned.
    lately: bool = False
    #: Bins that are one moment.
    together: int = 1
    undated: int = 0
    ahead: int = 0
    late: int = 0

    @property
    def most(self) -> float:
        """The largest share, or 1 where there is none above 0."""
        known = [share for shares in self.shares.values() for share in shares if share is not None]
        return max(known, default=0.0) or 1.0


def course_from_timeline(timeline: Timeline, ids: Sequence[int]) -> Course:
    """Return the course of the topics of one model, whose rows have these numbers."""
    together = 1 + (len(timeline.starts) - 1) // MOST_MOMENTS
    timeline = _thinned(timeline, together)
    starts, shares = timeline.starts.tolist(), timeline.shares
    return Course(
        labels=tuple(written(start, timeline.unit) for start in starts),
        at=_places([float(start) for start in starts]),
        shares={
            id_: tuple(None if np.isnan(share) else float(share) for share in shares[:, k])
            for k, id_ in enumerate(ids)
        },
        documents=tuple(timeline.documents.tolist()),
        unit=timeline.unit,
        together=together,
        undated=timeline.undated,
        ahead=timeline.ahead,
        late=timeline.late,
    )


def _thinned(timeline: Timeline, together: int) -> Timeline:
    """Return the timeline with neighbouring bins added up, so that a page has room for all."""
    if together < 2:
        return timeline
    first = np.arange(0, len(timeline.starts), together)
    return replace(
        timeline,
        starts=timeline.starts[first],
        tokens=np.add.reduceat(timeline.tokens, first, axis=0),
        documents=np.add.reduceat(timeline.documents, first),
    )


def course_from_models(
    models: Sequence[TopicModel], labels: Sequence[str], ids: Sequence[Sequence[int]]
) -> Course:
    """Return the course from model to model: of what came between them if all say it.

    Time is that of the last documents of each, if all say that.
    """
    intervals = [model.interval for model in models]
    lately = [i.prevalence for i in intervals if i is not None and i.prevalence is not None]
    ends = [i.end for i in intervals if i is not None and i.end is not None]
    has_lately, dated = len(lately) == len(models), len(ends) == len(models)
    shares: dict[int, list[Share]] = {}
    for i, (model, numbers) in enumerate(zip(models, ids, strict=True)):
        measured = lately[i] if has_lately else model.shares
        for id_, share in zip(numbers, measured, strict=True):
            shares.setdefault(id_, [None] * len(models))[i] = share
    moments = [datetime.fromisoformat(end).timestamp() for end in ends] if dated else []
    dated = dated and all(a < b for a, b in pairwise(moments))
    return Course(
        labels=_dates(ends) if dated else tuple(labels),
        at=_places(moments if dated else list(map(float, range(len(models))))),
        shares={id_: tuple(course) for id_, course in sorted(shares.items())},
        documents=None,
        unit="model",
        lately=has_lately,
    )


def _dates(times: Sequence[str]) -> tuple[str, ...]:
    """Return ISO times to the minute, or to the day where all are at midnight."""
    found = [f"{time[:10]} {time[11:16]}" for time in times]
    whole = all(time.endswith(" 00:00") for time in found)
    return tuple(time[:10] if whole else time for time in found)


def _places(moments: Sequence[float]) -> tuple[float, ...]:
    """Return moments as parts of the time between the first and the last."""
    if len(moments) < 2:
        return (0.0,) * len(moments)
    return tuple((moment - moments[0]) / (moments[-1] - moments[0]) for moment in moments)
