"""A schema registry: how to reach it, and what its schemas make of records."""

from __future__ import annotations

import logging
import re
import ssl
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from time import monotonic
from typing import Any, Self
from urllib.parse import urlsplit

from streamlda.checks import failure, require
from streamlda.errors import (
    MissingExtraError,
    SourceAccessError,
    SourceAwayError,
    SourceError,
    StreamLDAError,
)
from streamlda.stream.credentials import read_secret
from streamlda_connectors.kafka.schemas import FoundSchema, Reader, reader_of
from streamlda_connectors.kafka.security import check_names
from streamlda_connectors.records import Document, ReadOptions, Rejected

#: Schemas that are kept ready, those used last.
MOST_SCHEMAS = 64

#: How long an id that the registry does not know is not asked for again, and most of them.
UNKNOWN_SECONDS, MOST_UNKNOWN = 60.0, 1024

#: What the extra brings; the client is only half there without the last.
_PACKAGES = (
    *(("fastavro", "fastavro"), ("google", "protobuf"), ("confluent_kafka", "confluent-kafka")),
    ("authlib", "confluent-kafka[schemaregistry]"),
)

#: Answers of a registry that does not know a subject, a version or a schema (its own codes).
_UNKNOWN_CODES = (40401, 40402, 40403)


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
        Certificates to trust, PEM; by default ``SSL_CERT_FILE``, or those of certifi.
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
        require(
            all(
                p.scheme in ("http", "https") and p.hostname and "@" not in p.netloc for p in parts
            ),
            "the url of a schema registry must begin with http:// or https://, and name no user",
            remedy="set a username and the file of its password apart",
        )
        sources = (self.password_file, self.password_env)
        require(
            sources.count(None) == (1 if self.username else 2),
            "a user of a schema registry and one source of the password go together",
            username=self.username,
            remedy="set username, and password_file or password_env",
        )

    @classmethod
    def of(cls, registry: Self | Mapping[str, Any]) -> Self:
        """Return settings from a mapping of the attributes."""
        if not isinstance(registry, Mapping):
            return registry
        check_names(cls, registry)
        return cls(**registry)


class RegistryDecoder:
    """Documents of values in the wire format: a 0, the id of a schema in 4 bytes, the record.

    Schemas never change, so each is fetched once; while all that come are known, the registry may
    be away. Raises `SourceAwayError` for a record whose schema cannot be had now: it is the next
    one again then.
    """

    def __init__(self, registry: Registry, options: ReadOptions) -> None:
        for package, distribution in _PACKAGES:
            if find_spec(package) is None:
                purpose = "reading records of a schema registry"
                raise MissingExtraError(distribution, "registry", purpose)
        self._registry, self._options = registry, options
        self._known: OrderedDict[int, Reader] = OrderedDict()
        self._unknown: dict[int, float] = {}
        # A wrong address or login shows here, and not at the first record.
        with self._asking() as client:
            if not isinstance(client.get_schema_types(), list):
                raise TypeError

    def __call__(self, value: bytes) -> Document | None:
        """Return the document of a value, or raise `Rejected`."""
        if len(value) < 5 or value[0]:
            raise Rejected("unframed")
        number = int.from_bytes(value[1:5], "big")
        reader = self._known.get(number)
        if reader is None:
            reader = self._known[number] = self._fetched(number)
            if len(self._known) > MOST_SCHEMAS:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(number)
        return reader(value[5:])

    def _fetched(self, number: int) -> Reader:
        if self._unknown.get(number, 0.0) > monotonic():
            raise Rejected("unknown-schema")
        try:
            with self._asking() as client:
                found = _found(client, number)
        except Rejected:
            if len(self._unknown) >= MOST_UNKNOWN:
                self._unknown.clear()
            self._unknown[number] = monotonic() + UNKNOWN_SECONDS
            raise
        return reader_of(found, self._options)

    @contextmanager
    def _asking(self) -> Iterator[Any]:
        """Give a client for one schema; say what is wrong if the registry does not answer so."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        with _client(self._registry) as client:
            try:
                yield client
            except SchemaRegistryError as error:
                raise self._refused(error.http_status_code, error.error_code) from None
            except (TypeError, ValueError, KeyError, AttributeError) as error:
                # The package reads answers as they come, without looking.
                raise self._failed("answer as one", type(error).__name__) from None
            except Rejected:
                raise
            except Exception as error:
                if _has_cause(error, ssl.SSLCertVerificationError):
                    problem = "SSLCertVerificationError"
                    raise self._failed("have a trusted certificate", problem) from None
                problem = type(error).__name__
                raise self._failed("be reachable", problem, SourceAwayError) from None

    def _refused(self, status: int, code: int | None) -> Exception:
        if status == 404 and code in _UNKNOWN_CODES:
            return Rejected("unknown-schema")
        if status in (401, 403):
            return self._failed("let this user read", f"HTTP {status}")
        if status >= 500 or status in (408, 429):
            return self._failed("be reachable", f"HTTP {status}", SourceAwayError)
        return self._failed("answer as one", f"HTTP {status}")

    def _failed(
        self, rule: str, problem: str, kind: type[StreamLDAError] = SourceAccessError
    ) -> StreamLDAError:
        found = failure(
            f"the schema registry must {rule}",
            registry=self._registry.url,
            problem=problem,
            remedy="check that it runs, its address, certificates and login",
            error=kind,
        )
        assert isinstance(found, SourceError)
        found.reason = f"registry:{problem.replace(' ', '-')}"
        return found


def _client(registry: Registry) -> Any:
    from confluent_kafka.schema_registry import SchemaRegistryClient

    for name in ("httpx", "httpx2", "httpcore", "httpcore2"):
        # At DEBUG they log headers, and with them the password.
        logging.getLogger(name).setLevel(logging.WARNING)
    options: dict[str, Any] = {
        "url": registry.url,
        "timeout": registry.timeout_seconds,
        "max.retries": 0,
    }
    if registry.username:
        password = read_secret(registry.password_file, registry.password_env)
        options["basic.auth.user.info"] = f"{registry.username}:{password}"
    if registry.ca_file:
        options["ssl.ca.location"] = registry.ca_file
    problem = ""
    try:
        return SchemaRegistryClient(options)
    except (OSError, ValueError) as error:
        problem = type(error).__name__
    raise failure(
        "the certificates to trust of a schema registry must be readable",
        ca_file=registry.ca_file,
        problem=problem,
        remedy="name a file of certificates in PEM",
    )


def _found(client: Any, number: int) -> FoundSchema:
    """Return a schema with all that it refers to, in the form that its reader needs."""
    schema = _as_readable(client, lambda form: client.get_schema(number, fmt=form))
    named: dict[str, str] = {}

    def gather(one: Any) -> None:
        for name, *version in ((r.name, r.subject, r.version) for r in one.references or ()):
            if name not in named:
                other = _as_readable(client, partial(_version, client, *version))
                named[name] = other.schema_str
                gather(other)

    gather(schema)
    return FoundSchema(schema.schema_type or "AVRO", schema.schema_str, named)


def _version(client: Any, subject: str, version: int, form: str | None) -> Any:
    return client.get_version(subject, version, True, form).schema


def _as_readable(client: Any, get: Callable[[str | None], Any]) -> Any:
    """Return a schema; one in the language of Protobuf as its compiler has it, in base64.

    Some registries give that as it was registered, and cannot give it on request.
    """
    schema = get(None)
    if schema.schema_type == "PROTOBUF" and not re.fullmatch(r"[\w+/]+=*", schema.schema_str):
        # The package would give the same again.
        client.clear_caches()
        schema = get("serialized")
    if not isinstance(schema.schema_str, str):
        raise TypeError
    return schema


def _has_cause(error: BaseException | None, kind: type[BaseException]) -> bool:
    while error is not None:
        if isinstance(error, kind):
            return True
        error = error.__cause__ or error.__context__
    return False
