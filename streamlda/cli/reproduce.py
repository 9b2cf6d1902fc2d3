"""``streamlda reproduce``: figures and theorems of the papers run again."""

from __future__ import annotations

from pathlib import Path

import click

from streamlda.cli.options import quiet_option
from streamlda.cli.shared import say
from streamlda.papers.reproduce.items import IN_A_CLONE, items
from streamlda.papers.reproduce.kinds import judged
from streamlda.papers.reproduce.runner import check_files, find, line_of, run, write
from streamlda.papers.reproduce.scenarios import REPRODUCTIONS

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.argument("name", required=False)
@click.option("--list", "listed", is_flag=True, help="Print what is in the papers, and names.")
@click.option("--fast", is_flag=True, help="Small sizes: under 2 minutes on 2 cores.")
@click.option(
    "--output",
    "-o",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    help="Folder for NAME.png and NAME.csv. [default: this one]",
)
@click.option("--mnist", type=FILE, help="Images of MNIST, for cape-figure-2. [default: none]")
@click.option("--covertype", type=FILE, help="Covertype, for cape-figure-2. [default: none]")
@click.option("--corpus", type=FILE, help="Reviews, for dplda-figure-3. [default: none]")
@click.option("--stand-ins", is_flag=True, help="Other data for --mnist and --covertype.")
@quiet_option
def reproduce(
    name: str | None,
    listed: bool,
    fast: bool,
    output: Path,
    mnist: Path | None,
    covertype: Path | None,
    corpus: Path | None,
    stand_ins: bool,
    quiet: bool,
) -> None:
    """Compute a result of a paper again and compare: figures, a verdict, PNG and CSV.

    --list prints every item of the papers: its import, its test and what was measured beside the
    paper, and the names. A figure that needs data names the file, where to download it and its
    checksum; --corpus may be a .tar.gz of reviews or JSON Lines. --fast has small sizes; what they
    cannot reach is not judged.
    """
    if listed == (name is not None):
        raise click.UsageError("reproduce needs a NAME, or --list")
    if name is None:
        _list()
        return
    reproduction = find(name)
    data = {"mnist": mnist, "covertype": covertype, "corpus": corpus}
    files = {key: path for key, path in data.items() if path is not None}
    contenders = check_files(reproduction, files, stand_ins)
    output.mkdir(parents=True, exist_ok=True)

    def on_case(label: str, done: int, cases: int) -> None:
        say(quiet, f"{done + 1} of {cases}: {label}")

    result = run(reproduction, files, contenders, fast=fast, on_case=on_case)
    written = [str(path) for path in write(reproduction, result, output)]
    verdict, figures = reproduction.verdict(result), judged(reproduction, result)
    click.echo(f"{name}: {reproduction.claim}")
    for figure in figures:
        mark = {None: "", True: ", met", False: ", missed"}[figure.met]
        target = "" if figure.target == "-" else f" ({figure.target}{mark})"
        click.echo(f"  {figure.name}: {figure.measured}{target}")
    click.echo(f"{line_of(verdict)}{' (small sizes)' if fast else ''}")
    click.echo(f"written: {', '.join(written)}")


def _list() -> None:
    click.echo("paper: item -> import from streamlda.papers -> private -> test -> measured")
    for item in items():
        line = f"{item.paper}: {' -> '.join(item[1:])}"
        click.echo(line.replace("`", "").replace("**", ""))
    click.echo("Names:")
    for name, each in REPRODUCTIONS.items():
        click.echo(f"  {name:18} {each.claim}")
    click.echo(IN_A_CLONE)
