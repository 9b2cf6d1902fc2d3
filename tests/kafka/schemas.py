"""Records as the library's own serializers write them: Avro, JSON Schema."""

import json

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

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


def avro(registry, *records, schema=AVRO):
    with client_of(registry) as client:
        write = AvroSerializer(client, Schema(json.dumps(schema), "AVRO"))
        return [write(record, _CONTEXT) for record in records]


def json_schema(registry, *records):
    with client_of(registry) as client:
        write = JSONSerializer(json.dumps(JSON), client)
        return [write(record, _CONTEXT) for record in records]
