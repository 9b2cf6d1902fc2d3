"""``streamlda infer``: topic proportions of documents."""

from __future__ import annotations

import sys
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from streamlda.cli.sources import check_output, open_sources, read_blocks, source_options, warn

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streamlda.model.topic_model import TopicModel
    from streamlda.text.vocabulary import Vocabulary

#: Decimals of a proportion in the output.
DECIMALS = 6


@click.command(short_help="Print the topic proportions of documents.")
@click.argument("model_file", metavar="FILE", type=click.Path())
@source_options
@click.option(
    "--output",
    "-o",
    type=click.Path(),
    default="-",
    show_default=True,
    help="File to write; - is standard output.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    help="Only the N largest proportions, as pairs [topic, proportion]. [default: all, in order]",
)
def infer(
    model_file: str,
    sources: tuple[str, ...],
    file_format: str,
    text_field: str,
    compression: str,
    max_documents: int | None,
    output: str,
    top: int | None,
) -> None:
    """Print a JSON line for each document of SOURCE..., in order.

    Members: record and location of the document, tokens of it that the model of FILE knows, and
    topics, the K proportions. A document without a known token has those of the prior.
    """
    import orjson

    from streamlda.model.topic_model import load

    if output != "-":
        check_output(output, [model_file, *sources])
    model = load(model_file)
    vocabulary = words_of(model)
    with ExitStack() as opened:
        source = opened.enter_context(
            closing(open_sources(sources, file_format, text_field, compression))
        )
        target: BinaryIO = sys.stdout.buffer
        if output != "-":
            target = opened.enter_context(Path(output).open("wb"))
        for texts, places in read_blocks(source, max_documents, warn):
            batch = vocabulary.encode(texts).batch
            found = _shown(model.transform(batch), top)
            for place, length, row in zip(places, batch.lengths.tolist(), found, strict=True):
                line = {
                    "record": place.record,
                    "location": place.location,
                    "tokens": int(length),
                    "topics": row,
                }
                target.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
            # A slow pipe is answered poll by poll.
            target.flush()


def _shown(theta: NDArray[Any], top: int | None) -> list[Any]:
    import numpy as np

    rounded = theta.round(DECIMALS)
    if top is None:
        rows: list[Any] = rounded.tolist()
        return rows
    order = np.argsort(-theta, axis=1, kind="stable")[:, :top]
    values = np.take_along_axis(rounded, order, axis=1)
    return [
        list(zip(*pair, strict=True)) for pair in zip(order.tolist(), values.tolist(), strict=True)
    ]


def words_of(model: TopicModel) -> Vocabulary:
    """Return the vocabulary of a model that reads text."""
    if model.vocabulary is None:
        raise click.ClickException(
            "a model must have a vocabulary to read text, got a model of matrices; "
            "learn one with streamlda fit"
        )
    return model.vocabulary
