"""Terms of a privacy ledger, and exact losses of a privacy unit.

Pure arithmetic without files. A release costs each of its units two numbers, which are summed as
fractions, so that nothing is lost to rounding: mu^2, the squared parameter of Gaussian differential
privacy, in which releases on the same documents add up, whatever noise was chosen on the way
(Smith and Thakurta, arXiv 2210.17520); and the part of delta that is *set aside* for what is not
exactly Gaussian.

What is set aside
-----------------
Given all before it, a release is within tv in total variation of one that is mu-GDP, but for a
failure of probability p (`events.Approximate`). Let n releases have mu_i, tv_i, p_i. Put exact
noise in place of drawn noise, in one after the other: each time that moves the probability of a
set by at most tv_i, under D and under D'. Failures have the same probability under both; without
them, what is left is mu-GDP with mu^2 = sum mu_i^2 =: B. So for every set S

    P(S) <= e^epsilon P'(S) + delta_G(sqrt(B), epsilon) + L,
    L = sum l_i,  l_i = p_i + (1 + e^epsilon) tv_i,

with delta_G as in `streamlda.guarantee.accounting`: epsilon and delta hold if delta_G + L <= delta.
The pair (mu_i^2, l_i) says all: a ledger need not know how many words, topics or rounds made it.

*One release of a unit*, as of each document: its pair may depend on releases of others, but is
fixed before the unit is read. So that condition is all. *Several*, of a user: later pairs may be
chosen by what earlier releases showed. Then the proof needs one cap on B and one on L that hold on
every way that could have been taken; to check the sum on the way that was taken is not enough. So a
user's first release fixes a rate r = l_1 / mu_1^2. Later ones must have l_i <= r mu_i^2, and
r mu_i^2 is set aside for them. Then on every way B is at most the B_r with
delta_G(sqrt(B_r), epsilon) + r B_r = delta, and L at most r B_r. Equal releases, such as the stages
of a window of users, lose nothing by that.
"""

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple, Self

from streamlda.errors import above, between, one_of
from streamlda.guarantee.accounting import MIN_DELTA, mu_of, sampler_factor
from streamlda.guarantee.mechanism import check_relation
from streamlda.privacy.costs import Cost

_mu_of = lru_cache(maxsize=64)(mu_of)

UNITS = ("document", "user")
MODES = ("window", "prefix")

#: So much larger is a unit's rate than that of its first release, so that equal prices, rounded
#: otherwise, are not refused. A hundredth of what `accounting.noise_multiplier` has to spare.
_RATE_MARGIN = 1 + Fraction(1, 2**43)


class Loss(NamedTuple):
    """A loss of a unit: mu^2, and the part of delta that is set aside for each mu^2."""

    mu_squared: Fraction
    rate: Fraction

    @classmethod
    def of(cls, mu_squared: float | Fraction, set_aside: float | Fraction) -> Self:
        """Return a loss of that mu^2 for which so much of delta is set aside."""
        exact = Fraction(mu_squared)
        return cls(exact, Fraction(set_aside) / exact if exact else Fraction(0))

    @property
    def set_aside(self) -> Fraction:
        """The part of delta that is set aside."""
        return self.mu_squared * self.rate

    def allows(self, price: Self) -> bool:
        """Tell whether a release may follow at the rate of the unit's first."""
        return not self.mu_squared or price.rate <= self.rate

    def plus(self, price: Self) -> Self:
        """Return the loss after a release, by the rate of the first or a higher one."""
        rate = self.rate if self.mu_squared else price.rate * _RATE_MARGIN
        return type(self)(self.mu_squared + price.mu_squared, max(rate, price.rate))

    def join(self, other: Self) -> Self:
        """Return the loss of a unit that has both."""
        set_aside = self.set_aside + other.set_aside
        return self.of(self.mu_squared + other.mu_squared, set_aside)


NOTHING = Loss(Fraction(0), Fraction(0))


@dataclass(frozen=True, slots=True)
class LedgerTerms:
    """Terms for the whole life of a ledger; epsilon and delta are for one privacy unit.

    A document is in one cohort, so cohorts compose in parallel. A user may have
    documents in all of them, so cohorts add up.
    """

    epsilon: float
    delta: float
    privacy_unit: str = "document"
    neighboring_relation: str = "zero-out"
    #: Snapshots of disjoint windows, or of sums since the start under one matrix mechanism.
    mode: str = "window"

    def __post_init__(self) -> None:
        above(0, epsilon=self.epsilon)
        between(0, 1, ends=False, delta=self.delta)
        for name in ("epsilon", "delta"):
            object.__setattr__(self, name, float(getattr(self, name)))
        one_of(UNITS, privacy_unit=self.privacy_unit)
        relation = check_relation(self.neighboring_relation)
        object.__setattr__(self, "neighboring_relation", relation)
        one_of(MODES, mode=self.mode)

    @property
    def parallel(self) -> bool:
        """True if a unit is in one cohort only."""
        return self.privacy_unit != "user"

    def mu_squared(self, set_aside: Fraction = NOTHING.rate) -> Fraction:
        """Return the budget as mu^2, rounded down, if that much of delta is set aside."""
        left = round_down(Fraction(self.delta) - set_aside)
        return Fraction(_mu_of(self.epsilon, left)) ** 2 if left >= MIN_DELTA else Fraction(0)

    def price(self, spent: Cost) -> Loss:
        """Return the price of a release under these terms, rounded up."""
        # The factor was rounded.
        factor = Fraction(sampler_factor(self.epsilon)) * (1 + Fraction(1, 2**50))
        set_aside = Fraction(spent.delta) + Fraction(spent.tv_distance) * factor
        return Loss.of(spent.mu_squared, round_up(set_aside))

    def covers(self, loss: Loss) -> bool:
        """Tell whether a unit that has spent so much is within the budget."""
        return loss.mu_squared <= self.mu_squared(loss.set_aside)


@lru_cache(maxsize=64)
def cap(terms: LedgerTerms, rate: Fraction) -> Fraction:
    """Return the most mu^2 of a unit at a rate, rounded down; see the module."""
    # The more is set aside, the less may be spent: twice, and what is looked for is between.
    low = terms.mu_squared(terms.mu_squared() * rate)
    high = terms.mu_squared(low * rate)
    while high - low > high / 2**40:
        middle = Fraction(float((low + high) / 2))
        if middle <= terms.mu_squared(middle * rate):
            low = middle
        else:
            high = middle
    return low


def round_up(value: Fraction) -> float:
    """Return the smallest float not below `value`."""
    near = float(value)
    return near if Fraction(near) >= value else math.nextafter(near, math.inf)


def round_down(value: Fraction) -> float:
    """Return the largest float not above `value`."""
    return -round_up(-value)


def sqrt_up(value: Fraction) -> float:
    """Return a float not below the square root of `value`, and at most a few units above it."""
    root = math.sqrt(round_up(value))
    while Fraction(root) ** 2 < value:
        root = math.nextafter(root, math.inf)
    return root


def sqrt_down(value: Fraction) -> float:
    """Return a float not above the square root of `value`, and at most a few units below it."""
    return round_down(value / Fraction(sqrt_up(value))) if value else 0.0
