"""Identities of topics from snapshot to snapshot, so that topic 3 stays topic 3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from streamlda.model.matching import matched_topics
from streamlda.model.topic_model import TopicModel

#: Beyond this a topic of a stream is a new one: less than half (0.51) of the probability is shared,
#: as ``sum_w sqrt(p_w q_w)`` measures it. Here documents are largely the same.
NEW_TOPIC_DISTANCE = 0.7


class Topic(NamedTuple):
    """A topic as a viewer follows it."""

    #: From 1, the same over snapshots, never used again; None where it is not known.
    id: int | None
    #: Share of all tokens; None where it was not measured.
    prevalence: float | None
    #: Distance to the same topic one snapshot before; None for a new one.
    moved: float | None


def follow(
    before: TopicModel, ids: Sequence[int | None], after: TopicModel, next_id: int
) -> tuple[list[Topic], int]:
    """Return the topics of `after`, with the ids of those of `before` that they go on from.

    A seeded one goes on as that of its name, however far. `next_id` is the first id that was never
    used; it is returned as it is afterwards.
    """
    origin = {
        pair.second: pair for pair in matched_topics(before, after, max_distance=NEW_TOPIC_DISTANCE)
    }
    topics = []
    for k, share in enumerate(after.shares):
        pair = origin.get(k)
        if pair is None:
            topics.append(Topic(next_id, share, None))
            next_id += 1
        else:
            topics.append(Topic(ids[pair.first], share, pair.distance))
    return topics, next_id
