"""``streamlda evaluate``: how well a model fits documents, and how its topics read."""

from __future__ import annotations

import json
import math
from typing import Any

import click

from streamlda.cli.options import Given, SettingsCommand, json_option
from streamlda.cli.shared import DOCUMENTS, TASKS, read_documents
from streamlda.model.coherence import NPMI_WORDS, NpmiCounter
from streamlda.model.evaluation import DocumentCompletion, top_words, topic_diversity
from streamlda.model.inference import SMOOTHING
from streamlda.model.table import NOTHING, named_words
from streamlda.model.topic_model import TopicModel, load
from streamlda.privacy.ledger.budget_table import printable
from streamlda.settings.run_settings import RunSettings
from streamlda.storage.snapshots import get_words
from streamlda.text.encoding import UNREADABLE


@click.command(cls=SettingsCommand, reader="evaluate", tasks=TASKS, names=DOCUMENTS)
@click.argument("model_file", metavar="FILE", type=click.Path())
@json_option
def evaluate(model_file: str, as_json: bool, given: Given) -> None:
    """Measure the model of FILE on the documents of SOURCE..., which it should not have seen.

    perplexity: of the held-out half of each document's tokens, given the other half; lower is
    better. unigram_perplexity: of the same tokens by the word frequencies alone. npmi: how often
    the ten most probable words of a topic occur in one document, against chance, -1 to 1; mean and
    each topic; in few documents it is low for many topics. streamlda topics shows the same measure
    in documents of the fit. diversity: share of distinct words among these words, 0 to 1.
    unseen_share: tokens outside the vocabulary.
    """
    settings = given.read()
    model = load(model_file)
    found = _measure(model, settings)
    # JSON has no infinity; a perplexity is infinite when a held-out word is in no topic.
    for name, value in found.items():
        found[name] = None if isinstance(value, float) and not math.isfinite(value) else value
    if as_json:
        click.echo(json.dumps(found))
        return
    topics = found.pop("topics")
    for name, value in found.items():
        shown = f"{value:,.4f}" if isinstance(value, float) else f"{value:,}" if value else value
        click.echo(f"{name:20} {shown}")
    click.echo("\ntopic   NPMI   words")
    # Those that the numbers are of.
    words = model.rank_words(1).top_words(NPMI_WORDS)
    for topic in topics:
        k, npmi = topic["topic"], topic["npmi"]
        shown = NOTHING if npmi is None else f"{npmi:.3f}"
        listed = printable(named_words(topic["name"], (word for word, _ in words[k])))
        click.echo(f"{k:5} {shown:>6}   {listed}")


def _measure(model: TopicModel, settings: RunSettings) -> dict[str, Any]:
    vocabulary = get_words(model)
    completion = DocumentCompletion(
        model.components, model.alpha, model.background, smoothing=SMOOTHING
    )
    top = top_words(model.components, min(NPMI_WORDS, model.n_features))
    # One word alone has no pairs.
    counter = NpmiCounter(top) if top.shape[1] > 1 else None
    tokens = unseen = 0
    for documents in read_documents(settings):
        encoded = vocabulary.encode(documents.texts)
        documents.rejects[UNREADABLE] += len(encoded.unreadable)
        tokens += encoded.tokens
        unseen += encoded.unseen_tokens
        completion.add(encoded.batch)
        if counter is not None:
            counter.add(encoded.batch)
    result = completion.result()
    coherence = None if counter is None else counter.result()
    return {
        "perplexity": result.perplexity,
        "unigram_perplexity": result.unigram_perplexity,
        "npmi": None if coherence is None else coherence.mean,
        "diversity": topic_diversity(top),
        "documents": result.documents,
        "held_out_tokens": result.held_out_tokens,
        "unseen_share": unseen / max(1, tokens),
        "topics": [
            {
                "topic": k,
                "name": model.names[k],
                "npmi": None if coherence is None else float(coherence.per_topic[k]),
            }
            for k in model.order
        ],
    }
