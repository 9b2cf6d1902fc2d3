"""Records of a schema registry: what each becomes, and what the registry may do meanwhile."""

import base64
import json
import logging
import re
from datetime import UTC, datetime
from urllib.parse import urlsplit

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from streamlda.errors import InvalidSettingError, SourceAccessError, SourceAwayError
from streamlda_connectors.kafka import Registry, decoding
from streamlda_connectors.kafka.decoding import RegistryDecoder
from streamlda_connectors.records import REASONS, ReadOptions, Rejection
from tests.http_server import AnsweringServer

pytestmark = pytest.mark.long

FIELDS = ReadOptions("text", user_field="by.id", time_field="at", id_field="by.id")
NOON = datetime(2024, 5, 1, 12, tzinfo=UTC)

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

CONTEXT = SerializationContext("posts", MessageField.VALUE)


def client_of(registry):
    return SchemaRegistryClient({"url": registry.url, "max.retries": 0})


def avro(registry, *records):
    with client_of(registry) as client:
        write = AvroSerializer(client, Schema(json.dumps(AVRO), "AVRO"))
        return [write(record, CONTEXT) for record in records]


def json_schema(registry, *records):
    with client_of(registry) as client:
        write = JSONSerializer(json.dumps(JSON), client)
        return [write(record, CONTEXT) for record in records]


class SchemaRegistry(AnsweringServer):
    """The documented REST API of Confluent; the serializers register their schemas."""

    def __init__(self):
        self.schemas, self.asked = [], []
        #: What every request is answered with, if anything; and who may ask, if not everybody.
        self.answer, self.login = None, None
        super().__init__(lambda request, body: self.respond(request, body))

    def respond(self, request, body):
        self.asked.append(request.path)
        if self.answer is not None:
            return self.answer
        if self.login is not None:
            basic = base64.b64encode(self.login.encode()).decode()
            if request.headers["Authorization"] != f"Basic {basic}":
                return 401, {"error_code": 401, "message": "Unauthorized"}
        path = urlsplit(request.path).path
        if path == "/schemas/types":
            return 200, ["JSON", "AVRO"]
        if match := re.fullmatch(r"/schemas/ids/(\d+)", path):
            if not 0 < int(match[1]) <= len(self.schemas):
                return 404, {"error_code": 40403, "message": "Schema not found"}
            shown = self.schemas[int(match[1]) - 1].items()
            return 200, {key: value for key, value in shown if value != "AVRO"}
        if re.fullmatch(r"/subjects/[^/]+(/versions)?", path):
            return 200, {"subject": "s", "version": 1, "id": self.register(json.loads(body))}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def register(self, schema):
        kept = {key: schema[key] for key in ("schema", "schemaType", "references") if key in schema}
        if kept not in self.schemas:
            self.schemas.append(kept)
        return self.schemas.index(kept) + 1


@pytest.fixture
def registry():
    with SchemaRegistry() as made:
        yield made


def decoder(registry, options=FIELDS, **settings):
    return RegistryDecoder(Registry(registry.url, **settings), options)


def read(decode, values):
    """Return documents, and reasons in the place of those that are none."""
    found = []
    for value in values:
        try:
            found.append(decode(value))
        except Rejection as rejected:
            found.append(rejected.reason)
    return found


def test_a_document_is_the_same_whatever_its_schema_is_written_in(registry):
    one, empty = ("one", "7", NOON.timestamp(), "7"), ("", None, None, None)
    record, rest = {"text": "one", "by": {"id": 7}}, ({"text": ""}, {})
    values = [
        *avro(registry, record | {"at": NOON}, *rest),
        *json_schema(registry, record | {"at": NOON.isoformat()}, *rest),
    ]
    assert read(decoder(registry), values) == [one, empty, None, one, empty, "missing-field"]
    assert read(decoder(registry, ReadOptions("by")), values[:1]) == ["not-text"]


def avro_with(schema):
    return {"schema": json.dumps(schema), "schemaType": "AVRO", "references": []}


def test_damage_is_one_reject(registry):
    values = [
        *avro(registry, {"text": "one", "by": {"id": 7}, "at": NOON}),
        *json_schema(registry, {"text": "one"}),
    ]
    decode = decoder(registry)
    framed, written = values
    assert read(decode, [b"", b"\x00\x00\x00", b"{}", b"\x01" + framed[1:]]) == ["unframed"] * 4
    cuts = [framed[:size] for size in range(5, len(framed))]
    assert set(read(decode, [*cuts, framed + b"\x00"])) == {"broken-record"}
    assert set(read(decode, [written[:size] for size in range(6, len(written))])) == {"not-json"}
    for value in values:
        for at in range(5, len(value)):
            for flip in (1, 16, 128):
                bent = value[:at] + bytes([value[at] ^ flip]) + value[at + 1 :]
                (found,) = read(decode, [bent])  # Nothing else is raised.
                assert isinstance(found, tuple) or found in REASONS


def record(name, **fields):
    kinds = [{"name": key, "type": kind} for key, kind in fields.items()]
    return {"type": "record", "name": name, "fields": kinds}


def array(items):
    return {"type": "array", "items": items}


NOTHING = record("E")
#: fastavro would end the process: it reads by recursion.
WITHIN_ITSELF = [
    record("N", text="string", next=["null", "N"]),
    array(record("N", m={"type": "map", "values": "N"})),
]
#: 2**62 items in ten bytes.
ENDLESS = [
    record("A", a=array("null")),
    array(record("N", e=NOTHING)),
    array({"type": "fixed", "name": "Z", "size": 0}),
    array({"type": "null"}),
    record("A", e=NOTHING, a=array("E")),
]
NO_SCHEMAS = [record("A", a="unknown.Name"), ["null", {"type": "enum"}]]


@pytest.mark.parametrize(
    ("schema", "payload", "reason"),
    [
        *((avro_with(each), b"", "bad-schema") for each in WITHIN_ITSELF + ENDLESS + NO_SCHEMAS),
        ({**avro_with("string"), "schemaType": "CAPNP"}, b"\x02a", "bad-schema"),
        ({**avro_with("string"), "schemaType": "PROTOBUF"}, b"", "bad-schema"),
        (avro_with("string"), b"\x02a", "not-an-object"),
        (avro_with(["null", AVRO]), b"\x00", "not-an-object"),
    ],
)
def test_a_schema_that_is_a_danger_or_of_no_use_rejects_its_records(
    registry, schema, payload, reason
):
    registry.register(schema)
    frame = b"\x00\x00\x00\x00\x01"
    values = [frame + payload, frame + (payload or b"\x02" * 100_000)]
    assert read(decoder(registry), values) == [reason] * 2
    assert registry.asked.count("/schemas/ids/1") == 1


def test_an_unknown_id_is_asked_for_once_a_minute(registry, monkeypatch):
    decode = decoder(registry)
    value = b"\x00\x00\x00\x00\x01\x02\x06one\x00\x00"
    assert read(decode, [value] * 5) == ["unknown-schema"] * 5
    assert registry.asked.count("/schemas/ids/1") == 1
    avro(registry, {"text": "one"})
    monkeypatch.setattr(decoding, "monotonic", lambda: float("inf"))
    assert read(decode, [value]) == [("one", None, None, None)]


def test_what_is_known_is_read_while_the_registry_is_away(registry):
    values = avro(registry, {"text": "a"}, {"text": "b"})
    other = json_schema(registry, {"text": "c"})
    decode = decoder(registry)
    assert decode(values[0])[0] == "a"
    registry.stop()
    assert decode(values[1])[0] == "b"
    for _ in range(2):
        with pytest.raises(SourceAwayError, match="cannot be reached"):
            decode(other[0])
    with pytest.raises(SourceAwayError, match="cannot be reached"):
        decoder(registry)
    registry.start()
    assert decode(other[0])[0] == "c"


LOGIN = {"username": "ann", "password_env": "STREAMLDA_TEST_REGISTRY"}


def test_an_answer_that_is_none_is_no_fault_of_a_record(registry):
    (value,) = avro(registry, {"text": "a"})
    for answer, kind in (
        ((503, {"error_code": 50003, "message": "x"}), SourceAwayError),
        ((502, b"<html>"), SourceAwayError),
        ((429, {}), SourceAwayError),
        ((408, {}), SourceAwayError),
        ((403, {"error_code": 40301, "message": "x"}), SourceAccessError),
        ((404, b"<html>"), SourceAccessError),
        ((404, {"error_code": 404, "message": "x"}), SourceAccessError),
        ((301, b""), SourceAccessError),
        ((200, b"<html>"), SourceAccessError),
        ((200, b"[1"), SourceAccessError),
        ((200, {}), SourceAccessError),
    ):
        decode = decoder(registry)
        registry.answer = answer
        for ask, given in ((decode, value), (decoder, registry)):
            with pytest.raises(kind, match=r"^the schema registry ") as caught:
                ask(given)
            assert type(caught.value) is kind
            assert "\n" not in str(caught.value)
        registry.answer = None
        assert decode(value)[0] == "a"


def test_a_login_is_checked_at_once_and_read_for_each_schema(registry, monkeypatch, caplog):
    caplog.set_level(logging.DEBUG)
    registry.login = "ann:right-one"
    monkeypatch.setenv("STREAMLDA_TEST_REGISTRY", "wrong-one")
    for settings in (LOGIN, {}):
        with pytest.raises(SourceAccessError, match="not let this user read") as caught:
            decoder(registry, **settings)
        assert "wrong-one" not in str(caught.value)
    monkeypatch.setenv("STREAMLDA_TEST_REGISTRY", "right-one")
    decode = decoder(registry, **LOGIN)
    registry.login = None
    (value,) = avro(registry, {"text": "a"})
    registry.login = "ann:next-one"
    monkeypatch.setenv("STREAMLDA_TEST_REGISTRY", "")
    with pytest.raises(InvalidSettingError, match="secret cannot be read, or is empty"):
        decode(value)
    monkeypatch.setenv("STREAMLDA_TEST_REGISTRY", "next-one")
    assert decode(value)[0] == "a"
    assert "-one" not in caplog.text
    assert "Basic" not in caplog.text


def test_a_source_passes_no_record_whose_schema_it_cannot_have(
    registry, topics, topic, source_of, tmp_path
):
    known = avro(registry, {"text": "a"}, {"text": "b"}, {"text": "e"})
    later = json_schema(registry, {"text": "c"}, {"text": "d"})
    topics.fill(topic, [known[0], b"\x00", known[1], *later, None, known[2]])
    skipped = []
    source = source_of(
        topics,
        topic,
        format="registry",
        registry={"url": registry.url},
        on_reject=lambda record, reason: skipped.append((record.offset, reason)),
    )
    asked = registry.respond
    # Only what is not known yet is away.
    registry.respond = lambda request, body: (
        (503, {}) if request.path == "/schemas/ids/2" else asked(request, body)
    )
    texts = []
    while len(texts) < 3:
        texts += source.poll(10, 0.2).texts
    assert texts == ["a", None, "b"]
    at = dict(source.position())
    for _ in range(2):
        with pytest.raises(SourceAwayError):
            source.poll(10, 60)
    assert source.position() == at
    assert at["offsets"] == {"0": 3}
    registry.respond = asked
    while len(texts) < 7:
        texts += source.poll(10, 0.2).texts
    assert texts == ["a", None, "b", "c", "d", None, "e"]
    assert skipped == [(1, "unframed")]
