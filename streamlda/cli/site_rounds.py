"""``streamlda site share`` and ``streamlda aggregate``: the rounds of sites."""

from __future__ import annotations

from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamlda.cli.options import (
    SettingsCommand,
    add_options,
    output_option,
    quiet_option,
    read_settings,
)
from streamlda.cli.shared import (
    Progress,
    format_reasons,
    list_earlier_models,
    say,
    show_warnings,
    warn,
)
from streamlda.cli.site_options import (
    SHOWN,
    MessageTopic,
    alone_option,
    config_option,
    key_option,
    round_option,
    save_round,
    topic_options,
)
from streamlda.run.outputs import check_output

if TYPE_CHECKING:
    from streamlda.run.census import Census
    from streamlda.settings.run_settings import RunSettings
    from streamlda.sites.exchange import ShareTopic
    from streamlda.sites.federation import FederationConfig
    from streamlda.sites.rounds import Round
    from streamlda.sites.share import Share
    from streamlda.sites.site import ShareAccumulator, Site

COMMAND = "site share"

#: Settings of how records are read.
READING = tuple(
    f"source.{key}"
    for key in ("files", "format", "text_field", "delimiter", "compression", "max_record", "stream")
)


DETAILS = """
What is promised is shown before a document is read. The key that masks the share lies in KEY.rounds
since it was announced, and is destroyed now. The share announces the key of the next round.

Records of a Kafka topic are waited for, until each partition has its part.

The share goes to a file, to a Kafka topic, or to both; the topic needs the extra
kafka (see streamlda doctor). Success is reported once the brokers have the share on all
replicas in sync. If they fail, call again: the share is kept, and is not paid for twice.
"""


@click.command(
    cls=SettingsCommand, epilog=DETAILS, short_help="Write this site's share of a round."
)
@add_options(COMMAND, READING, {"Documents": ("source.format", "source.text_field")})
@config_option
@round_option
@key_option
@click.option(
    "--ledger",
    required=True,
    type=click.Path(),
    help="File that remembers what was spent on this site's documents, made if there is none; "
    "shares are kept in FILE.shares.",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(),
    help="Share file to write. [default: none, with --kafka-topic]",
)
@click.option(
    "--expect",
    metavar="DIGEST",
    help="Digest that the config must have. [default: one that this key has signed]",
)
@alone_option
@topic_options
@click.option(
    "--records-topic",
    metavar="TEXT",
    help="Kafka topic to read in place of SOURCE..., by the same brokers as --kafka-topic: of its "
    "partitions this site's share i/n, as the i-th of the n sites of the config. [default: none]",
)
@quiet_option
def share(
    config_path: str,
    round_file: str,
    key: str,
    ledger: str,
    output: str | None,
    expect: str | None,
    max_epsilon_alone: float,
    topic: MessageTopic,
    records_topic: str | None,
    quiet: bool,
    **flags: Any,
) -> None:
    """Sum the next documents of SOURCE... for a round, and write this site's share of it.

    Each round takes documents that were in none before: give the same SOURCE... again, and reading
    goes on after what the ledger has. The price is in the ledger before noise is drawn. A second
    call for the same round writes the same share again. If there are too few documents, nothing is
    spent or written. Never copy the folder KEY.rounds, and never bring back an old copy of it.
    """
    from streamlda.checks import require
    from streamlda.errors import LedgerError
    from streamlda.privacy.ledger import Ledger
    from streamlda.privacy.ledger.file import beside
    from streamlda.run.parts import name_stream
    from streamlda.sites.announcement import RoundKeys
    from streamlda.sites.exchange import publish_share
    from streamlda.sites.federation import FederationConfig, check_expected, describe
    from streamlda.sites.keys import SiteKey
    from streamlda.sites.rounds import Round
    from streamlda.sites.share import Share
    from streamlda.sites.site import SHARES, Site, check_allowed

    if records_topic is None:
        settings = read_settings(COMMAND, flags)
    else:
        settings = _read_partitions(records_topic, config_path, key, flags | topic.flags)
        if topic.name is None:
            topic.flags = {}
    with ExitStack() as opened:
        to = opened.enter_context(topic.open())
        taken = [*settings.source.files, config_path, key, round_file]
        check_output(ledger, taken, is_ledger=True)
        topic.check_output("a share", output, [*taken, ledger, *beside(Path(ledger))])
        config, own = FederationConfig.load(config_path), SiteKey.load(key)
        say(quiet, *describe(config))
        if expect is not None:
            check_expected(config, expect)
        round_keys, this = RoundKeys(key), Round.load(round_file)
        # Before a ledger is made.
        check_allowed(config, own, round_keys, max_epsilon_alone)
        this.open(config)
        if to is not None:
            # Now, and not when the documents are summed and paid for.
            to.connect()
        paid_from = round_keys.ledger(config.digest)
        require(
            paid_from is None or Path(ledger).exists(),
            "a site must keep to one ledger, and its earlier shares were paid from another ledger",
            ledger=ledger,
            ledger_id=paid_from,
            remedy="give the path of that one: it knows which documents earlier rounds used",
            error=LedgerError,
        )
        terms = config.ledger_terms
        spent = opened.enter_context(Ledger.open(ledger, terms, create=True, artifacts=SHARES))
        ended = spent.recover()
        if ended is not None:
            warn(
                f"release {ended.intent.number} was interrupted earlier: {ended.outcome}, and "
                "stays paid"
            )
        stream = name_stream(settings)
        at_work = Site(config, own, round_keys, spent, stream, max_epsilon_alone=max_epsilon_alone)
        census = None if at_work.find_share(this) else _census(settings, at_work, this)
        stored = at_work.make_share(this, partial(_fill, settings, at_work, census, quiet))
        found = Share.load(stored)
        if output is not None:
            found.save(output)
        if to is not None:
            publish_share(to, stored)
    say(
        quiet,
        f"share of site {found.site} of round {found.round} ({found.stage}): "
        f"{topic.places(output)}",
        f"config {config.digest[:SHOWN]}; to see what is spent: streamlda budget {ledger}",
    )


def _read_partitions(topic: str, config_path: str, key: str, flags: dict[str, Any]) -> RunSettings:
    """Return the settings of a site's partitions of a topic, which no other site of it reads."""
    from streamlda.sites.federation import FederationConfig
    from streamlda.sites.keys import SiteKey

    config, name = FederationConfig.load(config_path), SiteKey.load(key).public.name
    config.member(name)
    if flags["source__files"]:
        raise click.UsageError("SOURCE... and --records-topic must not both be given")
    chosen = f"{config.names.index(name)}/{len(config.names)}"
    source = {"source.kind": "kafka", "kafka.topic": topic, "kafka.partitions": chosen}
    return read_settings(COMMAND, flags, **source)


def _census(settings: RunSettings, at_work: Site, this: Round) -> Census | None:
    """Let a site know its documents by what they are, and refuse too few that are unspent."""
    from streamlda.checks import require
    from streamlda.errors import InsufficientDataError, LedgerError
    from streamlda.run.census import UNSPENT, make_provenance, take_census
    from streamlda.run.private_terms import make_document_test

    ledger = at_work.ledger
    if at_work.stream in ledger.known.unmarked:
        # The name is all that the ledger knows of what was summed.
        return None
    is_document = make_document_test(at_work.config.vocabulary)
    census = take_census(settings, ledger.key, ledger.known, is_document)
    at_work.provenance = make_provenance(settings, ledger, census)
    if census is None:
        return None
    ledger.known.compared.add(at_work.config.digest)
    _, wanted = at_work.get_slots(this)
    require(
        census.slots >= wanted or not census.spent,
        "documents must not be in two shares, and too few of these are new",
        released=census.spent,
        slots=census.slots,
        expected=wanted,
        remedy=UNSPENT,
        error=LedgerError,
    )
    wanted = at_work.count_slots_to_come(this)
    require(
        census.slots >= wanted,
        "a site must have the slots that it has promised for the remaining rounds of a window",
        site=at_work.name,
        slots=census.slots,
        expected=wanted,
        remedy="nothing was spent: bring more documents, or agree on smaller windows or another "
        "weight",
        error=InsufficientDataError,
    )
    census.check_has_document()
    return census


def _fill(
    settings: RunSettings,
    at_work: Site,
    census: Census | None,
    quiet: bool,
    accumulator: ShareAccumulator,
) -> None:
    """Add the records of the source, to its end or to what the share takes."""
    from streamlda.run.fit import POLL_RECORDS, POLL_SECONDS
    from streamlda.run.parts import open_stream
    from streamlda.stream.counts import check_has_document
    from streamlda.stream.pipeline import Pipeline

    pipeline = Pipeline(
        at_work.config.vocabulary,
        lambda words, first: accumulator,
        provenance=at_work.provenance,
    )
    source: Any = open_stream(settings, fixed_order=True)
    if census is not None:
        source = census.unspent(source)
    ended, provenance = False, at_work.provenance
    with closing(source), Progress(quiet, slots=True) as progress:
        if settings.source.kind == "kafka":
            source.begin_behind(at_work.ledger.known.reach)
            if provenance is not None:
                provenance.names = {at: log.name for at, log in source.logs().items()}
        while pipeline.due is not None and not ended:
            n = min(pipeline.due, POLL_RECORDS)
            batch = source.poll(n, POLL_SECONDS)
            batch.check(n)
            pipeline.add(batch)
            progress.show(source, pipeline.counts)
            ended = batch.exhausted
    if provenance is not None and provenance.by_slots:
        check_has_document(pipeline.counts.has_document, pipeline.counts.records)


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
    topic: MessageTopic,
    quiet: bool,
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
    from streamlda.storage.store import Store

    inputs = [*shares, config_path, round_file, *filter(None, [key])]
    check_output(next_round, inputs)
    check_output(output, [*inputs, next_round])
    config, this = FederationConfig.load(config_path), Round.load(round_file)
    loaded = topic.read(
        shares, Share.load, lambda source: _read_shares(source, topic, config, this, quiet)
    )
    found = add_up(config, this, loaded)
    lines = [f"round {this.number} ({loaded[0].stage}) of {plural(len(loaded), 'site')}"]
    if found.next_round is not None:
        lines.append(f"next {save_round(found.next_round, key, next_round)}")
    if found.model is not None:
        with Store.open(file=output, private=True) as store:
            store.publish(found.model)
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


def _read_shares(
    source: ShareTopic, topic: MessageTopic, config: FederationConfig, this: Round, quiet: bool
) -> list[Share]:
    from streamlda.model.table import plural
    from streamlda.sites.exchange import read_shares

    found = read_shares(source.read(), config, this)
    if skipped := found.skipped:
        records = f"{plural(skipped.total(), 'record')} of other rounds skipped"
        say(quiet, f"{records} in topic {topic.name}: {format_reasons(skipped)}")
    return found.messages
