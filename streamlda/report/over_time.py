"""Shares of topics over time: by the event time of documents, or from model to model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import pairwise

import numpy as np

from streamlda.model.over_time import Timeline
from streamlda.model.topic_model import TopicModel

#: How the start of a bin is written.
_FORMS = {
    "hour": "%Y-%m-%d %H:00",
    "day": "%Y-%m-%d",
    "week": "%Y-%m-%d",
    "month": "%Y-%m",
    "year": "%Y",
}


def written(start: int, unit: str) -> str:
    """Return the start of a bin as text; those of other units by minutes."""
    return f"{datetime.fromtimestamp(start, UTC):{_FORMS.get(unit, '%Y-%m-%d %H:%M')}}"


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
    #: What a moment is: ``"model"``, a unit of time, or ``"class"``.
    unit: str
    #: Whether shares are means over documents that the caller gave, and not of tokens.
    of_documents: bool = False
    #: Whether models say the shares of what came since the model before, or of all they learned.
    lately: bool = False
    #: Bins that are one moment; of classes, all that there are.
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
