"""Which topic of a snapshot is which of the snapshot before, so that topic 3 stays topic 3.

The distance of two topics is Hellinger's, ``sqrt(1 - sum_w sqrt(p_w q_w))``: 0 for equal topics, 1
for topics without a word in common. A word that one snapshot does not know has probability 0 there,
so that only words in common enter the sum. Topics are paired such that the sum of distances is
least, where a pair farther apart than `FARTHEST` is as bad as none and is not made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from streamlda.model.diagnostics import common_columns, hellinger
from streamlda.model.topic_model import TopicModel

#: Beyond this a topic is a new one: less than half (0.51) of the probability is shared, as
#: ``sum_w sqrt(p_w q_w)`` measures it.
FARTHEST = 0.7


class Topic(NamedTuple):
    """A topic as a viewer follows it."""

    #: From 1, the same over snapshots, never used again; None where it is not known.
    id: int | None
    #: Share of all tokens; None where it was not measured.
    prevalence: float | None
    #: Distance to the same topic one snapshot before; None for a new one.
    moved: float | None


def distances(before: TopicModel, after: TopicModel) -> NDArray[np.float64]:
    """Return the Hellinger distance of each topic of one model to each of another.

    All are 1 where columns cannot be compared: other hashing, or matrices of different width. Time
    O(K K' V), memory as `hellinger`, and the words in common where they are not all.
    """
    mine, theirs = common_columns(before, after)
    return hellinger(_part(before, mine), _part(after, theirs))


def _part(model: TopicModel, columns: NDArray[np.intp]) -> NDArray[np.float64]:
    # Not copied where it is all of them, in their order.
    same = len(columns) == model.n_features and bool(np.all(np.diff(columns) == 1))
    return model.components if same else model.components[:, columns]


def follow(
    before: TopicModel, ids: Sequence[int | None], after: TopicModel, next_id: int
) -> tuple[list[Topic], int]:
    """Return the topics of `after`, with the ids of those of `before` that they go on from.

    A seeded one goes on as that of its name, however far. `next_id` is the first id that was never
    used; it is returned as it is afterwards.
    """
    apart = distances(before, after)
    cost = np.minimum(apart, FARTHEST)
    named = [
        (i, after.names.index(name))
        for i, name in enumerate(before.names)
        if name is not None and name in after.names
    ]
    for pair in named:
        cost[pair] = -len(cost)
    rows, columns = scipy.optimize.linear_sum_assignment(cost)
    origin = dict(zip(columns.tolist(), rows.tolist(), strict=True))
    topics = []
    for k, share in enumerate(after.shares):
        row = origin.get(k)
        moved = None if row is None else float(apart[row, k])
        far = moved is None or (moved > FARTHEST and (row, k) not in named)
        if row is None or moved is None or far:
            topics.append(Topic(next_id, share, None))
            next_id += 1
        else:
            topics.append(Topic(ids[row], share, moved))
    return topics, next_id
