"""The measures of Imtiaz & Sarwate (2018), section VI, and one that is harder to please.

Privacy: all of them compare with the truth. They are for experiments; none is a release.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import require

Array = NDArray[np.float64]


def captured_energy(subspace: Array, second_moment: Array) -> float:
    """Return q_CE = tr(V' A V), the energy of A that lies in the span of V.

    At most the sum of the K largest eigenvalues of A, attained by their eigenvectors.
    Time O(d^2 K), memory O(d K).

    Parameters
    ----------
    subspace : ndarray of shape (d, K)
        V, orthonormal columns.
    second_moment : ndarray of shape (d, d)
        A, symmetric: the true one, or that of all samples without noise.
    """
    fits = np.ndim(subspace) == 2 and np.shape(second_moment) == (len(subspace),) * 2
    require(
        fits and np.allclose(subspace.T @ subspace, np.eye(subspace.shape[1]), atol=1e-8),
        "captured energy must be that of orthonormal columns in the space of the second moment",
        subspace=np.shape(subspace),
        second_moment=np.shape(second_moment),
        remedy="orthonormalise the columns",
    )
    return float(np.sum(subspace * (second_moment @ subspace)))


def component_error(true: Array, estimated: Array) -> float:
    """Return q_comp, the mean distance of an estimated component from the nearest true one.

    Two estimates may be near the same true component: K copies of one of them have error 0, which
    `matched_component_error` does not allow. Time O(K^2 d), memory O(K^2).

    Parameters
    ----------
    true, estimated : ndarrays of shape (K, d)
    """
    return float(_distances(true, estimated).min(axis=0).mean())


def matched_component_error(true: Array, estimated: Array) -> float:
    """Return the mean distance under the best one-to-one matching; at least `component_error`."""
    from scipy.optimize import linear_sum_assignment

    distances = _distances(true, estimated)
    rows, columns = linear_sum_assignment(distances)
    return float(distances[rows, columns].mean())


def _distances(true: Array, estimated: Array) -> Array:
    from scipy.spatial.distance import cdist

    require(
        np.shape(true) == np.shape(estimated) and np.ndim(true) == 2,
        "components must be compared at the same shape",
        true=np.shape(true),
        estimated=np.shape(estimated),
        remedy="fill up missing ones with what is known without them",
    )
    found: Array = cdist(true, estimated)
    return found
