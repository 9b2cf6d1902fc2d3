"""One Gaussian mechanism for several sums at once: clipped blocks, one grid, integer noise.

A document adds to each block b a vector x_b, scaled down to norm at most C_b (its clip norm). In
the weighted coordinates ``y_b = x_b sqrt(part_b) / C_b``, with parts that sum to 1, the whole
contribution y has norm at most 1, so that all blocks can be released by one mechanism. What is
released is ``sum + noise``, never a function of the unrounded sum: adding a double to a double
shows the sum in the last bits.

Sensitivity
-----------
`JointGaussian.l2_sensitivity` bounds, over all pairs of neighbouring datasets, the norm of the
difference of *what is really added to the noise*: sums in floating point, rounded to the grid.
It is the sum of three parts, in weighted coordinates:

1. Of the true sums. ``zero-out``: one contribution, norm at most 1. ``replace-one``:
   ``||y_b - y'_b||^2 <= (2 sqrt(part_b))^2 = 4 part_b``; where a block is nonnegative in every
   entry, ``<y_b, y'_b> >= 0`` leaves ``||y_b||^2 + ||y'_b||^2 <= 2 part_b``. So
   ``sqrt(sum_b f_b part_b)`` with f_b = 1, 4 or 2; or less where the caller proves a `ratio`.
2. Of floating-point sums. Two kinds of roundings, u = 2^-53 each, gamma_k = k u / (1 - k u):

   - *In a term*, before it is added to a sum over documents. With v the exact statistic of a
     document and f the factor by which it really was scaled, the caller guarantees
     ``f ||v_b|| <= C_b`` (f has a margin for the rounding of the norm that it comes from), at
     most T roundings behind each absolute term of f v, and m_b (`Block.magnitude`): the norm
     of the sum of *absolute* terms is at most m_b C_b. What is added is then f v + e with
     ``||e_b|| <= gamma_T m_b C_b`` (Higham, Accuracy and Stability, section 3.1).
   - *On the way to the sum*, at most R additions for each computed term. In whatever order they
     are made, the computed sum is the exact sum of computed terms times (1 + theta),
     ``|theta| <= gamma_R``. With s_b (`Block.sum_magnitude`) a bound on the norm of one document's
     absolute computed terms, in units of C_b, n documents err by ``n gamma_R s_b C_b`` at most.
     If s_b bounds the exact absolute terms instead, the computed ones are at most
     ``(1 + gamma_T) s_b C_b``.

   So the error is at most ``E = n sqrt(sum_b part_b e_b^2)`` with
   ``e_b = gamma_T m_b + gamma_R (1 + gamma_T) s_b``. Each of two neighbours may err: 2 E. Terms of
   documents that both hold count as well, since another batch may round them otherwise.
3. Of the grid. Rounding moves a cell by at most half a step, in both neighbours: a step together,
   ``G = sqrt(sum_b cells_b step_b^2)``.

The sensitivity is exact + 2 E + G. Parts 2 and 3 together may be at most 1 % of part 1; otherwise
the mechanism cannot be made. Underflow is below 2^-600 of C_b; a last factor 1 + 2^-40 covers it.

Groups
------
A sum of very many doubles errs by more than 1 %. So documents may be summed in groups of at most
n_g (``group_max``) contributions, cut at public record slots. `JointGaussian.to_grid` rounds each
group to the grid, and groups are added as integers, without error. Where two neighbours hold the
same documents in a group, summed in the same order and blocks, its integers are the same; they
differ in at most k groups (``groups_touched``). In each of these both may err by E, with n_g in
place of n, and both are rounded: the sensitivity is exact + k (2 E + G).

Where a group is summed in another way, because a program was restarted in it say, it counts as
touched. With the rows below, sums of rounds are integers brought back to doubles (one
rounding), so what the rows' own roundings move is relative to *sums*, of norm at most 1.01 n C_b:
``S (exact + k (2 E + G) + 2 * 1.01 n gamma_(2 H + 17)) + sqrt(H) G``.

Rows of a matrix mechanism
--------------------------
With ``releases`` H above 1, what is released are the rows ``r_s = sum_(t<=s) c_(s-t) x_t`` for
s = 1..H, where x_t is the sum of round t, c_0 = 1 and 0 <= c_i <= 1, and a document is in one
round only (`streamlda.guarantee.matrix_mechanism`). It enters all later rows, by c_i times the same
contribution: all rows together move by ``S exact`` at most, with S = ``strategy_sensitivity`` at
least the norm of c. `StrategyRows` makes rows by a recurrence: a term is added to a buffer (one
rounding), in fewer than H rounds multiplied and added to (two each), then multiplied by a weight
and added to at most 8 others. No factor is negative, so the term reaches row s as c_(s-t) times
itself, after at most ``R + 2 H + 16`` roundings. With that number in place of R, one document's
share in the error of row s is at most c_(s-t) e_b C_b: at most S e_b C_b over all rows and, by the
triangle inequality, S E for n documents, n now those of *all* rounds. Each row is rounded to the
grid by itself: sqrt(H) G. The sensitivity of all rows is ``S (exact + 2 E) + sqrt(H) G``. The norm
of a row is at most n C_b still, as c_i <= 1.

Privacy
-------
Noise is N_Z(0, sigma_b^2) on the grid of each block, with sigma_b = noise_multiplier *
l2_sensitivity in weighted coordinates, at least 2^32 steps. That is within 1/(8 sigma^2), in total
variation, of a continuous Gaussian rounded to the grid. For with f the density of N(0, sigma^2)
and p(y) its integral over y +- 1/2, Taylor's formula gives ``sum |p - f| <= max_w (1/2 - |w|)^2/2 *
integral |f''| = 4 phi(1) / (8 sigma^2)``, and p is no farther than that from f divided by its sum
over the integers. Adding an integer before rounding is the same as after it, hence the release is,
up to `JointGaussian.tv_distance_bound`, a function of the continuous Gaussian mechanism with
noise multiplier z: it is 1/z-Gaussian-differentially private, and one (epsilon, delta) guarantee
costs ``(1 + e^epsilon) tv_distance_bound`` more delta.

Public, and not protected by the noise: names, shapes, clip norms and weights of the blocks, the
relation, n_max, the noise multiplier, and so the grid and the standard deviations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from streamlda.guarantee.checks import InvalidDocumentsError, between, require
from streamlda.guarantee.events import check_relation
from streamlda.guarantee.noise import MAX_SIGMA, Noise

Array = NDArray[np.float64]
#: Whole steps of the grid.
Counts = NDArray[np.int64]

#: Roundings behind one document's term, before it is added to a sum over documents: a projection
#: of a million distinct words, and all else that goes into it.
TERM_ROUNDINGS = 2**20

#: Additions on top of one a document: partial sums that are added, or scaled, together.
MERGE_ROUNDINGS = 64

#: Largest relative increase of the sensitivity by rounding, and the part of it left to the grid.
MAX_INCREASE = 0.01
_GRID_INCREASE = 2.0**-9

#: Fewest steps in a standard deviation: discrete and rounded Gaussian are then within 2^-67.
_MIN_SIGMA = 2.0**32

#: What the recurrence of the rows adds to a chain of roundings: each round, and at its end.
_STEP_ROUNDINGS, _ROW_ROUNDINGS = 2, 16

_UNIT_ROUNDOFF = 2.0**-53


@dataclass(frozen=True, slots=True)
class Block:
    """One of the arrays that are summed over documents and released together."""

    name: str
    shape: tuple[int, ...]  # Of the sum; ``()`` for a single number.
    #: C: no document's contribution has a larger Euclidean norm. The caller clips.
    l2_clip_norm: float
    #: Importance relative to the other blocks: noise in this block is proportional to
    #: ``l2_clip_norm / sqrt(weight)``.
    weight: float = 1.0
    #: That no entry of a contribution is ever negative; ``replace-one`` then costs sqrt(2), not 2.
    nonnegative: bool = False
    #: Bound on the norm of the sum of the *absolute* terms by which a document enters, in units of
    #: C. 1 where terms do not cancel each other; for the pair statistic through a projection W,
    #: (c c' - diag c) W / (l (l - 1)), whose terms do, twice the largest row norm of W over C.
    magnitude: float = 1.0
    #: Bound on the norm of a document's absolute *computed* terms as they are added to the sums,
    #: in units of C; without it, `magnitude`. The caller may clip by that norm too; where a
    #: document adds one term to a cell, it is the norm of the contribution as computed.
    sum_magnitude: float | None = None

    def __post_init__(self) -> None:
        between(1e-100, 1e100, l2_clip_norm=self.l2_clip_norm, weight=self.weight)
        between(1.0, 1e8, magnitude=self.magnitude)
        if self.sum_magnitude is not None:
            between(1.0, 1e6, sum_magnitude=self.sum_magnitude)
        rule, remedy = "a block must have at least one cell", "leave empty blocks out"
        filled = all(n >= 1 for n in self.shape)
        require(filled, rule, block=self.name, shape=self.shape, remedy=remedy)

    @property
    def cells(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


class JointGaussian:
    """The Gaussian mechanism for the weighted, clipped blocks of one round, or of a horizon.

    The privacy unit is what contributes once: a document, or all that a user adds to a round when
    *that* is clipped. The caller guarantees that contributions are clipped, that they are at most
    n_max, T and R; the derivation is in the module's documentation.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        noise_multiplier: float,  # z: stddev over sensitivity; the release is 1/z-GDP.
        *,
        neighboring_relation: str = "zero-out",
        # Most contributions that a sum may hold, or all `releases` together; a public number, not
        # the true count.
        n_max: int,
        # T, most roundings behind one term of a document. With d distinct words, and sums of dense
        # rows below 64 long, d + 64 holds.
        term_roundings: int = TERM_ROUNDINGS,
        # R, most additions that one computed term goes through. ``n_max + MERGE_ROUNDINGS``, the
        # default, holds when a document adds one term to a cell, in any order and grouping.
        roundings: int | None = None,
        # H rows of a matrix mechanism, one call of `release` each and no more, made from rounds of
        # different documents; and S, `BufferedToeplitz.sensitivity`.
        releases: int = 1,
        strategy_sensitivity: float = 1.0,
        # Most contributions in one floating-point sum, when sums go through `to_grid` in groups;
        # and most groups that hold contributions of one unit: 1 for documents, g for users.
        group_max: int | None = None,
        groups_touched: int = 1,
        # Most that two contributions differ by, weighted, where that is less than the blocks say:
        # sqrt(2) for x x' and y y', whose inner product is never negative.
        ratio: float | None = None,
    ) -> None:
        self.blocks = tuple(blocks)
        self.noise_multiplier = float(noise_multiplier)
        self.neighboring_relation = check_relation(neighboring_relation)
        self.n_max = int(n_max)
        self.releases = int(releases)
        self.strategy_sensitivity = float(strategy_sensitivity)
        names = [block.name for block in self.blocks]
        rule = "a release must have blocks of different names"
        require(len(set(names)) == len(names) > 0, rule, names=names, remedy="rename or join them")
        between(1e-3, 1e9, noise_multiplier=self.noise_multiplier)
        between(1, 2**53, n_max=self.n_max)
        self.group_max = None if group_max is None else int(group_max)
        self._touched = int(groups_touched)
        summed = self.n_max if self.group_max is None else self.group_max
        between(1, self.n_max, group_max=summed)
        between(1, 1 if self.group_max is None else 2**20, groups_touched=self._touched)
        between(1, 2**50, term_roundings=term_roundings)
        roundings = summed + MERGE_ROUNDINGS if roundings is None else roundings
        between(1, 2**53 + MERGE_ROUNDINGS, roundings=roundings)
        between(1, 2**30, releases=releases)
        # A column holds coefficients of at most 1; the slack is for a norm that was rounded up.
        longest = math.sqrt(releases) * (1 + 1e-9)
        between(1, longest, strategy_sensitivity=strategy_sensitivity)
        self._ratio = ratio
        if ratio is not None:
            between(1, 2, ratio=ratio)
        total = math.fsum(block.weight for block in self.blocks)
        #: Part of each block in the squared norm of a contribution; sums to 1.
        self.fractions = {block.name: block.weight / total for block in self.blocks}
        self._set_grid(self._exact_sensitivity(), summed * self._error(term_roundings, roundings))
        values = self.releases * sum(block.cells for block in self.blocks)
        #: Between all releases and those with exact, continuous noise rounded to the grid: 2^-59 a
        #: cell and release.
        self.tv_distance_bound = 2 * Noise.tv_distance_bound * values

    def release(self, sums: Mapping[str, Array], noise: Noise) -> dict[str, Array]:
        """Return the sums with noise: each is a whole number of steps, rounded to a double.

        Private if `noise` is (see `Noise.secure`), for one call: every further call on the same
        documents is a release of its own. A sum that cannot be one of n_max clipped contributions
        is refused before noise is drawn. That depends on the documents, so it must not happen in
        a correct program. Time about 0.15 us and memory 40 bytes a value.
        """
        return self.release_grid(self._aggregates(sums, self.n_max), noise)

    def to_grid(self, sums: Mapping[str, Array]) -> dict[str, Counts]:
        """Return the sums of one group in whole steps of the grid, to be added as integers."""
        return self._aggregates(sums, self.group_max or self.n_max)

    def noise_on_grid(self, noise: Noise) -> dict[str, Counts]:
        """Draw the noise of one release, in whole steps of the grid."""
        return {
            block.name: noise.discrete_gaussian(
                self.stddevs[block.name] / self.steps[block.name], block.shape
            )
            for block in self.blocks
        }

    def from_grid(self, aggregates: Mapping[str, Counts]) -> dict[str, Array]:
        """Return whole steps of the grid in the blocks' own units, rounded to doubles."""
        return {
            block.name: aggregates[block.name].astype(np.float64) * self.steps[block.name]
            for block in self.blocks
        }

    def release_grid(self, aggregates: Mapping[str, Counts], noise: Noise) -> dict[str, Array]:
        """Return sums that are on the grid already, with noise; see `release` and `to_grid`."""
        drawn = self.noise_on_grid(noise)
        for name in drawn:
            drawn[name] += aggregates[name]
        return self.from_grid(drawn)

    def check(self, sums: Mapping[str, Array]) -> None:
        """Raise what `release` would raise for these sums; no noise is drawn."""
        self._aggregates(sums, self.n_max)

    def _aggregates(self, sums: Mapping[str, Array], n: int) -> dict[str, Counts]:
        """Return the sums of at most n contributions in whole steps of the grid."""
        found = {name: np.shape(array) for name, array in sums.items()}
        expected = {block.name: block.shape for block in self.blocks}
        rule, remedy = "sums must be those of the blocks", "use the mechanism made for them"
        require(found == expected, rule, shapes=found, expected=expected, remedy=remedy)
        return {block.name: self._aggregate(block, sums[block.name], n) for block in self.blocks}

    def _aggregate(self, block: Block, values: Array, n: int) -> Counts:
        """Return a sum in steps of the grid, rounded to whole numbers."""
        values = np.asarray(values, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            norm = float(np.linalg.norm(values.reshape(-1) / block.l2_clip_norm))
        # Written so that NaN fails too. The message must not tell the sum.
        require(
            norm <= n * (1 + MAX_INCREASE),
            "a sum must be finite and of norm at most n_max * l2_clip_norm",
            block=block.name,
            n_max=n,
            l2_clip_norm=block.l2_clip_norm,
            remedy="clip every contribution and drop those that are not finite",
            error=InvalidDocumentsError,
        )
        require(
            not block.nonnegative or values.min() >= 0,
            "a sum of nonnegative contributions must not be negative",
            block=block.name,
            remedy="declare the block with nonnegative=False",
            error=InvalidDocumentsError,
        )
        # Exact: the step is a power of two, and the quotient stays below 2^62.
        return np.rint(values / self.steps[block.name]).astype(np.int64)

    def _exact_sensitivity(self) -> float:
        if self.neighboring_relation == "zero-out":
            return 1.0
        if self._ratio is not None:
            return self._ratio
        return math.sqrt(
            sum((2 if b.nonnegative else 4) * self.fractions[b.name] for b in self.blocks)
        )

    def _error(self, term_roundings: int, roundings: int) -> float:
        """Return E / n, a bound on the norm of one document's rounding errors, weighted."""
        if self.releases > 1 and self.group_max is None:
            roundings += _STEP_ROUNDINGS * self.releases + _ROW_ROUNDINGS
        term, chain = _gamma(term_roundings), _gamma(roundings)
        square = 0.0
        for block in self.blocks:
            added = block.magnitude if block.sum_magnitude is None else block.sum_magnitude
            error = term * block.magnitude + chain * (1 + term) * added
            square += self.fractions[block.name] * error**2
        return math.sqrt(square)

    def _set_grid(self, exact: float, summation_error: float) -> None:
        """Choose steps, and from them the sensitivity and the standard deviations."""
        cells = self.releases * sum(block.cells for block in self.blocks)
        true = exact * self.strategy_sensitivity
        finest = _GRID_INCREASE / (self._touched * math.sqrt(cells))
        widest = true * min(finest, self.noise_multiplier / _MIN_SIGMA)
        scales = {b.name: b.l2_clip_norm / math.sqrt(self.fractions[b.name]) for b in self.blocks}
        # frexp: the largest power of two that is not above.
        #: Grid step of each block, a power of two in its own units.
        self.steps = {
            name: math.ldexp(0.5, math.frexp(widest * scale)[1]) for name, scale in scales.items()
        }
        grid = math.sqrt(
            sum(b.cells * (self.steps[b.name] / scales[b.name]) ** 2 for b in self.blocks)
        )
        moved = exact + self._touched * (2 * summation_error + grid)
        if self.releases > 1:
            if self.group_max is None:
                moved -= grid
            else:
                moved += 2 * self.n_max * 1.01 * _gamma(_STEP_ROUNDINGS * self.releases + 17)
            moved = self.strategy_sensitivity * moved + math.sqrt(self.releases) * grid
        #: Of all aggregates on the grid, in weighted coordinates, where a contribution has norm at
        #: most 1: S times 1 (zero-out) or sqrt(2) to 2 (replace-one), and up to 1 % for rounding.
        # The last factor pays for the roundings made here.
        self.l2_sensitivity = moved * (1 + 2.0**-40)
        require(
            self.l2_sensitivity <= true * (1 + MAX_INCREASE),
            "rounding must cost at most 1 % of the sensitivity",
            n_max=self.n_max,
            cost=f"{self.l2_sensitivity / true - 1:.2g}",
            remedy="sum fewer documents, or sum in groups and state the longest chain of roundings",
        )
        sigma = self.noise_multiplier * self.l2_sensitivity
        #: Standard deviation of the noise in each value of a block, in the block's own units.
        self.stddevs = {name: sigma * scale for name, scale in scales.items()}
        found: Any = {
            "noise_multiplier": self.noise_multiplier,
            "n_max": self.n_max,
            "cells": cells,
        }
        for block in self.blocks:
            step = self.steps[block.name]
            fits = self.stddevs[block.name] <= MAX_SIGMA * step
            rule, remedy = "noise must have at most 2^40 steps of the grid", "take less noise"
            require(fits, rule, block=block.name, **found, remedy=remedy)
            fits = self.n_max * block.l2_clip_norm <= 2.0**61 * step
            rule, remedy = "sums must have fewer than 2^61 steps of the grid", "sum fewer documents"
            require(fits, rule, block=block.name, **found, remedy=f"{remedy}, or take more noise")


def _gamma(roundings: int) -> float:
    """Return the largest relative error of as many roundings; infinite where it is unbounded."""
    error = roundings * _UNIT_ROUNDOFF
    return error / (1 - error) if error < 0.5 else math.inf
