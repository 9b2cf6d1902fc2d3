"""JSON files: arrays, objects over several lines, and tables in one object."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import orjson

from streamlda_connectors.compressed import BlockReader
from streamlda_connectors.lines import (
    BYTE_ORDER_MARK,
    Field,
    LineSplitter,
    has_field,
    read_field,
)
from streamlda_connectors.options import ReadOptions
from streamlda_connectors.records import Record, Rejected, Skipped, shorten_names

#: Most bytes of an object that is looked at whole, and objects in which an array is looked for.
MOST_BYTES, MOST_DEPTH = 2**30, 4

_IN_STRING = re.compile(rb'(?:[^"\\]|\\.)*+', re.DOTALL)
_MARK = re.compile(rb'["\[\]{},\n]')


class JsonSplitter(LineSplitter):
    """Cut outside of strings, brackets and braces: at line ends, or between items of an array.

    The rest after the end of an array is one more record, if it is not blank.
    """

    def __init__(self, max_bytes: int, *, array: bool) -> None:
        super().__init__(max_bytes)
        self._ends = b",]" if array else b"\n"
        self._depth = 0
        self._quoted = self._escaped = self._closed = self._begun = False

    def feed(self, block: bytes) -> Sequence[Record]:
        """Return the records that `block` completes."""
        records: list[Record] = []
        start = 0
        while (end := self._record_end(block, start)) >= 0:
            self._extend(block[start:end])
            records.append(self._complete())
            start = end + 1
        self._extend(block[start:])
        return records

    def find_fault(self) -> str | None:
        """Return an array that never ends, bytes after its end, or what is left open."""
        rest = self._size > self._max_bytes or bool(self._tail.strip())
        # The rest behind the end of an array is blank at a position from before.
        opened = self._ends == b",]" and (self._begun or rest)
        broken = rest if self._closed else opened or self._depth or self._quoted
        return "not-json" if broken else None

    def leaves_open(self, line: bytes) -> bool:
        """Return whether an object or array, but no string, continues after a first line."""
        self._record_end(line, 0)
        return self._depth > 0 and not self._quoted

    def finish(self) -> Sequence[Record]:
        """Return the rest, if it is not blank."""
        return [rest for rest in super().finish() if isinstance(rest, Skipped) or rest.strip()]

    def _record_end(self, block: bytes, at: int) -> int:
        """Return where the record ends that continues at `at`, or -1 if not in this block."""
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


def open_json(blocks: BlockReader, options: ReadOptions) -> tuple[LineSplitter, int, str]:
    """Return the splitter of a file, where its records begin, and what is to be said of it.

    A file is an array, or objects over several lines or one a line; or one object, in the memory of
    the file: a table, or with an array of records, of which `blocks` then gives the rows as lines.
    """
    most, body = options.max_document_bytes, blocks.head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if body.startswith(b"[") and options.records_field is None:
        return JsonSplitter(most, array=True), blocks.head.index(b"[") + 1, ""
    n_begun, note = sum(map(bool, JsonSplitter(most, array=False).feed(body))), ""
    if options.encoding is not None and body.startswith(b"{") and n_begun < 2:
        rows, note = _read_table(blocks, options)
        if rows is not None:
            blocks.replace(orjson.dumps(row) + b"\n" for row in rows)
            return LineSplitter(most), 0, ""
    if options.records_field is not None:
        raise Rejected("no-records")
    line, is_ended, _ = body.partition(b"\n")
    if is_ended and JsonSplitter(most, array=False).leaves_open(line):
        return JsonSplitter(most, array=False), 0, note
    return LineSplitter(most), 0, note


def _read_table(blocks: BlockReader, options: ReadOptions) -> tuple[Iterator[Any] | None, str]:
    """Return the rows of one object that is a table, or where else in it there are records."""
    content = blocks.gather(MOST_BYTES)
    try:
        found = None if content is None else orjson.loads(content.removeprefix(BYTE_ORDER_MARK))
    except orjson.JSONDecodeError:
        found = None
    if type(found) is not dict:
        return None, ""
    if (name := options.records_field) is not None:
        rows = read_field(found, (name, name.split(".")))
        return (iter(rows) if type(rows) is list else None), ""
    fields = [(name, name.split(".")) for name in (options.text_field, *options.text_fields)]
    if any(type(read_field(found, each)) is str for each in fields):
        return None, ""
    if (table := find_rows(found, fields)) is not None:
        return table, ""
    names = shorten_names(find_arrays(found, fields))
    arrays = " or ".join(f"--records-field {name}" for name in names)
    return None, f"has its records in an array inside an object: name it by {arrays}" * bool(arrays)


def find_rows(content: dict[str, Any], fields: Sequence[Field]) -> Iterator[Any] | None:
    """Return the rows of a table, of which a field is one of `fields`; None where it is none."""
    values, names = list(content.values()), content.get("columns")
    if any(has_field(content, field) for field in fields):
        aligned = _align(values)
        return (
            None if aligned is None else (dict(zip(content, row, strict=True)) for row in aligned)
        )
    if type(names) is list and type(rows := content.get("data")) is list:
        keys = [*map(str, names)]
        # A row of another length is no object, which is a reject.
        return (dict(zip(keys, row, strict=True)) if _fits(row, keys) else row for row in rows)
    if all(type(value) is dict for value in values):
        indexed = any(has_field(row, field) for row in values for field in fields)
    else:
        indexed = all(
            key.isdecimal() and type(value) in (str, type(None)) for key, value in content.items()
        )
    return iter(values) if indexed else None


def _align(values: list[Any]) -> Iterator[tuple[Any, ...]] | None:
    """Return the rows of columns that are lists of one length, or dicts of the same keys."""
    first = values[0]
    if type(first) is dict and all(type(v) is dict and v.keys() == first.keys() for v in values):
        values = [[value[key] for key in first] for value in values]
    return zip(*values, strict=True) if all(_fits(each, values[0]) for each in values) else None


def _fits(row: Any, keys: Any) -> bool:
    """Return whether something is a list as long as another one."""
    return type(row) is type(keys) is list and len(row) == len(keys)


def find_arrays(
    content: dict[str, Any], fields: Sequence[Field], depth: int = MOST_DEPTH
) -> Iterator[str]:
    """Yield the paths of arrays whose first item is a record with one of `fields`."""
    for key, value in content.items():
        if type(value) is list and value and any(has_field(value[0], each) for each in fields):
            yield key
        elif type(value) is dict and depth:
            yield from (f"{key}.{path}" for path in find_arrays(value, fields, depth - 1))
