"""``streamlda doctor``: what this installation has, and what it lacks."""

from __future__ import annotations

import os
import platform
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple, cast

import click

from streamlda.checks import require
from streamlda.cli.options import SettingsCommand, add_options, config_option, read_settings
from streamlda.settings.rules import GROUP
from streamlda.settings.run_settings import RunSettings
from streamlda.settings.setting import RUN, TOPICS
from streamlda.settings.table import MIB, KafkaSettings
from streamlda.stream.source import Source
from streamlda.utils.exit_codes import NO

#: How a broker is reached; that of the daemon.
BROKER = (
    *("kafka.bootstrap", "kafka.topic", "kafka.protocol", "kafka.mechanism"),
    *("kafka.username", "kafka.password", "kafka.ca_file", "kafka.certificate_file"),
    *("kafka.key_file", "kafka.key_password", "kafka.token", "kafka.token_endpoint"),
    *("kafka.token_scope", "kafka.token_extensions", "kafka.kerberos_service"),
)

#: Longest wait for a broker's first answer.
BROKER_SECONDS = 10.0


class Finding(NamedTuple):
    """A line of the report, and whether what it is about can be used."""

    name: str
    text: str
    usable: bool = True


@click.command(
    cls=SettingsCommand,
    short_help="Check versions, threads, caches, extras, and what settings connect to.",
)
@config_option
@add_options(RUN, BROKER, {"Kafka": ("kafka.bootstrap", "kafka.topic")})
def doctor(config: str | None, **flags: Any) -> None:
    """Print what this installation has: versions, threads, memory, compiled kernels and extras.

    With --config, also ask all that the settings of a daemon connect to: brokers, login, topic,
    group, schema registry, and the topics for dead letters and snapshots, which are made if they
    are missing, as the daemon does. Nothing is learned, and no group is joined. With
    --kafka-bootstrap and --kafka-topic only, ask these brokers.

    The exit code is 1 if something that was found cannot be used; an extra that is not installed is
    not a fault, and its line says what installs it.
    """
    from importlib.metadata import version

    from streamlda.kernels import cache_folder
    from streamlda.utils.process import allowed_bytes
    from streamlda.utils.threads import thread_count

    asked = config is not None or any(value is not None for value in flags.values())
    settings = _settings(flags, config) if asked else None
    faults = False
    lines = [("streamlda", f"{version('streamlda')}, {platform.platform()}")]
    lines.append(("python", platform.python_version()))
    for name in ("numpy", "scipy", "numba", "scikit-learn"):
        lines.append((name, version(name)))
    wanted = os.environ.get("NUMBA_NUM_THREADS")
    beside = "" if wanted is None else f", NUMBA_NUM_THREADS={wanted}"
    lines.append(("threads", f"{thread_count()} of {os.cpu_count()} processors{beside}"))
    allowed = allowed_bytes()
    limit = "no limit" if allowed is None else f"{allowed / MIB:,.0f} MiB allowed"
    lines.append(("memory", limit))
    folder = cache_folder()
    writable = os.access(folder, os.W_OK)
    faults |= not writable
    kernels = sum(1 for _ in folder.rglob("*.nbc"))
    state = "" if writable else ", not writable: every process compiles them again"
    lines.append(("kernels", f"{kernels} compiled in {folder}{state}"))
    lines += [(f"extra {extra}", state) for extra, state in _extras()]
    for name, value in lines:
        click.echo(f"{name:<18}{value}")
    for finding in () if settings is None else _ask(settings):
        faults |= not finding.usable
        click.echo(f"{finding.name:<18}{finding.text}")
    if faults:
        raise SystemExit(NO)


def _extras() -> list[tuple[str, str]]:
    """Return each extra with the packages of it that are here, or what installs those that lack."""
    from importlib.metadata import PackageNotFoundError, metadata, version

    from streamlda.errors import packages_of

    found = []
    for extra in sorted(set(metadata("streamlda").get_all("Provides-Extra") or ()) - {"all"}):
        here, lacking = [], []
        for package in packages_of(extra):
            name = package.split(">")[0].split("[")[0]
            try:
                here.append(f"{name} {version(name)}")
            except PackageNotFoundError:
                lacking.append(f"'{package}'")
        install = f"not installed: pip install {' '.join(lacking)}"
        found.append((extra, install if lacking else ", ".join(here)))
    return found


def _settings(flags: dict[str, Any], config: str | None) -> RunSettings:
    """Return the settings of what is to be asked, or refuse them where something lacks."""
    if config is None:
        kafka = read_settings("", flags).kafka
        require(
            kafka.bootstrap and kafka.topic,
            "a broker must be asked for a topic",
            kafka_bootstrap=kafka.bootstrap,
            kafka_topic=kafka.topic,
            remedy="give --kafka-bootstrap and --kafka-topic, or --config",
        )
    return read_settings(RUN, flags, config)


def _ask(settings: RunSettings) -> Iterator[Finding]:
    """Ask all that a daemon connects to, one after the other; yield each with its answer."""
    from streamlda.run.parts import dead_letter_sink, open_stream, snapshot_sink
    from streamlda.settings.rules import get_source_kind

    def open_registry() -> None:
        open_stream(replace(settings, kafka=_all_of(settings.kafka))).close()

    def connect(open_sink: Callable[[RunSettings], Any]) -> None:
        with closing(open_sink(settings)) as sink:
            if hasattr(sink, "connect"):
                sink.connect()

    if get_source_kind(settings) not in TOPICS:
        yield _try("source", lambda: open_stream(settings).close(), "can be opened")
        return
    yield from map(_reach, str(settings.kafka.bootstrap).split(","))
    yield from _read_topic(settings)
    if settings.source.format == "registry":
        yield _try("registry", open_registry, f"{settings.registry.url} answers")
    if (topic := settings.dead_letters.topic) is not None:
        yield _try("dead letters", lambda: connect(dead_letter_sink), f"{topic} can be written")
    if (topic := settings.output.topic) is not None:
        yield _try("output topic", lambda: connect(snapshot_sink), f"{topic} can be written")


def _reach(address: str) -> Finding:
    """Connect to a broker, and say nothing to it."""
    from streamlda.service.logs import reason_of

    host, _, port = address.strip().rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), BROKER_SECONDS).close()
    except OSError as error:
        return Finding("broker", f"{address} cannot be reached: {reason_of(error)}", False)
    return Finding("broker", f"{address} accepts connections")


def _read_topic(settings: RunSettings) -> list[Finding]:
    """Log in, and read one record of the topic and the offsets of the group."""
    from streamlda.errors import SourceAwayError, SourceRefusedError, StreamLDAError
    from streamlda.run.parts import open_stream

    kafka = settings.kafka
    # A value is counted whatever it holds, and no member of the group gives up partitions for it.
    source = replace(settings.source, format="jsonl")
    plain = replace(settings, source=source, kafka=_all_of(kafka))
    login = f"{kafka.protocol}, {kafka.mechanism or 'without a user'}"
    try:
        with closing(cast(Any, open_stream(plain))) as opened:
            _poll(opened)
            found = [Finding("login", login), Finding("topic", f"{kafka.topic} can be read")]
            if kafka.group:
                found.append(_try("group", opened.notes, f"offsets of {kafka.group} can be read"))
            return found
    except SourceAwayError as error:
        return [Finding("login", "not known", False), Finding("topic", str(error), False)]
    except SourceRefusedError as error:
        return [Finding("login", str(error), False), Finding("topic", "not known", False)]
    except StreamLDAError as error:
        return [Finding("login", login), Finding("topic", str(error), False)]


def _all_of(kafka: KafkaSettings) -> KafkaSettings:
    return replace(kafka, partitions="all") if kafka.partitions == GROUP else kafka


def _poll(source: Source) -> None:
    """Poll for a record; brokers that are away may be back within `BROKER_SECONDS`."""
    from streamlda.errors import SourceAwayError

    end = time.monotonic() + BROKER_SECONDS
    while True:
        try:
            source.poll(1, timeout_seconds=1.0)
            return
        except SourceAwayError:
            if time.monotonic() > end:
                raise


def _try(name: str, ask: Callable[[], object], text: str) -> Finding:
    """Ask; return the text, or what is wrong."""
    from streamlda.errors import StreamLDAError

    try:
        ask()
    except StreamLDAError as error:
        return Finding(name, str(error), False)
    return Finding(name, text)
