"""``streamlda evaluate``: how well a model fits documents, and how its topics read."""

from __future__ import annotations

import json
import math
from typing import Any

import click

from streamlda.cli.options import Given, SettingsCommand, json_option
from streamlda.cli.shared import DOCUMENTS, TASKS, read_documents
from streamlda.model.coherence import NpmiCounter
from streamlda.model.evaluation import (
    DocumentCompletion,
    top_words,
    topic_diversity,
)
from streamlda.model.inference import SMOOTHING
from streamlda.model.topic_model import TopicModel, load
from streamlda.settings.run_settings import RunSettings
from streamlda.storage.snapshots import get_words
from streamlda.text.encoding import UNREADABLE, count_tokens

#: Words of a topic that coherence and diversity look at.
TOP_WORDS = 10


@click.command(cls=SettingsCommand, reader="evaluate", tasks=TASKS, names=DOCUMENTS)
@click.argument("model_file", metavar="FILE", type=click.Path())
@json_option
def evaluate(model_file: str, as_json: bool, given: Given) -> None:
    """Measure the model of FILE on the documents of SOURCE..., which it should not have seen.

    perplexity: of the held-out half of each document's tokens, given the other half; lower is
    better. unigram_perplexity: of the same tokens by the word frequencies alone. npmi: coherence
    of the ten top words of the topics in these documents, -1 to 1. diversity: share of distinct
    words among the top words, 0 to 1. unseen_share: tokens outside the vocabulary.
    """
    settings = given.read()
    found = _measure(load(model_file), settings)
    # JSON has no infinity; a perplexity is infinite when a held-out word is in no topic.
    for name, value in found.items():
        found[name] = None if isinstance(value, float) and not math.isfinite(value) else value
    if as_json:
        click.echo(json.dumps(found))
        return
    for name, value in found.items():
        shown = f"{value:,.4f}" if isinstance(value, float) else f"{value:,}" if value else value
        click.echo(f"{name:20} {shown}")


def _measure(model: TopicModel, settings: RunSettings) -> dict[str, Any]:
    vocabulary = get_words(model)
    completion = DocumentCompletion(
        model.components, model.alpha, model.background, smoothing=SMOOTHING
    )
    # N-grams come without word order; one word alone has no pairs.
    in_order = vocabulary.analyzer.unigrams
    top = top_words(model.components, min(TOP_WORDS, model.n_features))
    coherence = None
    if top.shape[1] > 1:
        coherence = NpmiCounter(top) if in_order else NpmiCounter(top, window=None)
    tokens = unseen = 0
    for documents in read_documents(settings):
        unreadable: list[int] = []
        ids, offsets = vocabulary.token_ids(documents.texts, unreadable)
        documents.rejects[UNREADABLE] += len(unreadable)
        batch = count_tokens(ids, offsets, vocabulary.n_features)
        tokens += len(ids)
        unseen += int((ids < 0).sum())
        completion.add(batch)
        if coherence is not None and in_order:
            coherence.add(ids, offsets)
        elif coherence is not None:
            coherence.add_batch(batch)
    result = completion.result()
    return {
        "perplexity": result.perplexity,
        "unigram_perplexity": result.unigram_perplexity,
        "npmi": None if coherence is None else coherence.result().mean,
        "diversity": topic_diversity(top),
        "documents": result.documents,
        "held_out_tokens": result.held_out_tokens,
        "unseen_share": unseen / max(1, tokens),
    }
