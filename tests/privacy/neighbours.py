"""Contributions at their clip norms, and how far two datasets are apart under a mechanism."""

import math

import numpy as np


def zeros(blocks):
    return {block.name: np.zeros(block.shape) for block in blocks}


def full(blocks, sign=1.0, cell=0):
    document = zeros(blocks)
    for block in blocks:
        least = 1.0 if block.nonnegative else sign
        document[block.name].reshape(-1)[cell % block.cells] = least * block.l2_clip_norm
    return document


def distance(mechanism, aggregates, others):
    """Return how far two raw sums on the grid are apart, in weighted coordinates."""
    square = 0.0
    for block in mechanism.blocks:
        scale = mechanism.steps[block.name] / block.l2_clip_norm / mechanism.documents_per_unit
        steps = (aggregates[block.name] - others[block.name]) * scale
        square += mechanism.fractions[block.name] * float(np.sum(steps**2))
    return math.sqrt(square)
