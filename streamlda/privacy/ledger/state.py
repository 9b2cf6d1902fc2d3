"""State that the rows of a ledger add up to, and its report. No files, no clock.

Kinds of rows, in the order in which a release adds them:

``created``
    Terms, identity and format; the first row and no other.
``intent``
    A release is about to draw noise. Its mu^2 is spent from here on, whatever follows.
``written``
    The artefact is complete in a temporary file: its digest, and where it goes.
``committed`` or ``lost``
    The artefact has its final name, or there is none and never will be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

from streamlda.guarantee.accounting import DELTA_MARGIN, MIN_DELTA, epsilon_of
from streamlda.privacy.events import Event, from_json, to_json
from streamlda.privacy.ledger.documents import ReleasedDocuments
from streamlda.privacy.ledger.file import FORMAT_VERSION, Row
from streamlda.privacy.ledger.records import Cohort, ReleasedRecords
from streamlda.privacy.ledger.terms import (
    NOTHING,
    LedgerTerms,
    Loss,
    round_down,
    round_up,
    sqrt_down,
    sqrt_up,
)

#: Beyond this mu no epsilon is worked out.
_MOST_MU = 1000


@dataclass(frozen=True, slots=True)
class Release:
    """A release that has been paid for (`Ledger.begin`), and what became of it."""

    #: 1 for the first release of the ledger; the ledger's generation from this release on.
    number: int
    cohort: Cohort
    event: Event
    #: Cost for each of its documents, as it was worked out then: `Loss`.
    mu_squared: float
    set_aside: float
    config_hash: str
    description: str
    at: str  # Time of the intent, UTC, ISO 8601.
    key: str  # Name of the key of its documents.
    state: str = "pending"
    #: The artefact, once it is complete: where it lies, where it goes, its digest.
    temporary: str = ""
    artifact: str | None = None
    digest: str = ""
    reason: str | None = None  # Why it is lost.
    #: The largest loss of a unit after it.
    loss: Loss = NOTHING

    @property
    def price(self) -> Loss:
        """Cost of the release for each of its documents."""
        return Loss.of(self.mu_squared, self.set_aside)

    def to_json(self) -> dict[str, Any]:
        """Return the content of the row of this intent."""
        return {
            "intent": self.number,
            **self.cohort.to_json(),
            "event": to_json(self.event),
            **{name: getattr(self, name) for name in _STORED},
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Release:
        """Return the release of an intent on record."""
        stored = {name: body[name] for name in _STORED}
        return cls(body["intent"], Cohort.from_json(body), from_json(body["event"]), **stored)


_STORED = ("mu_squared", "set_aside", "config_hash", "description", "at", "key")


class LedgerState:
    """The sum of all rows so far. Memory O(releases)."""

    #: Terms that the ledger was made with.
    terms: LedgerTerms
    #: Random name of the ledger; checkpoints and artefacts have it, and the generation.
    ledger_id: str

    def __init__(self) -> None:
        self.releases: list[Release] = []
        #: The records of its releases by names and numbers.
        self.records = ReleasedRecords()

    @property
    def generation(self) -> int:
        """Number of releases begun."""
        return len(self.releases)

    @property
    def last_release(self) -> Release | None:
        """The newest release; after its cohort the stream continues."""
        return self.releases[-1] if self.releases else None

    @property
    def pending(self) -> Release | None:
        """The release that is neither committed nor lost, if there is one."""
        last = self.last_release
        return last if last is not None and last.state == "pending" else None

    @property
    def loss(self) -> Loss:
        """The loss of the unit that has spent most."""
        return self.releases[-1].loss if self.releases else NOTHING

    @property
    def before(self) -> Loss:
        """The loss of the units that a release may take."""
        return NOTHING if self.terms.parallel else self.loss

    @property
    def spent(self) -> float:
        """The mu^2 of the loss, rounded up."""
        return describe_spent(self.loss, self.terms)["mu_squared"]

    @property
    def epsilon_spent(self) -> float:
        """`spent` as epsilon at the ledger's delta, rounded up. Some 3 ms for a new figure."""
        return describe_spent(self.loss, self.terms)["epsilon"]

    @property
    def epsilon_left(self) -> float:
        """Epsilon that is left for new documents at the ledger's delta, rounded down."""
        return describe_left(self.left, self.terms)["epsilon"]

    @property
    def releases_left(self) -> int | None:
        """Number of releases that the horizon still allows; None without a horizon."""
        horizon = self.terms.horizon
        return None if horizon is None else max(horizon - self.generation, 0)

    @property
    def left(self) -> Fraction:
        """The mu^2 that one more release may cost: 0 at the horizon."""
        if self.releases_left == 0:
            return Fraction(0)
        return max(self.terms.cap(self.before.rate) - self.before.mu_squared, Fraction(0))

    def releases_of(self, run: str) -> tuple[int, ReleasedRecords]:
        """Return the number of releases of a run, and the records of those before its first."""
        cohorts = [release.cohort for release in self.releases]
        own = [number for number, cohort in enumerate(cohorts) if cohort.run == run]
        return len(own), ReleasedRecords(cohorts[: own[0] if own else None])

    def apply(self, row: Row) -> None:
        """Add one row; the chain of checksums says that it is as it was written."""
        kind, body = row.kind, row.body
        if kind == "created":
            self.terms, self.ledger_id = LedgerTerms(**body["terms"]), body["ledger_id"]
        elif kind == "intent":
            release = Release.from_json(body)
            loss = self.before.plus(release.price)
            if self.terms.parallel:
                both = (self.loss, loss)
                loss = max(both, key=lambda each: describe_spent(each, self.terms)["epsilon"])
            self.records.add(release.cohort)
            self.releases.append(replace(release, loss=loss))
        else:
            found = body if kind == "written" else {"state": kind, **body}
            self.releases[-1] = replace(self.releases[-1], **found)


@lru_cache(maxsize=1024)
def describe_spent(loss: Loss, terms: LedgerTerms) -> Mapping[str, float]:
    """Return a loss as mu^2, mu, delta set aside and epsilon at what is left, each rounded up."""
    mu, left = sqrt_up(loss.mu_squared), round_down(Fraction(terms.delta) - loss.set_aside)
    return {
        "mu_squared": round_up(loss.mu_squared),
        "mu": mu,
        "set_aside": round_up(loss.set_aside),
        # No budget allows that nothing is left, but a ledger that was tampered with may say so.
        "epsilon": epsilon_of(mu, max(left, MIN_DELTA)),
    }


def describe_left(mu_squared: Fraction, terms: LedgerTerms) -> dict[str, float]:
    """Return what may still be spent: mu^2, mu, and epsilon at the ledger's delta, rounded down."""
    mu, rounded = sqrt_down(mu_squared), round_down(mu_squared)
    # A budget that is whole is the epsilon it was made with, whatever its mu was rounded to.
    whole = mu_squared >= terms.mu_squared()
    epsilon = terms.epsilon if whole else _epsilon_below(mu, terms.delta)
    return {"mu_squared": rounded, "mu": mu, "epsilon": epsilon}


def _epsilon_below(mu: float, delta: float) -> float:
    """Return an epsilon that is not above the exact one of mu and delta.

    Just below what `epsilon_of` returns, `delta_of` is above the given delta, and the exact
    delta at most `DELTA_MARGIN` below that: so a little more delta than there is gives an epsilon
    at which the exact delta is still too large. The last factor is twice the bisection's.
    """
    more = delta * (1 + 2 * DELTA_MARGIN)
    return epsilon_of(mu, more) * (1 - 2e-14) if more < 1 else 0.0


def describe_documents(
    documents: ReleasedDocuments, prices: Mapping[int, Loss], terms: LedgerTerms
) -> dict[str, Any] | None:
    """Return what is spent on the text that cost most, if its records are one document.

    r records of a text in one release cost r mu. Rounds of prefix sums have correlated noise, so mu
    adds up over them, and mu^2 over other releases. `spent` is None beyond any epsilon of use. None
    where a user is the unit, for whom all releases add up, or no release has kept texts.
    """
    repeats = documents.count_records()
    if not (repeats.documents and terms.parallel):
        return None
    mu = {number: sqrt_up(loss.mu_squared) for number, loss in prices.items()}
    if terms.mode == "prefix":
        times = documents.find_most_charged(mu, power=1)
        total = Fraction(sum(Fraction(mu[number]) * n for number, n in times.items())) ** 2
    else:
        costs = {number: value**2 for number, value in mu.items()}
        times = documents.find_most_charged(costs, power=2)
        total = sum((prices[number].mu_squared * n * n for number, n in times.items()), Fraction(0))
    set_aside = sum((prices[number].set_aside * n for number, n in times.items()), Fraction(0))
    loss = Loss(total, set_aside / total if total else Fraction(0))
    return {
        "records": repeats.documents,
        "repeated": repeats.repeated,
        "most": sum(times.values()),
        "spent": dict(describe_spent(loss, terms)) if total <= _MOST_MU**2 else None,
    }


def describe_ledger(state: LedgerState, documents: ReleasedDocuments) -> dict[str, Any]:
    """Return the report of a ledger as plain JSON values.

    Time about 3 ms for each distinct figure of epsilon.
    """
    terms, releases = state.terms, state.releases
    return {
        "format_version": FORMAT_VERSION,
        "ledger_id": state.ledger_id,
        "budget": {
            **asdict(terms),
            "mu": sqrt_down(terms.mu_squared()),
            "mu_squared": round_down(terms.mu_squared()),
        },
        "spent": dict(describe_spent(state.loss, terms)),
        "documents": describe_documents(documents, {r.number: r.price for r in releases}, terms),
        "left_for_new_documents": describe_left(state.left, terms),
        "releases_left": state.releases_left,
        "generation": len(releases),
        "pending": [r.number for r in releases if r.state == "pending"],
        "lost": [r.number for r in releases if r.state == "lost"],
        "snapshots": [_describe_release(r, terms) for r in releases],
    }


def _describe_release(release: Release, terms: LedgerTerms) -> dict[str, Any]:
    found = release.to_json()
    del found["key"]
    return {
        **found,
        "documents": [list(part[:3]) for part in release.cohort.documents],
        "epsilon": describe_spent(release.price, terms)["epsilon"],
        "epsilon_spent_after": describe_spent(release.loss, terms)["epsilon"],
        **{name: getattr(release, name) for name in ("state", "artifact", "reason")},
        "digest": release.digest or None,
    }
