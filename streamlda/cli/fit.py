"""``streamlda fit``: learn topics from documents, to the end of their source."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import click

from streamlda.cli.options import (
    GroupedCommand,
    config_option,
    quiet_option,
    read_settings,
    settings_options,
)
from streamlda.cli.plan import show_expected
from streamlda.cli.running import (
    IN_NO_BIN,
    Progress,
    StopSignals,
    by_reason,
    earlier_lines,
    say,
    warn,
    warn_of,
    warn_of_rejects,
)
from streamlda.settings.setting import FIT

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamlda.run.fit import FitResult
    from streamlda.settings.table import RunSettings


@click.command(cls=GroupedCommand, short_help="Learn topics from documents.")
@settings_options(FIT)
@config_option
@quiet_option
@click.pass_context
def fit(context: click.Context, /, config: str | None, quiet: bool, **flags: Any) -> None:
    """Learn topics from the documents of SOURCE... and write a model file.

    A SOURCE is a file, a directory, a glob, an fsspec URL, or - for standard input; or it is a
    Kafka topic (--kafka-topic), read up to its present end. All settings are those of `streamlda
    run`, and may stand in its file (--config) or in variables STREAMLDA_SECTION_KEY.

    Ctrl-C (or SIGTERM) saves a model of what was read and exits with 130 (143); a second one ends
    at once. If a source fails on the way, a model of what was read is saved too, and the exit code
    is 74; not so with --dask. A model already at --output stays until the new one is whole. With
    --checkpoint-folder, a run that was cut short goes on from its last checkpoint.

    With --epsilon the model is differentially private: each snapshot is paid for in the --ledger
    before its noise is drawn, and --output is the newest one; earlier ones are kept in
    OUTPUT.snapshots, or all in --output-folder. Documents that were in a release are
    refused from then on. Ctrl-C keeps the last snapshot. Numbers of documents, rejects and tokens
    are private and not shown; standard error (progress, time, warnings) is for the owner of the
    documents all the same, and not for publication.
    """
    settings = read_settings(FIT, flags, config)
    warnings.showwarning = lambda message, *_, **__: warn(str(message))
    from streamlda.run.outputs import check_outputs

    check_outputs(settings)

    def on_opened() -> None:
        if settings.private:
            show_expected(settings, quiet)

    with Progress(quiet, slots=settings.private) as progress:
        if settings.cluster.dask is not None:
            from streamlda.run.cluster import fit_on_cluster

            number, found = (
                0,
                fit_on_cluster(
                    settings, on_progress=progress.show_round, warn=warn, on_opened=on_opened
                ),
            )
        else:
            number, found = _fit_here(context, settings, progress, on_opened)
    say(quiet, *_summary(found, settings))
    if not settings.private:
        warn_of_rejects(found.counts.rejects, found.counts.fields)
    warn_of(found.model)
    if found.failure is not None:
        # The model of what could be read is saved; the exit code says that it is not all.
        raise found.failure
    if number:
        context.exit(128 + number)


def _fit_here(
    context: click.Context,
    settings: RunSettings,
    progress: Progress,
    on_opened: Callable[[], None],
) -> tuple[int, FitResult]:
    """Learn in this process; return the number of the signal that ended it, 0 for none, too."""
    from streamlda.errors import InsufficientDataError
    from streamlda.run.fit import fit as learn

    # A signal means: save what was read.
    with StopSignals() as signals:
        try:
            found = learn(
                settings,
                should_stop=lambda: bool(signals.received),
                on_progress=progress.show,
                warn=warn,
                on_opened=on_opened,
            )
        except InsufficientDataError as error:
            if not signals.received:
                raise
            click.echo(f"streamlda: error: stopped before a model was learned: {error}", err=True)
            context.exit(128 + signals.received)
    return signals.received, found


def _summary(found: FitResult, settings: RunSettings) -> list[str]:
    lines = _private(found, settings) if settings.private else _public(found)
    stopped = ["stopped before the end of the source"] if found.stopped else []
    return [*lines, *stopped, f"model: {settings.output.file}"]


def _public(found: FitResult) -> list[str]:
    from streamlda.model.table import plural

    model, counts, words = found.model, found.counts, found.vocabulary
    learned = f" from {found.vocabulary_documents:,} documents" if words.data_dependent else ""
    if words.too_frequent:
        learned += f", {plural(words.too_frequent, 'word')} in too many documents left out"
    lines = [
        f"{plural(model.n_components, 'topic')} over {plural(model.n_features, 'word')} "
        f"({words.kind}{learned})",
        f"{plural(counts.documents, 'document')} in {found.seconds:.1f} s "
        f"({counts.documents / max(found.seconds, 1e-9):,.0f} documents/s)",
    ]
    if counts.removed:
        lines.append(f"removed from texts: {by_reason(counts.removed)}")
    if counts.short:
        lines.append(f"{plural(counts.short, 'document')} skipped: fewer than 3 known words")
    if counts.undated:
        lines.append(f"{plural(counts.undated, 'document')} {IN_NO_BIN}")
    if model.timeline is not None and model.timeline.late:
        lines.append(
            f"{plural(model.timeline.late, 'document')} too late for their bin of event time"
        )
    lines.append(f"{counts.unseen_fraction:.1%} of {counts.tokens:,} tokens outside the vocabulary")
    return lines


def _private(found: FitResult, settings: RunSettings) -> list[str]:
    model, about = found.model, found.model.privacy
    first, last = about["cohort"]["first"], about["cohort"]["last"]
    file, folder = settings.output.file, settings.output.folder
    return [
        f"{model.n_components} topics over {model.n_features:,} words ({about['vocabulary']})",
        f"snapshot {model.settings['snapshot']:,}, of the record slots {first:,} to {last:,}; "
        f"{found.counts.records:,} slots read in {found.seconds:.1f} s",
        f"private: epsilon {about['epsilon']:g}, delta {about['delta']:g} for each "
        f"{about['privacy_unit']} ({about['neighboring_relation']}); "
        f"spent: streamlda budget {settings.privacy.ledger}",
        "numbers of documents, rejects and tokens are private and not shown",
        *([] if file is None or folder is not None else earlier_lines(file)),
    ]
