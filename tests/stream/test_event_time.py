"""Event times of values, and their bins."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamlda.documents import UNDATED
from streamlda.stream.event_time import UNITS, parse_event_time
from streamlda.stream.time_bins import TimeSpan, find_bins

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30))


def seconds(time):
    return (time.replace(tzinfo=UTC) - EPOCH).total_seconds()


@given(TIMES, st.integers(-1439, 1439))
def test_iso_8601_is_the_time_that_it_names(time, minutes):
    wanted = seconds(time)
    texts = [time.isoformat(), time.isoformat() + "Z", f" {time.isoformat(' ')}+00:00"]
    offset = timedelta(minutes=minutes)
    sign, rest = "-" if minutes < 0 else "+", abs(minutes)
    shifted = f"{(time + offset).isoformat()}{sign}{rest // 60:02}:{rest % 60:02}"
    assert {parse_event_time(text) for text in [*texts, shifted, texts[0].encode()]} == {wanted}


@given(TIMES)
def test_dates_are_their_beginning(time):
    day, year = datetime(time.year, time.month, time.day), f"{time.year:04}"
    assert parse_event_time(f"{day:%m}".join([f"{year}-", ""])) == seconds(day.replace(day=1))
    for text in (f"{year}-{day:%m-%d}", f"{year}{day:%m%d}"):
        assert parse_event_time(text) == seconds(day)
    if time.year >= 1000:
        first = seconds(datetime(time.year, 1, 1))
        assert (
            parse_event_time(year)
            == parse_event_time(time.year)
            == parse_event_time(float(time.year))
            == first
        )


@given(st.integers(10_000, 10**11 - 1), st.sampled_from([1, -1]))
@example(1_551_398_400, 1)
def test_numbers_are_seconds_or_by_their_size_smaller_units(number, sign):
    number *= sign
    wanted = float(number) if number >= -62_135_596_800 else None
    text = str(number)
    if len(text) != 8:  # a date
        assert parse_event_time(text) == wanted
    assert parse_event_time(number) == parse_event_time(float(number)) == wanted
    if abs(number) >= 10**8:
        for unit in (10**3, 10**6, 10**9):
            assert parse_event_time(number * unit) == wanted


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, [], {}, "", " ", "soon", "2019-02-30", "20190230", "2019-13", "1e9", "0x7"),
        *("12:00", "2019-03-01T25:00", float("nan"), float("inf"), -1e300, 10**400, "9" * 400),
        *(-62_135_596_801, b"\xff\xfe", "\u0662\u0660\u0661\u0669"),
    ],
)
def test_what_is_no_time_is_none(value):
    assert parse_event_time(value) is None


def beginning(time, unit):
    """Return the beginning of the unit that a time lies in."""
    day = time.replace(hour=0, minute=0, second=0, microsecond=0)
    return {
        "hour": day.replace(hour=time.hour),
        "day": day,
        "week": day - timedelta(days=time.weekday()),
        "month": day.replace(day=1),
        "year": day.replace(month=1, day=1),
    }[unit]


@given(st.lists(st.one_of(st.none(), TIMES), max_size=20), st.sampled_from(UNITS))
def test_bins_of_the_calendar_begin_where_its_units_do(times, unit):
    # The first week of the calendar begins on its first day, a Monday.
    given_times = np.array([np.nan if time is None else seconds(time) for time in times])
    starts = find_bins(given_times, unit)
    wanted = [UNDATED if t is None else int(seconds(beginning(t, unit))) for t in times]
    assert starts.tolist() == wanted
    assert starts.dtype == np.int64


@given(st.lists(st.lists(st.one_of(st.just(np.nan), st.floats(-6e10, 2e11))), max_size=5))
def test_a_span_is_that_of_all_times_however_they_come(parts):
    span = TimeSpan()
    for part in parts:
        span.add(np.array(part))
        span = TimeSpan(*span.to_json())
    dated = [time for part in parts for time in part if not np.isnan(time)]
    assert span.to_json() == ([min(dated), max(dated)] if dated else [None, None])
    assert [time is None for time in span.to_text()] == [not dated] * 2
