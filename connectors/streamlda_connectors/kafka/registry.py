"""A schema registry: how to reach it, and what its schemas make of records."""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from io import BytesIO
from time import monotonic
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import orjson

from streamlda.errors import (
    MissingExtraError,
    SourceAccessError,
    SourceAwayError,
    StreamLDAError,
    failure,
)
from streamlda.stream.credentials import read_secret
from streamlda_connectors.checks import check, with_reason
from streamlda_connectors.kafka.web import NoAnswer, ask, trust
from streamlda_connectors.lines import Field, document_reader, json_parser, read_field
from streamlda_connectors.options import ReadOptions
from streamlda_connectors.records import Document, Rejected

#: Schemas that are kept ready, those used last.
MOST_SCHEMAS = 64

#: How long to wait for an answer.
ANSWER_SECONDS = 10.0

#: How long an id that the registry does not know is not asked for again, and most of them.
UNKNOWN_SECONDS, MOST_UNKNOWN = 60.0, 1024

#: Answers of a registry that does not know a schema (its own codes).
_UNKNOWN = re.compile(rb'"error_code":\s*4040[123]\b')

#: Turns a record without its frame into a document; raises `Rejected`.
Reader = Callable[[bytes], Document | None]


@dataclass(frozen=True, slots=True)
class Registry:
    """Address of a schema registry, and the user who asks.

    Attributes
    ----------
    url : str
        ``https://host:port``, several with commas.
    username : str, optional
        For basic authentication.
    password_file, password_env : str, optional
        Where the password is: one of them for a user. It is read for each schema that is fetched.
    ca_file : str, optional
        Certificates to trust, PEM; by default ``SSL_CERT_FILE``, or those of the system.
    """

    url: str
    username: str | None = None
    password_file: str | None = None
    password_env: str | None = None
    ca_file: str | None = None

    def __post_init__(self) -> None:
        parts = [urlsplit(url.strip()) for url in self.url.split(",")]
        # The url itself is in no message, for it may hold a password.
        plain = all(
            p.scheme in ("http", "https") and p.hostname and "@" not in p.netloc for p in parts
        )
        check(plain, "registry url")


class RegistryDecoder:
    """Documents of values in the wire format: a 0, the id of a schema in 4 bytes, the record.

    Raises `SourceAwayError` for a record whose schema cannot be had now: it is the next one again.
    """

    def __init__(self, registry: Registry, options: ReadOptions) -> None:
        if find_spec("fastavro") is None:
            purpose = "reading records of a schema registry"
            raise MissingExtraError("fastavro", "registry", purpose)
        self._registry, self._options = registry, options
        self._reader = lru_cache(MOST_SCHEMAS)(self._fetch)
        self._unknown: dict[int, float] = {}
        # A wrong address or login shows here, and not at the first record.
        if not isinstance(self._ask("/schemas/types"), list):
            raise self._fail("answer as one", "TypeError")

    def __call__(self, value: bytes) -> Document | None:
        """Return the document of a value, or raise `Rejected`."""
        if len(value) < 5 or value[0]:
            raise Rejected("unframed")
        return self._reader(int.from_bytes(value[1:5], "big"))(value[5:])

    def _fetch(self, number: int) -> Reader:
        """Return what reads records of a schema, or raise `Rejected` if the registry has none."""
        if self._unknown.get(number, 0.0) > monotonic():
            raise Rejected("unknown-schema")
        try:
            schema = self._ask(f"/schemas/ids/{number}")
        except Rejected:
            if len(self._unknown) >= MOST_UNKNOWN:
                self._unknown.clear()
            self._unknown[number] = monotonic() + UNKNOWN_SECONDS
            raise
        if not isinstance(schema, dict) or not isinstance(schema.get("schema"), str):
            raise self._fail("answer as one", "TypeError")
        return reader_of(schema.get("schemaType") or "AVRO", schema["schema"], self._options)

    def _ask(self, path: str) -> Any:
        """Return an answer of the first of the addresses that is not away."""
        registry, login = self._registry, None
        if registry.username:
            login = registry.username, read_secret(registry.password_file, registry.password_env)
        context, found = trust(registry.ca_file), None
        for url in registry.url.split(","):
            try:
                there = url.strip().rstrip("/") + path
                return ask(there, login, context, ANSWER_SECONDS)
            except NoAnswer as answer:
                found = self._refuse(answer)
            if not isinstance(found, SourceAwayError):
                break
        assert found is not None
        raise found

    def _refuse(self, answer: NoAnswer) -> Exception:
        status = answer.status
        if status == 404 and _UNKNOWN.search(answer.body):
            return Rejected("unknown-schema")
        if status in (401, 403):
            return self._fail("let this user read", answer.reason)
        if answer.reason == ssl.SSLCertVerificationError.__name__:
            return self._fail("have a trusted certificate", answer.reason)
        if not status or status >= 500 or status in (408, 429):
            return self._fail("be reachable", answer.reason, SourceAwayError)
        return self._fail("answer as one", answer.reason)

    def _fail(
        self, rule: str, problem: str, kind: type[StreamLDAError] = SourceAccessError
    ) -> StreamLDAError:
        found = failure(
            f"the schema registry must {rule}",
            registry=self._registry.url,
            problem=problem,
            remedy="check that it runs, its address, certificates and login",
            error=kind,
        )
        return with_reason(found, f"registry:{problem}")


def _refuse(_: bytes) -> Document:
    raise Rejected("bad-schema")


def reader_of(kind: str, schema: str, options: ReadOptions) -> Reader:
    """Return what reads records of a schema: for one of no use, what rejects them all."""
    # What a record in JSON says counts, not whether it keeps to its schema.
    if kind == "JSON":
        return json_parser(options)
    if kind != "AVRO":
        return _refuse
    from fastavro import parse_schema, schemaless_reader

    try:
        # One that refers to others of the registry is not parsed.
        parsed: Any = parse_schema(orjson.loads(schema))
        _check_bounded(parsed, {}, ())
    except MemoryError:
        raise
    except Exception:
        # Parsers of schemas raise whatever they like. A schema never changes: this is for good.
        return _refuse
    document = document_reader(options, _avro_value)

    def read(payload: bytes) -> Document | None:
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

    fastavro reads a schema within itself by recursion, which ends the process a few thousand deep.
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
