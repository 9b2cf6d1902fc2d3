"""Sources and sinks of a run, opened as its settings say."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

from streamlda.errors import SourceError, require
from streamlda.settings.rules import get_source_kind
from streamlda.settings.run_settings import RunSettings
from streamlda.settings.setting import Secret
from streamlda.settings.table import KafkaSettings, RegistrySettings, SourceSettings
from streamlda.stream.listing import split_patterns
from streamlda.stream.pipeline import Pipeline
from streamlda.stream.sink import open_sink
from streamlda.stream.source import Reject, Source, open_source, poll

#: Gets each rejected record and its reason, where the source has whole records to give.
OnRejected = Callable[[Any, str], None]

#: Settings of connections to brokers, and to a schema registry.
SECURITY = (
    *("protocol", "mechanism", "username", "ca_file", "certificate_file", "key_file"),
    *("token_endpoint", "token_scope", "token_extensions", "kerberos_service"),
    *("password", "token", "key_password"),
)
REGISTRY = ("url", "username", "ca_file", "password")

#: Records that are skipped at once, after a release.
SKIPPED_RECORDS = 4096


def name_stream(settings: RunSettings) -> str:
    """Return the name of the stream in ledger and models: ``source.stream``, or the source."""
    source, kafka = settings.source, settings.kafka
    if source.stream:
        return source.stream
    if source.kind == "kafka":
        return f"kafka:{kafka.topic}/{kafka.partitions}"
    if get_source_kind(settings) == "stdin":
        return "stdin"
    return " ".join(map(resolve_name, source.files))


def about_models(settings: RunSettings) -> dict[str, Any]:
    """Return what all models of a run say of it."""
    found: dict[str, Any] = {"stream": name_published_stream(settings)}
    return found | ({"relevance": r} if (r := settings.topics.relevance) != 1 else {})


def name_published_stream(settings: RunSettings) -> str:
    """Return the name of the stream in models; private ones do not tell where files lie."""
    name = name_stream(settings)
    in_files = get_source_kind(settings) in ("files", "follow")
    if not settings.private or settings.source.stream or not in_files:
        return name
    # Behind a question mark a URL may have what opens it.
    first, *more = (Path(each.partition("?")[0]).name for each in settings.source.files)
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()
    return f"{first} and {len(more)} more, {digest}" if more else f"{first}, {digest}"


def resolve_name(name: str) -> str:
    """Return the path of a file, links followed; a URL as it is."""
    return name if "://" in name else str(Path(name).resolve())


def open_stream(
    settings: RunSettings,
    on_rejected: OnRejected | None = None,
    *,
    fixed_order: bool = False,
) -> Source:
    """Open the source that the settings name, at its beginning."""
    source, kind = settings.source, get_source_kind(settings)
    if kind == "files":
        return open_source("files", list(source.files), **file_options(settings))
    if kind != "kafka":
        stored = {"follow": "jsonl", "stdin": "text"}[kind]
        options = {"format": stored if source.format == "auto" else source.format}
        options |= _record_options(source)
        if kind == "stdin":
            return open_source("stdin", **options)
        return open_source("follow", list(source.files), allow_gaps=source.allow_gaps, **options)
    kafka = settings.kafka
    numbers = kafka.partitions.split(",")
    return open_source(
        "kafka",
        kafka.topic,
        partitions=[*map(int, numbers)] if all(map(str.isdecimal, numbers)) else kafka.partitions,
        fixed_order=fixed_order or (settings.private and not kafka.partitions.isdecimal()),
        group=kafka.group,
        **_topic_options(settings, on_rejected),
    )


def _topic_options(settings: RunSettings, on_rejected: OnRejected | None) -> dict[str, Any]:
    """Return the options of reading a topic, to learn or to infer."""
    source, kafka = settings.source, settings.kafka
    by_registry = source.format == "registry"
    return {
        "bootstrap_servers": kafka.bootstrap,
        "security": connect_by(kafka, SECURITY),
        "start": kafka.start,
        "format": "jsonl" if source.format == "auto" else source.format,
        **_record_options(source),
        "allow_gaps": source.allow_gaps,
        "on_reject": on_rejected,
        "registry": connect_by(settings.registry, REGISTRY) if by_registry else None,
    }


def file_options(settings: RunSettings) -> dict[str, Any]:
    """Return options of the connector ``files``; private records must not decide the encoding."""
    source = settings.source
    read: dict[str, Any] = {"format": source.format, "delimiter": source.delimiter}
    read |= {**_record_options(source), "include": split_patterns(source.include)}
    return read | ({"encoding": None} if settings.private else {})


def _record_options(source: SourceSettings) -> dict[str, Any]:
    names = ("text_field", "records_field", "time_field", "time_format", "id_field", "encoding")
    return {
        **{name: getattr(source, name) for name in names},
        # A class is a name of a record as a user is, and no command reads both.
        "user_field": source.class_field or source.user_field,
        "max_document_bytes": source.max_record,
    }


def connect_by(section: KafkaSettings | RegistrySettings, names: Iterable[str]) -> dict[str, Any]:
    """Return how to connect; secrets are named, and read at each connection."""
    found: dict[str, Any] = {}
    for name in names:
        value = getattr(section, name)
        if isinstance(value, Secret) and value.file is None:
            found[f"{name}_env"] = value.variable
        elif isinstance(value, Secret):
            found[f"{name}_file"] = value.file
        elif value is not None:
            found[name] = value
    return found


def open_topic(sink: str, topic: str | None, kafka: KafkaSettings) -> Any:
    """Open the topic of a sink, ``dead-letters`` or ``snapshots``, if there is one."""
    if topic is None:
        return None
    how = connect_by(kafka, SECURITY)
    return open_sink(f"kafka-{sink}", topic, bootstrap_servers=kafka.bootstrap, security=how)


def open_exchange(settings: RunSettings, on_rejected: OnRejected | None = None) -> Any:
    """Open the topic to infer and the one for results, as a member of their group."""
    topic, infer = settings.kafka.topic, settings.infer
    group = infer.group or f"streamlda-infer-{infer.topic}"
    options = _topic_options(settings, on_rejected)
    return open_sink("kafka-exchange", topic, infer.topic, group=group, **options)


def skip_records(
    source: Source,
    records: int,
    pipeline: Pipeline[Any],
    on_poll: Callable[[int], None] = lambda n_records: None,
    *,
    released: bool = True,
) -> None:
    """Take a source past records that were `released`, or are noted for a release, unkept."""
    while records > 0:
        batch = poll(source, min(records, SKIPPED_RECORDS), 1.0)
        pipeline.pass_records(batch, released=released)
        records -= batch.n_records
        on_poll(batch.n_records)
        require(
            not (batch.exhausted and records),
            "a source must still hold the records that were read or counted in it",
            error=SourceError,
            records_missing=records,
            remedy="bring it back as it was",
        )


class RejectsFile:
    """A file with a JSON line for each rejected record, written before a checkpoint after it."""

    def __init__(self, path: str, *, append: bool = False) -> None:
        mode = "a" if append else "w"
        self._file = Path(path).open(mode, 1, encoding="ascii")  # noqa: SIM115 - see __exit__

    def write(self, reject: Reject) -> None:
        """Write one line."""
        self._file.write(json.dumps(reject._asdict()) + "\n")

    def clear(self) -> None:
        """Forget the lines of an earlier run."""
        self._file.truncate(0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
