"""How the shares of topics went: over the time of documents, or from model to model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

import numpy as np

from streamlda.model.over_time import Timeline
from streamlda.model.topic_model import TopicModel
from streamlda.report.over_time import written

Share = float | None


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
    undated: int = 0
    late: int = 0


def of_timeline(timeline: Timeline, ids: Sequence[int]) -> Course:
    """Return the course of the topics of one model, whose rows have these numbers."""
    starts = timeline.starts.tolist()
    shares = timeline.shares
    return Course(
        labels=tuple(written(start, timeline.unit) for start in starts),
        at=_places([float(start) for start in starts]),
        shares={
            id_: tuple(None if np.isnan(share) else float(share) for share in shares[:, k])
            for k, id_ in enumerate(ids)
        },
        documents=tuple(timeline.documents.tolist()),
        unit=timeline.unit,
        undated=timeline.undated,
        late=timeline.late,
    )


def of_models(
    models: Sequence[TopicModel], labels: Sequence[str], ids: Sequence[Sequence[int]]
) -> Course:
    """Return the course from model to model: of what came between them if all say it.

    Time is that of the last documents of each, if all say that.
    """
    intervals = [model.interval for model in models]
    lately = [i.prevalence for i in intervals if i is not None and i.prevalence is not None]
    ends = [i.end for i in intervals if i is not None and i.end is not None]
    shares: dict[int, list[Share]] = {}
    for i, (model, numbers) in enumerate(zip(models, ids, strict=True)):
        measured = lately[i] if len(lately) == len(models) else model.shares
        for id_, share in zip(numbers, measured, strict=True):
            shares.setdefault(id_, [None] * len(models))[i] = share
    dated = len(ends) == len(models)
    moments = [datetime.fromisoformat(end).timestamp() for end in ends] if dated else []
    dated = dated and all(a < b for a, b in zip(moments, moments[1:], strict=False))
    return Course(
        labels=tuple(f"{end[:10]} {end[11:16]}" for end in ends) if dated else tuple(labels),
        at=_places(moments if dated else list(map(float, range(len(models))))),
        shares={id_: tuple(course) for id_, course in sorted(shares.items())},
        documents=None,
        unit="model",
    )


def _places(moments: Sequence[float]) -> tuple[float, ...]:
    """Return moments as parts of the time between the first and the last."""
    if len(moments) < 2:
        return (0.0,) * len(moments)
    return tuple((moment - moments[0]) / (moments[-1] - moments[0]) for moment in moments)
