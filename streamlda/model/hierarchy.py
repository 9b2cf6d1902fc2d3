"""Topics as a tree and on a flat map, and a model of fewer topics, or of topics in another order.

The tree is that of Ward's method on the roots of the probabilities: two topics alone are joined at
their Hellinger distance.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy

from streamlda.errors import at_least, between, require
from streamlda.model.diagnostics import warn_of_background
from streamlda.model.matching import match_topics
from streamlda.model.naming import join_names, name_rows
from streamlda.model.topics import TOPIC_NAMES, Model, Topics
from streamlda.utils.arrays import Array, frozen

#: What a topic without tokens weighs, so that it stays one.
LEAST_WEIGHT = 1e-100

#: What was found out about the documents, however many topics are shown.
OF_DOCUMENTS = (
    *("pair_eigenvalues", "pair_noise", "documents_behind_directions", "directions_supported"),
    *("documents_skipped", "topic_npmi_documents"),
)

#: Lists of a value for each topic: in the order of the topics, and in that of their start.
BY_ROW = ("topic_npmi", "topic_ids")
BY_DIRECTION = ("eigenvalues", "eigenvalue_noise", "topic_supported")

#: Settings that are true of the model of one fit only.
OF_ONE_FIT = (
    *("n_components", "n_features", "places", "vocabulary_documents"),
    *(TOPIC_NAMES, "seed_topics"),
)


def topic_tree(components: Array, *, ordered: bool = False) -> Array:
    """Return joins of topics in the form of SciPy's linkage; like leaves are near if `ordered`."""
    if len(components) < 2:
        return np.empty((0, 4))
    roots = np.sqrt(components / 2)
    return scipy.cluster.hierarchy.linkage(roots, "ward", optimal_ordering=ordered)


def reduce_topics(model: Model, n_topics: int) -> Model:
    """Return the model with fewer topics, 1 to K: those that are most alike are joined.

    `streamlda.model.hierarchy` says how. Tokens, prevalence and alpha of joined topics add up,
    and so do shares of the interval and the timeline. Joined topics have no NPMI, since it was
    not counted, and no topic has seeds, or documents to show: their proportions change.
    ``diagnostics["reduced_from"]`` has the rows that each topic is made of. Names are joined.
    Privacy stays what it was. Time O(K^2 V + K^3), memory O(K V + K^2).

    Raises
    ------
    InvalidSettingError
        If `n_topics` is no whole number from 1 to K.
    """
    K = model.n_components
    remedy = f"pass a number of topics up to the {K} of the model"
    at_least(1, n_topics=n_topics, remedy=remedy)
    between(1, K, n_topics=n_topics, remedy=remedy)
    groups = {k: [k] for k in range(K)}
    joins = topic_tree(model.components)[: K - n_topics, :2].astype(int).tolist()
    for join, (i, j) in enumerate(joins, K):
        groups[join] = sorted(groups.pop(i) + groups.pop(j))
    return _group_topics(model, sorted(groups.values()))


def merge_topics(model: Model, groups: Sequence[Sequence[int]]) -> Model:
    """Return the model with each of these groups of topics as one topic, in its first row.

    Tokens, prevalence and alpha of merged topics add up, names are joined; all else as in
    `reduce`. Topics behind move up. Of a private model it is post-processing: its statement
    stays. Time O(K V).

    Raises
    ------
    InvalidSettingError
        If a group has fewer than two topics, or a topic is none of the model or in two groups.

    Examples
    --------
    >>> model.merge_topics([[3, 7]])  # doctest: +SKIP
    """
    rows = [row for group in groups for row in group]
    K = model.n_components
    require(
        bool(groups)
        and all(len(group) > 1 for group in groups)
        and all(type(row) is int and 0 <= row < K for row in rows)
        and len(set(rows)) == len(rows),
        "topics to merge are no lists of two or more topics of the model, each in one list",
        groups=[list(group) for group in groups],
        topics=K,
        remedy="name them as streamlda topics does, as in [[3, 7]]",
    )
    alone = [[k] for k in range(K) if k not in rows]
    return _group_topics(model, sorted([*alone, *map(sorted, groups)]))


def permute_topics(model: Model, rows: Sequence[int]) -> Model:
    """Return the model with its topics in another order; topics with seeds must stay in theirs."""
    known = dict(model.diagnostics)
    done = known.get("refinement")
    if done is not None:
        known["refinement"] = {**done, "start_topics": [done["start_topics"][k] for k in rows]}
    # Directions of refined topics are in the order of their start.
    for name in BY_ROW if done is not None else (*BY_ROW, *BY_DIRECTION):
        if isinstance(known.get(name), list) and len(known[name]) == len(rows):
            known[name] = [known[name][k] for k in rows]
    return replace(_sum_topics(model, [[k] for k in rows]), diagnostics=known)


def keep_rows(model: Model, earlier: Model) -> Model:
    """Return the model with its topics in the rows of those most like them in an earlier model."""
    if model.components.shape != earlier.components.shape:
        return model
    order = [j for _, j, _ in match_topics(earlier, model, max_distance=1.0)]
    return model if order == sorted(order) else permute_topics(model, order)


def _sum_topics(model: Model, groups: Sequence[Sequence[int]]) -> Model:
    """Return the model with a topic for each group of topics, with all that adds up over them."""
    rows, ends = np.concatenate(groups), np.cumsum([0, *map(len, groups)])
    shape = len(groups), model.n_components
    sums = scipy.sparse.csr_array((np.ones(len(rows)), rows, ends), shape=shape)
    mass = np.maximum(model.weights, LEAST_WEIGHT)
    # A topic that stays alone has the part 1, and not a bit is changed.
    parts = mass[rows] / np.repeat(sums @ mass, np.diff(ends))
    interval, timeline = model.interval, model.timeline
    if interval is not None and interval.prevalence is not None:
        interval = replace(interval, prevalence=(sums @ np.array(interval.prevalence)).tolist())
    return replace(
        model,
        components=frozen(
            scipy.sparse.csr_array((parts, rows, ends), shape=shape) @ model.components
        ),
        # Sums of parts of a Dirichlet distribution have one too.
        alpha=sums @ model.alpha,
        prevalence=None if model.prevalence is None else sums @ model.prevalence,
        interval=interval,
        timeline=timeline and replace(timeline, tokens=(sums @ timeline.tokens.T).T),
        representative_documents=None,
    )


def _group_topics(model: Model, groups: Sequence[Sequence[int]]) -> Model:
    """Return the model with each group as one topic, and the facts that stay true."""
    known = {name: value for name, value in model.diagnostics.items() if name in OF_DOCUMENTS}
    npmi = model.diagnostics.get("topic_npmi")
    if npmi is not None:
        known["topic_npmi"] = [npmi[g[0]] if len(g) == 1 else None for g in groups]
    known["reduced_from"] = [list(group) for group in groups]
    found = replace(_sum_topics(model, groups), settings=keep_settings(model), diagnostics=known)
    named = name_rows(found, [join_names([model.names[k] for k in group]) for group in groups])
    return warn_of_background(named)


def keep_settings(model: Topics) -> dict[str, Any]:
    """Return the settings that stay true where topics or models are joined."""
    return {name: value for name, value in model.settings.items() if name not in OF_ONE_FIT}


def flat_map(distances: Array) -> tuple[Array, Array]:
    """Return places of topics in two dimensions, (K, 2), and the part of their spread in each.

    Classical multidimensional scaling (Torgerson 1952): the two leading eigenvectors of
    ``-J D^2 J / 2``, with D^2 the squared distances and J the centring. Equal input gives equal
    output. Time O(K^3).
    """
    K = len(distances)
    centring = np.eye(K) - 1.0 / K
    values, vectors = np.linalg.eigh(-centring @ distances**2 @ centring / 2)
    values, places = np.maximum(values[::-1], 0.0), np.zeros((K, 2))
    places[:] = (vectors[:, ::-1] * np.sqrt(values))[:, :2]
    # The sign of an eigenvector is arbitrary: its largest entry is made positive.
    places *= np.where(places[np.abs(places).argmax(axis=0), [0, 1]] < 0, -1.0, 1.0)
    return places, (places**2).sum(axis=0) / max(float(values.sum()), 1e-300)
