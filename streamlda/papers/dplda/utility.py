"""How far privacy moves a topic: Theorems 10, 12, 14 and 16 of [DP-LDA], as functions.

Every bound is the O() of its theorem with constant one, so they compare configurations and say
little of the size of an error. With s1, sk the first and k-th singular value of M2, g = gamma_s,
z_e the noise multiplier of edge e (tau there), and c = sqrt(d) z_e5 / N the noise of M2:

- configuration 1: ``sqrt(s1 k) / g Phi + sqrt(s1 d) z_e5 / (sk N) + sqrt(s1 + c) sqrt(k) / g Phi``,
  Phi being how far the whitened tensor moves;
- 2: ``sqrt(s1) u k^2.5 + sqrt(s1 d) z_e5 / (sk N) + sqrt(s1 + c) u k^2.5``,
  u = z_e6 / (g N sk^1.5); 3 the same with z_e7 and k^2 in the last term;
- 4: ``sqrt(s1 d) k^2 z_e9 / (g N sk^1.5)``.

2 has sk, and 3 and 4 also g, as Procedure 1 releases them: here the median of that, by `planned`.

Phi of Theorem 10 is ``a^3 + b``, a and b being ``sqrt(d) z / (N sk^1.5)`` of e2 and e3; in its last
term a is printed with sk alone. Theorem 5's missing first order is missing here as well: M2 that
moves by a share h = sqrt(d) z_e2 / (N sk) of sk moves the tensor by h lambda_1. `printed=False`
has ``h lambda_1 + b`` in both places. Versions 1 and 2 print 2 and 3 with s1^1.5 for sk^1.5 in the
last term of their tables; this is as in their theorems.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from streamlda.checks import above, at_least, between
from streamlda.papers.dplda.calibration import Plan, lower_bound_margins, make_plan
from streamlda.papers.dplda.flow import CONFIGURATIONS, Configuration, configuration
from streamlda.papers.dplda.moments import DENSE_WORDS
from streamlda.papers.dplda.sensitivity import CONSTANT_ONE, Facts, unmet


def estimation_loss(facts: Facts, least_share: float, sigma_k_topics: float) -> float:
    """Return the loss without privacy, the first term of all four theorems (Lemma 29).

    Parameters
    ----------
    facts : Facts
        N, k and alpha_0.
    least_share : float
        p_min, the least alpha_i / alpha_0.
    sigma_k_topics : float
        k-th singular value of the matrix of topics.
    """
    between(0, 1, least_share=least_share)
    above(0, least_share=least_share, sigma_k_topics=sigma_k_topics)
    spread = least_share**2 * sigma_k_topics * math.sqrt(facts.n_documents)
    return (facts.alpha_0 + 1) ** 2 * facts.n_components**3 / spread


def utility_loss(
    number: str | int,
    facts: Facts,
    n_features: int,
    multipliers: Mapping[str, float],
    *,
    printed: bool = True,
) -> float:
    """Return how far privacy moves a topic by the theorem of a configuration, constant one.

    Parameters
    ----------
    number : {1, 2, 3, 4}
        Of the configuration.
    facts : Facts
        sigma_1, sigma_k and gamma_s; with ``printed=False`` also lambda_1.
    n_features : int
        d.
    multipliers : mapping from str to float
        z of each edge: `Plan.multipliers`, or sqrt(2 ln(1.25 / delta)) / epsilon as printed.
    printed : bool, default True
        Whether Theorem 10 is as printed, or mended.

    Returns
    -------
    float
        Infinite where sigma_k or gamma_s is 0.
    """
    at_least(1, n_features=n_features)
    chosen, z = configuration(number), multipliers
    n, k, root = facts.n_documents, facts.n_components, math.sqrt(n_features)
    if min(facts.sigma_k, facts.gamma_s) <= 0:
        return math.inf
    s1, sk = math.sqrt(facts.sigma_1), facts.sigma_k
    whitening = sk * math.sqrt(sk)
    scale = facts.gamma_s * n * whitening
    if chosen.name == "4":
        return s1 * root * k**2 * z["e9"] / scale
    unwhitened = s1 * root * z["e5"] / (sk * n)
    widest = math.sqrt(facts.sigma_1 + root * z["e5"] / n)
    if chosen.name == "1":
        pairs, triples = root * z["e2"] / (n * sk), root * z["e3"] / (n * whitening)
        first = (pairs / math.sqrt(sk)) ** 3 if printed else pairs * facts.lambda_1
        last = pairs**3 if printed else first
        moved = s1 * (first + triples) + widest * (last + triples)
        return math.sqrt(k) / facts.gamma_s * moved + unwhitened
    u, less = (z["e6"], 1.0) if chosen.name == "2" else (z["e7"], math.sqrt(k))
    moved = k**2 * math.sqrt(k) * u / scale
    return s1 * moved + unwhitened + widest * moved / less


def planned(chosen: Configuration, facts: Facts, plan: Plan) -> Facts:
    """Return the facts with the medians of the lower bounds that Procedure 1 will release."""
    margins = lower_bound_margins(chosen, facts, plan)
    return replace(
        facts, **{name: max(0.0, getattr(facts, name) - margins[name]) for name in margins}
    )


@dataclass(frozen=True, slots=True)
class Choice:
    """A configuration, `losses` of all four, and `unmet`: preconditions that do not hold of each.

    `configuration` has the least loss of those whose preconditions hold, None where no loss is
    finite. 1 has none but that M3 must be formed.
    """

    configuration: str | None
    losses: dict[str, float]
    unmet: dict[str, tuple[str, ...]]


def choose_configuration(
    facts: Facts, n_features: int, epsilon: float, delta: float, *, printed: bool = False
) -> Choice:
    """Choose a configuration by the utility bounds, for Gaussian noise and equal parts of a budget.

    Parameters
    ----------
    facts : Facts
        What is expected of the documents, all of it: from a model, or from public documents. If it
        is read from the documents themselves, the choice is not private.
    n_features : int
        d.
    epsilon, delta : float
    printed : bool, default False
        Whether Theorem 10 is as printed.

    Returns
    -------
    Choice
    """
    losses, failed = {}, {}
    for number, chosen in CONFIGURATIONS.items():
        plan = make_plan(
            chosen,
            epsilon,
            delta,
            mechanism="gaussian",
            accounted="exact",
            gaussian_cells=0,
            laplace_cells=len(chosen.bounds),
        )
        known = planned(chosen, facts, plan)
        losses[number] = utility_loss(number, known, n_features, plan.multipliers, printed=printed)
        failed[number] = unmet(chosen.bounds, facts, CONSTANT_ONE)
    if n_features > DENSE_WORDS:
        failed["1"] = (f"d <= {DENSE_WORDS}",)
    able = [number for number in losses if not failed[number] and math.isfinite(losses[number])]
    return Choice(min(able, key=losses.__getitem__, default=None), losses, failed)
