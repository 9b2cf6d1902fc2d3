"""``streamlda aggregate``: add up the shares of all sites."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from streamlda.cli.options import SettingsCommand, output_option, quiet_option
from streamlda.cli.running import format_reasons, list_earlier_models, say, show_warnings, warn
from streamlda.cli.site_options import (
    SHOWN,
    config_option,
    round_option,
    save_round,
    share_topic,
    topic_options,
)
from streamlda.run.outputs import check_output

if TYPE_CHECKING:
    from streamlda.sites.exchange import ShareTopic
    from streamlda.sites.federation import FederationConfig
    from streamlda.sites.rounds import Round
    from streamlda.sites.share import Share


@click.command(cls=SettingsCommand, short_help="Add up the shares of all sites.")
@click.argument("shares", metavar="[SHARE...]", nargs=-1, type=click.Path())
@config_option
@round_option
@click.option(
    "--next-round",
    required=True,
    type=click.Path(),
    help="Round file to write, for the next shares of all sites.",
)
@output_option("Model file to write, after the last round.")
@click.option(
    "--key",
    type=click.Path(),
    help="Key file of the aggregator, which signs the next round. [default: the round is unsigned, "
    "to compare only]",
)
@topic_options
@quiet_option
def aggregate(
    shares: tuple[str, ...],
    config_path: str,
    round_file: str,
    next_round: str,
    output: str,
    key: str | None,
    topic: str | None,
    timeout: float | None,
    quiet: bool,
    **flags: Any,
) -> None:
    """Add up the shares SHARE... of all sites of a round, one of each, or those of a Kafka topic.

    Writes the file of the next round, signed with --key, and, after the last one, a model with its
    privacy statement. Everything but the key is public: every site may repeat this without it and
    compare. Sums that no documents can have are refused. A share that is missing, came twice, was
    altered, or is of another site, config, vocabulary or round is refused by name, and nothing is
    written.

    A topic is read from its beginning to its present end. Shares of other rounds are skipped and
    counted; a share that was sent twice counts once. A record without a value withdraws the earlier
    record of its key. Needs the extra kafka (see streamlda doctor).
    """
    from streamlda.model.table import plural
    from streamlda.privacy.ledger.budget_table import plain
    from streamlda.sites.aggregate import aggregate as add_up
    from streamlda.sites.federation import FederationConfig
    from streamlda.sites.rounds import Round
    from streamlda.sites.share import Share
    from streamlda.storage.publishing import Publisher

    inputs = [*shares, config_path, round_file, *filter(None, [key])]
    check_output(next_round, inputs)
    check_output(output, [*inputs, next_round])
    config, this = FederationConfig.load(config_path), Round.load(round_file)
    with share_topic("aggregate", topic, timeout, flags) as source:
        if bool(shares) == (source is not None):
            raise click.UsageError(
                "shares must come one way: give SHARE..., or --kafka-bootstrap and --kafka-topic"
            )
        if source is None:
            loaded = [Share.load(path) for path in shares]
        else:
            loaded = _read_topic(source, f"topic {topic}", config, this, quiet)
    found = add_up(config, this, loaded)
    lines = [f"round {this.number} ({loaded[0].stage}) of {plural(len(loaded), 'site')}"]
    if found.next_round is not None:
        lines.append(f"next {save_round(found.next_round, key, next_round)}")
    if found.model is not None:
        with Publisher(None, output, private=True) as publisher:
            publisher.store(found.model)
        lines += [
            f"{plural(found.model.n_components, 'topic')}, {found.model.privacy['statement']}: "
            f"epsilon {plain(config.settings.epsilon)}, delta {plain(config.settings.delta)} for "
            "each document, against the aggregator and "
            f"{plural(config.colluders, 'colluding site')}; "
            f"config {config.digest[:SHOWN]}",
            *list_earlier_models(output),
            f"model: {output}",
        ]
    for check in found.checks:
        if not check.kept:
            warn(f"{check.rule} by {check.found:.4g}; documents alike by {check.most:.4g} at most")
    if found.missed is not None:
        warn(f"this window is paid for, but gave no model: {found.missed}")
    if found.model is not None:
        show_warnings(found.model)
    say(quiet, *lines)


def _read_topic(
    source: ShareTopic, named: str, config: FederationConfig, this: Round, quiet: bool
) -> list[Share]:
    from streamlda.model.table import plural
    from streamlda.sites.exchange import read_shares

    found = read_shares(source.read(), config, this)
    if skipped := found.skipped:
        of = f"{plural(skipped.total(), 'record')} of other rounds skipped in {named}"
        say(quiet, f"{of}: {format_reasons(skipped)}")
    return found.messages
