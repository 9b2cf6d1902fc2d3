"""Data for the script of a page: plain JSON values, in few digits."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.report.facts import LISTED_WORDS, Facts

#: Hundredths of the tokens of a word; topics with less of them are left out.
LEAST_PART = 2


def script_data(facts: Facts) -> dict[str, Any]:
    """Return words, distances and courses of the topics; a page holds about 3 kB of it a topic.

    Distances, in hundredths, are those of each topic to the topics before it. Of each word there
    are the topics that have `LEAST_PART` of its tokens or more, each followed by the hundredths.
    """
    newest = facts.newest
    words = {word.column: word.text for topic in facts.topics for word in topic.words}
    at = {column: i for i, column in enumerate(words)}
    topics = []
    for topic in facts.topics:
        topics.append(
            {
                "id": topic.id,
                "share": _short(topic.prevalence),
                "weight": _short(float(newest.weights[topic.row])),
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
        "listed": max(facts.topics[0].n_shown, LISTED_WORDS),
        "words": list(words.values()),
        "usual": [_short(float(facts.usual[column])) for column in words],
        "given": _given(newest.components[:, list(words)], newest.weights, newest.order),
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


def _given(topics: NDArray[np.float64], weights: NDArray[np.float64], order: list[int]) -> Any:
    """Return of each word the places in `order` of the topics of its tokens, with hundredths."""
    tokens = (topics * weights[:, None])[order]
    shares = tokens / np.maximum(tokens.sum(axis=0), 1e-300)
    hundredths = np.rint(100 * shares).astype(int).T
    return [
        [number for i in np.flatnonzero(row >= LEAST_PART) for number in (int(i), int(row[i]))]
        for row in hundredths
    ]


def _short(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.4g}")
