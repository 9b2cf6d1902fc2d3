"""Records as the library's own serializers write them: Avro, Protobuf, JSON Schema."""

import json

from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import timestamp_pb2, wrappers_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

AUTHOR = {"type": "record", "name": "Author", "fields": [{"name": "id", "type": "long"}]}
TIME = {"type": "long", "logicalType": "timestamp-millis"}
AVRO = {
    "type": "record",
    "name": "Post",
    "namespace": "shop",
    "fields": [
        {"name": "text", "type": ["null", "string"]},
        {"name": "by", "type": ["null", AUTHOR], "default": None},
        {"name": "at", "type": ["null", TIME], "default": None},
    ],
}
JSON = {"title": "Post", "type": "object", "properties": {"text": {"type": "string"}}}

_CONTEXT = SerializationContext("posts", MessageField.VALUE)


def client_of(registry):
    return SchemaRegistryClient({"url": registry.url, "max.retries": 0})


def avro(registry, *records, schema=AVRO, references=()):
    with client_of(registry) as client:
        given = Schema(json.dumps(schema), "AVRO", list(references))
        write = AvroSerializer(client, given)
        return [write(record, _CONTEXT) for record in records]


def register(registry, subject, schema):
    """Register an Avro schema, and return a reference to it."""
    with client_of(registry) as client:
        client.register_schema(subject, Schema(json.dumps(schema), "AVRO"))
    name = ".".join(filter(None, (schema.get("namespace"), schema["name"])))
    return SchemaReference(name, subject, 1)


def json_schema(registry, *records):
    with client_of(registry) as client:
        write = JSONSerializer(json.dumps(JSON), client)
        return [write(record, _CONTEXT) for record in records]


def post_classes():
    """Return two classes of messages: one that is nested in the second message of its file."""
    pool = DescriptorPool()
    for module in (timestamp_pb2, wrappers_pb2):
        pool.AddSerializedFile(module.DESCRIPTOR.serialized_pb)
    author = FileDescriptorProto(name="shop/author.proto", package="shop", syntax="proto3")
    message = author.message_type.add(name="Author")
    message.field.add(name="id", number=1, type=3, label=1)
    pool.Add(author)
    posts = FileDescriptorProto(name="shop/post.proto", package="shop", syntax="proto3")
    posts.dependency.extend(
        ["shop/author.proto", "google/protobuf/timestamp.proto", "google/protobuf/wrappers.proto"]
    )
    posts.message_type.add(name="Other").field.add(name="n", number=1, type=5, label=1)
    outer = posts.message_type.add(name="Shelf")
    inner = outer.nested_type.add(name="Post")
    for number, (name, kind) in enumerate(
        [
            ("text", ".google.protobuf.StringValue"),
            ("by", ".shop.Author"),
            ("at", ".google.protobuf.Timestamp"),
        ],
        1,
    ):
        inner.field.add(name=name, number=number, type=11, label=1, type_name=kind)
    inner.field.add(name="raw", number=4, type=12, label=1)
    inner.field.add(name="title", number=5, type=9, label=1)
    pool.Add(posts)
    find = pool.FindMessageTypeByName
    return GetMessageClass(find("shop.Shelf.Post")), GetMessageClass(find("shop.Other"))


def protobuf(registry, *messages):
    with client_of(registry) as client:
        write = ProtobufSerializer(type(messages[0]), client)
        return [write(message, _CONTEXT) for message in messages]
