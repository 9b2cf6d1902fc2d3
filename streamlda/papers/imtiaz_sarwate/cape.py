"""CAPE, section III: Gaussian zero-sum noise of S sites, and the losses to each adversary.

S sites want ``sum_s mu_s a_s``, with weights mu_s that sum to 1; a_s is a statistic of the samples
of site s, such as a mean. Alone, the site would have to add noise of standard deviation
``tau_s = z_s * sensitivity of a_s`` for its promise of 1/z_s-GDP. It sends

    a_s + e_s + f_s + g_s,      sum_s mu_s e_s = 0,

where e_s is known to nobody but the sites, f_s to the aggregator (and to the site), g_s to the site
alone. The aggregator takes off what it knows and has ``sum_s mu_s (a_s + g_s)``: e_s is gone. All
noise is Gaussian, of mean zero.

In units of the aggregate, ``T_s = mu_s tau_s`` is the noise that site s needs, and
``u = mu_s^2 tau_gs^2``, the same for all sites, the part that its local noise gives.

- *Pooled.* If one holder had all samples, one noise would have to do for the samples of every
  site: ``tau_c = max_s T_s``. For equal promises and means of N_s samples each, with
  ``mu_s = N_s / N``, all T_s are equal and tau_c is that of a mean of N samples.
- *Local.* ``u = tau_c^2 / (S - t)``: any S - t sites have together the noise of the pooled case.
  t is the number of `colluders` that the promise to the others is to bear.
- *Known to the aggregator.* ``tau_fs^2 = max(tau_s^2 - tau_gs^2, 0)``.
- *Zero-sum.* ``mu_s e_s = kappa (xi_s - mean of xi)`` with independent standard normal xi_s, so
  ``mu_s^2 tau_es^2 = kappa^2 (1 - 1/S)``, with the least kappa for which
  ``tau_es^2 + tau_gs^2 >= tau_s^2`` at every site.

For equal sites and t = 0 these are the paper's (2): tau_g^2 = tau^2 / S, the other two
(1 - 1/S) tau^2. The solution here exists for all weights and demands (errata, entry 1).

Adversaries
-----------
A sample of site s moves ``mu_s a_s`` by at most T_s / z_s. Under Gaussian noise of variance v it is
``(T_s / sqrt(v)) / z_s``-GDP; `CapePlan.losses` and `CapePlan.gaussian_losses` give the first
factor, 1 for the promise, with masks in place of e_s (``v = h u`` for h honest sites) and with e_s.

- *Who sees one share alone* and knows e_s but not f_s, or the other way round: the noise is
  tau_s^2 at least, by construction: as much as in the conventional scheme, whoever drops out.
- *After a drop-out* the aggregator has fewer shares, hence never more than in the next line. The
  zero-sum terms of m of S sites do not cancel: for equal sites their sum has a noise of variance
  ``m (1 - (m - 1) / S) T^2``, between that of the pooled and of the conventional scheme
  (`CapePlan.after_drop_out`).
- *The aggregator and c <= S - 2 sites.* They know f, the colluders' e and g and, as e sums to zero,
  the sum of the honest e. Given that, the honest shares have noise of covariance
  ``u I + kappa^2 (I - 11'/h)``, with eigenvalue u once, along 1, and u + kappa^2 else. One entry
  that moves is seen under ``1/v = (1/h) / u + (1 - 1/h) / (u + kappa^2)``.
- *The aggregator and all S - 1 others* know e_s too: ``v = u``.

The paper calibrates tau_e so that one share *by itself* keeps the promise; the aggregator has them
all (errata, entry 2). Masks close this gap, so the protocol of `streamlda.sites` uses masks, and
needs no f. All of a plan is public.

References
----------
Imtiaz and Sarwate, Distributed differentially private algorithms for matrix and tensor
factorization, IEEE JSTSP 12(6), 2018, section III.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from streamlda.errors import between
from streamlda.papers.faults import check
from streamlda.utils.arrays import Array


@dataclass(frozen=True, slots=True)
class CapePlan:
    """The noise of S sites with Gaussian zero-sum terms; see the module for the symbols.

    Parameters
    ----------
    weights : tuple of float
        mu_s, of S sites, at least two: above 0, of sum 1.
    site_stddevs : tuple of float
        tau_s, of length S, above 0, in the units of what a site releases: what it would need alone.
    colluders : int, default 0
        t, sites that may help the aggregator, 0 to S - 1.
    """

    weights: tuple[float, ...]
    site_stddevs: tuple[float, ...]
    colluders: int = 0

    def __post_init__(self) -> None:
        sites, stddevs = len(self.weights), self.site_stddevs
        positive = sites >= 2 and all(0 < weight < 1 for weight in self.weights)
        whole = positive and abs(math.fsum(self.weights) - 1) <= 1e-9
        check(whole, "weights", weights=self.weights)
        finite = len(stddevs) == sites and all(0 < value < math.inf for value in stddevs)
        check(finite, "stddevs", site_stddevs=stddevs, sites=sites)
        between(0, self.n_sites - 1, colluders=self.colluders)

    @property
    def n_sites(self) -> int:
        """S."""
        return len(self.weights)

    @property
    def needed_noise(self) -> tuple[float, ...]:
        """T_s = mu_s tau_s: the noise that each site needs, in units of the aggregate."""
        return tuple(m * t for m, t in zip(self.weights, self.site_stddevs, strict=True))

    @property
    def pooled_noise(self) -> float:
        """tau_c, in the units of the aggregate: the least that every site's promise allows."""
        return max(self.needed_noise)

    @property
    def local_variance(self) -> float:
        """u, variance of a site's local noise in units of the aggregate."""
        return self.pooled_noise**2 / (self.n_sites - self.colluders)

    @property
    def local(self) -> tuple[float, ...]:
        """tau_gs, standard deviation of g_s at each site."""
        return tuple(math.sqrt(self.local_variance) / m for m in self.weights)

    @property
    def aggregate(self) -> float:
        """Standard deviation of the noise in the aggregate: sqrt(sum_s mu_s^2 tau_gs^2)."""
        return math.sqrt(self.n_sites * self.local_variance)

    def losses(self, colluders: int, more: float = 0.0) -> Array:
        """Return how many times more than promised the aggregator and c colluding sites learn.

        A document of site s is (result_s / z_s)-GDP against them, if it is not at a colluder.
        With `more`, the adversary has 1/v = 1/(h u) + `more`.
        """
        between(0, self.n_sites - 1, colluders=colluders)
        honest = self.n_sites - colluders
        variance = 1.0 / (1.0 / (honest * self.local_variance) + more)
        return np.asarray(np.array(self.needed_noise) / math.sqrt(variance))

    @classmethod
    def for_means(
        cls,
        sizes: Sequence[int],
        noise_multipliers: Sequence[float] | float,
        *,
        sensitivity: float = 1.0,
        weights: Sequence[float] | None = None,
        colluders: int = 0,
    ) -> Self:
        """Return the plan for means over each site's documents.

        `sizes`: N_s, public. `noise_multipliers`: z_s, standard deviation over sensitivity that
        each site asks for. `sensitivity`: most that one document moves the *sum* of a site.
        `weights` are N_s / N by default.
        """
        z = np.broadcast_to(np.asarray(noise_multipliers, dtype=float), (len(sizes),))
        shares = [size / sum(sizes) for size in sizes] if weights is None else weights
        stddevs = [float(z_s) * sensitivity / n for z_s, n in zip(z, sizes, strict=True)]
        return cls(tuple(map(float, shares)), tuple(stddevs), colluders)

    @property
    def aggregator_known(self) -> tuple[float, ...]:
        """tau_fs, standard deviation of f_s at each site; 0 where local noise is enough."""
        pairs = zip(self.site_stddevs, self.local, strict=True)
        return tuple(math.sqrt(max(tau**2 - g**2, 0.0)) for tau, g in pairs)

    @property
    def kappa(self) -> float:
        """Scale of the zero-sum terms, in units of the aggregate."""
        wanted = max(max(T**2 - self.local_variance, 0.0) for T in self.needed_noise)
        return math.sqrt(wanted / (1 - 1 / self.n_sites))

    @property
    def zero_sum(self) -> tuple[float, ...]:
        """tau_es, standard deviation of e_s at each site."""
        weighted = self.kappa * math.sqrt(1 - 1 / self.n_sites)
        return tuple(weighted / m for m in self.weights)

    @property
    def conventional(self) -> float:
        """Noise of the aggregate if every site adds all of tau_s by itself."""
        return math.sqrt(sum(T**2 for T in self.needed_noise))

    def gaussian_losses(self, colluders: int) -> Array:
        """Return losses as `losses` does, with Gaussian terms e_s in place of masks."""
        between(0, self.n_sites - 1, colluders=colluders)
        honest = self.n_sites - colluders
        return self.losses(colluders, (1 - 1 / honest) / (self.local_variance + self.kappa**2))

    def after_drop_out(self, present: Sequence[int]) -> float:
        """Return the noise of ``sum mu_s (a_s + e_s + g_s)`` over the sites that are left."""
        m, S = len(present), self.n_sites
        return math.sqrt(m * self.local_variance + self.kappa**2 * m * (1 - m / S))
