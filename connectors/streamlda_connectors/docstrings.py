"""Paragraphs of docstrings: documents that every installation has, for demos."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sysconfig
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from streamlda.stream.source import WHOLE, Position, Progress, RecordBatch
from streamlda_connectors.checks import (
    check,
    check_open,
    check_same,
    count_at,
    hash_listing,
    unreadable,
)
from streamlda_connectors.lines import parse_value
from streamlda_connectors.records import BatchBuilder, RecordQueue, Skipped

#: Shorter paragraphs (headings, one-line summaries) say too little about a topic.
MIN_WORDS = 20

#: Folders that document nothing, or do not belong to the package they lie in.
SKIPPED_FOLDERS = frozenset(
    {"__pycache__", "dist-packages", "idle_test", "lib2to3", "site-packages", "test", "tests"}
)

# Strings inside a line are matched too, so that they do not pair with the quotes of another.
_TRIPLE_QUOTED = re.compile(
    r"(^[ \t]*)?[rRbBuUfF]{0,2}(\"\"\"|''')(.*?)(?<!\\)\2", re.MULTILINE | re.DOTALL
)
_BLANK_LINE = re.compile(r"\n[ \t]*\n")


class _File(NamedTuple):
    name: str
    path: Path
    size: int


class DocstringSource:
    """Read the docstrings of installed packages and of the standard library.

    A document is a paragraph of at least `MIN_WORDS` words that is not an example session. The
    packages are found and read, never imported. Paragraphs come in the order of a hash: the stream
    is mixed, and the same wherever the same versions are installed.

    Cost: the first poll reads all files, with the default packages in 2 to 4 s; memory O(text).

    Parameters
    ----------
    packages : sequence of str, default ("numpy", "scipy", "sklearn", "numba")
        Import names of top-level packages; the standard library is always read.

    Raises
    ------
    SourceError
        If a package is not installed or is not made of Python files.
    """

    def __init__(self, packages: Sequence[str] = ("numpy", "scipy", "sklearn", "numba")) -> None:
        roots = [("stdlib", Path(sysconfig.get_paths()["stdlib"]))]
        roots += [(name, _find_package(name)) for name in dict.fromkeys(packages)]
        files = [file for name, root in roots for file in _find_python_files(name, root)]
        self._files = sorted(files, key=lambda file: _hash(file.name))
        self._digest = hash_listing([(file.name, file.size) for file in self._files])
        self._size = sum(file.size for file in self._files)
        #: Records before the next one, while the files are not read.
        self._start = 0
        self._paragraphs: RecordQueue | None = None
        self._n_records = 0
        self._closed = False

    def poll(self, max_records: int, timeout_seconds: float = 1.0) -> RecordBatch:
        """Return the next paragraphs; a file that is not UTF-8 is a reject."""
        check_open(self._closed)
        batch = BatchBuilder(max_records, timeout_seconds)
        if self._paragraphs is None:
            self._paragraphs = self._read_files()
        self._paragraphs.take(batch)
        return batch.build(exhausted=self._paragraphs.empty)

    def _read_files(self) -> RecordQueue:
        records: list[tuple[bytes, bytes | Skipped]] = []
        for file in self._files:
            try:
                source = file.path.read_bytes()
            except OSError as error:
                raise unreadable(str(file.path), error) from error
            try:
                found = [text.encode() for text in split_paragraphs(source.decode())]
            except UnicodeDecodeError:
                records.append((_hash(file.name), Skipped(len(source), "not-utf8")))
                continue
            records += [(_hash(f"{file.name}:{i}"), text) for i, text in enumerate(found)]
        records.sort(key=lambda pair: pair[0])
        self._n_records = len(records)
        queue = RecordQueue("docstrings", parse_value)
        queue.put([record for _, record in records])
        queue.skip(self._start)
        return queue

    def position(self) -> Position:
        """Return where the next poll resumes, with a digest of the files and their sizes."""
        record = self._start if self._paragraphs is None else self._paragraphs.record
        return {"record": record, "list": self._digest}

    def passed(self) -> dict[str, int]:
        """Return how many records were read, as one part."""
        return {WHOLE: self.position()["record"]}

    def seek(self, position: Position) -> None:
        """Resume from a position that `position` returned.

        Raises `SourceError` if it is no such position, or the installed files have changed since.
        """
        remedy = "install the same versions"
        check_same("list of installed files", remedy, position, list=self._digest)
        self._start, self._paragraphs = count_at(position, "record"), None

    def progress(self) -> Progress:
        """Return the bytes of the files, in proportion to the records that were read."""
        read = 0 if self._paragraphs is None else self._paragraphs.record
        return Progress(self._size * read // max(1, self._n_records), self._size, "B")

    def close(self) -> None:
        """Drop what was read. Closing twice is allowed."""
        self._start, self._paragraphs = self.position()["record"], None
        self._closed = True


def split_paragraphs(source: str) -> Iterator[str]:
    """Yield the paragraphs of at least `MIN_WORDS` words in the docstrings of a Python file.

    A docstring is taken to be a triple-quoted string that opens at the start of a line. Parsing
    the file would be exact and cost five times as much.
    """
    for string in _TRIPLE_QUOTED.finditer(source):
        if string[1] is None:
            continue
        for paragraph in _BLANK_LINE.split(string[3]):
            text = " ".join(paragraph.split())
            if ">>>" not in text and text.count(" ") >= MIN_WORDS - 1:
                yield text


def _hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=8).digest()


def _find_package(name: str) -> Path:
    # Only top-level names: looking for a submodule would import its parent.
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    check(folders, "package", package=name)
    return Path(folders[0])


def _find_python_files(package: str, root: Path) -> Iterator[_File]:
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in SKIPPED_FOLDERS]
        for name in names:
            if name.endswith(".py"):
                path = Path(folder, name)
                relative = path.relative_to(root).as_posix()
                yield _File(f"{package}/{relative}", path, path.stat().st_size)
