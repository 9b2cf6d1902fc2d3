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
    relevance_option,
    words_option,
)
from streamlda.cli.shared import DOCUMENTS, read_documents, say
from streamlda.model.table import plural
from streamlda.model.topic_model import TopicModel, load
from streamlda.report import write_report
from streamlda.report.documents import DocumentSurvey
from streamlda.run.outputs import check_output
from streamlda.settings.load import load_settings

#: Settings of the documents of a report.
TASKS = {
    "Documents": (
        *("source.format", "source.encoding", "source.text_field", "source.id_field"),
        *("source.class_field", "source.time_field", "source.time_format", "snapshots.time_bins"),
    )
}
NAMES = tuple(name for name in DOCUMENTS if name != "source.files")


@click.command(cls=SettingsCommand, reader="report", tasks=TASKS, names=NAMES, has_file=False)
@click.argument("model_files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@output_option("HTML file to write.")
@click.option(
    "--title", default="Topic report", show_default=True, help="Heading of the page, as plain text."
)
@click.option(
    "--documents",
    multiple=True,
    type=click.Path(),
    help="File of documents to draw by the last model; may be repeated. [default: none]",
)
@words_option
@relevance_option
@quiet_option
def report(
    model_files: tuple[str, ...],
    output: str,
    title: str,
    documents: tuple[str, ...],
    n_words: int,
    relevance: float | None,
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
    model is as private as the model; the model of documents with event times shows its bins.

    With --documents the page also has a map of them, a uniform sample of 2,000 at most; topics by
    --class-field; and topics by the --time-bins of --time-field. None of their text is on the page
    but, of the documents on the map, the first 120 characters of --id-field (a title, an id or the
    text), by which they can be searched. The report of a private model has no documents.
    """
    check_output(output, [*model_files, *documents])
    models = [load(path) for path in model_files]
    if relevance is not None:
        models = [model.rank_words(relevance) for model in models]
    survey = _read_survey(models[-1], documents, given)
    named = labels(model_files)
    write_report(output, models, named, title=title, n_words=n_words, survey=survey)
    compared = "" if len(models) == 1 else f", compared over {plural(len(models), 'model')}"
    say(quiet, f"{plural(models[-1].n_components, 'topic')}{compared}", f"report: {output}")


def _read_survey(model: TopicModel, files: tuple[str, ...], given: Given) -> DocumentSurvey | None:
    """Return the topics of documents in files, None without files."""
    if not files:
        if given.values:
            raise click.UsageError("options of documents need --documents FILE")
        return None
    flags = given.values | {"source.files": files}
    known = [*given.command.settings, "source.files"]
    settings = load_settings(None, None, flags, "report", known, given.command.flags)
    source, unit = settings.source, settings.snapshots.time_bins
    survey = DocumentSurvey(
        model,
        unit=None if source.time_field is None else unit,
        has_classes=source.class_field is not None,
    )
    for documents in read_documents(settings):
        titles = [at.id for at in documents.locations]
        survey.add(documents.texts, titles=titles, classes=documents.classes, times=documents.times)
    return survey


def labels(paths: Sequence[str]) -> list[str]:
    """Return a short name for each file: its name, with a number where two have the same one."""
    stems = [Path(path).stem for path in paths]
    total, seen = Counter(stems), Counter[str]()
    named = []
    for stem in stems:
        seen[stem] += 1
        named.append(stem if total[stem] == 1 else f"{stem} ({seen[stem]})")
    return named
