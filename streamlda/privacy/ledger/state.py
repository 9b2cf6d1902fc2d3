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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from streamlda.errors import LedgerError, StreamLDAError, failure
from streamlda.guarantee.accounting import DELTA_MARGIN, MIN_DELTA, epsilon_of
from streamlda.privacy.event_json import from_json, to_json
from streamlda.privacy.events import Event
from streamlda.privacy.ledger.documents import ReleasedDocuments
from streamlda.privacy.ledger.file import EXHAUSTED, FORMAT_VERSION, Row
from streamlda.privacy.ledger.known import KnownRecords
from streamlda.privacy.ledger.terms import (
    Cohort,
    LedgerTerms,
    Loss,
    Losses,
    round_down,
    round_up,
    sqrt_down,
    sqrt_up,
)

#: Beyond this mu no epsilon is worked out.
_MOST_MU = 1000


@dataclass(frozen=True, slots=True)
class Intent:
    """A release that has been paid for; see `Ledger.begin`."""

    #: 1 for the first release of the ledger; the ledger's generation from this release on.
    number: int
    ledger_id: str
    cohort: Cohort
    event: Event
    #: What it costs each of its documents, as it was worked out then: `Loss`.
    mu_squared: float
    set_aside: float
    config_hash: str
    description: str
    at: str  # Time of the intent, UTC, ISO 8601.

    def to_json(self) -> dict[str, Any]:
        """Return the content of the row of this intent."""
        return {
            "intent": self.number,
            **self.cohort.to_json(),
            "event": to_json(self.event),
            "mu_squared": self.mu_squared,
            "set_aside": self.set_aside,
            "config_hash": self.config_hash,
            "description": self.description,
            "at": self.at,
        }

    @classmethod
    def from_json(cls, body: Mapping[str, Any], ledger_id: str) -> Intent:
        """Return the intent of a row of a ledger."""
        names = ("mu_squared", "set_aside", "config_hash", "description", "at")
        return cls(
            number=body["intent"],
            ledger_id=ledger_id,
            cohort=Cohort.from_json(body),
            event=from_json(body["event"]),
            **{name: body[name] for name in names},
        )


@dataclass(slots=True)
class Release:
    """A release of a ledger, and what became of it."""

    intent: Intent
    #: The largest losses of units after it.
    spent_after: tuple[Loss, ...]
    state: Literal["pending", "committed", "lost"] = "pending"
    #: The artefact, once it is complete: where it lies, where it goes, its digest.
    temporary: str | None = None
    artifact: str | None = None
    digest: str | None = None
    reason: str | None = None  # Why it is lost.


class LedgerState:
    """The sum of all rows so far. Memory O(releases)."""

    terms: LedgerTerms
    ledger_id: str

    def __init__(self) -> None:
        self.losses = Losses(parallel=True)
        self.releases: list[Release] = []
        #: Records of all releases, by names and numbers.
        self.known = KnownRecords()
        self.rows = 0
        #: Digests of artefacts by their final places, those committed last; None of others.
        self.artifacts: dict[str, str | None] = {}

    @property
    def generation(self) -> int:
        """Number of releases begun."""
        return len(self.releases)

    @property
    def pending(self) -> Release | None:
        """The newest release while it is neither committed nor lost."""
        last = self.releases[-1] if self.releases else None
        return last if last is not None and last.state == "pending" else None

    @property
    def releases_left(self) -> int | None:
        """How many releases the horizon still allows; None without a horizon."""
        horizon = self.terms.horizon
        return None if horizon is None else max(horizon - self.generation, 0)

    @property
    def left(self) -> Fraction:
        """The mu^2 that one more release may cost: 0 at the horizon."""
        before = self.losses.before
        if self.releases_left == 0:
            return Fraction(0)
        return max(self.terms.cap(before.rate) - before.mu_squared, Fraction(0))

    def apply(self, row: Row) -> None:
        """Add one row."""
        try:
            fits = self._apply(row.kind, row.body)
        except (LookupError, TypeError, ValueError, StreamLDAError) as error:
            raise _misplaced(row) from error
        if not fits:
            raise _misplaced(row)
        self.rows += 1

    def _apply(self, kind: str, body: dict[str, Any]) -> bool:
        if (kind == "created") != (self.rows == 0):
            return False
        if kind == "created":
            self.terms = LedgerTerms.from_json(body["terms"])
            self.ledger_id = body["ledger_id"]
            self.losses = Losses(parallel=self.terms.parallel)
            return bool(body["format_version"] == FORMAT_VERSION)
        release = self.pending
        if kind == "intent":
            intent = Intent.from_json(body, self.ledger_id)
            follows = release is None and intent.number == self.generation + 1
            if not follows or self.losses.touches(intent.cohort):
                return False
            self.losses.add(intent.cohort, Loss.of(intent.mu_squared, intent.set_aside))
            self.known.add(intent.cohort)
            self.releases.append(Release(intent, self.losses.spent))
            return intent.mu_squared > 0
        if release is None or body["intent"] != release.intent.number:
            return False
        if kind == "written" and release.digest is None:
            release.temporary, release.artifact = body["temp_path"], body["final_path"]
            release.digest = body["digest"]
            self.artifacts.setdefault(body["final_path"], None)
            return True
        if kind == "committed" and release.artifact is not None:
            release.state, self.artifacts[release.artifact] = "committed", release.digest
            return True
        if kind == "lost":
            release.state, release.reason = "lost", body["reason"]
            return True
        return False


def describe_spent(losses: Iterable[Loss], terms: LedgerTerms) -> dict[str, float]:
    """Return the loss of the largest epsilon: mu^2, mu, delta set aside, epsilon at what is left.

    Each is rounded up.
    """
    return max((_described(loss, terms) for loss in losses), key=lambda each: each["epsilon"])


def _described(loss: Loss, terms: LedgerTerms) -> dict[str, float]:
    mu, left = sqrt_up(loss.mu_squared), round_down(Fraction(terms.delta) - loss.set_aside)
    return {
        "mu_squared": round_up(loss.mu_squared),
        "mu": mu,
        "set_aside": round_up(loss.set_aside),
        # No budget allows that nothing is left, but a ledger that was tampered with may say so.
        "epsilon": _epsilon_of(mu, max(left, MIN_DELTA)),
    }


def describe_left(mu_squared: Fraction, terms: LedgerTerms) -> dict[str, float]:
    """Return what may still be spent: mu^2, mu, and epsilon at the ledger's delta, rounded down."""
    mu, rounded = sqrt_down(mu_squared), round_down(mu_squared)
    # A budget that is whole is the epsilon it was made with, whatever its mu was rounded to.
    whole = mu_squared >= terms.mu_squared()
    epsilon = terms.epsilon if whole else _epsilon_below(mu, terms.delta)
    return {"mu_squared": rounded, "mu": mu, "epsilon": epsilon}


#: Most releases of a ledger cost the same.
_epsilon_of = lru_cache(maxsize=1024)(epsilon_of)


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
    if documents.is_empty or not terms.parallel:
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
    repeats = documents.count_records()
    return {
        "records": repeats.documents,
        "repeated": repeats.repeated,
        "most": sum(times.values()),
        "spent": _described(loss, terms) if total <= _MOST_MU**2 else None,
    }


def describe_ledger(state: LedgerState, path: Path, first: int, last: int) -> dict[str, Any]:
    """Return the report of a ledger as plain JSON values, with the documents kept in `path`.

    The `first` oldest and the `last` newest releases are described. Time about 3 ms for each
    distinct figure of epsilon.
    """
    terms, releases = state.terms, state.releases
    prices = {r.intent.number: Loss.of(r.intent.mu_squared, r.intent.set_aside) for r in releases}
    shown = [r for i, r in enumerate(releases) if i < first or i >= len(releases) - last]
    return {
        "format_version": FORMAT_VERSION,
        "ledger_id": state.ledger_id,
        "budget": {
            **terms.to_json(),
            "mu": sqrt_down(terms.mu_squared()),
            "mu_squared": round_down(terms.mu_squared()),
        },
        "spent": describe_spent(state.losses.spent, terms),
        "documents": describe_documents(ReleasedDocuments(path, len(releases)), prices, terms),
        "left_for_new_documents": describe_left(state.left, terms),
        "releases_left": state.releases_left,
        "generation": len(releases),
        "entries": state.rows,
        "pending": [r.intent.number for r in releases if r.state == "pending"],
        "lost": [r.intent.number for r in releases if r.state == "lost"],
        "snapshots": [_describe_release(r, terms) for r in shown],
    }


def _describe_release(release: Release, terms: LedgerTerms) -> dict[str, Any]:
    intent = release.intent
    alone = describe_spent([Loss.of(intent.mu_squared, intent.set_aside)], terms)
    found = intent.to_json()
    del found["fingerprints"]
    return {
        **found,
        "epsilon": alone["epsilon"],
        "epsilon_spent_after": describe_spent(release.spent_after, terms)["epsilon"],
        "state": release.state,
        "artifact": release.artifact,
        "digest": release.digest,
        "reason": release.reason,
    }


def _misplaced(row: Row) -> StreamLDAError:
    rule = "the rows of a ledger must follow its protocol"
    return failure(rule, row=row.seq, kind=row.kind, remedy=EXHAUSTED, error=LedgerError)
