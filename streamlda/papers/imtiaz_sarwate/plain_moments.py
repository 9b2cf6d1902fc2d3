"""Symmetric moments in the coordinates of the paper's noise: one value for each free entry.

The paper draws one noise value of one size for each entry i <= j (<= k), and copies it to the
others. That is the Gaussian mechanism on the vector of these entries, *unweighted*. Its norm is at
most that of the whole array. In the coordinates of `streamlda.private.contributions.pack_pairs`,
weighted by the square root of how often an entry occurs, the norm is that of the array and the
noise in an entry off the diagonals is smaller, by up to sqrt(6), at the same privacy.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamlda.private.packing import pack_pairs, pack_triples, unpack_pairs, unpack_triples
from streamlda.spectral.tensor_power import tensor_power

Array = NDArray[np.float64]


def plain_pairs(matrix: Array) -> Array:
    """Return the entries i <= j of a symmetric matrix, row by row, shape (d (d + 1) / 2,)."""
    return pack_pairs(matrix) / pack_pairs(np.ones_like(matrix))


def symmetric_pairs(entries: Array, d: int) -> Array:
    """Return the symmetric matrix that `plain_pairs` was made of."""
    return unpack_pairs(entries * pack_pairs(np.ones((d, d))), d)


def plain_triples(tensor: Array) -> Array:
    """Return the entries i <= j <= k of a symmetric tensor, shape (d (d + 1) (d + 2) / 6,)."""
    return pack_triples(tensor) / pack_triples(np.ones_like(tensor))


def symmetric_triples(entries: Array, d: int) -> Array:
    """Return the symmetric tensor that `plain_triples` was made of."""
    return unpack_triples(entries * pack_triples(np.ones((d, d, d))), d)


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
