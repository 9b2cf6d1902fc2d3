"""Noise of each of several sites, and the part of it that is left against each adversary.

S sites want ``sum_s mu_s a_s``, with weights mu_s that sum to 1; a_s is a statistic of the
documents of site s, such as a mean. Alone, the site would have to add noise of standard deviation
``tau_s = z_s * sensitivity of a_s`` for what it has promised, 1/z_s-GDP. It sends

    a_s + m_s + g_s,      sum_s mu_s m_s = 0,

with Gaussian noise g_s of mean zero that it alone knows, and a mask m_s, uniform on a group
(`streamlda.sites.keys`). The masks cancel in the aggregate, ``sum_s mu_s (a_s + g_s)``.

Notation
--------
In units of the aggregate, ``T_s = mu_s tau_s`` is the noise that site s needs, and
``u = mu_s^2 tau_gs^2``, the same for all sites, what its local noise gives.

- *Pooled.* If one holder had all documents, one noise would have to do for the documents of every
  site: ``tau_c = max_s T_s``. For equal promises and means of N_s documents each, with
  ``mu_s = N_s / N``, all T_s are equal and tau_c is that of a mean of N documents.
- *Local.* ``u = tau_c^2 / (S - t)``: any S - t sites have together the noise of the pooled case.
  With t = 0 this is the pooled noise and no more; t is the number of `colluders` that the promise
  to the others is to bear.

Adversaries
-----------
A document of site s moves ``mu_s a_s`` by at most T_s / z_s. Who sees it under Gaussian noise of
variance v has ``(T_s / sqrt(v)) / z_s``-GDP; `losses` gives the first factor, 1 for what was
promised. With c colluding sites and h = S - c honest ones:

- *The aggregator and c <= S - 2 sites*: the honest sum, with all honest noise, is all there is:
  ``v = h u``. With c <= t it is at least tau_c^2. After a drop-out nothing is left to see.
- *The aggregator and all S - 1 others* know the mask of the last: ``v = u``.

CAPE has Gaussian noise in place of the masks (`streamlda.papers.imtiaz_sarwate.cape`): with it the
aggregator learns up to sqrt(2 S / (S + 1)) times what was promised.

Privacy: nothing here reads data. All of a plan is public.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamlda.checks import require

Array = NDArray[np.float64]

#: How far weights may be from one together: they come from files and divisions.
SUM_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class NoisePlan:
    """The noise of S sites; see the module for the symbols.

    `weights`: mu_s, at least two, above 0, of sum 1. `site_stddevs`: tau_s, above 0, in the units
    of a_s: what a site would need alone. `colluders`: t, sites that may help the aggregator without
    weakening the promise, 0 to S - 1; the noise of the aggregate is sqrt(S / (S - t)) times the
    pooled one.
    """

    weights: tuple[float, ...]
    site_stddevs: tuple[float, ...]
    colluders: int = 0

    def __post_init__(self) -> None:
        check_weights(self.weights)
        require(
            len(self.site_stddevs) == len(self.weights)
            and all(0 < value < math.inf for value in self.site_stddevs),
            "every site must have a standard deviation > 0 and finite",
            site_stddevs=self.site_stddevs,
            sites=len(self.weights),
            remedy="give one for each",
        )
        check_colluders(self.colluders, len(self.weights))

    @property
    def n_sites(self) -> int:
        """S."""
        return len(self.weights)

    @property
    def needed(self) -> tuple[float, ...]:
        """T_s = mu_s tau_s: what each site needs, in units of the aggregate."""
        return tuple(m * t for m, t in zip(self.weights, self.site_stddevs, strict=True))

    @property
    def pooled(self) -> float:
        """tau_c, in the units of the aggregate: the least that every site's promise allows."""
        return max(self.needed)

    @property
    def local_fraction(self) -> float:
        """1 / (S - t): variance of a site's local noise over the pooled variance."""
        return 1.0 / (self.n_sites - self.colluders)

    @property
    def local_variance(self) -> float:
        """u, variance of a site's local noise in units of the aggregate."""
        return self.pooled**2 * self.local_fraction

    @property
    def local(self) -> tuple[float, ...]:
        """tau_gs, standard deviation of g_s at each site."""
        weighted = self.pooled * math.sqrt(self.local_fraction)
        return tuple(weighted / m for m in self.weights)

    @property
    def aggregate(self) -> float:
        """Standard deviation of the noise in the aggregate: sqrt(sum_s mu_s^2 tau_gs^2)."""
        return math.sqrt(sum((m * g) ** 2 for m, g in zip(self.weights, self.local, strict=True)))

    def losses(self, colluders: int, more: float = 0.0) -> Array:
        """Return how many times more than promised the aggregator and c colluding sites learn.

        A document of site s is (result_s / z_s)-GDP against them, if it is not at a colluder.
        `colluders` is c, from 0 to S - 1, not necessarily the t of the plan. Shape (S,). With
        `more`, the adversary has 1/v = 1/(h u) + `more`.
        """
        check_colluders(colluders, self.n_sites)
        honest = self.n_sites - colluders
        variance = 1.0 / (1.0 / (honest * self.local_variance) + more)
        return np.asarray(np.array(self.needed) / math.sqrt(variance))


def check_weights(weights: Sequence[float]) -> None:
    """Refuse weights that are not at least two numbers above 0 of sum 1."""
    require(
        len(weights) >= 2 and all(0 < weight < 1 for weight in weights),
        "there must be at least two sites, each of a weight between 0 and 1",
        weights=tuple(weights),
        remedy="leave out sites of no weight",
    )
    total = math.fsum(weights)
    require(
        abs(total - 1) <= SUM_TOLERANCE,
        "weights of all sites must sum to 1",
        sum=total,
        weights=tuple(weights),
        remedy="divide each by their sum",
    )


def check_colluders(colluders: int, n_sites: int) -> None:
    """Refuse a number of colluding sites that is not from 0 to S - 1."""
    require(
        0 <= colluders <= n_sites - 1,
        "colluders must be from 0 to one less than the sites",
        colluders=colluders,
        sites=n_sites,
    )
