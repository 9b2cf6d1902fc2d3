"""Seeded topics of private windows: public words, and topics that were released.

Topics are matched with seeds as without privacy (`streamlda.spectral.seeds`) when they are
published, and their words get the prior of a refinement (`streamlda.refinement.prior`) once, if
the topic is about them as released. Seeded topics are the first rows, in their order; where noise
left fewer topics than there are seeds, one is divided among several.

Privacy: post-processing. Seeds are public settings and topics are made of released sums: no
document is read here, and releases, noise and price are those without seeds.

Rounds of refinement do not begin with seeds. Where they did, with a tenth of a topic on its words,
four seeded topics of 20 on 90,000 abstracts at epsilon 3 (8,000 words, three runs) had an NPMI of
.32, .02, -.04 and .04 in place of .25, .09, .22 and .09: common words are all that topics have
before the first round, and what matched by them was often about something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from streamlda.private.topics import PrivateTopics
from streamlda.refinement.prior import Prior
from streamlda.spectral.seeds import SeedTopic, order_of

#: A topic is about its seed words where it has this many times as much of them as all documents.
#: Abstracts as above: 31, 8 to 11, 3.3 to 3.6 and 2.0 to 2.1 times at epsilon 3 (two runs). At
#: epsilon 1, of 30,000 and 50,000, one of four topics had 3.4 to 6 times, and the others, about
#: something else, 1.2 to 2.0 (four runs).
LEAST_LIFT = 2.0


def with_seeds(found: PrivateTopics, seeds: Sequence[SeedTopic]) -> tuple[PrivateTopics, list[str]]:
    """Return topics, the seeded ones first, and the names of those that are not about their words.

    Time O(d K + K^3).
    """
    if not seeds:
        return found, []
    order = order_of(found.components, seeds)
    copies = np.bincount(order)[order]
    matched, prevalence = found.rows(order), found.prevalence
    components, background = matched.components.copy(), matched.background
    shown = [
        topic[list(seed.columns)].sum() >= LEAST_LIFT * background[list(seed.columns)].sum()
        for topic, seed in zip(components, seeds, strict=False)
    ]
    words = [seed.columns if about else () for seed, about in zip(seeds, shown, strict=True)]
    prior = Prior(words, len(components))
    components[prior.topics, prior.columns] += prior.parts
    found = replace(
        matched,
        components=components / (1 + prior.sums)[:, None],
        alpha=matched.alpha / copies,
        prevalence=None if prevalence is None else prevalence[order] / copies,
    )
    return found, [seed.name for seed, about in zip(seeds, shown, strict=True) if not about]
