"""``streamlda site``: what a site does that learns with others and shows them nothing."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamlda.cli.fit import alpha0, ngram_range
from streamlda.cli.private_fit import PlacesProgress, stream_name
from streamlda.cli.share_topic import kafka_options, share_topic, take_options
from streamlda.cli.sources import check_output, open_sources, source_options, warn
from streamlda.cli.words import public_words

if TYPE_CHECKING:
    from streamlda.sites.roster import Roster
    from streamlda.sites.rounds import Round
    from streamlda.sites.site import Site
    from streamlda.vocabulary import Vocabulary

#: What the terminal shows of a digest: enough to compare by telephone.
SHOWN = 32

roster_option = click.option(
    "--roster", required=True, type=click.Path(), help="Roster file, the same for all."
)
round_option = click.option(
    "--round",
    "round_file",
    type=click.Path(),
    help="File of the round, from streamlda aggregate. [default: the first round]",
)


@click.group(short_help="Learn with other sites, without showing them documents or sums.")
def site() -> None:
    """Learn private topics together with other sites.

    Each site makes keys (keygen). Somebody puts the public halves and the settings into one roster
    file (roster). Then, round by round, each site writes a share (share), and anybody adds the
    shares up (streamlda aggregate), which gives the next round and at the end a model. A share is
    masked: it tells nothing until the shares of all sites are added up, and then only their sum,
    under noise. Needs the extra sites: pip install 'streamlda[sites]'.
    """


@site.command(short_help="Make the keys of a site.")
@click.argument("name")
@click.option("--output", "-o", required=True, type=click.Path(), help="Key file to write.")
def keygen(name: str, output: str) -> None:
    """Make keys for the site NAME: FILE, which must stay secret, and FILE.pub for the roster."""
    from streamlda.sites.keys import SiteKeys

    public = output + ".pub"
    for path in (output, public):
        check_output(path)
        if Path(path).exists():
            raise click.UsageError(f"keys are never replaced, got path={path!r}; choose another")
    keys = SiteKeys.generate(name)
    keys.save(output)
    keys.public.save(public)
    click.echo(f"secret keys: {output}\nfor the roster: {public}", err=True)


def _weights(value: str | None) -> list[float] | None:
    if value is None:
        return None
    try:
        return [float(part) for part in value.split(",")]
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a list of numbers like 0.2,0.3,0.5") from error


@site.command(short_help="Make the roster of all sites.")
@click.argument("public_keys", metavar="FILE.pub...", nargs=-1, required=True, type=click.Path())
@click.option("--output", "-o", required=True, type=click.Path(), help="Roster file to write.")
@click.option(
    "--label", default="", help="Name of what is learned; goes into all masks. [default: none]"
)
@click.option(
    "--weights",
    metavar="W,W,...",
    help="Share of the places that each site fills, in the order of the files; they sum to 1. "
    "[default: equal]",
)
@click.option(
    "--colluders",
    type=click.IntRange(min=0),
    default=0,
    show_default=True,
    help="Sites that may help the aggregator without weakening the promise to the others; more "
    "noise is needed for each.",
)
@click.option("--topics", "-k", type=click.IntRange(min=1), required=True, help="Topics to learn.")
@click.option(
    "--epsilon",
    type=click.FloatRange(min=0, min_open=True),
    required=True,
    help="All that is sent tells at most this much of any document.",
)
@click.option(
    "--delta",
    type=click.FloatRange(min=0, max=1, min_open=True, max_open=True),
    required=True,
    help="Probability that --epsilon leaves open; far below 1 / documents.",
)
@click.option(
    "--snapshot-every",
    type=click.IntRange(min=100),
    metavar="PLACES",
    required=True,
    help="Records of all sites together that a model is learned from.",
)
@click.option("--snapshots", type=click.IntRange(min=1), help="Most models. [default: no limit]")
@click.option(
    "--vocabulary",
    type=click.Path(),
    help="File of the words to use, one a line: public. [default: none; it or --hash-bits must be "
    "given]",
)
@click.option(
    "--hash-bits", type=click.IntRange(1, 22), help="Hash words to 2^BITS columns instead."
)
@click.option(
    "--stop-words",
    default="english",
    show_default=True,
    metavar="english|none|FILE",
    help="Words to leave out: scikit-learn's English list, none, or a file with one a line.",
)
@click.option(
    "--token-pattern",
    help="Regular expression of a word. [default: two or more letters of any script]",
)
@click.option(
    "--ngrams",
    type=ngram_range,
    metavar="N|M..N",
    default="1",
    show_default=True,
    help="Longest run of words that counts as one, or shortest..longest.",
)
@click.option(
    "--relation",
    type=click.Choice(("add-remove", "replace-one")),
    default="add-remove",
    show_default=True,
    help="Neighbouring streams differ by one document more or less, or by another in its place.",
)
@click.option(
    "--clipping",
    type=click.Choice(("quantile", "worst-case")),
    default="quantile",
    show_default=True,
    help="Bounds of a document's share: a private quantile over all sites, or the largest there "
    "can be.",
)
@click.option(
    "--alpha0",
    type=alpha0,
    metavar="NUMBER|auto",
    default="1.0",
    show_default=True,
    help="Sum of the Dirichlet parameters, in pseudo-tokens; auto estimates it.",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**64 - 1),
    default=0,
    show_default=True,
    help="Of the public random map only: the noise has no seed.",
)
def roster(public_keys: tuple[str, ...], output: str, **options: Any) -> None:
    """Write the roster of the sites whose public keys are in FILE.pub...

    The roster is public, and the same for all. Let every site compare its digest with the others by
    another way than the file itself: whose keys are in it decides who can read what.
    """
    from streamlda.release.settings import PrivateSettings
    from streamlda.sites.keys import PublicKeys
    from streamlda.sites.roster import Member, Roster

    check_output(output, public_keys)
    weights = _weights(options["weights"]) or [1 / len(public_keys)] * len(public_keys)
    if len(weights) != len(public_keys):
        raise click.UsageError(
            f"every site must have a weight, got weights={len(weights)} sites={len(public_keys)}"
        )
    words = _words(options)
    settings = PrivateSettings(
        n_components=options["topics"],
        n_features=words.n_features,
        epsilon=options["epsilon"],
        delta=options["delta"],
        documents_per_snapshot=options["snapshot_every"],
        snapshots=options["snapshots"],
        neighboring_relation=options["relation"],
        clipping=options["clipping"],
        alpha_0=options["alpha0"],
        seed=options["seed"],
    )
    members = [
        Member(PublicKeys.load(path), weight)
        for path, weight in zip(public_keys, weights, strict=True)
    ]
    made = Roster(options["label"], tuple(members), settings, words, options["colluders"])
    made.save(output)
    against = [made.epsilon_against(c) for c in range(len(members))]
    told = ", ".join("nothing" if e is None else f"{e:.3g}" for e in against)
    lines = [
        f"roster {made.digest[:SHOWN]} of {len(members)} sites: {output}",
        f"epsilon of a document, if the aggregator is helped by 0, 1, ... other sites: {told}",
    ]
    click.echo("\n".join(lines), err=True)


def _words(options: dict[str, Any]) -> Vocabulary:
    if (options["vocabulary"] is None) == (options["hash_bits"] is None):
        raise click.UsageError(
            "words must be public: give one of --vocabulary FILE and --hash-bits BITS"
        )
    words = public_words(options)
    assert words is not None
    return words


def open_round(made: Roster, round_file: str | None) -> Round:
    """Return the round of a file, or the first one."""
    from streamlda.sites.rounds import Round

    return Round.first(made) if round_file is None else Round.load(round_file)


@site.command(short_help="Write this site's share of a round.")
@source_options
@roster_option
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
    roster: str,
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
    spent or written.

    The share goes to a file, to a Kafka topic, or to both; to the topic needs the extra kafka: pip
    install 'streamlda[kafka]'. It is said to be there once the brokers have it on all replicas in
    sync. If they fail, call again: the share is kept, and is not paid for twice.
    """
    from streamlda.privacy.ledger import Ledger
    from streamlda.sites.exchange import publish_share
    from streamlda.sites.keys import SiteKeys
    from streamlda.sites.roster import Roster
    from streamlda.sites.share import Share
    from streamlda.sites.site import Site

    topic_options = take_options(kafka)
    if output is None and topic_options is None:
        raise click.UsageError(
            "a share must go somewhere: give --output FILE, or --kafka-bootstrap and --kafka-topic"
        )
    outputs = [] if output is None else [output]
    for path in outputs:
        check_output(path, [*sources, roster, key, *([round_file] if round_file else [])])
    check_output(ledger, [*sources, *outputs])
    if output is not None and Path(ledger).resolve() == Path(output).resolve():
        raise click.UsageError("--ledger and --output must be two files")
    made, keys = Roster.load(roster), SiteKeys.load(key)
    this = open_round(made, round_file)
    with ExitStack() as opened:
        topic = None
        if topic_options is not None:
            topic = opened.enter_context(share_topic(topic_options))
            # Now, and not when the documents are summed and paid for.
            topic.connect()
        spent = opened.enter_context(Ledger.open(ledger, made.ledger_terms(), create=True))
        ended = spent.recover()
        if ended is not None:
            warn(f"release {ended.intent.number} was cut short before: {ended.outcome}, and paid")
        at_work = Site(made, keys, spent, stream or stream_name(sources))
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
        places = [*outputs, *([f"topic {topic_options['topic']}"] if topic_options else [])]
        lines = [
            f"share of site {found.site} of round {found.round} ({found.stage}): "
            + ", ".join(places),
            f"roster {made.digest[:SHOWN]}; spent: streamlda budget {ledger}",
        ]
        click.echo("\n".join(lines), err=True)


def _make_share(
    at_work: Site,
    this: Round,
    reading: tuple[tuple[str, ...], str, str, str],
    max_documents: int | None,
    quiet: bool,
) -> Path:
    from streamlda.ingest import Ingestion

    summing = at_work.begin(this)
    wanted = summing.last if max_documents is None else min(summing.last, max_documents)
    source = open_sources(*reading)
    try:
        with PlacesProgress(source, quiet) as progress:
            ingested = Ingestion(
                source,
                at_work.roster.vocabulary,
                lambda words: summing,
                max_documents=wanted,
                on_progress=progress.show,
                blanks=True,
            ).run()
    finally:
        source.close()
    if ingested.failure is not None:
        raise ingested.failure
    return at_work.publish(summing)


@site.command(short_help="Begin a round again that not all sites could answer.")
@roster_option
@round_option
@click.option("--output", "-o", required=True, type=click.Path(), help="Round file to write.")
def redo(roster: str, round_file: str | None, output: str) -> None:
    """Write a round once more, under new masks, for a site that has lost its share.

    All sites must answer it anew, with documents that were in none before: what they have sent for
    the round is paid for, cannot be added up, and tells nothing.
    """
    from streamlda.sites.roster import Roster

    check_output(output, [roster])
    made = Roster.load(roster)
    again = open_round(made, round_file).again()
    again.open(made)
    again.save(output)
    click.echo(f"round {again.number}, attempt {again.attempt}: {output}", err=True)
