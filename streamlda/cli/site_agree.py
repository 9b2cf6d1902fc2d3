"""``streamlda site show``, ``sign``, ``begin`` and ``redo``: consent of sites before a round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from streamlda.cli.options import SettingsCommand, output_option
from streamlda.cli.site_options import (
    alone_option,
    config_option,
    key_option,
    round_option,
    save_round,
    share_topic,
    topic_options,
)
from streamlda.run.outputs import check_output

if TYPE_CHECKING:
    from streamlda.sites.announcement import Announcement

announcement_option = click.option(
    "--output",
    "-o",
    type=click.Path(),
    help="Announcement file to write, for the aggregator. [default: none, with --kafka-topic]",
)


@click.command(short_help="Show what a federation config promises, and to whom.")
@click.argument("config_path", metavar="CONFIG", type=click.Path())
def show(config_path: str) -> None:
    """Show the digest of CONFIG, its sites, weights and keys, and its promise.

    Compare the digest with the other sites by another way than the file; keys have the fingerprints
    that keygen showed. "alone" is what is left of the promise if all other sites collude, or were
    invented by one.
    """
    from streamlda.sites.federation import FederationConfig, describe

    click.echo("\n".join(describe(FederationConfig.load(config_path))))


@click.command(cls=SettingsCommand, short_help="Sign a federation config, as one of its sites.")
@click.argument("config_path", metavar="CONFIG", type=click.Path())
@key_option
@click.option(
    "--expect",
    metavar="DIGEST",
    required=True,
    help="Digest that the config must have, all 64 digits, as the sites have compared it.",
)
@alone_option
@announcement_option
@topic_options
def sign(
    config_path: str,
    key: str,
    expect: str,
    max_epsilon_alone: float,
    output: str | None,
    topic: str | None,
    timeout: float | None,
    **flags: Any,
) -> None:
    """Sign CONFIG with the key of a site: it will answer rounds of this config, and of no other.

    What is promised is shown first. The signature is an announcement: it also names the key that
    masks the site's first share, which lies in KEY.rounds beside the key file until then. Send it
    to the aggregator. A second call writes the same once more.
    """
    from streamlda.sites.announcement import RoundKeys
    from streamlda.sites.federation import (
        FederationConfig,
        check_alone,
        check_expected,
        check_member,
        describe,
    )
    from streamlda.sites.keys import SiteKey

    _check_outputs(output, topic, [config_path, key])
    config, own = FederationConfig.load(config_path), SiteKey.load(key)
    click.echo("\n".join(describe(config)), err=True)
    check_expected(config, expect)
    check_member(config, own)
    check_alone(config, max_epsilon_alone)
    announced = RoundKeys(key).announce(own, config.digest, 1, 1)
    _send(announced, output, topic, timeout, flags)


@click.command(
    cls=SettingsCommand, short_help="Agree to begin a round again that not all sites could answer."
)
@config_option
@round_option
@key_option
@announcement_option
@topic_options
def redo(
    config_path: str,
    round_file: str,
    key: str,
    output: str | None,
    topic: str | None,
    timeout: float | None,
    **flags: Any,
) -> None:
    """Announce this site's key for the next attempt of a round, after a site has lost its share.

    All sites must do so, and answer it with documents that were in none before: what they have sent
    for the round is paid for, cannot be added up, and shows nothing. A round has three attempts.
    """
    from streamlda.sites.announcement import RoundKeys, check_attempt
    from streamlda.sites.federation import FederationConfig, check_member
    from streamlda.sites.keys import SiteKey
    from streamlda.sites.rounds import Round

    _check_outputs(output, topic, [config_path, round_file, key])
    config, this = FederationConfig.load(config_path), Round.load(round_file)
    own = SiteKey.load(key)
    check_member(config, own)
    round_keys = RoundKeys(key)
    round_keys.check_pinned(config.digest)
    this.open(config)
    check_attempt(this.attempt + 1)
    announced = round_keys.announce(own, config.digest, this.number, this.attempt + 1)
    _send(announced, output, topic, timeout, flags)


@click.command(
    cls=SettingsCommand,
    short_help="Make the first round, or a round again, of what all sites announced.",
)
@click.argument("announcements", metavar="[ANNOUNCEMENT...]", nargs=-1, type=click.Path())
@config_option
@click.option(
    "--round",
    "round_file",
    type=click.Path(),
    help="Round to begin again. [default: the first round is begun]",
)
@click.option("--key", required=True, type=click.Path(), help="Key file of the aggregator.")
@output_option("Round file to write.")
@topic_options
def begin(
    announcements: tuple[str, ...],
    config_path: str,
    round_file: str | None,
    key: str,
    output: str,
    topic: str | None,
    timeout: float | None,
    **flags: Any,
) -> None:
    """Write the first round of a config that all its sites have signed, or a round once more.

    Give one ANNOUNCEMENT of each site (streamlda site sign, streamlda site redo), or the Kafka
    topic that they lie in.
    """
    from streamlda.sites.announcement import Announcement, digest_occasion
    from streamlda.sites.exchange import read_announcements
    from streamlda.sites.federation import FederationConfig
    from streamlda.sites.rounds import Round

    check_output(output, [*announcements, config_path, key, *filter(None, [round_file])])
    config = FederationConfig.load(config_path)
    before = None if round_file is None else Round.load(round_file)
    if before is not None:
        before.open(config)
    with share_topic("aggregate", topic, timeout, flags) as source:
        if bool(announcements) == (source is not None):
            raise click.UsageError(
                "announcements must come one way: give ANNOUNCEMENT..., or --kafka-bootstrap and "
                "--kafka-topic"
            )
        if source is None:
            found = [Announcement.load(path) for path in announcements]
        else:
            number, attempt = (1, 1) if before is None else (before.number, before.attempt + 1)
            wanted = digest_occasion(config.digest, number, attempt)
            found = read_announcements(source.read(), config, wanted).messages
    this = Round.first(config, found) if before is None else before.repeat(config, found)
    click.echo(save_round(this, key, output), err=True)


def _check_outputs(output: str | None, topic: str | None, taken: list[str]) -> None:
    if output is None and topic is None:
        raise click.UsageError(
            "an announcement must go somewhere: give --output FILE, or --kafka-bootstrap and "
            "--kafka-topic"
        )
    if output is not None:
        check_output(output, taken)


def _send(
    announced: Announcement,
    output: str | None,
    topic: str | None,
    timeout: float | None,
    flags: dict[str, Any],
) -> None:
    from streamlda.sites.exchange import publish_announcement

    if output is not None:
        announced.save(output)
    with share_topic("site share", topic, timeout, flags) as to:
        if to is not None:
            publish_announcement(to, announced)
    lies = ", ".join([*([output] if output else []), *([f"topic {topic}"] if topic else [])])
    of = f"site {announced.site}, round {announced.round}.{announced.attempt}"
    click.echo(f"announcement of {of}: {lies}", err=True)
