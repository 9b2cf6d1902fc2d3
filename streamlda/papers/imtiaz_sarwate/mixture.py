"""Mixtures of spherical Gaussians from a second moment and one seen in its leading directions.

A sample is t = a_i + z with probability w_i and z ~ N(0, sigma^2 I), so that
``E t t' - sigma^2 I = sum w_i a_i a_i'`` and ``E H(t) = sum w_i a_i x a_i x a_i`` with
``H(t) = t x t x t - sigma^2 sum_d (t x e_d x e_d + e_d x t x e_d + e_d x e_d x t)``. sigma^2, if it
is not given, is the mean of the d - K smallest eigenvalues; U holds the leading eigenvectors that
stand above the noise. Samples are seen in the k dimensions of U, y = U't, as
``H = y x y x y - sigma^2 sym3(y x I)``, scaled down to a bound B, k (k + 1) (k + 2) / 6 numbers.
Whitening comes *after* the noise: whitened first, samples of rare components are long, and B with
them. A sample at the origin counts as one of it: only sigma^2 is off where there are many.

Privacy
-------
Unit: a sample; the number of slots and the radius are public.

*H in k dimensions*: scaled to norm at most B, public by an earlier release of the second moment
(`vector_moments`): under add-remove the sum moves by B at most, and two samples differ,
replace-one, by 2 B at most, attained by opposite ones, as H(-t) = -H(t). By Pythagoras
``||H||^2 = ||y||^6 - 6 sigma^2 ||y||^4 + sigma^4 (3 k + 6) ||y||^2``; where these terms cancel, a
quarter of the norm of the absolute ones is taken if that is larger.

References
----------
Hsu and Kakade, *Learning mixtures of spherical Gaussians*, ITCS 2013; Imtiaz and Sarwate (2018),
section V.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamlda.privacy.mechanism import Block
from streamlda.spectral.tensor_power import tensor_power

Array = NDArray[np.float64]

#: B over the cube of the root of the mean squared norm of a projected sample.
BOUND = 2.0

#: A direction is real when its eigenvalue exceeds this part of the noise's spectral norm.
FLOOR = 1.0


@dataclass(frozen=True, slots=True)
class MixtureView:
    """View of a noisy second moment; all of it is public.

    U, of shape (d, k), eigenvalues less sigma^2, shape (k,), sigma^2, and B.
    """

    directions: Array
    sizes: Array
    variance: float
    bound: float


def mixture_view(
    moment: Array, n_components: int, stddev: float, radius: float, variance: float | None = None
) -> MixtureView:
    """Return what to look at the third moment through. Time O(d^3).

    `stddev` is that of the noise in an entry of the moment off the diagonal.
    """
    d = len(moment)
    values, vectors = np.linalg.eigh(moment)
    values, vectors = values[::-1], vectors[:, ::-1]
    variance = remaining_variance(values, n_components) if variance is None else variance
    sizes = values[:n_components] - variance
    k = max(1, int(np.cumprod(sizes > FLOOR * 2 * stddev * math.sqrt(d)).sum()))
    least = 1e-9 * max(float(values[0]), 1e-9 * radius**2)
    bound = BOUND * float(np.maximum(values[:k], 0.0).sum()) ** 1.5
    return MixtureView(
        np.ascontiguousarray(vectors[:, :k]),
        np.maximum(sizes[:k], least),
        variance,
        bound,
    )


def mixture_means(view: MixtureView, third: Array, rng: np.random.Generator) -> tuple[Array, Array]:
    """Return means a_i, of shape (k, d), and 1 / sqrt(w_i), but for noise, from E H in U.

    `rng` gives starts of power iterations. Time O(k^4).
    """
    sizes = view.sizes
    cubed = np.multiply.outer(np.multiply.outer(sizes, sizes), sizes)
    found = tensor_power(third / np.sqrt(cubed), len(sizes), rng=rng)
    means: Array = (view.directions * np.sqrt(sizes)) @ found.eigenvectors * found.eigenvalues
    return means.T, found.eigenvalues


def in_order(means: Array, eigenvalues: Array, n_components: int) -> tuple[Array, Array]:
    """Return means and weights of K components, most frequent first; missing ones are 0."""
    found, weights = len(means), weights_of(eigenvalues)
    order = np.argsort(-weights, kind="stable")
    components = np.zeros((n_components, means.shape[1]))
    components[:found] = means[order]
    return components, np.append(weights[order], np.zeros(n_components - found))


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
    return Block(
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
