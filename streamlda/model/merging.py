"""Finished models as one: topics that are one topic are mixed, all others are kept.

Tokens of words and topics add up, as if each model held its tables of counts: a topic of two models
is the mean of both by their tokens, and a word that one model does not know has no tokens there.
The prior is the mean of the priors by documents.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np
from numpy.typing import NDArray

from streamlda.model import MAX_DISTANCE
from streamlda.model.diagnostics import warn_of_background
from streamlda.model.faults import check, fault
from streamlda.model.hierarchy import LEAST_WEIGHT, keep_settings
from streamlda.model.matching import check_models, match_topics
from streamlda.model.naming import join_names, name_rows
from streamlda.model.topics import Model, Topics
from streamlda.privacy.merged_statement import merge_statements
from streamlda.text.vocabulary import Vocabulary

Places = NDArray[np.intp]


def merge_models(
    models: Sequence[Model],
    *,
    max_distance: float = MAX_DISTANCE,
    names: Sequence[str] | None = None,
) -> Model:
    """Merge models as `TopicModel.merge` does; errors have the names, or else the places."""
    check_models(*models)
    digests = [model.digest for model in models]
    named = zip(names or range(len(models)), digests, strict=True)
    equal = [name for name, digest in named if digests.count(digest) > 1]
    check(len(models) > 1 and not equal, "models to merge", models=len(models), equal=equal)
    documents = [model.documents_seen for model in models]
    check(min(documents) > 0, "documents of models", documents_seen=documents)
    statement = merge_statements([model.privacy for model in models])
    found, places = models[0], [list(range(models[0].n_components))]
    seeds = dict(enumerate(models[0].seed_names))
    for model in models[1:]:
        matched = match_topics(found, model, max_distance=max_distance, names=[*seeds.values()])
        pairs, new = {j: i for i, j, _ in matched}, count(found.n_components)
        rows = [pairs[j] if j in pairs else next(new) for j in range(model.n_components)]
        found = _mix(found, model, np.array(rows))
        seeds |= {
            row: seeds.get(row) or name for row, name in zip(rows, model.seed_names, strict=True)
        }
        places.append(rows)
    sources = [
        {
            "documents": model.documents_seen,
            "tokens": model.tokens_seen,
            "topics": rows,
            "warnings": model.diagnostics.get("warnings", []),
        }
        for model, rows in zip(models, places, strict=True)
    ]
    diagnostics = {"merged_models": sources, "max_distance": max_distance}
    return warn_of_background(replace(found, privacy=statement, diagnostics=diagnostics))


def _mix(first: Model, second: Model, rows: Places) -> Model:
    """Return the model of two, in which the topics of the second have these rows."""
    models, K = (first, second), max(first.n_components, 1 + int(rows.max()))
    vocabulary, *columns = _unite_words(first, second)
    V = max(first.n_features, 1 + int(columns[1].max()))
    parts = list(zip(models, (np.arange(first.n_components), rows), columns, strict=True))
    documents = np.array([model.documents_seen for model in models], dtype=np.float64)
    tokens = np.array([model.tokens_seen for model in models], dtype=np.float64)
    sizes = tokens if tokens.all() else documents
    mass, alpha = np.zeros((2, K)), np.zeros(K)
    components, background = np.zeros((K, V)), np.zeros(V)
    for n, (model, own, words) in enumerate(parts):
        mass[n, own] = np.maximum(sizes[n] / sizes.sum() * model.weights, LEAST_WEIGHT)
        alpha[own] += documents[n] / documents.sum() * model.alpha
        background[words] += documents[n] / documents.sum() * model.background
    for n, (model, own, words) in enumerate(parts):
        # A topic that one model has alone has the share 1, and not a bit is changed.
        share = mass[n, own] / mass[:, own].sum(axis=0)
        components[np.ix_(own, words)] += share[:, None] * model.components
    names: list[list[str | None]] = [[] for _ in range(K)]
    for model, own, _ in parts:
        for row, name in zip(own.tolist(), model.names, strict=True):
            names[row].append(name)
    is_measured = all(model.prevalence is not None for model in models)
    common = second.settings.items()
    found = type(first)(
        components=components,
        alpha=alpha,
        background=background,
        prevalence=mass.sum(axis=0) if is_measured else None,
        vocabulary=vocabulary,
        settings={each[0]: each[1] for each in keep_settings(first).items() if each in common},
        documents_seen=int(documents.sum()),
        tokens_seen=int(tokens.sum()) if tokens.all() else 0,
    )
    return name_rows(found, [*map(join_names, names)])


def _unite_words(first: Topics, second: Topics) -> tuple[Vocabulary | None, Places, Places]:
    """Return the words of two models, and the columns of each among them."""
    mine, theirs = np.arange(first.n_features), np.arange(second.n_features)
    one, other = first.vocabulary, second.vocabulary
    if one == other and len(mine) == len(theirs):
        return one, mine, theirs
    if not (one and other and one.words and other.words and one.analyzer == other.analyzer):
        kinds = ["none" if each is None else each.kind for each in (one, other)]
        columns = [first.n_features, second.n_features]
        raise fault("words of models", vocabularies=kinds, columns=columns)
    column = {word: i for i, word in enumerate(one.words)}
    for word in other.words:
        column.setdefault(word, len(column))
    facts = [dict(each.selection) for each in (one, other) if each.selection is not None]
    kind = one.kind if one.kind == other.kind else "learned"
    vocabulary = Vocabulary(
        kind,
        tuple(column),
        analyzer=one.analyzer,
        undercount=max(one.undercount, other.undercount),
        selection={"merged": facts} if kind == "selected" else None,
    )
    return vocabulary, mine, np.array([column[word] for word in other.words], dtype=np.intp)
