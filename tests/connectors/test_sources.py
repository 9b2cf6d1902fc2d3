"""Every connector passes the shared checks."""

import gzip
import json
import subprocess
import sys
import sysconfig
from contextlib import ExitStack

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamlda.errors import SourceError
from streamlda.stream.source import Reject, open_source
from streamlda_connectors import docstrings
from streamlda_connectors.files import FileSource
from streamlda_connectors.stdin import StdinSource
from tests.connectors.checks import SOURCE_CHECKS, Case


def lines_case(folder, opened):
    (folder / "a.txt").write_bytes(b"\xef\xbb\xbfone two\r\n\nthree\n\xff\nfour\x00")
    (folder / "b.txt").write_bytes(b"")
    (folder / "c.txt").write_bytes("fünf\n".encode())
    rejects = [Reject(str(folder / "a.txt"), 4, "not-utf8")]
    texts = ["one two", "three", "four\x00", "fünf"]
    return Case(lambda: FileSource(folder, format="text"), texts, rejects, blank_lines=1)


def jsonl_case(folder, opened):
    records = [
        b'{"text": "one", "by": {"id": "ann"}}',
        b"",
        b'{"text": "two", "n": 1, "by": {"id": 7}}',
        b"{",
        b"[]",
        b"{}",
        b'{"text": 3}',
        b'{"text": "\xff"}',
        b'{"text": "' + b"x" * 100 + b'"}',
        b'{"text": "", "by": {"id": true}}',
        b'{"text": "three", "by": "ann"}',
        b'{"text": "four", "by.id": "7"}',
        b'{"text": "five", "by": {"id": ""}}',
    ]
    path = folder / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b"\n".join(records)))
    reasons = ["not-json", "not-an-object", "missing-field", "not-text", "not-utf8", "too-long"]
    rejects = [Reject(str(path), 4 + i, reason) for i, reason in enumerate(reasons)]
    return Case(
        lambda: FileSource(path, max_document_bytes=64, user_field="by.id"),
        ["one", "two", "", "three", "four", "five"],
        rejects,
        blank_lines=1,
        users=["ann", "7", None, None, "7", None],
    )


def csv_case(folder, opened):
    path = folder / "a.csv"
    rows = (
        '\ufeff"text",id\r\n"one, ""1""\r\ntwo",1\r\nplain 5" disk,2\r\n\r\n'
        'a,b,c\r\n"",3\r\n"closed"x,4\r\nno name,\r\n"open,5\r\n'
    )
    path.write_bytes(rows.encode())
    rejects = [Reject(str(path), 4, "broken-csv"), Reject(str(path), 8, "broken-csv")]
    texts = ['one, "1"\r\ntwo', 'plain 5" disk', "", "closedx", "no name"]
    # A column that is not there leaves all users unknown.
    (folder / "b.csv").write_text("text\nlast\n")
    return Case(
        lambda: FileSource([str(path), str(folder / "b.csv")], user_field="id"),
        [*texts, "last"],
        rejects,
        blank_lines=1,
        users=["1", "2", "3", "4", None, None],
    )


def parquet_case(folder, opened):
    path = folder / "a.parquet"
    column = pa.array([b"one", None, b"\xff", b"two", b"x" * 100, b"three"], pa.binary())
    users = pa.array([b"ann", b"no", b"text", b"\xff", b"long", None], pa.binary())
    pq.write_table(pa.table({"user": users, "text": column}), path, row_group_size=4)
    rejects = [
        Reject(str(path), 2, "missing-field"),
        Reject(str(path), 3, "not-utf8"),
        Reject(str(path), 5, "too-long"),
    ]
    return Case(
        lambda: FileSource(path, max_document_bytes=64, user_field="user"),
        ["one", "two", "three"],
        rejects,
        users=["ann", None, None],
    )


def broken_case(folder, opened):
    whole = "".join(json.dumps({"text": f"document {i}"}) + "\n" for i in range(3)).encode()
    good = gzip.compress(whole)
    (folder / "a.jsonl.gz").write_bytes(good + gzip.compress(b'{"text": "cut"}\n' * 9)[:-14])
    (folder / "b.jsonl.gz").write_bytes(good[:-4])
    (folder / "c.jsonl.gz").write_bytes(good + b"\0" * 700 + good)
    documents = [f"document {i}" for i in range(3)]
    cut = FileSource(folder / "a.jsonl.gz").poll(99).documents[3:]
    rejects = [
        Reject(str(folder / "a.jsonl.gz"), 4 + len(cut), "broken-compression"),
        Reject(str(folder / "b.jsonl.gz"), 4, "broken-compression"),
    ]
    return Case(lambda: FileSource(folder), documents + cut + documents * 3, rejects)


def stdin_case(folder, opened):
    path = folder / "input"
    path.write_bytes(
        b'{"text": "one", "user": 1}\nx\n\n{"text": "two"}\n{"text": "three", "user": "ann"}'
    )
    rejects = [Reject("stdin", 2, "not-json")]
    return Case(
        lambda: StdinSource(
            opened.enter_context(path.open("rb")), format="jsonl", user_field="user"
        ),
        ["one", "two", "three"],
        rejects,
        blank_lines=1,
        users=["1", None, "ann"],
    )


def docstrings_case(folder, opened):
    patch = opened.enter_context(pytest.MonkeyPatch.context())
    patch.setattr(docstrings, "FILES_PER_GROUP", 3)
    patch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(folder / "lib")})
    patch.syspath_prepend(str(folder))
    for package in ("lib", "demo_package"):
        (folder / package).mkdir()
        (folder / package / "__init__.py").touch()
        for i in range(4):
            text = f"{package} {i} " + "word " * 20
            code = f'"""Short.\n\n{text}\n\n{text}\n"""\nx = """{text}"""\n'
            (folder / package / f"m{i}.py").write_text(code)
    (folder / "lib" / "latin.py").write_bytes(b'"""\xe9"""')
    # The order is that of hashes: what it holds is known, where it stands is not.
    seen = docstrings.DocstringSource(["demo_package"]).poll(1000)
    expected = [
        " ".join(f"{package} {i} {'word ' * 20}".split())
        for package in ("lib", "demo_package")
        for i in range(4)
    ]
    assert sorted(seen.documents) == sorted(expected * 2)
    assert [reject.reason for reject in seen.rejects] == ["not-utf8"]
    return Case(lambda: docstrings.DocstringSource(["demo_package"]), seen.documents, seen.rejects)


MAKE_CASES = [
    lines_case,
    jsonl_case,
    csv_case,
    parquet_case,
    broken_case,
    stdin_case,
    docstrings_case,
]


@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
@pytest.mark.parametrize("make_case", MAKE_CASES, ids=lambda make: make.__name__)
def test_source_passes(make_case, check, tmp_path):
    with ExitStack() as opened:
        check(make_case(tmp_path, opened))


@pytest.mark.parametrize(
    ("connector", "kind"), [("files", FileSource), ("docstrings", docstrings.DocstringSource)]
)
def test_open_source_finds_the_connector(connector, kind, tmp_path):
    (tmp_path / "a.txt").write_text("hello\n")
    source = open_source(connector, *([[str(tmp_path)]] if connector == "files" else []))
    assert type(source) is kind
    assert source.poll(1).documents != []
    source.close()


def test_open_source_reads_standard_input():
    code = (
        "from streamlda.stream.source import open_source; "
        "s = open_source('stdin', format='jsonl'); "
        "p = s.poll(9, 20.0); print(p.texts, s.poll(9, 20.0).exhausted)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=b'{"text": "from a pipe"}\n',
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert done.stdout.decode().split() == ["['from", "a", "pipe']", "True"]


def test_default_docstrings_are_many():
    source = docstrings.DocstringSource()
    n_documents = 0
    while not (poll := source.poll(5000, 10.0)).exhausted:
        n_documents += len(poll.documents)
        assert poll.rejects == []
        assert all(len(text.split()) >= docstrings.MIN_WORDS for text in poll.documents)
    assert n_documents + len(poll.documents) >= 15_000


@pytest.mark.parametrize("package", ["no_such_package_at_all", "numpy.linalg", "zlib", "abc"])
def test_docstrings_needs_an_installed_folder(package):
    with pytest.raises(SourceError, match=f"package='{package}'"):
        docstrings.DocstringSource([package])


def test_docstrings_imports_nothing():
    code = (
        "import sys; from streamlda_connectors.docstrings import DocstringSource; "
        "DocstringSource().poll(10); print('scipy' in sys.modules, 'sklearn' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, timeout=60)
    assert done.stdout.split() == [b"False", b"False"]
