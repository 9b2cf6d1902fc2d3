"""Topics as a tree and on a flat map, and a model of fewer topics.

Two topics are joined where the corpus loses least by it: with prevalence w and Hellinger distance
d, their join costs ``w_i w_j / (w_i + w_j) d_ij^2``. It is Ward's method on the roots of the
probabilities, each topic as heavy as its tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import at_least, between, require
from streamlda.model.diagnostics import hellinger, warn_of_background
from streamlda.model.naming import join_names, name_rows
from streamlda.model.topics import TOPIC_NAMES, Model, Topics

Array = NDArray[np.float64]

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
OF_ONE_FIT = ("n_components", "n_features", "places", "vocabulary_documents", TOPIC_NAMES)


def topic_tree(components: Array, weights: Array) -> Array:
    """Return how topics are joined, the two that lose least first, in the form of SciPy's linkage.

    A row of (K - 1, 4) has the two parts of a join (topics below K, the join in row n as K + n),
    the root of twice what is lost by it, and its number of topics. `weights` are shares of tokens.
    Time O(K^2 V + K^3), memory O(K V + K^2).
    """
    K = len(components)
    mass = np.maximum(weights, LEAST_WEIGHT)
    pair = mass * mass[:, None] / (mass + mass[:, None])
    cost = pair * hellinger(components, components) ** 2
    np.fill_diagonal(cost, np.inf)
    ids, sizes, rows = list(range(K)), [1] * K, []
    for join in range(K - 1):
        i, j = sorted(divmod(int(cost.argmin()), len(cost)))
        lost, both = cost[i, j], mass[i] + mass[j]
        # The formula of Lance and Williams for Ward's method.
        joined = ((mass[i] + mass) * cost[i] + (mass[j] + mass) * cost[j] - mass * lost) / (
            both + mass
        )
        rows.append([*sorted((ids[i], ids[j])), np.sqrt(2 * max(lost, 0.0)), sizes[i] + sizes[j]])
        joined[i] = np.inf
        cost[i], cost[:, i] = joined, joined
        mass[i], ids[i], sizes[i] = both, K + join, sizes[i] + sizes[j]
        cost = np.delete(np.delete(cost, j, 0), j, 1)
        mass = np.delete(mass, j)
        del ids[j], sizes[j]
    return np.array(rows, dtype=np.float64).reshape(-1, 4)


def leaves(tree: Array, distances: Array) -> list[int]:
    """Return the topics in an order in which branches do not cross and like ones are neighbours.

    Time O(K^3), memory O(K^2).
    """
    from scipy.cluster.hierarchy import leaves_list, optimal_leaf_ordering
    from scipy.spatial.distance import squareform

    if len(distances) < 3:
        return list(range(len(distances)))
    ordered = optimal_leaf_ordering(tree, squareform(distances, checks=False))
    found: list[int] = leaves_list(ordered).tolist()
    return found


def reduce_topics(model: Model, n_topics: int) -> Model:
    """Return what `TopicModel.reduce` does."""
    K = model.n_components
    remedy = f"pass a number of topics up to the {K} of the model"
    at_least(1, n_topics=n_topics, remedy=remedy)
    between(1, K, n_topics=n_topics, remedy=remedy)
    groups = {k: [k] for k in range(K)}
    tree = topic_tree(model.components, model.weights)
    for join, (i, j) in enumerate(tree[: K - n_topics, :2].astype(int).tolist(), K):
        groups[join] = sorted(groups.pop(i) + groups.pop(j))
    return group_topics(model, sorted(groups.values()))


def merge_topics(model: Model, groups: Sequence[Sequence[int]]) -> Model:
    """Return what `TopicModel.merge_topics` does."""
    rows = [row for group in groups for row in group]
    K = model.n_components
    require(
        bool(groups)
        and all(len(group) > 1 for group in groups)
        and all(type(row) is int and 0 <= row < K for row in rows)
        and len(set(rows)) == len(rows),
        "topics to merge must be lists of two or more topics of the model, each in one list",
        groups=[list(group) for group in groups],
        topics=K,
        remedy="name them as streamlda topics does, as in [[3, 7]]",
    )
    alone = [[k] for k in range(K) if k not in rows]
    return group_topics(model, sorted([*alone, *map(sorted, groups)]))


def permute_topics(model: Model, order: Sequence[int]) -> Model:
    """Return the model with its topics in another order; topics with seeds must stay in theirs."""
    rows, known, prevalence = list(order), dict(model.diagnostics), model.prevalence
    done = known.get("refinement")
    if done is not None:
        known["refinement"] = {**done, "start_topics": [done["start_topics"][k] for k in rows]}
    # Directions of refined topics are in the order of their start.
    of_rows = BY_ROW if done is not None else (*BY_ROW, *BY_DIRECTION)
    for name in of_rows:
        if isinstance(known.get(name), list) and len(known[name]) == len(rows):
            known[name] = [known[name][k] for k in rows]
    interval = model.interval
    if interval is not None and interval.prevalence is not None:
        shares = tuple(interval.prevalence[k] for k in rows)
        interval = replace(interval, prevalence=shares)
    timeline = model.timeline
    if timeline is not None:
        timeline = replace(timeline, tokens=timeline.tokens[:, rows])
    return replace(
        model,
        interval=interval,
        timeline=timeline,
        components=np.ascontiguousarray(model.components[rows]),
        alpha=model.alpha[rows],
        prevalence=None if prevalence is None else prevalence[rows],
        diagnostics=known,
    )


def keep_rows(model: Model, shown: Model) -> Model:
    """Return the model with its topics in the rows of those most like them in an earlier model.

    Topics with seeds stay in their rows. Pairs have the least sum of Hellinger distances. Time
    O(K^2 V + K^3).
    """
    if model.components.shape != shown.components.shape:
        return model
    from scipy.optimize import linear_sum_assignment

    cost, seeded = hellinger(shown.components, model.components), len(model.seeds)
    cost[:seeded, seeded:] = cost[seeded:, :seeded] = 2.0
    cost[:seeded, :seeded] = 2.0 * (1 - np.eye(seeded))
    order = linear_sum_assignment(cost)[1].tolist()
    return model if order == sorted(order) else permute_topics(model, order)


def group_topics(model: Model, groups: Sequence[Sequence[int]]) -> Model:
    """Return the model with a topic for each group of topics: the sum of their tokens."""
    which = np.zeros((len(groups), model.n_components))
    for n, group in enumerate(groups):
        which[n, list(group)] = 1.0
    mass = which * np.maximum(model.weights, LEAST_WEIGHT)
    # A topic that stays alone has the part 1, and not a bit is changed.
    parts = mass / mass.sum(axis=1, keepdims=True)
    interval, timeline = model.interval, model.timeline
    if interval is not None and interval.prevalence is not None:
        shares = which @ np.array(interval.prevalence)
        interval = replace(interval, prevalence=tuple(shares.tolist()))
    found = replace(
        model,
        components=parts @ model.components,
        # Sums of parts of a Dirichlet distribution have one too.
        alpha=which @ model.alpha,
        prevalence=None if model.prevalence is None else which @ model.prevalence,
        interval=interval,
        timeline=None if timeline is None else replace(timeline, tokens=timeline.tokens @ which.T),
        representative_documents=None,
        settings=_settings(model, groups),
        diagnostics=_diagnostics(model, groups),
    )
    named = name_rows(found, [join_names([model.names[k] for k in group]) for group in groups])
    return warn_of_background(named)


def _settings(model: Topics, groups: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return the settings, with the seeds of each group under all its names."""
    seeds = []
    for group in groups:
        named = [k for k in group if k < len(model.seeds)]
        if named:
            columns = dict.fromkeys(column for k in named for column in model.seeds[k])
            name = join_names([model.seed_names[k] for k in named])
            seeds.append({"name": name, "columns": list(columns)})
    return lasting_settings(model) | ({"seed_topics": seeds} if seeds else {})


def lasting_settings(model: Topics) -> dict[str, Any]:
    """Return the settings that stay true where topics or models are joined."""
    return {name: value for name, value in model.settings.items() if name not in OF_ONE_FIT}


def _diagnostics(model: Topics, groups: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Return what is still true: of the documents, and of topics that stayed as they were."""
    known = {name: value for name, value in model.diagnostics.items() if name in OF_DOCUMENTS}
    npmi = model.diagnostics.get("topic_npmi")
    if npmi is not None:
        known["topic_npmi"] = [npmi[g[0]] if len(g) == 1 else None for g in groups]
    return known | {"reduced_from": [list(group) for group in groups]}


class FlatMap(NamedTuple):
    """Positions of topics in two dimensions, (K, 2), centred and in the units of the distances.

    Equal input gives equal output, signs included. `explained` is the part of the spread of the
    topics, 0 to 1, that each dimension shows.
    """

    positions: Array
    explained: tuple[float, float]


def flat_map(distances: Array) -> FlatMap:
    """Place points so that straight lines are as near to their distances as two dimensions allow.

    Classical multidimensional scaling (Torgerson 1952): the two leading eigenvectors of
    ``-J D^2 J / 2``, with D^2 the squared distances and J the centring. Time O(K^3).
    """
    K = len(distances)
    centring = np.eye(K) - 1.0 / K
    inner = -centring @ distances**2 @ centring / 2
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    positions = np.zeros((K, 2))
    n = min(2, K)
    positions[:, :n] = vectors[:, :n] * np.sqrt(values[:n])
    # The sign of an eigenvector is arbitrary: its largest entry is made positive.
    largest = positions[np.abs(positions).argmax(axis=0), [0, 1]]
    positions *= np.where(largest < 0, -1.0, 1.0)
    total = float(values.sum())
    shown = [float(value) / total if total > 0 else 0.0 for value in values[:n]]
    return FlatMap(positions, (shown[0], shown[1] if n > 1 else 0.0))
