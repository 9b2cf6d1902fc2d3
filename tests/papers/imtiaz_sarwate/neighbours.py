"""What neighbouring datasets of sites differ by, against the noise that hides it."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from streamlda.papers.imtiaz_sarwate.simulated import Aggregate, SimulatedSites
from streamlda.privacy.mechanism import Block

Sums = Mapping[str, Any]


def shift(a, b, blocks):
    """Return the norm of a difference of sums in weighted coordinates, contributions at most 1."""
    total = sum(block.weight for block in blocks)
    return math.sqrt(
        sum(
            block.weight
            / total
            * float(np.sum((a[block.name] - b[block.name]) ** 2))
            / block.l2_clip_norm**2
            for block in blocks
        )
    )


def distinguishability(a, b, released):
    """Return mu: how many standard deviations apart the sums of two neighbours are."""
    return math.sqrt(
        sum(
            float(np.sum((a[name] - b[name]) ** 2)) / stddev**2
            for name, stddev in released.stddevs.items()
        )
    )


class Recorder(SimulatedSites):
    """Keeps what went into every stage, and what came out."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.stages: list[tuple[list[Sums], list[Block], Aggregate]] = []

    def release(self, site_sums, blocks, **options):
        released = super().release(site_sums, blocks, **options)
        self.stages.append((list(site_sums), list(blocks), released))
        return released
