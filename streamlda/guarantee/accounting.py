"""Cost of releases, and the noise that a budget buys: exact for Gaussian noise.

Gaussian releases of the same documents with noise multipliers z_j are together exactly mu-GDP
with mu^2 = sum 1 / z_j^2 [1]_, and a mu-GDP release is (epsilon, delta)-DP exactly when [2]_

    delta >= Phi(-epsilon/mu + mu/2) - e^epsilon Phi(-epsilon/mu - mu/2).

So mu^2 is the currency: it adds up without loss, also when each release is chosen after seeing
those before it [3]_.

**Rounding.** Every figure errs on the safe side of the exact one: delta, epsilon and a noise
multiplier are never too small, mu never too large. A delta is at most `DELTA_MARGIN` (relative)
above the exact value, and at least `MIN_DELTA`.

The difference is not taken as it stands: both terms may agree in all digits, or both underflow.
With a = epsilon/mu - mu/2, b = a + mu and Mills' ratio M(x) = Phi(-x) / phi(x), delta is
phi(a) (M(a) - M(b)), the integral of phi(a) g(x) from a to b with g(x) = -M'(x) = 1 - x M(x) > 0.

.. [1] Dong, Roth, Su, *Gaussian differential privacy*, 2022.
.. [2] Balle, Wang, *Improving the Gaussian mechanism for differential privacy*, 2018, Theorem 8.
.. [3] Smith, Thakurta, *Fully adaptive composition for Gaussian differential privacy*, 2022.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy
from numpy.typing import NDArray

from streamlda.guarantee.checks import at_least, between

#: How far above the exact delta the one given may lie, relative; computed to about 1e-12.
DELTA_MARGIN = 1e-10

#: The smallest delta that is distinguished from zero, and the largest.
MIN_DELTA, MAX_DELTA = 1e-300, math.nextafter(1.0, 0.0)

#: The ranges in which the margin holds. The largest epsilon covers every mu and delta in range.
MAX_MU, MAX_EPSILON = 1e3, 1e6

#: Headroom of a noise multiplier, relative, so that sums of its mu^2 stay within the budget.
MULTIPLIER_MARGIN = 1e-11

#: A factor that pays for a few roundings.
ULPS_UP = 1 + 2.0**-50

_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(8)
_LOG_SQRT_2PI = 0.5 * math.log(2 * math.pi)


def sampler_factor(epsilon: float) -> float:
    """Return 1 + e^epsilon: the delta that a distance of the sampler to exact noise costs."""
    return 1 + math.exp(min(epsilon, 700.0))


def delta_of(mu: float, epsilon: float) -> float:
    """Return the smallest delta for which mu-GDP is (epsilon, delta)-DP, rounded up; 50 us.

    It is 0 for mu = 0 (nothing released), else from `MIN_DELTA` to 1; epsilon is in nats.
    """
    _check(mu=mu, epsilon=epsilon)
    if mu == 0:
        return 0.0
    log_delta = min(_log_delta(mu, epsilon), 0.0)
    return min(max(math.exp(log_delta) * (1 + DELTA_MARGIN), MIN_DELTA), 1.0)


def epsilon_of(mu: float, delta: float) -> float:
    """Return the smallest epsilon for which mu-GDP is (epsilon, delta)-DP, rounded up; 3 ms.

    In nats. No Gaussian release is private with delta 0.
    """
    _check(mu=mu, delta=delta)
    if delta_of(mu, 0.0) <= delta:
        return 0.0
    # At the upper end a = 40, where delta is far below the smallest one.
    return _bisect(lambda epsilon: delta_of(mu, epsilon) <= delta, 0.0, mu * (mu / 2 + 40))


def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest mu for which mu-GDP is (epsilon, delta)-DP, rounded down; 3 ms."""
    _check(epsilon=epsilon, delta=delta)
    if delta_of(MAX_MU, epsilon) <= delta:
        return MAX_MU
    # Two values that are surely private: delta < mu / 2 at any epsilon, and the mu with a = 40.
    private = max(delta, 2 * epsilon / (40 + math.sqrt(1600 + 2 * epsilon)))
    return _bisect(lambda mu: delta_of(mu, epsilon) <= delta, MAX_MU, private)


def noise_multiplier(epsilon: float, delta: float, releases: int = 1) -> float:
    """Return the smallest noise multiplier at which all releases together are (epsilon, delta)-DP.

    It is sqrt(releases) / `mu_of`, rounded up by `MULTIPLIER_MARGIN`, so that adding up mu^2
    release by release stays within the budget.
    """
    at_least(1, releases=releases)
    return math.sqrt(releases) / mu_of(epsilon, delta) * (1 + MULTIPLIER_MARGIN)


def _check(**values: Any) -> None:
    ranges = {"mu": (0.0, MAX_MU), "epsilon": (0.0, MAX_EPSILON), "delta": (MIN_DELTA, MAX_DELTA)}
    for name, value in values.items():
        between(*ranges[name], **{name: value})


def _log_delta(mu: float, epsilon: float) -> float:
    """Return log delta, off by less than `DELTA_MARGIN`; -inf if far below `MIN_DELTA`."""
    low, high = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if low > 40:
        return -math.inf
    log_density = -low * low / 2 - _LOG_SQRT_2PI
    if mu <= 1:
        slope = _mills_slope(low + mu * (1 + _NODES) / 2)
        return log_density + math.log(mu) + math.log(float(_WEIGHTS @ slope) / 2)
    if low >= 0:
        return log_density + math.log(_mills(low) - _mills(high))
    return math.log(float(scipy.special.ndtr(-low)) - math.exp(log_density) * _mills(high))


def _mills(x: float) -> float:
    """Return Mills' ratio Phi(-x) / phi(x) for x >= 0."""
    return math.sqrt(math.pi / 2) * float(scipy.special.erfcx(x / math.sqrt(2)))


def _mills_slope(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return 1 - x M(x), M being Mills' ratio, for -1/2 <= x <= 41, without cancellation."""
    near = 1 - x * math.sqrt(math.pi / 2) * scipy.special.erfcx(x / math.sqrt(2))
    # Laplace's continued fraction from the back; 50 terms are enough from x = 3 on.
    far = np.maximum(x, 3.0)
    tail = np.zeros_like(far)
    for term in range(50, 0, -1):
        tail = term / (far + tail)
    return np.where(x < 3, near, tail / (far + tail))


def _bisect(private: Callable[[float], bool], loud: float, quiet: float) -> float:
    """Return the value nearest to `loud` that is `private`, going from `quiet`, which is."""
    while abs(quiet - loud) > 1e-14 * quiet:
        middle = loud + (quiet - loud) / 2
        if middle in (loud, quiet):
            break
        if private(middle):
            quiet = middle
        else:
            loud = middle
    return quiet
