"""Paragraphs of docstrings: documents that every installation has, for demos."""

import importlib.util
import re
import sysconfig
from collections.abc import Iterator
from hashlib import blake2b
from pathlib import Path
from typing import Any

from streamlda_connectors.stdin import StdinSource

#: Packages that are read beside the standard library.
PACKAGES = ("numpy", "scipy", "sklearn", "numba")

#: Shorter paragraphs (headings, one-line summaries) say too little about a topic.
MIN_WORDS = 20

#: Folders that document nothing, or do not belong to the package they lie in.
SKIPPED_FOLDERS = {"dist-packages", "idle_test", "lib2to3", "site-packages", "test", "tests"}

# Strings inside a line are matched too, so that they do not pair with the quotes of another.
_TRIPLE_QUOTED = re.compile(
    r"(^[ \t]*)?[rRbBuUfF]{0,2}(\"\"\"|''')(.*?)(?<!\\)\2", re.MULTILINE | re.DOTALL
)


class DocstringSource(StdinSource):
    """Read the docstrings of the standard library and of packages that streamlda needs.

    A document is a paragraph of at least `MIN_WORDS` words that is not an example session. The
    packages are found and read, never imported. Paragraphs come in the order of a hash: the stream
    is mixed, and the same wherever the same versions are installed. The first poll reads all files,
    in 2 to 4 s, memory O(text).
    """

    _name = "docstrings"

    def __init__(self) -> None:
        super().__init__()
        self._roots = {"stdlib": sysconfig.get_paths()["stdlib"]}
        for name in PACKAGES:
            spec: Any = importlib.util.find_spec(name)
            self._roots[name] = spec.submodule_search_locations[0]

    def _read_block(self, seconds: float) -> bytes:
        """Return all paragraphs, and nothing at the second call."""
        found = sorted(each for root in self._roots.items() for each in _read_paragraphs(*root))
        self._roots.clear()
        return b"".join(text.encode() + b"\n" for _, text in found)


def _read_paragraphs(package: str, root: str) -> Iterator[tuple[bytes, str]]:
    for path in Path(root).rglob("*.py"):
        place = path.relative_to(root)
        if SKIPPED_FOLDERS.isdisjoint(place.parts):
            found = _TRIPLE_QUOTED.finditer(path.read_text("utf-8", errors="replace"))
            # Of strings at the start of a line.
            strings = [string[3] for string in found if string[1] is not None]
            paragraphs = [each for string in strings for each in re.split(r"\n[ \t]*\n", string)]
            texts = [" ".join(paragraph.split()) for paragraph in paragraphs]
            kept = [t for t in texts if ">>>" not in t and t.count(" ") >= MIN_WORDS - 1]
            for number, text in enumerate(kept):
                name = f"{package}/{place.as_posix()}:{number}"
                yield blake2b(name.encode(), digest_size=8).digest(), text
