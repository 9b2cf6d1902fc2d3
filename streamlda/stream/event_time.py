"""Event time of a document, in seconds since 1970 UTC."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

from streamlda.checks import require

#: The time field of a source whose records have a time of their own (Kafka).
RECORD_TIME = "@record"

#: Most seconds that an event time may lie ahead of the clock; Kafka's own timestamps too.
MOST_AHEAD_SECONDS = 3600.0

#: Units of bins, of the calendar in UTC; weeks begin on Monday.
UNITS = ("hour", "day", "week", "month", "year")

#: Forms of numbers that are named: seconds (or smaller units) since 1970, and days of Excel.
UNIX, EXCEL = "unix", "excel"
_EXCEL_BEGAN = datetime(1899, 12, 30, tzinfo=UTC)

#: Numbers are seconds below this size (before the year 5138), else milliseconds, and so on; and
#: they are no times nearer to 1970: years and months, days of Excel and ids are numbers too.
_SECONDS_BELOW, _SECONDS_FROM = 1e11, 1e8

#: Years of whole numbers such as 202501 and 20250106.
_YEARS = range(1800, 2201)

_FIRST, _LAST = -62_135_596_800, 253_402_300_800  # the years 1 to 9999
_DIGITS = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
_MONTH = re.compile(r"[0-9]{4}-[0-9]{2}")
_DAY_AND_MONTH = re.compile(r"(?<!\d)(\d{1,2})([-/. ])(\d{1,2})\2\d{4}(?!\d)", re.ASCII)
_YEAR = re.compile(r"(?<!\d)\d{4}(?!\d)", re.ASCII)

#: Hours of the zones that RFC 2822 names.
_ZONES = {"UT": 0, "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8}

#: Patterns of values that are named, and the longest of them.
MOST_PATTERNS, MOST_OF_PATTERN = 5, 40


def parse_event_time(value: object, day_first: bool | None = None) -> float | None:
    """Return an event time in seconds since 1970 UTC; None for a value that is none.

    Text in ISO 8601, from a year to a time with an offset, without one in UTC; or in another form
    that dateutil knows and that has year and month (RFC 2822, ``6 Jan 2025``, ``2025/1/6 7:11``).
    ``01/06/2025`` is read only if `day_first` says how. Or a number, as text too: a whole one of
    four digits is a year, of six a month, of eight a day; others count from 1970 in seconds below
    10^11 in size, in milliseconds below 10^14, then in micro- and nanoseconds, and are none below
    10^8. A date or datetime is what it is, without a zone in UTC.
    """
    if type(value) is bytes:
        value = value.decode(errors="replace")
    if type(value) is str:
        text = value.strip()
        return _parse_number(text) if _DIGITS.fullmatch(text) else _parse_text(text, day_first)
    if type(value) is int or type(value) is float:
        return _parse_number(value)
    return _to_seconds(_datetime_of(value)) if isinstance(value, date) else None


def _datetime_of(value: date) -> datetime:
    return value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)


def _to_seconds(found: datetime) -> float | None:
    return in_range((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())


def _parse_text(text: str, day_first: bool | None) -> float | None:
    try:
        return _to_seconds(datetime.fromisoformat(f"{text}-01" if _MONTH.fullmatch(text) else text))
    except ValueError:
        return _parse_common(text, day_first)


@lru_cache(maxsize=4096)
def _parse_common(text: str, day_first: bool | None) -> float | None:
    numbers = _DAY_AND_MONTH.search(text)
    if _YEAR.search(text) is None or (numbers is not None and day_first is None):
        return None
    from dateutil.parser import parse

    try:
        # What the text lacks is taken from a default: two tell whether that is year or month.
        found, other = (
            parse(text, default=default, dayfirst=bool(numbers and day_first), tzinfos=_find_zone)
            for default in (datetime(1, 1, 1), datetime(2, 2, 1))
        )
    except (ValueError, OverflowError):
        return None
    # Where the first number is no month, the parser takes the second one.
    swapped = numbers and int(numbers[1]) != (found.day if day_first else found.month)
    same = (found.year, found.month) == (other.year, other.month)
    return _to_seconds(found) if same and not swapped else None


def _find_zone(name: str | None, offset: int | None) -> int | None:
    if name is None or offset is not None:
        return offset
    if name not in _ZONES:
        raise ValueError
    return _ZONES[name] * 3600


def _parse_number(value: str | float) -> float | None:
    if type(value) is str and len(value) == 8 and value.isdecimal():
        return _parse_text(value, None)
    number = float(value) if isinstance(value, str) else value
    if not abs(number) < 1e21:
        # NaN, and integers that no float holds.
        return None
    if abs(number) >= _SECONDS_FROM:
        return _count_from_1970(number)
    whole = int(number)
    if whole != number or whole < 0:
        return None
    if 1000 <= whole <= 9999:
        return datetime(whole, 1, 1, tzinfo=UTC).timestamp()
    year, month, day = (
        (whole // 100, whole % 100, 1)
        if whole < 1_000_000
        else (whole // 10_000, whole // 100 % 100, whole % 100)
    )
    if year not in _YEARS:
        return None
    try:
        return datetime(year, month, day, tzinfo=UTC).timestamp()
    except ValueError:
        return None


def _count_from_1970(number: float) -> float | None:
    for _ in range(3):
        if abs(number) < _SECONDS_BELOW:
            break
        number /= 1000
    return in_range(float(number))


def in_range(seconds: float) -> float | None:
    """Return a time that lies in the years 1 to 9999, else None."""
    return seconds if _FIRST <= seconds < _LAST else None


class TimeReader:
    """Reader of the event times of one source, by a form or by those of `parse_event_time`.

    Whether the day or the month comes first in ``01/06/2025`` is decided once, for all records, by
    the first value that tells; `read_ahead` returns all values of the source. Without it, or if no
    value tells, such times are not read. `take_notes` says so, and which other forms were not read.

    Parameters
    ----------
    form : str, optional
        A format of strptime; ``"unix"``: numbers since 1970, however near; ``"excel"``: days.
    read_ahead : callable, optional
        It returns the values of the time field from the first record on.
    """

    def __init__(
        self, form: str | None = None, read_ahead: Callable[[], Iterable[object]] | None = None
    ) -> None:
        self._form, self._read_ahead = form, read_ahead
        self._day_first: bool | None = None
        self._notes: list[str] = []
        self._patterns: set[str] = set()
        require(
            form is None or form in (UNIX, EXCEL) or _is_format(form),
            "a form of event times must be one of strptime with a year",
            time_format=form,
            remedy=f"write it as %d/%m/%Y %H:%M, or {UNIX}, or {EXCEL}",
        )

    def __call__(self, value: object) -> float | None:
        """Return an event time in seconds since 1970 UTC; None for a value that is none."""
        if value is None or value == "":
            return None
        found = self._read(value)
        if found is None:
            self._note(value)
        return found

    def _read(self, value: object) -> float | None:
        if isinstance(value, date):
            return parse_event_time(value)
        text = value.decode(errors="replace") if isinstance(value, bytes) else value
        if self._form is not None:
            return _parse_formatted(str(_shorten(text)).strip(), self._form)
        if isinstance(text, str) and self._day_first is None and _DAY_AND_MONTH.search(text):
            self._decide_order()
        return parse_event_time(text, self._day_first)

    def _decide_order(self) -> None:
        if self._read_ahead is None:
            return
        for value in self._read_ahead():
            text = value.decode(errors="replace") if isinstance(value, bytes) else value
            found = _DAY_AND_MONTH.search(text) if isinstance(text, str) else None
            if found is not None and (int(found[1]) > 12) != (int(found[3]) > 12):
                self._day_first = int(found[1]) > 12
                return
        # No value tells.
        self._read_ahead = None

    def _note(self, value: object) -> None:
        pattern = describe(value)
        if not pattern or pattern in self._patterns or len(self._patterns) == MOST_PATTERNS:
            return
        self._patterns.add(pattern)
        said = f"event times of the form {pattern} are not read"
        how = "give it in terms of strptime (--time-format)"
        if self._form is not None:
            how = f"they are not of the form {self._form}"
        elif _DIGITS.fullmatch(str(value)):
            how = f"--time-format {EXCEL} reads days of Excel, {UNIX} seconds since 1970"
        elif re.match(r"d{1,2}([-/. ])d{1,2}\1d{4}", pattern):
            order: dict[bool | None, str] = {
                True: "in others the day is first",
                False: "in others the month is first",
            }
            said += f" ({order.get(self._day_first, 'no record tells day from month')})"
            how = "give it (--time-format %d/%m/%Y, or %m/%d/%Y)"
        self._notes.append(f"{said}: {how}")

    def take_notes(self) -> list[str]:
        """Return sentences about values that were not read since the last call."""
        notes, self._notes = self._notes, []
        return notes


def describe(value: object) -> str:
    """Return the pattern of a value, which shows none of its digits and letters."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    text = " ".join(text.split())
    if len(text) > MOST_OF_PATTERN:
        return f"<{len(text)} characters>"
    return "".join("d" if sign.isdigit() else sign if sign in " /.-:,+" else "a" for sign in text)


def _is_format(form: str) -> bool:
    try:
        return datetime.strptime(datetime(2001, 2, 3).strftime(form), form).year == 2001
    except ValueError:
        return False


def _shorten(value: object) -> object:
    """Return a whole float as an integer, as a column with missing values has them."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _parse_formatted(text: str, form: str) -> float | None:
    try:
        if form == EXCEL:
            return _to_seconds(_EXCEL_BEGAN + timedelta(days=float(text)))
        if form == UNIX:
            return _count_from_1970(float(text))
        return _to_seconds(datetime.strptime(text, form))
    except (ValueError, OverflowError):
        return None
