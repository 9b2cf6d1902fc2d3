"""``streamlda fit``: learn topics from documents."""

from __future__ import annotations

import re
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamlda.cli.dask_fit import DaskRun, check_dask_usage, learn_on_dask
from streamlda.cli.private_fit import PrivateRun
from streamlda.cli.private_options import check_usage, private_options
from streamlda.cli.running import Progress, RejectsFile, StopSignals
from streamlda.cli.sources import by_reason, check_output, open_sources, source_options, warn
from streamlda.cli.words import public_words, text_analyzer, text_options

if TYPE_CHECKING:
    from streamlda.engine.settings import EngineSettings
    from streamlda.model.topic_model import TopicModel
    from streamlda.stream.ingest import Counts, Ingested
    from streamlda.stream.vocabulary_choice import VocabularyLearner
    from streamlda.text.vocabulary import Vocabulary


def frequency(value: str) -> float:
    """Return an int for ``5``, a number of documents, and a float for ``0.5``, a share."""
    if re.fullmatch(r"\d+", value):
        return int(value)
    try:
        return float(value)
    except ValueError as error:
        raise click.BadParameter(
            f"{value!r} is not a number of documents, or a share with a point."
        ) from error


def alpha0(value: str) -> float | None:
    """Return a number, or None for ``auto``."""
    if value == "auto":
        return None
    try:
        return float(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a number or auto.") from error


alpha0_option = click.option(
    "--alpha0",
    type=alpha0,
    metavar="NUMBER|auto",
    default="1.0",
    show_default=True,
    help="Sum of the Dirichlet parameters, in pseudo-tokens; auto estimates it.",
)


@click.command(short_help="Learn topics from documents.")
@source_options
@click.option("--topics", "-k", type=click.IntRange(min=1), required=True, help="Topics to learn.")
@click.option("--output", "-o", required=True, type=click.Path(), help="Model file to write.")
@click.option(
    "--vocabulary",
    type=click.Path(),
    help="File of the words to use, one a line. [default: learn them]",
)
@click.option(
    "--vocabulary-size",
    type=click.IntRange(min=1),
    help="Words to learn from the first documents. [default: 8000]",
)
@click.option(
    "--hash-bits",
    type=click.IntRange(1, 22),
    help="Hash words to 2^BITS columns instead: words have no names. [default: learn them]",
)
@click.option(
    "--vocabulary-documents",
    type=click.IntRange(min=1),
    default=20_000,
    show_default=True,
    help="Documents to learn the words from, at most 64 million characters; with "
    "--private-vocabulary, records to choose them from.",
)
@click.option(
    "--min-document-frequency",
    type=frequency,
    metavar="COUNT|SHARE",
    help="Learn no word in fewer documents than this: a count, or a share with a point. "
    "[default: a two-hundredth of the documents, at least 1 and at most 5]",
)
@click.option(
    "--max-document-frequency",
    type=frequency,
    metavar="COUNT|SHARE",
    default="0.5",
    show_default=True,
    help="Learn no word in more documents than this: a count, or a share with a point.",
)
@text_options
@alpha0_option
@click.option(
    "--warmup-documents",
    type=click.IntRange(min=1),
    help="Documents kept in memory to begin with; the refinement starts from their topics. "
    "[default: 20000, and 10000 without a refinement]",
)
@click.option(
    "--refine/--no-refine",
    default=None,
    help="Let likelihood refine the topics: every document moves them, once there are topics to "
    "start from. Documents that follow the model exactly are left alone. "
    "[default: refine; not with another solver or --epsilon]",
)
@click.option(
    "--solver",
    metavar="NAME",
    default="whitened-tensor",
    show_default=True,
    help="How topics are found: whitened-tensor sums a small tensor; online-power (Wang & "
    "Anandkumar 2016, one topic after the other) and simultaneous ask the stream anew at each "
    "power iteration. With --epsilon: whitened-tensor, noisy-power or simultaneous.",
)
@click.option(
    "--documents-per-round",
    type=click.IntRange(min=1),
    help="Documents of a power iteration. [default: 1000, then more and more, which sharpens "
    "topics for ever]",
)
@click.option(
    "--memory-documents",
    type=click.IntRange(min=1),
    help="Let topics rest on the last half to all of so many documents, for online-power and "
    "simultaneous: they follow a stream that drifts. [default: nothing is forgotten]",
)
@click.option(
    "--restarts",
    type=click.IntRange(min=1),
    help="Random starts of each topic, for online-power and noisy-power. [default: 10; 3 with "
    "--epsilon]",
)
@click.option(
    "--iterations",
    type=click.IntRange(min=1),
    help="Power iterations that find a topic; later ones refine. [default: 5; with --epsilon it "
    "depends on the solver]",
)
@click.option(
    "--seed",
    type=click.IntRange(0, 2**64 - 1),
    default=0,
    show_default=True,
    help="Seed; equal documents and settings give equal topics. With --epsilon, of the public "
    "random map only: the noise has no seed.",
)
@click.option(
    "--rejects",
    type=click.Path(),
    help="Write a JSON line for each record passed over: location, record, reason. "
    "[default: none is written]",
)
@click.option(
    "--dask",
    metavar="ADDRESS",
    help="Learn on the workers of this Dask scheduler, which must see the files; no model is "
    "written if anything fails. [default: learn here]",
)
@click.option("--quiet", "-q", is_flag=True, help="No progress and no summary, only warnings.")
@private_options
@click.pass_context
def fit(
    context: click.Context,
    /,
    sources: tuple[str, ...],
    file_format: str,
    text_field: str,
    compression: str,
    max_documents: int | None,
    output: str,
    rejects: str | None,
    dask: str | None,
    quiet: bool,
    **settings: Any,
) -> None:
    """Learn topics from the documents of SOURCE... and write a model file.

    A SOURCE is a file, a directory, a glob, an fsspec URL, or - for standard input. Ctrl-C (or
    SIGTERM) saves a model of what was read and exits with 130 (143); a second one ends at once.
    If a source fails on the way, a model of what was read is saved too, and the exit code is 1.
    A model already at --output stays until the new one is whole.

    With --epsilon the model is differentially private: each snapshot is paid for in the --ledger
    before its noise is drawn, and --output is the newest one. Documents that were in a release are
    refused from then on. Ctrl-C keeps the last snapshot. Numbers of documents, rejects and tokens
    are private and not shown; standard error (progress, time, warnings) is for the owner of the
    documents all the same, and not for publication.
    """
    inputs = [*sources, *([settings["vocabulary"]] if settings["vocabulary"] else [])]
    private = check_usage(context, settings)
    check_output(output, inputs)
    if settings["refine"] and private:
        raise click.UsageError(
            "--epsilon and --refine exclude each other: a refinement reads documents without "
            "noise; leave --refine out"
        )
    if dask is not None:
        check_dask_usage(sources, settings, max_documents=max_documents, rejects=rejects)
    if dask is not None and not private:
        words, most_words = _words(settings)
        asked = _engine_settings(settings, most_words)
        model, ingested = learn_on_dask(
            *(dask, sources, file_format, text_field, compression, words, asked, quiet)
        )
        model.save(output)
        _report(model, ingested, output, quiet)
        return
    if private:
        for name in ("--documents-per-round", "--memory-documents"):
            if settings[name[2:].replace("-", "_")] is not None:
                raise click.UsageError(
                    f"a private run must not have {name}: its rounds are shares of --snapshot-every"
                )
        _fit_privately(
            *(sources, file_format, text_field, compression, max_documents, output, quiet),
            settings,
            dask,
        )
        return
    if rejects is not None:
        check_output(rejects, [*inputs, output])
        if Path(rejects).resolve() == Path(output).resolve():
            raise click.UsageError("--rejects and --output must be two files")
    with ExitStack() as opened:
        # From here on a signal means: save what was read.
        signals = opened.enter_context(StopSignals())
        model, ingested = _learn(
            opened,
            signals,
            lambda: open_sources(sources, file_format, text_field, compression),
            max_documents,
            rejects,
            quiet,
            settings,
        )
        model.save(output)
    _report(model, ingested, output, quiet)
    if ingested.failure is not None:
        # The model of what could be read is saved; the exit code tells that it is not all.
        raise ingested.failure
    if signals.received:
        click.get_current_context().exit(128 + signals.received)


def _report(model: TopicModel, ingested: Ingested, output: str, quiet: bool) -> None:
    if not quiet:
        _summarize(model, ingested, output)
    for message in model.diagnostics["warnings"]:
        warn(message)


def _fit_privately(
    sources: tuple[str, ...],
    file_format: str,
    text_field: str,
    compression: str,
    max_documents: int | None,
    output: str,
    quiet: bool,
    settings: dict[str, Any],
    dask: str | None,
) -> None:
    ledger = settings["ledger"]
    check_output(ledger, [*sources, output])
    if Path(ledger).resolve() == Path(output).resolve():
        raise click.UsageError("--ledger and --output must be two files")
    user_field = settings["user_field"]
    make = PrivateRun if dask is None else DaskRun
    run = make(
        sources=sources,
        open_source=lambda: open_sources(sources, file_format, text_field, compression, user_field),
        output=output,
        max_documents=max_documents,
        quiet=quiet,
        options=settings,
        words=public_words(settings),
        analyzer=text_analyzer(settings),
    )
    if dask is not None and isinstance(run, DaskRun):
        run.learn_on(dask, file_format, text_field, compression)
        return
    with StopSignals() as signals:
        run.learn(signals)


def _learn(
    opened: ExitStack,
    signals: StopSignals,
    open_source: Any,
    max_documents: int | None,
    rejects: str | None,
    quiet: bool,
    settings: dict[str, Any],
) -> tuple[TopicModel, Ingested]:
    from streamlda.engine.engine import Engine
    from streamlda.errors import InsufficientDataError
    from streamlda.stream.ingest import Ingestion

    words, most_words = _words(settings)
    _engine_settings(settings, most_words)
    source = open_source()
    opened.callback(source.close)
    on_reject = None if rejects is None else opened.enter_context(RejectsFile(rejects)).write
    progress = opened.enter_context(Progress(source, quiet))
    ingestion = Ingestion(
        source,
        words,
        lambda vocabulary: Engine(_engine_settings(settings, vocabulary.n_features)),
        max_documents=max_documents,
        on_progress=progress.show,
        on_reject=on_reject,
    )
    signals.call(ingestion.stop)
    try:
        ingested = ingestion.run()
    except InsufficientDataError as error:
        if signals.received:
            click.echo(f"streamlda: error: stopped before a model was learned: {error}", err=True)
            click.get_current_context().exit(128 + signals.received)
        raise
    model = ingested.engine.snapshot(
        ingested.vocabulary, {"vocabulary_documents": ingested.vocabulary_documents}
    )
    return model, ingested


def _engine_settings(settings: dict[str, Any], n_features: int) -> EngineSettings:
    """Return the settings of the engine, checked; so bad ones are met before anything is read."""
    from streamlda.engine.settings import EngineSettings
    from streamlda.errors import InvalidSettingError

    if settings["topics"] > n_features:
        raise InvalidSettingError(
            "there must be at least as many words as topics, got "
            f"topics={settings['topics']} words={n_features}; ask for fewer topics or more words"
        )
    names = {
        "n_restarts": "restarts",
        "n_iterations": "iterations",
        "warmup_documents": "warmup_documents",
    }
    return EngineSettings(
        n_components=settings["topics"],
        n_features=n_features,
        alpha_0=settings["alpha0"],
        refine=settings["refine"],
        seed=settings["seed"],
        solver=settings["solver"],
        documents_per_round=settings["documents_per_round"],
        memory_documents=settings["memory_documents"],
        **{name: settings[key] for name, key in names.items() if settings[key] is not None},
    )


def _words(settings: dict[str, Any]) -> tuple[Vocabulary | VocabularyLearner, int]:
    """Return the words, or how to choose them, and how many there are at most."""
    from streamlda.stream.vocabulary_choice import VocabularyLearner
    from streamlda.text.analysis import FrequencyLimits

    kinds = [name for name in ("vocabulary", "vocabulary_size", "hash_bits") if settings[name]]
    if len(kinds) > 1:
        raise click.UsageError(
            "--vocabulary, --vocabulary-size and --hash-bits exclude each other; choose one"
        )
    public = public_words(settings)
    if public is not None:
        return public, public.n_features
    size = settings["vocabulary_size"] or 8000
    low, high = settings["min_document_frequency"], settings["max_document_frequency"]
    FrequencyLimits(size, 1 if low is None else low, high)  # raises if one is out of range
    to_learn = VocabularyLearner(
        size=size,
        min_document_frequency=low,
        max_document_frequency=high,
        documents=settings["vocabulary_documents"],
        analyzer=text_analyzer(settings),
    )
    return to_learn, size


def _summarize(model: TopicModel, ingested: Ingested, output: str) -> None:
    counts, seconds = ingested.counts, ingested.seconds
    vocabulary = ingested.vocabulary
    learned = f" from {ingested.vocabulary_documents:,} documents"
    say = [
        f"{model.n_components} topics over {model.n_features:,} words "
        f"({vocabulary.kind}{learned if vocabulary.data_dependent else ''})",
        f"{counts.documents:,} documents in {seconds:.1f} s "
        f"({counts.documents / max(seconds, 1e-9):,.0f} documents/s)",
        *_passed_over(counts),
        f"{counts.unseen_share:.1%} of {counts.tokens:,} tokens outside the vocabulary",
    ]
    if ingested.stopped:
        say.append("stopped before the end of the source")
    say.append(f"model: {output}")
    click.echo("\n".join(say), err=True)


def _passed_over(counts: Counts) -> list[str]:
    parts = []
    if counts.short:
        parts.append(f"{counts.short:,} documents skipped: fewer than 3 known words")
    if counts.rejects:
        total = counts.rejects.total()
        parts.append(f"{total:,} records passed over: {by_reason(counts.rejects)}")
    return parts
