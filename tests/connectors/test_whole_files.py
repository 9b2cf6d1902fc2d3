"""Files that are one document: in folders, or where it is said."""

import bz2
import gzip
from contextlib import closing

import pytest

from streamlda.stream.source import Reject
from streamlda_connectors.files import FileSource
from tests.connectors.checks import SOURCE_CHECKS, Case


@pytest.fixture
def folder(tmp_path):
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
    (tmp_path / "b").mkdir()
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    return tmp_path


@pytest.mark.parametrize("check", SOURCE_CHECKS, ids=lambda check: check.__name__)
def test_a_folder_passes(check, folder):
    reasons = {"e.txt": "not-utf8", "f.txt": "too-long", "g.txt.bz2": "broken-compression"}
    check(
        Case(
            lambda: FileSource(folder, max_document_bytes=100),
            ["one\ntwo\n", "three\r\n\r\nfour", "five" + " " * 90, "six", "seven"],
            [Reject(str(folder / name), 1, reason) for name, reason in reasons.items()],
            blank_lines=2,
            ids=[*(str(folder / name) for name in ("a.txt", "b/c.txt.gz", "h.text")), None, None],
        )
    )


@pytest.mark.parametrize(
    ("path", "format", "texts"),
    [
        (".", "auto", ["one\ntwo\n"]),
        ("a.txt", "auto", ["one", "two"]),
        ("*.txt", "auto", ["one", "two"]),
        (".", "text", ["one", "two"]),
        ("a.txt", "file", ["one\ntwo\n"]),
        ("*.txt", "file", ["one\ntwo\n"]),
    ],
)
def test_which_files_are_lines(tmp_path, path, format, texts):
    (tmp_path / "a.txt").write_bytes(b"one\ntwo\n")
    with closing(FileSource(tmp_path / path, format=format)) as source:
        assert source.poll(9).documents == texts


def test_a_long_file_comes_over_many_polls_and_a_position_is_before_it(tmp_path):
    text = "word " * 200_000
    (tmp_path / "a.txt").write_text(text, "ascii")
    with closing(FileSource(tmp_path)) as source:
        assert source.poll(9, 0.0).texts == []
        position = source.position()
        assert (position["file"], position["record"]) == (0, 0)
    with closing(FileSource(tmp_path)) as again:
        again.seek(position)
        assert again.poll(9, 60.0).documents == [text]
