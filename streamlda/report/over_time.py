"""Shares of topics over the event time of documents."""

from dataclasses import dataclass, replace
from datetime import UTC, datetime

import numpy as np

from streamlda.model.over_time import Timeline

#: How the start of a bin is written.
_FORMS = {
    "hour": "%Y-%m-%d %H:00",
    "day": "%Y-%m-%d",
    "week": "%Y-%m-%d",
    "month": "%Y-%m",
    "year": "%Y",
}


def write_start(start: int, unit: str) -> str:
    """Return the start of a bin as text; those of other units by minutes."""
    return f"{datetime.fromtimestamp(start, UTC):{_FORMS.get(unit, '%Y-%m-%d %H:%M')}}"


#: Moments that are drawn at most: lines of more are a thicket, on a screen of any width.
MOST_MOMENTS = 100


@dataclass(frozen=True, slots=True)
class Course:
    """Shares of topics at some moments, the earliest first."""

    labels: tuple[str, ...]
    #: Where the moments stand between the first (0) and the last (1).
    at: tuple[float, ...]
    #: Of each topic of the model; None where it was not measured.
    shares: list[list[float | None]]
    #: Documents of each moment.
    documents: tuple[int, ...]
    #: A unit of time, or ``"class"``.
    unit: str
    #: Whether shares are means over documents that the caller gave, and not of tokens.
    of_documents: bool = False
    #: Bins that are one moment; of classes, all that there are.
    together: int = 1
    undated: int = 0
    ahead: int = 0
    late: int = 0


def course_from_timeline(timeline: Timeline) -> Course:
    """Return the course of the topics of a model."""
    together = 1 + (len(timeline.starts) - 1) // MOST_MOMENTS
    timeline = _thin(timeline, together)
    starts = timeline.starts.tolist()
    return Course(
        labels=tuple(write_start(start, timeline.unit) for start in starts),
        # One moment alone is at 0.
        at=tuple((start - starts[0]) / ((starts[-1] - starts[0]) or 1) for start in starts),
        shares=[
            [None if np.isnan(share) else share for share in topic]
            for topic in timeline.shares.T.tolist()
        ],
        documents=tuple(timeline.documents.tolist()),
        unit=timeline.unit,
        together=together,
        undated=timeline.undated,
        ahead=timeline.ahead,
        late=timeline.late,
    )


def _thin(timeline: Timeline, together: int) -> Timeline:
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
