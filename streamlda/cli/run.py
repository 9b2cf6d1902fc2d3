"""``streamlda run``: the daemon."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import click

from streamlda.cli import options
from streamlda.cli.options import command, flag
from streamlda.errors import InvalidSettingError
from streamlda.settings.load import load_http_settings
from streamlda.settings.setting import RUN
from streamlda.settings.table import SETTINGS
from streamlda.utils.exit_codes import CONFIGURATION, DATA, exit_code

if TYPE_CHECKING:
    from streamlda.settings.table import RunSettings

TASKS = {
    "Stream": ("kafka.bootstrap", "kafka.topic", "kafka.group", "source.text_field"),
    "Topics": ("topics.count", "snapshots.every"),
    "Output": ("output.file", "output.folder", "checkpoint.folder", "http.port"),
    "Privacy": ("privacy.epsilon", "privacy.delta", "privacy.ledger"),
}

DETAILS = """
On SIGTERM or SIGINT the daemon finishes its batch, writes a checkpoint and ends within 10 seconds
with exit code 0; a second signal ends it at once. streamlda --help has the other exit codes. The
daemon waits for a source that is away. After a kill it continues from its last checkpoint.
"""


@command(reader=RUN, tasks=TASKS, epilog=DETAILS)
def run(
    check: Annotated[
        bool, flag("--check", "Only check the settings, and say what memory they take.")
    ],
    flags: options.Values,
) -> None:
    """Learn topics from a Kafka topic or SOURCE..., for as long as records come.

    A SOURCE is read once, or with --set source.kind=follow as it grows or fills. A flag goes before
    a variable STREAMLDA_SECTION_KEY, and that before the file of --config, where section.key is a
    key of the table [section]. Secrets come only from files or variables.

    Example: streamlda run --kafka-bootstrap localhost:9092 --kafka-topic documents --topics 20
    """
    try:
        settings = flags.read()
    except InvalidSettingError as error:
        if check or os.environ.get(SETTINGS["breaker.then"].variable) != "wait":
            raise
        from streamlda.service.logs import start_logging
        from streamlda.service.running import wait_for_signal

        start_logging(os.environ.get(SETTINGS["log.format"].variable, "console"), "info")
        wait_for_signal(CONFIGURATION, str(error), load_http_settings(os.environ))
    if check:
        from streamlda.service.running import check as check_settings

        click.echo(f"the settings are right; it takes {check_settings(settings)}")
    else:
        from streamlda.service.running import run as run_daemon

        serve(settings, run_daemon)


def serve(settings: RunSettings, work: Callable[[RunSettings], int]) -> None:
    """Do the work of a service, and leave; where no restart would help, wait if that is asked."""
    from streamlda.service.logs import log_failure, start_logging
    from streamlda.service.running import wait_for_signal
    from streamlda.service.signals import leave

    start_logging(settings.log.format, settings.log.level)
    waits = settings.breaker.then == "wait"
    try:
        code = work(settings)
        reason = f"ended with exit code {code}; the log says why"
    except Exception as error:
        code, reason = exit_code(error), str(error)
        if code not in (CONFIGURATION, DATA):
            # A traceback of Python's own could quote a document.
            log_failure("not-started" if isinstance(error, OSError) else "crash", error)
        elif not waits:
            raise
    if waits and code in (CONFIGURATION, DATA):
        wait_for_signal(code, reason, settings)
    leave(code)
