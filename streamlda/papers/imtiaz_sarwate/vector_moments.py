"""Raw second and third moments of real vectors, each scaled down to a public radius.

A sample x adds ``x x'`` with ``||x|| <= radius``, samples farther out are scaled down to it, and
those that are not finite add nothing. Sums are packed as in `streamlda.private.contributions`.

Privacy
-------
Unit: a sample. Relation: replace-one; their number is public. ``||x x'||_F = ||x||^2 <= C``, C the
squared radius, and ``<x x', y y'> = (x'y)^2 >= 0``, so two contributions differ by ``sqrt(2) C`` at
most, attained by orthogonal samples on the sphere. The paper takes C (1/N for a mean of unit
vectors): that bounds the *spectral* norm of a difference, and is too small by sqrt(2) for noise on
every entry under replace-one. It holds for add-remove. Both calibrations here use sqrt(2).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import above, require
from streamlda.errors import InvalidDocumentsError
from streamlda.privacy.clipping import clip_factors
from streamlda.privacy.mechanism import Block
from streamlda.private.packing import pack_pairs
from streamlda.threads import one_blas_thread

Array = NDArray[np.float64]

#: Most that two contributions to the second moment differ by, over the squared radius.
SECOND_RATIO = math.sqrt(2)

#: Samples in one matrix product.
BLOCK_SAMPLES = 4096


def clipped(samples: Array, radius: float) -> Array:
    """Return the samples scaled down to the radius, rows that are not finite as zeros.

    The radius is above 0 and public. Time O(n d), memory that of the samples.
    """
    samples = np.asarray(samples, dtype=np.float64)
    require(
        samples.ndim == 2 and samples.shape[1] >= 1,
        "samples must be rows of a matrix",
        shape=samples.shape,
        remedy="reshape them",
        error=InvalidDocumentsError,
    )
    above(0, radius=radius, remedy="take a public bound on the norm of a sample")
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.sqrt(np.einsum("nd,nd->n", samples, samples))
    factors = clip_factors(norms, radius)
    usable = factors > 0
    scaled = np.zeros_like(samples)
    scaled[usable] = samples[usable] * factors[usable, None]
    return scaled


def second_sum(scaled: Array) -> Array:
    """Return the sum of x x', shape (d, d), of clipped samples; raw, not private. Time O(n d^2)."""
    total = np.zeros((scaled.shape[1],) * 2)
    with one_blas_thread():
        for start in range(0, len(scaled), BLOCK_SAMPLES):
            x = scaled[start : start + BLOCK_SAMPLES]
            total += x.T @ x
    return total


def second_block(dimension: int, radius: float, name: str = "second") -> Block:
    """Return the block of `pack_pairs` of `second_sum`; two samples differ by `SECOND_RATIO`."""
    return Block(name, (dimension * (dimension + 1) // 2,), radius**2, magnitude=1.01)


def third_sum(vectors: Array, factors: Array | None = None) -> Array:
    """Return the sum of f y x y x y, shape (k, k, k), f = 1 by default; raw, not private.

    Time O(n k^3), memory O(k^3) and one block of samples.
    """
    k = vectors.shape[1]
    total = np.zeros((k, k * k))
    with one_blas_thread():
        for start in range(0, len(vectors), BLOCK_SAMPLES):
            y = vectors[start : start + BLOCK_SAMPLES]
            left = y if factors is None else y * factors[start : start + BLOCK_SAMPLES, None]
            total += left.T @ (y[:, :, None] * y[:, None, :]).reshape(len(y), k * k)
    return total.reshape(k, k, k)


def packed_second(scaled: Array) -> Array:
    """Return the packed sum of x x', as `second_block` describes it; raw, not private."""
    return pack_pairs(second_sum(scaled))
