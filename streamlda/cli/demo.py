"""``streamlda demo``: the main job on documents that every installation has."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from time import perf_counter

import click
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from streamlda.cli.options import number_option
from streamlda.cli.topics import table
from streamlda.estimator import StreamLDA
from streamlda.stream.source import open_source
from streamlda.text.analysis import TextAnalyzer
from streamlda.utils.process import resident_bytes

TOPICS = 14

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
@number_option("--documents", help="Most paragraphs to read. [default: all, some 20 thousand]")
@number_option("--topics", "n_topics", default=TOPICS, help="Topics to learn.")
def demo(documents: int | None, n_topics: int) -> None:
    """Learn topics from a stream that needs no download.

    The stream: paragraphs of the docstrings of the standard library, NumPy, SciPy, scikit-learn
    and Numba, in a shuffled order, each once.
    """
    click.echo(
        f"Learning {n_topics} topics, in one pass, from a stream of paragraphs: the docstrings of "
        "Python,\nNumPy, SciPy, scikit-learn and Numba on this machine."
    )
    path = _learn_docstrings(documents, n_topics)
    click.echo(
        f"\nLook further:\n  streamlda topics {path} --words 20\n"
        f"  echo 'the eigenvalues of a sparse matrix' | streamlda infer {path} - --top 3"
    )


def _learn_docstrings(documents: int | None, n_topics: int) -> Path:
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
    path = Path(tempfile.mkdtemp(prefix="streamlda-demo-"), "docstrings.model")
    model.save(path)
    return path
