"""The measures of Imtiaz & Sarwate (2018), section VI: comparisons with the truth, no releases."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from streamlda.errors import require

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
    require(
        np.allclose(subspace.T @ subspace, np.eye(subspace.shape[1]), atol=1e-8),
        "captured energy must be that of orthonormal columns",
        subspace=np.shape(subspace),
        remedy="orthonormalise the columns",
    )
    return float(np.sum(subspace * (second_moment @ subspace)))


def component_error(true: Array, estimated: Array) -> float:
    """Return q_comp, the mean distance of an estimated component from the nearest true one.

    Two estimates may be near the same true component: K copies of one of them have error 0.

    Parameters
    ----------
    true, estimated : ndarrays of shape (K, d)
    """
    return float(cdist(true, estimated).min(axis=0).mean())
