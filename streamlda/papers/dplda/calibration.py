"""Shares of a budget for the releases of a configuration, and Procedure 1 of [DP-LDA].

Every release gets the same part of epsilon ("uniform for simplicity", section 7 there), or parts
that are given (version 2 searches for them). Two ways of
accounting:

- ``"paper"``: a Gaussian release has noise multiplier sqrt(2 log(1.25 / delta_i)) / epsilon_i, as
  in Table 1 (valid for epsilon_i <= 1), epsilons and deltas add up, and sensitivities of moments
  are those in l1, which bound those in l2.
- ``"exact"``: Laplace releases as before; what they leave of epsilon and delta bounds all Gaussian
  releases together, by `streamlda.guarantee.accounting`, mu of each in proportion to its part;
  sensitivities in l2.

A lower bound of Procedure 1 that fails has probability delta_1, which is part of delta.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from streamlda.errors import between, one_of, require
from streamlda.guarantee import accounting
from streamlda.guarantee.noise import Noise
from streamlda.papers.dplda.flow import Configuration
from streamlda.papers.dplda.sensitivity import BY_L1, BY_L2, Facts
from streamlda.papers.faults import check
from streamlda.papers.laplace import TV_DISTANCE_BOUND as LAPLACE_TV_DISTANCE_BOUND
from streamlda.papers.laplace import gaussian_multiplier, release_laplace
from streamlda.privacy.events import Composed, Event, GaussianRelease, LaplaceRelease

ACCOUNTING = ("exact", "paper")
MECHANISMS = ("gaussian", "laplace")

#: Largest part of delta that the distance of the samplers from exact noise may take.
MOST_FOR_SAMPLERS = 0.1

#: Roundings behind a term of a moment, beside one a document: more than projections and products
#: of a document need.
ROUNDINGS = 2**20


@dataclass(frozen=True, slots=True)
class Plan:
    """Cost of each release of a configuration; all of it is public.

    `multipliers`: standard deviation over sensitivity of the Gaussian release of an edge; empty if
    there is none. `pure`: epsilon of a Laplace release, in nats, by edge or lower bound. `failure`:
    delta_1, probability that a lower bound of Procedure 1 is above the truth. `sampler_delta`: part
    of delta for the distance of the samplers from exact noise. `by_l1`: whether sensitivities of
    moments are taken in l1.
    """

    multipliers: Mapping[str, float]
    pure: Mapping[str, float]
    failure: float
    sampler_delta: float
    event: Composed
    by_l1: bool


def make_plan(
    configuration: Configuration,
    epsilon: float,
    delta: float,
    *,
    mechanism: str,
    accounted: str,
    gaussian_cells: int,
    laplace_cells: int,
    parts: Mapping[str, float] | None = None,
) -> Plan:
    """Share a budget between the releases of a configuration.

    Parameters
    ----------
    configuration : Configuration
    epsilon, delta : float
        Of everything; with ``mechanism="laplace"`` delta is not used and may be 0.
    mechanism : {"gaussian", "laplace"}
        "laplace" is for edges of global l1 sensitivity: configuration 1.
    accounted : {"exact", "paper"}
        How the releases are added up.
    gaussian_cells, laplace_cells : int
        Values released with each noise.
    parts : mapping from str to float, optional
        Of epsilon, for each lower bound and edge of the configuration, above 0; they sum to 1. All
        the same by default.
    """
    between(1e-9, 1e3, epsilon=epsilon)
    one_of(MECHANISMS, mechanism=mechanism)
    one_of(ACCOUNTING, accounting=accounted)
    proven = mechanism == "gaussian" or not configuration.bounds
    check(proven, "pure", configuration=configuration.name)
    edges, bounds = configuration.edges, configuration.bounds
    releases = len(edges) + len(bounds)
    of = _parts(configuration, parts)
    laplace_distance = LAPLACE_TV_DISTANCE_BOUND * laplace_cells
    distance = laplace_distance + 2 * Noise.tv_distance_bound * gaussian_cells
    distance *= 1 + math.exp(min(epsilon, 700.0))
    if mechanism == "laplace":
        pure = {name: epsilon * of[name] for name in edges}
        events: list[Event] = [LaplaceRelease(each) for each in pure.values()]
        return Plan({}, pure, 0.0, distance, Composed(events), True)
    between(1e-300, 0.5, delta=delta)
    check(distance <= MOST_FOR_SAMPLERS * delta, "delta", delta=delta, taken=distance)
    left = delta - distance
    failure = left / releases
    pure = {name: epsilon * of[name] for name in bounds}
    if accounted == "paper":
        largest = epsilon * max(of[name] for name in edges)
        check(largest <= 1, "gaussian", epsilon=largest)
        multipliers = {name: gaussian_multiplier(epsilon * of[name], failure) for name in edges}
    else:
        theirs = sum(of[name] for name in edges)
        together = accounting.mu_of(epsilon * theirs, left - len(bounds) * failure)
        whole = math.sqrt(sum(of[name] ** 2 for name in edges)) / together
        whole *= 1 + accounting.MULTIPLIER_MARGIN
        multipliers = {name: whole / of[name] for name in edges}
    events = [LaplaceRelease(each) for each in pure.values()]
    events += [GaussianRelease(each) for each in multipliers.values()]
    return Plan(multipliers, pure, failure, distance, Composed(events), accounted == "paper")


def _parts(configuration: Configuration, parts: Mapping[str, float] | None) -> Mapping[str, float]:
    names = (*configuration.bounds, *configuration.edges)
    if parts is None:
        return dict.fromkeys(names, 1 / len(names))
    require(
        set(parts) == set(names)
        and min(parts.values()) > 0
        and math.isclose(sum(parts.values()), 1, abs_tol=1e-9),
        f"parts must be above 0, sum to 1 and be those of {', '.join(names)}",
        parts=dict(parts),
        remedy="leave them out for equal ones",
    )
    return parts


@dataclass(frozen=True, slots=True)
class LowerBounds:
    """Bounds that Procedure 1 released: 0 if the noise leaves nothing, nan if not needed."""

    sigma_k: float
    gamma_s: float


def procedure_1(
    configuration: Configuration, facts: Facts, plan: Plan, noise: Noise
) -> LowerBounds:
    """Release lower bounds on sigma_k and gamma_s that hold with probability 1 - delta_1 each.

    ``max(0, x + Lap(s / epsilon_1) - s / epsilon_1 log(1 / (2 delta_1)))`` with s the sensitivity:
    the Laplace noise exceeds the last term with probability delta_1.

    Unit document, relation replace-one, as in `sensitivity`. sigma_k moves by at most the spectral
    norm of the change of M2 (Weyl), so this one is proven. For gamma_s the paper takes the
    sensitivity of M3; Lemma 9 asserts that it is no more, and nothing proves it.

    Parameters
    ----------
    configuration : Configuration
    facts : Facts
        Of the documents, `sigma_k` and `gamma_s` as they are.
    plan : Plan
        Of `make_plan`.
    noise : Noise
    """
    found = {"sigma_k": math.nan, "gamma_s": math.nan}
    # Of M2 for sigma_k, of M3 for gamma_s.
    by_norm = BY_L1 if plan.by_l1 else BY_L2
    how: dict[str, Any] = {"magnitude": max(1.0, float(facts.n_components)), "roundings": ROUNDINGS}
    for name in configuration.bounds:
        moved = by_norm["e2" if name == "sigma_k" else "e3"](facts)
        exact = np.array(getattr(facts, name))
        answer = release_laplace(exact, moved, plan.pure[name], noise, **how)
        above = answer.scale * math.log(1 / (2 * plan.failure))
        found[name] = max(0.0, float(answer.values) - above)
    return LowerBounds(**found)
