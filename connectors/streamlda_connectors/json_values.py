"""Splitter of JSON that is not one object a line: an array, or objects over several lines."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import closing
from typing import NamedTuple

from streamlda.stream.listing import StoredFile
from streamlda_connectors.compressed import BlockReader
from streamlda_connectors.lines import BYTE_ORDER_MARK, Fault, LineSplitter, QuotedSplitter
from streamlda_connectors.records import ReadOptions, Record, Skipped

_IN_STRING = re.compile(rb'(?:[^"\\]|\\.)*+', re.DOTALL)
_MARK = re.compile(rb'["\[\]{},\n]')


class JsonSplitter(QuotedSplitter):
    """Cut outside of strings, brackets and braces: at line ends, or between items of an array.

    The rest after the end of an array is one more record, if it is not blank.
    """

    def __init__(self, max_bytes: int, *, array: bool) -> None:
        super().__init__(max_bytes)
        self._ends = b",]" if array else b"\n"
        self._depth = 0
        self._quoted = self._escaped = self._closed = self._begun = False

    def finish(self) -> Sequence[Record]:
        """Return the rest, if it is not blank."""
        return [rest for rest in super().finish() if isinstance(rest, Skipped) or rest.strip()]

    def fault(self) -> Fault | None:
        """Return an array that never ends, or bytes after its end."""
        rest = self._size > self._max_bytes or bool(self._tail.strip())
        if self._closed:
            return Fault("not-json", self._size) if rest else None
        # The rest behind the end of an array is blank at a position from before.
        opened = self._ends == b",]" and (self._begun or rest)
        return Fault("not-json", None) if opened or self._depth or self._quoted else None

    def leaves_open(self, line: bytes) -> bool:
        """Return whether an object or array, but no string, goes on after a first line."""
        self._record_end(line, 0)
        return self._depth > 0 and not self._quoted

    def _record_end(self, block: bytes, at: int) -> int:
        if self._closed:
            return -1
        if self._escaped:
            self._escaped, at = False, at + 1
        while True:
            if self._quoted:
                found = _IN_STRING.match(block, at)
                assert found is not None
                at = found.end()
                if at >= len(block):
                    return -1
                if block[at : at + 1] == b"\\":
                    self._escaped = True
                    return -1
                self._quoted, at = False, at + 1
            mark = _MARK.search(block, at)
            if mark is None:
                return -1
            at, sign = mark.end(), mark[0]
            if sign == b'"':
                self._quoted = True
            elif self._depth == 0 and sign in self._ends:
                self._begun, self._closed = True, sign == b"]"
                return mark.start()
            elif sign in b"[{":
                self._depth += 1
            elif sign in b"]}":
                self._depth = max(0, self._depth - 1)


class Layout(NamedTuple):
    """Splitter of a file of JSON, and the byte where its records start."""

    splitter: LineSplitter
    start: int


def detect_layout(file: StoredFile, options: ReadOptions) -> Layout:
    """Return the layout of a file: an array if ``[`` is its first sign, else objects.

    Objects are one a line, unless the first line leaves one open.
    """
    most, head = options.max_document_bytes, b""
    with closing(BlockReader(file.open(), file.compression)) as reader:
        while block := reader.read():
            head += block
            body = head.removeprefix(BYTE_ORDER_MARK).lstrip()
            if body[:1] == b"[":
                return Layout(JsonSplitter(most, array=True), len(head) - len(body) + 1)
            if b"\n" in body or len(head) > most:
                objects = JsonSplitter(most, array=False)
                if objects.leaves_open(body.partition(b"\n")[0]):
                    return Layout(JsonSplitter(most, array=False), 0)
                break
    return Layout(LineSplitter(most), 0)
