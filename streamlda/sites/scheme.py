"""How much noise each of several sites adds, and what is left of it for whom (CAPE).

S sites want ``sum_s mu_s a_s``, with weights mu_s that sum to 1; a_s is a statistic of the
documents of site s, such as a mean. Alone, the site would have to add noise of standard deviation
``tau_s = z_s * sensitivity of a_s`` for what it has promised, 1/z_s-GDP. It sends

    a_s + e_s + f_s + g_s,      sum_s mu_s e_s = 0,

where e_s is known to nobody but the sites, f_s to the aggregator (and to the site), g_s to the site
alone. The aggregator takes off what it knows and has ``sum_s mu_s (a_s + g_s)``: e_s is gone. All
noise is Gaussian, of mean zero.

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
- *Known to the aggregator.* ``tau_fs^2 = max(tau_s^2 - tau_gs^2, 0)``.
- *Zero-sum.* ``mu_s e_s = kappa (xi_s - mean of xi)`` with independent standard normal xi_s, so
  ``mu_s^2 tau_es^2 = kappa^2 (1 - 1/S)``, with the least kappa for which
  ``tau_es^2 + tau_gs^2 >= tau_s^2`` at every site.

For equal sites and t = 0 these are the paper's (2): tau_g^2 = tau^2 / S, the other two
(1 - 1/S) tau^2. The solution that section III-A prints for unequal sites is another: it takes
independent e_1 ... e_(S-1) and has tau_gS^2 = (3 - S) tau^2 / 2 for equal sites, which is negative
for S > 3. The one here exists for all weights and demands.

What each adversary has
-----------------------
A document of site s moves ``mu_s a_s`` by at most T_s / z_s. Who sees it under Gaussian noise of
variance v has ``(T_s / sqrt(v)) / z_s``-GDP; `losses` gives the first factor, 1 for what
was promised. With c colluding sites, h = S - c honest ones, and weighted values:

- *Who sees one share alone* and knows e_s but not f_s, or the other way round: the noise is
  tau_s^2 at least, by construction: as much as in the conventional scheme, whoever drops out.
- *After a drop-out* the aggregator has fewer shares, hence never more than in the next line. The
  zero-sum terms of m of S sites do not cancel: for equal sites their sum has a noise of variance
  ``m (1 - (m - 1) / S) T^2``, between that of the pooled and of the conventional scheme
  (`after_drop_out`).
- *The aggregator and c <= S - 2 sites.* They know f, the colluders' e and g and, as e sums to zero,
  the sum of the honest e. Given that, the honest shares have noise of covariance
  ``u I + kappa^2 (I - 11'/h)``, with eigenvalue u once, along 1, and u + kappa^2 else. One entry
  that moves is seen under ``1/v = (1/h) / u + (1 - 1/h) / (u + kappa^2)``.
- *Where e is a mask*, uniform on a group (`streamlda.sites.keys`), kappa is infinite: ``v = h u``.
  The honest sum, with all honest noise, is all there is. With c <= t it is at least tau_c^2.
  After a drop-out nothing is left to see.
- *The aggregator and all S - 1 others* know e_s too: ``v = u``.

The paper calibrates tau_e so that one share *by itself* keeps the promise. The aggregator has them
all, and with equal sites v = tau_c^2 (S + 1) / (2 S): the factor is sqrt(2 S / (S + 1)), 1.29 for
five sites. Masks close this gap, so the protocol uses masks, and needs no f.

Privacy: nothing here reads data. All of a plan is public.

References
----------
Imtiaz and Sarwate, Distributed differentially private algorithms for matrix and tensor
factorization, IEEE JSTSP 12(6), 2018, section III.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import InvalidSettingError

Array = NDArray[np.float64]

#: How far weights may be from one together: they come from files and divisions.
SUM_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class NoisePlan:
    """The noise of S sites; see the module for the symbols.

    Parameters
    ----------
    weights : tuple of float
        mu_s, above 0, of sum 1; at least two.
    site_stddevs : tuple of float
        tau_s, above 0, in the units of a_s: what a site would need alone.
    pooled : float
        tau_c, in the units of the aggregate; at least ``max_s mu_s tau_s``.
    colluders : int, default 0
        t, sites that may help the aggregator without weakening the promise: 0 to S - 1. The noise
        of the aggregate is sqrt(S / (S - t)) times the pooled one.

    Raises
    ------
    InvalidSettingError
        If a number is out of range, the weights do not sum to 1, or the pooled noise is too small
        for what a site has promised.
    """

    weights: tuple[float, ...]
    site_stddevs: tuple[float, ...]
    pooled: float
    colluders: int = 0

    def __post_init__(self) -> None:
        check_weights(self.weights)
        if len(self.site_stddevs) != len(self.weights) or not all(
            0 < value < math.inf for value in self.site_stddevs
        ):
            raise InvalidSettingError(
                "every site must have a standard deviation > 0 and finite, got "
                f"site_stddevs={self.site_stddevs} sites={len(self.weights)}; give one for each"
            )
        check_colluders(self.colluders, len(self.weights))
        least = max(self.needed)
        if not least * (1 - SUM_TOLERANCE) <= self.pooled < math.inf:
            raise InvalidSettingError(
                "pooled noise must be at least the largest weight * standard deviation of a site, "
                f"got pooled={self.pooled} least={least}; take more noise, or give the site that "
                "needs most a smaller weight"
            )

    @classmethod
    def of(
        cls, weights: Sequence[float], site_stddevs: Sequence[float], colluders: int = 0
    ) -> Self:
        """Return the plan with the least pooled noise that every site's promise allows."""
        weights, stddevs = tuple(map(float, weights)), tuple(map(float, site_stddevs))
        check_weights(weights)
        # Of unequal lengths: refused by the constructor.
        pooled = max((m * tau for m, tau in zip(weights, stddevs, strict=False)), default=0.0)
        return cls(weights, stddevs, pooled, colluders)

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

        Parameters
        ----------
        sizes : sequence of int
            N_s, documents of each site; public.
        noise_multipliers : float or sequence of float
            z_s: standard deviation over sensitivity that each site asks for
            (`streamlda.privacy.accounting.noise_multiplier`).
        sensitivity : float, default 1
            Most that one document moves the *sum* of a site, which moves its mean by that / N_s.
        weights : sequence of float, optional
            N_s / N by default.
        colluders : int, default 0
        """
        if not all(size >= 1 for size in sizes) or not len(sizes):
            raise InvalidSettingError(
                f"every site must have a document, got sizes={tuple(sizes)}; leave the site out"
            )
        z = np.broadcast_to(np.asarray(noise_multipliers, dtype=float), (len(sizes),))
        total = sum(sizes)
        if weights is None:
            weights = [size / total for size in sizes]
        stddevs = [float(z_s) * sensitivity / n for z_s, n in zip(z, sizes, strict=True)]
        return cls.of(weights, stddevs, colluders)

    @property
    def n_sites(self) -> int:
        """S."""
        return len(self.weights)

    @property
    def needed(self) -> tuple[float, ...]:
        """T_s = mu_s tau_s: what each site needs, in units of the aggregate."""
        return tuple(m * t for m, t in zip(self.weights, self.site_stddevs, strict=True))

    @property
    def local_share(self) -> float:
        """1 / (S - t): variance of a site's local noise over the pooled variance."""
        return 1.0 / (self.n_sites - self.colluders)

    @property
    def local(self) -> tuple[float, ...]:
        """tau_gs, standard deviation of g_s at each site."""
        weighted = self.pooled * math.sqrt(self.local_share)
        return tuple(weighted / m for m in self.weights)

    @property
    def aggregator_known(self) -> tuple[float, ...]:
        """tau_fs, standard deviation of f_s at each site; 0 where local noise is enough."""
        return tuple(
            math.sqrt(max(tau**2 - g**2, 0.0))
            for tau, g in zip(self.site_stddevs, self.local, strict=True)
        )

    @property
    def kappa(self) -> float:
        """Scale of the Gaussian zero-sum terms, in units of the aggregate."""
        u = self.pooled**2 * self.local_share
        wanted = max(max(T**2 - u, 0.0) for T in self.needed)
        return math.sqrt(wanted / (1 - 1 / self.n_sites))

    @property
    def zero_sum(self) -> tuple[float, ...]:
        """tau_es, standard deviation of e_s at each site, where it is Gaussian."""
        weighted = self.kappa * math.sqrt(1 - 1 / self.n_sites)
        return tuple(weighted / m for m in self.weights)

    @property
    def aggregate(self) -> float:
        """Standard deviation of the noise in the aggregate: sqrt(sum_s mu_s^2 tau_gs^2)."""
        return math.sqrt(sum((m * g) ** 2 for m, g in zip(self.weights, self.local, strict=True)))

    @property
    def conventional(self) -> float:
        """The same if every site adds all of tau_s by itself."""
        return math.sqrt(sum(T**2 for T in self.needed))

    def zero_sum_mixing(self) -> Array:
        """Return M, shape (S, S): ``e = M xi`` for independent standard normal xi.

        The rows have norms `zero_sum`, and ``weights @ M`` is 0 but for rounding.
        """
        S = self.n_sites
        centring = np.eye(S) - 1.0 / S
        return np.asarray(self.kappa * centring / np.array(self.weights)[:, None])

    def losses(self, colluders: int, *, masks: bool = True) -> Array:
        """Return how many times more than promised the aggregator and colluding sites learn.

        A document of site s is (result_s / z_s)-GDP against them, if it is not at a colluder.

        Parameters
        ----------
        colluders : int
            c, from 0 to S - 1; not necessarily the t of the plan.
        masks : bool, default True
            Whether e_s are uniform masks, or the Gaussian `zero_sum`.

        Returns
        -------
        ndarray of shape (S,)
        """
        check_colluders(colluders, self.n_sites)
        honest = self.n_sites - colluders
        u = self.pooled**2 * self.local_share
        others = 0.0 if masks else (1 - 1 / honest) / (u + self.kappa**2)
        variance = 1.0 / (1.0 / (honest * u) + others)
        return np.asarray(np.array(self.needed) / math.sqrt(variance))

    def share_losses(self, *, knows_zero_sum: bool) -> Array:
        """Return the same for who sees one share alone and knows e_s, or f_s, but not both.

        At most 1. An adversary who knows neither learns less still.
        """
        left = self.aggregator_known if knows_zero_sum else self.zero_sum
        variances = np.square(self.local) + np.square(left)
        return np.asarray(np.asarray(self.site_stddevs) / np.sqrt(variances))

    def after_drop_out(self, present: Sequence[int]) -> float:
        """Return the noise of ``sum mu_s (a_s + e_s + g_s)`` over the sites that are left.

        With masks the sum of fewer shares than all is uniform, and nothing is learned from it.

        Parameters
        ----------
        present : sequence of int
            Numbers of the sites whose shares came, from 0; at least one.

        Raises
        ------
        InvalidSettingError
            If they are not different sites of the plan.
        """
        m, S = len(present), self.n_sites
        if not m or len(set(present)) < m or not set(present) <= set(range(S)):
            raise InvalidSettingError(
                f"the sites that are left must be some of 0 to {S - 1}, got present={present}"
            )
        u = self.pooled**2 * self.local_share
        return math.sqrt(m * u + self.kappa**2 * m * (1 - m / S))


def check_weights(weights: Sequence[float]) -> None:
    """Refuse weights that are not at least two numbers above 0 of sum 1."""
    if len(weights) < 2 or not all(0 < weight < 1 for weight in weights):
        raise InvalidSettingError(
            "there must be at least two sites, each of a weight between 0 and 1, got "
            f"weights={tuple(weights)}; leave out sites of no weight"
        )
    total = math.fsum(weights)
    if not abs(total - 1) <= SUM_TOLERANCE:
        raise InvalidSettingError(
            f"weights of all sites must sum to 1, got sum={total!r} weights={tuple(weights)}; "
            "divide each by their sum"
        )


def check_colluders(colluders: int, n_sites: int) -> None:
    """Refuse a number of colluding sites that is not from 0 to S - 1."""
    if not 0 <= colluders <= n_sites - 1:
        raise InvalidSettingError(
            f"colluders must be from 0 to one less than the sites, got colluders={colluders} "
            f"sites={n_sites}"
        )
