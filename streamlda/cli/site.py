"""``streamlda site``: commands of a site that learns with others and shows them nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamlda.cli.options import SettingsCommand, add_options, output_option, read_settings
from streamlda.cli.site_options import (
    MessageTopic,
    alone_option,
    config_option,
    key_option,
    round_option,
    save_round,
    topic_options,
)
from streamlda.cli.site_rounds import share
from streamlda.run.outputs import check_output
from streamlda.settings.run_settings import SETTINGS, RunSettings
from streamlda.settings.setting import AGREEMENT

if TYPE_CHECKING:
    from streamlda.private.settings import PrivateSettings
    from streamlda.sites.announcement import Announcement
    from streamlda.text.vocabulary import Vocabulary


@click.group(short_help="Learn with other sites, without showing them documents or sums.")
def site() -> None:
    """Learn private topics together with other sites.

    Each site, and the aggregator, makes a key (keygen). One of them puts the public halves and the
    settings into one federation config (config). Each site looks at it (show), compares its digest
    with the others, and signs it (sign); the aggregator makes the first round of the signatures
    (begin). Then, round by round, each site writes a share (share), and the aggregator adds the
    shares up (streamlda aggregate), which gives the next round and at the end a model. A share is
    masked: it shows nothing until the shares of all sites are added up, and then only their sum,
    under noise. Needs the extra sites (see streamlda doctor).
    """


@site.command(short_help="Make the key of a site, or of the aggregator.")
@click.argument("name")
@output_option("Key file to write.")
def keygen(name: str, output: str) -> None:
    """Make a key for the site NAME: FILE, which must stay secret, and FILE.pub for the config."""
    from streamlda.sites.keys import SiteKey

    public = output + ".pub"
    for path in (output, public):
        check_output(path)
        if Path(path).exists():
            raise click.UsageError(f"keys are never replaced, got path={path!r}; choose another")
    key = SiteKey.generate(name)
    key.save(output)
    key.public.save(public)
    lines = f"secret key: {output}", f"for the config: {public}, {key.public.fingerprint}"
    click.echo("\n".join(lines), err=True)


def _weights(value: str | None) -> list[float] | None:
    if value is None:
        return None
    try:
        return [float(part) for part in value.split(",")]
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a list of numbers like 0.2,0.3,0.5") from error


#: Flags, settings that sites agree on, and those of them that have no default here.
TASKS = {
    "Topics": ("topics.count", "topics.seed", "vocabulary.file", "vocabulary.hash_bits"),
    "Windows": ("snapshots.every", "snapshots.most"),
    "Privacy": ("privacy.epsilon", "privacy.delta"),
}
AGREED = (
    *("topics.count", "topics.alpha_0", "topics.seed", "snapshots.every", "snapshots.most"),
    *("privacy.epsilon", "privacy.delta", "privacy.relation", "privacy.clipping"),
    *("vocabulary.file", "vocabulary.hash_bits", "vocabulary.stop_words"),
    *("vocabulary.token_pattern", "vocabulary.ngrams"),
)
NEEDED = ("privacy.epsilon", "privacy.delta", "snapshots.every")


@site.command("config", cls=SettingsCommand, short_help="Make the federation config of all sites.")
@click.argument("public_keys", metavar="FILE.pub...", nargs=-1, required=True, type=click.Path())
@output_option("Config file to write.")
@click.option(
    "--aggregator",
    "aggregator_file",
    metavar="FILE.pub",
    required=True,
    type=click.Path(),
    help="Public key of the aggregator, who adds up the shares and signs the rounds; it may be "
    "that of a site.",
)
@click.option(
    "--label", default="", help="Name of what is learned; goes into all masks. [default: none]"
)
@click.option(
    "--weights",
    metavar="W,W,...",
    help="Fraction of the record slots that each site fills, in the order of the files; they sum "
    "to 1. [default: equal]",
)
@click.option(
    "--colluders",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Sites that may help the aggregator without weakening the promise to the others; more "
    "noise is needed for each. Every site sees all sums and knows its own noise: 0 promises "
    "--epsilon against outsiders only, 1 against the other sites too.",
)
@add_options(AGREEMENT, AGREED, TASKS, required=NEEDED)
def make_config(
    public_keys: tuple[str, ...],
    output: str,
    aggregator_file: str,
    label: str,
    weights: str | None,
    colluders: int,
    **flags: Any,
) -> None:
    """Write the federation config of the sites whose public keys are in FILE.pub...

    It is public, and the same for all. Every site looks at it (streamlda site show), compares its
    digest with the others by another way than the file itself, and signs it (streamlda site sign):
    whose keys are in it decides who can read what. The records of --snapshot-every are those of all
    sites together, and --snapshots counts windows. Give --vocabulary or --hash-bits.
    """
    from streamlda.model.table import plural
    from streamlda.sites.federation import FederationConfig, Member, describe
    from streamlda.sites.keys import PublicKey

    check_output(output, [*public_keys, aggregator_file])
    parts = _weights(weights) or [1 / len(public_keys)] * len(public_keys)
    if len(parts) != len(public_keys):
        raise click.UsageError(
            f"every site must have a weight, got weights={len(parts)} sites={len(public_keys)}"
        )
    settings = read_settings(AGREEMENT, flags)
    for name in NEEDED:
        if settings[name] is None:
            raise click.UsageError(f"sites must agree on all terms: set {SETTINGS[name].flag}")
    agreed, words = _agree(settings)
    members = [
        Member(PublicKey.load(path), weight)
        for path, weight in zip(public_keys, parts, strict=True)
    ]
    aggregator = PublicKey.load(aggregator_file)
    config = FederationConfig(label, tuple(members), aggregator, agreed, words, colluders)
    config.save(output)
    lines = [
        f"config of {plural(len(members), 'site')}: {output}",
        *describe(config),
        config.insider_line,
    ]
    if config.colluders == 0:
        lines.append("To promise --epsilon against other sites too, take --colluders 1 or more.")
    click.echo("\n".join(lines), err=True)


def _agree(settings: RunSettings) -> tuple[PrivateSettings, Vocabulary]:
    """Return the settings and the words that sites agree on."""
    from streamlda.private.settings import MOMENTS
    from streamlda.settings.build import private_settings, public_words

    words = public_words(settings)
    if words is None:
        raise click.UsageError(
            "words must be public: give one of --vocabulary FILE and --hash-bits BITS"
        )
    # Rounds between sites have no stages of common words.
    return replace(private_settings(settings, words.n_features), start=MOMENTS), words


announcement_option = click.option(
    "--output",
    "-o",
    type=click.Path(),
    help="Announcement file to write, for the aggregator. [default: none, with --kafka-topic]",
)


@site.command(short_help="Show what a federation config promises, and to whom.")
@click.argument("config_path", metavar="CONFIG", type=click.Path())
def show(config_path: str) -> None:
    """Show the digest of CONFIG, its sites, weights and keys, and its promise.

    Compare the digest with the other sites by another way than the file; keys have the fingerprints
    that keygen showed. "alone" is what is left of the promise if all other sites collude, or were
    invented by one.
    """
    from streamlda.sites.federation import FederationConfig, describe

    click.echo("\n".join(describe(FederationConfig.load(config_path))))


@site.command(cls=SettingsCommand, short_help="Sign a federation config, as one of its sites.")
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
    topic: MessageTopic,
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

    topic.check_output("an announcement", output, [config_path, key])
    config, own = FederationConfig.load(config_path), SiteKey.load(key)
    click.echo("\n".join(describe(config)), err=True)
    check_expected(config, expect)
    check_member(config, own)
    check_alone(config, max_epsilon_alone)
    announced = RoundKeys(key).announce(own, config.digest, 1, 1)
    _send(announced, output, topic)


@site.command(
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
    topic: MessageTopic,
) -> None:
    """Announce this site's key for the next attempt of a round, after a site has lost its share.

    All sites must do so, and answer it with documents that were in none before: what they have sent
    for the round is paid for, cannot be added up, and shows nothing. A round has three attempts.
    """
    from streamlda.sites.announcement import RoundKeys, check_attempt
    from streamlda.sites.federation import FederationConfig, check_member
    from streamlda.sites.keys import SiteKey
    from streamlda.sites.rounds import Round

    topic.check_output("an announcement", output, [config_path, round_file, key])
    config, this = FederationConfig.load(config_path), Round.load(round_file)
    own = SiteKey.load(key)
    check_member(config, own)
    round_keys = RoundKeys(key)
    round_keys.check_pinned(config.digest)
    this.open(config)
    check_attempt(this.attempt + 1)
    announced = round_keys.announce(own, config.digest, this.number, this.attempt + 1)
    _send(announced, output, topic)


@site.command(
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
    topic: MessageTopic,
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
    number, attempt = (1, 1) if before is None else (before.number, before.attempt + 1)
    wanted = digest_occasion(config.digest, number, attempt)
    found = topic.read(
        announcements,
        Announcement.load,
        lambda source: read_announcements(source.read(), config, wanted).messages,
    )
    this = Round.first(config, found) if before is None else before.repeat(config, found)
    click.echo(save_round(this, key, output), err=True)


def _send(announced: Announcement, output: str | None, topic: MessageTopic) -> None:
    from streamlda.sites.exchange import publish_announcement

    if output is not None:
        announced.save(output)
    with topic.open() as to:
        if to is not None:
            publish_announcement(to, announced)
    of = f"site {announced.site}, round {announced.round}.{announced.attempt}"
    click.echo(f"announcement of {of}: {topic.places(output)}", err=True)


site.add_command(share)
