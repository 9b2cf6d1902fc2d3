"""What the script of a page works with: plain JSON values, in few digits."""

from __future__ import annotations

from typing import Any

import numpy as np

from streamlda.report.facts import Facts


def data_of(facts: Facts) -> dict[str, Any]:
    """Return words, distances and courses of the topics; a page holds about 1.5 kB of it a topic.

    Distances, in hundredths, are those of each topic to the topics before it.
    """
    words = {word.column: word.text for topic in facts.topics for word in topic.words}
    at = {column: i for i, column in enumerate(words)}
    topics = []
    for topic in facts.topics:
        topics.append(
            {
                "id": topic.id,
                "share": _short(topic.prevalence),
                "lately": _short(topic.lately),
                "npmi": _short(topic.npmi),
                "exclusivity": _short(topic.exclusivity),
                "moved": _short(topic.moved),
                "words": [at[word.column] for word in topic.words],
                "chances": [_short(word.probability) for word in topic.words],
            }
        )
    hundredths = np.rint(100 * facts.distances).astype(int)
    course = facts.course
    return {
        "shown": facts.topics[0].n_shown,
        "words": list(words.values()),
        "usual": [_short(float(facts.newest.background[column])) for column in words],
        "topics": topics,
        "distances": [hundredths[i, :i].tolist() for i in range(len(topics))],
        "order": facts.leaves,
        "course": None
        if course is None
        else {
            "labels": course.labels,
            "at": [*map(_short, course.at)],
            "documents": course.documents,
            "shares": {id_: [*map(_short, shares)] for id_, shares in course.shares.items()},
        },
    }


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
