"""Commands about finished models: show, compare, report, merge, reduce and rename them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import click

from streamlda.cli import options
from streamlda.cli.options import command, count, files, flag, option, output, path
from streamlda.cli.shared import DOCUMENTS, find_newest, read_documents, say, show_warnings, warn
from streamlda.model.diagnostics import DOUBTS, exclusivity, junk_topics, nearest_topics
from streamlda.model.merging import merge_models
from streamlda.model.table import in_line, label_words, plural
from streamlda.model.topic_model import TopicModel, load
from streamlda.privacy.ledger.budget_table import printable
from streamlda.privacy.statement import statement_lines
from streamlda.settings.build import time_bins
from streamlda.storage.snapshots import Snapshots

if TYPE_CHECKING:
    from streamlda.storage.checkpoint import Checkpoint

#: Settings of the documents of a report.
TASKS = {
    "Documents": (
        *("source.format", "source.encoding", "source.text_field", "source.id_field"),
        *("source.class_field", "source.time_field", "source.time_format", "snapshots.time_bins"),
    )
}


def load_named(path: str) -> TopicModel:
    """Read a model, of a folder of snapshots the newest, with the names that its folder gives."""
    file = Path(path)
    if file.is_dir():
        return find_newest(path).model
    prefix, _, number = file.name.partition("-")
    model, is_snapshot = load(file), prefix == "snapshot" and number.isdecimal()
    return Snapshots(file.parent).name_topics(int(number), model) if is_snapshot else model


WORD = "Show the topics of this word, most of it first."
RANK = "Rank words as topics.relevance does. [default: the model's]"


@command()
def topics(
    model_file: options.ModelFile,
    n_words: options.Words,
    word: Annotated[str | None, option("--word", WORD)],
    relevance: Annotated[float | None, option("--relevance", RANK, type=float)],
    as_json: options.AsJson,
) -> None:
    """Show the topics of the model in FILE, or the newest of a folder, the most prevalent first.

    The share is of all tokens, as the fit measured it; a dash if it did not. NPMI says how well the
    10 most probable words go together in documents of the fit, -1 to 1, if it was counted. ? marks
    a topic that should not be relied on, and = one that repeats a more prevalent topic; the lines
    below the table say why. A private model shows record slots.
    """
    model = load_named(model_file)
    model = model if relevance is None else model.rank_words(relevance)
    found = [] if word is None else model.topics_of_word(word)
    if found and as_json:
        click.echo(json.dumps([each._asdict() for each in found]))
    elif found:
        click.echo("topic  share of its tokens  probability  words")
        words = model.top_words(n_words)
        for each in found:
            row = f"{each.topic:5d} {each.share:20.1%} {each.probability:12.4f}  "
            click.echo(row + in_line(own for own, _ in words[each.topic]))
    elif as_json:
        click.echo(json.dumps(_describe(model, n_words), ensure_ascii=False, indent=1))
    else:
        click.echo("\n".join([*_header(model), "", *_table(model, n_words)]))
        show_warnings(model)


def _describe(model: TopicModel, n_words: int) -> dict[str, Any]:
    """Return a model as plain JSON values."""
    words, doubts, npmi = model.top_words(n_words), junk_topics(model), model.npmi
    since = None if model.interval is None else model.interval.prevalence
    own, near = exclusivity(model.components), nearest_topics(model.components)
    counted = not model.counts_slots
    return {
        "documents_seen": model.documents_seen if counted else None,
        "tokens_seen": model.tokens_seen if counted else None,
        "places": None if counted else model.documents_seen,
        "alpha_0": model.alpha_0,
        "vocabulary": {
            "kind": None if model.vocabulary is None else model.vocabulary.kind,
            "words": model.n_features,
            "data_dependent": model.vocabulary is not None and model.vocabulary.data_dependent,
        },
        "privacy": dict(model.privacy),
        "warnings": model.diagnostics.get("warnings", []),
        "topics": [
            {
                "topic": k,
                "name": model.names[k],
                "prevalence": model.shares[k],
                "interval_share": None if since is None else since[k],
                "alpha": float(model.alpha[k]),
                "npmi": npmi[k],
                "exclusivity": float(own[k]),
                "nearest": (other := near[k]) and {"topic": other[0], "distance": other[1]},
                "doubts": list(doubts[k]),
                "words": [{"word": word, "probability": p} for word, p in words[k]],
            }
            for k in model.order
        ],
    }


def _table(model: TopicModel, n_words: int) -> list[str]:
    """Return the topics as lines, the most prevalent first."""
    words, doubts, npmi = model.top_words(n_words), junk_topics(model), model.npmi
    counted = any(value is not None for value in npmi)
    lines = [f"topic  share{'  NPMI' if counted else ''}   words"]
    for k in model.order:
        share = "     -" if model.shares[k] is None else f"{model.shares[k]:6.1%}"
        goes = "" if not counted else "     -" if npmi[k] is None else f" {npmi[k]:5.2f}"
        name = "" if model.names[k] is None else f"[{printable(str(model.names[k]))}] "
        row = f"{k:5d} {share}{goes} {_mark(doubts[k])} {name}"
        lines.append(row + in_line(word for word, _ in words[k]))
    for reason, meaning in DOUBTS.items():
        if marked := [str(k) for k in model.order if reason in doubts[k]]:
            lines.append(f"    {_mark((reason,))} {meaning}: {', '.join(marked)}")
    return lines


def _mark(reasons: tuple[str, ...]) -> str:
    """Return the sign of doubts: of a copy another one, for its words may be good."""
    return " " if not reasons else "=" if reasons == ("copy",) else "?"


def _header(model: TopicModel) -> list[str]:
    kind = "words without names" if model.vocabulary is None else model.vocabulary.kind
    kind = {
        "selected": "private selection",
        "learned": "learned: the choice of words depends on the documents",
    }.get(kind, kind)
    if model.vocabulary is not None and model.vocabulary.names is not None:
        kind += ": columns are shown by words of the documents"
    size = f"documents   {model.documents_seen:,} ({plural(model.tokens_seen, 'token')})"
    if model.counts_slots:
        size = f"slots       {model.documents_seen:,} (public; the number of documents is private)"
    return [
        f"{plural(model.n_components, 'topic')}, alpha_0 {model.alpha_0:.3g}",
        size,
        f"vocabulary  {model.n_features:,} ({kind})",
        *statement_lines(model.privacy),
    ]


@command()
def compare(
    first_file: Annotated[str, files("FIRST")],
    second_file: Annotated[str, files("SECOND")],
    n_words: options.Words,
    as_json: options.AsJson,
) -> None:
    """Show common topics of the models FIRST and SECOND, and their differences.

    Topics are paired so that the sum of distances is least. The distance is Hellinger's: 0 for
    equal topics, 1 for topics without a word in common. A plus marks words that are more probable
    in SECOND, a minus words that are less probable. Topics that only one model has come last.
    """
    models = load_named(first_file), load_named(second_file)
    found = models[0].compare(models[1]).to_json()
    if as_json:
        click.echo(json.dumps(found, ensure_ascii=False, indent=1))
        return
    words = [
        [
            printable(label_words(name, (word for word, _ in top)))
            for name, top in zip(model.names, model.top_words(n_words), strict=True)
        ]
        for model in models
    ]
    click.echo("\n".join(_pairs(found, words)))


def _pairs(found: dict[str, Any], words: list[list[str]]) -> list[str]:
    lines = [
        f"{plural(len(found['matched']), 'topic')} in both, {len(found['only_first'])} only in the "
        f"first, {len(found['only_second'])} only in the second",
        f"{plural(found['common_words'], 'word')} in both, {found['common_share']:.0%} of the "
        "tokens",
        "",
        "first second  distance   words",
    ]
    for pair in found["matched"]:
        row = f"{pair['first']:5d} {pair['second']:6d} {pair['distance']:9.2f}   "
        lines.append(row + words[1][pair["second"]])
        moved = [f"+{in_line([word])}" for word in pair["rose"]]
        moved += [f"-{in_line([word])}" for word in pair["fell"]]
        lines += [25 * " " + " ".join(moved)] * bool(moved)
    for name, place, top in zip(("only_first", "only_second"), (0, 6), words, strict=True):
        lines += [f"{place * ' '}{k:5d}{(20 - place) * ' '}{top[k]}" for k in found[name]]
    return lines


DRAWN = "File of documents to draw; may be repeated."
Drawn = Annotated[tuple[str, ...], path("--documents", DRAWN, required=False, multiple=True)]
TITLE = "Heading of the page. [default: the name of FILE]"


@command(reader="report", tasks=TASKS, names=DOCUMENTS[1:])
def report(
    model_file: options.ModelFile,
    output: Annotated[str, output("HTML file to write.")],
    title: Annotated[str | None, option("--title", TITLE)],
    documents: Drawn,
    n_words: options.Words,
    quiet: options.Quiet,
    flags: options.Values,
) -> None:
    """Write a page of HTML about the model in FILE, or the newest model of a folder.

    The page loads nothing, and is as private as the model. With --documents it also has a map of a
    sample of 2,000 documents; topics by --class-field; and topics by the --time-bins of
    --time-field. Its only text of documents is the first 120 characters of --id-field (a title, an
    id or the text) of those on the map. The report of a private model has no documents.
    """
    from streamlda.report import render_report
    from streamlda.report.documents import DocumentSurvey
    from streamlda.report.notebook import ReportPage

    if flags.values and not documents:
        raise click.UsageError("options of documents need --documents FILE")
    model, survey = load_named(model_file), None
    if documents:
        settings = flags._replace(values=flags.values | {"source.files": documents}).read()
        has_classes = settings.source.class_field is not None
        survey = DocumentSurvey(model, unit=time_bins(settings), has_classes=has_classes)
        for each in read_documents(settings):
            pairs = zip(each.records, each.reasons, strict=True)
            titles = [at.id for at, reason in pairs if reason is None]
            survey.add(each.texts, titles=titles, classes=each.classes, times=each.times)
    title = Path(model_file).stem if title is None else title
    page = render_report(model, title=title, n_words=n_words, survey=survey)
    ReportPage(page).save(output)
    say(quiet, plural(model.n_components, "topic"), f"report: {output}")


@command()
def merge(
    sources: Annotated[tuple[str, ...], files("SOURCE...")],
    output: options.ModelOutput,
    quiet: options.Quiet,
) -> None:
    """Write one model of several: SOURCE... are folders of checkpoints, or model files.

    Folders: the daemons may be running. They must have begun with one projection file (streamlda
    projection), have equal settings, and read disjoint partitions. The model is then that of one
    process over all documents. Private states are refused.

    Model files: of disjoint documents and words of one kind. Topics that are alike become
    one, weighted by their tokens. Private models of one ledger, of different record slots,
    keep its promise; those of several ledgers promise the sum of epsilons and of deltas.
    """
    if any(Path(each).is_dir() for each in sources):
        from streamlda.storage.merge import merge_checkpoints

        joined = merge_checkpoints(sources)
        for folder, checkpoint in zip(sources, joined.checkpoints, strict=True):
            _warn_about_damage(folder, checkpoint)
        model = joined.engine.snapshot(joined.vocabulary, {"merged_states": len(sources)})
        # Each daemon has an interval of its own.
        model = model if len(sources) == 1 else replace(model, interval=None)
    else:
        model = merge_models([load(each) for each in sources], names=sources)
    counted = plural(model.documents_seen, "record slot" if model.counts_slots else "document")
    size = f"{plural(model.n_components, 'topic')} over {plural(model.n_features, 'word')}"
    _save(model, output, quiet, f"{counted} of {plural(len(sources), 'source')}", size)


@command()
def projection(
    folder: Annotated[str, files("CHECKPOINT_FOLDER")],
    output: Annotated[str, output("Projection file to write.")],
    renew: Annotated[bool, flag("--renew", "Make a better projection than the shared one.")],
    quiet: options.Quiet,
) -> None:
    """Write a file with the words of the daemon of CHECKPOINT_FOLDER, and its start.

    Daemons that begin with this file (topics.projection_file), each with a new folder of
    checkpoints, can be joined by streamlda merge. Let a daemon read 100,000 documents first, or
    some ten thousand with topics.refine false. If it began with such a file, the same start is
    written, so that others can join; with --renew a better one. Only its owner can read the file:
    it reveals how often words occur.
    """
    from streamlda.refinement.shared_start import SharedStart
    from streamlda.storage.merge import read_newest_engine, save_projection

    checkpoint, engine = read_newest_engine(folder)
    _warn_about_damage(folder, checkpoint)
    made = save_projection(output, engine, checkpoint.vocabulary, renew=renew)
    kind = "start" if isinstance(made.beginning, SharedStart) else "projection"
    what = f"{kind} {made.digest}: {plural(made.vocabulary.n_features, 'word')}"
    say(quiet, what, f"projection file: {output}")


def _warn_about_damage(folder: str, checkpoint: Checkpoint) -> None:
    """Say that an older generation was taken, and why."""
    for problem in checkpoint.skipped:
        warn(f"the newest checkpoint is damaged, an older one was used: path={folder!r} {problem}")


@command()
def reduce(
    model_file: options.ModelFile,
    n_topics: Annotated[int | None, count("--topics -k", "Topics to leave.")],
    groups: Annotated[
        tuple[str, ...],
        option("--merge", "Topics to join; repeatable.", metavar="T,T...", multiple=True),
    ],
    output: options.ModelOutput,
    quiet: options.Quiet,
) -> None:
    """Write the model in FILE with fewer topics: join chosen topics, or the most alike.

    With --topics each step joins those that are most alike in their words, by Ward's method.
    --merge 3,7 joins these two. Names are joined; NPMI, documents to show and seeds are left out.
    The privacy statement stays.
    """
    if (n_topics is None) == (not groups):
        raise click.UsageError("either --topics or --merge must be given")
    joined = [group.split(",") for group in groups]
    if not all(number.strip().isdecimal() for group in joined for number in group):
        raise click.UsageError(f"--merge must be topics such as 3,7, got {','.join(groups)[:40]!r}")
    before = load(model_file)
    if n_topics is None:
        model = before.merge_topics([list(map(int, group)) for group in joined])
    else:
        model = before.reduce(n_topics)
    made = [group for group in model.diagnostics["reduced_from"] if len(group) > 1]
    lines = [f"joined: {', '.join(map(str, group))}" for group in made]
    topics = f"{plural(model.n_components, 'topic')} of {before.n_components}"
    _save(model, output, quiet, topics, *lines)


@command()
def rename(
    path: Annotated[str, files("FILE|FOLDER")],
    names: Annotated[tuple[str, ...], files("TOPIC=NAME...")],
    output: Annotated[str | None, output("Model file to write, of FILE.", default=None)],
    quiet: options.Quiet,
) -> None:
    """Name topics: of the model in FILE, or of the snapshots in FOLDER. TOPIC= takes a name away.

    Topics are numbered as streamlda topics does. FOLDER is that of a daemon, which may be running:
    names stand beside its snapshots, by the numbers of its page, and stay with these topics in all
    later snapshots.

    Example: streamlda rename news.model 3=sport "7=local politics" --output named.model
    """
    found: dict[int, str | None] = {}
    for text in names:
        number, equals, name = text.partition("=")
        if not (equals and number.isdecimal()):
            raise click.UsageError(f"a name is not TOPIC=NAME, as in 3=sport, got {text[:40]!r}")
        found[int(number)] = name.strip() or None
    if Path(path).is_dir() == bool(output):
        raise click.UsageError("--output must be given with a model file, and only with one")
    said = f"{plural(len(found), 'name')} set"
    if output is not None:
        _save(load(path).rename(found), output, quiet, said)
    else:
        Snapshots(path).rename(found)
        say(quiet, said)


def _save(model: TopicModel, path: str, quiet: bool, *lines: str) -> None:
    """Write a model, and describe it."""
    model.save(path)
    say(quiet, *lines, f"model: {path}")
    show_warnings(model)
