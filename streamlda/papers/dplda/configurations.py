"""DP-LDA as published: noise on the edges of a configuration, topics from the releases.

**Configuration 1** (e2, e3, e5) is proven private: M2, M3 and M2 once more are released with
Gaussian or Laplace noise, and the rest is post-processing.

- Unit document, relation replace-one over N slots; N, d, k, alpha_0 and all settings are public.
- Sensitivities, with their derivation: `streamlda.papers.dplda.sensitivity`. A symmetric array
  is released as its entries i <= j (<= k), each times the square root of how often it occurs
  (Laplace: times how often), so that norms of what is released are those of the whole array.
- Composition: `streamlda.papers.dplda.calibration`.
- Rounding: in the sensitivity, and grid and integer noise, as everywhere
  (`streamlda.guarantee.mechanism`, `streamlda.papers.laplace`).

**Configurations 2 to 4** are *not proven private*: `flow.Configuration.open_claims` says why, and
so does every statement. Nothing in the engine uses them.

Where the paper is silent: signs of singular vectors are fixed by their largest entry; W^+ of
configuration 1 is rotated to fit W, which is free because both are released; topics are scaled to
sum to 1; nothing is published where noise would be infinite, because a lower bound of Procedure 1
came out as 0; alpha comes from released eigenvalues (1 and 2), or is uniform (3 and 4).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from streamlda.documents import DocumentBatch
from streamlda.guarantee.mechanism import Block
from streamlda.guarantee.noise import Noise, SecureNoise
from streamlda.papers.dplda import spectral
from streamlda.papers.dplda.calibration import ROUNDINGS, LowerBounds, Plan, make_plan, procedure_1
from streamlda.papers.dplda.flow import Configuration, configuration
from streamlda.papers.dplda.moments import LDAMoments
from streamlda.papers.dplda.sensitivity import BY_L1, BY_L2, PAIR_TERMS, TRIPLE_TERMS, Facts, unmet
from streamlda.papers.laplace import release_laplace
from streamlda.papers.rounding import mechanism_of_ratio
from streamlda.papers.symmetric import count_free, pack, unpack
from streamlda.privacy.events import Composed
from streamlda.private.topics import project_simplex
from streamlda.spectral.topics import contract
from streamlda.utils.arrays import Array

NOT_PROVEN = "not proven private"

#: Least share of alpha_0 that a topic gets from a noisy eigenvalue.
LEAST_SHARE = 1e-3

#: Largest norm of a value with a claimed sensitivity, in units of that.
LOCAL_TERMS = 2.0**20


@dataclass(frozen=True, slots=True, kw_only=True)
class DPLDASettings:
    """Settings of DP-LDA; all of them are public.

    Parameters
    ----------
    n_components : int
        k.
    epsilon, delta : float
        For everything that is released of the documents.
    configuration : {"1", "2", "3", "4"}, default "1"
        The only one that is proven private is 1.
    alpha_0 : float, default 1.0
    mechanism : {"gaussian", "laplace"}, default "gaussian"
        Laplace, for configuration 1 only, is for pure epsilon: delta may then be 0, up to
        `DPLDATopics.sampler_delta`.
    accounting : {"exact", "paper"}, default "exact"
        See `streamlda.papers.dplda.calibration`.
    parts : mapping from str to float, optional
        Of epsilon, for each release: see `make_plan`.
    n_iterations, n_restarts, seed : int
        Of the power method. The seed seeds no noise.
    """

    n_components: int
    epsilon: float
    delta: float
    configuration: str = "1"
    alpha_0: float = 1.0
    mechanism: str = "gaussian"
    accounting: str = "exact"
    parts: Mapping[str, float] | None = None
    n_iterations: int = spectral.ITERATIONS
    n_restarts: int = spectral.RESTARTS
    seed: int = 0

    def __post_init__(self) -> None:
        configuration(self.configuration)


@dataclass(frozen=True, slots=True)
class DPLDATopics:
    """Topics that DP-LDA publishes.

    `components`, of shape (k', d), are distributions: k' = 0 where the noise would have been
    infinite, else k. `event`: the cost, if the claims of the configuration hold. `sampler_delta`:
    part of delta, or beyond pure epsilon, for the samplers' distance from exact noise. `scales`, by
    edge: standard deviation of Gaussian, or scale of Laplace noise in an entry that occurs once.
    `unmet`: preconditions of the configuration's theorems (Table 3 of version 1) that these
    documents do not have; read without noise, hence not private.
    """

    components: Array
    alpha: Array
    settings: DPLDASettings
    n_documents: int
    event: Composed
    sampler_delta: float
    bounds: LowerBounds
    scales: dict[str, float] = field(default_factory=dict)
    secure: bool = False
    unmet: tuple[str, ...] = ()

    @property
    def proven(self) -> bool:
        """True if the configuration is proven private."""
        return configuration(self.settings.configuration).proven

    @property
    def private(self) -> bool:
        """True if this may be called differentially private: proven, and by secure noise."""
        return self.proven and self.secure

    @property
    def statement(self) -> str:
        """One paragraph to publish beside the topics."""
        settings = self.settings
        who = f"DP-LDA (DeCarolis et al. 2020), configuration {settings.configuration}"
        if not self.proven:
            claims = "; ".join(configuration(settings.configuration).open_claims)
            outside = f" Not met: {'; '.join(self.unmet)}." if self.unmet else ""
            return f"{NOT_PROVEN}: {who}. Open: {claims}.{outside}"
        if not self.secure:
            return f"not private: the noise was seeded. {who}."
        delta = self.sampler_delta if settings.mechanism == "laplace" else settings.delta
        return (
            f"private: epsilon {settings.epsilon:g}, delta {delta:.3g}; document, replace-one "
            f"among {self.n_documents:,} slots, their number public; {settings.mechanism} noise. "
            f"{who}."
        )


def fit_dp_lda(
    documents: DocumentBatch, settings: DPLDASettings, noise: Noise | None = None
) -> DPLDATopics:
    """Estimate moments and publish topics, as one configuration does.

    Memory O(d^3) for configuration 1; for the others O(nnz + d^2), with e5 32 d^2 bytes while noise
    is drawn (2 GB for 8000 words).

    Parameters
    ----------
    documents : DocumentBatch
        At least 3, of whole counts.
    settings : DPLDASettings
    noise : Noise, optional
        `SecureNoise` by default; `SeededNoise` in tests.
    """
    moments = LDAMoments(documents, settings.alpha_0)
    method = settings.n_iterations, settings.n_restarts, settings.seed
    return release(spectral.SpectralSteps(moments, settings.n_components, *method), settings, noise)


def release(
    steps: spectral.SpectralSteps, settings: DPLDASettings, noise: Noise | None = None
) -> DPLDATopics:
    """Publish topics from steps of the same alpha_0 and k; every call is a release of its own."""
    moments, chosen = steps.moments, configuration(settings.configuration)
    drawn = SecureNoise() if noise is None else noise
    d, plan = moments.n_features, plan_of(steps, settings)
    facts = facts_of(steps, chosen)
    bounds = procedure_1(chosen, facts, plan, drawn)
    # What the noise on each edge is scaled to; infinite if nothing is known.
    seen = replace(facts, sigma_k=bounds.sigma_k, gamma_s=bounds.gamma_s)
    by_edge = BY_L1 if plan.by_l1 else BY_L2
    moved = {name: by_edge[name](seen) for name in chosen.edges}
    edges = Edges(plan, moved, moments.n_documents, drawn)
    components, alpha = np.empty((0, d)), np.empty(0)
    if all(math.isfinite(value) for value in moved.values()):
        raw, alpha = ROUTES[chosen.name](steps, edges)
        components = np.apply_along_axis(project_simplex, 1, raw)
    else:
        edges.scales.update(dict.fromkeys(moved, math.inf))
    return DPLDATopics(
        *(components, alpha, settings, moments.n_documents, plan.event, plan.sampler_delta),
        *(bounds, edges.scales, drawn.secure, unmet(chosen.bounds, facts)),
    )


def plan_of(steps: spectral.SpectralSteps, settings: DPLDASettings) -> Plan:
    """Return the greatest cost of each release of these settings."""
    chosen, laplace = configuration(settings.configuration), settings.mechanism == "laplace"
    d, k = steps.moments.n_features, steps.n_components
    pairs = count_free(d, 2)
    cells = {"e2": pairs, "e3": count_free(d, 3), "e5": pairs}
    cells |= {"e6": count_free(k, 3), "e7": k * k, "e9": k * d}
    edge_cells = sum(cells[name] for name in chosen.edges)
    return make_plan(
        *(chosen, settings.epsilon, settings.delta),
        mechanism=settings.mechanism,
        accounted=settings.accounting,
        gaussian_cells=0 if laplace else edge_cells,
        laplace_cells=len(chosen.bounds) + (edge_cells if laplace else 0),
        parts=settings.parts,
    )


def facts_of(steps: spectral.SpectralSteps, configuration: Configuration) -> Facts:
    """Return the truth that Procedure 1 hides; configuration 1 asks for none of it."""
    public = (steps.moments.n_documents, steps.n_components, steps.moments.alpha_0)
    if not configuration.bounds:
        return Facts(*public)
    leading = steps.leading_pairs.values
    seen = Facts(*public, sigma_k=float(leading[-1]), sigma_next=steps.sigma_next)
    if "gamma_s" not in configuration.bounds:
        return seen
    gap, lambda_k = steps.factors.gap, float(steps.factors.values[-1])
    return replace(seen, gamma_s=gap, sigma_1=float(leading[0]), lambda_k=lambda_k)


def _route_1(steps: spectral.SpectralSteps, edges: "Edges") -> tuple[Array, Array]:
    """Noise on M2, M3 and M2: all else is post-processing."""
    k = steps.n_components
    W = spectral.find_leading_pairs(edges.symmetric("e2", steps.pairs, PAIR_TERMS), k).whitening
    tensor = contract(edges.symmetric("e3", steps.triples, TRIPLE_TERMS), W)
    factors = steps.decompose(spectral.symmetrised(tensor))
    back = spectral.find_leading_pairs(
        edges.symmetric("e5", steps.pairs, PAIR_TERMS), k
    ).unwhitening
    # Another draw of noise has other singular vectors: turn W^+ so that W'W^+' is nearest to 1.
    left, _, right = np.linalg.svd(W.T @ back)
    back = back @ (left @ right).T
    return spectral.unwhiten(back, factors.vectors), _alpha(factors.values, steps)


def _route_2(steps: spectral.SpectralSteps, edges: "Edges") -> tuple[Array, Array]:
    """Noise on the whitened tensor, and on M2 for W^+."""
    back = _unwhitening(steps, edges)
    factors = steps.decompose(edges.symmetric("e6", steps.whitened))
    return spectral.unwhiten(back, factors.vectors), _alpha(factors.values, steps)


def _route_3(steps: spectral.SpectralSteps, edges: "Edges") -> tuple[Array, Array]:
    """Noise on the eigenvectors, and on M2 for W^+."""
    back = _unwhitening(steps, edges)
    return spectral.unwhiten(back, edges.vector("e7", steps.factors.vectors)), _uniform(steps)


def _route_4(steps: spectral.SpectralSteps, edges: "Edges") -> tuple[Array, Array]:
    """Noise on the topics."""
    return edges.vector("e9", steps.topics), _uniform(steps)


ROUTES = {"1": _route_1, "2": _route_2, "3": _route_3, "4": _route_4}


def _unwhitening(steps: spectral.SpectralSteps, edges: "Edges") -> Array:
    # Not kept with the steps: with many words it is large.
    noisy = edges.symmetric("e5", steps.moments.pairs(), PAIR_TERMS)
    return spectral.find_leading_pairs(noisy, steps.n_components).unwhitening


def _alpha(eigenvalues: Array, steps: spectral.SpectralSteps) -> Array:
    """Return alpha_i in proportion to lambda_i^(-2), as far as noise leaves them positive."""
    k, alpha_0 = steps.n_components, steps.moments.alpha_0
    largest = float(eigenvalues.max())
    if largest <= 0:
        return _uniform(steps)
    share = np.maximum(eigenvalues / largest, math.sqrt(LEAST_SHARE)) ** -2.0
    share = np.maximum(share / share.sum(), LEAST_SHARE / k)
    alpha: Array = alpha_0 * share / share.sum()
    return alpha


def _uniform(steps: spectral.SpectralSteps) -> Array:
    return np.full(steps.n_components, steps.moments.alpha_0 / steps.n_components)


class Edges:
    """Puts noise on the values that noised edges carry; one call is one release.

    `sensitivities` by edge: l2, or l1 for Laplace noise; finite. `scales` of the noise until now.
    """

    def __init__(
        self, plan: Plan, sensitivities: dict[str, float], n_documents: int, noise: Noise
    ) -> None:
        self._plan, self._sensitivities, self._noise = plan, sensitivities, noise
        self._roundings = ROUNDINGS + n_documents
        self.scales: dict[str, float] = {}

    def symmetric(self, edge: str, array: Array, magnitude: float | None = None) -> Array:
        """Return a symmetric array with noise, symmetric.

        `magnitude`: public bound on the sum of all absolute terms behind it; by default that of a
        value with a claimed sensitivity.
        """
        power = 1.0 if not self._plan.multipliers else 0.5
        noisy = self.vector(edge, pack(array, power), magnitude)
        return unpack(noisy, len(array), array.ndim, power)

    def vector(self, edge: str, values: Array, magnitude: float | None = None) -> Array:
        """Return values of any shape with noise; `magnitude` as for `symmetric`."""
        plan, moved = self._plan, self._sensitivities[edge]
        size = moved * LOCAL_TERMS if magnitude is None else magnitude
        if not plan.multipliers:
            how: Any = {"magnitude": size, "roundings": self._roundings}
            answer = release_laplace(values, moved, plan.pure[edge], self._noise, **how)
            self.scales[edge] = answer.scale
            return answer.values
        blocks = [Block(edge, values.shape, moved)]
        mechanism = mechanism_of_ratio(
            blocks, plan.multipliers[edge], size / moved, self._roundings
        )
        self.scales[edge] = mechanism.stddevs[edge]
        return mechanism.release({edge: values}, self._noise)[edge]
