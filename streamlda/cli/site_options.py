"""Options of ``streamlda site`` and ``streamlda aggregate``: the config, the round, the topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import click

from streamlda.cli.options import add_options, read_settings
from streamlda.settings.run_settings import TABLE

if TYPE_CHECKING:
    from streamlda.sites.exchange import ShareTopic
    from streamlda.sites.rounds import Round

Command = TypeVar("Command", bound=Callable[..., Any])

#: Digits of a digest that the terminal shows: enough to compare by telephone.
SHOWN = 32

#: Settings of a connection to Kafka.
CONNECTION = tuple(
    setting.name
    for setting in TABLE
    if setting.section == "kafka" and setting.key not in ("topic", "partitions", "start", "group")
)

config_option = click.option(
    "--config",
    "config_path",
    required=True,
    type=click.Path(),
    help="Federation config, the same file for all.",
)
round_option = click.option(
    "--round",
    "round_file",
    required=True,
    type=click.Path(),
    help="File of the round, from streamlda site begin or streamlda aggregate.",
)
key_option = click.option("--key", required=True, type=click.Path(), help="Key file of this site.")
alone_option = click.option(
    "--max-epsilon-alone",
    type=click.FloatRange(min=0, min_open=True),
    default=3.0,
    show_default=True,
    metavar="EPSILON",
    help="Refuse a config under which a document of this site has more than this epsilon, at a "
    "delta of 1e-5 at most, if all other sites collude or are invented; inf: trust them.",
)


def save_round(this: Round, key: str | None, path: str) -> str:
    """Sign a round with the key of the aggregator, if given, write it, and say so."""
    from streamlda.sites.keys import SiteKey

    of = f"{this.number}.{this.attempt} ({this.stage})"
    if key is None:
        this.save(path)
        of += ", unsigned"
    else:
        this.sign(SiteKey.load(key)).save(path)
    return f"round {of}: {path}, digest {this.digest[:SHOWN]}"


def topic_options(command: Command) -> Command:
    """Add the options of a topic of shares to a command: ``topic``, ``timeout``, ``kafka__...``."""
    for decorate in (
        click.option(
            "--kafka-timeout",
            "timeout",
            type=click.FloatRange(min=0, max=86_400, min_open=True),
            metavar="SECONDS",
            help="Longest wait for the brokers: to connect, and for each message. [default: 60]",
        ),
        add_options("site share", CONNECTION, {"Kafka": ("kafka.bootstrap",)}),
        click.option(
            "--kafka-topic",
            "topic",
            metavar="TEXT",
            help="Topic of shares and announcements. [default: they are files]",
        ),
    ):
        command = decorate(command)
    return command


@contextmanager
def share_topic(
    command: str, topic: str | None, timeout: float | None, flags: dict[str, Any]
) -> Iterator[ShareTopic | None]:
    """Open the topic of `topic_options`, None if none was given; it connects when it is used."""
    if not any((topic, timeout, *flags.values())):
        yield None
        return
    from streamlda.run.parts import security
    from streamlda.sites.exchange import SINK
    from streamlda.stream.sink import open_sink

    settings = read_settings(command, flags, **{"source.kind": "kafka", "kafka.topic": topic})
    more = {} if timeout is None else {"request_timeout_seconds": timeout}
    opened: ShareTopic = open_sink(
        SINK, topic, bootstrap_servers=settings.kafka.bootstrap, security=security(settings), **more
    )
    try:
        yield opened
    finally:
        opened.close()
