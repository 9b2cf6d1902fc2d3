"""Readers of the records of a schema: Avro, Protobuf or JSON."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
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

#: What comes with the packages, and is in no registry.
_BUILT_IN = ("google/protobuf/", "google/type/", "confluent/")
_WRAPPERS = {f"google.protobuf.{kind}Value" for kind in ("String", "Int32", "Int64")}
_WRAPPERS |= {f"google.protobuf.{kind}Value" for kind in ("UInt32", "UInt64", "Double", "Float")}


class FoundSchema(NamedTuple):
    """A schema of a registry; `named` are those it refers to, by name (of Protobuf, by file).

    Avro and JSON come as they are, Protobuf as a serialized ``FileDescriptorProto`` in base64.
    """

    kind: str
    text: str
    named: Mapping[str, str]


def reader_of(schema: FoundSchema, options: ReadOptions) -> Reader:
    """Return what reads records of a schema: for one of no use, what rejects them all."""
    makers = {"AVRO": _avro, "PROTOBUF": _protobuf, "JSON": _json}
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


def _protobuf(schema: FoundSchema, options: ReadOptions) -> Reader:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    pool: Any = DescriptorPool()
    added: set[str] = set()

    def add(name: str, serialized: bytes) -> None:
        added.add(name)
        file = FileDescriptorProto.FromString(serialized)
        # Files know each other by the names in the registry.
        file.name = name
        for other in file.dependency:
            if other not in added:
                add(other, _serialized(other, schema.named))
        pool.Add(file)

    add("", base64.b64decode(schema.text, validate=True))
    top = pool.FindFileByName("")
    messages = list(top.message_types_by_name.values())
    classes: dict[tuple[int, ...], Any] = {}
    document = document_reader(options, _protobuf_value)

    def read(payload: bytes) -> Document:
        try:
            indexes, start = _message_indexes(payload)
            if indexes not in classes:
                found, inner = None, messages
                for index in indexes:
                    found = inner[index]
                    inner = found.nested_types
                classes[indexes] = GetMessageClass(found)
            record = classes[indexes].FromString(payload[start:])
        except (DecodeError, IndexError) as error:
            raise Rejected("broken-record") from error
        return document(record)

    return read


def _serialized(name: str, named: Mapping[str, str]) -> bytes:
    if name in named:
        return base64.b64decode(named[name], validate=True)
    if not name.startswith(_BUILT_IN):
        raise Rejected("bad-schema")
    module = name.removesuffix(".proto").replace("/", ".") + "_pb2"
    if name.startswith("confluent/"):
        module = f"confluent_kafka.schema_registry.{module}"
    serialized: bytes = import_module(module).DESCRIPTOR.serialized_pb
    return serialized


def _message_indexes(payload: bytes) -> tuple[tuple[int, ...], int]:
    """Return which message of its file a record is, from outside inwards, and where it begins."""
    count, at = _varint(payload, 0)
    if count == 0:
        return (0,), at
    indexes = []
    # As deep as messages are nested: a count that is damage ends with the bytes.
    for _ in range(count):
        index, at = _varint(payload, at)
        indexes.append(index)
    return tuple(indexes), at


def _varint(payload: bytes, at: int) -> tuple[int, int]:
    """Return a number >= 0 (zigzag) and where it ends, or raise `IndexError`."""
    number = shift = 0
    while True:
        byte = payload[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            break
        if shift > 28:
            raise IndexError(shift)
    if number & 1:
        raise IndexError(number)
    return number >> 1, at


def _protobuf_value(record: Any, field: Field) -> Any:
    """Return a field of a message; a message of a plain value or a time as that, unset as None."""
    for key in field[1]:
        descriptor = getattr(record, "DESCRIPTOR", None)
        known = None if descriptor is None else descriptor.fields_by_name.get(key)
        if known is None or (known.has_presence and not record.HasField(key)):
            return None
        record = getattr(record, key)
    kind = getattr(getattr(record, "DESCRIPTOR", None), "full_name", "")
    if kind == "google.protobuf.Timestamp":
        try:
            return record.ToJsonString()
        except ValueError:
            return None
    return record.value if kind in _WRAPPERS else record
