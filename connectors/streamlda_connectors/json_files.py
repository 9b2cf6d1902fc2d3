"""JSON files: objects one a line, or one array or table, in the memory of the file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

import orjson

from streamlda_connectors.compressed import BlockReader
from streamlda_connectors.lines import BYTE_ORDER_MARK, has_field, parse_json, read_field
from streamlda_connectors.options import ReadOptions
from streamlda_connectors.records import Rejected, shorten_names

#: Most bytes of a file that is read whole.
MOST_BYTES = 2**30

#: Archives of Twitter give their arrays a name of JavaScript.
_match_assigned = re.compile(rb"\s*[\w.$]+ = ").match


def open_json(blocks: BlockReader, options: ReadOptions) -> None:
    """Make `blocks` give the records of a file one a line.

    A file is an array, a table in one object, an object with an array of records, or has an object
    a line: then its first line is JSON, and not all.
    """
    if options.encoding is None:
        # One record must not decide how others are read.
        return
    body = blocks.head.removeprefix(BYTE_ORDER_MARK).lstrip()
    line, _, more = body.partition(b"\n")
    if options.records_field is None and more.strip() and _parse(line) is not None:
        return
    content = blocks.gather(MOST_BYTES)
    found = _parse(content)
    rows: Iterable[Any] | None = found if type(found) is list else None
    if options.records_field is not None:
        field = options.records_field, options.records_field.split(".")
        rows = read_field(found, field) if type(found) is dict else None
        if type(rows) is not list:
            raise Rejected("no-records")
    elif type(found) is dict:
        rows = _find_table(found, options, blocks)
    elif found is None and body.startswith(b"["):
        while content is None and blocks.read():
            pass  # Where it is damaged, that is the reason.
        raise Rejected("too-long" if content is None else "not-json")
    if rows is not None:
        blocks.replace(orjson.dumps(row) + b"\n" for row in rows)


def _parse(content: bytes | None) -> Any:
    """Return an array or object; None of all else."""
    content = (content or b"0").removeprefix(BYTE_ORDER_MARK)
    if assigned := _match_assigned(content):
        content = content[assigned.end() :].rstrip().removesuffix(b";")
    try:
        found = parse_json(content)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list | dict) else None


def _find_table(found: dict[str, Any], options: ReadOptions, blocks: BlockReader) -> Iterable[Any]:
    """Return the rows of a table, or the object alone where it is none."""
    fields = [(name, name.split(".")) for name in (options.text_field, *options.text_fields)]
    values, names, rows = list(found.values()), found.get("columns"), found.get("data")
    if any(has_field(found, field) for field in fields):
        aligned = _align(values)
        return (
            [found] if aligned is None else (dict(zip(found, row, strict=True)) for row in aligned)
        )
    if type(names) is list and type(rows) is list:
        keys = [*map(str, names)]
        # A row of another length is no object, which is a reject.
        return (dict(zip(keys, row, strict=True)) if _fits(row, keys) else row for row in rows)
    if any(has_field(row, field) for row in values for field in fields):
        return values if all(type(value) is dict for value in values) else [found]
    for name, value in found.items():
        if type(value) is list and any(
            has_field(row, each) for row in value[:1] for each in fields
        ):
            shown = shorten_names([name])[0]
            blocks.notes.append(f"has records in an array: name it by --records-field {shown}")
    return [found]


def _align(values: list[Any]) -> Iterator[tuple[Any, ...]] | None:
    """Return the rows of columns that are lists of one length, or dicts of the same keys."""
    first = values[0]
    if type(first) is dict and all(type(v) is dict and v.keys() == first.keys() for v in values):
        values = [[value[key] for key in first] for value in values]
    return zip(*values, strict=True) if all(_fits(each, values[0]) for each in values) else None


def _fits(row: Any, keys: Any) -> bool:
    """Return whether something is a list as long as another one."""
    return type(row) is type(keys) is list and len(row) == len(keys)
