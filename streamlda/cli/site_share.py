"""``streamlda site share``: a site's part of a round, to a file or a topic."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamlda.run.parts import stream_name
from streamlda.cli.share_topic import kafka_options, share_topic, take_options
from streamlda.cli.site_options import SHOWN, config_option, open_round, round_option
from streamlda.cli.sources import check_output, open_sources, source_options, warn

if TYPE_CHECKING:
    from streamlda.sites.rounds import Round
    from streamlda.sites.site import Site


@click.command(short_help="Write this site's share of a round.")
@source_options
@config_option
@round_option
@click.option("--key", required=True, type=click.Path(), help="Key file of this site.")
@click.option(
    "--ledger",
    required=True,
    type=click.Path(),
    help="File that remembers what was spent on this site's documents, made if there is none; "
    "shares are kept in FILE.shares.",
)
@click.option(
    "--stream",
    metavar="NAME",
    help="Name of the stream in the ledger, in which places are counted; the same documents must "
    "always have the same name. [default: the SOURCEs as absolute paths]",
)
@click.option(
    "--output",
    "-o",
    type=click.Path(),
    help="Share file to write. [default: none, with --kafka-topic]",
)
@kafka_options
@click.option("--quiet", "-q", is_flag=True, help="No progress and no summary, only warnings.")
def share(
    sources: tuple[str, ...],
    file_format: str,
    text_field: str,
    compression: str,
    max_documents: int | None,
    config_path: str,
    round_file: str | None,
    key: str,
    ledger: str,
    stream: str | None,
    output: str | None,
    quiet: bool,
    **kafka: Any,
) -> None:
    """Sum the next documents of SOURCE... for a round, and write this site's share of it.

    Each round takes documents that were in none before: give the same SOURCE... again, and reading
    goes on behind what the ledger has. The price is in the ledger before noise is drawn. A second
    call for the same round writes the same share again. If there are too few documents, nothing is
    spent or written. The rounds of a key are remembered in KEY.used too: never copy a key, and
    never bring back an old copy of it.

    The share goes to a file, to a Kafka topic, or to both; to the topic needs the extra kafka: pip
    install 'streamlda[kafka]'. It is said to be there once the brokers have it on all replicas in
    sync. If they fail, call again: the share is kept, and is not paid for twice.
    """
    from streamlda.privacy.ledger import Ledger
    from streamlda.sites.answered import AnsweredRounds
    from streamlda.sites.exchange import publish_share
    from streamlda.sites.federation import FederationConfig
    from streamlda.sites.keys import SiteKeys
    from streamlda.sites.share import Share
    from streamlda.sites.site import Site

    topic_options = take_options(kafka)
    if output is None and topic_options is None:
        raise click.UsageError(
            "a share must go somewhere: give --output FILE, or --kafka-bootstrap and --kafka-topic"
        )
    outputs = [] if output is None else [output]
    for path in outputs:
        check_output(path, [*sources, config_path, key, *([round_file] if round_file else [])])
    check_output(ledger, [*sources, *outputs])
    if output is not None and Path(ledger).resolve() == Path(output).resolve():
        raise click.UsageError("--ledger and --output must be two files")
    config, keys = FederationConfig.load(config_path), SiteKeys.load(key)
    this = open_round(config, round_file)
    with ExitStack() as opened:
        topic = None
        if topic_options is not None:
            topic = opened.enter_context(share_topic(topic_options))
            # Now, and not when the documents are summed and paid for.
            topic.connect()
        spent = opened.enter_context(Ledger.open(ledger, config.ledger_terms(), create=True))
        ended = spent.recover()
        if ended is not None:
            warn(f"release {ended.intent.number} was cut short before: {ended.outcome}, and paid")
        named = stream or stream_name(sources)
        at_work = Site(config, keys, spent, named, answered=AnsweredRounds(key))
        stored = at_work.stored(this)
        if stored is None:
            reading = (sources, file_format, text_field, compression)
            stored = _make_share(at_work, this, reading, max_documents, quiet)
        found = Share.load(stored)
        if output is not None:
            found.save(output)
        if topic is not None:
            publish_share(topic, stored)
    if not quiet:
        slots = [*outputs, *([f"topic {topic_options['topic']}"] if topic_options else [])]
        lines = [
            f"share of site {found.site} of round {found.round} ({found.stage}): "
            + ", ".join(slots),
            f"config {config.digest[:SHOWN]}; spent: streamlda budget {ledger}",
        ]
        click.echo("\n".join(lines), err=True)


def _make_share(
    at_work: Site,
    this: Round,
    reading: tuple[tuple[str, ...], str, str, str],
    max_documents: int | None,
    quiet: bool,
) -> Path:
    from streamlda.stream.ingest import Ingestion

    accumulator = at_work.begin(this)
    wanted = accumulator.last if max_documents is None else min(accumulator.last, max_documents)
    source = open_sources(*reading)
    try:
        with PlacesProgress(source, quiet) as progress:
            ingested = Ingestion(
                source,
                at_work.config.vocabulary,
                lambda words: accumulator,
                max_documents=wanted,
                on_progress=progress.show,
                blanks=True,
            ).run()
    finally:
        source.close()
    if ingested.failure is not None:
        raise ingested.failure
    return at_work.publish(accumulator)
