"""``streamlda evaluate`` and ``choose-topics``: topics judged on held-out documents."""

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import click

from streamlda.cli import options
from streamlda.cli.options import SHARE, command, option, output
from streamlda.cli.shared import DOCUMENTS, TASKS, read_documents, say
from streamlda.container import whole_file
from streamlda.model.coherence import NPMI_WORDS, NpmiCounter
from streamlda.model.evaluation import DocumentCompletion, top_words, topic_diversity
from streamlda.model.inference import SMOOTHING
from streamlda.model.table import label_words
from streamlda.model.topic_model import TopicModel, load
from streamlda.privacy.ledger.budget_table import printable
from streamlda.settings.build import words_to_learn
from streamlda.settings.table import RunSettings
from streamlda.storage.snapshots import get_words
from streamlda.text.encoding import UNREADABLE

#: Settings of the words that are learned, and of the fits, of `choose_topics`.
LEARNED = (
    *("size", "documents", "min_document_frequency", "max_document_frequency", "stop_words"),
    *("token_pattern", "clean", "phrases", "ngrams"),
)
NAMES = (*DOCUMENTS, *(f"vocabulary.{name}" for name in LEARNED), "topics.seed")


@command(reader="evaluate", tasks=TASKS, names=DOCUMENTS)
def evaluate(model_file: options.ModelFile, as_json: options.AsJson, flags: options.Values) -> None:
    """Measure the model of FILE on the documents of SOURCE..., which it should not have seen.

    perplexity: of the held-out half of each document's tokens, given the other half; lower is
    better. unigram_perplexity: of the same tokens by the word frequencies alone. npmi: how often
    the ten most probable words of a topic occur in one document, against chance, -1 to 1; mean and
    each topic; in few documents it is low for many topics. streamlda topics shows the same measure
    in documents of the fit. diversity: share of distinct words among these words, 0 to 1.
    unseen_share: tokens outside the vocabulary.
    """
    settings = flags.read()
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
        k = topic["topic"]
        listed = printable(label_words(topic["name"], (word for word, _ in words[k])))
        click.echo(f"{k:5} {topic['npmi']:6.3f}   {listed}")


def _measure(model: TopicModel, settings: RunSettings) -> dict[str, Any]:
    vocabulary = get_words(model)
    completion = DocumentCompletion(
        model.components, model.alpha, model.background, smoothing=SMOOTHING
    )
    top = top_words(model.components, min(NPMI_WORDS, model.n_features))
    counter = NpmiCounter(top)
    tokens = unseen = 0
    for documents in read_documents(settings):
        encoded = vocabulary.encode(documents.texts)
        documents.counts.rejects[UNREADABLE] += len(encoded.unreadable)
        tokens += encoded.tokens
        unseen += encoded.unseen_tokens
        completion.add(encoded.batch)
        counter.add(encoded.batch)
    result = completion.result()
    coherence = counter.result()
    npmi = coherence.per_topic.tolist()
    return {
        "perplexity": result.perplexity,
        "unigram_perplexity": result.unigram_perplexity,
        "npmi": coherence.mean,
        "diversity": topic_diversity(top),
        "documents": result.documents,
        "held_out_tokens": result.held_out_tokens,
        "unseen_share": unseen / max(1, tokens),
        "topics": [{"topic": k, "name": model.names[k], "npmi": npmi[k]} for k in model.order],
    }


Counts = Annotated[
    str,
    option("--topics -k", "Numbers of topics to fit.", default="5,10,20,40,80", metavar="K,K..."),
]
HELD_OUT = "Share of the documents to judge on."


@command(name="choose-topics", reader="choose-topics", tasks=TASKS, names=NAMES)
def choose_topics(
    counts: Counts,
    held_out: Annotated[float, option("--held-out", HELD_OUT, type=SHARE, default=0.1)],
    output: Annotated[str, output("CSV file to write.")],
    plot: Annotated[str | None, output("Picture (SVG) to write.", "--plot", default=None)],
    quiet: options.Quiet,
    flags: options.Values,
) -> None:
    """Fit several numbers of topics to the documents of SOURCE..., and compare them.

    A row of the table is a number of topics: perplexity of held-out documents (lower is better);
    nats a token that it is behind the best, and their standard error; coherence (NPMI) of the ten
    most probable words in all documents; diversity; processor seconds of its fit. No fit has
    seen the held-out documents, which are the same for all; equal documents are on one side.

    All fits together cost two to three times the largest. Documents are kept in memory.
    """
    from streamlda import choosing

    if not all(count.strip().isdecimal() for count in counts.split(",")):
        raise click.UsageError(f"--topics must be numbers such as 10,20,40, got {counts[:40]!r}")
    numbers = [int(count) for count in counts.split(",")]
    settings = flags.read()
    most = replace(settings, topics=replace(settings.topics, count=max(numbers)))
    found = choosing.choose_topics(
        [text for documents in read_documents(settings) for text in documents.texts],
        numbers,
        held_out=held_out,
        analyzer=words_to_learn(most),
        random_state=settings.topics.seed,
        on_fit=lambda n: say(quiet, f"fitting {n} topics"),
    )
    for path, text in ((output, found.csv()), (plot, found.svg())):
        if path is not None:
            with whole_file(Path(path)) as file:
                file.write(text.encode())
    click.echo("topics  perplexity   behind     NPMI  diversity  CPU s")
    for each in found.tried:
        behind = f"{each.behind:.3f}" if each.behind else "best"
        click.echo(
            f"{each.topics:6} {each.perplexity:11,.1f} {behind:>8} {each.npmi:8.3f} "
            f"{each.diversity:10.2f} {each.cpu_seconds:6.1f}"
        )
    say(
        quiet,
        f"{found.documents:,} documents fitted, {found.held_out_documents:,} held out "
        f"({found.held_out_tokens:,} tokens); without topics {found.unigram_perplexity:,.1f}",
        f"{found.fewest} topics are the fewest that predict as well as the best, within "
        f"{choosing.MOST_ERRORS:g} standard errors",
        *(f"wrote {path}" for path in (output, plot) if path is not None),
    )
