"""Documents of records: of text, of JSON, and of what a schema registry has schemas for."""

import re
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from io import BytesIO
from time import monotonic
from typing import Any
from urllib.parse import urlsplit
from uuid import UUID

import orjson

from streamlda import errors
from streamlda.stream.credentials import read_secret
from streamlda.stream.event_time import RECORD_TIME, in_range
from streamlda_connectors import lines, records
from streamlda_connectors.checks import check, with_reason
from streamlda_connectors.kafka.partitions import Record, Run
from streamlda_connectors.kafka.security import NoAnswer, ask, trust

#: How long to wait for an answer.
ANSWER_SECONDS = 10.0

#: How long ids that the registry does not know are not asked for again, at most.
UNKNOWN_SECONDS = 60.0

#: Answers of a registry that does not know a schema (its own codes).
_UNKNOWN = re.compile(rb'"error_code":\s*4040[123]\b')


@dataclass(frozen=True, slots=True)
class Registry:
    """Address of a schema registry, and the user who asks.

    Attributes
    ----------
    url : str
        ``https://host:port``.
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
        parts = urlsplit(self.url)
        # The url itself is in no message, for it may hold a password.
        there = parts.scheme in ("http", "https") and parts.hostname and "," not in self.url
        check(there and "@" not in parts.netloc, "registry url")


class RegistryDecoder:
    """Documents of values in the wire format: a 0, the id of a schema in 4 bytes, the record."""

    def __init__(self, registry: Registry, options: records.ReadOptions) -> None:
        if find_spec("fastavro") is None:
            purpose = "reading records of a schema registry"
            raise errors.MissingExtraError("fastavro", "registry", purpose)
        self._registry, self._options = registry, options
        self._reader = lru_cache(64)(self._fetch)
        #: Ids that the registry does not know, and until when.
        self._unknown: set[int] = set()
        self._unknown_until = 0.0
        # A wrong address or login shows here, and not at the first record.
        self._ask("/schemas/types", lambda found: isinstance(found, list))

    def __call__(self, value: bytes) -> records.Document | None:
        """Return a document; `Rejection`, or `SourceAwayError` if its schema cannot be had now."""
        if len(value) < 5 or value[0]:
            raise records.Rejection("unframed")
        return self._reader(int.from_bytes(value[1:5], "big"))(value[5:])

    def _fetch(self, number: int) -> records.Parser:
        """Return the parser of a schema; raise `Rejection` if the registry lacks the schema."""
        if monotonic() > self._unknown_until:
            self._unknown.clear()
            self._unknown_until = monotonic() + UNKNOWN_SECONDS
        if number in self._unknown:
            raise records.Rejection("unknown-schema")
        try:
            found = self._ask(
                f"/schemas/ids/{number}",
                lambda found: isinstance(found, dict) and isinstance(found.get("schema"), str),
            )
        except records.Rejection:
            self._unknown.add(number)
            raise
        return make_reader(found.get("schemaType") or "AVRO", found["schema"], self._options)

    def _ask(self, path: str, is_right: Callable[[Any], bool]) -> Any:
        """Return an answer that is right."""
        registry, login = self._registry, None
        if registry.username:
            login = registry.username, read_secret(registry.password_file, registry.password_env)
        url = registry.url.strip().rstrip("/") + path
        try:
            found = ask(url, login, trust(registry.ca_file), ANSWER_SECONDS)
            if is_right(found):
                return found
            none = NoAnswer(TypeError.__name__, 200)
        except NoAnswer as answer:
            none = answer
        raise self._refuse(none)

    def _refuse(self, answer: NoAnswer) -> Exception:
        kind: type[errors.StreamLDAError] = errors.SourceAccessError
        status = answer.status
        if status == 404 and _UNKNOWN.search(answer.body):
            return records.Rejection("unknown-schema")
        problem = "does not answer as one"
        if status in (401, 403):
            problem = "does not let this user read"
        elif answer.is_untrusted:
            problem = "has no trusted certificate"
        elif not status or status >= 500 or status in (408, 429):
            problem, kind = "cannot be reached", errors.SourceAwayError
        rule, about = f"the schema registry {problem}", {"registry": self._registry.url}
        remedy = "check that it runs, its address, certificates and login"
        found = errors.failure(rule, **about, problem=answer.reason, remedy=remedy, error=kind)
        return with_reason(found, f"registry:{answer.reason}")


def _refuse(_: bytes) -> records.Document:
    raise records.Rejection("bad-schema")


def make_reader(kind: str, schema: str, options: records.ReadOptions) -> records.Parser:
    """Return the parser of a schema; for a schema that cannot be used, one that rejects all."""
    # What a record in JSON says counts, not whether it keeps to its schema.
    if kind == "JSON":
        return lines.json_parser(options)
    if kind != "AVRO":
        return _refuse
    from fastavro import parse_schema, schemaless_reader

    try:
        # One that refers to others of the registry is not parsed.
        parsed: Any = parse_schema(orjson.loads(schema))
        _has_bytes(parsed, {})
    except MemoryError:
        raise
    except Exception:
        # Parsers of schemas raise whatever they like. A schema never changes: this is for good.
        return _refuse
    document = lines.document_reader(options, _avro_value)

    def read(payload: bytes) -> records.Document | None:
        stream = BytesIO(payload)
        try:
            record = schemaless_reader(stream, parsed, None)
        except Exception as error:
            # Of damage it raises whatever comes of it.
            raise records.Rejection("broken-record") from error
        if stream.tell() != len(payload):
            raise records.Rejection("broken-record")
        if type(record) is not dict:
            raise records.Rejection("not-an-object")
        return document(record)

    return read


def _has_bytes(schema: Any, named: dict[str, bool], around: tuple[str, ...] = ()) -> bool:
    """Return whether each value has bytes; reject a schema whose values need none to be huge.

    fastavro reads a schema within itself by recursion, which ends the process a few thousand deep.
    """
    if isinstance(schema, str):
        if schema in around:
            raise records.Rejection("bad-schema")
        return named.get(schema, schema != "null")
    if isinstance(schema, list):
        # The number of the one that is there, behind which it stands.
        return bool([_has_bytes(each, named, around) for each in schema])
    kind, name = schema["type"], schema.get("name", "")
    if kind in ("array", "map"):
        found = _has_bytes(schema["items" if kind == "array" else "values"], named, around)
        if kind == "array" and not found:
            raise records.Rejection("bad-schema")
        return True
    if kind in ("record", "error"):
        within = (*around, name)
        found = sum(_has_bytes(each["type"], named, within) for each in schema["fields"]) > 0
    elif kind in ("fixed", "enum"):
        found = kind == "enum" or schema["size"] > 0
    else:
        return _has_bytes(kind, named, around)
    named[name] = found
    return found


def _avro_value(record: Any, field: lines.Field) -> Any:
    value = lines.read_field(record, field)
    return str(value) if isinstance(value, UUID) else value


#: Called with each record that is skipped, and why, before the poll that skips it returns.
OnReject = Callable[[Record, str], None]


class RecordOptions:
    """Options for reading the records of a topic; they are those of `KafkaSource`."""

    def __init__(
        self,
        topic: str,
        format: str,
        options: records.ReadOptions,
        on_reject: OnReject | None,
        registry: Registry | None = None,
    ) -> None:
        formats = ("jsonl", "text") if registry is None else ("registry",)
        errors.one_of(
            formats, format=format, remedy="a registry and the format registry go together"
        )
        self._by_record = options.time_field == RECORD_TIME
        if self._by_record:
            options = replace(options, time_field=None)
        self._topic = topic
        self._max_bytes = options.max_document_bytes
        self._on_reject = on_reject
        self._decode: records.Parser = (
            lines.line_parser(formats, format, options, lines.parse_value)
            if registry is None
            else RegistryDecoder(registry, options)
        )

    def take(self, batch: records.BatchBuilder, runs: deque[Run], next_: dict[int, int]) -> bool:
        """Move records into `batch`, and `next_` with them, until it is full or nothing is pending.

        Returns False where what was gathered must go out before the next record is tried again.
        """
        while runs and not batch.full:
            run = runs[0]
            number, rows, at = run.partition, run.records, next_[run.partition]
            # A client that goes back must not make anything count twice.
            while run.taken < len(rows) and rows[run.taken].offset < at:
                run.taken += 1
            if run.taken == len(rows):
                runs.popleft()
                continue
            location = f"{self._topic}/{number}"
            hole = min(batch.room, rows[run.taken].offset - at)
            if hole:
                batch.extend(location, at + 1, [None] * hole, 0)
                batch.keys += [None] * hole
                next_[number] = at + hole
                continue
            # Up to the next hole.
            rows = rows[run.taken : run.taken + batch.room]
            wanted = len(rows)
            if rows[-1].offset >= at + wanted:
                wanted = bisect_right([row.offset - i for i, row in enumerate(rows)], at)
            n_read = self._read(location, rows[:wanted], batch)
            next_[number] = at + n_read
            if n_read and (newest := rows[n_read - 1].timestamp_ms) >= 0:
                batch.newest[number] = newest / 1000
            run.taken += n_read
            if n_read < wanted and not batch.full:
                return False
        return True

    def _read(self, location: str, rows: Sequence[Record], batch: records.BatchBuilder) -> int:
        """Read records without a hole between them; return how many it were."""
        # Added together: one by one it costs as much again as parsing them.
        found: list[records.Document | records.Rejection | None] = []
        n_bytes = 0
        for row in rows:
            value, document = row.value, None
            try:
                if value is not None:
                    if len(value) > self._max_bytes:
                        raise records.Rejection("too-long")
                    document = self._decode(value)
                    n_bytes += len(value)
                found.append(document)
            except records.Rejection as rejected:
                try:
                    if self._on_reject is not None:
                        self._on_reject(row, rejected.reason)
                except Exception:
                    if batch.empty and not found:
                        raise
                    break
                found.append(records.Rejection(rejected.reason, rejected.fields))
            except errors.StreamLDAError:
                # It is not this record's fault.
                if batch.empty and not found:
                    raise
                break
            if batch.bytes + n_bytes >= records.MAX_POLL_BYTES:
                break
        own = rows[: len(found)]
        if own:
            batch.extend(location, own[0].offset + 1, found, n_bytes)
            batch.keys += [row.key for row in own]
            if self._by_record:
                batch.times[-len(own) :] = [
                    in_range(at / 1000) if type(each) is tuple and at >= 0 else None
                    for each, at in zip(found, [row.timestamp_ms for row in own], strict=True)
                ]
        return len(own)
