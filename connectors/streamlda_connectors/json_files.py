"""JSON files: objects one a line, or one array or table, in the memory of the file."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import orjson

from streamlda_connectors.compressed import BlockReader
from streamlda_connectors.lines import BYTE_ORDER_MARK, Field, has_field, read_field
from streamlda_connectors.options import ReadOptions
from streamlda_connectors.records import Rejected, shorten_names

#: Most bytes of a file that is read whole, and objects in which an array is looked for.
MOST_BYTES, MOST_DEPTH = 2**30, 4


def open_json(blocks: BlockReader, options: ReadOptions) -> str:
    """Make `blocks` give the records of a file one a line; return what is to be said of it.

    A file is an array, a table in one object, an object with an array of records, or has an object
    a line: then its first line is JSON, and not all.
    """
    body = blocks.head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if options.encoding is None:
        # One record must not decide how others are read.
        return ""
    line, _, more = body.partition(b"\n")
    found = None if more.strip() and _parse(line) is not None else _parse(blocks.gather(MOST_BYTES))
    rows: Iterable[Any] | None
    note, is_array = "", body.startswith(b"[")
    if options.records_field is not None:
        rows = _get_array(found, options.records_field)
        if rows is None:
            raise Rejected("no-records")
    elif is_array and type(found) is not list:
        is_whole = blocks.gather(MOST_BYTES) is not None
        while not is_whole and blocks.read():
            pass  # Where it is damaged, that is the reason.
        raise Rejected("not-json" if is_whole else "too-long")
    else:
        rows, note = _find_table(found, options) if type(found) is dict else (found, "")
    if found is None and body.startswith(b"{") and _parse(line) is None:
        note = "is no JSON as a whole, nor by lines: write an object a line, as jq -c . does"
    if rows is not None:
        blocks.replace(orjson.dumps(row) + b"\n" for row in rows)
    return note


def _parse(content: bytes | None) -> Any:
    """Return an array or object; None of all else."""
    try:
        found = orjson.loads((content or b"0").removeprefix(BYTE_ORDER_MARK))
    except orjson.JSONDecodeError:
        return None
    return found if isinstance(found, list | dict) else None


def _get_array(found: Any, name: str) -> list[Any] | None:
    rows = read_field(found, (name, name.split("."))) if type(found) is dict else None
    return rows if type(rows) is list else None


def _find_table(found: dict[str, Any], options: ReadOptions) -> tuple[Iterable[Any], str]:
    """Return the rows of an object, which is one itself if it is no table, and a note."""
    fields = [(name, name.split(".")) for name in (options.text_field, *options.text_fields)]
    if any(type(read_field(found, each)) is str for each in fields):
        return [found], ""
    if (rows := find_rows(found, fields)) is not None:
        return rows, ""
    names = shorten_names(find_arrays(found, fields))
    arrays = " or ".join(f"--records-field {name}" for name in names)
    note = f"has its records in an array inside an object: name it by {arrays}"
    return [found], note if arrays else ""


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
