"""Every connector passes the shared checks, and refuses options and paths by rule and value."""

import bz2
import gzip
import os
import sys
import sysconfig
from contextlib import ExitStack

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamlda.errors import InvalidSettingError, SourceError
from streamlda.stream.source import Reject
from streamlda_connectors import docstrings
from streamlda_connectors.files import FileSource
from streamlda_connectors.follow import FollowSource
from streamlda_connectors.kafka import KafkaSource
from streamlda_connectors.stdin import StdinSource
from tests.connectors.checks import SOURCE_CHECKS, Case

#: The beginning of March and of January 2019.
MARCH, JANUARY = 1551398400.0, 1546300800.0


def lines_case(folder, opened):
    (folder / "a.txt").write_bytes(b"\xef\xbb\xbfone two\r\n\nthree\n\xff\nfour\x00")
    (folder / "b.txt").write_bytes(b"")
    (folder / "c.txt").write_bytes("fünf\n".encode())
    rejects = [Reject(str(folder / "a.txt"), 4, "not-utf8")]
    texts = ["one two", "three", "four\x00", "fünf"]
    return Case(lambda: FileSource(folder, format="text"), texts, rejects, blank_lines=1)


#: Lines of 81 bytes at most, one of which is blank, and one line of 82 bytes.
JSON_LINES = (
    b'{"text": "one", "by": {"id": "ann"}, "no": 12, "at": "2019-03-01T01:00:00+01:00"}',
    b"",
    b'{"text": "two", "n": 12345678, "no": "b-7", "by": {"id": 7}, "at": 1551398400000}',
    b"{",
    b"[]",
    b"{}",
    b'{"text": 3}',
    b'{"text": "\xff"}',
    b'{"text": "' + b"x" * 70 + b'"}',
    b'{"text": "", "by": {"id": true}}',
    b'{"text": "three", "by": "ann", "at": true}',
    b'{"text": "four", "by.id": "7"}',
    b'{"text": "five", "by": {"id": ""}}',
)
JSON_OPTIONS = {
    "format": "jsonl",
    "user_field": "by.id",
    "time_field": "at",
    "id_field": "no",
    "max_document_bytes": 81,
}


def json_lines(make, location, **options):
    reasons = ["not-json", "not-an-object", "missing-field", "not-text", "not-utf8", "too-long"]
    return Case(
        make,
        ["one", "two", "", "three", "four", "five"],
        [Reject(str(location), 4 + i, reason) for i, reason in enumerate(reasons)],
        blank_lines=1,
        users=["ann", "7", None, None, "7", None],
        times=[MARCH, MARCH, None, None, None, None],
        ids=["12", "b-7", None, None, None, None],
        **options,
    )


def jsonl_case(folder, opened):
    path = folder / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n".join(JSON_LINES)))
    return json_lines(lambda: FileSource(path, **JSON_OPTIONS), path)


def stdin_case(folder, opened):
    path = folder / "input"
    path.write_bytes(b"\n".join(JSON_LINES))

    def make():
        return StdinSource(opened.enter_context(path.open("rb")), **JSON_OPTIONS)

    return json_lines(make, "stdin")


def follow_jsonl_case(folder, opened):
    path = folder / "a.jsonl"
    path.write_bytes(b"\n".join(JSON_LINES) + b"\n")
    return json_lines(lambda: FollowSource([path], **JSON_OPTIONS), path, ends=False)


def csv_case(folder, opened):
    path = folder / "a.csv"
    rows = (
        '\ufeff"text",id,on\r\n"one, ""1""\r\ntwo",1,2019-03-01\r\nplain 5" disk,2,\r\n\r\n'
        'a,b,c,d\r\n"",3,1551398400\r\n"closed"x,4,soon\r\nno name,,"2019"\r\n"open,5,\r\n'
    )
    path.write_bytes(rows.encode())
    rejects = [Reject(str(path), 4, "broken-csv"), Reject(str(path), 8, "broken-csv")]
    texts = ['one, "1"\r\ntwo', 'plain 5" disk', "", "closedx", "no name"]
    (folder / "b.csv").write_text("text\nlast\n")
    options = {"user_field": "id", "time_field": "on", "id_field": "id"}
    return Case(
        lambda: FileSource([str(path), str(folder / "b.csv")], **options),
        [*texts, "last"],
        rejects,
        blank_lines=1,
        users=["1", "2", "3", "4", None, None],
        times=[MARCH, None, MARCH, None, JANUARY, None],
        ids=["1", "2", "3", "4", None, None],
    )


def parquet_case(folder, opened):
    path = folder / "a.parquet"
    column = pa.array([b"one", None, b"\xff", b"two", b"x" * 100, b"three"], pa.binary())
    users = pa.array([b"ann", b"no", b"text", b"\xff", b"long", None], pa.binary())
    days = pa.array([17956, 0, 0, None, 0, 17897], pa.int32()).cast(pa.date32())
    numbers = pa.array([3, 1, 4, None, 5, 9])
    table = pa.table({"user": users, "text": column, "day": days, "n": numbers})
    pq.write_table(table, path, row_group_size=4)
    rejects = [Reject(str(path), 3, "not-utf8"), Reject(str(path), 5, "too-long")]
    options = {"user_field": "user", "time_field": "day", "id_field": "n"}
    return Case(
        lambda: FileSource(path, max_document_bytes=64, **options),
        ["one", "two", "three"],
        rejects,
        blank_lines=1,
        users=["ann", None, None],
        times=[MARCH, None, JANUARY],
        ids=["3", None, "9"],
    )


def broken_case(folder, opened):
    documents = [f"document {i}" for i in range(3)]
    good = gzip.compress("\n".join(documents).encode() + b"\n")
    names = [str(folder / f"{name}.txt.gz") for name in "abc"]
    (folder / "a.txt.gz").write_bytes(good + gzip.compress(b"cut\n" * 9)[:-14])
    (folder / "b.txt.gz").write_bytes(good[:-4])
    (folder / "c.txt.gz").write_bytes(good + b"\0" * 700 + good)
    cut = FileSource(names[0]).poll(99).documents[3:]
    places = zip(names, (4 + len(cut), 4), strict=False)
    rejects = [Reject(*place, "broken-compression") for place in places]
    return Case(lambda: FileSource(folder, format="text"), documents + cut + documents * 3, rejects)


def follow_case(folder, opened):
    (folder / "b.txt").write_bytes(b"five\nunfinished")
    (folder / "a.txt").write_bytes(b"\xef\xbb\xbfone two\r\n\nthree\n\xff\nfour\x00\n")
    (folder / ".hidden").write_bytes(b"no\n")
    (folder / "c.txt.gz").write_bytes(b"no\n")
    (folder / "d.txt").write_bytes(b"")
    (folder / "e").mkdir()
    (folder / "e" / "a.txt").write_bytes("fünf\n".encode())
    (folder / "f.log").write_text("new\n")
    (folder / "f.log.1").write_text("old\n")
    os.utime(folder / "f.log.1", (1, 1))
    return Case(
        lambda: FollowSource(folder, format="text"),
        ["one two", "three", "four\x00", "five", "fünf", "old", "new"],
        [Reject(str(folder / "a.txt"), 4, "not-utf8")],
        ends=False,
        blank_lines=1,
    )


def docstrings_case(folder, opened):
    patch = opened.enter_context(pytest.MonkeyPatch.context())
    patch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(folder / "lib")})
    patch.syspath_prepend(str(folder))
    patch.setattr(docstrings, "PACKAGES", ("demo_package",))
    for package in ("lib", "demo_package"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").touch()
        for i in range(4):
            text = f"{package} {i} " + "word " * 20
            code = f'"""Short.\n\n{text}\n\n{text}\n"""\nx = """{text}"""\n'
            (folder / package / f"m{i}.py").write_text(code)
    (folder / "lib" / "latin.py").write_bytes(b'"""\xe9"""')
    # The order is that of hashes: what it holds is known, where it stands is not.
    seen = docstrings.DocstringSource().poll(1000)
    expected = [f"{name} {i}" + " word" * 20 for name in ("lib", "demo_package") for i in range(4)]
    assert sorted(seen.documents) == sorted(expected * 2)
    assert "demo_package" not in sys.modules, "nothing is imported for its documentation"
    return Case(lambda: docstrings.DocstringSource(), seen.documents, [])


def json_case(folder, opened):
    files = {
        "a.json": b' [{"text": "a]b,"}, \n{"text": "c\\"}", "of": [1, {}]},7,{"no": 1}]\n',
        "b.json": b'\n{\n "text": "over\\nlines"\n}\n',
        "c.json.gz": gzip.compress(b'["a", "b"]')[:-9],
        "d.json": b'["cut", "off',
        "i.json": b"[]",
        "j.json": b'{"text": "a line"}\n{"text": "\n{"text": "more"}\n',
        "k.json": b'{"text": "\n{"text": "again"}\n',
    }
    for name, data in files.items():
        (folder / name).write_bytes(data)
    reasons = [
        *(("a.json", 3, "not-an-object"), ("a.json", 4, "missing-field")),
        ("c.json.gz", 1, "broken-compression"),
        *(("d.json", 1, "not-json"), ("j.json", 2, "not-json"), ("k.json", 1, "not-json")),
    ]
    return Case(
        lambda: FileSource(folder),
        ["a]b,", 'c"}', "over\nlines", "a line", "more", "again"],
        [Reject(str(folder / name), record, reason) for name, record, reason in reasons],
    )


def whole_files_case(folder, opened):
    """Of each kind one: lines, compressed ones, blank, broken, too long, with a mark, JSON."""
    files = {
        "a.txt": b"one\ntwo\n",
        "b/c.txt.gz": gzip.compress(b"three\r\n\r\nfour"),
        "d": b" \n",
        "e.txt": b"\xff",
        "f.txt": b"x" * 101,
        "g.txt.bz2": bz2.compress(b"cut")[:-2],
        "h.text": b"\xef\xbb\xbffive" + b" " * 90,
        "i.txt": b"",
        "j.jsonl": b'{"text": "six"}\n{"text": "seven"}\n',
    }
    (folder / "b").mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    reasons = {"e.txt": "not-utf8", "f.txt": "too-long", "g.txt.bz2": "broken-compression"}
    return Case(
        lambda: FileSource(folder, max_document_bytes=100),
        ["one\ntwo\n", "three\r\n\r\nfour", "five" + " " * 90, "six", "seven"],
        [Reject(str(folder / name), 1, reason) for name, reason in reasons.items()],
        blank_lines=2,
        ids=[*(str(folder / name) for name in ("a.txt", "b/c.txt.gz", "h.text")), None, None],
    )


MAKE_CASES = [make for name, make in list(globals().items()) if name.endswith("_case")]


@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("make_case", MAKE_CASES, ids=lambda make: make.__name__)
def test_a_source_keeps_the_contract(make_case, check, tmp_path):
    with ExitStack() as opened:
        check(make_case(tmp_path, opened))


def test_a_wrong_source_is_refused_with_a_remedy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "a.eml", "a.html"):
        (tmp_path / name).touch()
    for kind, paths, options, match in (
        (FileSource, "a.eml", {}, r"a\.eml'; extract their text first \(\S+mail-and-html\.md\)"),
        (FileSource, "a.html", {}, r"a\.html'; extract their text"),
        (FileSource, "a.txt", {"format": "mbox"}, r"format='mbox'.*mail-and-html\.md"),
        (FileSource, "a.txt", {"max_document_bytes": 0}, "max_document_bytes=0"),
        (FileSource, "a.txt", {"user_field": "id"}, "fields, got format='text' user_field='id'"),
        (FileSource, "a.txt", {"records_field": "data"}, "in the format json, got format='text'"),
        (FileSource, "a.txt", {"encoding": "klingon"}, "encoding='klingon'"),
        (FileSource, "a.txt", {"encoding": "base64"}, "encoding='base64'"),
        (KafkaSource, "t", {"encoding": "hex", "bootstrap_servers": "x:1"}, "encoding='hex'"),
        (FollowSource, "a", {"format": "csv"}, "format='csv'"),
        (FollowSource, "a", {"format": "text", "user_field": "u"}, "user_field='u'"),
        (FollowSource, "a", {"max_document_bytes": 0}, "max_document_bytes=0"),
        (FollowSource, "s3://bucket/a", {}, "path='s3://bucket/a'"),
        (FollowSource, "a.log.gz", {}, r"path='a\.log\.gz'"),
        (FollowSource, [], {}, r"paths=\[\]"),
        (StdinSource, None, {"format": "csv"}, "format='csv'"),
        (StdinSource, None, {"max_document_bytes": 0}, "max_document_bytes=0"),
        (StdinSource, None, {"user_field": "id"}, "format with fields"),
        (FileSource, "a.txt", {"format": "file", "id_field": "id"}, "ids can only be read from a"),
        *(
            (FileSource, "a.txt", {"delimiter": delimiter}, "one ASCII character")
            for delimiter in ("", ";;", '"', "\n", "\r", " ", "é")
        ),
    ):
        with pytest.raises((InvalidSettingError, SourceError), match=match):
            kind(paths, **options)
