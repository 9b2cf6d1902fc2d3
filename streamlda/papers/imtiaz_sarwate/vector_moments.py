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

The paper's noise has one size for each entry i <= j (<= k), and is copied to the others: the
Gaussian mechanism on the vector of these entries, *unweighted* (`pack` with power 0),
whose norm is at most that of the array. In the coordinates of `pack_pairs`, weighted by the square
root of how often an entry occurs, the norm is that of the array and the noise in an entry off the
diagonals is smaller, by up to sqrt(6), at the same privacy.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import above, require
from streamlda.errors import InvalidDocumentsError
from streamlda.guarantee.mechanism import Block
from streamlda.guarantee.sums import clip_factors
from streamlda.papers.rounding import SummedBlock
from streamlda.private.packing import pack_pairs
from streamlda.spectral.tensor_power import tensor_power
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
    return SummedBlock(name, (cells,), radius**2, magnitude=1.01)


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


def paper_components(
    pairs: Array, triples: Array, n_components: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Decompose as Algorithm 3 and Appendix B-C do: a_k along U D^(1/2) v_k.

    Post-processing of symmetric M2, of shape (d, d), and M3, (d, d, d). Singular vectors U and
    values D of the K largest of M2 are taken, whatever the sign of an eigenvalue, as SVD does.
    `rng` gives starts of the power iterations. Returned are ``lambda_k U D^(1/2) v_k``, shape
    (K, d), which is a_k without noise, and lambda_k, 1 / sqrt(w_k) without noise. Time O(d^3 K),
    memory O(d^3).
    """
    values, vectors = np.linalg.eigh(pairs)
    leading = np.argsort(-np.abs(values), kind="stable")[:n_components]
    size, U = np.abs(values[leading]), vectors[:, leading]
    W = U / np.sqrt(np.maximum(size, 1e-12 * size.max()))
    seen = triples
    for _ in range(3):
        seen = np.tensordot(seen, W, axes=(0, 0))
    found = tensor_power(seen, n_components, rng=rng)
    components: Array = (U * np.sqrt(size)) @ found.eigenvectors * found.eigenvalues
    return components.T, found.eigenvalues
