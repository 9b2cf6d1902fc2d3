"""How a budget is shared by the releases of a configuration, and Procedure 1 of [DP-LDA].

Every release gets the same part of epsilon ("uniform for simplicity", section 7 there). Two ways of
accounting:

- ``"paper"``: a Gaussian release has noise multiplier sqrt(2 log(1.25 / delta_i)) / epsilon_i, as
  in Table 1 (valid for epsilon_i <= 1), epsilons and deltas add up, and sensitivities of moments
  are those in l1, which bound those in l2.
- ``"exact"``: Laplace releases as before; what they leave of epsilon and delta bounds all Gaussian
  releases together, by `streamlda.privacy.accounting`; sensitivities in l2.

A lower bound of Procedure 1 that fails has probability delta_1, which is part of delta.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from streamlda.checks import between, one_of, require
from streamlda.papers.dplda.flow import Configuration
from streamlda.papers.dplda.sensitivity import Facts, pairs_l1, pairs_l2, triples_l1, triples_l2
from streamlda.papers.laplace import TV_DISTANCE_BOUND as LAPLACE_TV_DISTANCE_BOUND
from streamlda.papers.laplace import release_laplace
from streamlda.papers.textbook import gaussian_multiplier
from streamlda.privacy import accounting
from streamlda.privacy.events import Composed, Event, GaussianRelease, LaplaceRelease
from streamlda.privacy.noise import Noise

ACCOUNTING = ("exact", "paper")
MECHANISMS = ("gaussian", "laplace")

#: Largest part of delta that the distance of the samplers from exact noise may take.
MOST_FOR_SAMPLERS = 0.1

#: Roundings behind a term of a moment, beside one a document: more than projections and products
#: of a document need.
ROUNDINGS = 2**20


@dataclass(frozen=True, slots=True)
class Plan:
    """What each release of a configuration may cost; all of it is public.

    `noise_multiplier`: standard deviation over sensitivity of each Gaussian release; None if there
    is none. `pure_epsilon` of each Laplace release, in nats. `failure`: delta_1, probability that a
    lower bound of Procedure 1 is above the truth. `sampler_delta`: part of delta for the distance
    of the samplers from exact noise. `by_l1`: whether sensitivities of moments are taken in l1.
    """

    noise_multiplier: float | None
    pure_epsilon: float
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
) -> Plan:
    """Share a budget between the releases of a configuration.

    With ``mechanism="laplace"``, for edges of global l1 sensitivity (configuration 1), delta is not
    used and may be 0. `gaussian_cells` and `laplace_cells`: values released with each noise.
    """
    between(1e-9, 1e3, epsilon=epsilon)
    _check_choices(configuration, mechanism, accounted)
    edges, bounds = len(configuration.edges), len(configuration.bounds)
    each = epsilon / (edges + bounds)
    laplace_distance = LAPLACE_TV_DISTANCE_BOUND * laplace_cells
    distance = (1 + math.exp(min(epsilon, 700.0))) * (
        laplace_distance + 2 * Noise.tv_distance_bound * gaussian_cells
    )
    if mechanism == "laplace":
        events: list[Event] = [LaplaceRelease(each)] * edges
        return Plan(None, each, 0.0, distance, Composed(events), True)
    between(1e-300, 0.5, delta=delta)
    require(
        distance <= MOST_FOR_SAMPLERS * delta,
        "delta must be at least 10 times what the samplers take",
        delta=delta,
        taken=distance,
        remedy="take a larger delta or a smaller epsilon",
    )
    left = delta - distance
    failure = left / (edges + bounds)
    if accounted == "paper":
        require(
            each <= 1,
            "the paper's Gaussian mechanism is proven for epsilon <= 1 a release only",
            epsilon=each,
            remedy="take a smaller epsilon, or accounting='exact'",
        )
        multiplier = gaussian_multiplier(each, failure)
    else:
        together = accounting.mu_of(each * edges, left - bounds * failure)
        multiplier = math.sqrt(edges) / together * (1 + accounting.MULTIPLIER_MARGIN)
    events = [LaplaceRelease(each)] * bounds
    events += [GaussianRelease(multiplier)] * edges
    by_l1 = accounted == "paper"
    return Plan(multiplier, each, failure, distance, Composed(events), by_l1)


def _check_choices(configuration: Configuration, mechanism: str, accounted: str) -> None:
    one_of(MECHANISMS, mechanism=mechanism)
    one_of(ACCOUNTING, accounting=accounted)
    require(
        mechanism == "gaussian" or not configuration.bounds,
        "pure epsilon needs global l1 sensitivities, which only configuration 1 has",
        configuration=configuration.name,
        remedy="take configuration 1, or Gaussian noise",
    )


@dataclass(frozen=True, slots=True)
class LowerBounds:
    """What Procedure 1 released: 0 if the noise leaves nothing, nan if it was not needed."""

    sigma_k: float
    gamma_s: float


def procedure_1(
    configuration: Configuration,
    facts: Facts,
    plan: Plan,
    noise: Noise,
) -> LowerBounds:
    """Release lower bounds on sigma_k and gamma_s that hold with probability 1 - delta_1 each.

    ``max(0, x + Lap(s / epsilon_1) - s / epsilon_1 log(1 / (2 delta_1)))`` with s the sensitivity:
    the Laplace noise exceeds the last term with probability delta_1.

    Unit document, relation replace-one, as in `sensitivity`. sigma_k moves by at most the spectral
    norm of the change of M2 (Weyl), so this one is proven. For gamma_s the paper takes the
    sensitivity of M3; Lemma 9 asserts that it is no more, and nothing proves it.
    """
    pairs = pairs_l1(facts) if plan.by_l1 else pairs_l2(facts)
    triples = triples_l1(facts) if plan.by_l1 else triples_l2(facts)
    found = {"sigma_k": math.nan, "gamma_s": math.nan}
    truth = {"sigma_k": (facts.sigma_k, pairs), "gamma_s": (facts.gamma_s, triples)}
    for name in configuration.bounds:
        value, moved = truth[name]
        answer = release_laplace(
            np.array(value),
            moved,
            plan.pure_epsilon,
            noise,
            magnitude=max(1.0, float(facts.n_components)),
            roundings=ROUNDINGS,
        )
        above = answer.scale * math.log(1 / (2 * plan.failure))
        found[name] = max(0.0, float(answer.values) - above)
    return LowerBounds(**found)
