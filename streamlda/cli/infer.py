"""``streamlda infer``: topic proportions of documents."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from streamlda.cli.options import options_of, read_settings
from streamlda.cli.reading import DOCUMENTS, read_documents
from streamlda.errors import VocabularyError
from streamlda.run.outputs import check_output

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from streamlda.model.topic_model import TopicModel
    from streamlda.text.vocabulary import Vocabulary

#: Decimals of a proportion in the output.
DECIMALS = 6


@click.command(short_help="Print the topic proportions of documents.")
@click.argument("model_file", metavar="FILE", type=click.Path())
@options_of("infer", (*DOCUMENTS, "source.id_field"))
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
def infer(model_file: str, output: str, top: int | None, **flags: Any) -> None:
    """Print a JSON line for each document of SOURCE..., in order.

    Members: record and location of the document, with --id-field its id, tokens of it that the
    model of FILE knows, and topics, the K proportions. A document without a known token has those
    of the prior.
    """
    import orjson

    from streamlda.model.topic_model import load

    settings = read_settings("infer", flags)
    if output != "-":
        check_output(output, [model_file, *settings.source.files])
    model = load(model_file)
    vocabulary = words_of(model)
    with ExitStack() as opened:
        target: BinaryIO = sys.stdout.buffer
        if output != "-":
            target = opened.enter_context(Path(output).open("wb"))
        for texts, locations, _ in read_documents(settings):
            batch = vocabulary.encode(texts).batch
            found = _shown(model.transform(batch), top)
            for at, length, row in zip(locations, batch.lengths.tolist(), found, strict=True):
                line = {
                    "record": at.record,
                    "location": at.location,
                    **({} if settings.source.id_field is None else {"id": at.id}),
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
        raise VocabularyError(
            "a model must have a vocabulary to read text, got a model of matrices; "
            "learn one with streamlda fit"
        )
    return model.vocabulary
