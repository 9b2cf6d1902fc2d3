"""Seeded topics: rows of a start that are about given words, and what holds them there.

A seeded topic begins as what its words tell of the spectral topics, and as these words themselves.
With s columns of seed words, and r_k the mean over them of mu_kw / sum_j mu_jw, the share of topic
k in such a word::

    matched  each seeded topic takes the place of a topic of its own, with the largest sum of r_k
    start    (1 - m) sum_k r_k^2 mu_k / sum_k r_k^2 + m / s on its words       m = `START_SHARE`

From there `StepwiseEM` has a Dirichlet prior on them: `WORD_SHARE` of the tokens of the topic on
each of its words, at most `MOST_SHARE` on all. Seeded topics are the first rows, in their order.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import scipy.optimize
from numpy.typing import NDArray

from streamlda.spectral.topics import SpectralTopics

Array = NDArray[np.float64]

#: Part of the start on the seed words.
START_SHARE = 0.1

#: Pseudo-tokens of a seed word and of all, as parts of the expected tokens of the topic.
WORD_SHARE, MOST_SHARE = 0.01, 0.1


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


def seeded(found: SpectralTopics, seeds: Sequence[SeedTopic]) -> SpectralTopics:
    """Return topics of which the first are about the seeds; the others stay, in order."""
    if not seeds:
        return found
    topics = found.normalized()
    words = np.array([_part_of_words(topics, seed.columns) for seed in seeds])
    _, own = scipy.optimize.linear_sum_assignment(-words)
    order = np.concatenate([own, np.setdiff1d(np.arange(len(topics)), own)])
    for k, seed, parts in zip(own, seeds, words, strict=True):
        weights = parts**2 / np.sum(parts**2)
        start = (1 - START_SHARE) * (weights @ found.normalized())
        start[list(seed.columns)] += START_SHARE / len(seed.columns)
        topics[k] = start
    per_topic = ("alpha", "eigenvalues", "eigenvalue_noise")
    return replace(
        found, topics=topics[order], **{name: getattr(found, name)[order] for name in per_topic}
    )


def _part_of_words(topics: Array, columns: tuple[int, ...]) -> Array:
    """Return the mean part of each topic in words, shape (K,), all topics being as prevalent."""
    found = topics[:, list(columns)] + 1e-12
    parts: Array = (found / found.sum(axis=0)).mean(axis=1)
    return parts
