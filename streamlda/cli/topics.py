"""``streamlda topics``: show the topics of a model."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from streamlda.cli.options import words_option
from streamlda.cli.running import warn_of

if TYPE_CHECKING:
    from streamlda.model.topic_model import TopicModel


@click.command(short_help="Show the topics of a model.")
@click.argument("model_file", metavar="FILE", type=click.Path())
@words_option
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
def topics(model_file: str, n_words: int, as_json: bool) -> None:
    """Show the topics of the model in FILE, the most prevalent first.

    The share is that of all tokens, as measured by the fit; a dash where it was not. A
    question mark stands at topics that the documents do not support above sampling noise. The
    header ends with the privacy statement. A private model shows record slots, not
    documents: their number is private.
    """
    from streamlda.model.topic_model import load

    model = load(model_file)
    if as_json:
        click.echo(json.dumps(described(model, n_words), ensure_ascii=False, indent=1))
        return
    click.echo("\n".join([*_header(model), "", *table(model, n_words)]))
    warn_of(model)


def described(model: TopicModel, n_words: int) -> dict[str, Any]:
    """Return what the command shows as plain JSON values."""
    words = model.top_words(n_words)
    supported = _supported(model)
    counted = not _counts_slots(model)
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
        "topics": [
            {
                "topic": k,
                "share": model.shares[k],
                "supported": supported[k],
                "words": [{"word": word, "probability": p} for word, p in words[k]],
            }
            for k in model.order
        ],
    }


def table(model: TopicModel, n_words: int) -> list[str]:
    """Return the topics as lines, the most prevalent first."""
    words, supported = model.top_words(n_words), _supported(model)
    lines = ["topic  share   words"]
    for k in model.order:
        mark = " " if supported[k] else "?"
        share = "     -" if model.shares[k] is None else f"{model.shares[k]:6.1%}"
        lines.append(f"{k:5d} {share} {mark} {' '.join(word for word, _ in words[k])}")
    if not all(supported):
        lines.append("    ? does not stand above sampling noise: do not rely on it")
    return lines


def _supported(model: TopicModel) -> list[bool]:
    stored = model.diagnostics.get("topic_supported")
    return stored if isinstance(stored, list) else [True] * model.n_components


def _counts_slots(model: TopicModel) -> bool:
    """Tell whether the model comes from a private run, whose numbers are record slots."""
    from streamlda.privacy.statement import PRIVATE, SEEDED

    return model.privacy.get("statement") in (PRIVATE, SEEDED)


def _header(model: TopicModel) -> list[str]:
    from streamlda.privacy.statement import statement_lines

    kind = "words without names" if model.vocabulary is None else model.vocabulary.kind
    kind = {"selected": "private selection"}.get(kind, kind)
    if kind == "learned":
        kind += ": the choice of words depends on the documents"
    size = f"documents   {model.documents_seen:,} ({model.tokens_seen:,} tokens)"
    if _counts_slots(model):
        size = f"slots       {model.documents_seen:,} (the number of documents is private)"
    return [
        f"{model.n_components} topics, alpha_0 {model.alpha_0:.3g}",
        size,
        f"vocabulary  {model.n_features:,} ({kind})",
        *statement_lines(model.privacy),
    ]
