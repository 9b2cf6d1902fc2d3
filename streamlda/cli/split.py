"""``streamlda split``: a topic of a finished model as several, by documents."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from streamlda.checks import require
from streamlda.cli.options import (
    GroupedCommand,
    options_of,
    output_option,
    quiet_option,
    read_settings,
)
from streamlda.cli.reading import DOCUMENTS, read_documents
from streamlda.cli.running import say, warn_of
from streamlda.run.outputs import check_output

if TYPE_CHECKING:
    from streamlda.documents import DocumentBatch


@click.command(cls=GroupedCommand, short_help="Divide a topic of a model, by documents.")
@click.argument("model_file", metavar="FILE", type=click.Path())
@options_of("split", DOCUMENTS)
@click.option("--topic", type=int, required=True, help="Topic to divide.")
@click.option(
    "--topics",
    "-k",
    "n_topics",
    type=click.IntRange(min=2),
    default=2,
    show_default=True,
    help="Topics to divide it into.",
)
@output_option("Model file to write.")
@quiet_option
def split(
    model_file: str, topic: int, n_topics: int, output: str, quiet: bool, **flags: Any
) -> None:
    """Write the model in FILE with one topic divided, using the documents of SOURCE...

    A finished model holds no documents: give those that it was fitted to. Their words that most
    likely belong to the topic are fitted by as many topics as there are parts. The parts together
    are the topic to the last token; the largest keeps its number, the others come last. All other
    topics stay as they are. Private models are refused: reading documents would exceed the privacy
    budget.
    """
    from streamlda.engine.splitting import split_topic
    from streamlda.model.table import in_line, plural
    from streamlda.model.topic_model import load
    from streamlda.storage.newest import words_of
    from streamlda.text.encoding import UNREADABLE

    settings = read_settings("split", flags)
    check_output(output, [model_file, *settings.source.files])
    before = load(model_file)
    require(
        0 <= topic < before.n_components,
        "--topic must be a topic of the model",
        topic=topic,
        topics=before.n_components,
        remedy="streamlda topics lists them",
    )

    def batches() -> Iterator[DocumentBatch]:
        words = words_of(before)
        for documents in read_documents(settings):
            encoded = words.encode(documents.texts)
            documents.rejects[UNREADABLE] += len(encoded.unreadable)
            yield encoded.batch

    model = split_topic(before, topic, batches(), n_topics=n_topics)
    model.save(output)
    divided, top = model.diagnostics["split"], model.top_words(8)
    say(
        quiet,
        f"{plural(divided['documents'], 'document')} with words of topic {topic}",
        *(f"{row:5d}   {in_line(word for word, _ in top[row])}" for row in divided["rows"]),
        f"model: {output}",
    )
    warn_of(model)
