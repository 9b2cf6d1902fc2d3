"""Sums of contributions, which `Sums.add` measures, clips and puts on the grid.

A *statistic* is any function of a document. It is not trusted: `Sums.add` takes the doubles that it
returned, and nothing else about it. For each document in its record slot ::

    1. measure    n_b, the norm of its doubles x_b in block b
    2. clip       f, the largest factor with f <= 1 and f n_b <= C_b (1 - m) for all blocks b that
                  are scaled together; 0 if a norm is not a finite number
    3. count      0 in place of f for a document of a user who has g documents in the sum already
    4. grid       trunc(f x_b / step_b), whole numbers, towards 0
    5. add        whole numbers to whole numbers

Sensitivity
-----------
1. With u = 2^-53, n_b is a sum of at most 2^30 squares: computed and true norm differ by less than
   2^-22 of it; f and f x_b take three roundings more; underflow is below 2^-500 of C_b. The margin
   m = 2^-20 covers all of it: ``||f x_b|| <= C_b``, for the computed product.
2. A step is a power of two, so that dividing by it is exact, and to cut off what follows the point
   makes no number larger: the whole numbers of a document have norm at most C_b / step_b.
3. Whole numbers below 2^62 add without error, in any order. So what other documents add is the same
   in two neighbouring datasets, and the sums differ by what one unit adds: norm at most C_b, or g
   C_b, attained by a document whose norm is C_b or more.

It takes that what a document contributes depends on *that document alone*, to the last bit, and on
public numbers. No measure shows that: it is what must be read in a statistic (the README).
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import NDArray

from streamlda.guarantee.checks import between, require
from streamlda.guarantee.mechanism import Array, Block, Counts, JointGaussian
from streamlda.guarantee.users import UserBound

#: m of the module.
MARGIN = 2.0**-20

#: Most doubles that one document may contribute to a block.
MOST_DOUBLES = 2**30


class Contribution(NamedTuple):
    """Doubles that n documents contribute to one block, in the order of their slots.

    The sum of a block is seen as rows of its last axis (of single numbers where it has one axis or
    none). Document i adds ``values[e]`` to row ``rows[e]`` for e from ``pointers[i]`` to before
    ``pointers[i + 1]``; its rows rise. With `rows` None it adds ``values[i]`` to the whole sum.
    """

    values: Array  # (entries, width), or (n, cells) where `rows` is None.
    rows: NDArray[np.int64] | None = None
    pointers: NDArray[np.int64] | None = None

    def norms(self) -> Array:
        """Return the norm of the contribution of each document, shape (n,)."""
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.sum(self.values * self.values, axis=1)
            if self.pointers is not None:
                n = len(self.pointers) - 1
                documents = np.repeat(np.arange(n), np.diff(self.pointers))
                # One after the other: a document's norm has the same bits beside any others.
                squares = np.bincount(documents, squares, minlength=n)
            norms: Array = np.sqrt(squares)
        return norms


class Sums:
    """Raw sums of the documents at some record slots, in whole steps of a mechanism's grid."""

    def __init__(self, mechanism: JointGaussian, *, by_user: bool = False) -> None:
        self.mechanism = mechanism
        self.aggregates: dict[str, Counts] = {
            block.name: np.zeros(block.shape, dtype=np.int64) for block in mechanism.blocks
        }
        #: Counts users, whose documents beyond g add nothing; None where a document is the unit.
        self.users = UserBound(mechanism.documents_per_unit) if by_user else None
        self.slots = 0

    def add(
        self,
        contributions: Mapping[str, Contribution],
        slots: int,
        users: Sequence[str | bytes | None] | None = None,
    ) -> None:
        """Add the contributions of the documents of these users in the next record slots."""
        blocks = self.mechanism.blocks
        names = sorted(block.name for block in blocks)
        rule, remedy = "contributions are not those of the blocks", "pass that of each statistic"
        require(sorted(contributions) == names, rule, found=sorted(contributions), remedy=remedy)
        self.skip(slots)
        factors = np.ones(slots)
        if self.users is not None:
            factors[~self.users.accept([None] * slots if users is None else users)] = 0.0
        together: dict[str, Array] = {}
        for block in blocks:
            _check(block, contributions[block.name], slots)
            wanted = clip_factors(contributions[block.name].norms(), block.l2_clip_norm)
            name = block.scaled_with or block.name
            together[name] = np.minimum(together.get(name, factors), wanted)
        for block in blocks:
            factor = together[block.scaled_with or block.name]
            self._put(block, contributions[block.name], factor)

    def skip(self, slots: int) -> None:
        """Leave record slots empty."""
        between(0, self.mechanism.n_max - self.slots, slots=slots)
        self.slots += slots

    def _put(self, block: Block, part: Contribution, factors: Array) -> None:
        """Add the doubles times the factors, in whole steps."""
        if part.pointers is not None:
            factors = np.repeat(factors, np.diff(part.pointers))
        scale = (factors / self.mechanism.steps[block.name])[:, None]
        whole: Counts = np.empty(part.values.shape, dtype=np.int64)
        # The product is of doubles; the cast to whole numbers cuts off what follows the point.
        with np.errstate(over="ignore", invalid="ignore"):
            np.multiply(part.values, scale, out=whole, dtype=np.float64, casting="unsafe")
        # 0 times what is not a number is none.
        whole[factors == 0] = 0
        total = self.aggregates[block.name]
        if part.rows is None:
            total += whole.sum(axis=0).reshape(block.shape)
        else:
            # A 1 in column e and the row of e, of those seen: the product adds to their rows.
            n, rows = len(whole), total.reshape(-1, part.values.shape[1])
            seen = np.bincount(part.rows, minlength=len(rows)) > 0
            ones = np.ones(n, dtype=np.int64), (np.cumsum(seen) - 1)[part.rows], np.arange(n + 1)
            placed: Any = scipy.sparse.csc_array(ones, shape=(seen.sum(), n))
            rows[seen] += placed @ whole


def clip_factors(norms: Array, bound: float) -> Array:
    """Return the factors that scale contributions down to norm at most `bound`.

    ``min(1, bound / norm)`` less a margin; 0 for a norm that is not a finite number of at least 0:
    to raise would tell of one document. The bound must be public, or of an earlier release.
    """
    found = np.asarray(norms, dtype=np.float64)
    factors = np.zeros(found.shape)
    # False for NaN; an infinite norm gives 0 by itself.
    usable = found >= 0
    # The quotient overflows where the norm is far below the bound: 1 is taken; abs is for -0.0.
    with np.errstate(divide="ignore", over="ignore", under="ignore"):
        factors[usable] = np.minimum(1.0, float(bound) * (1 - MARGIN) / np.abs(found[usable]))
    # A denormal factor would be rounded by more than the margin.
    factors[factors < 2.0**-1000] = 0.0
    return factors


def _check(block: Block, part: Contribution, slots: int) -> None:
    """Refuse doubles that are not those of a block: a row that came twice would add twice."""
    values, rows, pointers = part
    width = block.shape[-1] if len(block.shape) > 1 else 1
    if rows is None or pointers is None:
        fits = rows is pointers and values.shape == (slots, block.cells)
    else:
        lengths = np.diff(pointers)
        fits = values.shape == (len(rows), width) and rows.ndim == 1 and len(pointers) == slots + 1
        fits = fits and pointers[0] == 0 and pointers[-1] == len(rows)
        fits = fits and bool(np.all(lengths >= 0))
        fits = fits and int(lengths.max(initial=0)) * width <= MOST_DOUBLES
        fits = fits and bool(np.all((rows >= 0) & (rows < block.cells // width)))
        if fits:
            # A row is above the one before it, but where a document begins.
            above = np.diff(rows, prepend=-1) > 0
            above[pointers[:-1][lengths > 0]] = True
            fits = bool(above.all())
    require(
        fits and values.dtype == np.float64,
        "contributions are no doubles of the block, in rows that rise",
        block=block.name,
        shape=values.shape,
        remedy="mend the statistic",
    )
