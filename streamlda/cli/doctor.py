"""``streamlda doctor``: parts of this installation, and missing ones."""

import os
import platform
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, metadata, version
from typing import Any

import click

from streamlda.cli.options import Values, command
from streamlda.errors import SourceAwayError, SourceRefusedError, StreamLDAError, list_packages
from streamlda.kernels.machine_code import cache_folder
from streamlda.run.parts import open_letters, open_stream
from streamlda.service.logs import name_reason
from streamlda.settings.rules import GROUP, get_source_kind
from streamlda.settings.setting import RUN
from streamlda.settings.table import MIB, RunSettings
from streamlda.utils.exit_codes import NO
from streamlda.utils.process import get_memory_limit
from streamlda.utils.threads import thread_count

#: Longest wait for a broker's first answer.
BROKER_SECONDS = 10.0

#: A line of the report: its name, its text, and whether its subject can be used.
Finding = tuple[str, str, bool]


@command(reader=RUN, tasks={"Kafka": ("kafka.bootstrap", "kafka.topic")})
def doctor(flags: Values) -> None:
    """Print versions, threads, memory, compiled kernels and extras of this installation.

    With --config, also check each service of a daemon's settings: brokers, login, topic, group,
    schema registry, and the topic for dead letters. No group is joined. The exit code is 1 if a
    part that is there cannot be used; an extra that is not installed is not a fault.
    """
    # Settings are refused before anything is printed.
    settings = flags.read() if flags.config is not None or flags.values else None
    faults = False
    for findings in (_list_installed(), () if settings is None else _ask(settings)):
        for name, text, usable in findings:
            faults |= not usable
            click.echo(f"{name:<18}{text}")
    if faults:
        raise SystemExit(NO)


def _list_installed() -> Iterator[Finding]:
    """Yield each part that is here, and each extra with its packages or a way to install it."""
    yield "streamlda", f"{version('streamlda')}, {platform.platform()}", True
    yield "python", platform.python_version(), True
    for name in ("numpy", "scipy", "numba", "scikit-learn"):
        yield name, version(name), True
    yield "threads", f"{thread_count()} of {os.cpu_count()} processors", True
    allowed = get_memory_limit()
    limit = "no limit" if allowed is None else f"{allowed / MIB:,.0f} MiB allowed"
    yield "memory", limit, True
    folder = cache_folder()
    writable = os.access(folder, os.W_OK)
    state = "" if writable else ", not writable: every process compiles them again"
    kernels = sum(1 for _ in folder.glob("*.o"))
    yield "kernels", f"{kernels} compiled in {folder}{state}", writable
    for extra in sorted(set(metadata("streamlda").get_all("Provides-Extra") or ()) - {"all"}):
        here, lacking = [], []
        for package in list_packages(extra):
            name = package.split(">")[0].split("[")[0]
            try:
                here.append(f"{name} {version(name)}")
            except PackageNotFoundError:
                lacking.append(f"'{package}'")
        install = f"not installed: pip install {' '.join(lacking)}"
        yield f"extra {extra}", install if lacking else ", ".join(here), True


def _ask(settings: RunSettings) -> Iterator[Finding]:
    """Ask all that a daemon connects to, one after the other; yield each with its answer."""
    if get_source_kind(settings) != "kafka":
        yield _try("source", lambda: open_stream(settings).close(), "can be opened")
        return
    for address in str(settings.kafka.bootstrap).split(","):
        yield _reach(address)
    # No member of the group gives up partitions for it.
    kafka = settings.kafka
    alone = replace(kafka, partitions="all") if kafka.partitions == GROUP else kafka
    settings = replace(settings, kafka=alone)
    yield from _read_topic(settings)
    if settings.source.format == "registry":
        answers = f"{settings.registry.url} answers"
        yield _try("registry", lambda: open_stream(settings).close(), answers)
    if (topic := settings.dead_letters.topic) is not None:
        text = f"{topic} can be written"
        yield _try("dead letters", lambda: open_letters(topic, alone).close(), text)


def _reach(address: str) -> Finding:
    """Connect to a broker, and say nothing to it."""
    host, _, port = address.strip().rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), BROKER_SECONDS).close()
    except OSError as error:
        return "broker", f"{address} cannot be reached: {name_reason(error)}", False
    return "broker", f"{address} accepts connections", True


def _read_topic(settings: RunSettings) -> list[Finding]:
    """Log in, and read one record of the topic and the offsets of the group."""
    kafka = settings.kafka
    # A value is counted whatever it holds.
    plain = replace(settings, source=replace(settings.source, format="jsonl"))
    login = "login", f"{kafka.protocol}, {kafka.mechanism or 'without a user'}", True
    try:
        source: Any = open_stream(plain)
        with closing(source):
            # Brokers that are away may be back.
            end = time.monotonic() + BROKER_SECONDS
            while True:
                try:
                    source.poll(1, timeout_seconds=1.0)
                    break
                except SourceAwayError:
                    if time.monotonic() > end:
                        raise
            found: list[Finding] = [login, ("topic", f"{kafka.topic} can be read", True)]
            if kafka.group:
                found.append(_try("group", source.notes, f"offsets of {kafka.group} can be read"))
            return found
    except SourceAwayError as error:
        return [("login", "not known", False), ("topic", str(error), False)]
    except SourceRefusedError as error:
        return [("login", str(error), False), ("topic", "not known", False)]
    except StreamLDAError as error:
        return [login, ("topic", str(error), False)]


def _try(name: str, ask: Callable[[], object], text: str) -> Finding:
    """Ask a service; return its answer, or the fault."""
    try:
        ask()
    except StreamLDAError as error:
        return name, str(error), False
    return name, text, True
