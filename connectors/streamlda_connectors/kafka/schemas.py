"""Readers of the records of a schema: Avro or JSON."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from io import BytesIO
from typing import Any, NamedTuple
from uuid import UUID

import orjson

from streamlda_connectors.lines import Field, document_reader, json_parser, read_field
from streamlda_connectors.records import Document, ReadOptions, Rejected

#: Turns a record without its frame into a document; raises `Rejected`.
Reader = Callable[[bytes], Document | None]

#: Longest schema, with all that it refers to, in characters.
MOST_CHARACTERS = 2**20


class FoundSchema(NamedTuple):
    """A schema of a registry; `named` are those it refers to, by name."""

    kind: str
    text: str
    named: Mapping[str, str]


def reader_of(schema: FoundSchema, options: ReadOptions) -> Reader:
    """Return what reads records of a schema: for one of no use, what rejects them all."""
    makers = {"AVRO": _avro, "JSON": _json}
    try:
        if sum(map(len, (schema.text, *schema.named.values()))) > MOST_CHARACTERS:
            raise Rejected("bad-schema")
        return makers[schema.kind](schema, options)
    except MemoryError:
        raise
    except Exception:
        # Parsers of schemas raise whatever they like. A schema never changes: this is for good.
        return _refuse


def _refuse(_: bytes) -> Document:
    raise Rejected("bad-schema")


def _json(_: FoundSchema, options: ReadOptions) -> Reader:
    # What the record says counts, not whether it keeps to the schema.
    return json_parser(options)


def _avro(schema: FoundSchema, options: ReadOptions) -> Reader:
    from fastavro import schemaless_reader
    from fastavro.repository.base import AbstractSchemaRepository, SchemaRepositoryError
    from fastavro.schema import load_schema

    texts = {"": schema.text}
    for name, text in schema.named.items():
        found = orjson.loads(text)
        full = ".".join(filter(None, (found.get("namespace"), found["name"])))
        texts |= {name: text, full if "." not in found["name"] else found["name"]: text}

    class Named(AbstractSchemaRepository):
        def load(self, name: str) -> Any:
            if name not in texts:
                raise SchemaRepositoryError(name)
            return orjson.loads(texts[name])

    parsed: Any = load_schema("", repo=Named())
    _check_bounded(parsed, {}, ())
    document = document_reader(options, _avro_value)

    def read(payload: bytes) -> Document:
        stream = BytesIO(payload)
        try:
            record = schemaless_reader(stream, parsed, None)
        except Exception as error:
            # Of damage it raises whatever comes of it.
            raise Rejected("broken-record") from error
        if stream.tell() != len(payload):
            raise Rejected("broken-record")
        if type(record) is not dict:
            raise Rejected("not-an-object")
        return document(record)

    return read


def _check_bounded(schema: Any, named: dict[str, int], around: Collection[str]) -> int:
    """Return the fewest bytes of a value; reject a schema whose values need no bytes to be huge.

    fastavro reads a schema within itself by recursion, and ends the process a few thousand levels
    down: a record of a few kilobytes would do. Items of no bytes could be 2**62 in a record of ten.
    """
    if isinstance(schema, list):
        return 1 + min((_check_bounded(each, named, around) for each in schema), default=0)
    if isinstance(schema, str):
        if schema in around:
            raise Rejected("bad-schema")
        return named.get(schema, {"null": 0, "float": 4, "double": 8}.get(schema, 1))
    kind = schema["type"]
    if kind in ("array", "map"):
        least = _check_bounded(schema["items" if kind == "array" else "values"], named, around)
        if kind == "array" and not least:
            raise Rejected("bad-schema")
        return 1
    if kind in ("record", "error"):
        within = (*around, schema["name"])
        named[schema["name"]] = sum(
            _check_bounded(field["type"], named, within) for field in schema["fields"]
        )
        return named[schema["name"]]
    if kind in ("fixed", "enum"):
        named[schema["name"]] = schema["size"] if kind == "fixed" else 1
        return named[schema["name"]]
    return _check_bounded(kind, named, around)


def _avro_value(record: Any, field: Field) -> Any:
    value = read_field(record, field)
    return str(value) if isinstance(value, UUID) else value
