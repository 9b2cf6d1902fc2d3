"""Differences of neighbouring datasets of sites, against the noise that hides them."""

import math

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist

from streamlda.guarantee.noise import SeededNoise
from streamlda.papers.imtiaz_sarwate.simulated import Promise, SimulatedSites


def network_of(sizes, scheme, epsilon, delta=1e-3, *, route="", kind=SimulatedSites):
    """Return sites with the paper's calibration on its own route."""
    promise = Promise(epsilon, delta, "paper" if route == "paper" else "exact")
    return kind(sizes, promise, scheme, site=1, noise=SeededNoise(0))


def matched_component_error(true, estimated):
    """Return the mean distance under the best one-to-one matching, which no copies can please."""
    distances = cdist(true, estimated)
    return float(distances[linear_sum_assignment(distances)].mean())


def changed(parts, sample):
    copies = [part.copy() for part in parts]
    copies[1][0] = sample
    return copies


def shift(a, b, blocks):
    """Return the norm of a difference of sums in weighted coordinates, contributions at most 1."""
    total = sum(block.weight for block in blocks)
    squares = (
        block.weight * float(np.sum((a[block.name] - b[block.name]) ** 2)) / block.l2_clip_norm**2
        for block in blocks
    )
    return math.sqrt(sum(squares) / total)


class Recorder(SimulatedSites):
    """Asks the neighbours' sites as well, and keeps the mu of every stage."""

    neighbours = ()

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.mu = []

    def release(self, sites, sums, blocks, **options):
        released = super().release(sites, sums, blocks, **options)
        mine, theirs = sums(sites[1]), sums(self.neighbours[1])
        squares = (
            float(np.sum((mine[name] - theirs[name]) ** 2)) / stddev**2
            for name, stddev in released.stddevs.items()
        )
        self.mu.append(math.sqrt(sum(squares)))
        return released
