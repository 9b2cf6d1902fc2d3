"""Seeded topics of private windows: public words, and topics that were released.

Topics are matched with seeds as without privacy (`streamlda.spectral.seeds`) when they are
published, and their words get the prior of a refinement (`streamlda.refinement.prior`) once, if
the topic as released has at least twice as much of them as all documents. Seeded topics are the
first rows, in their order; where noise left fewer topics than there are seeds, one is divided among
several.

Privacy: post-processing. Seeds are public settings and topics are made of released sums: no
document is read here, and releases, noise and price are those without seeds.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from streamlda.private.topics import PrivateTopics
from streamlda.refinement.prior import Prior
from streamlda.spectral.seeds import SeedTopic, order_of


def with_seeds(start: PrivateTopics, seeds: Sequence[SeedTopic]) -> tuple[PrivateTopics, list[str]]:
    """Return topics, the seeded ones first, and the names of those that are not about their words.

    Time O(d K + K^3).
    """
    if not seeds:
        return start, []
    order = order_of(start.components, seeds)
    copies = np.bincount(order)[order]
    matched, prevalence = start.rows(order), start.prevalence
    components, background = matched.components.copy(), matched.background
    shown = [
        topic[list(seed.columns)].sum() >= 2 * background[list(seed.columns)].sum()
        for topic, seed in zip(components, seeds, strict=False)
    ]
    words = [seed.columns if about else () for seed, about in zip(seeds, shown, strict=True)]
    prior = Prior(words, len(components))
    components[prior.topics, prior.columns] += prior.parts
    start = replace(
        matched,
        components=components / (1 + prior.sums)[:, None],
        alpha=matched.alpha / copies,
        prevalence=None if prevalence is None else prevalence[order] / copies,
    )
    return start, [seed.name for seed, about in zip(seeds, shown, strict=True) if not about]
