"""Promise of a site to its samples, and the noise that each stage needs for it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from streamlda.checks import between, one_of
from streamlda.papers.textbook import gaussian_multiplier
from streamlda.privacy import accounting

Calibration = Literal["exact", "paper"]
CALIBRATIONS: tuple[Calibration, ...] = ("exact", "paper")


@dataclass(frozen=True, slots=True)
class Promise:
    """Promise of a site to its samples, over all stages of an algorithm.

    Parameters
    ----------
    epsilon : float
        In nats, above 0.
    delta : float
        Above 0, below 1.
    calibration : {"exact", "paper"}
        - "exact": a stage with a part p of the budget gets the noise multiplier z / sqrt(p), z from
          `streamlda.privacy.accounting`; all stages together cost exactly (epsilon, delta).
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
        one_of(CALIBRATIONS, calibration=self.calibration, remedy="take exact")

    def noise_multiplier(self, part: float = 1.0) -> float:
        """Return standard deviation / l2_sensitivity of a stage with this part of the budget."""
        between(1e-6, 1.0, part=part)
        if self.calibration == "exact":
            return _least_multiplier(self.epsilon, self.delta) / math.sqrt(part)
        return gaussian_multiplier(part * self.epsilon, part * self.delta)

    def exact_epsilon(self, parts: Sequence[float]) -> float:
        """Return the epsilon that stages with these parts really cost, at the same delta."""
        squared = sum(self.noise_multiplier(part) ** -2 for part in parts)
        return accounting.epsilon_of(math.sqrt(squared), self.delta)


@lru_cache(maxsize=64)
def _least_multiplier(epsilon: float, delta: float) -> float:
    """Return the accounting's answer, which takes milliseconds and is needed at every site."""
    return accounting.noise_multiplier(epsilon, delta)
