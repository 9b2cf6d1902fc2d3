"""Where topics lie on a flat map: classical scaling of their distances."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class FlatMap(NamedTuple):
    """Positions of topics in two dimensions, (K, 2), centred and in the units of the distances.

    Equal input gives equal output, signs included. `explained` is the part of the spread of the
    topics, 0 to 1, that each dimension shows.
    """

    positions: Array
    explained: tuple[float, float]


def flat_map(distances: Array) -> FlatMap:
    """Place points so that straight lines are as near to their distances as two dimensions allow.

    Classical multidimensional scaling [1]_: the two leading eigenvectors of ``-J D^2 J / 2``, with
    D^2 the squared distances and J the centring. Time O(K^3), memory O(K^2).

    References
    ----------
    .. [1] Torgerson (1952), Psychometrika 17, 401-419.
    """
    K = len(distances)
    centring = np.eye(K) - 1.0 / K
    inner = -centring @ distances**2 @ centring / 2
    values, vectors = np.linalg.eigh((inner + inner.T) / 2)
    values, vectors = np.maximum(values[::-1], 0.0), vectors[:, ::-1]
    positions = np.zeros((K, 2))
    n = min(2, K)
    positions[:, :n] = vectors[:, :n] * np.sqrt(values[:n])
    # The sign of an eigenvector is arbitrary: its largest entry is made positive.
    largest = positions[np.abs(positions).argmax(axis=0), [0, 1]]
    positions *= np.where(largest < 0, -1.0, 1.0)
    total = float(values.sum())
    shown = [float(value) / total if total > 0 else 0.0 for value in values[:n]]
    return FlatMap(positions, (shown[0], shown[1] if n > 1 else 0.0))
