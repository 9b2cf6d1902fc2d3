"""``streamlda topics``: show the topics of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import click

from streamlda.checks import require
from streamlda.cli.options import words_option
from streamlda.cli.shared import show_warnings

if TYPE_CHECKING:
    from streamlda.model.topic_model import TopicModel

#: From this fraction of its words on, a topic says that they are of columns that words share.
MANY_SHARED = 0.3


@click.command(short_help="Show the topics of a model.")
@click.argument("model_file", metavar="FILE", type=click.Path())
@words_option
@click.option(
    "--documents",
    is_flag=True,
    help="Also show the documents with most of each topic, if the fit kept any.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def topics(model_file: str, n_words: int, documents: bool, as_json: bool) -> None:
    """Show the topics of the model in FILE, the most prevalent first.

    The share is of all tokens, as the fit measured it; a dash if it did not. NPMI says how well the
    first 10 words go together in documents, -1 to 1, if it was counted. ? marks a topic that should
    not be relied on, and = one that repeats a more prevalent topic; the lines below the table say
    why. Words joined by | share a hashed column; phrases are in quotes. The header ends with the
    privacy statement. A private model shows record slots, since the number of documents is private.
    In JSON, the hierarchy lists how topics are joined: first and second below K are topics, and K +
    n is join n of the list.
    """
    from streamlda.model.topic_model import load

    model = load(model_file)
    if as_json:
        click.echo(json.dumps(described(model, n_words, documents), ensure_ascii=False, indent=1))
        return
    click.echo("\n".join([*_header(model), "", *table(model, n_words, documents)]))
    show_warnings(model)


def described(model: TopicModel, n_words: int, documents: bool = False) -> dict[str, Any]:
    """Return what the command shows as plain JSON values."""
    from streamlda.model.diagnostics import exclusivity, junk_topics, nearest_topics
    from streamlda.model.hierarchy import topic_tree

    words, doubts = model.top_words(n_words), junk_topics(model)
    since = None if model.interval is None else model.interval.prevalence
    own, near = exclusivity(model.components), nearest_topics(model.components)
    npmi = _npmi(model)
    shared = model.shared_columns(n_words)
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
                "shared_columns": shared[k],
                "words": [{"word": word, "probability": p} for word, p in words[k]],
                **({} if shown is None else {"documents": [dict(each) for each in shown[k]]}),
            }
            for k in model.order
        ],
    }


def table(model: TopicModel, n_words: int, documents: bool = False) -> list[str]:
    """Return the topics as lines, the most prevalent first."""
    from streamlda.model.diagnostics import DOUBTS, junk_topics
    from streamlda.model.table import in_line
    from streamlda.privacy.ledger.budget_table import printable

    words, doubts = model.top_words(n_words), junk_topics(model)
    npmi, shared = _npmi(model), model.shared_columns(n_words)
    counted = any(value is not None for value in npmi)
    lines = [f"topic  share{'  NPMI' if counted else ''}   words"]
    for k in model.order:
        mark = _mark(doubts[k])
        share = "     -" if model.shares[k] is None else f"{model.shares[k]:6.1%}"
        goes = "" if not counted else "     -" if npmi[k] is None else f" {npmi[k]:5.2f}"
        name = "" if model.names[k] is None else f"[{printable(str(model.names[k]))}] "
        line = f"{k:5d} {share}{goes} {mark} {name}{in_line(word for word, _ in words[k])}"
        if shared[k] >= MANY_SHARED * len(words[k]):
            line += f"  ({shared[k]} of {len(words[k])} columns are shared)"
        lines.append(line)
        for each in _documents(model)[k] if documents else ():
            lines.append(f"      {each['proportion']:6.1%}   {printable(each['id'])}")
            lines += _beginning(printable(" ".join(each.get("text", "").split())))
    for reason, meaning in DOUBTS.items():
        if marked := [str(k) for k in model.order if reason in doubts[k]]:
            lines.append(f"    {_mark((reason,))} {meaning}: {', '.join(marked)}")
    if any(shared):
        lines.append("    a|b are words that share a hashed column: more hash bits separate them")
    return lines


def _mark(reasons: tuple[str, ...]) -> str:
    """Return the sign of doubts: of a copy another one, for its words may be good."""
    return " " if not reasons else "=" if reasons == ("copy",) else "?"


def _npmi(model: TopicModel) -> list[float | None]:
    """Return the NPMI of each topic; None where it was not counted."""
    found: list[float | None] | None = model.diagnostics.get("topic_npmi")
    return found or [None] * model.n_components


def _documents(model: TopicModel) -> Sequence[Sequence[Mapping[str, Any]]]:
    require(
        model.representative_documents is not None,
        "a model must have documents to show",
        representative_documents=None,
        remedy="fit it with --set topics.representative_documents=N",
    )
    assert model.representative_documents is not None
    return model.representative_documents


def _beginning(text: str) -> list[str]:
    """Return the first lines of a text, indented."""
    indent = 15 * " "
    return wrap(
        text, 99, initial_indent=indent, subsequent_indent=indent, max_lines=3, placeholder=" …"
    )


def counts_slots(model: TopicModel) -> bool:
    """Tell whether the model comes from a private run, whose numbers are record slots."""
    from streamlda.privacy.statement import PRIVATE, SEEDED

    return model.privacy.get("statement") in (PRIVATE, SEEDED)


def _header(model: TopicModel) -> list[str]:
    from streamlda.model.table import plural
    from streamlda.privacy.statement import statement_lines

    kind = "words without names" if model.vocabulary is None else model.vocabulary.kind
    kind = {"selected": "private selection"}.get(kind, kind)
    if kind == "learned":
        kind += ": the choice of words depends on the documents"
    if model.vocabulary is not None and model.vocabulary.names is not None:
        kind += ": columns are shown by words of the documents"
    size = f"documents   {model.documents_seen:,} ({plural(model.tokens_seen, 'token')})"
    if counts_slots(model):
        size = f"slots       {model.documents_seen:,} (the number of documents is private)"
    choice = model.diagnostics.get("refinement_choice")
    kept = isinstance(choice, dict) and choice.get("kept") == "start"
    return [
        f"{plural(model.n_components, 'topic')}, alpha_0 {model.alpha_0:.3g}"
        + (", spectral: refined ones did not predict held-out documents better" if kept else ""),
        size,
        f"vocabulary  {model.n_features:,} ({kind})",
        *statement_lines(model.privacy),
    ]
