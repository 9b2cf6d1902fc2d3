"""``streamlda simulate``: documents from planted topics, to try things on."""

from __future__ import annotations

import json
from itertools import pairwise, product
from string import ascii_lowercase

import click

from streamlda.cli.options import number_option, output_option, path_option
from streamlda.container import whole_file
from streamlda.model.topic_model import TopicModel
from streamlda.run.outputs import check_output
from streamlda.simulate import PlantedLDA
from streamlda.text.vocabulary import Vocabulary

SUFFIXES = (".txt", ".jsonl")

#: Documents drawn and written at once.
BLOCK_DOCUMENTS = 4096


@click.command()
@number_option("--documents", "-n", required=True, help="Documents.")
@number_option("--topics", "-k", required=True, help="Topics to plant.")
@number_option("--vocabulary-size", required=True, help="Distinct words.")
@number_option("--alpha-0", type=click.FLOAT, default=1.0, help="Sum of the Dirichlet parameters.")
@number_option("--mean-length", type=click.FLOAT, default=80.0, help="Mean tokens of a document.")
@number_option("--seed", type=click.IntRange(min=0), default=0, help="Seed.")
@output_option(f"File to write: {' or '.join(SUFFIXES)}.")
@path_option("--truth", "truth", "Model file of the planted topics. [default: none]", False)
def simulate(
    documents: int,
    topics: int,
    vocabulary_size: int,
    alpha_0: float,
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
        raise click.UsageError(f"--output must end in {' or '.join(SUFFIXES)}, got {output!r}")
    check_output(output)
    if truth is not None:
        check_output(truth, [output])
    planted = PlantedLDA(
        topics, vocabulary_size, alpha_0=alpha_0, mean_length=mean_length, seed=seed
    )
    words = make_up_words(vocabulary_size)
    with whole_file(output) as file:
        for start in range(0, documents, BLOCK_DOCUMENTS):
            drawn = planted.draw(min(BLOCK_DOCUMENTS, documents - start))
            named = [words[word] for word in drawn.token_ids.tolist()]
            for begin, end in pairwise(drawn.offsets.tolist()):
                text = " ".join(named[begin:end])
                line = json.dumps({"text": text}) if output.endswith(".jsonl") else text
                file.write(f"{line}\n".encode())
    if truth is not None:
        TopicModel(
            components=planted.components,
            prevalence=planted.alpha / planted.alpha.sum(),
            alpha=planted.alpha,
            background=planted.alpha @ planted.components / planted.alpha.sum(),
            vocabulary=Vocabulary.given(words),
            settings={"planted": True, "seed": seed, "mean_length": mean_length},
        ).save(truth)


def make_up_words(n: int) -> list[str]:
    """Return `n` words of one length, in letters only: a token pattern may leave out digits."""
    width = 3
    while 26**width < n:
        width += 1
    # No stop word begins with z.
    letters = product(ascii_lowercase, repeat=width)
    return ["z" + "".join(word) for word, _ in zip(letters, range(n), strict=False)]
