"""Event times of files: the same column gives the same times, however it is stored."""

import csv
import json
from datetime import UTC, date, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamlda_connectors.files import FileSource

DAYS = [datetime(2025, 6, 1), datetime(2025, 6, 2), None, datetime(2025, 6, 13)]


def form(format):
    return [None if day is None else day.strftime(format) for day in DAYS]


#: Values of a column, and the `time_format` that it needs.
COLUMNS = {
    "iso": (form("%Y-%m-%d"), None),
    "year first": (form("%Y/%m/%d 00:00"), None),
    "day first": (form("%d/%m/%Y"), None),
    "month first": (form("%m/%d/%Y 00:00:00"), None),
    "dots": (form("%d.%m.%Y"), None),
    "words": (form("%d %B %Y"), None),
    "mail": (form("%a, %d %b %Y 00:00:00 +0000"), None),
    "digits": ([None if day is None else int(day.strftime("%Y%m%d")) for day in DAYS], None),
    "seconds": ([day and int(day.replace(tzinfo=UTC).timestamp()) for day in DAYS], None),
    "excel": ([day and (day - datetime(1899, 12, 30)).days for day in DAYS], "excel"),
    "own": (form("%y|%d|%m"), "%y|%d|%m"),
}


def write(path, kind, values):
    texts = [f"text {number}" for number in range(len(values))]
    if kind == "csv":
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([("text", "at"), *zip(texts, values, strict=True)])
    elif kind == "jsonl":
        rows = zip(texts, values, strict=True)
        path.write_text("".join(json.dumps({"text": t, "at": v}) + "\n" for t, v in rows))
    else:
        pq.write_table(pa.table({"text": texts, "at": values}), path)


def read_times(path, time_format=None):
    source = FileSource(path, time_field="at", time_format=time_format)
    batch = source.poll(100)
    source.close()
    assert batch.rejects == []
    return batch.times, batch.notes


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
@pytest.mark.parametrize("name", COLUMNS)
def test_equal_columns_give_equal_times(kind, name, tmp_path):
    values, time_format = COLUMNS[name]
    write(tmp_path / f"a.{kind}", kind, values)
    wanted = [None if day is None else day.replace(tzinfo=UTC).timestamp() for day in DAYS]
    assert read_times(tmp_path / f"a.{kind}", time_format) == (wanted, ())


def test_dates_of_parquet_need_no_form(tmp_path):
    write(tmp_path / "a.parquet", "parquet", [date(2025, 6, 1), None])
    assert read_times(tmp_path / "a.parquet")[0] == [1748736000.0, None]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_column_that_does_not_tell_day_from_month_is_said(kind, tmp_path):
    write(tmp_path / f"a.{kind}", kind, ["01/06/2025", "02/06/2025"])
    times, (note,) = read_times(tmp_path / f"a.{kind}")
    assert times == [None, None]
    assert "give it: --time-format %d/%m/%Y or %m/%d/%Y" in note
    # A later file of the same source may tell.
    write(tmp_path / f"b.{kind}", kind, ["14/06/2025"])
    assert None not in read_times(tmp_path)[0]


def test_positions_are_as_without_looking_ahead(tmp_path):
    write(tmp_path / "a.csv", "csv", [*["01/06/2025"] * 50, "13/06/2025"])
    options = {"time_field": "at"}
    source = FileSource(tmp_path / "a.csv", **options)
    first = source.poll(20)
    again = FileSource(tmp_path / "a.csv", **options)
    again.seek(source.position())
    assert again.poll(100).texts == source.poll(100).texts
    assert first.times == [datetime(2025, 6, 1, tzinfo=UTC).timestamp()] * 20
