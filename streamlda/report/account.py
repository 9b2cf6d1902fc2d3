"""The sections of a report that account for it: what is promised, and how the models were made."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from streamlda.privacy.statement import statement_lines
from streamlda.report.facts import Facts
from streamlda.report.markup import Markup, element, joined
from streamlda.report.parts import count, counts_places, details, told_as_is
from streamlda.report.promise import bears_out, in_plain_words


def privacy(facts: Facts) -> Markup:
    """Return what is promised, in plain words and in full, for each model."""
    parts = []
    kept = [bears_out(model.privacy) for model in facts.models]
    if any(kept) and not all(kept):
        text = "Private and other models are on this page together: as a whole it promises nothing."
        parts.append(element("p", element("strong", text), class_="trouble"))
    told: dict[str, list[str]] = {}
    for label, model in zip(facts.labels, facts.models, strict=True):
        full = json.dumps(dict(model.privacy), indent=1, ensure_ascii=False, sort_keys=True)
        told.setdefault(full, []).append(label)
    for full, labels in reversed(told.items()):
        statement = json.loads(full)
        if len(told) > 1:
            parts.append(element("h3", ", ".join(labels), dir="auto"))
        sentences = [element("p", text) for text in in_plain_words(statement)]
        parts.append(element("div", *sentences, class_="prose"))
        name = f"Privacy statement of {', '.join(labels)}"
        lines = "\n".join(statement_lines(statement))
        parts.append(told_as_is(lines, name))
        if bears_out(statement):
            parts.append(details("All of the statement", told_as_is(full, f"{name}, in full")))
    return joined(parts)


def making(facts: Facts) -> Markup:
    """Return how each model was made."""
    parts = []
    for label, model in reversed(list(zip(facts.labels, facts.models, strict=True))):
        unit = "places" if counts_places(model) else "documents"
        seen = f"{model.documents_seen:,} {unit}"
        kind = "words without names" if model.vocabulary is None else model.vocabulary.kind
        rows = [
            ("made", model.created),
            ("seen", seen + (f", {model.tokens_seen:,} tokens" if model.tokens_seen else "")),
            ("vocabulary", f"{kind}, {count(model.n_features, 'word', 'words')}"),
            ("settings", _plainly(model.settings)),
            ("versions", _plainly(model.versions)),
        ]
        warnings = model.diagnostics.get("warnings")
        if isinstance(warnings, list) and warnings:
            # The fit numbers topics by their rows, which follow no topic over models.
            rows.append(("warnings of the fit", "\n".join(map(str, warnings))))
        terms = [
            element("div", element("dt", name), element("dd", told, dir="auto"))
            for name, told in rows
            if told
        ]
        made = element("dl", *terms, class_="made")
        parts.append(element("details", element("summary", label, dir="auto"), made))
    return joined(parts)


def _plainly(values: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {json.dumps(value, ensure_ascii=False) if not isinstance(value, str) else value}"
        for name, value in values.items()
        if value is not None
    )
