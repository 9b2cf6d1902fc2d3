"""``streamlda site``: what a site does that learns with others and shows them nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from streamlda.cli.options import GroupedCommand, options_of, output_option, read_settings
from streamlda.cli.site_options import SHOWN, config_option, open_round, round_option
from streamlda.cli.site_share import share
from streamlda.run.outputs import check_output
from streamlda.settings.setting import AGREEMENT
from streamlda.settings.table import SETTINGS


@click.group(short_help="Learn with other sites, without showing them documents or sums.")
def site() -> None:
    """Learn private topics together with other sites.

    Each site makes keys (keygen). One of them puts the public halves and the settings into one
    federation config (config). Then, round by round, each site writes a share (share), and anybody
    adds the shares up (streamlda aggregate), which gives the next round and at the end a model. A
    share is masked: it shows nothing until the shares of all sites are added up, and then only
    their sum, under noise. Needs the extra sites: pip install 'streamlda[sites]'.
    """


@site.command(short_help="Make the keys of a site.")
@click.argument("name")
@output_option("Key file to write.")
def keygen(name: str, output: str) -> None:
    """Make keys for the site NAME: FILE, which must stay secret, and FILE.pub for the config."""
    from streamlda.sites.keys import SiteKeys

    public = output + ".pub"
    for path in (output, public):
        check_output(path)
        if Path(path).exists():
            raise click.UsageError(f"keys are never replaced, got path={path!r}; choose another")
    keys = SiteKeys.generate(name)
    keys.save(output)
    keys.public.save(public)
    click.echo(f"secret keys: {output}\nfor the config: {public}", err=True)


def _weights(value: str | None) -> list[float] | None:
    if value is None:
        return None
    try:
        return [float(part) for part in value.split(",")]
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a list of numbers like 0.2,0.3,0.5") from error


#: Settings that sites agree on, and those of them that have no default here.
AGREED = (
    *("topics.count", "topics.alpha_0", "topics.seed", "snapshots.every", "snapshots.most"),
    *("privacy.epsilon", "privacy.delta", "privacy.relation", "privacy.clipping"),
    *("vocabulary.file", "vocabulary.hash_bits", "vocabulary.stop_words"),
    *("vocabulary.token_pattern", "vocabulary.ngrams"),
)
NEEDED = ("privacy.epsilon", "privacy.delta", "snapshots.every")


@site.command("config", cls=GroupedCommand, short_help="Make the federation config of all sites.")
@click.argument("public_keys", metavar="FILE.pub...", nargs=-1, required=True, type=click.Path())
@output_option("Config file to write.")
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
@options_of(AGREEMENT, AGREED)
def make_config(
    public_keys: tuple[str, ...],
    output: str,
    label: str,
    weights: str | None,
    colluders: int,
    **flags: Any,
) -> None:
    """Write the federation config of the sites whose public keys are in FILE.pub...

    It is public, and the same for all. Let every site compare its digest with the others by another
    way than the file itself: whose keys are in it decides who can read what. The records of
    --snapshot-every are those of all sites together; --vocabulary or --hash-bits must be given.
    """
    from streamlda.settings.build import private_settings, public_words
    from streamlda.sites.federation import FederationConfig, Member
    from streamlda.sites.keys import PublicKeys

    check_output(output, public_keys)
    parts = _weights(weights) or [1 / len(public_keys)] * len(public_keys)
    if len(parts) != len(public_keys):
        raise click.UsageError(
            f"every site must have a weight, got weights={len(parts)} sites={len(public_keys)}"
        )
    settings = read_settings(AGREEMENT, flags)
    for name in NEEDED:
        if settings[name] is None:
            raise click.UsageError(f"sites must agree on it: set {SETTINGS[name].flag}")
    words = public_words(settings)
    if words is None:
        raise click.UsageError(
            "words must be public: give one of --vocabulary FILE and --hash-bits BITS"
        )
    members = [
        Member(PublicKeys.load(path), weight)
        for path, weight in zip(public_keys, parts, strict=True)
    ]
    private = private_settings(settings, words.n_features)
    config = FederationConfig(label, tuple(members), private, words, colluders)
    config.save(output)
    against = [config.epsilon_against(c) for c in range(len(members))]
    bounds = ", ".join("nothing" if e is None else f"{e:.3g}" for e in against)
    lines = [
        f"config {config.digest[:SHOWN]} of {len(members)} sites: {output}",
        f"epsilon of a document, if the aggregator is helped by 0, 1, ... other sites: {bounds}",
        config.insider_line,
    ]
    if config.colluders == 0:
        lines.append("To promise --epsilon against other sites too, take --colluders 1 or more.")
    click.echo("\n".join(lines), err=True)


site.add_command(share)


@site.command(short_help="Begin a round again that not all sites could answer.")
@config_option
@round_option
@output_option("Round file to write.")
def redo(config_path: str, round_file: str | None, output: str) -> None:
    """Write a round once more, under new masks, for a site that has lost its share.

    All sites must answer it again, with documents that were in none before: what they have sent for
    the round is paid for, cannot be added up, and shows nothing.
    """
    from streamlda.sites.federation import FederationConfig

    check_output(output, [config_path])
    config = FederationConfig.load(config_path)
    again = open_round(config, round_file).again()
    again.open(config)
    again.save(output)
    click.echo(f"round {again.number}, attempt {again.attempt}: {output}", err=True)
