"""Leading directions of the samples of several sites: capePCA (section IV, Algorithm 2), DPdisPCA.

capePCA: each site sums x x'; the aggregate is the second moment with the noise of the scheme,
symmetric, and its eigenvectors are the answer. No centring: samples are those of a mean that is
known, as in the paper, and a radius that is public.

DPdisPCA, their earlier scheme: a site adds all the noise that it needs to its own second moment,
and sends the partial square root ``P = U |D|^(1/2)`` of the R largest eigenvalues: d R numbers in
place of d^2. The aggregator takes the leading eigenvectors of ``sum_s mu_s P_s P_s'``. The noise
in that is `conventional`, sqrt(S) times that of capePCA, and what falls below a site's R largest
values is lost. Definition and R = 2 K are those of the authors' program
(`github.com/hafizimtiaz/capePCA`, `my_dPCA_hafiz`). It takes singular values, in which a negative
eigenvalue, which noise alone makes, counts as a positive one: `route="paper"` does too, by default
it counts 0.

Privacy: one stage, all of the budget. Unit, relation and sensitivity are those of
`streamlda.papers.imtiaz_sarwate.vector_moments`. The paper draws noise of one size for every entry
i <= j; `route="paper"` does too. In packed coordinates, the default, entries off the diagonal get
sqrt(2) less at the same privacy. In DPdisPCA each site's noisy moment is a release of its own
samples, of which no other site has one, so that (epsilon, delta) holds for each sample against the
aggregator and all other sites together. A partial square root is made of the noisy moment alone.

References
----------
Imtiaz and Sarwate (2018), IEEE JSTSP 12(6), Algorithm 2, and (2018), *Differentially private
distributed principal component analysis*, ICASSP, their [17]; Dwork, Talwar, Thakurta, Zhang,
*Analyze Gauss*, STOC 2014.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import between, one_of, require
from streamlda.papers.imtiaz_sarwate.simulated import SimulatedSites
from streamlda.papers.imtiaz_sarwate.vector_moments import (
    SECOND_RATIO,
    leading,
    second_block,
)
from streamlda.papers.symmetric import pack, unpack

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
    d = _checked(second_sums, n_components, network, radius, route)
    pack, unpack = _coordinates(route)
    found = network.release(
        [{"second": pack(total)} for total in second_sums],
        [second_block(d, radius)],
        ratio=SECOND_RATIO,
    )
    return Subspace(*leading(unpack(found.sums["second"] / found.documents, d), n_components))


def partial_root_subspace(
    second_sums: Sequence[Array],
    n_components: int,
    network: SimulatedSites,
    radius: float,
    *,
    n_intermediate: int | None = None,
    route: Route = "packed",
) -> Subspace:
    """Return the K leading directions by DPdisPCA.

    Time O(S d^3), memory O(S d^2); a site sends d R numbers.

    Parameters
    ----------
    second_sums, n_components, radius
        As for `principal_subspace`.
    network : SimulatedSites
        Sizes and promises, of the scheme `conventional`: sites share no noise.
    n_intermediate : int, optional
        R, from K to d; 2 K by default, or d if that is less.
    route : {"packed", "paper"}
        Also what a negative eigenvalue of a noisy moment counts: 0, or its absolute value.

    Raises
    ------
    InvalidSettingError
        If sums, sites and numbers do not fit each other, or the scheme is another.
    """
    d = _checked(second_sums, n_components, network, radius, route)
    one_of(("conventional",), scheme=network.scheme, remedy="sites of DPdisPCA share no noise")
    rank = min(2 * n_components, d) if n_intermediate is None else n_intermediate
    between(n_components, d, n_intermediate=rank)
    pack, unpack = _coordinates(route)
    packed = [{"second": pack(total)} for total in second_sums]
    gathered = np.zeros((d, d))
    for site, weight in enumerate(network.plan().weights):
        found = network.alone(site).release(packed, [second_block(d, radius)], ratio=SECOND_RATIO)
        values, vectors = np.linalg.eigh(unpack(found.sums["second"] / found.documents, d))
        values = np.abs(values) if route == "paper" else np.maximum(values, 0.0)
        kept = np.argsort(-values, kind="stable")[:rank]
        root = vectors[:, kept] * np.sqrt(values[kept])
        gathered += weight * root @ root.T
    return Subspace(*leading(gathered, n_components))


def _checked(
    second_sums: Sequence[Array],
    n_components: int,
    network: SimulatedSites,
    radius: float,
    route: Route,
) -> int:
    """Return d of sums that are square, of one shape, and of samples of the network's sizes."""
    shapes = {np.shape(total) for total in second_sums}
    d = next(iter(shapes))[0] if shapes else 0
    one_of(("packed", "paper"), route=route)
    require(
        shapes == {(d, d)} and 1 <= n_components <= d and len(second_sums) == len(network.sizes),
        "directions must be at most as many as the rows of square sums of one shape, one a site",
        shapes=sorted(shapes),
        n_components=n_components,
    )
    # A sample adds at most the squared radius to the trace.
    for site, (total, size) in enumerate(zip(second_sums, network.sizes, strict=True)):
        require(
            float(np.trace(total)) <= size * radius**2 * (1 + 1e-9),
            "the sums of a site must be those of as many clipped samples as the network has there",
            site=site,
            samples=size,
            radius=radius,
            remedy="give the network the size of each site, and clip to the radius",
        )
    return d


def _coordinates(route: Route) -> tuple[Callable[[Array], Array], Callable[[Array, int], Array]]:
    power = 0.5 if route == "packed" else 0.0
    return lambda array: pack(array, power), lambda packed, d: unpack(packed, d, 2, power)
