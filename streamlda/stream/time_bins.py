"""Bins of event time, and the span of it that an interval covers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import one_of, require
from streamlda.documents import AHEAD, UNDATED
from streamlda.stream.event_time import UNITS, parse_boundaries

CUSTOM = "custom"

_DAY = 86_400
_SIZES = {"hour": 3600, "day": _DAY, "week": 7 * _DAY}
#: 1970 began on a Thursday.
_FIRST_MONDAY = -3 * _DAY


@dataclass(frozen=True, slots=True)
class TimeBins:
    """Bins of event time: a unit of the calendar, or between boundaries in seconds since 1970 UTC.

    Between boundaries, a bin holds its start and not its end; the last has no end.
    """

    unit: str = "day"
    boundaries: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        one_of((*UNITS, CUSTOM), unit=self.unit)
        ascending = bool(np.all(np.diff(self.boundaries) > 0))
        require(
            (self.unit == CUSTOM) == bool(self.boundaries) and ascending,
            "custom bins must have boundaries that ascend, and other bins none",
            unit=self.unit,
            boundaries=len(self.boundaries),
        )

    @classmethod
    def parse(cls, bins: str | Sequence[str]) -> Self:
        """Return the bins of a setting, as `parse_boundaries` takes it."""
        boundaries = parse_boundaries(bins)
        return cls(CUSTOM, boundaries) if boundaries else cls(str(bins))

    def starts(self, times: NDArray[np.float64], latest: float = math.inf) -> NDArray[np.int64]:
        """Return the start of the bin of each time, in seconds since 1970 UTC.

        `UNDATED` where a time is NaN, or before the first boundary, `AHEAD` where it is after the
        `latest` time. Time and memory O(times).
        """
        starts = np.full(len(times), UNDATED, dtype=np.int64)
        dated = np.flatnonzero(np.isfinite(times))
        seconds = np.floor(times[dated]).astype(np.int64)
        if self.unit in _SIZES:
            first, size = _FIRST_MONDAY if self.unit == "week" else 0, _SIZES[self.unit]
            starts[dated] = (seconds - first) // size * size + first
        elif self.boundaries:
            bounds = np.array((UNDATED, *self.boundaries))
            starts[dated] = bounds[np.searchsorted(bounds, seconds, side="right") - 1]
        else:
            calendar = seconds.astype("datetime64[s]").astype(f"datetime64[{self.unit[0].upper()}]")
            starts[dated] = calendar.astype("datetime64[s]").astype(np.int64)
        starts[times > latest] = AHEAD
        return starts


class InNoBin(NamedTuple):
    """Documents in no bin: without a time or before the first bin, from the future, evicted."""

    undated: int
    ahead: int
    late: int


class TimeSpan:
    """The earliest and the latest of event times, in seconds since 1970 UTC."""

    def __init__(self, first: float | None = None, last: float | None = None) -> None:
        self.first, self.last = first, last

    def add(self, times: NDArray[np.float64]) -> None:
        """Take further times; NaN is none."""
        dated = times[np.isfinite(times)].tolist()
        if dated:
            known = [each for each in (self.first, self.last) if each is not None]
            self.first, self.last = min(known + dated), max(known + dated)

    def to_json(self) -> list[float | None]:
        """Return both as plain JSON values, as the constructor takes them."""
        return [self.first, self.last]

    def to_text(self) -> tuple[str | None, str | None]:
        """Return both in ISO 8601, in UTC."""
        return _format_time(self.first), _format_time(self.last)


def _format_time(time: float | None) -> str | None:
    return None if time is None else datetime.fromtimestamp(time, UTC).isoformat()
