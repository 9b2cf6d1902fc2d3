"""Equal tables give equal documents and times, however they were written."""

import csv
import io
import json
import math
from contextlib import closing
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import product

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamlda_connectors.csv_files import NULL
from streamlda_connectors.files import FileSource
from tests.connectors.test_shapes import write_rows

DAYS = [datetime(2025, 1, 6, tzinfo=UTC) + timedelta(days=9 * n) for n in range(20)]
SEA = ['the salt "wave",\nthe ship', "ship café wave; salt", "sea salt\tship été", None]
CITY = ["street house | car", "the car street naïve", "house car garage, street", "7"]
TABLE = [
    {"id": n, "when": day, "text": (SEA, CITY)[n % 2][n // 2 % 4]} for n, day in enumerate(DAYS)
]

TIMES = {
    "iso": lambda day: day.isoformat(),
    "slashes": lambda day: f"{day.year}/{day.month}/{day.day} 0:00",
    "month first": lambda day: f"{day.month}/{day.day}/{day.year}",
    "day first": lambda day: day.strftime("%d.%m.%Y"),
    "name": lambda day: f"{day.day} {day:%b} {day.year}",
    "mail": format_datetime,
    "number": lambda day: f"{day:%Y%m%d}",
    "seconds": lambda day: str(int(day.timestamp())),
}
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-32", "cp1252", "utf-16-le", "gb18030")
#: Encodings that no byte order mark tells.
NAMED = ("cp1252", "utf-16-le", "gb18030")
ENDS = {"line feed": "\n", "windows": "\r\n", "old mac": "\r"}
NULLS = ("", "\\N", "NULL", "NaN", "NA", "<NA>", "#N/A")


def make_rows(form):
    return [row | {"when": TIMES[form](row["when"])} for row in TABLE]


def write_csv(rows, delimiter, end, null=""):
    written, quoting = io.StringIO(newline=""), csv.QUOTE_ALL if end == "\r" else csv.QUOTE_MINIMAL
    lines = csv.writer(written, delimiter=delimiter, lineterminator=end, quoting=quoting)
    values = ([null if value is None else value for value in row.values()] for row in rows)
    lines.writerows([[*rows[0]], *values])
    return written.getvalue()


def write_dump(rows, delimiter, end, null):
    """Return the table as databases dump it: without quotes, escaped by backslashes."""
    signs = {"\\": "\\\\", "\n": "\\n", "\t": "\\t", delimiter: f"\\{delimiter}"}
    escape = str.maketrans(signs)
    lines = [
        [null if v is None else str(v).translate(escape) for v in row.values()] for row in rows
    ]
    return "".join(delimiter.join(line) + end for line in [[*rows[0]], *lines])


def write_json(rows, kind, end):
    if kind == "jsonl":
        return "".join(json.dumps(row, ensure_ascii=False) + end for row in rows)
    if kind in FOLLOWING:
        values, form, between = FOLLOWING[kind]
        dumped = (json.dumps(each, ensure_ascii=False, indent=form) for each in values(rows))
        return "".join(between + each for each in dumped).replace("\n", end)
    names = list(rows[0])
    contents = {
        "array": rows,
        "data": {"n": 20, "data": rows, "next": None},
        "columns": {name: {n: row[name] for n, row in enumerate(rows)} for name in names},
        "lists": {name: [row[name] for row in rows] for name in names},
        "index": dict(enumerate(rows)),
        "split": {"columns": names, "data": [[*row.values()] for row in rows]},
        "values": [[*row.values()] for row in rows],
    }
    return json.dumps(contents[kind], ensure_ascii=False, indent=1).replace("\n", end)


#: Values that follow each other: as jq, cloud services and text sequences write them, and pages of
#: web interfaces.
FOLLOWING = {
    "objects": (lambda rows: rows, 2, "\n"),
    "no indent": (lambda rows: rows, 0, "\n\n"),
    "glued": (lambda rows: rows, None, ""),
    "commas": (lambda rows: rows, None, ",\n"),
    "sequence": (lambda rows: rows, None, "\n\x1e"),
    "arrays": (lambda rows: (rows[:3], rows[3:]), None, "\n"),
    "pretty arrays": (lambda rows: (rows[:3], rows[3:]), 1, "\n"),
    "pages": (lambda rows: ({"data": rows[:3]}, {"data": rows[3:]}), 1, "\n"),
}
KINDS = ("jsonl", "array", "data", "columns", "lists", "index", "split", "values", *FOLLOWING)


def read_table(path, **options):
    source = FileSource(path, **{"time_field": "when", "id_field": "id", **options})
    poll = source.poll(1000, 60)
    source.close()
    assert poll.exhausted
    assert poll.rejects == []
    # An empty field of CSV is a document without words, a null is none.
    texts = [text or None for text in poll.texts]
    ids = [at.id for at in poll.locations]
    return [each for each in zip(texts, poll.times, ids, strict=True) if each != (None,) * 3]


EXPECTED = [(row["text"], row["when"].timestamp(), str(row["id"])) for row in TABLE]
#: Without ids and times of records that have no document.
DOCUMENTS = [each for each in EXPECTED if each[0] is not None]


def check_documents(found):
    assert [each for each in found if each[0] is not None] == DOCUMENTS


@pytest.mark.parametrize("form", TIMES)
@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_csv_gives_the_same_table_in_every_dialect(form, delimiter, tmp_path):
    rows = make_rows(form)
    for number, (encoding, end) in enumerate(product(ENCODINGS, ENDS)):
        named = {"encoding": encoding} if encoding in NAMED else {}
        null = NULLS[number % len(NULLS)]
        for write in (write_csv, write_dump):
            path = tmp_path / f"{number}-{write.__name__}.csv"
            # A null tells that a dump in tabs is one.
            own = NULL if write is write_dump else null
            path.write_bytes(write(rows, delimiter, ENDS[end], own).encode(encoding))
            assert read_table(path, **named) == EXPECTED, (encoding, end, null, write)


@pytest.mark.parametrize("form", TIMES)
@pytest.mark.parametrize("kind", KINDS)
def test_json_gives_the_same_table_in_every_form(form, kind, tmp_path):
    for number, (encoding, end) in enumerate(product(ENCODINGS, ENDS)):
        # As Python's own library writes NaN of pandas.
        null = (None, math.nan)[number % 2]
        rows = [{k: null if v is None else v for k, v in row.items()} for row in make_rows(form)]
        path = tmp_path / f"{number}.{'jsonl' if kind == 'jsonl' else 'json'}"
        path.write_bytes(write_json(rows, kind, ENDS[end]).encode(encoding))
        options = {"encoding": encoding} if encoding in NAMED else {}
        options |= {"records_field": "data"} if kind in ("data", "pages") else {}
        by_number = {"id_field": "1", "time_field": "2", "text_field": "3"}
        options |= by_number if kind == "values" else {}
        check_documents(read_table(path, **options))


@pytest.mark.parametrize("value", ["1" * 30, r'"\ud83d"', "[" * 300 + "]" * 300])
def test_nan_makes_no_json_of_what_is_none(value, tmp_path):
    row = f'{{"text": "one", "n": NaN, "x": {value}}}'
    (tmp_path / "lines.jsonl").write_text(row + "\n" + '{"text": "two", "n": NaN}\n')
    (tmp_path / "array.json").write_text(f"[{row}]")
    polls = []
    for name in ("lines.jsonl", "array.json"):
        with closing(FileSource(tmp_path / name)) as source:
            polls.append(source.poll(10, 60))
    assert [poll.documents for poll in polls] == [["two"], []]
    assert [each.reason for poll in polls for each in poll.rejects] == ["not-json"] * 2


@pytest.mark.parametrize("form", [*TIMES, "times", "days"])
def test_parquet_and_workbooks_give_the_same_table(form, tmp_path):
    rows = make_rows(form) if form in TIMES else TABLE
    if form == "days":
        rows = [row | {"when": row["when"].date()} for row in rows]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    check_documents(read_table(tmp_path / "a.parquet"))
    book = openpyxl.Workbook()
    book.active.append(list(rows[0]))
    for row in rows:
        plain = [v.replace(tzinfo=None) if isinstance(v, datetime) else v for v in row.values()]
        book.active.append(plain)
    book.save(tmp_path / "a.xlsx")
    assert read_table(tmp_path / "a.xlsx") == EXPECTED


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_times_whose_form_is_named(kind, tmp_path):
    path, began = tmp_path / f"a.{kind}", datetime(1899, 12, 30, tzinfo=UTC)
    for form, write in {
        "excel": lambda day: str((day - began).days),
        "unix": lambda day: str(int(day.timestamp())),
        "%y|%d|%m": lambda day: f"{day:%y|%d|%m}",
    }.items():
        write_rows(path, [{"id": "1", "text": "x", "when": write(day)} for day in DAYS])
        found = [row[1] for row in read_table(path, time_format=form)]
        assert found == [day.timestamp() for day in DAYS]


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_a_column_that_does_not_tell_day_from_month_is_said(kind, tmp_path):
    def read():
        with closing(FileSource(tmp_path, time_field="when")) as source:
            poll = source.poll(100)
        return poll.times, poll.notes

    rows = [{"text": "x", "when": when} for when in ("01/06/2025", "02/06/2025", "14/06/2025")]
    write_rows(tmp_path / f"a.{kind}", rows[:2])
    times, (note,) = read()
    assert times == [None, None]
    assert "give it: --time-format %d/%m/%Y or %m/%d/%Y" in note
    # A later file of the same source may tell.
    write_rows(tmp_path / f"b.{kind}", rows[2:])
    assert None not in read()[0]


def test_positions_are_as_without_looking_ahead(tmp_path):
    rows = [{"text": f"text {n}", "when": "01/06/2025"} for n in range(50)]
    write_rows(tmp_path / "a.csv", [*rows, {"text": "last", "when": "13/06/2025"}])
    source, again = (FileSource(tmp_path / "a.csv", time_field="when") for _ in range(2))
    first = source.poll(20)
    again.seek(source.position())
    assert again.poll(100).texts == source.poll(100).texts
    assert first.times == [datetime(2025, 6, 1, tzinfo=UTC).timestamp()] * 20
