"""Paragraphs of docstrings: documents that every installation has, for demos."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import sysconfig
from collections.abc import Iterator, Sequence
from operator import itemgetter
from pathlib import Path

from streamlda.stream.source import WHOLE, Position, Progress, RecordBatch
from streamlda_connectors.checks import check, check_open, count_at, unreadable
from streamlda_connectors.records import BatchBuilder

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


class DocstringSource:
    """Read the docstrings of installed packages and of the standard library.

    A document is a paragraph of at least `MIN_WORDS` words that is not an example session. The
    packages are found and read, never imported; files that are not UTF-8 are left out. Paragraphs
    come in the order of a hash: the stream is mixed, and the same wherever the same versions are
    installed. The first poll reads all files: with the default packages 2 to 4 s, memory O(text).

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
        self._files = [found for name, root in roots for found in _find_python_files(name, root)]
        self._paragraphs: list[str] | None = None
        self._next = 0
        self._closed = False

    def poll(self, max_records: int, timeout_seconds: float = 1.0) -> RecordBatch:
        """Return the next paragraphs."""
        check_open(self._closed)
        batch = BatchBuilder(max_records, timeout_seconds)
        if self._paragraphs is None:
            self._paragraphs = _read_paragraphs(self._files)
        texts = self._paragraphs[self._next : self._next + max_records]
        batch.extend("docstrings", self._next + 1, [(text, None, None, None) for text in texts], 0)
        self._next += len(texts)
        return batch.build(exhausted=self._next >= len(self._paragraphs))

    def position(self) -> Position:
        """Return where the next poll resumes."""
        return {"record": self._next}

    def passed(self) -> dict[str, int]:
        """Return how many records were read, as one part."""
        return {WHOLE: self._next}

    def seek(self, position: Position) -> None:
        """Resume from a position that `position` returned; the same versions must be installed."""
        self._next = count_at(position, "record")

    def progress(self) -> Progress:
        """Return how many paragraphs were read."""
        return Progress(self._next, None, "documents")

    def close(self) -> None:
        """Drop the paragraphs. Closing twice is allowed."""
        self._paragraphs, self._closed = None, True


def _read_paragraphs(files: Sequence[tuple[str, Path]]) -> list[str]:
    found: list[tuple[bytes, str]] = []
    for name, path in files:
        try:
            source = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        except OSError as error:
            raise unreadable(str(path), error) from error
        found += [(_hash(f"{name}:{i}"), text) for i, text in enumerate(split_paragraphs(source))]
    return [text for _, text in sorted(found, key=itemgetter(0))]


def split_paragraphs(source: str) -> Iterator[str]:
    """Yield paragraphs of docstrings: triple-quoted strings at the start of a line."""
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


def _find_python_files(package: str, root: Path) -> Iterator[tuple[str, Path]]:
    for folder, subfolders, names in os.walk(root):
        subfolders[:] = [name for name in subfolders if name not in SKIPPED_FOLDERS]
        for name in names:
            if name.endswith(".py"):
                path = Path(folder, name)
                yield f"{package}/{path.relative_to(root).as_posix()}", path
