"""``streamlda doctor``: what this installation has, and what it lacks."""

from __future__ import annotations

import os
import platform
from contextlib import closing
from typing import Any

import click

from streamlda.checks import require
from streamlda.cli.options import SettingsCommand, add_options, read_settings
from streamlda.settings.run_settings import RunSettings
from streamlda.settings.setting import RUN
from streamlda.settings.table import MIB
from streamlda.utils.exit_codes import NO

#: How a broker is reached; that of the daemon.
BROKER = (
    *("kafka.bootstrap", "kafka.topic", "kafka.protocol", "kafka.mechanism"),
    *("kafka.username", "kafka.password", "kafka.ca_file", "kafka.certificate_file"),
    *("kafka.key_file", "kafka.key_password"),
)

#: Longest wait for a broker's first answer.
BROKER_SECONDS = 10.0


@click.command(
    cls=SettingsCommand, short_help="Check versions, threads, caches, extras and a broker."
)
@add_options(RUN, BROKER, {"Kafka": ("kafka.bootstrap", "kafka.topic")})
def doctor(**flags: Any) -> None:
    """Print what this installation has: versions, threads, memory, compiled kernels and extras.

    With --kafka-bootstrap and --kafka-topic, also ask the brokers. The exit code is 1 if something
    that was found cannot be used; an extra that is not installed is not a fault, and its line says
    what installs it.
    """
    from importlib.metadata import version

    from streamlda.kernels import cache_folder
    from streamlda.utils.process import allowed_bytes
    from streamlda.utils.threads import thread_count

    settings = _broker(flags) if any(value is not None for value in flags.values()) else None
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
    if settings is not None:
        answer, reached = _ask(settings)
        faults |= not reached
        lines.append(("broker", answer))
    for name, value in lines:
        click.echo(f"{name:<18}{value}")
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


def _broker(flags: dict[str, Any]) -> RunSettings:
    """Return the settings of the broker to ask, or refuse them where something lacks."""
    kafka = read_settings("", flags).kafka
    require(
        kafka.bootstrap and kafka.topic,
        "a broker must be asked for a topic",
        kafka_bootstrap=kafka.bootstrap,
        kafka_topic=kafka.topic,
        remedy="give --kafka-bootstrap and --kafka-topic",
    )
    return read_settings(RUN, flags)


def _ask(settings: RunSettings) -> tuple[str, bool]:
    """Return what the brokers of the topic say, and whether they let it be read."""
    import time

    from streamlda.errors import SourceAwayError, StreamLDAError
    from streamlda.run.parts import open_stream

    end = time.monotonic() + BROKER_SECONDS
    try:
        with closing(open_stream(settings)) as source:
            while True:
                try:
                    source.poll(1, timeout_seconds=1.0)
                except SourceAwayError:
                    if time.monotonic() > end:
                        raise
                else:
                    return f"{settings.kafka.bootstrap} answers, topic {settings.kafka.topic}", True
    except StreamLDAError as error:
        return str(error), False
