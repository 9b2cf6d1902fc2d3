"""``streamlda choose-topics``: several numbers of topics, judged on the same documents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from streamlda.cli.options import Given, SettingsCommand, output_option, quiet_option
from streamlda.cli.shared import DOCUMENTS, TASKS, read_documents, say
from streamlda.container import whole_file
from streamlda.run.outputs import check_output

#: Settings of the words that are learned, and of the fits.
WORDS = (
    *("size", "documents", "min_document_frequency", "max_document_frequency", "stop_words"),
    *("token_pattern", "clean", "phrases", "ngrams"),
)
NAMES = (*DOCUMENTS, *(f"vocabulary.{name}" for name in WORDS), "topics.seed")


@click.command(
    "choose-topics", cls=SettingsCommand, reader="choose-topics", tasks=TASKS, names=NAMES
)
@click.option(
    "--topics", "-k", "counts", default="5,10,20,40,80", show_default=True, metavar="K,K...",
    help="Numbers of topics to fit.",
)  # fmt: skip
@click.option(
    "--held-out", type=click.FloatRange(0, 1), default=0.1, show_default=True,
    help="Share of the documents to judge on.",
)  # fmt: skip
@output_option("CSV file to write.")
@click.option("--plot", type=click.Path(), help="Picture (SVG) to write. [default: none]")
@quiet_option
def choose_topics(
    counts: str, held_out: float, output: str, plot: str | None, quiet: bool, given: Given
) -> None:
    """Fit several numbers of topics to the documents of SOURCE..., and compare them.

    A row of the table is a number of topics: perplexity of held-out documents (lower is better);
    nats a token that it is behind the best, and their standard error; coherence (NPMI) of the ten
    most probable words in all documents; diversity; processor seconds of its fit. No fit has
    seen the held-out documents, which are the same for all; equal documents are on one side.

    Each number costs a fit; all together cost two to three times the largest. Documents are kept in
    memory.
    """
    from streamlda.choosing import MOST_ERRORS, check_counts, judge_counts
    from streamlda.settings.build import words_to_learn

    if not all(count.strip().isdecimal() for count in counts.split(",")):
        raise click.UsageError(f"--topics must be numbers such as 10,20,40, got {counts[:40]!r}")
    numbers = check_counts([int(count) for count in counts.split(",")])
    settings = given.read()
    for path in (output, plot):
        if path is not None:
            check_output(path, settings.source.files)
    topics = replace(settings.topics, count=max(numbers))
    learner = words_to_learn(replace(settings, topics=topics))
    texts = [text for documents in read_documents(settings) for text in documents.texts]
    found = judge_counts(
        texts,
        numbers,
        learner,
        held_out=held_out,
        seed=settings.topics.seed,
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
        f"{MOST_ERRORS:g} standard errors",
        *(f"wrote {path}" for path in (output, plot) if path is not None),
    )
