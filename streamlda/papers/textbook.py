"""The Gaussian mechanism of textbooks, by which all three papers calibrate their noise."""

from __future__ import annotations

import math


def gaussian_multiplier(epsilon: float, delta: float) -> float:
    """Return sqrt(2 ln(1.25 / delta)) / epsilon, proven for epsilon <= 1 (Dwork & Roth, Thm. A.1).

    `streamlda.privacy.accounting.noise_multiplier` is exact, and needs less.
    """
    return math.sqrt(2 * math.log(1.25 / delta)) / epsilon
