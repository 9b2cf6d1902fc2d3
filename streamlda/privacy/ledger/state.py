"""Releases on record, and reports about them. No files, no clock.

The first row is ``created``: terms, identity, format. A release adds ``intent``, from which on its
mu^2 is spent, whatever follows; ``written``, with the digest of its artefact in a temporary file
and where that goes; and ``committed`` where it has its final name, ``lost`` where it never will.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Any, Self

from streamlda.guarantee.accounting import DELTA_MARGIN, MIN_DELTA, epsilon_of
from streamlda.privacy.events import Event, from_json
from streamlda.privacy.ledger.documents import ReleasedDocuments
from streamlda.privacy.ledger.records import Cohort
from streamlda.privacy.ledger.terms import (
    NOTHING,
    LedgerTerms,
    Loss,
    round_down,
    round_up,
    sqrt_down,
    sqrt_up,
)


@dataclass(frozen=True, slots=True)
class Release:
    """A release that has been paid for (`Ledger.begin`), and its result."""

    #: 1 for the first release of the ledger; the ledger's generation from this release on.
    number: int
    cohort: Cohort
    event: Event
    #: Cost for each of its documents, as it was worked out then.
    price: Loss
    config_hash: str
    description: str
    #: The row of its intent.
    row: Mapping[str, Any] = field(repr=False, compare=False)
    state: str = "pending"
    #: The artefact, once it is complete: where it goes, and its digest.
    artifact: str | None = None
    digest: str | None = None
    #: The largest loss of a unit after it.
    loss: Loss = NOTHING

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> Self:
        """Return the release of an intent on record."""
        price = Loss.of(row["mu_squared"], row["set_aside"])
        about = row["config_hash"], row["description"], row
        return cls(row["intent"], Cohort.from_json(row), from_json(row["event"]), price, *about)

    def describe(self, terms: LedgerTerms) -> dict[str, Any]:
        """Return the release for the report of a ledger."""
        return {
            **self.row,
            "documents": [list(part[:3]) for part in self.cohort.documents],
            "epsilon": describe_spent(self.price, terms)["epsilon"],
            "epsilon_spent_after": describe_spent(self.loss, terms)["epsilon"],
            **{name: getattr(self, name) for name in ("state", "artifact", "digest")},
        }


@lru_cache(maxsize=1024)
def describe_spent(loss: Loss, terms: LedgerTerms) -> Mapping[str, float]:
    """Return a loss as mu^2, reserved delta, and epsilon at the rest of delta, each rounded up."""
    left = round_down(Fraction(terms.delta) - loss.set_aside)
    return {
        "mu_squared": round_up(loss.mu_squared),
        "set_aside": round_up(loss.set_aside),
        # No budget allows that nothing is left, but a ledger that was tampered with may say so.
        "epsilon": epsilon_of(sqrt_up(loss.mu_squared), max(left, MIN_DELTA)),
    }


def describe_left(mu_squared: Fraction, terms: LedgerTerms) -> dict[str, float]:
    """Return the rest of the budget: mu^2, and epsilon at the ledger's delta, rounded down.

    Just below what `epsilon_of` returns, `delta_of` is above the given delta, and the exact
    delta at most `DELTA_MARGIN` below that: so a little more delta than there is gives an epsilon
    at which the exact delta is still too large. The last factor is twice the bisection's.
    """
    more, epsilon = terms.delta * (1 + 2 * DELTA_MARGIN), 0.0
    if mu_squared >= terms.mu_squared():
        # A budget that is whole is the epsilon it was made with, whatever its mu was rounded to.
        epsilon = terms.epsilon
    elif more < 1:
        epsilon = epsilon_of(sqrt_down(mu_squared), more) * (1 - 2e-14)
    return {"mu_squared": round_down(mu_squared), "epsilon": epsilon}


def describe_documents(
    documents: ReleasedDocuments, prices: Mapping[int, Loss], terms: LedgerTerms
) -> dict[str, Any] | None:
    """Return the spending on the costliest text, if its records are one document.

    r records of a text in one release cost r mu. Rounds of prefix sums have correlated noise, so mu
    adds up over them, and mu^2 over other releases. `spent` is None beyond any epsilon of use, a mu
    of 1000. None where a user is the unit, for whom all releases add up, or no release has texts.
    """
    power = 1 if terms.mode == "prefix" else 2
    mu = {number: sqrt_up(loss.mu_squared) for number, loss in prices.items()}
    records, repeated, times = documents.find_most_charged(mu, power)
    if not (records and terms.parallel):
        return None
    total = sum(((Fraction(mu[number]) * n) ** power for number, n in times.items()), Fraction(0))
    total **= 2 // power
    set_aside = sum((prices[number].set_aside * n for number, n in times.items()), Fraction(0))
    loss = Loss.of(total, set_aside)
    return {
        "records": records,
        "repeated": repeated,
        "most": sum(times.values()),
        "spent": dict(describe_spent(loss, terms)) if total <= 10**6 else None,
    }
