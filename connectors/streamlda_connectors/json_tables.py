"""Tables in one JSON object: by columns, by rows under an index, or split, as pandas has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import orjson

from streamlda.stream.listing import StoredFile
from streamlda_connectors.compressed import BlockReader
from streamlda_connectors.lines import BYTE_ORDER_MARK, Field, JsonSplitter, has_field, read_field
from streamlda_connectors.options import ReadOptions
from streamlda_connectors.records import Rejected, shorten_names

#: Most bytes of an object that is looked at whole, and objects in which an array is looked for.
MOST_BYTES, MOST_DEPTH = 2**30, 4


def read_json_table(file: StoredFile, options: ReadOptions) -> tuple[Iterator[bytes] | None, str]:
    """Return the records of a file of one object that is a table, as lines of JSON; or None.

    The note says where else in the object there are records. Memory O(file).
    """
    if options.encoding is None or options.records_field is not None:
        return None, ""
    with closing(BlockReader(file.open(), file.compression, encoding=options.encoding)) as reader:
        try:
            content = _read_object(reader)
        except Rejected:
            return None, ""
    fields = [(name, name.split(".")) for name in (options.text_field, *options.text_fields)]
    if content is None or any(type(read_field(content, each)) is str for each in fields):
        return None, ""
    rows = find_rows(content, fields)
    if rows is not None:
        return (orjson.dumps(row) + b"\n" for row in rows), ""
    names = shorten_names(find_arrays(content, fields))
    arrays = " or ".join(f"--records-field {name}" for name in names)
    return None, f"has its records in an array inside an object: name it by {arrays}" * bool(arrays)


def _read_object(reader: BlockReader) -> dict[str, Any] | None:
    """Return the one object that a file holds, or None of any other file."""
    block = reader.read()
    if not block.removeprefix(BYTE_ORDER_MARK).lstrip().startswith(b"{"):
        return None
    begun = [each for each in JsonSplitter(MOST_BYTES, array=False).feed(block) if each]
    found = bytearray(block.removeprefix(BYTE_ORDER_MARK))
    while len(begun) < 2 and len(found) <= MOST_BYTES and (block := reader.read()):
        found += block
    try:
        content = orjson.loads(found) if len(begun) < 2 and len(found) <= MOST_BYTES else None
    except orjson.JSONDecodeError:
        return None
    return content if type(content) is dict else None


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
