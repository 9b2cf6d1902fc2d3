"""Projections W: which m directions of word space the next round looks through.

Topics are consistent for every W through which the topics stay independent; a good W lowers the
variance. The first one is random. The next ones span the leading eigenvectors of the second
moment M2 after words are scaled by ``(M1 + 1/d)^(-1/2)``: the sampling noise of a word grows with
its frequency, so in the scaled space noise is about the same in every direction.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import require
from streamlda.kernels import association

Array = NDArray[np.float64]

#: Ratio of squared singular values above which they may be taken from the Gram matrix, at a
#: twentieth of the time: vectors are then orthonormal to 1e-10.
WELL_CONDITIONED = 1e-6


def random_projection(n_features: int, n_columns: int, seed: int) -> Array:
    """Return random signs / sqrt(m), shape (d, m): rows of unit norm, made from the word id.

    The seed has 64 bits. The projection is no secret and adds no noise.
    """
    require(
        n_features >= 1 and 1 <= n_columns < 2**16 and 0 <= seed < 2**64,
        "a random projection must have n_features >= 1, 1 <= n_columns < 65536 and 0 <= seed < "
        "2^64",
        n_features=n_features,
        n_columns=n_columns,
        seed=seed,
        remedy="use fewer columns or another seed",
    )
    probes = np.empty((n_features, n_columns))
    with np.errstate(over="ignore"):
        association.random_signs(np.uint64(seed), probes)
    return probes


def word_scale(first_moment: Array) -> Array:
    """Return the scale of each word, ``((M1 + 1/d) d)^(-1/2)``, shape (d,), between 0 and 1."""
    scale: Array = 1.0 / np.sqrt(first_moment * len(first_moment) + 1.0)
    return scale


def centred_pairs(
    first: Array, pairs: Array, whitening: Array, alpha_0: float, out: Array | None = None
) -> Array:
    """Return M2 W = G - alpha_0 / (alpha_0 + 1) M1 (W' M1)', shape (d, m), in `out` if given."""
    centred = np.empty_like(pairs) if out is None else out
    scaled = first * (-alpha_0 / (alpha_0 + 1.0))
    for column, towards in enumerate(whitening.T @ first):
        np.add(scaled * towards, pairs[:, column], out=centred[:, column])
    return centred


def next_projection(pairs: Array, whitening: Array, scale: Array, n_columns: int) -> Array:
    """Return the projection on the leading eigenvectors of M2 in scaled word space.

    A randomised eigendecomposition: ``scale * M2 W`` sketches the range of the scaled M2, and the
    same sketch gives its action within that range; exact when M2 has rank n_columns or less. The
    result is ``scale * U`` with U orthonormal, shape (d, n_columns). `pairs` are scaled in place.
    Time O(d m^2).
    """
    require(
        1 <= n_columns <= min(pairs.shape),
        "a projection must have at least 1 column and no more than its sketch",
        n_columns=n_columns,
        sketch=pairs.shape,
        remedy="sketch with more columns first",
    )
    # One matrix of words by columns less at a time is 6 MB of 8000 words and 100 columns.
    pairs *= scale[:, None]
    # Cut to n_columns before the action is solved for, not after: with m columns the system is
    # ill-conditioned, and on documents the sampling noise then costs more than the cut.
    left = left_vectors(pairs, n_columns)
    within = left.T @ pairs
    action = within @ np.linalg.pinv(left.T @ (whitening / scale[:, None]))
    values, vectors = np.linalg.eigh((action + action.T) / 2)
    directions = left @ vectors[:, np.argsort(-np.abs(values), kind="stable")]
    directions *= scale[:, None]
    return np.ascontiguousarray(directions)


def left_vectors(matrix: Array, n: int) -> Array:
    """Return the n leading left singular vectors of a slender matrix."""
    squares, right = np.linalg.eigh(matrix.T @ matrix)
    if squares[0] > WELL_CONDITIONED * squares[-1]:
        leading = slice(None, -n - 1, -1)
        left: Array = matrix @ (right[:, leading] / np.sqrt(squares[leading]))
        return left
    return np.linalg.svd(matrix, full_matrices=False)[0][:, :n]
