"""Finished models as one: topics that are one topic are mixed, all others are kept.

Tokens of words and topics add up, as if each model held its tables of counts: a topic of two models
is the mean of both by their tokens, and a word that one model does not know has no tokens there.
The prior is that of a mixture of documents, each with the prior of its model, weights w by
documents: the Dirichlet distribution with its means ``m_k = E theta_k`` and its
``S = E sum_k theta_k^2``::

    m = sum_i w_i alpha_i / a_i        S = sum_i w_i sum_k alpha_ik (alpha_ik + 1) / (a_i (a_i + 1))
    alpha = a m,   a = (1 - S) / (S - m'm)                                    a_i = sum_k alpha_ik
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.model import MAX_DISTANCE
from streamlda.model.diagnostics import warn_of_background
from streamlda.model.faults import check, fault
from streamlda.model.hierarchy import LEAST_WEIGHT, lasting_settings
from streamlda.model.matching import check_models, describe_vocabulary, matched_topics
from streamlda.model.naming import join_names, name_rows
from streamlda.model.over_time import Timeline
from streamlda.model.topics import Model, Topics
from streamlda.privacy.merged_statement import merged_statement
from streamlda.text.vocabulary import Vocabulary

Array = NDArray[np.float64]
Places = NDArray[np.intp]


class _Part(NamedTuple):
    """A model, and where its topics and words are in what it is merged to."""

    model: Topics
    rows: Places
    columns: Places

    def topics(self, values: Array, n: int) -> Array:
        """Return values of its topics, (..., K), as those of n topics; 0 where it has none."""
        found = np.zeros((*values.shape[:-1], n))
        found[..., self.rows] = values
        return found


def merged(
    models: Sequence[Model],
    *,
    max_distance: float = MAX_DISTANCE,
    names: Sequence[str] | None = None,
) -> Model:
    """Return what `TopicModel.merge` does; errors say the names, or else the places."""
    check_models(*models)
    named: Sequence[str | int] = names or range(len(models))
    known: dict[str, list[str | int]] = {}
    for name, model in zip(named, models, strict=True):
        known.setdefault(model.digest, []).append(name)
    check(
        len(known) == len(models) > 1,
        "models to merge",
        models=len(models),
        equal=next((equal for equal in known.values() if len(equal) > 1), "none"),
    )
    documents = [model.documents_seen for model in models]
    check(min(documents) > 0, "documents of models", documents_seen=documents)
    statement = merged_statement([model.privacy for model in models])
    found, places = models[0], [np.arange(models[0].n_components)]
    for model in models[1:]:
        one, other = _placed(found, model, max_distance)
        places = [one.rows[rows] for rows in places] + [other.rows]
        found = name_rows(type(found)(**_mixed(one, other)), _names(one, other))
    sources = [
        {
            "documents": model.documents_seen,
            "tokens": model.tokens_seen,
            "topics": rows.tolist(),
            "warnings": model.diagnostics.get("warnings", []),
        }
        for model, rows in zip(models, places, strict=True)
    ]
    diagnostics = {"merged_models": sources, "max_distance": max_distance}
    return warn_of_background(replace(found, privacy=statement, diagnostics=diagnostics))


def _placed(first: Topics, second: Topics, max_distance: float) -> tuple[_Part, _Part]:
    """Return where topics go: those with names before all others, then those of the first model."""
    columns = _columns(first, second)
    pairs = {j: i for i, j, _ in matched_topics(first, second, max_distance=max_distance)}
    K = first.n_components
    alone = [j for j in range(second.n_components) if j not in pairs]
    rows = {**pairs, **{j: K + n for n, j in enumerate(alone)}}
    theirs = np.array([rows[j] for j in range(second.n_components)], dtype=np.intp)
    named = np.zeros(K + len(alone), dtype=np.bool_)
    for own, model in ((np.arange(K), first), (theirs, second)):
        named[own] |= [name is not None for name in model.seed_names]
    place = np.empty(len(named), dtype=np.intp)
    place[np.argsort(~named, kind="stable")] = np.arange(len(named))
    return _Part(first, place[:K], columns[0]), _Part(second, place[theirs], columns[1])


def _names(*parts: _Part) -> list[str | None]:
    """Return the names of the topics of two parts, both names where they differ."""
    named: dict[int, list[str | None]] = {}
    for part in parts:
        for row, name in zip(part.rows.tolist(), part.model.names, strict=True):
            named.setdefault(row, []).append(name)
    return [join_names(named[row]) for row in sorted(named)]


def _columns(first: Topics, second: Topics) -> tuple[Places, Places]:
    """Return the columns of the words of two models among those of both."""
    mine, theirs = np.arange(first.n_features), np.arange(second.n_features)
    one, other = first.vocabulary, second.vocabulary
    if one == other and len(mine) == len(theirs):
        return mine, theirs
    if (
        one is None
        or other is None
        or one.words is None
        or other.words is None
        or one.analyzer != other.analyzer
    ):
        raise fault(
            "words of models", first=describe_vocabulary(first), second=describe_vocabulary(second)
        )
    column = {word: i for i, word in enumerate(one.words)}
    for word in other.words:
        column.setdefault(word, len(column))
    return mine, np.array([column[word] for word in other.words], dtype=np.intp)


def _mixed(one: _Part, other: _Part) -> dict[str, Any]:
    """Return the fields of the model of two parts; what one does not know is unknown."""
    parts = (one, other)
    models = [part.model for part in parts]
    K = 1 + max(int(part.rows.max()) for part in parts)
    V = 1 + max(int(part.columns.max()) for part in parts)
    documents = np.array([model.documents_seen for model in models], dtype=np.float64)
    tokens = [model.tokens_seen for model in models]
    sizes = np.array(tokens, dtype=np.float64) if min(tokens) > 0 else documents
    weights = np.array(
        [
            part.topics(np.maximum(size * part.model.weights, LEAST_WEIGHT), K)
            for part, size in zip(parts, sizes / sizes.sum(), strict=True)
        ]
    )
    # A topic that one model has alone has the part 1, and not a bit is changed.
    shares, part_of = weights / weights.sum(axis=0), documents / documents.sum()
    components, background = np.zeros((K, V)), np.zeros(V)
    for part, share, n in zip(parts, shares, part_of, strict=True):
        own = share[part.rows, None] * part.model.components
        components[np.ix_(part.rows, part.columns)] += own
        background[part.columns] += n * part.model.background
    measured = [
        part.topics(part.model.prevalence, K) for part in parts if part.model.prevalence is not None
    ]
    return {
        "components": components,
        "alpha": _alpha([part.topics(part.model.alpha, K) for part in parts], documents),
        "background": background,
        "prevalence": sizes @ measured / sizes.sum() if len(measured) == len(parts) else None,
        "timeline": _timeline(parts, K),
        "vocabulary": _vocabulary(parts, V),
        "settings": _settings(parts),
        "documents_seen": sum(model.documents_seen for model in models),
        "tokens_seen": sum(tokens) if min(tokens) > 0 else 0,
    }


def _alpha(alphas: Sequence[Array], documents: Array) -> Array:
    """Return the prior of documents of which each has one of these, (K,)."""
    weights, table = documents / documents.sum(), np.array(alphas)
    sums = table.sum(axis=1, keepdims=True)
    mean = weights @ (table / sums)
    second = weights @ np.sum(table * (table + 1) / (sums * (sums + 1)), axis=1)
    spread = second - mean @ mean
    # One topic, or a prior that leaves nothing open, has no spread.
    total = (1 - second) / spread if spread > 1e-12 else weights @ sums[:, 0]
    found: Array = total * mean
    return found


def _timeline(parts: Sequence[_Part], n_topics: int) -> Timeline | None:
    """Return the tokens of all by event time, where both know them in bins of one kind."""
    lines = [part.model.timeline for part in parts]
    known = [line for line in lines if line is not None]
    if len(known) < len(lines) or len({line.unit for line in known}) > 1:
        return None
    starts = np.unique(np.concatenate([line.starts for line in known]))
    if known[0].unit == "custom" and any(len(line.starts) < len(starts) for line in known):
        return None
    tokens, documents = np.zeros((len(starts), n_topics)), np.zeros(len(starts), dtype=np.int64)
    for part, line in zip(parts, known, strict=True):
        at = np.searchsorted(starts, line.starts)
        tokens[at] += part.topics(line.tokens, n_topics)
        documents[at] += line.documents
    return Timeline(
        unit=known[0].unit,
        starts=starts,
        tokens=tokens,
        documents=documents,
        undated=sum(line.undated for line in known),
        ahead=sum(line.ahead for line in known),
        late=sum(line.late for line in known),
    )


def _vocabulary(parts: Sequence[_Part], n_words: int) -> Vocabulary | None:
    """Return the words of both."""
    one, other = (part.model.vocabulary for part in parts)
    if one is None or other is None:
        return None
    if one.words is None or other.words is None:
        return replace(one, names=one.names or other.names)
    if one == other:
        return one
    words = [""] * n_words
    for part, each in zip(parts, (one, other), strict=True):
        for column, word in zip(part.columns.tolist(), each.words or (), strict=True):
            words[column] = word
    facts = [dict(each.selection) for each in (one, other) if each.selection is not None]
    kind = one.kind if one.kind == other.kind else "selected" if facts else "learned"
    if "learned" in (one.kind, other.kind):
        kind = "learned"
    return Vocabulary(
        kind,
        tuple(words),
        analyzer=one.analyzer,
        undercount=max(one.undercount, other.undercount),
        selection={"merged": facts} if kind == "selected" else None,
    )


def _settings(parts: Sequence[_Part]) -> dict[str, Any]:
    """Return the settings that both have, and the seeds of all."""
    one, other = (lasting_settings(part.model) for part in parts)
    common = {name: value for name, value in one.items() if name in other and other[name] == value}
    seeds: dict[int, dict[str, Any]] = {}
    for part in parts:
        for k, seed in enumerate(part.model.seeds):
            columns = part.columns[list(seed)].tolist()
            empty: dict[str, Any] = {"name": part.model.seed_names[k], "columns": []}
            known = seeds.setdefault(int(part.rows[k]), empty)
            known["columns"] += [column for column in columns if column not in known["columns"]]
    common.pop("seed_topics", None)
    return common | ({"seed_topics": [seeds[row] for row in sorted(seeds)]} if seeds else {})
