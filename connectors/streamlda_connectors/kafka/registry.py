"""A schema registry: how to reach it, and what its schemas make of records."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from http.client import HTTPException
from importlib.util import find_spec
from io import BytesIO
from time import monotonic
from typing import Any, Self
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import Request, urlopen
from uuid import UUID

import orjson

from streamlda.checks import failure
from streamlda.errors import (
    MissingExtraError,
    SourceAccessError,
    SourceAwayError,
    StreamLDAError,
)
from streamlda.stream.credentials import read_secret
from streamlda_connectors.checks import check, fault, with_reason
from streamlda_connectors.kafka.security import check_names
from streamlda_connectors.lines import Field, document_reader, json_parser, read_field
from streamlda_connectors.options import ReadOptions
from streamlda_connectors.records import Document, Rejected

#: Schemas that are kept ready, those used last.
MOST_SCHEMAS = 64

#: How long an id that the registry does not know is not asked for again, and most of them.
UNKNOWN_SECONDS, MOST_UNKNOWN = 60.0, 1024

#: Answers of a registry that does not know a schema (its own codes).
_UNKNOWN_CODES = (40401, 40402, 40403)

#: Longest answer that is read.
_MOST_BYTES = 16 * 2**20


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
    timeout_seconds : float, default 10
        How long to wait for an answer.
    """

    url: str
    username: str | None = None
    password_file: str | None = None
    password_env: str | None = None
    ca_file: str | None = None
    timeout_seconds: float = 10.0

    def __post_init__(self) -> None:
        parts = [urlsplit(url.strip()) for url in self.url.split(",")]
        # The url itself is in no message, for it may hold a password.
        plain = all(
            p.scheme in ("http", "https") and p.hostname and "@" not in p.netloc for p in parts
        )
        check(plain, "registry url")
        sources = (self.password_file, self.password_env)
        one = sources.count(None) == (1 if self.username else 2)
        check(one, "registry login", username=self.username)

    @classmethod
    def of(cls, registry: Self | Mapping[str, Any]) -> Self:
        """Return settings from a mapping of the attributes."""
        if not isinstance(registry, Mapping):
            return registry
        check_names(cls, registry)
        return cls(**registry)


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
        for url in (urls := self._registry.url.split(",")):
            try:
                return self._get(url.strip().rstrip("/") + path)
            except SourceAwayError:
                if url is urls[-1]:
                    raise
        raise AssertionError(path)

    def _get(self, url: str) -> Any:
        registry, request = self._registry, Request(url, headers={"Accept": "application/json"})
        if registry.username:
            password = read_secret(registry.password_file, registry.password_env)
            login = base64.b64encode(f"{registry.username}:{password}".encode()).decode()
            # Not for an address to which the registry leads on.
            request.add_unredirected_header("Authorization", f"Basic {login}")
        context, seconds = _trust(registry.ca_file), registry.timeout_seconds
        try:
            with urlopen(request, timeout=seconds, context=context) as response:
                return orjson.loads(response.read(_MOST_BYTES))
        except HTTPError as error:
            with error:
                raise self._refuse(error.code, error.read(_MOST_BYTES)) from None
        except (ValueError, HTTPException) as error:
            raise self._fail("answer as one", type(error).__name__) from None
        except OSError as error:
            cause = error.reason if isinstance(error, URLError) else error
            problem = type(cause).__name__
            if isinstance(cause, ssl.SSLCertVerificationError):
                raise self._fail("have a trusted certificate", problem) from None
            raise self._fail("be reachable", problem, SourceAwayError) from None

    def _refuse(self, status: int, body: bytes) -> Exception:
        try:
            code = orjson.loads(body).get("error_code")
        except (ValueError, AttributeError):
            code = None
        if status == 404 and code in _UNKNOWN_CODES:
            return Rejected("unknown-schema")
        if status in (401, 403):
            return self._fail("let this user read", f"HTTP {status}")
        if status >= 500 or status in (408, 429):
            return self._fail("be reachable", f"HTTP {status}", SourceAwayError)
        return self._fail("answer as one", f"HTTP {status}")

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
        return with_reason(found, f"registry:{problem.replace(' ', '-')}")


def _trust(ca_file: str | None) -> ssl.SSLContext:
    problem = ""
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ValueError) as error:
        problem = type(error).__name__
    raise fault("registry certificates", ca_file=ca_file, problem=problem)


#: Turns a record without its frame into a document; raises `Rejected`.
Reader = Callable[[bytes], Document | None]

#: Longest schema, in characters.
MOST_CHARACTERS = 2**20


def reader_of(kind: str, schema: str, options: ReadOptions) -> Reader:
    """Return what reads records of a schema: for one of no use, what rejects them all."""
    makers = {"AVRO": _avro, "JSON": _json}
    try:
        if len(schema) > MOST_CHARACTERS:
            raise Rejected("bad-schema")
        return makers[kind](schema, options)
    except MemoryError:
        raise
    except Exception:
        # Parsers of schemas raise whatever they like. A schema never changes: this is for good.
        return _refuse


def _refuse(_: bytes) -> Document:
    raise Rejected("bad-schema")


def _json(_: str, options: ReadOptions) -> Reader:
    # What the record says counts, not whether it keeps to the schema.
    return json_parser(options)


def _avro(schema: str, options: ReadOptions) -> Reader:
    from fastavro import parse_schema, schemaless_reader

    # One that refers to others of the registry is not parsed.
    parsed: Any = parse_schema(orjson.loads(schema))
    _check_bounded(parsed, {}, ())
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
