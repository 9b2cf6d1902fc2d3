"""Bins of event time, and the span of it that an interval covers."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.documents import AHEAD, UNDATED

#: Seconds of the units that are always as long; 1970 began on a Thursday.
_DAY = 86_400
_SIZES = {"hour": 3600, "day": _DAY, "week": 7 * _DAY}
_FIRST_MONDAY = -3 * _DAY


def find_bins(times: NDArray[np.float64], unit: str, latest: float = math.inf) -> NDArray[np.int64]:
    """Return the start of the bin of each time; `UNDATED` for NaN, `AHEAD` after the `latest`."""
    starts = np.full(len(times), UNDATED, dtype=np.int64)
    dated = np.flatnonzero(np.isfinite(times))
    seconds = np.floor(times[dated]).astype(np.int64)
    if unit in _SIZES:
        first, size = _FIRST_MONDAY if unit == "week" else 0, _SIZES[unit]
        starts[dated] = (seconds - first) // size * size + first
    else:
        calendar = seconds.astype("datetime64[s]").astype(f"datetime64[{unit[0].upper()}]")
        starts[dated] = calendar.astype("datetime64[s]").astype(np.int64)
    starts[times > latest] = AHEAD
    return starts


class InNoBin(NamedTuple):
    """Documents in no bin: without a time, from the future, evicted."""

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
        first, last = (
            None if time is None else datetime.fromtimestamp(time, UTC).isoformat()
            for time in (self.first, self.last)
        )
        return first, last
