"""capeAGN for mixtures of spherical Gaussians: samples of several sites (section V, Appendix B-B).

A sample is t = a_i + z with probability w_i and z ~ N(0, sigma^2 I), so that
``E t t' - sigma^2 I = sum w_i a_i a_i'`` and ``E H(t) = sum w_i a_i x a_i x a_i`` with
``H(t) = t x t x t - sigma^2 sum_d (t x e_d x e_d + e_d x t x e_d + e_d x e_d x t)``. sigma^2, if it
is not given, is the mean of the d - K smallest eigenvalues of the noisy second moment (the authors'
code takes it from the samples). Two routes:

`projected` (ours)
    1. ``t t'`` is aggregated in packed form; U holds its leading eigenvectors above the noise.
    2. Each site sees its samples as y = U't, in k dimensions, and sums
       ``H = y x y x y - sigma^2 sym3(y x I)``, scaled down to a bound B: noise continues
       k (k + 1) (k + 2) / 6 numbers.
    3. Whitening comes after the noise: whitened first, samples of rare components are long, and B
       with them.
`paper` (Algorithm 3)
    d x d x d numbers with noise, then W = U D^(-1/2), then the power method.

A sample at the origin counts as one of the mixture: only sigma^2 is off where there are many.

Privacy
-------
Unit: a sample, at one site. Relation: replace-one; sizes and the radius are public. The second
moment: `streamlda.papers.imtiaz_sarwate.pca`.

- *H in k dimensions*: scaled to norm at most B, public by the release of the second moment: two
  samples differ by 2 B at most, attained by opposite ones, as H(-t) = -H(t). By Pythagoras
  ``||H||^2 = ||y||^6 - 6 sigma^2 ||y||^4 + sigma^4 (3 k + 6) ||y||^2``; where these terms cancel,
  a quarter of the norm of the absolute ones is taken if that is larger.
- *H in d dimensions*, samples of norm at most 1 (scaled by the radius): by the triangle inequality
  ``||H|| <= 1 + 3 d sigma^2``, and 2 + 6 d sigma^2 for a difference: Appendix C. (The norm of the
  second term is sqrt(3 d + 6) sigma^2; the paper's bound is kept for comparison.)

References
----------
Imtiaz and Sarwate (2018), IEEE JSTSP 12(6), Algorithm 3, Appendices B and C; Hsu and Kakade,
*Learning mixtures of spherical Gaussians*, ITCS 2013.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.spatial.distance import cdist

from streamlda.errors import between
from streamlda.guarantee.mechanism import Block
from streamlda.guarantee.sums import clip_factors
from streamlda.papers.faults import check
from streamlda.papers.imtiaz_sarwate import pca
from streamlda.papers.imtiaz_sarwate.simulated import SimulatedSites
from streamlda.papers.rounding import SummedBlock
from streamlda.papers.symmetric import pack, unpack
from streamlda.papers.wang_anandkumar.algorithm_1 import robust_tensor_power
from streamlda.spectral.topics import contract
from streamlda.utils.arrays import Array
from streamlda.utils.threads import one_blas_thread

Route = Literal["projected", "paper"]

#: Part of the budget of the second moment, on our route; the paper halves.
SECOND_PART = 0.8

#: B over the cube of the root of the mean squared norm of a projected sample.
BOUND = 2.0

#: A direction is real when its eigenvalue exceeds this part of the noise's spectral norm.
FLOOR = 1.0


#: Most products of two numbers of samples in one matrix product.
BLOCK_PRODUCTS = 2**23


class MixtureSite:
    """The samples of one site, scaled down to the public radius.

    Parameters
    ----------
    samples : ndarray of shape (n, d)
    radius : float
        Public bound on their norm; longer ones are scaled down to it. Choose it so that few are
        longer: 1.3 times the root mean square norm that is expected. Less bends the means, with
        and without noise; noise grows with its square (second moment) and its cube (third).
    """

    def __init__(self, samples: Array, radius: float) -> None:
        self.samples, self.radius = pca.clipped(samples, radius), float(radius)
        #: N_s and D.
        self.documents, self.dimension = self.samples.shape

    @cached_property
    def second(self) -> Array:
        """Sum of t t'; raw, not private."""
        return pca.second_sum(self.samples)

    def project(self, view: "MixtureView") -> Array:
        """Return the packed sum of clipped H as a view of the second moment has it; raw."""
        y = self.samples @ view.directions
        factors = clip_factors(skew_norms(y, view.variance), view.bound)
        return pack(skew(third_sum(y, factors), factors @ y, view.variance), 0.5)

    def whole(self, variance: float) -> Array:
        """Return the sum of H in all d dimensions, for samples divided by the radius; raw."""
        return skew(self._third, self.samples.sum(axis=0) / self.radius, variance)

    @cached_property
    def _third(self) -> Array:
        return third_sum(self.samples) / self.radius**3


Sites = Sequence[MixtureSite]
Rng = np.random.Generator


@dataclass(frozen=True, slots=True)
class MixtureEstimate:
    """Means a_i, most frequent first, weights w_i, and sigma^2.

    `found` directions stand above the noise; components beyond are zeros, at weight 0.
    """

    components: Array
    weights: Array
    variance: float
    found: int


def learn_mixture(
    sites: Sequence[MixtureSite],
    n_components: int,
    network: SimulatedSites,
    *,
    variance: float | None = None,
    route: Route = "projected",
    rng: np.random.Generator,
) -> MixtureEstimate:
    """Learn the means of a mixture of spherical Gaussians from the samples of several sites.

    Memory O(S d^2); on the paper's route O(S d^3).

    Parameters
    ----------
    sites : sequence of MixtureSite
        One for each of the network, of one dimension and radius.
    n_components : int
        K, below d, or d if the variance is given.
    network : SimulatedSites
        Sizes, promises and scheme. What the scheme `pooled` gives is not private.
    variance : float, optional
        sigma^2, if it is public.
    route : {"projected", "paper"}
    rng : numpy.random.Generator
        Starts of power iterations; it hides nothing.
    """
    spaces = {(site.dimension, site.radius) for site in sites}
    alike = len(spaces) == 1 and tuple(site.documents for site in sites) == network.sizes
    check(alike, "spaces", spaces=sorted(spaces), network=network.sizes)
    d, _ = spaces.pop()
    most = d - 1 if variance is None else d
    between(1, most, n_components=n_components)
    learn = _learn_projected if route == "projected" else _paper
    return learn(sites, n_components, network, variance, rng)


def _learn_projected(
    sites: Sites, n_components: int, network: SimulatedSites, variance: float | None, rng: Rng
) -> MixtureEstimate:
    d, radius = sites[0].dimension, sites[0].radius
    second = network.release(
        sites,
        lambda site: {"second": pack(site.second, 0.5)},
        [pca.second_block(d, radius)],
        part=SECOND_PART,
        ratio=pca.SECOND_RATIO,
    )
    N = second.documents
    # Off the diagonal an entry is its packed value over sqrt(2).
    stddev = second.stddevs["second"] / math.sqrt(2) / N
    moment = unpack(second.sums["second"] / N, d, 2, 0.5)
    view = mixture_view(moment, n_components, stddev, radius, variance)
    k, variance = len(view.sizes), view.variance
    if network.scheme == "pooled":
        # Nothing has to be bounded.
        view = replace(view, bound=radius**3 + variance * math.sqrt(3 * k + 6) * radius)
    third = network.release(
        sites,
        lambda site: {"third": site.project(view)},
        [skew_block(k, view.bound, variance, radius)],
        part=1 - SECOND_PART,
        ratio=2.0,
    )
    means, eigenvalues = mixture_means(view, unpack(third.sums["third"] / N, k, 3, 0.5), rng)
    return _estimate(means, eigenvalues, variance, n_components)


def _paper(
    sites: Sites, n_components: int, network: SimulatedSites, variance: float | None, rng: Rng
) -> MixtureEstimate:
    d, radius = sites[0].dimension, sites[0].radius
    second = network.release(
        sites,
        lambda site: {"second": pack(site.second, 0.0) / radius**2},
        [pca.second_block(d, 1.0)],
        part=0.5,
        ratio=pca.SECOND_RATIO,
    )
    N = second.documents
    moment = unpack(second.sums["second"] / N, d, 2, 0.0)
    values = np.asarray(np.linalg.eigvalsh(moment)[::-1], dtype=np.float64)
    scaled = remaining_variance(values, n_components) if variance is None else variance / radius**2
    bound = 1 + 3 * d * scaled
    third = network.release(
        sites,
        lambda site: {"third": pack(site.whole(scaled), 0.0)},
        [SummedBlock("third", (d * (d + 1) * (d + 2) // 6,), bound, magnitude=1.01)],
        part=0.5,
        ratio=2.0,
    )
    means, eigenvalues = paper_components(
        moment - scaled * np.eye(d), unpack(third.sums["third"] / N, d, 3, 0.0), n_components, rng
    )
    return _estimate(radius * means, eigenvalues, radius**2 * scaled, n_components)


def _estimate(
    means: Array, eigenvalues: Array, variance: float, n_components: int
) -> MixtureEstimate:
    """Order components, most frequent first; missing ones are 0."""
    found, weights = len(means), weights_of(eigenvalues)
    order = np.argsort(-weights, kind="stable")
    components = np.zeros((n_components, means.shape[1]))
    components[:found] = means[order]
    weights = np.append(weights[order], np.zeros(n_components - found))
    return MixtureEstimate(components, weights, variance, found)


@dataclass(frozen=True, slots=True)
class MixtureView:
    """U, eigenvalues less sigma^2, sigma^2 and B of a noisy second moment; all of it is public."""

    directions: Array
    sizes: Array
    variance: float
    bound: float


def mixture_view(
    moment: Array, n_components: int, stddev: float, radius: float, variance: float | None = None
) -> MixtureView:
    """Return what to look at the third moment through; `stddev` is off the diagonal."""
    d = len(moment)
    values, vectors = np.linalg.eigh(moment)
    values, vectors = values[::-1], vectors[:, ::-1]
    variance = remaining_variance(values, n_components) if variance is None else variance
    sizes = values[:n_components] - variance
    k = max(1, int(np.cumprod(sizes > FLOOR * 2 * stddev * math.sqrt(d)).sum()))
    least = 1e-9 * max(float(values[0]), 1e-9 * radius**2)
    bound = BOUND * float(np.maximum(values[:k], 0.0).sum()) ** 1.5
    directions = np.ascontiguousarray(vectors[:, :k])
    return MixtureView(directions, np.maximum(sizes[:k], least), variance, bound)


def mixture_means(view: MixtureView, third: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return means a_i, of shape (k, d), and 1 / sqrt(w_i), but for noise, from E H in U."""
    sizes = view.sizes
    cubed = np.multiply.outer(np.multiply.outer(sizes, sizes), sizes)
    found = robust_tensor_power(third / np.sqrt(cubed), len(sizes), seed=int(rng.integers(2**63)))
    means: Array = (view.directions * np.sqrt(sizes)) @ found.eigenvectors * found.eigenvalues
    return means.T, found.eigenvalues


def skew_norms(y: Array, variance: float) -> Array:
    """Return what H of each projected sample is clipped by: at least its norm, shape (n,)."""
    k, square = y.shape[1], np.einsum("nk,nk->n", y, y)
    twice = variance**2 * (3 * k + 6)
    norm = square * (square * (square - 6 * variance) + twice)
    absolute = square**1.5 + math.sqrt(twice) * np.sqrt(square)
    larger: Array = np.maximum(np.sqrt(np.maximum(norm, 0.0)), absolute / 4)
    return larger


def skew_block(k: int, bound: float, variance: float, radius: float) -> Block:
    """Return the block of the packed sum of H; two samples differ by twice the bound."""
    most = radius**3 + variance * math.sqrt(3 * k + 6) * radius
    return SummedBlock(
        "third", (k * (k + 1) * (k + 2) // 6,), bound, magnitude=max(1.0, 1.01 * most / bound)
    )


def remaining_variance(eigenvalues: Array, n_components: int) -> float:
    """Return the mean of all but the K largest eigenvalues, at least 0."""
    return max(float(eigenvalues[n_components:].mean()), 0.0)


def skew(third: Array, total: Array, variance: float) -> Array:
    """Return the sum of H from those of y x y x y and of y."""
    identity = np.eye(len(total))
    outer = np.multiply.outer(total, identity)
    corrected: Array = third - variance * (
        outer + outer.transpose(1, 0, 2) + outer.transpose(1, 2, 0)
    )
    return corrected


def weights_of(eigenvalues: Array) -> Array:
    """Return w_k, summing to 1, of eigenvalues that are 1 / sqrt(w_k) but for noise."""
    weights = np.where(eigenvalues > 0, np.maximum(eigenvalues, 1e-6) ** -2.0, 0.0)
    total = weights.sum()
    return weights / total if total > 0 else np.full(len(eigenvalues), 1 / len(eigenvalues))


def third_sum(vectors: Array, factors: Array | None = None) -> Array:
    """Return the sum of f y x y x y, shape (k, k, k), f = 1 by default; raw, not private."""
    k = vectors.shape[1]
    total = np.zeros((k, k * k))
    step = max(1, min(pca.BLOCK_SAMPLES, BLOCK_PRODUCTS // k**2))
    with one_blas_thread():
        for start in range(0, len(vectors), step):
            y = vectors[start : start + step]
            left = y if factors is None else y * factors[start : start + step, None]
            total += left.T @ (y[:, :, None] * y[:, None, :]).reshape(len(y), k * k)
    return total.reshape(k, k, k)


def paper_components(
    pairs: Array, triples: Array, n_components: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Decompose as Algorithm 3 and Appendix B-C do: a_k along U D^(1/2) v_k.

    Singular vectors U and values D of the K largest of M2, of shape (d, d), are taken, whatever the
    sign of an eigenvalue, as SVD does. Returned are ``lambda_k U D^(1/2) v_k``, shape (K, d), which
    is a_k without noise, and lambda_k, 1 / sqrt(w_k) without noise.
    """
    values, vectors = np.linalg.eigh(pairs)
    leading = np.argsort(-np.abs(values), kind="stable")[:n_components]
    size, U = np.abs(values[leading]), vectors[:, leading]
    W = U / np.sqrt(np.maximum(size, 1e-12 * size.max()))
    seed = int(rng.integers(2**63))
    found = robust_tensor_power(contract(triples, W), n_components, seed=seed)
    components: Array = (U * np.sqrt(size)) @ found.eigenvectors * found.eigenvalues
    return components.T, found.eigenvalues


def component_error(true: Array, estimated: Array) -> float:
    """Return q_comp, the mean distance of an estimated component from the nearest true one.

    No release. Two estimates may be near the same true component: K copies of one have error 0.

    Parameters
    ----------
    true, estimated : ndarrays of shape (K, d)
    """
    return float(cdist(true, estimated).min(axis=0).mean())
