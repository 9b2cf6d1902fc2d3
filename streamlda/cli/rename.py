"""``streamlda rename``: names of topics, in a model file or for the page of a daemon."""

from __future__ import annotations

from pathlib import Path

import click

from streamlda.cli.options import output_option, quiet_option
from streamlda.cli.shared import say
from streamlda.model.table import plural
from streamlda.model.topic_model import load
from streamlda.run.outputs import check_output
from streamlda.storage.snapshots import Snapshots


@click.command()
@click.argument("path", metavar="FILE|FOLDER", type=click.Path())
@click.argument("names", metavar="TOPIC=NAME...", nargs=-1, required=True)
@output_option("Model file to write, of FILE. [default: none]", required=False)
@quiet_option
def rename(path: str, names: tuple[str, ...], output: str | None, quiet: bool) -> None:
    """Name topics: of the model in FILE, or of the snapshots in FOLDER. TOPIC= takes a name away.

    The names of a model are shown with its topics everywhere. Topics are numbered as streamlda
    topics does. FOLDER is that of a daemon, which may be running: names stand beside its snapshots,
    which are not changed, by the numbers of its page, and stay with these topics in all later
    snapshots. The page, its routes and streamlda infer FOLDER show them.

    Example: streamlda rename news.model 3=sport "7=local politics" --output named.model
    """
    found = dict(map(_parsed, names))
    is_folder = Path(path).is_dir()
    if is_folder == bool(output):
        raise click.UsageError("--output must be given with a model file, and only with one")
    if output is None:
        Snapshots(path).rename(found)
    else:
        check_output(output, [path])
        load(path).rename(found).save(output)
    where = [] if output is None else [f"model: {output}"]
    say(quiet, f"{plural(len(found), 'name')} set", *where)


def _parsed(text: str) -> tuple[int, str | None]:
    number, equals, name = text.partition("=")
    if not (equals and number.isdecimal()):
        raise click.UsageError(f"a name must be TOPIC=NAME, as in 3=sport, got {text[:40]!r}")
    return int(number), name.strip() or None
