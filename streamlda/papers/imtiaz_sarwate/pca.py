"""Second moments, and their leading directions: capePCA (section IV, Algorithm 2) and DPdisPCA.

A sample x adds ``x x'`` with ``||x|| <= radius``, public; samples farther out are scaled down to
it, and those that are not finite add nothing. No centring: the mean is known, as in the paper.

capePCA: each site sums x x' (line 4); the aggregate is the second moment with the noise of the
scheme, symmetric (lines 5 to 8), and its eigenvectors are the answer.

DPdisPCA, their earlier scheme: a site adds all the noise that it needs to its own second moment,
and sends the partial square root ``P = U |D|^(1/2)`` of the R largest eigenvalues: d R numbers in
place of d^2. The aggregator takes the leading eigenvectors of ``sum_s mu_s P_s P_s'``. The noise
in that is `conventional`, sqrt(S) times that of capePCA, and what falls below a site's R largest
values is lost. Definition and R = 2 K are those of the authors' program
(`github.com/hafizimtiaz/capePCA`, `my_dPCA_hafiz`). It takes singular values, in which a negative
eigenvalue, which noise alone makes, counts as a positive one: `route="paper"` does too, by default
it counts 0.

Privacy
-------
Unit: a sample; the number of slots is public. One stage, all of the budget.
``||x x'||_F = ||x||^2 <= C``, C the squared radius: under add-remove the sum moves by C at most,
attained on the sphere. As ``<x x', y y'> = (x'y)^2 >= 0``, two contributions differ, replace-one,
by ``sqrt(2) C`` at most, attained by orthogonal samples on the sphere (errata, entry 3).

The paper's noise has one size for each entry i <= j (<= k), and is copied to the others: the
Gaussian mechanism on the vector of these entries, *unweighted* (`pack` with power 0), whose norm is
at most that of the array; `route="paper"` draws it. In packed coordinates, the default, the norm is
that of the array and the noise in an entry off the diagonals is smaller, by up to sqrt(6), at the
same privacy. In DPdisPCA each site's noisy moment is a release of its own samples, of which no
other site has one, so that (epsilon, delta) holds for each sample against the aggregator and all
other sites together.

References
----------
Imtiaz and Sarwate (2018), IEEE JSTSP 12(6), Algorithm 2, and (2018), *Differentially private
distributed principal component analysis*, ICASSP, their [17]; Dwork, Talwar, Thakurta, Zhang,
*Analyze Gauss*, STOC 2014.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from streamlda.errors import above, between, one_of
from streamlda.guarantee.mechanism import Block
from streamlda.guarantee.sums import clip_factors
from streamlda.papers.faults import check
from streamlda.papers.imtiaz_sarwate.simulated import SimulatedSites
from streamlda.papers.rounding import SummedBlock
from streamlda.papers.symmetric import pack, unpack
from streamlda.utils.arrays import Array
from streamlda.utils.threads import one_blas_thread

Route = Literal["packed", "paper"]

#: Most that two contributions to the second moment differ by, over the squared radius.
SECOND_RATIO = math.sqrt(2)

#: Coordinates of the noise: norms stay Frobenius norms, or entries are as they are.
POWERS = {"packed": 0.5, "paper": 0.0}

#: Samples in one matrix product.
BLOCK_SAMPLES = 4096


def clipped(samples: Array, radius: float) -> Array:
    """Return the samples scaled down to the radius, rows that are not finite as zeros.

    Parameters
    ----------
    samples : array_like of shape (n, d)
    radius : float
        Most that a row may have as its norm; above 0, and public. Choose it so that few are longer:
        1.3 times the root mean square norm that is expected. Noise grows with its square.
    """
    samples = np.asarray(samples, dtype=np.float64)
    above(0, radius=radius, remedy="take a public bound on the norm of a sample")
    with np.errstate(over="ignore", invalid="ignore"):
        norms = np.sqrt(np.einsum("nd,nd->n", samples, samples))
    factors = clip_factors(norms, radius)
    usable = factors > 0
    scaled = np.zeros_like(samples)
    scaled[usable] = samples[usable] * factors[usable, None]
    return scaled


def second_sum(samples: Array) -> Array:
    """Return the sum of x x', of shape (d, d); raw, not private. Time O(n d^2).

    Parameters
    ----------
    scaled : ndarray of shape (n, d)
        Samples of `clipped`.
    """
    total = np.zeros((samples.shape[1],) * 2)
    with one_blas_thread():
        for start in range(0, len(samples), BLOCK_SAMPLES):
            x = samples[start : start + BLOCK_SAMPLES]
            total += x.T @ x
    return total


def second_block(dimension: int, radius: float) -> Block:
    """Return the block of a triangle of `second_sum`; two samples differ by `SECOND_RATIO`."""
    cells = dimension * (dimension + 1) // 2
    return SummedBlock("second", (cells,), radius**2, magnitude=1.01)


@dataclass(frozen=True, slots=True)
class Subspace:
    """Leading directions V, orthonormal columns of shape (d, K), largest eigenvalue first."""

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
    """Return the K leading directions of the samples of all sites. Time O(S d^2 + d^3).

    Parameters
    ----------
    second_sums : sequence of ndarray of shape (d, d)
        For each site `second_sum` of its `clipped` samples. Not private.
    n_components : int
        K, at most d.
    network : SimulatedSites
        Sizes, promises and scheme. What the scheme `pooled` gives is not private.
    radius : float
        That the samples were clipped to; public.
    route : {"packed", "paper"}
    """
    _check_sums(second_sums, n_components, network, radius)
    moment = _release_moment(second_sums, network, radius, route)
    return Subspace(*find_leading(moment, n_components))


def partial_root_subspace(
    second_sums: Sequence[Array],
    n_components: int,
    network: SimulatedSites,
    radius: float,
    *,
    n_intermediate: int | None = None,
    route: Route = "packed",
) -> Subspace:
    """Return the K leading directions by DPdisPCA; a site sends d R numbers. Time O(S d^3).

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
    """
    d = _check_sums(second_sums, n_components, network, radius)
    one_of(("conventional",), scheme=network.scheme, remedy="sites of DPdisPCA share no noise")
    rank = min(2 * n_components, d) if n_intermediate is None else n_intermediate
    between(n_components, d, n_intermediate=rank)
    gathered = np.zeros((d, d))
    for site, weight in enumerate(network.plan().weights):
        moment = _release_moment(second_sums, network.alone(site), radius, route)
        values, vectors = np.linalg.eigh(moment)
        values = np.abs(values) if route == "paper" else np.maximum(values, 0.0)
        kept = np.argsort(-values, kind="stable")[:rank]
        root = vectors[:, kept] * np.sqrt(values[kept])
        gathered += weight * root @ root.T
    return Subspace(*find_leading(gathered, n_components))


def _release_moment(
    second_sums: Sequence[Array], network: SimulatedSites, radius: float, route: Route
) -> Array:
    """Return the second moment with the noise of the scheme, symmetric."""
    d, power = len(second_sums[0]), POWERS[route]
    found = network.release(
        second_sums,
        lambda total: {"second": pack(total, power)},
        [second_block(d, radius)],
        ratio=SECOND_RATIO,
    )
    return unpack(found.sums["second"] / found.documents, d, 2, power)


def find_leading(moment: Array, n_components: int) -> tuple[Array, Array]:
    """Return the K leading eigenvectors, of shape (d, K), and their eigenvalues, largest first."""
    values, vectors = np.linalg.eigh(moment)
    largest = slice(None, -n_components - 1, -1)
    return np.ascontiguousarray(vectors[:, largest]), values[largest]


def captured_energy(subspace: Array, second_moment: Array) -> float:
    """Return q_CE = tr(V' A V), the energy of A that lies in the span of V; no release.

    At most the sum of the K largest eigenvalues of A, attained by their eigenvectors.
    Time O(d^2 K), memory O(d K).

    Parameters
    ----------
    subspace : ndarray of shape (d, K)
        V, orthonormal columns.
    second_moment : ndarray of shape (d, d)
        A, symmetric: the true one, or that of all samples without noise.
    """
    return float(np.sum(subspace * (second_moment @ subspace)))


def _check_sums(
    second_sums: Sequence[Array], n_components: int, network: SimulatedSites, radius: float
) -> int:
    """Return d of sums of as many clipped samples as the network has at each site."""
    d = len(second_sums[0])
    between(1, d, n_components=n_components)
    # A sample adds at most the squared radius to the trace.
    for site, (total, size) in enumerate(zip(second_sums, network.sizes, strict=True)):
        fits = float(np.trace(total)) <= size * radius**2 * (1 + 1e-9)
        check(fits, "samples", site=site, samples=size, radius=radius)
    return d
