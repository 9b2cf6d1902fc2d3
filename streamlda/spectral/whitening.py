"""Projections W of word space on m directions, through which a round takes its sums.

Topics are consistent for every W through which the topics stay independent; a good W lowers the
variance. The first projection is random. Later ones span the leading eigenvectors of the second
moment M2 after words are scaled by ``(M1 + 1/d)^(-1/2)``: the sampling noise of a word grows with
its frequency, so in the scaled space noise is about the same in every direction.
"""

import numpy as np

from streamlda.errors import InsufficientDataError, require
from streamlda.spectral.moments import hash_numbers
from streamlda.utils.arrays import Array, row_blocks

#: Eigenvalues of the pair moment below this share of the largest count as zero.
RANK_TOLERANCE = 1e-10


def random_projection(n_features: int, n_columns: int, seed: int) -> Array:
    """Return random signs / sqrt(m), shape (d, m): rows of unit norm, made from the word id.

    The seed has 64 bits. The projection is public and adds no noise. A sign is a function of
    seed, word id and column alone, so it does not depend on the size of the vocabulary.
    """
    probes, scale = np.empty((n_features, n_columns)), 1.0 / np.sqrt(n_columns)
    columns = np.arange(1, n_columns + 1, dtype=np.uint64)
    # Hashes of few words stay in cache, which is five times as fast.
    for rows in row_blocks(n_features, 2**7):
        words = np.arange(rows.start, min(rows.stop, n_features), dtype=np.uint64)
        hashes = hash_numbers(words[:, None] * np.uint64(2**16) + columns, seed)
        probes[rows] = np.where(hashes & np.uint64(1), scale, -scale)
    return probes


def word_scale(first_moment: Array) -> Array:
    """Return the scale of each word, ``((M1 + 1/d) d)^(-1/2)``, shape (d,), between 0 and 1."""
    return 1.0 / np.sqrt(first_moment * len(first_moment) + 1.0)


def centre_pairs(
    first: Array, pairs: Array, whitening: Array, alpha_0: float, out: Array | None = None
) -> Array:
    """Return M2 W = G - alpha_0 / (alpha_0 + 1) M1 (W' M1)', shape (d, m), in `out` if given."""
    centred = np.empty_like(pairs) if out is None else out
    scaled = first * (-alpha_0 / (alpha_0 + 1.0))
    for column, towards in enumerate(whitening.T @ first):
        np.add(scaled * towards, pairs[:, column], out=centred[:, column])
    return centred


def second_moment_within(first: Array, pairs: Array, whitening: Array, alpha_0: float) -> Array:
    """Return W' M2 W, shape (m, m), symmetric; time O(d m^2)."""
    towards = whitening.T @ first
    inner = whitening.T @ pairs - alpha_0 / (alpha_0 + 1.0) * np.outer(towards, towards)
    return (inner + inner.T) / 2


def whitening_root(inner: Array, n_components: int) -> Array:
    """Return R of `inner` = W' M2 W, with R' W' M2 W R = I on its leading K' <= K directions."""
    values, vectors = np.linalg.eigh(inner)
    usable = values > RANK_TOLERANCE * np.abs(values).max(initial=0.0)
    leading = np.flatnonzero(usable)[::-1][:n_components]
    require(
        len(leading),
        "words of the documents do not vary: their pair moment has no positive eigenvalue",
        remedy="read more documents",
        error=InsufficientDataError,
    )
    root: Array = vectors[:, leading] / np.sqrt(values[leading])
    return root


def next_projection(pairs: Array, whitening: Array, scale: Array) -> Array:
    """Return the projection on the leading eigenvectors of M2 in scaled word space.

    A randomised eigendecomposition: ``scale * M2 W`` sketches the range of the scaled M2, and the
    same sketch gives its action within that range; exact when M2 has rank m or less. The result is
    ``scale * U`` with U orthonormal, shape (d, m), in the memory of `pairs`. Time O(d m^2).
    """
    pairs *= scale[:, None]
    corner, seen = orthonormalize(pairs), np.zeros((pairs.shape[1],) * 2)
    for rows in row_blocks(len(pairs)):
        seen += pairs[rows].T @ (whitening[rows] / scale[rows, None])
    action = corner @ np.linalg.pinv(seen)
    values, vectors = np.linalg.eigh((action + action.T) / 2)
    rotation = vectors[:, np.argsort(-np.abs(values), kind="stable")]
    for rows in row_blocks(len(pairs)):
        pairs[rows] = scale[rows, None] * (pairs[rows] @ rotation)
    return np.ascontiguousarray(pairs)


def orthonormalize(columns: Array) -> Array:
    """Make columns orthonormal in place; return R, so that old columns are new ones times R.

    First each block of rows is decomposed, then the corners of all blocks. Time O(d m^2), memory
    O(m) a block.
    """
    corners, start = [], 0
    for rows in row_blocks(len(columns)):
        left, corner = np.linalg.qr(columns[rows])
        columns[rows, : len(corner)] = left
        corners.append(corner)
    left, whole = np.linalg.qr(np.concatenate(corners))
    for rows, corner in zip(row_blocks(len(columns)), corners, strict=True):
        n = len(corner)
        columns[rows] = columns[rows, :n] @ left[start : start + n]
        start += n
    return whole
