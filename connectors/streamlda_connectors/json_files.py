"""JSON files: objects one after another or in an array, or one table in the memory of the file."""

import json
import re
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import chain
from typing import Any

import orjson

from streamlda_connectors.compressed import BlockReader
from streamlda_connectors.encodings import HEAD_BYTES
from streamlda_connectors.lines import BYTE_ORDER_MARK, has_field, parse_json, read_field
from streamlda_connectors.records import ReadOptions, Rejection, shorten_names, suggest_field

#: Most bytes of a file that is read whole.
MOST_BYTES = 2**30

#: Archives of Twitter give their arrays a name of JavaScript.
_match_assigned = re.compile(rb"\s*[\w.$]+ = ").match

#: An array of objects at the start of a file.
_match_array = re.compile(rb"\[\s*\{").match

#: A start that JSON has, and text has not.
_match_json = re.compile(rb"\s*[\[{]\s*[\[{\"]").match

#: Ends of values outside of strings, and a string that does not end; no string goes over lines.
_find_ends = re.compile(
    rb'(?:[^"{}\[\]]++|"(?:[^"\\\n]++|\\.)*+(?:"|\\?\n))*+'
    rb'([{}\[\]]|"(?:[^"\\\n]++|\\.)*+\Z|\Z)'
).finditer

#: What stands between values that follow each other: also the sign of JSON text sequences.
_BETWEEN = BYTE_ORDER_MARK + b" \t\r\n,\x1e"


def open_json(blocks: BlockReader, options: ReadOptions) -> None:
    """Make `blocks` give the records of a file one a line.

    A file has an object a line, or objects that follow each other or are in an array. Or it is one
    object: a table, or one with an array of records.
    """
    if options.encoding is None:
        # One record must not decide how others are read.
        return
    body = blocks.head.removeprefix(BYTE_ORDER_MARK).lstrip()
    if options.records_field is None:
        by_number = all(name.isdecimal() for name in options.text_fields)
        is_array = _match_array(body) is not None and not by_number
        line, _, more = body.partition(b"\n")
        if more.strip() and not is_array and _parse(line) is not None:
            return
        if is_array or _has_several(body):
            blocks.transform(partial(split_values, in_array=is_array))
            return
        # The first line may be faulty.
        if more.strip() and has_lines(body):
            return
    content = blocks.gather(MOST_BYTES)
    found = _parse(content)
    rows: Iterable[Any] | None = found if type(found) is list else None
    if options.records_field is not None:
        field, pages = (options.records_field, options.records_field.split(".")), [found]
        if content is not None and _has_several(body):
            values = b"".join(split_values(iter([content]), in_array=False))
            pages = [_parse(value) for value in values.split(b"\n") if value]
        lists: list[Any] = [
            read_field(page, field) if type(page) is dict else None for page in pages
        ]
        if not all(type(each) is list for each in lists):
            if (page := pages[0]) is not None:
                near = suggest_field(options.records_field, page) if type(page) is dict else ""
                note = f"has no such array (--records-field): {near}".removesuffix(": ")
                blocks.notes.append(note)
            raise Rejection("no-records")
        rows = chain.from_iterable(lists)
    elif type(found) is dict:
        rows = _find_table(found, options, blocks)
    elif found is None and body.startswith(b"["):
        while content is None and blocks.read():
            pass  # Where it is damaged, that is the reason.
        raise Rejection("too-long" if content is None else "not-json")
    elif found is None and body.startswith(b"{"):
        # The first value is large.
        blocks.transform(partial(split_values, in_array=False))
    if rows is not None:
        lines = (orjson.dumps(row) + b"\n" for row in rows)
        blocks.transform(lambda _: lines)


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


def has_lines(body: bytes) -> bool:
    """Return whether some line is an object, or an array that has no objects."""
    lines = (line for line in body.split(b"\n") if line.startswith((b"{", b"[")))
    return any(_parse(line) and not _match_array(line) for line in lines)


def is_spread(body: bytes) -> bool:
    """Return whether text is JSON, of which no record is on a line of its own."""
    return b"\n" in body and _match_json(body) is not None and not has_lines(body)


def _has_several(body: bytes) -> bool:
    """Return whether a value ends and another one follows."""
    between = _BETWEEN.decode()
    text = body.decode(errors="replace").lstrip(between)
    try:
        end = json.JSONDecoder().raw_decode(text)[1]
    except (ValueError, RecursionError):
        return False
    return text[end:].lstrip(between).startswith(("{", "["))


def split_values(blocks: Iterator[bytes], *, in_array: bool) -> Iterator[bytes]:
    """Yield blocks of objects and arrays as lines, a value a line.

    They follow each other or are in arrays (`in_array`). Raises `Rejection` where the last one does
    not end. Memory O(block).
    """
    ends = _BETWEEN + b"[]" * in_array
    depth, quote, kept = 0, b"", b""
    for new in blocks:
        # A backslash and the sign that it escapes are looked at together.
        block = quote + kept + new
        kept = block[len(block.rstrip(b"\\")) :]
        block = block.removesuffix(kept)
        at, quote, found = len(quote), b"", list[bytes]()
        for end in _find_ends(block):
            sign = end[1]
            if sign == b"{" or (sign == b"[" and (depth or not in_array)):
                if not depth:
                    found.append(_end_line(block[at : end.start(1)].strip(ends)))
                    at = end.start(1)
                depth += 1
            elif depth and sign in (b"}", b"]"):
                depth -= 1
                if not depth:
                    found.append(_end_line(block[at : end.end()]))
                    at = end.end()
            elif depth and sign.startswith(b'"'):
                quote = b'"'
        if depth:
            found.append(block[at:].replace(b"\n", b" "))
        else:
            kept = block[at:].lstrip(ends) + kept
            if len(kept) > HEAD_BYTES:
                raise Rejection("not-json")
        yield b"".join(found)
    if depth:
        raise Rejection("not-json")
    yield kept.rstrip(ends)


def _end_line(value: bytes) -> bytes:
    """Return a value as a line, and nothing as nothing."""
    return value.replace(b"\n", b" ") + b"\n" if value else b""


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
    inside = [(f"{name}.", value) for name, value in found.items() if type(value) is dict]
    for start, level in [("", found), *inside]:
        for name, value in level.items():
            first = value[:1] if type(value) is list else []
            if any(has_field(row, field) for row in first for field in fields):
                shown = ".".join(shorten_names(f"{start}{name}".split(".")))
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
