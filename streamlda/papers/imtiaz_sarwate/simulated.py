"""Simulated sites in one process, and the aggregates of the schemes of section VI.

`streamlda.sites` has sites on separate machines, with keys and masks. The docstring of
`streamlda.papers.imtiaz_sarwate.cape` derives what each party learns.

A site sends the *sum* of its contributions, and the aggregate is the sum over sites: N times the
mean with weights mu_s = N_s / N. A document moves the sum of any site by the same amount. Sites
with equal promises therefore need the same noise, whatever their sizes, and the aggregate of `cape`
has the noise of one holder for every split.

================ ==================================================================
scheme           noise in the aggregate, for S equal promises
================ ==================================================================
`cape`           tau: a site adds e_s + f_s + g_s; e sums to 0, f is subtracted
`conventional`   sqrt(S) tau: each site adds all the noise that it needs alone
`local`          tau, in the sums of one site (S tau in units of the aggregate)
`pooled-private` tau: one holder of all documents adds the noise
`pooled`         none; the aggregate is not private
================ ==================================================================

A `Noise` object draws integers on the grid of `streamlda.guarantee.mechanism.JointGaussian`. Each
pair of sites shares one draw r_st of variance ``kappa^2 / S``. The zero-sum terms
``e_s = sum_(t>s) r_st - sum_(t<s) r_ts`` cancel exactly and have the covariance
``kappa^2 (I - 11'/S)`` of the plan. A sum of discrete Gaussians of 2^28 steps and more is discrete
Gaussian up to exp(-2^57) (Kairouz, Liu, Steinke, ICML 2021), so proofs for one noise hold for it.

Privacy
-------
Unit: a sample of one site. Relation: replace-one, as in the paper; the sizes N_s are public.
The caller states the *ratio* r of a statistic: two contributions of norm at most 1 (in the weighted
coordinates of the blocks) differ by r at most, ``1 <= r <= 2``. The mechanism has the relation
zero-out and the noise multiplier r z. Its standard deviation is
``r z (1 + 2 E + G) >= z (r + 2 E + G)``, at least z times the sensitivity under replace-one. E and
G are the rounding and the grid of `mechanism`; a sample changes the part of one site alone.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Literal, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import between, one_of
from streamlda.guarantee import accounting
from streamlda.guarantee.mechanism import Array, Block, Counts, JointGaussian
from streamlda.guarantee.noise import Noise, SecureNoise
from streamlda.papers.imtiaz_sarwate.cape import CapePlan
from streamlda.papers.laplace import gaussian_multiplier
from streamlda.papers.rounding import MechanismOfDoubles

T = TypeVar("T")

Scheme = Literal["cape", "conventional", "local", "pooled-private", "pooled"]
SCHEMES: tuple[Scheme, ...] = ("cape", "conventional", "local", "pooled-private", "pooled")
Calibration = Literal["exact", "paper"]

#: Roundings behind a term of the statistics here: products, a clip factor, and sums over words.
TERM_ROUNDINGS = 2**14


@dataclass(frozen=True, slots=True)
class Promise:
    """Privacy that a site promises to its samples, over all stages of an algorithm.

    Parameters
    ----------
    epsilon : float
        In nats, above 0.
    delta : float
        Above 0, below 1.
    calibration : {"exact", "paper"}
        - "exact": a stage with a part p of the budget gets the noise multiplier z / sqrt(p), z from
          `streamlda.guarantee.accounting`; all stages together cost exactly (epsilon, delta).
        - "paper": such a stage has p epsilon and p delta for itself, and the textbook multiplier
          sqrt(2 ln(1.25 / (p delta))) / (p epsilon). Basic composition adds the stages up. The
          textbook formula is proven for p epsilon < 1 only.
    """

    epsilon: float
    delta: float
    calibration: Calibration = "exact"

    def __post_init__(self) -> None:
        between(1e-9, accounting.MAX_EPSILON, epsilon=self.epsilon)
        between(accounting.MIN_DELTA, math.nextafter(1.0, 0.0), delta=self.delta)
        one_of(("exact", "paper"), calibration=self.calibration, remedy="take exact")

    def noise_multiplier(self, part: float = 1.0) -> float:
        """Return standard deviation / l2_sensitivity of a stage with this part of the budget."""
        between(1e-6, 1.0, part=part)
        if self.calibration == "exact":
            return _least_multiplier(self.epsilon, self.delta) / math.sqrt(part)
        return gaussian_multiplier(part * self.epsilon, part * self.delta)


#: The search takes milliseconds, and every site asks for it.
_least_multiplier = lru_cache(maxsize=64)(accounting.noise_multiplier)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Sums of a stage by block, without noise under `pooled`, and the noise of each value.

    `documents`: samples in the sums. `tv_distance_bound`: the distance of all noise drawn from
    exact discrete Gaussians (`streamlda.guarantee.noise`).
    """

    sums: dict[str, Array]
    stddevs: dict[str, float]
    documents: int
    tv_distance_bound: float


class Share(NamedTuple):
    """A message of one site under `cape`: sums + e_s + f_s + g_s on the grid, and f_s."""

    sent: dict[str, Counts]
    known: dict[str, Counts]


class SimulatedSites:
    """S sites, an aggregator and their promises.

    Parameters
    ----------
    sizes : sequence of int
        N_s, numbers of samples, which are public; two sites at least.
    promises : Promise or sequence of Promise
        One for all sites, or one for each.
    scheme : str, default "cape"
        One of `SCHEMES`.
    site : int, default 0
        The site whose sums `local` releases.
    noise : Noise, optional
        `SecureNoise` by default.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        promises: Promise | Sequence[Promise],
        scheme: Scheme = "cape",
        *,
        site: int = 0,
        noise: Noise | None = None,
    ) -> None:
        self.sizes = tuple(int(size) for size in sizes)
        self.promises: tuple[Promise, ...] = (
            (promises,) * len(self.sizes) if isinstance(promises, Promise) else tuple(promises)
        )
        one_of(SCHEMES, scheme=scheme)
        between(0, len(self.sizes) - 1, site=site)
        self.scheme, self._site = scheme, site
        self._noise = SecureNoise() if noise is None else noise
        # Checks the rest.
        self.plan()

    @property
    def documents(self) -> int:
        """N, or the size of the only site under `local`."""
        return self.sizes[self._site] if self.scheme == "local" else sum(self.sizes)

    def alone(self, site: int) -> Self:
        """Return the sites under the scheme `local`, which releases the sums of one site."""
        network = copy(self)
        network.scheme, network._site = "local", site
        return network

    def plan(self, part: float = 1.0) -> CapePlan:
        """Return the noise of a stage, in units of the sensitivity of a sum over N."""
        multipliers = [promise.noise_multiplier(part) for promise in self.promises]
        return CapePlan.for_means(self.sizes, multipliers)

    def noise_multiplier(self, part: float = 1.0) -> float:
        """Return the standard deviation of noise over the sensitivity of a sum; 0 for `pooled`."""
        if self.scheme == "pooled":
            return 0.0
        if self.scheme == "local":
            return self.promises[self._site].noise_multiplier(part)
        plan = self.plan(part)
        level = {"cape": plan.aggregate, "conventional": plan.conventional}
        return self.documents * level.get(self.scheme, plan.pooled_noise)

    def release(
        self,
        sites: Sequence[T],
        sums: Callable[[T], Mapping[str, Array]],
        blocks: Sequence[Block],
        *,
        part: float = 1.0,
        ratio: float = 2.0,
    ) -> Aggregate:
        """Aggregate one statistic of every site under the scheme; time and memory O(S cells).

        `sums` returns the sums of the clipped contributions of a site by block, without noise.
        `part` is the part of the budget; parts of all stages must sum to 1 at most. `ratio` bounds
        the distance of two contributions of norm 1.
        """
        between(1.0, 2.0, ratio=ratio)
        plan, is_local = self.plan(part), self.scheme == "local"
        base = self.noise_multiplier(part) if is_local else self.documents * plan.pooled_noise
        mechanism = self._mechanism(blocks, ratio * base)
        found = [sums(site) for site in ([sites[self._site]] if is_local else sites)]
        if self.scheme == "pooled":
            total = {b.name: np.sum([each[b.name] for each in found], axis=0) for b in blocks}
            mechanism.to_grid(total)
            return Aggregate(total, dict.fromkeys(total, 0.0), self.documents, 0.0)
        if self.scheme == "cape":
            shares = self.shares(found, mechanism, plan)
            noisy = [_add(share.sent, share.known, -1) for share in shares]
        else:
            # One draw of the noise of one holder, or the noise of each site.
            parts = [need / plan.pooled_noise for need in plan.needed_noise]
            parts = parts if self.scheme == "conventional" else [1.0]
            noisy = [mechanism.to_grid(each) for each in found]
            noisy += [mechanism.noise_on_grid(self._noise, own) for own in parts]
        level, S = self.noise_multiplier(part) / base, len(self.sizes)
        stddevs = {name: level * stddev for name, stddev in mechanism.stddevs.items()}
        # One draw for each pair of sites, and two for each site.
        draws = {"cape": S * (S - 1) // 2 + 2 * S, "conventional": S}.get(self.scheme, 1)
        distance = draws * mechanism.tv_distance_bound
        aggregate = mechanism.from_grid(reduce(_add, noisy))
        return Aggregate(aggregate, stddevs, self.documents, distance)

    def shares(
        self, site_sums: Sequence[Mapping[str, Array]], mechanism: JointGaussian, plan: CapePlan
    ) -> list[Share]:
        """Return the messages of all sites under `cape`."""
        S = plan.n_sites
        # Algorithm 1, line 2: e_s. Pairs of sites draw it, in place of a trusted generator.
        zero_sum = [self._draw(mechanism, 0.0) for _ in range(S)]
        together = plan.kappa / math.sqrt(S) / plan.pooled_noise
        shares = []
        for s, sums in enumerate(site_sums):
            for t in range(s + 1, S):
                for name, drawn in self._draw(mechanism, together).items():
                    zero_sum[s][name] = zero_sum[s][name] + drawn
                    zero_sum[t][name] = zero_sum[t][name] - drawn
            weight = plan.weights[s]
            # Line 3 is f_s; line 4 is g_s and the message.
            known = self._draw(mechanism, weight * plan.aggregator_known[s] / plan.pooled_noise)
            own = self._draw(mechanism, weight * plan.local[s] / plan.pooled_noise)
            sent = _add(_add(mechanism.to_grid(sums), own), known)
            sent = {name: values + zero_sum[s][name] for name, values in sent.items()}
            shares.append(Share(sent, known))
        return shares

    def _mechanism(self, blocks: Sequence[Block], multiplier: float) -> JointGaussian:
        return MechanismOfDoubles(
            blocks, multiplier, n_max=self.documents, term_roundings=TERM_ROUNDINGS
        )

    def _draw(self, mechanism: JointGaussian, level: float) -> dict[str, NDArray[np.int64]]:
        """Draw noise of `level` times the mechanism's, on its grid."""
        if level == 0:
            return {b.name: np.zeros(b.shape, dtype=np.int64) for b in mechanism.blocks}
        return mechanism.noise_on_grid(self._noise, level)


def _add(a: Mapping[str, Counts], b: Mapping[str, Counts], sign: int = 1) -> dict[str, Counts]:
    return {name: a[name] + sign * b[name] for name in a}
