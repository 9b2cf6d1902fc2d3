"""Event time: when a document says it is from, and the bin of the calendar that it falls in."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import one_of, require
from streamlda.documents import UNDATED

#: The time field of a source whose records have a time of their own (Kafka).
RECORD_TIME = "@record"

#: Units of bins; those of the calendar are in UTC, and weeks begin on Monday.
UNITS = ("hour", "day", "week", "month", "year")
CUSTOM = "custom"

_DAY = 86_400
_SIZES = {"hour": 3600, "day": _DAY, "week": 7 * _DAY}
#: 1970 began on a Thursday.
_FIRST_MONDAY = -3 * _DAY

#: Numbers are seconds below this size (before the year 5138), else milliseconds, and so on.
_SECONDS_BELOW = 1e11

_FIRST, _LAST = -62_135_596_800, 253_402_300_800  # the years 1 to 9999
_DIGITS = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
_MONTH = re.compile(r"[0-9]{4}-[0-9]{2}")


def event_time(value: object) -> float | None:
    """Return an event time in seconds since 1970 UTC; None for a value that is none.

    Text in ISO 8601, from a year to a time with an offset, without one in UTC; or a number, as text
    too: a whole one from 1000 to 9999 is a year, others count from 1970 in seconds below 10^11 in
    size, in milliseconds below 10^14, then in micro- and nanoseconds. Text of 8 digits is a date.
    """
    if type(value) is bytes:
        value = value.decode(errors="replace")
    if type(value) is str:
        text = value.strip()
        return _of_number(text) if _DIGITS.fullmatch(text) else _of_text(text)
    if type(value) is int or type(value) is float:
        return _of_number(value)
    return None


def _of_text(text: str) -> float | None:
    try:
        found = datetime.fromisoformat(f"{text}-01" if _MONTH.fullmatch(text) else text)
    except ValueError:
        return None
    return in_range((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())


def _of_number(value: str | float) -> float | None:
    if type(value) is str and len(value) == 8 and value.isdecimal():
        return _of_text(value)
    number = float(value)
    if 1000 <= number <= 9999 and number.is_integer():
        return datetime(int(number), 1, 1, tzinfo=UTC).timestamp()
    for _ in range(3):
        if abs(number) < _SECONDS_BELOW:
            break
        number /= 1000
    return in_range(number)


def in_range(seconds: float) -> float | None:
    """Return a time that lies in the years 1 to 9999, else None."""
    return seconds if _FIRST <= seconds < _LAST else None


def shown_time(seconds: float) -> str:
    """Return a time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(seconds, UTC).isoformat()


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
    def of(cls, bins: str | Sequence[str]) -> Self:
        """Return bins of a unit, or between times; the message of a `ValueError` is the rule."""
        if isinstance(bins, str) and bins in UNITS:
            return cls(bins)
        times = [] if isinstance(bins, str) else [event_time(each) for each in bins]
        boundaries = tuple(math.floor(time) for time in times if time is not None)
        ascending = all(a < b for a, b in pairwise(boundaries))
        if not times or len(boundaries) < len(times) or not ascending:
            raise ValueError(f"must be one of {', '.join(UNITS)}, or times that ascend")
        return cls(CUSTOM, boundaries)

    def starts(self, times: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the start of the bin of each time, in seconds since 1970 UTC.

        `UNDATED` where a time is NaN, or before the first boundary. Time and memory O(times).
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
        return starts
