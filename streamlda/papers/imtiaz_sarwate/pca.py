"""capePCA: the leading directions of the samples of several sites (section IV, Algorithm 2).

Each site sums x x'; the aggregate is the second moment with the noise of the scheme, symmetric, and
its eigenvectors are the answer. No centring: samples are those of a mean that is known, as in the
paper, and a radius that is public.

Privacy: one stage, all of the budget. Unit, relation and sensitivity are those of
`streamlda.papers.imtiaz_sarwate.vector_moments`. The paper draws noise of one size for every entry
i <= j; `route="paper"` does too. In packed coordinates, the default, entries off the diagonal get
sqrt(2) less at the same privacy.

References
----------
Imtiaz and Sarwate (2018), IEEE JSTSP 12(6), Algorithm 2; Dwork, Talwar, Thakurta, Zhang,
*Analyze Gauss*, STOC 2014.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import one_of, require
from streamlda.papers.imtiaz_sarwate.plain_moments import plain_pairs, symmetric_pairs
from streamlda.papers.imtiaz_sarwate.simulated import SimulatedSites
from streamlda.papers.imtiaz_sarwate.vector_moments import SECOND_RATIO, second_block
from streamlda.private.packing import pack_pairs, unpack_pairs

Array = NDArray[np.float64]
Route = Literal["packed", "paper"]


@dataclass(frozen=True, slots=True)
class Subspace:
    """Leading directions V, orthonormal columns of shape (d, K), largest eigenvalue first.

    `eigenvalues` of the noisy second moment may be negative where noise is all there is.
    """

    vectors: Array
    eigenvalues: Array


def principal_subspace(
    second_sums: Sequence[Array],
    n_components: int,
    network: SimulatedSites,
    radius: float,
    *,
    route: Route = "packed",
) -> Subspace:
    """Return the K leading directions of the samples of all sites.

    Time O(S d^2 + d^3), memory O(S d^2).

    Parameters
    ----------
    second_sums : sequence of ndarray of shape (d, d)
        For each site `vector_moments.second_sum` of its `clipped` samples. Not private.
    n_components : int
        K, at most d.
    network : SimulatedSites
        Sizes, promises and scheme. What the scheme `pooled` gives is not private.
    radius : float
        That the samples were clipped to; public.
    route : {"packed", "paper"}
    """
    shapes = {np.shape(total) for total in second_sums}
    d = next(iter(shapes))[0] if shapes else 0
    one_of(("packed", "paper"), route=route)
    require(
        shapes == {(d, d)} and 1 <= n_components <= d,
        "directions must be at most as many as the rows of square sums of one shape",
        shapes=sorted(shapes),
        n_components=n_components,
    )
    pack, unpack = (
        (pack_pairs, unpack_pairs) if route == "packed" else (plain_pairs, symmetric_pairs)
    )
    found = network.release(
        [{"second": pack(total)} for total in second_sums],
        [second_block(d, radius)],
        ratio=SECOND_RATIO,
    )
    values, vectors = np.linalg.eigh(unpack(found.sums["second"] / found.documents, d))
    leading = slice(None, -n_components - 1, -1)
    return Subspace(np.ascontiguousarray(vectors[:, leading]), values[leading])
