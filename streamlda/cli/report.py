"""``streamlda report``: show models on one page that can be sent and kept."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import click

from streamlda.cli.options import output_option, quiet_option, relevance_option, words_option
from streamlda.cli.shared import say
from streamlda.model.table import plural
from streamlda.model.topic_model import load
from streamlda.report import write_report
from streamlda.run.outputs import check_output


@click.command()
@click.argument("model_files", metavar="FILE...", nargs=-1, required=True, type=click.Path())
@output_option("HTML file to write.")
@click.option(
    "--title", default="Topic report", show_default=True, help="Heading of the page, as plain text."
)
@words_option
@relevance_option
@quiet_option
def report(
    model_files: tuple[str, ...],
    output: str,
    title: str,
    n_words: int,
    relevance: float | None,
    quiet: bool,
) -> None:
    """Write a page about the model in FILE, or about how topics changed from FILE to FILE.

    With several files, oldest first, the topics of the last are shown and followed through the
    others: topic 3 stays topic 3. The numbers are those that streamlda topics gives the first
    model; topics that came later get the next free ones.

    The page is one HTML file that loads nothing: topics with their prevalence, a map of how near
    they are, the eigenvalues with their noise, topics that are not reliable, changes, the privacy
    statement, settings and versions. All of it comes from the models, so that the page of a private
    model is as private as the model.

    The model of a stream with event times shows the bins that it counted.
    """
    check_output(output, model_files)
    models = [load(path) for path in model_files]
    if relevance is not None:
        models = [model.rank_words(relevance) for model in models]
    write_report(output, models, labels(model_files), title=title, n_words=n_words)
    compared = "" if len(models) == 1 else f", compared over {plural(len(models), 'model')}"
    say(quiet, f"{plural(models[-1].n_components, 'topic')}{compared}", f"report: {output}")


def labels(paths: Sequence[str]) -> list[str]:
    """Return a short name for each file: its name, with a number where two have the same one."""
    stems = [Path(path).stem for path in paths]
    total, seen = Counter(stems), Counter[str]()
    named = []
    for stem in stems:
        seen[stem] += 1
        named.append(stem if total[stem] == 1 else f"{stem} ({seen[stem]})")
    return named
