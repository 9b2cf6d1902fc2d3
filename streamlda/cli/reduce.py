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
@number_option("--topics", "-k", "n_topics", help="Topics to leave. [default: none]")
@click.option(
    "--merge",
    "groups",
    metavar="T,T...",
    multiple=True,
    help="Topics to join; repeatable. [default: none]",
)
@output_option("Model file to write.")
@quiet_option
def reduce(
    model_file: str, n_topics: int | None, groups: tuple[str, ...], output: str, quiet: bool
) -> None:
    """Write the model in FILE with fewer topics: chosen ones, or those most alike, are joined.

    With --topics each step joins the two topics that lose least. The loss grows with their distance
    and with their share of the tokens, so small topics are joined first. The report draws the tree
    of all joins (streamlda report), and streamlda topics --json has it. --merge 3,7 joins these
    two. Names are joined; NPMI and documents to show are left out. The privacy statement stays.
    Keep FILE to go back.
    """
    if (n_topics is None) == (not groups):
        raise click.UsageError("either --topics or --merge must be given")
    check_output(output, [model_file])
    before = load(model_file)
    if n_topics is None:
        model = before.merge_topics(list(map(_parsed, groups)))
    else:
        require(
            n_topics <= before.n_components,
            "--topics must be at most the topics of the model",
            topics=n_topics,
            of=before.n_components,
            remedy="name fewer",
        )
        model = before.reduce(n_topics)
    model.save(output)
    made = [group for group in model.diagnostics["reduced_from"] if len(group) > 1]
    joined = [f"joined: {', '.join(map(str, group))}" for group in made]
    topics = f"{plural(model.n_components, 'topic')} of {before.n_components}"
    say(quiet, topics, *joined, f"model: {output}")
    show_warnings(model)


def _parsed(group: str) -> list[int]:
    numbers = group.split(",")
    if not all(number.strip().isdecimal() for number in numbers):
        raise click.UsageError(f"--merge must be topics such as 3,7, got {group[:40]!r}")
    return list(map(int, numbers))
