"""``streamlda site`` and ``streamlda aggregate``: learn with other sites, and show them nothing."""

from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import click

from streamlda.cli import options, shared
from streamlda.cli.options import POSITIVE, command, files, option, output, path
from streamlda.cli.shared import Progress, say, show_warnings, warn
from streamlda.errors import Faults, InsufficientDataError, LedgerError
from streamlda.model.table import plural
from streamlda.privacy.ledger import Ledger
from streamlda.privacy.ledger.file import beside
from streamlda.run.census import Census, UnspentSource, make_provenance, take_census
from streamlda.run.parts import check_output, name_stream, open_stream
from streamlda.settings.build import private_settings, public_words
from streamlda.settings.setting import AGREEMENT
from streamlda.settings.table import SETTINGS, RunSettings
from streamlda.sites import aggregate as adding
from streamlda.sites import federation
from streamlda.sites.announcement import Announcement, RoundKeys, check_attempt
from streamlda.sites.federation import FederationConfig, describe
from streamlda.sites.keys import PublicKey, SiteKey
from streamlda.sites.rounds import Round
from streamlda.sites.share import Share
from streamlda.sites.site import ShareAccumulator, Site, check_allowed
from streamlda.storage.store import Store
from streamlda.stream.counts import check_has_document
from streamlda.stream.pipeline import Pipeline

#: Settings that sites agree on: those with flags, others, and those without a default.
AGREED = {
    "Topics": ("topics.count", "topics.seed", "vocabulary.file", "vocabulary.hash_bits"),
    "Windows": ("snapshots.every", "snapshots.most"),
    "Privacy": ("privacy.epsilon", "privacy.delta"),
}
AGREED_TOO = (
    *("topics.alpha_0", "privacy.relation", "privacy.clipping", "vocabulary.stop_words"),
    *("vocabulary.token_pattern", "vocabulary.ngrams"),
)
NEEDED = ("privacy.epsilon", "privacy.delta", "snapshots.every")

_FAULTS = Faults(
    {
        LedgerError: {
            "another ledger": "a site's earlier shares were paid from another ledger; give the "
            "path of that one: it knows which documents earlier rounds used"
        },
        InsufficientDataError: {
            "few slots": "a site has fewer slots than it promised for the remaining rounds of a "
            "window; nothing was spent: bring more documents that were in no share, or agree on "
            "smaller windows or another weight"
        },
    }
)

#: Digits of a digest that the terminal shows: enough to compare by telephone.
SHOWN = 32

Config = Annotated[str, path("--config", "Federation config, the same for all.")]
RoundFile = Annotated[str, path("--round", "Round, from site begin or aggregate.")]
Key = Annotated[str, path("--key", "Key file of this site.")]
Message = Annotated[str, output("File to write.")]
EXPECT = (
    "Digest that the config must have, all 64 digits. [default: the one that was signed; the first "
    "sign needs it]"
)
Expect = Annotated[str | None, option("--expect", EXPECT, metavar="DIGEST")]
ALONE = (
    "Refuse a config that leaves a document of this site more than this epsilon if all other sites "
    "collude or are invented; inf: trust them."
)
Alone = Annotated[
    float, option("--max-epsilon-alone", ALONE, type=POSITIVE, default=3.0, metavar="EPSILON")
]


@click.group(short_help="Learn with other sites, without showing them documents or sums.")
def site() -> None:
    """Learn private topics together with other sites.

    Each site, and the aggregator, makes a key (keygen). One of them puts the public halves and the
    settings into a config (config). Each site looks at the config (show), compares its digest with
    the others, and signs it (sign). The aggregator makes the first round (begin). Then, round by
    round, each site writes a share (share), and streamlda aggregate adds the shares up to the next
    round, and at the end to a model. This needs the extra sites (see streamlda doctor).
    """


@command(site)
def keygen(
    name: Annotated[str, click.Argument(["name"])],
    output: Annotated[str, output("Key file to write.")],
) -> None:
    """Make a key for the site NAME: the secret FILE, and FILE.pub for the config."""
    public = output + ".pub"
    check_output(public)
    if there := [each for each in (output, public) if Path(each).exists()]:
        raise click.UsageError(f"keys are never replaced, got path={there[0]!r}; choose another")
    key = SiteKey.generate(name)
    key.save(output)
    key.public.save(public)
    say(False, f"secret key: {output}", f"for the config: {public}, {key.public.fingerprint}")


Aggregator = Annotated[str, path("--aggregator", "Public key of the aggregator; may be a site's.")]
WEIGHTS = "Fraction of the record slots of each site, in the order of the files. [default: equal]"
COLLUDERS = (
    "Sites that may help the aggregator without weakening the promise to the others: 0 promises "
    "--epsilon against outsiders only, 1 against the other sites too, with more noise."
)
Colluders = Annotated[int, option("--colluders", COLLUDERS, type=click.IntRange(0), default=0)]


@command(site, name="config", reader=AGREEMENT, tasks=AGREED, names=AGREED_TOO)
def make_config(
    public_keys: Annotated[tuple[str, ...], files("FILE.pub...")],
    output: Annotated[str, output("Config file to write.")],
    aggregator_file: Aggregator,
    label: Annotated[str, option("--label", "Name of what is learned.", default="")],
    weights: Annotated[str | None, option("--weights", WEIGHTS, metavar="W,W,...")],
    colluders: Colluders,
    flags: options.Values,
) -> None:
    """Write a federation config from the public keys of the sites.

    It is public, and the same for all: every site looks at it (streamlda site show) and signs it
    (streamlda site sign). The records of --snapshot-every are those of all sites together. Words
    must be public: give --vocabulary or --hash-bits.
    """
    n_sites = len(public_keys)
    try:
        parts = [float(part) for part in (weights or "").split(",") if weights]
    except ValueError as error:
        raise click.UsageError(f"{weights!r} is not a list of numbers like 0.2,0.3") from error
    if len(parts or public_keys) != n_sites:
        raise click.UsageError(
            f"weights are not as many as sites, got weights={len(parts)} sites={n_sites}"
        )
    settings = flags.read()
    for name in NEEDED:
        if settings[name] is None:
            raise click.UsageError(
                f"a term that sites agree on is missing: set {SETTINGS[name].flag}"
            )
    words = public_words(settings)
    if words is None:
        raise click.UsageError("no words are public: give --vocabulary FILE or --hash-bits BITS")
    agreed = private_settings(settings, words.n_features)
    members = tuple(
        federation.Member(PublicKey.load(path), weight)
        for path, weight in zip(public_keys, parts or n_sites * [1 / n_sites], strict=True)
    )
    aggregator = PublicKey.load(aggregator_file)
    config = FederationConfig(label, members, aggregator, agreed, words, colluders)
    config.save(output)
    lines = [f"config of {plural(n_sites, 'site')}: {output}", *describe(config)]
    lines.append(config.insider_line)
    if config.colluders == 0:
        lines.append("To promise --epsilon against other sites too, take --colluders 1 or more.")
    say(False, *lines)


@command(site)
def show(config_path: Annotated[str, files("CONFIG")]) -> None:
    """Show the promise, digest, sites, weights and keys of CONFIG.

    Compare the digest with the other sites over another channel than the file; keys have the
    fingerprints that keygen showed. "alone" is the rest of the promise if all other sites collude,
    or were invented by one.
    """
    click.echo("\n".join(describe(FederationConfig.load(config_path))))


@command(site)
def sign(
    config_path: Annotated[str, files("CONFIG")],
    key: Key,
    expect: Expect,
    round_file: Annotated[str | None, path("--round", "Round to begin again.", required=False)],
    max_epsilon_alone: Alone,
    output: Message,
) -> None:
    """Sign CONFIG with the key of a site, which then answers rounds of this config alone.

    --expect must be the digest that the sites have compared. The promise is shown first. The
    signature is an announcement for the aggregator: it names the key that masks the site's first
    share. That key lies in KEY.rounds until then. A second call writes the same announcement.

    With --round, agree to begin that round again, after a site has lost its share. All sites must
    agree, and answer with documents that were in no round: earlier shares of the round are paid
    for, cannot be added up, and show nothing. A round has three attempts.
    """
    config, own, round_keys = FederationConfig.load(config_path), SiteKey.load(key), RoundKeys(key)
    say(False, *describe(config))
    number = attempt = 1
    if round_file is not None:
        this = Round.load(round_file)
        round_keys.check_pinned(config.digest)
        this.open(config)
        number, attempt = this.number, this.attempt + 1
        check_attempt(attempt)
    elif expect is None:
        raise click.UsageError("a config is signed by its digest: give --expect DIGEST")
    if expect is not None:
        federation.check_expected(config, expect)
    federation.check_member(config, own)
    if round_file is None:
        federation.check_alone(config, max_epsilon_alone)
    round_keys.announce(own, config.digest, number, attempt).save(output)
    say(False, f"announcement of site {own.public.name}, round {number}.{attempt}: {output}")


BEGUN = "Round to begin again. [default: the first is begun]"


@command(site)
def begin(
    announcements: Annotated[tuple[str, ...], files("ANNOUNCEMENT...")],
    config_path: Config,
    round_file: Annotated[str | None, path("--round", BEGUN, required=False)],
    key: Annotated[str, path("--key", "Key file of the aggregator.")],
    output: Annotated[str, output("Round file to write.")],
) -> None:
    """Write the first round, or repeat one, from the announcements of all sites.

    Give one ANNOUNCEMENT of each site (streamlda site sign).
    """
    config = FederationConfig.load(config_path)
    found = [Announcement.load(each) for each in announcements]
    if round_file is None:
        this = Round.first(config, found)
    else:
        before = Round.load(round_file)
        before.open(config)
        this = before.repeat(config, found)
    say(False, _save_round(this, key, output))


LEDGER = "File of what was spent; shares are kept in FILE.releases."

#: Settings of how records are read: those of a private run.
READ = ("files", "format", "text_field", "include", "delimiter", "max_record", "stream")
READING = tuple(f"source.{key}" for key in READ)
DOCUMENTS = {"Documents": ("source.format", "source.text_field")}


@command(site, reader="site share", tasks=DOCUMENTS, names=READING)
def share(
    config_path: Config,
    round_file: RoundFile,
    key: Key,
    ledger: Annotated[str, path("--ledger", LEDGER)],
    output: Message,
    expect: Expect,
    max_epsilon_alone: Alone,
    quiet: options.Quiet,
    flags: options.Values,
) -> None:
    """Sum the next documents of SOURCE... and write this site's share of a round.

    Each round takes documents that were in no round: give the same SOURCE... again, and reading
    continues behind the documents in the ledger. The price is in the ledger before noise is drawn.
    A second call for the same round writes the same share again. If there are too few documents,
    nothing is spent or written. Never copy the folder KEY.rounds, nor bring back an old copy.
    """
    settings = flags.read()
    taken = [*settings.source.files, config_path, key, round_file]
    check_output(ledger, taken, is_ledger=True)
    check_output(output, beside(Path(ledger)))
    config, own = FederationConfig.load(config_path), SiteKey.load(key)
    # No record decides how others are read, as in any private run.
    privacy = replace(settings.privacy, epsilon=config.settings.epsilon)
    settings = replace(settings, privacy=privacy)
    say(quiet, *describe(config))
    if expect is not None:
        federation.check_expected(config, expect)
    round_keys, this = RoundKeys(key), Round.load(round_file)
    # Before a ledger is made.
    check_allowed(config, own, round_keys, max_epsilon_alone)
    this.open(config)
    paid_from = round_keys.ledger(config.digest)
    here = paid_from is None or Path(ledger).exists()
    _FAULTS.check(here, "another ledger", ledger=ledger, ledger_id=paid_from)
    with Ledger.open(ledger, config.ledger_terms, create=True) as spent:
        ended = spent.recover()
        if ended is not None:
            warn(f"release {ended.number} was interrupted earlier: {ended.state}, and stays paid")
        stream = name_stream(settings)
        at_work = Site(config, own, round_keys, spent, stream, max_epsilon_alone=max_epsilon_alone)
        census = None if at_work.find_share(this) else _take_census(settings, at_work, this)
        stored = at_work.make_share(this, partial(_fill, settings, at_work, census, quiet))
        found = Share.load(stored)
        found.save(output)
    of = f"site {found.site} of round {found.round} ({found.stage})"
    say(
        quiet,
        f"share of {of}: {output}",
        f"config {config.digest[:SHOWN]}; to see what is spent: streamlda budget {ledger}",
    )


NEXT, SIGN = "Round file to write, for the next shares.", "Key of the aggregator, to sign with."


@command()
def aggregate(
    shares: Annotated[tuple[str, ...], files("SHARE...")],
    config_path: Config,
    round_file: RoundFile,
    next_round: Annotated[str, output(NEXT, "--next-round")],
    output: options.ModelOutput,
    key: Annotated[str | None, path("--key", SIGN, required=False)],
    quiet: options.Quiet,
) -> None:
    """Add up the shares of all sites.

    Writes the next round, signed with --key, and, after the last one, a model with its privacy
    statement. Everything but the key is public: every site may repeat this without it and compare.
    A share that is missing, repeated, altered, or of another site, config or round is refused by
    name, and nothing is written.
    """
    if Path(output).exists():
        raise click.UsageError(f"models are never replaced, got path={output!r}; choose another")
    config, this = FederationConfig.load(config_path), Round.load(round_file)
    loaded = [Share.load(path) for path in shares]
    found = adding.aggregate(config, this, loaded)
    lines = [f"round {this.number} ({loaded[0].stage}) of {plural(len(loaded), 'site')}"]
    if found.next_round is not None:
        lines.append(f"next {_save_round(found.next_round, key, next_round)}")
    if found.missed is not None:
        warn(f"this window is paid for, but gave no model: {found.missed}")
    if (model := found.model) is not None:
        with Store.open(file=output, private=True) as store:
            store.publish(model)
        topics = f"{plural(model.n_components, 'topic')}, {model.privacy['statement']}"
        lines += [f"{topics}; config {config.digest[:SHOWN]}", f"model: {output}"]
        show_warnings(model)
    say(quiet, *lines)


def _save_round(this: Round, key: str | None, path: str) -> str:
    """Sign a round with the key of the aggregator, if given, write it, and say so."""
    signed = this if key is None else this.sign(SiteKey.load(key))
    signed.save(path)
    of = f"{this.number}.{this.attempt} ({this.stage}){', unsigned' if key is None else ''}"
    return f"round {of}: {path}, digest {this.digest[:SHOWN]}"


def _take_census(settings: RunSettings, at_work: Site, this: Round) -> Census | None:
    """Recognise the documents of a site by their content, and refuse too few unspent ones."""
    ledger = at_work.ledger
    ledger.warn = warn
    census = take_census(settings, ledger, at_work.config.vocabulary)
    at_work.provenance = make_provenance(settings, ledger, census)
    if census is None:
        return None
    last = ledger.last_release
    if last is None or last.cohort.run != at_work.config.digest:
        census.check_new()
    wanted = at_work.count_slots_to_come(this)
    found = {"site": at_work.name, "slots": census.slots, "expected": wanted}
    _FAULTS.check(census.slots >= wanted, "few slots", **found, released=census.spent)
    check_has_document(census.has_document, census.slots)
    return census


def _fill(
    settings: RunSettings,
    at_work: Site,
    census: Census | None,
    quiet: bool,
    accumulator: ShareAccumulator,
) -> None:
    """Add the records of the source, to its end or to the size of the share."""
    provenance = at_work.provenance
    pipeline = Pipeline(
        at_work.config.vocabulary, lambda words, first: accumulator, provenance=provenance
    )
    source: Any = open_stream(settings, fixed_order=True)
    if census is not None:
        source = UnspentSource(source, census.containers)
    ended = False
    with closing(source), Progress(quiet, slots=True) as progress:
        while pipeline.due is not None and not ended:
            n = min(pipeline.due, shared.POLL_RECORDS)
            batch = source.poll(n, shared.POLL_SECONDS)
            batch.check(n)
            pipeline.add(batch)
            progress.show(source, pipeline.counts)
            ended = batch.exhausted
    if provenance.by_slots:
        check_has_document(pipeline.counts.has_document, pipeline.counts.records)
