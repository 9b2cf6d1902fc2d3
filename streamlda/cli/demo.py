"""``streamlda demo``: the main job on documents that every installation has."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path
from time import perf_counter

import click
from sklearn.feature_extraction.text import ENGLISH_STOP_WORDS

from streamlda.cli.options import quiet_option
from streamlda.cli.shared import POLL_RECORDS, Progress
from streamlda.cli.topics import table
from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.model.evaluation import matched_l1_error
from streamlda.simulate import PlantedLDA
from streamlda.stream.pipeline import Pipeline
from streamlda.stream.source import RecordBatch, open_source
from streamlda.stream.vocabulary_choice import VocabularyLearner
from streamlda.text.analysis import TextAnalyzer
from streamlda.utils.process import resident_bytes

TOPICS = 14

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

#: The planted corpus: topics, words, documents, and tokens a document.
PLANTED = (14, 2000, 40_000, 60)


@click.command()
@click.option(
    "--documents",
    type=click.IntRange(min=100),
    help="Read at most this many paragraphs. [default: all, some 20 thousand]",
)
@click.option(
    "--topics",
    "n_topics",
    type=click.IntRange(min=1),
    default=TOPICS,
    show_default=True,
    help="Topics to learn.",
)
@quiet_option
def demo(documents: int | None, n_topics: int, quiet: bool) -> None:
    """Learn topics from a stream that needs no download, and check them where the truth is known.

    The stream: paragraphs of the docstrings of the standard library, NumPy, SciPy, scikit-learn
    and Numba, in a shuffled order, each once. The check: documents drawn from planted
    topics. Takes about 10 seconds on two cores.
    """
    click.echo(
        f"Learning {n_topics} topics, in one pass, from a stream of paragraphs: the docstrings of "
        "Python,\nNumPy, SciPy, scikit-learn and Numba on this machine."
    )
    path = _learn_docstrings(documents, n_topics, quiet)
    click.echo("\nThe same engine on documents drawn from planted topics, whose truth is known:")
    _learn_planted()
    click.echo(
        f"\nLook further:\n  streamlda topics {path} --words 20\n"
        f"  echo 'the eigenvalues of a sparse matrix' | streamlda infer {path} - --top 3"
    )


def _settings(n_topics: int, n_words: int, alpha_0: float = 1.0) -> EngineSettings:
    return EngineSettings(
        n_components=n_topics,
        n_features=n_words,
        alpha_0=alpha_0,
        warmup_documents=20_000,
        refine=False,
    )


def _drop_repeats(batch: RecordBatch, seen: set[int]) -> RecordBatch:
    """Return those texts of a batch that were not `seen` before: documentation repeats itself."""
    kept = [text for text in dict.fromkeys(batch.documents) if hash(text) not in seen]
    seen.update(map(hash, kept))
    return RecordBatch([*kept, *[None] * len(batch.rejects)], batch.rejects, batch.exhausted)


def _learn_docstrings(documents: int | None, n_topics: int, quiet: bool) -> Path:
    start = perf_counter()
    words = VocabularyLearner(
        size=2000,
        min_document_frequency=10,
        max_document_frequency=0.1,
        analyzer=TextAnalyzer(stop_words={*ENGLISH_STOP_WORDS, *COMMON.split()}),
    )
    pipeline = Pipeline(words, lambda v, _: Engine(_settings(n_topics, v.n_features, ALPHA_0)))
    counts, seen, ended = pipeline.counts, set[int](), False
    with closing(open_source("docstrings")) as source, Progress(quiet) as progress:
        while not ended and counts.documents != documents:
            left = POLL_RECORDS if documents is None else documents - counts.documents
            batch = source.poll(min(left, POLL_RECORDS))
            pipeline.add(_drop_repeats(batch, seen))
            progress.show(source, counts)
            ended = batch.exhausted
    released = pipeline.release()
    if (model := released.model) is None:
        raise pipeline.insufficient(released.missed)
    seconds = perf_counter() - start
    click.echo("\n" + "\n".join(table(model, 9)))
    click.echo(
        f"\n{counts.documents:,} paragraphs, {model.tokens_seen:,} tokens, "
        f"{model.n_features:,} words in {seconds:.1f} s: "
        f"{counts.documents / seconds:,.0f} documents/s, "
        f"{resident_bytes() / 1e6:,.0f} MB of memory"
    )
    path = Path(tempfile.mkdtemp(prefix="streamlda-demo-"), "docstrings.model")
    model.save(path)
    return path


def _learn_planted() -> None:
    n_topics, n_words, n_documents, length = PLANTED
    planted = PlantedLDA(n_topics, n_words, mean_length=length, seed=0)
    documents = planted.documents(n_documents)
    start = perf_counter()
    engine = Engine(_settings(n_topics, n_words))
    engine.add(documents)
    model = engine.snapshot()
    seconds = perf_counter() - start
    error = matched_l1_error(planted.components, model.components).mean
    click.echo(
        f"{n_documents:,} documents, {n_topics} topics, {n_words:,} words in {seconds:.1f} s: "
        f"mean L1 error {error:.3f} of a topic (0 exact, 2 worst)"
    )
