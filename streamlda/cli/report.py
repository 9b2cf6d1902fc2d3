"""``streamlda report``: show models on one page that can be sent and kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from streamlda.cli.options import (
    Given,
    SettingsCommand,
    output_option,
    quiet_option,
    words_option,
)
from streamlda.cli.shared import DOCUMENTS, IN_NO_BIN, read_documents, say, warn_about_rejects
from streamlda.model.table import plural
from streamlda.model.topic_model import load
from streamlda.report import follow_over_time, write_report
from streamlda.run.outputs import check_output
from streamlda.text.encoding import UNREADABLE

#: Settings of the documents that are read for shares over time.
DATED = tuple(name for name in DOCUMENTS if name != "source.files")
TASKS = {
    "Documents": ("source.format", "source.text_field", "source.time_field", "snapshots.time_bins")
}


@click.command(cls=SettingsCommand, reader="report", tasks=TASKS, names=DATED)
@click.argument("model_files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@output_option("HTML file to write.")
@click.option(
    "--title", default="Topic report", show_default=True, help="Heading of the page, as plain text."
)
@words_option
@click.option(
    "--over-time",
    "corpus",
    metavar="SOURCE",
    multiple=True,
    help="Documents whose topics are shown over time; may be repeated. [default: none]",
)
@quiet_option
def report(
    model_files: tuple[str, ...],
    output: str,
    title: str,
    n_words: int,
    corpus: tuple[str, ...],
    quiet: bool,
    given: Given,
) -> None:
    """Write a page about the model in FILE, or about how topics changed from FILE to FILE.

    With several files, oldest first, the topics of the last are shown and followed through the
    others: topic 3 stays topic 3. The numbers are those that streamlda topics gives the first
    model; topics that came later get the next free ones.

    The page is one HTML file that loads nothing: topics with their prevalence, a map of how near
    they are, the eigenvalues with their noise, topics that are not reliable, changes, the privacy
    statement, settings and versions. All of it comes from the models, so that the page of a private
    model is as private as the model.

    With --over-time and --time-field it also has the shares of topics in each bin of event time:
    SOURCE is read once, and the last model infers each document. Without them, a model of a stream
    with event times shows the bins that it counted.
    """
    dated = "source.time_field" in given.values
    if bool(corpus) != dated or (given.values and not corpus):
        raise click.UsageError("--over-time and --time-field must come together")
    settings = given.read(**{"source.files": corpus or ("-",)})
    check_output(output, [*model_files, *corpus])
    models = [load(path) for path in model_files]
    over_time = None
    if corpus:
        records = (
            record
            for documents in read_documents(settings)
            for record in zip(documents.texts, documents.times, strict=True)
        )
        over_time = follow_over_time(models[-1], records, settings.snapshots.time_bins)
    write_report(
        output, models, labels(model_files), title=title, n_words=n_words, over_time=over_time
    )
    compared = "" if len(models) == 1 else f", compared over {plural(len(models), 'model')}"
    shown = [f"{plural(models[-1].n_components, 'topic')}{compared}"]
    if over_time is not None:
        timeline = over_time.timeline
        shown.append(f"{plural(int(timeline.documents.sum()), 'document')} over time")
        if timeline.undated:
            shown.append(f"{plural(timeline.undated, 'document')} {IN_NO_BIN}")
    say(quiet, *shown, f"report: {output}")
    if over_time is not None and over_time.unreadable:
        warn_about_rejects(Counter({UNREADABLE: over_time.unreadable}))


def labels(paths: Sequence[str]) -> list[str]:
    """Return a short name for each file: its name, with a number where two have the same one."""
    stems = [Path(path).stem for path in paths]
    total, seen = Counter(stems), Counter[str]()
    named = []
    for stem in stems:
        seen[stem] += 1
        named.append(stem if total[stem] == 1 else f"{stem} ({seen[stem]})")
    return named
