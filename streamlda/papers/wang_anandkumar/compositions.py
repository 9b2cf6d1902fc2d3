"""Composition of privacy as papers and textbooks state it, and as [WA16] calibrates its noise.

`streamlda.guarantee.accounting` is exact for Gaussian noise; what stands here is looser, and
`wang_anandkumar` does not even give the wanted epsilon by its own argument (see there).
These are plain formulas without directed rounding.

References
----------
.. [1] Dwork, Roth, *The algorithmic foundations of differential privacy*, 2014: Thm. 3.16
   (basic), Thm. 3.20 (advanced), Thm. A.1 (Gaussian).
"""

import math
from collections.abc import Iterable
from itertools import product
from typing import NamedTuple

from streamlda.errors import at_least, between
from streamlda.guarantee import accounting
from streamlda.papers.faults import check
from streamlda.papers.laplace import gaussian_multiplier


class Comparison(NamedTuple):
    """A schedule of [WA16] beside exact accounting, at `delta` and K = `releases` of one tensor.

    Advanced composition, the paper's argument, gives `advanced_epsilon` for its noise, which is
    `ratio` times what is needed for the wanted epsilon; `exact_epsilon` is true.
    """

    delta: float
    releases: int
    formula_noise_multiplier: float
    advanced_epsilon: float
    exact_epsilon: float
    needed_noise_multiplier: float
    ratio: float


def advanced_epsilon(epsilon: float, releases: int, slack: float) -> float:
    """Return the epsilon of K releases, each (epsilon, delta)-DP, by advanced composition [1]_.

    epsilon sqrt(2 K ln(1 / slack)) + K epsilon (e^epsilon - 1), at a delta of K delta + slack.
    """
    between(accounting.MIN_DELTA, math.nextafter(1.0, 0.0), slack=slack)
    spread = epsilon * math.sqrt(-2 * releases * math.log(slack))
    return spread + releases * epsilon * math.expm1(epsilon)


def wang_anandkumar(epsilon: float, delta: float, releases: int) -> tuple[float, float]:
    """Return epsilon' and the noise multiplier that [WA16] Algorithm 3 prints for K releases.

    epsilon' = epsilon / sqrt(K (4 + ln(2 / delta))), delta' = delta / (2 K), and by the textbook
    Gaussian mechanism a noise multiplier of sqrt(2 ln(1.25 / delta')) / epsilon'.

    Refused where epsilon' is above 1 and the textbook formula no longer gives epsilon'.

    Put into advanced composition, as the paper argues, epsilon' gives more than epsilon (errata,
    entry 4). The releases are (epsilon, delta)-DP all the same: the noise is more than needed.
    """
    between(0.0, accounting.MAX_EPSILON, epsilon=epsilon)
    between(1e-290, 0.5, delta=delta)
    at_least(1, releases=releases)
    epsilon_each = epsilon / math.sqrt(releases * (4 + math.log(2 / delta)))
    delta_each = delta / (2 * releases)
    check(0 < epsilon_each <= 1, "textbook", epsilon=epsilon_each)
    return epsilon_each, gaussian_multiplier(epsilon_each, delta_each)


def wang_anandkumar_table(
    epsilon: float = 1.0,
    deltas: Iterable[float] = (1e-5, 1e-6),
    releases: Iterable[int] = (10, 100, 1000, 10_000),
) -> list[Comparison]:
    """Return, for every delta and number of releases, the paper's noise beside what is needed.

    Parameters
    ----------
    epsilon : float, default 1
    deltas : iterable of float
    releases : iterable of int
        K, queries of Algorithm 3.
    """
    rows = []
    for delta, count in product(deltas, releases):
        epsilon_each, used = wang_anandkumar(epsilon, delta, count)
        advanced = advanced_epsilon(epsilon_each, count, delta / 2)
        exact = accounting.epsilon_of(math.sqrt(count / used**2), delta)
        needed = accounting.noise_multiplier(epsilon, delta, count)
        rows.append(Comparison(delta, count, used, advanced, exact, needed, used / needed))
    return rows
