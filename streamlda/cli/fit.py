"""``streamlda fit``: learn topics from documents, to the end of their source."""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from streamlda.cli import options, shared
from streamlda.cli.options import command
from streamlda.errors import InsufficientDataError
from streamlda.settings.setting import FIT

if TYPE_CHECKING:
    from streamlda.run.fit import FitResult
    from streamlda.settings.table import RunSettings

TASKS = {
    "Documents": (
        *("source.format", "source.encoding", "source.text_field", "source.time_field"),
        *("source.time_format", "vocabulary.stop_words", "vocabulary.file"),
    ),
    "Topics": ("topics.count", "topics.seeds", "topics.seed"),
    "Output and cluster": ("output.file", "cluster.dask"),
    "Privacy": ("privacy.epsilon", "privacy.delta", "privacy.ledger", "snapshots.every"),
}

DETAILS = """
Ctrl-C (or SIGTERM) saves a model of what was read and exits with 130 (143); a second one ends at
once. If a source fails midway, a model of what was read is saved too, and the exit code is 74. A
model at --output stays until the new one is complete. A Kafka topic (kafka.bootstrap, kafka.topic)
is read up to its present end. With checkpoint.folder, an interrupted run continues from its last
checkpoint. Documents beyond memory.kept are followed as a stream, not fitted together.

With --epsilon the model is differentially private: each snapshot is paid for in the --ledger before
its noise is drawn. --output is the newest snapshot; all go to output.folder, if it is
set, and streamlda budget LEDGER --publish writes each once more. Numbers
of documents, rejects and tokens are private and not shown; standard error is only for the owner of
the documents.
"""


@command(reader=FIT, tasks=TASKS, epilog=DETAILS)
def fit(quiet: options.Quiet, flags: options.Values) -> None:
    """Learn topics from the documents of SOURCE... and write a model file.

    A SOURCE is a file, a directory, a glob, an fsspec URL, or - for standard input. Settings may
    also come from a file (--config) or from variables STREAMLDA_SECTION_KEY.

    Example: streamlda fit reviews.jsonl --topics 20 --output reviews.model
    """
    settings = flags.read()
    warnings.showwarning = lambda message, *_, **__: shared.warn(str(message))
    from streamlda.run.parts import check_outputs

    check_outputs(settings)
    with shared.Progress(quiet, slots=settings.private) as progress:
        number, found = _fit(settings, progress, quiet)
    lines = _private(found, settings) if settings.private else _public(found)
    if found.stopped:
        part = found.model.diagnostics.get("stopped", "source")
        lines.append(f"stopped before the end of the {part}")
    shared.say(quiet, *lines, f"model: {settings.output.file}")
    counts = found.counts
    if not settings.private:
        shared.warn_about(counts)
    shared.show_warnings(found.model)
    if found.failure is not None:
        # The model of what could be read is saved; the exit code says that it is not all.
        raise found.failure
    if not settings.private:
        where = f"the model of the rest is in {settings.output.file}"
        shared.check_lost(counts, found.stored_bytes, settings, where)
    if number:
        raise SystemExit(128 + number)


def _fit(settings: RunSettings, progress: shared.Progress, quiet: bool) -> tuple[int, FitResult]:
    """Learn here or on a cluster; return the number of the signal that ended it too, 0 for none."""

    def on_opened() -> None:
        if settings.private:
            from streamlda.cli.private import show_expected

            show_expected(settings, quiet)

    # A signal means: save what was read. A private fit on a cluster ends at once.
    ends = settings.cluster.dask is not None and settings.private
    signals: AbstractContextManager[list[int]] = (
        nullcontext([]) if ends else shared.catch_signals(quiet)
    )
    with signals as received:
        more: dict[str, Any] = {
            "should_stop": lambda: bool(received),
            "on_opened": on_opened,
            "warn": shared.warn,
        }
        try:
            if settings.cluster.dask is None:
                from streamlda.run.fit import fit as fit_here

                found = fit_here(settings, on_progress=progress.show, **more)
            else:
                from streamlda.run.cluster import fit_on_cluster

                more |= {"on_plan": lambda line: shared.say(quiet, line)}
                found = fit_on_cluster(settings, on_progress=progress.show_round, **more)
        except InsufficientDataError as error:
            if not received:
                raise
            click.echo(f"streamlda: error: stopped before a model was learned: {error}", err=True)
            raise SystemExit(128 + received[0]) from None
    return (received or [0])[0], found


def _public(result: FitResult) -> list[str]:
    from streamlda.documents import MOST_BINS
    from streamlda.model.table import plural

    model, counts, words = result.model, result.counts, result.pipeline.vocabulary
    assert words is not None
    learned = (
        f" from {plural(result.pipeline.vocabulary_documents, 'document')}" * words.data_dependent
    )
    speed = round(counts.documents / max(result.seconds, 1e-9))
    lines = [
        f"{plural(model.n_components, 'topic')} over {plural(model.n_features, 'word')} "
        f"({words.kind}{learned})",
        f"{plural(counts.documents, 'document')} in {result.seconds:.1f} s "
        f"({plural(speed, 'document')}/s)",
    ]
    if left_out := {reason: n for reason, n in (words.left_out or {}).items() if n}:
        least = " (at least)" * bool(words.undercount)
        counted = ", ".join(f"{n:,} {reason}" for reason, n in left_out.items())
        lines.append(f"words left out{least}: {counted}")
    runs = words.runs or {}
    if none := {kind: n for kind, n in runs.items() if n and kind != "words"}:
        shares = ", ".join(f"{n / sum(runs.values()):.1%} {kind}" for kind, n in none.items())
        lines.append(f"share of the first documents that is no word: {shares}")
    if changes := model.settings.get("vocabulary_changes"):
        entered = plural(changes["entered"], "word")
        lines.append(f"{entered} entered the vocabulary, {changes['left']:,} left it")
    if counts.removed:
        lines.append(f"removed from texts: {shared.format_reasons(counts.removed)}")
    fates = {
        "skipped: too few known words": counts.short - counts.few_words,
        "of one or two known words: they count in shares and in a refinement": counts.few_words,
        "without an event time": counts.undated,
        "in no bin: later than source.most_ahead from now": counts.ahead,
        f"far from the {MOST_BINS:,} bins of event time that are kept; snapshots.time_bins sets "
        "longer ones": 0 if model.timeline is None else model.timeline.late,
    }
    lines += [f"{plural(n, 'document')} {fate}" for fate, n in fates.items() if n]
    share = counts.unseen_tokens / max(1, counts.tokens)
    unseen = f"{share:.1%} of {plural(counts.tokens, 'token')}"
    return [*lines, f"{unseen} outside the vocabulary"]


def _private(result: FitResult, settings: RunSettings) -> list[str]:
    from streamlda.model.table import plural

    model, about = result.model, result.model.privacy
    first, last = about["cohort"]["first"], about["cohort"]["last"]
    return [
        f"{plural(model.n_components, 'topic')} over {plural(model.n_features, 'word')} "
        f"({about['vocabulary']})",
        f"snapshot {model.settings['snapshot']:,}, of the record slots {first:,} to {last:,}; "
        f"{plural(result.counts.records, 'slot')} read in {result.seconds:.1f} s",
        f"private: epsilon {about['epsilon']:g}, delta {about['delta']:g} for each "
        f"{about['privacy_unit']} ({about['neighboring_relation']}); to see what is spent: "
        f"streamlda budget {settings.privacy.ledger}",
        "numbers of documents, rejects and tokens are private and not shown; the number of records "
        "is not hidden",
    ]
