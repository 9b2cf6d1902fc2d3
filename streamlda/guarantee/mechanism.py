"""One Gaussian mechanism for several sums at once: clipped blocks, one grid, integer noise.

A document adds to each block b a vector x_b of norm at most C_b, its clip norm; a unit of privacy
adds g documents at most. In the weighted coordinates ``y_b = x_b sqrt(part_b) / (g C_b)``, with
parts that sum to 1, all that a unit adds has norm at most 1. So all blocks are one release.

Sensitivity
-----------
`JointGaussian.l2_sensitivity` bounds, over all pairs of neighbouring datasets, the norm of the
difference of *what is really added to the noise*: whole steps of the grid.

1. ``zero-out``: the unit, or blanks: norm at most 1. ``replace-one``: another unit in its place,
   ``||y_b - y'_b||^2 <= 4 part_b``; where a block is nonnegative in every entry,
   ``<y_b, y'_b> >= 0`` leaves ``||y_b||^2 + ||y'_b||^2 <= 2 part_b``. So the square is at most
   ``sum_b f_b part_b`` with f_b = 1, 4 or 2.
2. *Whole numbers* (`streamlda.guarantee.sums`) add up without error: 1 is all there is.
3. *Sums of doubles* (`streamlda.papers.rounding`) differ from exact ones by at most E, each in two
   neighbours: 2 E more. Rounding to the grid moves a cell by at most half a step in each:
   ``G = sqrt(sum_b cells_b step_b^2)`` more.
4. *Rows of a matrix mechanism* (`streamlda.guarantee.matrix_mechanism`): ``r_s = sum_(t<=s)
   c_(s-t) x_t`` for s = 1..H (`releases`), c_0 = 1, 0 <= c_i <= 1, x_t the whole numbers of round
   t, and a unit is in one round. It enters all later rows, by c_i times the same contribution, so
   all rows together move by S = ||c|| (`strategy_sensitivity`) times step 1. n_max counts what a
   row holds of contributions, by their c_i: `StrategyRows` makes it of doubles, off by 2^-49 n_max
   at most in each of two neighbours, and it is rounded to the grid: ``S exact + sqrt(H) (2^-48
   n_max + G)``.

More than 1 % beyond step 1 is refused. A last factor 1 + 2^-40 pays for the roundings made here.

Privacy
-------
Noise is N_Z(0, sigma_b^2) on the grid of each block, sigma_b = noise_multiplier * l2_sensitivity in
weighted coordinates, at least 2^32 steps, 2^35 for rows. That is within 1/(8 sigma^2), in total
variation, of a continuous Gaussian rounded to the grid. For with f the density of N(0, sigma^2) and
p(y) its integral over y +- 1/2, Taylor's formula gives ``sum |p - f| <= max_w (1/2 - |w|)^2/2 *
integral |f''| = 4 phi(1) / (8 sigma^2)``, and p is no farther than that from f divided by its sum
over the integers. Adding an integer before rounding is the same as after it. So the release is, up
to `JointGaussian.tv_distance_bound`, a function of the continuous Gaussian mechanism with noise
multiplier z: it is 1/z-GDP, for ``(1 + e^epsilon) tv_distance_bound`` more delta.

Public: blocks, relation, n_max, noise multiplier, and so the grid and the standard deviations.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from streamlda.guarantee.checks import InvalidDocumentsError, between, require
from streamlda.guarantee.noise import MAX_SIGMA, Noise

Array = NDArray[np.float64]
#: Whole steps of the grid.
Counts = NDArray[np.int64]

#: How datasets that must be indistinguishable differ: by a document or a blank in one slot
#: (Kairouz et al., arXiv 2103.00039, definition 1.1), or by another document in its slot.
NEIGHBORING_RELATIONS = ZERO_OUT, REPLACE_ONE = ("zero-out", "replace-one")

#: Former names, which are read as the present ones.
_FORMER_NAMES = {"add-remove": ZERO_OUT}

#: Largest relative increase of the sensitivity by rounding, and the part of it left to the grid.
MAX_INCREASE = 0.01
_GRID_INCREASE = 2.0**-9

#: Fewest steps in a standard deviation: discrete and rounded Gaussian are then within 2^-67.
_MIN_SIGMA = 2.0**32

#: Most rows of a matrix mechanism, and fewest steps for them: a value, within 2^-73 and 2^-100 for
#: the sampler (`Noise`), is then that near to the exact one.
MAX_ROWS, _MIN_ROW_SIGMA, ROW_TV_DISTANCE = 2**18, 2.0**35, 2.0**-72


@dataclass(frozen=True, slots=True)
class Block:
    """One of the arrays that are summed over documents and released together."""

    name: str
    shape: tuple[int, ...]  # Of the sum; ``()`` for a single number.
    l2_clip_norm: float  # C: `Sums.add` scales each document's contribution down to it.
    #: Importance relative to the other blocks: noise in this block is proportional to
    #: ``l2_clip_norm / sqrt(weight)``.
    weight: float = 1.0
    #: That no entry of a contribution is ever negative; ``replace-one`` then costs sqrt(2), not 2.
    nonnegative: bool = False
    #: Blocks of one name here are scaled by one factor, the least that any of them asks for.
    scaled_with: str = ""

    def __post_init__(self) -> None:
        between(1e-100, 1e100, l2_clip_norm=self.l2_clip_norm, weight=self.weight)
        rule, remedy = "a block has no cell", "leave empty blocks out"
        filled = all(n >= 1 for n in self.shape)
        require(filled, rule, block=self.name, shape=self.shape, remedy=remedy)

    @property
    def cells(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


class JointGaussian:
    """The Gaussian mechanism for the weighted, clipped blocks of one round, or of a horizon."""

    def __init__(
        self,
        blocks: Sequence[Block],
        noise_multiplier: float,  # z: stddev over sensitivity; the release is 1/z-GDP.
        *,
        neighboring_relation: str = "zero-out",
        n_max: int,  # Most contributions of a release, or of a row: a public number.
        documents_per_unit: int = 1,  # g: 1 where a document is the unit.
        releases: int = 1,  # H rows of a matrix mechanism, and S, `BufferedToeplitz.sensitivity`.
        strategy_sensitivity: float = 1.0,
    ) -> None:
        self.blocks, self.n_max = tuple(blocks), int(n_max)
        self.noise_multiplier = float(noise_multiplier)
        self.neighboring_relation = check_relation(neighboring_relation)
        self.documents_per_unit, self.releases = int(documents_per_unit), int(releases)
        self.strategy_sensitivity = float(strategy_sensitivity)
        names = [block.name for block in self.blocks]
        rule, remedy = "a release has no blocks, or two of one name", "rename or join them"
        require(len(set(names)) == len(names) > 0, rule, names=names, remedy=remedy)
        between(1e-3, 1e9, noise_multiplier=self.noise_multiplier)
        between(1, 2**53, n_max=self.n_max)
        between(1, 2**31, documents_per_unit=self.documents_per_unit)
        between(1, MAX_ROWS, releases=releases)
        # A column holds coefficients of at most 1; the slack is for a norm that was rounded up.
        between(1, math.sqrt(releases) * (1 + 1e-9), strategy_sensitivity=strategy_sensitivity)
        total = math.fsum(block.weight for block in self.blocks)
        #: Part of each block in the squared norm of a contribution; sums to 1.
        self.fractions = {block.name: block.weight / total for block in self.blocks}
        self._set_grid()
        cells = self.releases * sum(block.cells for block in self.blocks)
        distance = Noise.tv_distance_bound if self.releases == 1 else ROW_TV_DISTANCE
        #: Between all releases and those with exact, continuous noise rounded to the grid.
        self.tv_distance_bound = 2 * distance * cells

    def release_grid(self, aggregates: Mapping[str, Counts], noise: Noise) -> dict[str, Array]:
        """Return sums with noise, private if `noise` is; every further call is another release."""
        drawn = self.noise_on_grid(noise)
        for name in drawn:
            drawn[name] += aggregates[name]
        return self.from_grid(drawn)

    def noise_on_grid(self, noise: Noise, part: float = 1.0) -> dict[str, Counts]:
        """Draw the noise of one release, or a part of its deviation, in whole steps of the grid."""
        return {
            block.name: noise.discrete_gaussian(
                part * self.stddevs[block.name] / self.steps[block.name], block.shape
            )
            for block in self.blocks
        }

    def from_grid(self, aggregates: Mapping[str, Counts]) -> dict[str, Array]:
        """Return whole steps of the grid in the blocks' own units, rounded to doubles."""
        return {
            block.name: aggregates[block.name].astype(np.float64) * self.steps[block.name]
            for block in self.blocks
        }

    def release(self, sums: Mapping[str, Array], noise: Noise) -> dict[str, Array]:
        """Return sums of doubles with noise; see `to_grid` and `release_grid`."""
        return self.release_grid(self.to_grid(sums), noise)

    def to_grid(self, sums: Mapping[str, Array]) -> dict[str, Counts]:
        """Return sums of doubles in whole steps of the grid.

        A sum that cannot be one of n_max clipped contributions is refused. That depends on the
        documents, so it must not happen in a correct program; the message does not tell the sum.
        """
        found = {name: np.shape(array) for name, array in sums.items()}
        expected = {block.name: block.shape for block in self.blocks}
        rule, remedy = "sums are not those of the blocks", "use the mechanism made for them"
        require(found == expected, rule, shapes=found, expected=expected, remedy=remedy)
        return {block.name: self._round_to_grid(block, sums[block.name]) for block in self.blocks}

    def _round_to_grid(self, block: Block, values: Array) -> Counts:
        values = np.asarray(values, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            norm = float(np.linalg.norm(values.reshape(-1) / block.l2_clip_norm))
        rule = "a sum is not finite, has a norm above n_max * l2_clip_norm, or a wrong sign"
        # Written so that NaN fails too.
        fits = norm <= self.n_max * (1 + MAX_INCREASE)
        fits = fits and (not block.nonnegative or values.min() >= 0)
        shown = {"block": block.name, "n_max": self.n_max, "l2_clip_norm": block.l2_clip_norm}
        remedy = "clip every contribution and drop those that are not finite"
        require(fits, rule, **shown, remedy=remedy, error=InvalidDocumentsError)
        # Exact: the step is a power of two, and the quotient stays below 2^62.
        return np.rint(values / self.steps[block.name]).astype(np.int64)

    def _exact_sensitivity(self) -> float:
        """Return step 1 of the derivation."""
        if self.neighboring_relation == "zero-out":
            return 1.0
        factors = {b.name: 2 if b.nonnegative else 4 for b in self.blocks}
        return math.sqrt(sum(factors[name] * part for name, part in self.fractions.items()))

    def _error_of_doubles(self, grid: float) -> float:
        """Return step 3 of the derivation: nothing, for whole numbers."""
        return 0.0

    def _set_grid(self) -> None:
        """Choose steps, and from them the sensitivity and the standard deviations."""
        exact, S, H = self._exact_sensitivity(), self.strategy_sensitivity, self.releases
        cells = H * sum(block.cells for block in self.blocks)
        least = _MIN_SIGMA if H == 1 else _MIN_ROW_SIGMA
        widest = min(_GRID_INCREASE / math.sqrt(cells), self.noise_multiplier / least)
        g = self.documents_per_unit
        scales = {
            b.name: g * b.l2_clip_norm / math.sqrt(self.fractions[b.name]) for b in self.blocks
        }
        # frexp: the largest power of two that is not above.
        #: Grid step of each block, a power of two in its own units.
        self.steps = {
            name: math.ldexp(0.5, math.frexp(exact * S * widest * scale)[1])
            for name, scale in scales.items()
        }
        parts = (b.cells * (self.steps[b.name] / scales[b.name]) ** 2 for b in self.blocks)
        grid, moved = math.sqrt(sum(parts)), exact * S
        if H > 1:
            moved += math.sqrt(H) * (2.0**-48 * self.n_max + grid)
        moved += self._error_of_doubles(grid)
        #: Of all aggregates on the grid, in weighted coordinates.
        self.l2_sensitivity = moved * (1 + 2.0**-40)
        require(
            self.l2_sensitivity <= exact * S * (1 + MAX_INCREASE),
            "rounding costs more than 1 % of the sensitivity",
            n_max=self.n_max,
            cost=f"{self.l2_sensitivity / (exact * S) - 1:.2g}",
            remedy="sum fewer documents",
        )
        sigma = self.noise_multiplier * self.l2_sensitivity
        #: Standard deviation of the noise in each value of a block, in the block's own units.
        self.stddevs = {name: sigma * scale for name, scale in scales.items()}
        for block in self.blocks:
            step, name = self.steps[block.name], block.name
            fits = self.stddevs[name] <= MAX_SIGMA * step
            rule, remedy = "noise has more than 2^40 steps of the grid", "take less noise"
            z = self.noise_multiplier
            require(fits, rule, block=name, noise_multiplier=z, cells=cells, remedy=remedy)
            fits = self.n_max * block.l2_clip_norm <= 2.0**61 * step
            rule, remedy = "sums may have over 2^61 steps of the grid", "sum fewer documents"
            require(fits, rule, block=name, n_max=self.n_max, remedy=f"{remedy}, or more noise")


def check_relation(neighboring_relation: str) -> str:
    """Return the present name of a relation, or refuse an unknown name."""
    name = _FORMER_NAMES.get(str(neighboring_relation), neighboring_relation)
    rule = f"neighboring_relation must be one of {', '.join(NEIGHBORING_RELATIONS)}"
    remedy = "take zero-out unless the number of documents is public"
    known = name in NEIGHBORING_RELATIONS
    require(known, rule, neighboring_relation=name, remedy=remedy)
    return name
