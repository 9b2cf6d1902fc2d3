"""The Dirichlet prior of the proportions, from how often topics were given to tokens."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

#: Fixed-point steps a call. From one sweep to the next alpha moves little, so few are enough.
STEPS = 5

#: Least parameter: inference divides by them, and a topic that lost all its tokens may come back.
SMALLEST = 1e-5


def fit_alpha(
    at_least: NDArray[np.int64],
    longer: NDArray[np.int64],
    alpha: NDArray[np.float64],
    steps: int = STEPS,
) -> NDArray[np.float64]:
    """Return alpha after some fixed-point steps towards its maximum likelihood.

    A step is ``alpha[k] *= sum_j at_least[k, j] / (alpha[k] + j)`` over
    ``sum_j longer[j] / (sum(alpha) + j)``: Minka's fixed point [1]_, with the differences of
    digamma functions written as sums [2]_. The likelihood, that of the Dirichlet-multinomial,
    rises with every step. Time O(K * longest document * steps).

    `at_least`, shape (K, L), are the documents with more than j tokens of topic k, `longer`, shape
    (L,), those with more than j tokens. The result is at least 1e-5; without a token it is `alpha`.

    References
    ----------
    .. [1] Minka (2000), "Estimating a Dirichlet distribution", equation 55.
    .. [2] Wallach (2008), "Structured topic models for language", section 2.3.
    """
    found = alpha.copy()
    j = np.arange(len(longer))
    if longer.any():
        for _ in range(steps):
            rises = (at_least / (found[:, None] + j)).sum(axis=1)
            found = np.maximum(found * rises / (longer / (found.sum() + j)).sum(), SMALLEST)
    return found
