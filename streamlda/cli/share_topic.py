"""What ``streamlda site share`` and ``streamlda aggregate`` share: a topic in place of files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from streamlda.settings.table import SETTINGS, Setting

if TYPE_CHECKING:
    from streamlda.sites.exchange import ShareTopic

Command = TypeVar("Command", bound=Callable[..., Any])

#: Of the settings of ``streamlda run``: how to connect.
SECURITY = ("protocol", "mechanism", "username", "ca_file", "certificate_file", "key_file")
SECRETS = ("password", "key_password")
ROWS = (*SECURITY[:3], "password", *SECURITY[3:], "key_password")

PREFIX = "kafka_"


def kafka_options(command: Command) -> Command:
    """Add the options of a topic to a command; they come as ``kafka_...``."""
    rows = [SETTINGS[f"kafka.{name}"] for name in ROWS]
    for decorate in reversed(
        (
            click.option(
                "--kafka-bootstrap",
                metavar="HOST:PORT,...",
                help="Brokers of the topic of shares. [default: shares are files]",
            ),
            click.option(
                "--kafka-topic", metavar="NAME", help="Topic of shares. [default: shares are files]"
            ),
            *map(_option, rows),
            click.option(
                "--kafka-timeout",
                type=click.FloatRange(min=0, max=86_400, min_open=True),
                metavar="SECONDS",
                help="Longest wait for the brokers: to connect, and for each share. [default: 60]",
            ),
        )
    ):
        command = decorate(command)
    return command


def _option(row: Setting) -> Callable[[Command], Command]:
    name = PREFIX + row.key
    if row.kind == "secret":
        shown = f"{row.help} [default: from {row.variable}, if that is set]"
        return click.option(f"{row.flag}-file", f"{name}_file", metavar="FILE", help=shown)
    kind = click.Choice(row.choices) if row.choices else None
    default = "none" if row.default is None else row.default
    shown = f"{row.help} [default: {default}]"
    return click.option(row.flag, name, type=kind, metavar=None if kind else "TEXT", help=shown)


def take_options(options: dict[str, Any]) -> dict[str, Any] | None:
    """Return what was given of `kafka_options`, less the prefix, or None if nothing was."""
    given = {
        name.removeprefix(PREFIX): value
        for name, value in options.items()
        if name.startswith(PREFIX) and value is not None
    }
    if not given:
        return None
    if not given.get("bootstrap") or not given.get("topic"):
        raise click.UsageError(
            "--kafka-bootstrap and --kafka-topic must both be given for shares in a topic"
        )
    return given


@contextmanager
def share_topic(given: dict[str, Any]) -> Iterator[ShareTopic]:
    """Open the topic that `take_options` has found; it connects when it is used."""
    from streamlda.sites.exchange import SINK
    from streamlda.stream.sink import open_sink

    names = (*SECURITY, *(f"{name}_file" for name in SECRETS))
    security = {name: given[name] for name in names if name in given}
    # A variable that stays set must not be in the way of a connection that has no use for it.
    wanted = {
        "password": given.get("protocol", "").startswith("SASL"),
        "key_password": "key_file" in given,
    }
    for name in SECRETS:
        variable = SETTINGS[f"kafka.{name}"].variable
        if wanted[name] and f"{name}_file" not in security and os.environ.get(variable):
            security[f"{name}_env"] = variable
    more = {"request_timeout_seconds": given["timeout"]} if "timeout" in given else {}
    topic: ShareTopic = open_sink(
        SINK, given["topic"], bootstrap_servers=given["bootstrap"], security=security, **more
    )
    try:
        yield topic
    finally:
        topic.close()
