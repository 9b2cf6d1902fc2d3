"""``streamlda reduce``: a model of fewer topics, of a finished one."""

from __future__ import annotations

import click

from streamlda.checks import require
from streamlda.cli.options import number_option, output_option, quiet_option
from streamlda.cli.shared import say, show_warnings
from streamlda.model.table import plural
from streamlda.model.topic_model import load
from streamlda.run.outputs import check_output


@click.command()
@click.argument("model_file", metavar="FILE", type=click.Path())
@number_option("--topics", "-k", "n_topics", required=True, help="Topics to leave.")
@output_option("Model file to write.")
@quiet_option
def reduce(model_file: str, n_topics: int, output: str, quiet: bool) -> None:
    """Write the model in FILE with fewer topics: those that are most alike are joined.

    Each step joins the two topics that lose least. The loss grows with their distance and with
    their share of the tokens, so small topics are joined first. The report draws the tree of all
    joins (streamlda report), and streamlda topics --json has it. NPMI and documents to show are
    left out. The privacy statement stays. Keep FILE to go back.
    """
    check_output(output, [model_file])
    before = load(model_file)
    require(
        n_topics <= before.n_components,
        "--topics must be at most the topics of the model",
        topics=n_topics,
        of=before.n_components,
        remedy="name fewer",
    )
    model = before.reduce(n_topics)
    model.save(output)
    groups = [group for group in model.diagnostics["reduced_from"] if len(group) > 1]
    joined = [f"joined: {', '.join(map(str, group))}" for group in groups]
    topics = f"{plural(model.n_components, 'topic')} of {before.n_components}"
    say(quiet, topics, *joined, f"model: {output}")
    show_warnings(model)
