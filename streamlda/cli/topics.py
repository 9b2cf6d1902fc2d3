"""``streamlda topics``: show the topics of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import Any

import click

from streamlda.checks import require
from streamlda.cli.options import json_option, relevance_option, words_option
from streamlda.cli.shared import show_warnings
from streamlda.model.diagnostics import DOUBTS, exclusivity, junk_topics, nearest_topics
from streamlda.model.hierarchy import topic_tree
from streamlda.model.table import in_line, plural
from streamlda.model.topic_model import TopicModel, load
from streamlda.privacy.ledger.budget_table import printable
from streamlda.privacy.statement import PRIVATE, SEEDED, statement_lines


@click.command()
@click.argument("model_file", metavar="FILE", type=click.Path())
@words_option
@click.option(
    "--documents",
    is_flag=True,
    help="Also show the documents with most of each topic, if the fit kept any.",
)
@click.option(
    "--word",
    help="Show the topics of a word, the one with most of its tokens first. [default: none]",
)
@relevance_option
@json_option
def topics(
    model_file: str,
    n_words: int,
    documents: bool,
    word: str | None,
    relevance: float | None,
    as_json: bool,
) -> None:
    """Show the topics of the model in FILE, the most prevalent first.

    The share is of all tokens, as the fit measured it; a dash if it did not. NPMI says how well the
    10 most probable words go together in documents of the fit, -1 to 1, if it was counted. ? marks
    a topic that should not be relied on, and = one that repeats a more prevalent topic; the lines
    below the table say why. Phrases are in quotes. The header ends with the privacy statement. A
    private model shows record slots, since the number of documents is private. In JSON, the
    hierarchy lists how topics are joined: first and second below K are topics, and K + n is join n
    of the list.
    """
    model = load(model_file)
    model = model if relevance is None else model.rank_words(relevance)
    if word is not None:
        found = model.topics_of_word(word)
        if as_json:
            click.echo(json.dumps([each._asdict() for each in found]))
            return
        click.echo("topic  share of its tokens  probability  words")
        words = model.top_words(n_words)
        for each in found:
            row = f"{each.topic:5d} {each.share:20.1%} {each.probability:12.4f}  "
            click.echo(row + in_line(own for own, _ in words[each.topic]))
        return
    if as_json:
        click.echo(json.dumps(_describe(model, n_words, documents), ensure_ascii=False, indent=1))
        return
    click.echo("\n".join([*_header(model), "", *table(model, n_words, documents)]))
    show_warnings(model)


def _describe(model: TopicModel, n_words: int, documents: bool) -> dict[str, Any]:
    """Return a model as plain JSON values."""
    words, doubts, npmi = model.top_words(n_words), junk_topics(model), _npmi(model)
    since = None if model.interval is None else model.interval.prevalence
    own, near = exclusivity(model.components), nearest_topics(model.components)
    shown = _documents(model) if documents else None
    counted = not counts_slots(model)
    return {
        "documents_seen": model.documents_seen if counted else None,
        "tokens_seen": model.tokens_seen if counted else None,
        "places": None if counted else model.documents_seen,
        "alpha_0": model.alpha_0,
        "vocabulary": {
            "kind": None if model.vocabulary is None else model.vocabulary.kind,
            "words": model.n_features,
            "data_dependent": model.vocabulary is not None and model.vocabulary.data_dependent,
        },
        "privacy": dict(model.privacy),
        "warnings": model.diagnostics.get("warnings", []),
        "hierarchy": [
            {"first": int(first), "second": int(second), "height": height}
            for first, second, height, _ in topic_tree(model.components, model.weights).tolist()
        ],
        "topics": [
            {
                "topic": k,
                "name": model.names[k],
                "prevalence": model.shares[k],
                "interval_share": None if since is None else since[k],
                "alpha": float(model.alpha[k]),
                "npmi": npmi[k],
                "exclusivity": float(own[k]),
                "nearest": None if (found := near[k]) is None else found._asdict(),
                "doubts": list(doubts[k]),
                "words": [{"word": word, "probability": p} for word, p in words[k]],
                **({} if shown is None else {"documents": [dict(each) for each in shown[k]]}),
            }
            for k in model.order
        ],
    }


def table(model: TopicModel, n_words: int, documents: bool = False) -> list[str]:
    """Return the topics as lines, the most prevalent first."""
    words, doubts, npmi = model.top_words(n_words), junk_topics(model), _npmi(model)
    shown = _documents(model) if documents else None
    counted = any(value is not None for value in npmi)
    lines = [f"topic  share{'  NPMI' if counted else ''}   words"]
    for k in model.order:
        share = "     -" if model.shares[k] is None else f"{model.shares[k]:6.1%}"
        goes = "" if not counted else "     -" if npmi[k] is None else f" {npmi[k]:5.2f}"
        name = "" if model.names[k] is None else f"[{printable(str(model.names[k]))}] "
        row = f"{k:5d} {share}{goes} {_mark(doubts[k])} {name}"
        row += in_line(word for word, _ in words[k])
        lines.append(row)
        for each in () if shown is None else shown[k]:
            lines.append(f"      {each['proportion']:6.1%}   {printable(each['id'])}")
            text = printable(" ".join(each.get("text", "").split()))
            cut = wrap(text, 84, max_lines=3, placeholder=" …")
            lines += [15 * " " + line for line in cut]
    for reason, meaning in DOUBTS.items():
        if marked := [str(k) for k in model.order if reason in doubts[k]]:
            lines.append(f"    {_mark((reason,))} {meaning}: {', '.join(marked)}")
    return lines


def _mark(reasons: tuple[str, ...]) -> str:
    """Return the sign of doubts: of a copy another one, for its words may be good."""
    return " " if not reasons else "=" if reasons == ("copy",) else "?"


def _npmi(model: TopicModel) -> list[float | None]:
    """Return the NPMI of each topic; None where it was not counted."""
    found: list[float | None] | None = model.diagnostics.get("topic_npmi")
    return found or [None] * model.n_components


def _documents(model: TopicModel) -> Sequence[Sequence[Mapping[str, Any]]]:
    found = model.representative_documents
    require(
        found is not None,
        "a model must have documents to show",
        representative_documents=None,
        remedy="fit it with --set topics.representative_documents=N",
    )
    assert found is not None
    return found


def counts_slots(model: TopicModel) -> bool:
    """Tell whether the model comes from a private run, whose numbers are record slots."""
    return model.privacy.get("statement") in (PRIVATE, SEEDED)


def _header(model: TopicModel) -> list[str]:
    kind = "words without names" if model.vocabulary is None else model.vocabulary.kind
    kind = {"selected": "private selection"}.get(kind, kind)
    if kind == "learned":
        kind += ": the choice of words depends on the documents"
    if model.vocabulary is not None and model.vocabulary.names is not None:
        kind += ": columns are shown by words of the documents"
    size = f"documents   {model.documents_seen:,} ({plural(model.tokens_seen, 'token')})"
    if counts_slots(model):
        size = f"slots       {model.documents_seen:,} (public; the number of documents is private)"
    choice = model.diagnostics.get("refinement_choice")
    kept = isinstance(choice, dict) and choice.get("kept") == "start"
    unrefined = ", spectral: refined ones did not predict held-out documents better" * kept
    return [
        f"{plural(model.n_components, 'topic')}, alpha_0 {model.alpha_0:.3g}{unrefined}",
        size,
        f"vocabulary  {model.n_features:,} ({kind})",
        *statement_lines(model.privacy),
    ]
