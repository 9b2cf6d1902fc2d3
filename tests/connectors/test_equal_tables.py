"""Equal tables give equal documents, times and topics, however they were written."""

import csv
import io
import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from itertools import product

import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamlda import StreamLDA
from streamlda_connectors.files import FileSource

DAYS = [datetime(2025, 1, 6, tzinfo=UTC) + timedelta(days=9 * n) for n in range(20)]
SEA = ['the salt "wave", the ship', "ship café wave; salt", "sea salt\tship été", None]
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


def make_rows(form):
    """Return the table with times in a form."""
    return [row | {"when": TIMES[form](row["when"])} for row in TABLE]


def write_csv(rows, delimiter, end):
    written = io.StringIO(newline="")
    lines = csv.DictWriter(written, list(rows[0]), delimiter=delimiter, lineterminator=end)
    lines.writeheader()
    lines.writerows(rows)
    return written.getvalue()


def write_json(rows, kind, end):
    if kind == "jsonl":
        return "".join(json.dumps(row, ensure_ascii=False) + end for row in rows)
    names = list(rows[0])
    contents = {
        "array": rows,
        "data": {"n": 20, "data": rows, "next": None},
        "columns": {name: {n: row[name] for n, row in enumerate(rows)} for name in names},
        "split": {"columns": names, "data": [[row[name] for name in names] for row in rows]},
    }
    return json.dumps(contents[kind], ensure_ascii=False, indent=1).replace("\n", end)


def read_table(path, **options):
    """Return text (None without one), time and id of each record."""
    source = FileSource(path, time_field="when", id_field="id", **options)
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
def test_csv(form, delimiter, tmp_path):
    rows = make_rows(form)
    for number, (encoding, end) in enumerate(product(ENCODINGS, ENDS)):
        path = tmp_path / f"{number}.csv"
        path.write_bytes(write_csv(rows, delimiter, ENDS[end]).encode(encoding))
        named = {"encoding": encoding} if encoding in NAMED else {}
        assert read_table(path, **named) == EXPECTED, (encoding, end)


@pytest.mark.parametrize("form", TIMES)
@pytest.mark.parametrize("kind", ["jsonl", "array", "data", "columns", "split"])
def test_json(form, kind, tmp_path):
    rows = make_rows(form)
    for number, (encoding, end) in enumerate(product(ENCODINGS, ENDS)):
        path = tmp_path / f"{number}.{'jsonl' if kind == 'jsonl' else 'json'}"
        path.write_bytes(write_json(rows, kind, ENDS[end]).encode(encoding))
        options = {"encoding": encoding} if encoding in NAMED else {}
        options |= {"records_field": "data"} if kind == "data" else {}
        check_documents(read_table(path, **options))


@pytest.mark.parametrize("form", [*TIMES, None])
def test_parquet_and_workbooks(form, tmp_path):
    rows = TABLE if form is None else make_rows(form)
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    check_documents(read_table(tmp_path / "a.parquet"))
    book = openpyxl.Workbook()
    book.active.append(list(rows[0]))
    for row in rows:
        plain = [v.replace(tzinfo=None) if isinstance(v, datetime) else v for v in row.values()]
        book.active.append(plain)
    book.save(tmp_path / "a.xlsx")
    assert read_table(tmp_path / "a.xlsx") == EXPECTED


def test_topics_and_rows_of_equal_tables_are_equal(tmp_path):
    rows = make_rows("slashes")
    (tmp_path / "a.csv").write_bytes(write_csv(rows, ";", "\r\n").encode("utf-16"))
    (tmp_path / "b.json").write_text(write_json(rows, "array", "\n"), "utf-8")
    pq.write_table(pa.Table.from_pylist(TABLE), tmp_path / "c.parquet")
    own = [row["text"] for row in TABLE]
    expected = StreamLDA(2, random_state=0).fit(own)
    table = expected.document_table(own, form="dict")
    for path in sorted(tmp_path.iterdir()):
        texts = FileSource(path).poll(1000, 60).texts
        lda = StreamLDA(2, random_state=0).fit(texts)
        assert (lda.components_ == expected.components_).all()
        assert lda.document_table(texts, form="dict") == table
