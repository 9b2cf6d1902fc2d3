"""Options of ``streamlda site`` and ``streamlda aggregate``: config, round, keys and topic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click

from streamlda.cli.options import add_options, read_settings
from streamlda.run.outputs import check_output
from streamlda.settings.run_settings import TABLE

if TYPE_CHECKING:
    from streamlda.sites.exchange import ShareTopic
    from streamlda.sites.rounds import Round

Command = TypeVar("Command", bound=Callable[..., Any])
Message = TypeVar("Message")

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


class MessageTopic:
    """Kafka topic of shares and announcements, if the options name one."""

    def __init__(self, name: str | None, timeout: float | None, flags: dict[str, Any]) -> None:
        self.name, self._timeout, self.flags = name, timeout, flags

    @contextmanager
    def open(self) -> Iterator[ShareTopic | None]:
        """Open the topic, None if none was given; it connects when it is used."""
        if not any((self.name, self._timeout, *self.flags.values())):
            yield None
            return
        from streamlda.run.parts import security
        from streamlda.sites.exchange import SINK
        from streamlda.stream.sink import open_sink

        topic = {"source.kind": "kafka", "kafka.topic": self.name}
        settings = read_settings("site share", self.flags, **topic)
        more: dict[str, Any] = (
            {} if self._timeout is None else {"request_timeout_seconds": self._timeout}
        )
        opened: ShareTopic = open_sink(
            SINK,
            self.name,
            bootstrap_servers=settings.kafka.bootstrap,
            security=security(settings.kafka),
            **more,
        )
        try:
            yield opened
        finally:
            opened.close()

    def read(
        self,
        paths: Sequence[str],
        load: Callable[[str], Message],
        read: Callable[[ShareTopic], list[Message]],
    ) -> list[Message]:
        """Return the messages in files, or in the topic; refuse none or both."""
        with self.open() as source:
            if bool(paths) == (source is not None):
                raise click.UsageError(
                    "messages must come one way: give files, or --kafka-bootstrap and --kafka-topic"
                )
            return [load(path) for path in paths] if source is None else read(source)

    def check_output(self, what: str, output: str | None, taken: Sequence[str | Path]) -> None:
        """Refuse a message that goes nowhere, or to a file that must not be replaced."""
        if output is None and not (self.name or any(self.flags.values())):
            raise click.UsageError(
                f"{what} must go somewhere: give --output FILE, or --kafka-bootstrap and "
                "--kafka-topic"
            )
        if output is not None:
            check_output(output, taken)

    def places(self, output: str | None) -> str:
        """Name the places of a message that was written."""
        return ", ".join(filter(None, [output, self.name and f"topic {self.name}"]))


def topic_options(command: Command) -> Command:
    """Add the options of a topic of messages to a command, which takes it as ``topic``."""

    @wraps(command)
    def invoke(**values: Any) -> Any:
        flags = {name: values.pop(name) for name in list(values) if name.startswith("kafka__")}
        topic = MessageTopic(values.pop("topic"), values.pop("timeout"), flags)
        return command(topic=topic, **values)

    decorated: Any = invoke
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
        decorated = decorate(decorated)
    return cast("Command", decorated)
