"""FileSource: finding files, refusing what cannot work, counting what is bad, staying small."""

import bz2
import gzip
import io
import json
import math
import sys
import tracemalloc
from collections import deque
from contextlib import closing
from functools import partial
from pathlib import Path

import fsspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamlda.errors import MissingExtraError, SourceError
from streamlda.stream.source import Reject
from streamlda_connectors import lines, records
from streamlda_connectors.files import FileSource
from streamlda_connectors.kafka.decoding import RecordOptions
from streamlda_connectors.kafka.partitions import Record, Run
from streamlda_connectors.records import MOST_FIELDS, BatchBuilder, ReadOptions
from tests.connectors.test_resume import COMPRESS


def drain(source, max_records=100):
    texts, rejects = [], []
    while True:
        poll = source.poll(max_records, 60.0)
        texts += poll.documents
        rejects += poll.rejects
        if poll.exhausted:
            source.close()
            return texts, [(reject.record, reject.reason) for reject in rejects]


def reopen(source, *arguments, **options):
    position = source.position()
    source.close()
    again = FileSource(*arguments, **options)
    again.seek(position)
    return again


def test_urls_of_other_file_systems_are_read():
    memory = fsspec.filesystem("memory")
    memory.pipe("/streamlda-test/a.jsonl.gz", gzip.compress(b'{"text": "one"}\n{'))
    memory.pipe("/streamlda-test/b.txt", b"two\nthree")
    source = FileSource("memory://streamlda-test/*")
    poll = source.poll(3)
    assert poll.rejects == [Reject("memory:///streamlda-test/a.jsonl.gz", 2, "not-json")]
    assert poll.documents == ["one", "two"]
    assert drain(reopen(source, "memory://streamlda-test/*")) == (["three"], [])
    # Of remote files, only the first of each format is opened when the source is made.
    memory.pipe("/streamlda-csv/a.csv", b"text\none\n")
    memory.pipe("/streamlda-csv/b.csv", b"body\ntwo\n")
    assert drain(FileSource("memory://streamlda-csv")) == (["one"], [(1, "missing-column")])


@pytest.mark.parametrize("ending", ["csv.gz", "parquet"])
def test_file_without_the_column_is_an_error_that_names_columns(ending, tmp_path):
    if ending == "parquet":
        pq.write_table(pa.table({"id": [1], "body": ["x"]}), tmp_path / "a.parquet")
    else:
        data = b"id,body\n1,secret\n"
        (tmp_path / f"a.{ending}").write_bytes(COMPRESS[ending[3:]](data))
    with pytest.raises(SourceError, match=r"columns=\['id', 'body'\]") as caught:
        FileSource(tmp_path)
    assert "secret" not in str(caught.value)
    assert len(FileSource(tmp_path, text_field="body").poll(5).documents) == 1


@pytest.mark.parametrize("column", [[1, 2], [[1], [2]], [{"x": 1}, {"x": 2}]])
def test_parquet_column_of_something_else_is_an_error(column, tmp_path):
    pq.write_table(pa.table({"text": column}), tmp_path / "a.parquet")
    with pytest.raises(SourceError, match="no such column of text"):
        FileSource(tmp_path)


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(),
     pa.dictionary(pa.int32(), pa.string())],
    ids=str,
)  # fmt: skip
def test_parquet_columns_of_text_are_read(kind, tmp_path):
    column = pa.array(["a", None, "é", "a"], pa.string()).cast(kind)
    nested = pa.StructArray.from_arrays([column, column], ["other", "body"])
    deep = pa.StructArray.from_arrays([nested], ["n"])
    pq.write_table(
        pa.table({"text": column, "nested": nested, "deep": deep}), tmp_path / "a.parquet"
    )
    for field in ("text", "nested.body", "deep.n.body"):
        source = FileSource(tmp_path, text_field=field, user_field="nested.other")
        assert source.poll(9).users == ["a", None, "é", "a"]
        assert drain(FileSource(tmp_path, text_field=field)) == (["a", "é", "a"], [])


@pytest.mark.parametrize(
    ("kind", "values", "users"),
    [
        (pa.string(), ["ann", "", None, "7"], ["ann", None, None, "7"]),
        (pa.int64(), [7, None, -1, 0], ["7", None, "-1", "0"]),
        (pa.uint64(), [2**64 - 1, 1, 2, 3], [str(2**64 - 1), "1", "2", "3"]),
        (pa.float64(), [7.0, 8.0, 9.0, 1.0], [None] * 4),
        (pa.list_(pa.string()), [["ann"], [], None, ["bo"]], [None] * 4),
        (pa.date32(), [0, 1, 2, None], ["1970-01-01", "1970-01-02", "1970-01-03", None]),
    ],
    ids=str,
)
def test_parquet_users_are_text_or_integers(kind, values, users, tmp_path):
    column, texts = pa.array(values, kind), pa.array(["a", "b", "c", "d"])
    pq.write_table(pa.table({"user": column, "text": texts}), tmp_path / "a.parquet")
    source = FileSource(tmp_path, user_field="user")
    first = source.poll(3)
    assert first.documents == ["a", "b", "c"]
    assert first.users + reopen(source, tmp_path, user_field="user").poll(3).users == users


@pytest.mark.parametrize(
    ("package", "extra", "name"),
    [("zstandard", "zstd", "a.txt.zst"), ("pyarrow", "parquet", "a.parquet")],
)
def test_missing_extra_is_named(package, extra, name, tmp_path, monkeypatch):
    (tmp_path / name).touch()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"extra {extra}: pip install '{package}>="):
        FileSource(tmp_path)


@pytest.mark.parametrize("ending", [ending for ending in COMPRESS if ending])
def test_what_is_whole_in_a_damaged_file_is_read_and_then_the_next_file(ending, tmp_path):
    lines = [f"line {i} {i * 7919 % 1000003}" for i in range(30_000)]
    # Blocks of bz2 are 100 kB then, several of the file.
    compress = partial(bz2.compress, compresslevel=1) if ending == ".bz2" else COMPRESS[ending]
    data = compress("\n".join(lines).encode())
    (tmp_path / f"a.txt{ending}").write_bytes(data[: len(data) * 2 // 3])
    (tmp_path / f"b.txt{ending}").write_bytes(b"no such format")
    (tmp_path / f"c.csv{ending}").write_bytes(COMPRESS[ending](b"text,id\n" * 9)[:-5])
    for name in ("d.txt", "e.csv"):
        (tmp_path / f"{name}{ending}").touch()
    (tmp_path / f"f.txt{ending}").write_bytes(COMPRESS[ending](b""))
    (tmp_path / "g.txt").write_text("last")
    texts, rejects = drain(FileSource(tmp_path / "*"), 5000)
    same = [text == line for text, line in zip(texts, lines, strict=False)]
    n_whole = same.index(False)
    assert n_whole > 2_000
    assert texts[-1] == "last"
    assert set(texts[n_whole:-1]) <= {"text"}
    assert rejects[:2] == [(n_whole + 1, "broken-compression"), (1, "broken-compression")]
    assert [reason for _, reason in rejects[2:]] == ["broken-compression"]


def test_broken_parquet_is_one_reject(tmp_path):
    pq.write_table(
        pa.table({"text": [f"{i} {i * 7919 % 1000003}" for i in range(9000)]}),
        tmp_path / "a.parquet", compression="none", use_dictionary=False, row_group_size=3000,
    )  # fmt: skip
    data = bytearray((tmp_path / "a.parquet").read_bytes())
    group = pq.ParquetFile(tmp_path / "a.parquet").metadata.row_group(1).column(0)
    data[group.data_page_offset : group.data_page_offset + 40] = b"\xff" * 40
    (tmp_path / "a.parquet").write_bytes(data)
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and no more")
    (tmp_path / "c.txt").write_text("last")
    texts, rejects = drain(FileSource(tmp_path / "*"))
    assert len(texts) == 3001
    assert rejects == [(3001, "broken-parquet"), (1, "broken-parquet")]


def test_bad_csv_headers_and_too_long_records(tmp_path):
    (tmp_path / "a.csv").write_bytes(b'"text,id\n1,2\n')
    (tmp_path / "b.csv").write_bytes(b"\xff,text\n1,2\n")
    (tmp_path / "c.csv").write_bytes(b"\ntext,id\nx,2")
    # With the lines inside its quotes.
    (tmp_path / "d.csv").write_text('text,id\n"' + "x" * 99 + '\ny,1\n""\nz",2\nshort,3\n')
    rejects = [(1, "broken-csv"), (1, "not-utf8"), (1, "too-long")]
    assert drain(FileSource(tmp_path / "*", max_document_bytes=20)) == (["x", "short"], rejects)


@pytest.mark.parametrize("ending", list(COMPRESS))
def test_memory_bounded_for_a_line_of_any_length(ending, tmp_path):
    # A slice of zstd may expand to 16 MiB, held twice; the window of xz has 8 MiB.
    most = {".zst": 56, ".xz": 14}.get(ending, 6) * 2**20
    line = b"x" * (most + 16 * 2**20)
    (tmp_path / f"a.txt{ending}").write_bytes(COMPRESS[ending](line + b"\nshort\n"))
    del line
    source = FileSource(tmp_path / "*", max_document_bytes=2**20)
    tracemalloc.start()
    try:
        assert drain(source) == (["short"], [(1, "too-long")])
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < most


def test_poll_stops_at_a_bound_of_bytes(tmp_path, monkeypatch):
    for module in (lines, records):
        monkeypatch.setattr(module, "MAX_POLL_BYTES", 1000)
    (tmp_path / "a.txt").write_text(("x" * 300 + "\n") * 10)
    source = FileSource(tmp_path / "*")
    assert [len(source.poll(100).documents) for _ in range(3)] == [4, 4, 2]


def parquet_of(*texts):
    file = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), file)
    return file.getvalue()


@pytest.mark.parametrize(
    ("name", "before", "after", "missing"),
    [
        *((f"a.txt{ending}", b"one\ntwo\nthree\n", b"one\n", "bytes_missing=4")
          for ending in COMPRESS),
        ("a.csv", b"text\none\ntwo\n", b"", "bytes_missing=13"),
        ("a.csv.gz", b"text\none\ntwo\n", b"", "bytes_missing=13"),
        ("a.parquet", parquet_of("a", "b", "c"), parquet_of("a"), "rows=1 rows_read=2"),
    ],
)  # fmt: skip
def test_resume_in_a_file_that_lost_what_was_read_or_another_list_is_an_error(
    name, before, after, missing, tmp_path
):
    path = tmp_path / name
    compress = COMPRESS.get(path.suffix, COMPRESS[""])
    path.write_bytes(compress(before))
    source = FileSource(tmp_path / "*")
    source.poll(2)
    path.write_bytes(compress(after))
    again = reopen(source, tmp_path / "*")
    with pytest.raises(SourceError, match=missing):
        again.poll(1)
    again.close()
    (tmp_path / "b.txt").write_text("three")
    with pytest.raises(SourceError, match="made with another list of files"):
        FileSource(tmp_path / "*").seek(source.position())


def test_every_reason_is_in_the_readme():
    readme = (Path(records.__file__).parents[1] / "README.md").read_text()
    assert [reason for reason in records.REASONS if f"`{reason}`" not in readme] == []


def test_a_long_file_comes_over_many_polls_and_a_position_is_before_it(tmp_path):
    text = "word\n" * 200_000
    (tmp_path / "a.txt").write_text(text, "ascii")
    with closing(FileSource(tmp_path)) as source:
        assert source.poll(9, 0.0).texts == []
        position = source.position()
        assert (position["file"], position["record"]) == (0, 0)
    with closing(FileSource(tmp_path)) as again:
        again.seek(position)
        assert again.poll(9, 60.0).documents == [text]
    # A pattern is read as lines unless whole files are asked for.
    for form, wanted in (("file", [text]), ("auto", ["word"] * 9)):
        with closing(FileSource(tmp_path / "*.txt", format=form)) as source:
            assert source.poll(9, 60.0).documents == wanted


def test_what_a_file_loses_by_its_end_is_known(tmp_path):
    for name, data, texts, lost in (
        ("a.json", b'["a", {"text": "b"}]', ["a", "b"], None),
        ("a.json", b'["a", "b', [], 8),
        ("a.csv", b'text\na\n"b', ["a"], 2),
        ("a.csv", b'text\na\n"b\nc\nd"\n', ["a", "b\nc\nd"], None),
    ):
        path = tmp_path / name
        path.write_bytes(data)
        with closing(FileSource(path)) as source:
            batch = source.poll(9)
        assert batch.documents == texts
        assert (batch.lost_bytes, len(batch.notes)) == ((0, 0) if lost is None else (lost, 1))
        with gzip.open(f"{path}.gz", "wb") as file:
            file.write(data)
        with closing(FileSource(f"{path}.gz")) as source:
            batch = source.poll(9)
        assert batch.documents == texts
        size = (tmp_path / f"{name}.gz").stat().st_size
        if lost is None:
            assert not batch.lost_bytes
        else:
            part = 1 if lost == len(data) else lost / len(data)
            assert batch.lost_bytes == math.ceil(part * size)


@pytest.mark.parametrize(
    ("records", "fields"),
    [
        ([{"text": "one"}, {"text": 7, "a": 1}], ()),
        ([{"body": "secret", "Über uns": 1}, {"other": "secret"}], ("body", "Über uns")),
        ([{}, {"body": "secret", "text": None}], ()),
        ([{"long " * 9: 1, "a\nb": 1}], ("<45 characters>", "<3 characters>")),
        ([{f"f{i}": 1 for i in range(21)}], (*(f"f{i}" for i in range(MOST_FIELDS)), "...")),
        ([{"x" * 40: 1, "see you at nine": 1}], ("x" * 40, "<15 characters>")),
    ],
)
def test_fields_of_the_first_record_without_text_are_named(tmp_path, records, fields):
    data = "\n".join(map(json.dumps, records))
    (tmp_path / "a.jsonl").write_text(data, "ascii")
    with closing(FileSource(tmp_path)) as source:
        assert source.poll(10).fields == fields
    rows = [Record("t", 0, i, 0, None, line.encode()) for i, line in enumerate(data.split("\n"))]
    batch = BatchBuilder(10, 0.0)
    assert RecordOptions("t", "jsonl", ReadOptions(), None).take(
        batch, deque([Run(0, rows)]), {0: 0}
    )
    assert batch.fields == fields
