"""Event time of a document, in seconds since 1970 UTC."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime

#: The time field of a source whose records have a time of their own (Kafka).
RECORD_TIME = "@record"

#: Most seconds that an event time may lie ahead of the clock; Kafka's own timestamps too.
MOST_AHEAD_SECONDS = 3600.0

#: Units of bins, of the calendar in UTC; weeks begin on Monday.
UNITS = ("hour", "day", "week", "month", "year")

#: Numbers are seconds below this size (before the year 5138), else milliseconds, and so on.
_SECONDS_BELOW = 1e11

_FIRST, _LAST = -62_135_596_800, 253_402_300_800  # the years 1 to 9999
_DIGITS = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
_MONTH = re.compile(r"[0-9]{4}-[0-9]{2}")


def parse_event_time(value: object) -> float | None:
    """Return an event time in seconds since 1970 UTC; None for a value that is none.

    Text in ISO 8601, from a year to a time with an offset, without one in UTC; or a number, as text
    too: a whole one from 1000 to 9999 is a year, others count from 1970 in seconds below 10^11 in
    size, in milliseconds below 10^14, then in micro- and nanoseconds. Text of 8 digits is a date. A
    date or datetime is what it is, without a zone in UTC.
    """
    if type(value) is bytes:
        value = value.decode(errors="replace")
    if type(value) is str:
        text = value.strip()
        return _parse_number(text) if _DIGITS.fullmatch(text) else _parse_text(text)
    if type(value) is int or type(value) is float:
        return _parse_number(value)
    return _parse_text(value.isoformat()) if isinstance(value, date) else None


def _parse_text(text: str) -> float | None:
    try:
        found = datetime.fromisoformat(f"{text}-01" if _MONTH.fullmatch(text) else text)
    except ValueError:
        return None
    return in_range((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())


def _parse_number(value: str | float) -> float | None:
    if type(value) is str and len(value) == 8 and value.isdecimal():
        return _parse_text(value)
    number = float(value) if isinstance(value, str) else value
    if not abs(number) < 1e21:
        # NaN, and integers that no float holds.
        return None
    if 1000 <= number <= 9999 and number == int(number):
        return datetime(int(number), 1, 1, tzinfo=UTC).timestamp()
    for _ in range(3):
        if abs(number) < _SECONDS_BELOW:
            break
        number /= 1000
    return in_range(float(number))


def in_range(seconds: float) -> float | None:
    """Return a time that lies in the years 1 to 9999, else None."""
    return seconds if _FIRST <= seconds < _LAST else None
