"""``streamlda simulate``: documents from planted topics, to try things on."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, BinaryIO

import click

from streamlda.run.outputs import check_output

if TYPE_CHECKING:
    from streamlda.model.topic_model import TopicModel
    from streamlda.simulate import PlantedLDA

SUFFIXES = (".txt", ".jsonl", ".txt.gz", ".jsonl.gz")

#: Documents drawn and written at once.
BLOCK_DOCUMENTS = 4096


@click.command(short_help="Write documents drawn from planted topics.")
@click.option("--documents", "-n", type=click.IntRange(min=1), required=True, help="Documents.")
@click.option("--topics", "-k", type=click.IntRange(min=1), required=True, help="Topics to plant.")
@click.option(
    "--vocabulary-size", type=click.IntRange(min=1), required=True, help="Distinct words."
)
@click.option(
    "--alpha-0",
    type=float,
    default=1.0,
    show_default=True,
    help="Sum of the Dirichlet parameters of a document's topic proportions.",
)
@click.option(
    "--topic-concentration",
    type=float,
    default=0.05,
    show_default=True,
    help="Dirichlet parameter of the topics; small values give few words to each.",
)
@click.option(
    "--mean-length",
    type=float,
    default=80.0,
    show_default=True,
    help="Mean length of a document, in tokens.",
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Seed.")
@click.option(
    "--output",
    "-o",
    type=click.Path(),
    required=True,
    help=f"File to write: {', '.join(SUFFIXES)}.",
)
@click.option(
    "--truth",
    type=click.Path(),
    help="Model file to write, with the planted topics. [default: none]",
)
def simulate(
    documents: int,
    topics: int,
    vocabulary_size: int,
    alpha_0: float,
    topic_concentration: float,
    mean_length: float,
    seed: int,
    output: str,
    truth: str | None,
) -> None:
    """Write documents whose topics are known, one a line, to text or JSON Lines.

    The words are made up; none is a stop word. Some may be in so many documents that streamlda fit
    leaves them out (with 10 topics of 1,000 words 5 % of the tokens); --set
    vocabulary.max_document_frequency=1.0 keeps them. Compare what was learned with the truth by:
    streamlda evaluate MODEL OTHER_DOCUMENTS --truth TRUTH.
    """
    if not output.endswith(SUFFIXES):
        raise click.UsageError(f"--output must end in one of {', '.join(SUFFIXES)}, got {output!r}")
    check_output(output)
    if truth is not None:
        check_output(truth, [output])
    from streamlda.simulate import PlantedLDA

    planted = PlantedLDA(
        topics,
        vocabulary_size,
        alpha_0=alpha_0,
        topic_concentration=topic_concentration,
        mean_length=mean_length,
        seed=seed,
    )
    words = made_up_words(vocabulary_size)
    as_json = ".jsonl" in output
    with _output(output) as file:
        for start in range(0, documents, BLOCK_DOCUMENTS):
            drawn = planted.draw(min(BLOCK_DOCUMENTS, documents - start))
            named = [words[word] for word in drawn.token_ids.tolist()]
            bounds = drawn.offsets.tolist()
            for begin, end in pairwise(bounds):
                text = " ".join(named[begin:end])
                file.write(f"{json.dumps({'text': text}) if as_json else text}\n".encode())
    if truth is not None:
        planted_model(planted, words).save(truth)


def made_up_words(n: int) -> list[str]:
    """Return `n` words of one length, in letters only: a token pattern may leave out digits."""
    width = 3
    while 26**width < n:
        width += 1
    words = []
    for number in range(n):
        letters = ""
        for _ in range(width):
            number, digit = divmod(number, 26)
            letters = chr(ord("a") + digit) + letters
        # No stop word begins with z.
        words.append(f"z{letters}")
    return words


def planted_model(planted: PlantedLDA, words: list[str]) -> TopicModel:
    """Return planted topics as a model, as if they had been learned without error."""
    from streamlda.model.topic_model import TopicModel
    from streamlda.text.vocabulary import Vocabulary

    return TopicModel(
        components=planted.components,
        prevalence=planted.alpha / planted.alpha.sum(),
        alpha=planted.alpha,
        background=planted.alpha @ planted.components / planted.alpha.sum(),
        vocabulary=Vocabulary.given(words),
        settings={"planted": True, "seed": planted.seed, "mean_length": planted.mean_length},
    )


@contextmanager
def _output(path: str) -> Iterator[BinaryIO]:
    """Open a file, compressed for .gz, that takes its name only when all of it is written."""
    from streamlda.container import whole_file

    with whole_file(path) as raw:
        if not path.endswith(".gz"):
            yield raw
            return
        # Without name and time, equal documents give equal bytes.
        packed = gzip.GzipFile("", "wb", 6, raw, mtime=0)
        with packed, io.BufferedWriter(packed) as buffered:
            yield buffered
