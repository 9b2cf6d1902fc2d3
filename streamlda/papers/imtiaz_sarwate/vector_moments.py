"""Raw second and third moments of real vectors, each scaled down to a public radius.

A sample x adds ``x x'`` with ``||x|| <= radius``, samples farther out are scaled down to it, and
those that are not finite add nothing. Sums are packed as in `streamlda.private.contributions`.

Privacy
-------
Unit: a sample; the number of slots is public. ``||x x'||_F = ||x||^2 <= C``, C the squared radius:
under add-remove the sum moves by C at most, attained on the sphere. As
``<x x', y y'> = (x'y)^2 >= 0``, two contributions differ, replace-one, by ``sqrt(2) C`` at most,
attained by orthogonal samples on the sphere.

The paper takes C (1/N for a mean of unit vectors): that bounds the *spectral* norm of a difference,
and is too small by sqrt(2) for noise on every entry under replace-one. It holds for add-remove.
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
from streamlda.utils.threads import one_blas_thread

Array = NDArray[np.float64]

#: Most that two contributions to the second moment differ by, over the squared radius.
SECOND_RATIO = math.sqrt(2)

#: Samples in one matrix product, and at most as many products of two of their numbers.
BLOCK_SAMPLES, BLOCK_PRODUCTS = 4096, 2**23


def clipped(samples: Array, radius: float) -> Array:
    """Return the samples scaled down to the radius, rows that are not finite as zeros.

    Time O(n d), memory that of the samples.

    Parameters
    ----------
    samples : array_like of shape (n, d)
    radius : float
        Most that a row may have as its norm; above 0, and public. Choose it so that few are longer:
        1.3 times the root mean square norm that is expected. Noise grows with its square.

    Returns
    -------
    ndarray of shape (n, d)

    Raises
    ------
    InvalidDocumentsError
        If samples are not rows.
    InvalidSettingError
        If the radius is not above 0.
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
    """Return the sum of x x' of clipped samples; raw, not private. Time O(n d^2).

    Parameters
    ----------
    scaled : ndarray of shape (n, d)
        Of `clipped`.

    Returns
    -------
    ndarray of shape (d, d)
    """
    total = np.zeros((scaled.shape[1],) * 2)
    with one_blas_thread():
        for start in range(0, len(scaled), BLOCK_SAMPLES):
            x = scaled[start : start + BLOCK_SAMPLES]
            total += x.T @ x
    return total


def second_block(dimension: int, radius: float, name: str = "second") -> Block:
    """Return the block of `pack_pairs` of `second_sum`; two samples differ by `SECOND_RATIO`."""
    cells = dimension * (dimension + 1) // 2
    return Block(name, (cells,), radius**2, magnitude=1.01)


def third_sum(vectors: Array, factors: Array | None = None) -> Array:
    """Return the sum of f y x y x y, shape (k, k, k), f = 1 by default; raw, not private.

    Time O(n k^3), memory O(k^3) and one block of samples.
    """
    k = vectors.shape[1]
    total = np.zeros((k, k * k))
    step = max(1, min(BLOCK_SAMPLES, BLOCK_PRODUCTS // k**2))
    with one_blas_thread():
        for start in range(0, len(vectors), step):
            y = vectors[start : start + step]
            left = y if factors is None else y * factors[start : start + step, None]
            total += left.T @ (y[:, :, None] * y[:, None, :]).reshape(len(y), k * k)
    return total.reshape(k, k, k)


def packed_second(scaled: Array) -> Array:
    """Return the packed sum of x x', as `second_block` describes it; raw, not private."""
    return pack_pairs(second_sum(scaled))


def leading(moment: Array, n_components: int) -> tuple[Array, Array]:
    """Return the K leading eigenvectors, of shape (d, K), and their eigenvalues, largest first."""
    values, vectors = np.linalg.eigh(moment)
    largest = slice(None, -n_components - 1, -1)
    return np.ascontiguousarray(vectors[:, largest]), values[largest]
