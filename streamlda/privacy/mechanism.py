"""One Gaussian mechanism for several sums at once: clipped blocks, one grid, integer noise.

A document adds to each block b a vector x_b, scaled down to norm at most C_b (its clip norm). In
the weighted coordinates ``y_b = x_b sqrt(share_b) / C_b``, with shares that sum to 1, the whole
contribution y has norm at most 1, so that all blocks can be released by one mechanism. What is
released is ``sum + noise``, never a function of the unrounded sum: adding a double to a double
shows the sum in the last bits.

Sensitivity
-----------
`JointGaussian.l2_sensitivity` bounds, over all pairs of neighbouring datasets, the norm of the
difference of *what is really added to the noise*: sums in floating point, rounded to the grid.
It is the sum of three parts, in weighted coordinates:

1. Of the true sums. ``add-remove``: one contribution, norm at most 1. ``replace-one``:
   ``||y_b - y'_b||^2 <= (2 sqrt(share_b))^2 = 4 share_b``; where a block is nonnegative in every
   entry, ``<y_b, y'_b> >= 0`` leaves ``||y_b||^2 + ||y'_b||^2 <= 2 share_b``. So
   ``sqrt(sum_b f_b share_b)`` with f_b = 1, 4 or 2.
2. Of floating-point sums. Let every term that enters a cell go through at most R roundings, from
   the counts of its document to the sum: each product that makes it, the clip factor included,
   and each addition on its way. Then the computed sum is the exact sum of terms multiplied by
   (1 + theta), ``|theta| <= gamma_R = R u / (1 - R u)``, u = 2^-53, in whatever order it is taken
   (Higham, Accuracy and Stability, section 3.1). With m_b (`Block.magnitude`) a bound on the norm
   of one document's *absolute* terms, in units of C_b, the error of the sum over at most n
   documents is at most ``gamma_R n m_b sqrt(share_b)`` in block b and
   ``gamma_R n sqrt(sum_b share_b m_b^2)`` in all. Each of two neighbours may err: twice that.
3. Of the grid. Rounding moves a cell by at most half a step, in both neighbours: a step together.
   ``sqrt(sum_b cells_b step_b^2)``.

Parts 2 and 3 together may be at most 1 % of part 1; otherwise the mechanism cannot be made.

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

import numpy as np
from numpy.typing import NDArray

from streamlda.errors import InvalidDocumentsError, InvalidSettingError
from streamlda.privacy.events import NEIGHBORING_RELATIONS
from streamlda.privacy.noise import MAX_SIGMA, Noise

Array = NDArray[np.float64]

#: Roundings behind one document's term, before it is added to anything: a norm over a million
#: distinct words, and all else that goes into it.
TERM_ROUNDINGS = 2**20

#: Largest relative increase of the sensitivity by rounding, and the part of it left to the grid.
MAX_INCREASE = 0.01
_GRID_INCREASE = 2.0**-9

#: Fewest steps in a standard deviation: discrete and rounded Gaussian are then within 2^-67.
_MIN_SIGMA = 2.0**32

_UNIT_ROUNDOFF = 2.0**-53


@dataclass(frozen=True, slots=True)
class Block:
    """One of the arrays that are summed over documents and released together.

    Parameters
    ----------
    name : str
    shape : tuple of int
        Of the sum; ``()`` for a single number.
    l2_clip_norm : float
        C: no document's contribution has a larger Euclidean norm. The caller clips.
    weight : float, default 1
        Importance relative to the other blocks: noise in this block is proportional to
        ``l2_clip_norm / sqrt(weight)``.
    nonnegative : bool, default False
        That no entry of a contribution is ever negative; ``replace-one`` then costs sqrt(2), not 2.
    magnitude : float, default 1
        Bound on the norm of the sum of the *absolute* terms by which a document enters, in units
        of C. 1 where terms do not cancel each other; for the pair statistic through a map W,
        (c c' - diag c) W / (l (l - 1)), whose terms do, twice the largest row norm of W over C.

    Raises
    ------
    InvalidSettingError
        If a number is out of range.
    """

    name: str
    shape: tuple[int, ...]
    l2_clip_norm: float
    weight: float = 1.0
    nonnegative: bool = False
    magnitude: float = 1.0

    def __post_init__(self) -> None:
        _in_range("l2_clip_norm", self.l2_clip_norm, 1e-100, 1e100)
        _in_range("weight", self.weight, 1e-100, 1e100)
        _in_range("magnitude", self.magnitude, 1.0, 1e6)
        if not all(n >= 1 for n in self.shape):
            raise InvalidSettingError(
                f"a block must have at least one cell, got block={self.name} shape={self.shape}; "
                "leave empty blocks out"
            )

    @property
    def cells(self) -> int:
        """Number of values."""
        return math.prod(self.shape)


class JointGaussian:
    """The Gaussian mechanism for the weighted, clipped blocks of one round.

    The privacy unit is what contributes once: a document, or all that a user adds to a round when
    *that* is clipped. The caller vouches that contributions are clipped, that they are at most
    n_max, and for R; the derivation is in the module's documentation.

    Parameters
    ----------
    blocks : sequence of Block
        With different names.
    noise_multiplier : float
        z: standard deviation of the noise over the sensitivity. The release is 1/z-GDP.
    neighboring_relation : {"add-remove", "replace-one"}
    n_max : int
        Most contributions that a sum may hold; a public number, not the true count.
    roundings : int, optional
        R, most roundings that one term goes through. By default ``n_max + TERM_ROUNDINGS``, which
        holds when documents are added one at a time, in any order and grouping.

    Raises
    ------
    InvalidSettingError
        If a setting is out of range, or rounding would cost more than 1 % of the sensitivity.

    Attributes
    ----------
    blocks : tuple of Block
    noise_multiplier : float
    neighboring_relation : str
    n_max : int
    shares : dict of str to float
        Part of each block in the squared norm of a contribution; sums to 1.
    l2_sensitivity : float
        Of the aggregates on the grid, in weighted coordinates, where one contribution has norm at
        most 1: 1 (add-remove), sqrt(2) to 2 (replace-one), and up to 1 % more for rounding.
    stddevs : dict of str to float
        Standard deviation of the noise in each value of a block, in the block's own units.
    steps : dict of str to float
        Grid step of each block, a power of two in its own units.
    tv_distance_bound : float
        Bound on the total variation distance between a release and one with exact, continuous
        noise rounded to the grid: below 2^-59 a cell.
    """

    def __init__(
        self,
        blocks: Sequence[Block],
        noise_multiplier: float,
        *,
        neighboring_relation: str = "add-remove",
        n_max: int,
        roundings: int | None = None,
    ) -> None:
        self.blocks = tuple(blocks)
        self.noise_multiplier = float(noise_multiplier)
        self.neighboring_relation = neighboring_relation
        self.n_max = int(n_max)
        _check_blocks(self.blocks)
        _in_range("noise_multiplier", self.noise_multiplier, 1e-3, 1e9)
        _in_range("n_max", self.n_max, 1, 2**53)
        _in_range("roundings", 1 if roundings is None else roundings, 1, 2**50)
        if neighboring_relation not in NEIGHBORING_RELATIONS:
            raise InvalidSettingError(
                f"the relation must be one of {', '.join(NEIGHBORING_RELATIONS)}, got "
                f"neighboring_relation={neighboring_relation!r}; "
                "take add-remove unless the number of documents is public"
            )
        total = math.fsum(block.weight for block in self.blocks)
        self.shares = {block.name: block.weight / total for block in self.blocks}
        self._set_grid(self._exact_sensitivity(), self._summation_error(roundings))
        self.tv_distance_bound = 2 * Noise.tv_distance_bound * sum(b.cells for b in self.blocks)

    def release(self, sums: Mapping[str, Array], noise: Noise) -> dict[str, Array]:
        """Return the sums with noise: each is a whole number of steps, rounded to a double.

        Private if `noise` is (see `Noise.secure`), for one call: every further call on the same
        documents is a release of its own. Time about 0.15 us and memory 40 bytes a value.

        Parameters
        ----------
        sums : mapping of str to ndarray of the block's shape, float64
            One sum of clipped contributions for each block. Not private; not changed.
        noise : Noise
            `SecureNoise`, or `SeededNoise` in tests.

        Returns
        -------
        dict of str to ndarray of float64

        Raises
        ------
        InvalidSettingError
            If the names or shapes are not those of the blocks.
        InvalidDocumentsError
            If a sum cannot be one of n_max clipped contributions: not finite, too large, or
            negative where it was said not to be. No noise has been drawn then. That it was raised
            depends on the documents, so it must not happen in a correct program.
        """
        found = {name: np.shape(array) for name, array in sums.items()}
        expected = {block.name: block.shape for block in self.blocks}
        if found != expected:
            raise InvalidSettingError(
                f"sums must be those of the blocks, got shapes={found} expected={expected}; "
                "release each round with the mechanism that was made for it"
            )
        aggregates = {block.name: self._aggregate(block, sums[block.name]) for block in self.blocks}
        released: dict[str, Array] = {}
        for block in self.blocks:
            step = self.steps[block.name]
            drawn = noise.discrete_gaussian(self.stddevs[block.name] / step, block.shape)
            noisy = (aggregates.pop(block.name) + drawn).astype(np.float64)
            released[block.name] = noisy * step
        return released

    def _aggregate(self, block: Block, values: Array) -> NDArray[np.int64]:
        """Return a sum in steps of the grid, rounded to whole numbers."""
        values = np.asarray(values, dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            norm = float(np.linalg.norm(values.reshape(-1) / block.l2_clip_norm))
        # Written so that NaN fails too. The message must not tell the sum.
        if not norm <= self.n_max * (1 + MAX_INCREASE):
            raise InvalidDocumentsError(
                "a sum must be finite and of norm at most n_max * l2_clip_norm, got another: "
                f"block={block.name} n_max={self.n_max} l2_clip_norm={block.l2_clip_norm}; "
                "clip every contribution and drop those that are not finite"
            )
        if block.nonnegative and values.min() < 0:
            raise InvalidDocumentsError(
                "a sum of nonnegative contributions must not be negative, got a negative one: "
                f"block={block.name}; declare the block with nonnegative=False"
            )
        # Exact: the step is a power of two, and the quotient stays below 2^62.
        return np.rint(values / self.steps[block.name]).astype(np.int64)

    def _exact_sensitivity(self) -> float:
        if self.neighboring_relation == "add-remove":
            return 1.0
        return math.sqrt(
            sum((2 if b.nonnegative else 4) * self.shares[b.name] for b in self.blocks)
        )

    def _summation_error(self, roundings: int | None) -> float:
        """Return a bound on the norm of the rounding error of one sum, weighted."""
        chain = (self.n_max + TERM_ROUNDINGS if roundings is None else roundings) * _UNIT_ROUNDOFF
        if chain >= 0.5:
            return math.inf
        spread = sum(self.shares[b.name] * b.magnitude**2 for b in self.blocks)
        return self.n_max * chain / (1 - chain) * math.sqrt(spread)

    def _set_grid(self, exact: float, summation_error: float) -> None:
        """Choose steps, and from them the sensitivity and the standard deviations."""
        cells = sum(block.cells for block in self.blocks)
        widest = exact * min(_GRID_INCREASE / math.sqrt(cells), self.noise_multiplier / _MIN_SIGMA)
        scales = {b.name: b.l2_clip_norm / math.sqrt(self.shares[b.name]) for b in self.blocks}
        # frexp: the largest power of two that is not above.
        self.steps = {
            name: math.ldexp(0.5, math.frexp(widest * scale)[1]) for name, scale in scales.items()
        }
        grid = math.sqrt(
            sum(b.cells * (self.steps[b.name] / scales[b.name]) ** 2 for b in self.blocks)
        )
        # The last factor pays for the roundings made here.
        self.l2_sensitivity = (exact + 2 * summation_error + grid) * (1 + 2.0**-40)
        if not self.l2_sensitivity <= exact * (1 + MAX_INCREASE):
            raise InvalidSettingError(
                "rounding must cost at most 1 % of the sensitivity, got "
                f"n_max={self.n_max} cost={self.l2_sensitivity / exact - 1:.2g}; sum fewer "
                "documents, or sum in groups and state the longest chain of roundings"
            )
        sigma = self.noise_multiplier * self.l2_sensitivity
        self.stddevs = {name: sigma * scale for name, scale in scales.items()}
        for block in self.blocks:
            step = self.steps[block.name]
            if self.stddevs[block.name] > MAX_SIGMA * step:
                raise InvalidSettingError(
                    "noise must have at most 2^40 steps of the grid, got "
                    f"noise_multiplier={self.noise_multiplier} cells={cells}; take a smaller "
                    "noise multiplier"
                )
            if self.n_max * block.l2_clip_norm > 2.0**61 * step:
                raise InvalidSettingError(
                    "sums must have fewer than 2^61 steps of the grid, got "
                    f"n_max={self.n_max} noise_multiplier={self.noise_multiplier} "
                    f"block={block.name}; sum fewer documents or take a larger noise multiplier"
                )


def _check_blocks(blocks: tuple[Block, ...]) -> None:
    names = [block.name for block in blocks]
    if not names or len(set(names)) < len(names):
        raise InvalidSettingError(
            f"a release must have blocks of different names, got names={names}; rename or join them"
        )


def _in_range(name: str, value: float, low: float, high: float) -> None:
    # Written so that NaN fails too.
    if not low <= value <= high:
        raise InvalidSettingError(
            f"{name} must lie in [{low:g}, {high:g}], got {name}={value}; choose another"
        )
