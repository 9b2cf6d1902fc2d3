"""Cost of events, each figure rounded up, by `streamlda.guarantee.accounting`.

A pure epsilon release is mu-GDP too, for the mu at which the convex trade-off curve of Gaussians
passes through the corner of its own, (1, 1) / (1 + e^epsilon):
mu = 2 Phi^-1(e^epsilon / (1 + e^epsilon)).
"""

import math
from typing import NamedTuple

import scipy

from streamlda.errors import require
from streamlda.guarantee.accounting import DELTA_MARGIN, ULPS_UP, epsilon_of
from streamlda.privacy import events


class Cost(NamedTuple):
    """Cost of an event for the documents in it, each figure rounded up."""

    mu_squared: float  # Of everything, pure releases included: the figure that a ledger adds up.
    gaussian_mu_squared: float  # Of the Gaussian releases alone.
    pure_epsilon: float  # Sum of epsilon of the pure releases, in nats.
    tv_distance: float = 0.0  # Sum of the distances of the drawn noise from exact noise.
    delta: float = 0.0  # Sum of the probabilities that a release fails.


def cost(event: events.Event) -> Cost:
    """Return the cost of an event. Time O(number of events inside)."""
    match event:
        case events.GaussianRelease(noise_multiplier):
            mu_squared = ULPS_UP / (noise_multiplier * noise_multiplier)
            return Cost(mu_squared, mu_squared, 0.0)
        case events.LaplaceRelease(epsilon):
            mu = _mu_of_pure(epsilon)
            return Cost(mu * mu * ULPS_UP, 0.0, epsilon)
        case events.Approximate(inner, tv_distance, delta):
            return cost(inner)._replace(tv_distance=tv_distance, delta=delta)
        case events.Composed(members):
            columns = zip(*map(cost, members), strict=True) if members else [()] * 5
            return Cost(*(math.fsum(column) * ULPS_UP for column in columns))
    raise events.unknown(event)


def epsilon_spent(event: events.Event, delta: float) -> float:
    """Return an epsilon for which the event is (epsilon, delta)-DP: exact if it is all Gaussian.

    With pure releases inside it is the lesser of two valid bounds: their epsilon on top of that of
    the Gaussian ones, or everything as GDP.
    """
    spent = _exact(event)
    everything = epsilon_of(_root_up(spent.mu_squared), delta)
    if spent.pure_epsilon == 0:
        return everything
    gaussian = epsilon_of(_root_up(spent.gaussian_mu_squared), delta)
    return min(everything, (gaussian + spent.pure_epsilon) * ULPS_UP)


def _exact(event: events.Event) -> Cost:
    """Return the cost of an event, or refuse one that takes more of delta than its noise does."""
    spent = cost(event)
    require(
        spent.tv_distance == spent.delta == 0,
        "an event is not exact, and delta is that of its noise alone",
        tv_distance=spent.tv_distance,
        delta=spent.delta,
        remedy="take what `Approximate` says off delta, or use a ledger (`LedgerTerms.price`)",
    )
    return spent


def _root_up(mu_squared: float) -> float:
    return math.sqrt(mu_squared) * ULPS_UP


def _mu_of_pure(epsilon: float) -> float:
    """Return the least mu for which every pure epsilon-DP release is mu-GDP, rounded up."""
    if epsilon < 1:
        half_mu = math.sqrt(2) * float(scipy.special.erfinv(math.tanh(epsilon / 2)))
    else:
        half_mu = -float(scipy.special.ndtri_exp(-(epsilon + math.log1p(math.exp(-epsilon)))))
    return 2 * half_mu * (1 + DELTA_MARGIN)
