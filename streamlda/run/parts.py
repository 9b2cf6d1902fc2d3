"""Sources, outputs and names of a run, as its settings say; outputs are checked before reading."""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields
from hashlib import blake2b
from pathlib import Path
from typing import Any

from streamlda.errors import Faults, InvalidSettingError, SourceError
from streamlda.settings.rules import get_source_kind
from streamlda.settings.setting import Secret
from streamlda.settings.table import KafkaSettings, RegistrySettings, RunSettings, SourceSettings
from streamlda.stream.pipeline import Pipeline
from streamlda.stream.source import Source, open_sink, open_source, poll

#: Gets each rejected record and its reason, where the source has whole records to give.
OnRejected = Callable[[Any, str], None]

#: Settings of Kafka that say what is read; all others say how to connect.
READ_FROM = ("bootstrap", "topic", "partitions", "start", "group")

#: Records that are skipped at once, after a release.
SKIPPED_RECORDS = 4096

FAULTS = Faults(
    {
        InvalidSettingError: {
            "no file": "the output is no regular file; choose another name",
            "an input": "the output would replace what is read, or another output; choose "
            "another name",
            "a ledger's": "the output lies where a ledger keeps its own; choose another name",
            "no folder": "the folder of the output is missing or not writable; make it, or "
            "choose another",
            "one file": "columns can be appended to one file; name one CSV file, or leave --append "
            "out",
        },
        SourceError: {
            "lacks": "the source lacks records that were read or counted in it; bring it back as "
            "it was",
        },
    }
)


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
    settings: RunSettings, on_rejected: OnRejected | None = None, *, fixed_order: bool = False
) -> Source:
    """Open the source that the settings name, at its beginning."""
    source, kafka, kind = settings.source, settings.kafka, get_source_kind(settings)
    if kind == "files":
        return open_source("files", list(source.files), **file_options(settings))
    if kind == "stdin":
        return open_source("stdin", **_record_options(source, "text"))
    if kind == "follow":
        options = _record_options(source, "jsonl")
        return open_source("follow", list(source.files), allow_gaps=source.allow_gaps, **options)
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
    return {
        **_record_options(source, "jsonl"),
        "bootstrap_servers": kafka.bootstrap,
        "security": connect_by(kafka),
        "start": kafka.start,
        "allow_gaps": source.allow_gaps,
        "on_reject": on_rejected,
        "registry": connect_by(settings.registry) if source.format == "registry" else None,
    }


def file_options(settings: RunSettings) -> dict[str, Any]:
    """Return options of the connector ``files``; private records must not decide the encoding."""
    source = settings.source
    read = {**_record_options(source, "auto"), "delimiter": source.delimiter}
    patterns = [] if source.include is None else source.include.split(",")
    read["include"] = [pattern.strip() for pattern in patterns]
    return read | ({"encoding": None} if settings.private else {})


def _record_options(source: SourceSettings, format: str) -> dict[str, Any]:
    """Return options of all connectors; the `format` is that of ``auto``."""
    names = ("text_field", "records_field", "time_field", "time_format", "id_field", "encoding")
    return {
        **{name: getattr(source, name) for name in names},
        "format": format if source.format == "auto" else source.format,
        # A class is a name of a record as a user is, and no command reads both.
        "user_field": source.class_field or source.user_field,
        "has_classes": source.class_field is not None,
        "max_document_bytes": source.max_record,
    }


def connect_by(section: KafkaSettings | RegistrySettings) -> dict[str, Any]:
    """Return how to connect; secrets are named, and read at each connection."""
    found: dict[str, Any] = {}
    for name in [each.name for each in fields(section) if each.name not in READ_FROM]:
        value = getattr(section, name)
        if isinstance(value, Secret):
            found[f"{name}_{'file' if value.file else 'env'}"] = value.file or value.variable
        elif value is not None:
            found[name] = value
    return found


def open_letters(topic: str | None, kafka: KafkaSettings) -> Any:
    """Open the topic for dead letters, if there is one."""
    if topic is None:
        return None
    how = {"bootstrap_servers": kafka.bootstrap, "security": connect_by(kafka)}
    return open_sink("kafka-dead-letters", topic, **how)


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
        FAULTS.check(not (batch.exhausted and records), "lacks", records_missing=records)


def check_output(path: str, inputs: Sequence[str | Path] = (), *, is_ledger: bool = False) -> None:
    """Raise `InvalidSettingError` if a file cannot be written, or replaces input or ledger."""
    target, here = Path(path), Path(path).resolve()
    FAULTS.check(not target.exists() or target.is_file(), "no file", path=path)
    for other in map(Path, inputs):
        both = target.exists() and other.exists()
        same = target.samefile(other) if both else here == other.resolve()
        FAULTS.check(not same, "an input", path=path)
    if not is_ledger:
        _check_no_ledger(here)
    try:
        tempfile.TemporaryFile(dir=here.parent).close()
    except OSError as error:
        raise FAULTS.make("no folder", path=path, reason=error.strerror) from error


def check_outputs(settings: RunSettings) -> None:
    """Check the files that a run writes, model and ledger. Lists the files that it reads."""
    from streamlda.privacy.ledger.file import beside
    from streamlda.stream.listing import find_files
    from streamlda.text.stop_words import parse_languages

    words, source, ledger = settings.vocabulary, settings.source, settings.privacy.ledger
    stop_words = None if parse_languages(words.stop_words) else words.stop_words
    read = filter(None, (words.file, settings.topics.projection_file, stop_words))
    taken: list[str | Path] = [*source.files, *read]
    with suppress(SourceError):  # What cannot be listed is said when it is opened.
        if get_source_kind(settings) == "files":
            stored = find_files(source.files, source.format, file_options(settings)["include"])
            taken += [file.name for file in stored if file.local]
    own = [] if ledger is None else beside(Path(ledger).resolve())
    if settings.output.file is not None:
        check_output(settings.output.file, [*taken, *own])
        taken.append(settings.output.file)
    if ledger is not None:
        check_output(ledger, [*taken, *own], is_ledger=True)
    for folder in filter(None, (settings.output.folder, settings.checkpoint.folder)):
        _check_no_ledger(Path(folder).resolve(), own)


def _check_no_ledger(path: Path, new: Sequence[Path] = ()) -> None:
    from streamlda.privacy.ledger.file import has_ledger

    FAULTS.check(path not in new and not has_ledger(path), "a ledger's", path=str(path))
