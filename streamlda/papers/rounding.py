"""Mechanisms for sums of doubles, whose rounding errors count in the sensitivity.

Two kinds of roundings, u = 2^-53 each, gamma_k = k u / (1 - k u):

1. *In a term*, before it is added to a sum over documents: at most T behind each absolute term.
   With m_b (`SummedBlock.magnitude`), the norm of one document's absolute terms over C_b, what is
   added errs by at most ``gamma_T m_b C_b`` (Higham, Accuracy and Stability, section 3.1).
2. *On the way to the sum*, at most R additions for each computed term: the computed sum is the
   exact sum of computed terms times (1 + theta), ``|theta| <= gamma_R``, in whatever order.

So n documents err by at most ``E = n sqrt(sum_b part_b e_b^2)``, e_b = (gamma_T + gamma_R (1 +
gamma_T)) m_b (`streamlda.guarantee.mechanism`, step 3).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from streamlda.guarantee.mechanism import Block, JointGaussian

#: T: a projection of a million distinct words, and all else that goes into it.
TERM_ROUNDINGS = 2**20

#: Additions on top of one a document: partial sums that are added, or scaled, together.
MERGE_ROUNDINGS = 64


@dataclass(frozen=True, slots=True)
class SummedBlock(Block):
    """A block whose terms may cancel: `magnitude` is 1 where they do not."""

    magnitude: float = 1.0


class MechanismOfDoubles(JointGaussian):
    """The mechanism of sums of at most n_max contributions, with T and R of the module."""

    def __init__(
        self,
        blocks: Sequence[Block],
        noise_multiplier: float,
        *,
        n_max: int,
        term_roundings: int = TERM_ROUNDINGS,
        roundings: int | None = None,
        **options: Any,
    ) -> None:
        term = _gamma(term_roundings)
        chain = _gamma(n_max + MERGE_ROUNDINGS if roundings is None else roundings)
        total, square = math.fsum(block.weight for block in blocks), 0.0
        for block in blocks:
            magnitude = block.magnitude if isinstance(block, SummedBlock) else 1.0
            square += block.weight / total * ((term + chain * (1 + term)) * magnitude) ** 2
        self._error = min(n_max * math.sqrt(square), 1e300)
        super().__init__(blocks, noise_multiplier, n_max=n_max, **options)

    def _error_of_doubles(self, grid: float) -> float:
        return self.strategy_sensitivity * 2 * self._error + grid


def mechanism_of_ratio(
    blocks: Sequence[Block], noise_multiplier: float, ratio: float, term_roundings: int
) -> MechanismOfDoubles:
    """Return the release of answers that a neighbour moves by a clip norm at most.

    A neighbour counts as one contribution more or less. Rounding errors are those of as many as
    make up the magnitude of the answers: `ratio` is that over the clip norm.
    """
    # Probes may be a little longer than 1.
    n_max = max(1, math.ceil(1.001 * ratio))
    how: dict[str, Any] = {"term_roundings": term_roundings, "roundings": 1}
    return MechanismOfDoubles(blocks, noise_multiplier, n_max=n_max, **how)


def _gamma(roundings: int) -> float:
    """Return the largest relative error of as many roundings; infinite where it is unbounded."""
    error = roundings * 2.0**-53
    return error / (1 - error) if error < 0.5 else math.inf
