"""Event times of values, and their bins."""

from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamlda.documents import UNDATED
from streamlda.errors import InvalidSettingError
from streamlda.stream.event_time import UNITS, TimeReader, parse_event_time
from streamlda.stream.pipeline import find_bins

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


# The years 1980 to 2286: whole numbers of 12 and 14 digits may be times by their digits.
@given(st.integers(315_532_800, 10**10 - 1), st.sampled_from([1, -1]))
@example(1_551_398_400, 1)
def test_numbers_are_seconds_or_by_their_size_smaller_units(number, sign):
    number *= sign
    wanted, text = float(number), str(number)
    assert parse_event_time(text) == wanted
    assert parse_event_time(number) == parse_event_time(float(number)) == wanted
    for unit in (10**3, 10**6, 10**9):
        assert parse_event_time(number * unit) == wanted


def test_what_is_no_time_is_none():
    for value in (
        *(None, True, [], {}, "", " ", "soon", "2019-02-30", "20190230", "2019-13", "1e9", "0x7"),
        *("12:00", "2019-03-01T25:00", float("nan"), float("inf"), -1e300, 10**400, "9" * 400),
        *(-62_135_596_801, b"\xff\xfe", "\u0662\u0660\u0661\u0669"),
        # Near 1970, and days of Excel; without a year; a month or a zone that is none.
        *(0, 86_400, 45_658, "45658.5", -1, 99_999_999, 202_513, "20250230", 10**8 - 1),
        *("Monday", "Jan 6", "2025/13/01", "13/13/2025", "01/06/25", "6 Jan 2025 7:00 QQT"),
        *("01/06/2025", "01.06.2025 10:00"),
    ):
        assert parse_event_time(value) is None


COMMON = {
    "2017/2/7": datetime(2017, 2, 7),
    "2016/12/30 7:11": datetime(2016, 12, 30, 7, 11),
    "Jan 06, 2025": datetime(2025, 1, 6),
    "6 January 2025 10:30 PM": datetime(2025, 1, 6, 22, 30),
    "Mon, 06 Jan 2025 10:00:00 +0200": datetime(2025, 1, 6, 8),
    "Mon, 06 Jan 2025 10:00:00 EST": datetime(2025, 1, 6, 15),
    "Wed Aug 27 13:08:45 +0000 2008": datetime(2008, 8, 27, 13, 8, 45),
    "May 2017": datetime(2017, 5, 1),
    202501: datetime(2025, 1, 1),
    "202501.0": datetime(2025, 1, 1),
    20250106: datetime(2025, 1, 6),
    "20250106101500": datetime(2025, 1, 6, 10, 15),
    202501061015: datetime(2025, 1, 6, 10, 15),
    "2025010610": datetime(2025, 1, 6, 10),
    # No day of any month, and a second of this century.
    2025019910: datetime(2034, 3, 3, 17, 31, 50),
    1893456000: datetime(2030, 1, 1),
    # Google's forms, dates of JavaScript and of Java.
    "2025/01/06 10:00:00 AM GMT+1": datetime(2025, 1, 6, 9),
    "Mon Jan 06 2025 10:00:00 GMT-0500 (Eastern Standard Time)": datetime(2025, 1, 6, 15),
    "Mon Jul 07 10:00:00 CEST 2025": datetime(2025, 7, 7, 8),
    "2025-07-07 10:00 UTC+02:00": datetime(2025, 7, 7, 8),
}


@pytest.mark.parametrize("value", COMMON, ids=str)
def test_common_forms_of_time_are_read(value):
    assert parse_event_time(value) == seconds(COMMON[value])


@pytest.mark.parametrize(
    ("values", "first"),
    [
        (["01/06/2025", "13/06/2025"], datetime(2025, 6, 1)),
        (["01/06/2025", "01/13/2025 7:00"], datetime(2025, 1, 6)),
        (["01.06.2025", b"13.06.2025"], datetime(2025, 6, 1)),
        (["01/06/2025", "06/01/2025"], None),
    ],
)
def test_day_or_month_first_is_decided_by_all_values(values, first):
    read = TimeReader(None, lambda: values)
    assert read(values[0]) == (None if first is None else seconds(first))
    assert bool(read.take_notes()) == (first is None)
    # A stream has no end to look at.
    assert TimeReader()(values[1]) is None
    # A row of the other order is not read.
    read = TimeReader(None, lambda: ["13/06/2025"])
    assert read("06/13/2025") is None
    (note,) = read.take_notes()
    assert "dd/dd/dddd are not read: give it: --time-format %d/%m/%Y or %m" in note


def test_a_form_that_is_named_is_read_and_no_other():
    for form, values, wanted in (
        ("%d-%m-%Y %H.%M", ["06-01-2025 10.00", b" 06-01-2025 10.00"], datetime(2025, 1, 6, 10)),
        ("%Y%m%d", [20250106, 20250106.0, "20250106"], datetime(2025, 1, 6)),
        ("excel", [45663.25, "45663.25"], datetime(2025, 1, 6, 6)),
        ("unix", [86400, "86400", 86400.0], datetime(1970, 1, 2)),
    ):
        read = TimeReader(form)
        assert {read(value) for value in values} == {seconds(wanted)}
        assert read("2025 or later") is None
        assert read.take_notes() == [
            f"event times of the form dddd aa aaaaa are not read: they are not of the form {form}"
        ]
        # Of a pattern that was named, and missing ones.
        assert [read(value) for value in ("2024 as abcde", None, "")] == [None] * 3
        assert read.take_notes() == []
        for wrong in ("", "day", "%H:%M", "%d/%m"):
            with pytest.raises(InvalidSettingError, match="with a year"):
                TimeReader(wrong)


def beginning(time, unit):
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
