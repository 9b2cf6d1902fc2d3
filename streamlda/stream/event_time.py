"""Event time of a document, in seconds since 1970 UTC."""

import re
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

from streamlda.errors import require

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

#: Forms of whole numbers by their digits, and years of those of more than four. As seconds, hours
#: of 2000 are in 2033; as milliseconds, minutes are in 1975 or 1976, and seconds after 2500.
_WHOLE = {4: "%Y", 6: "%Y%m", 8: "%Y%m%d", 10: "%Y%m%d%H", 12: "%Y%m%d%H%M", 14: "%Y%m%d%H%M%S"}
_YEARS, _YEARS_OF_HOURS = range(1800, 2201), range(2000, 2100)

#: Of like days: forms with a year tell them apart.
_IN_2001, _IN_2007 = datetime(2001, 2, 3, tzinfo=UTC), datetime(2007, 2, 3, tzinfo=UTC)

_FIRST, _LAST = -62_135_596_800, 253_402_300_800  # the years 1 to 9999
_DIGITS = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
_ISO_DAY = re.compile(r"[0-9]{8}")
_DAY_AND_MONTH = re.compile(r"(?<!\d)(\d{1,2})([-/. ])(\d{1,2})\2\d{4}(?!\d)", re.ASCII)
_YEAR = re.compile(r"(?<!\d)\d{4}(?!\d)", re.ASCII)

#: Hours of the zones that RFC 2822 names, and of Europe.
_ZONES = {"UT": 0, "EST": -5, "EDT": -4, "CST": -6, "CDT": -5, "MST": -7, "MDT": -6, "PST": -8}
_ZONES |= {"PDT": -7, "WET": 0, "WEST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3}

#: The name of a zone beside its offset: dateutil takes GMT+1 for an hour behind, as POSIX does.
_drop_name = re.compile(r"\b(?:GMT|UTC)(?=[+-]\d)|\s*\([^()]*\)$").sub

#: Patterns of values that are named, and the longest of them.
MOST_PATTERNS, MOST_OF_PATTERN = 5, 40


def parse_event_time(value: object, day_first: bool | None = None) -> float | None:
    """Return an event time in seconds since 1970 UTC; None for a value that is none.

    Text in ISO 8601, from a year to a time with an offset, without one in UTC; or in another form
    that dateutil knows and that has year and month (RFC 2822, ``6 Jan 2025``, ``2025/1/6 7:11``).
    ``01/06/2025`` is read only if `day_first` says how. Or a number, as text too: a whole one of
    four digits is a year, of six a month, of eight a day, of 10, 12 or 14 a time; others count from
    1970 in seconds below 10^11 in size, in milliseconds below 10^14, then in micro- and
    nanoseconds, and are none below 10^8. A date or datetime is what it is, without a zone in UTC.
    """
    value = _decode(value)
    if isinstance(value, date):
        value = value.isoformat()
    elif type(value) is int or type(value) is float:
        return _parse_number(value)
    if type(value) is not str:
        return None
    text = value.strip()
    if _DIGITS.fullmatch(text) and not _ISO_DAY.fullmatch(text):
        return _parse_number(float(text))
    try:
        return _to_seconds(datetime.fromisoformat(text))
    except ValueError:
        return _parse_common(text, day_first)


def _decode(value: object) -> object:
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def _to_seconds(moment: datetime) -> float | None:
    return in_range((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


@lru_cache(maxsize=4096)
def _parse_common(text: str, day_first: bool | None) -> float | None:
    numbers = _DAY_AND_MONTH.search(text)
    if _YEAR.search(text) is None or (numbers is not None and day_first is None):
        return None
    from dateutil.parser import parse

    plain = _drop_name("", text)
    try:
        # What the text lacks is taken from a default: two tell whether that is year or month.
        found, other = (
            parse(plain, default=default, dayfirst=bool(numbers and day_first), tzinfos=_find_zone)
            for default in (datetime(1, 1, 1), datetime(2, 2, 1))
        )
    except (KeyError, ValueError, OverflowError):
        return None
    # Where the first number is no month, the parser takes the second one.
    swapped = numbers and int(numbers[1]) != (found.day if day_first else found.month)
    same = (found.year, found.month) == (other.year, other.month)
    return _to_seconds(found) if same and not swapped else None


def _find_zone(name: str | None, offset: int | None) -> int | None:
    return offset if name is None or offset is not None else _ZONES[name] * 3600


def _parse_number(number: float) -> float | None:
    if not abs(number) < 1e21:
        # NaN, and integers that no float holds.
        return None
    digits = str(int(number))
    form, year = _WHOLE.get(len(digits)), digits[:4] if len(digits) > 4 else "2001"
    years = _YEARS_OF_HOURS if len(digits) == 10 else _YEARS
    if form is not None and number == int(number) and int(year) in years:
        found = _parse_formatted(digits, form)
        if found is not None:
            return found
    return _count_from_1970(number) if abs(number) >= _SECONDS_FROM else None


def _count_from_1970(number: float) -> float | None:
    for _ in range(3):
        if abs(number) < _SECONDS_BELOW:
            break
        number /= 1000
    return in_range(float(number))


def _parse_formatted(value: object, form: str) -> float | None:
    # A column with missing values has whole numbers as floats.
    is_whole = isinstance(value, float) and value.is_integer()
    text = f"{value:.0f}" if is_whole else str(value).strip()
    try:
        if form == EXCEL:
            return _to_seconds(_EXCEL_BEGAN + timedelta(days=float(text)))
        if form == UNIX:
            return _count_from_1970(float(text))
        return _to_seconds(datetime.strptime(text, form))
    except (ValueError, OverflowError):
        return None


def in_range(seconds: float) -> float | None:
    """Return a time that lies in the years 1 to 9999, else None."""
    return seconds if _FIRST <= seconds < _LAST else None


class TimeReader:
    """Reader of the event times of one source, by a form or by those of `parse_event_time`.

    A form is a format of strptime, ``"unix"`` (numbers since 1970, however near) or ``"excel"``
    (days). Whether the day or the month comes first in ``01/06/2025`` is decided once, by the first
    of all values that tells; `read_ahead` returns them. If none tells, such times are not read.
    """

    def __init__(
        self, form: str | None = None, read_ahead: Callable[[], Iterable[object]] | None = None
    ) -> None:
        self._form, self._read_ahead = form, read_ahead
        self._day_first: bool | None = None
        self._notes: list[str] = []
        self._patterns: set[str] = set()
        example, other = (day.strftime(form or "") for day in (_IN_2001, _IN_2007))
        dated = example != other and _parse_formatted(example, form or "") is not None
        rule = "time_format must be one of strptime with a year"
        remedy = f"write it as %d/%m/%Y %H:%M, or {UNIX}, or {EXCEL}"
        require(dated or form in (None, UNIX, EXCEL), rule, time_format=form, remedy=remedy)

    def __call__(self, value: object) -> float | None:
        """Return an event time in seconds since 1970 UTC; None for a value that is none."""
        if value is None or value == "":
            return None
        value = _decode(value)
        if self._form is not None and not isinstance(value, date):
            found = _parse_formatted(value, self._form)
        else:
            if self._read_ahead is not None and _find_day_and_month(value):
                orders = map(_tell_day_first, self._read_ahead())
                self._day_first = next((order for order in orders if order is not None), None)
                self._read_ahead = None
            found = parse_event_time(value, self._day_first)
        pattern = describe(value) if found is None else ""
        if pattern and pattern not in self._patterns and len(self._patterns) < MOST_PATTERNS:
            self._patterns.add(pattern)
            how = f"give it: --time-format %d/%m/%Y or %m/%d/%Y (%y: two digits), {EXCEL} or {UNIX}"
            if self._form is not None:
                how = f"they are not of the form {self._form}"
            self._notes.append(f"event times of the form {pattern} are not read: {how}")
        return found

    def take_notes(self) -> list[str]:
        """Return sentences about values that were not read since the last call."""
        notes, self._notes = self._notes, []
        return notes


def _find_day_and_month(value: object) -> re.Match[str] | None:
    value = _decode(value)
    return _DAY_AND_MONTH.search(value) if isinstance(value, str) else None


def _tell_day_first(value: object) -> bool | None:
    """Return whether the day comes first in a date; None where it does not tell."""
    found = _find_day_and_month(value)
    first, second = (int(found[1]) > 12, int(found[3]) > 12) if found else (False, False)
    return None if first == second else first


def describe(value: object) -> str:
    """Return the pattern of a value, which shows none of its digits and letters."""
    text = " ".join(str(_decode(value)).split())
    if len(text) > MOST_OF_PATTERN:
        return f"<{len(text)} characters>"
    return "".join("d" if sign.isdigit() else sign if sign in " /.-:,+" else "a" for sign in text)
