"""Seeded topics: rows of a start that are about given words, and what holds them there.

A seeded topic begins as the spectral topic that has most of its words, and as these words;
the others begin as they would without seeds. With s columns of seed words, and r_k the mean over
them of mu_kw / sum_j mu_jw, the share of topic k in such a word::

    matched  each seeded topic takes the place of a topic of its own, with the largest sum of r_k
    start    (1 - m) mu_k + m / s on its words                                m = `START_SHARE`

From there every refinement has a Dirichlet prior on them: `WORD_SHARE` of the tokens of the topic
on each of its words, at most `MOST_SHARE` on all. Seeded topics are the first rows, in their order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy
from numpy.typing import NDArray

from streamlda.errors import require
from streamlda.spectral.topics import SpectralTopics
from streamlda.utils.arrays import Array

#: Part of the start on the seed words. The rest is one topic, not a mixture of all that have the
#: words, which would take them from the others.
START_SHARE = 0.1

#: Pseudo-tokens of a seed word and of all, as parts of the expected tokens of the topic.
WORD_SHARE, MOST_SHARE = 0.03, 0.1


@dataclass(frozen=True, slots=True)
class SeedTopic:
    """A name, and the columns of the words that a topic is to be about."""

    name: str
    columns: tuple[int, ...]

    @classmethod
    def of(cls, value: Self | Mapping[str, Any]) -> Self:
        """Return one from its JSON form too."""
        if isinstance(value, Mapping):
            return cls(str(value["name"]), tuple(map(int, value["columns"])))
        return value


def check_seeds(
    seeds: Sequence[SeedTopic | Mapping[str, Any]], n_components: int
) -> tuple[SeedTopic, ...]:
    """Return seeds, also from their JSON form; they must be topics at most."""
    require(
        len(seeds) <= n_components,
        "there are fewer topics than seeded ones",
        n_components=n_components,
        seed_topics=len(seeds),
        remedy="ask for more topics, or seed fewer",
    )
    return tuple(map(SeedTopic.of, seeds))


def seed_topics(found: SpectralTopics, seeds: Sequence[SeedTopic]) -> SpectralTopics:
    """Return topics of which the first are about the seeds; the others stay, in order."""
    if not seeds:
        return found
    topics = found.normalize()
    order = order_of(topics, seeds)
    topics = topics[order]
    for row, seed in zip(topics, seeds, strict=False):
        row *= 1 - START_SHARE
        row[list(seed.columns)] += START_SHARE / len(seed.columns)
    per_topic = ("alpha", "eigenvalues", "eigenvalue_noise")
    return replace(
        found, topics=topics, **{name: getattr(found, name)[order] for name in per_topic}
    )


def order_of(topics: Array, seeds: Sequence[SeedTopic]) -> NDArray[np.intp]:
    """Return rows, those of the seeds first; one is there again where seeds are more than rows."""
    words = np.array([_part_of_words(topics, seed.columns) for seed in seeds])
    own = np.argmax(words, axis=1)
    which, rows = scipy.optimize.linear_sum_assignment(-words)
    own[which] = rows
    return np.concatenate([own, np.setdiff1d(np.arange(len(topics)), own)])


def _part_of_words(topics: Array, columns: tuple[int, ...]) -> Array:
    """Return the mean part of each topic in words, shape (K,), all topics being as prevalent."""
    found = topics[:, list(columns)] + 1e-12
    parts: Array = (found / found.sum(axis=0)).mean(axis=1)
    return parts
