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

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from streamlda.checks import failure
from streamlda.errors import LedgerError, StreamLDAError
from streamlda.guarantee.accounting import DELTA_MARGIN, MIN_DELTA, epsilon_of
from streamlda.privacy.event_json import from_json, to_json
from streamlda.privacy.events import Composed, Event, Parallel
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
    replay: bool
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
            "replay": self.replay,
            "at": self.at,
        }


class LedgerState:
    """The sum of all rows so far."""

    terms: LedgerTerms
    ledger_id: str

    def __init__(self) -> None:
        self.losses = Losses(parallel=True)
        #: Records of all releases, by names and numbers.
        self.known = KnownRecords()
        self.generation = self.rows = 0  # Number of intents, and of rows.
        #: The newest intent; and while it is neither committed nor lost.
        self.last: Intent | None = None
        self.pending: Intent | None = None
        #: The artefact of `pending`, once it is complete.
        self.written: dict[str, Any] | None = None

    @property
    def releases_left(self) -> int | None:
        """How many releases the horizon still allows; None without a horizon."""
        horizon = self.terms.horizon
        return None if horizon is None else max(horizon - self.generation, 0)

    def left(self, *, again: bool) -> Fraction:
        """Return the mu^2 that one more release may cost.

        Of documents that were in no release yet, or (`again`) of those that have spent most.
        Prefix sums take no document twice, and none at all after the horizon.
        """
        once = self.terms.mode == "prefix" and self.generation > 0
        if self.releases_left == 0 or (again and once):
            return Fraction(0)
        spent = self.losses.spent if again else self.losses.of(None)
        return max(min(self.terms.cap(each.rate) - each.mu_squared for each in spent), Fraction(0))

    def apply(self, row: Row) -> None:
        """Add one row."""
        try:
            fits = self._apply(row)
        except (LookupError, TypeError, ValueError, StreamLDAError) as error:
            raise _misplaced(row) from error
        if not fits:
            raise _misplaced(row)
        self.rows += 1

    def _apply(self, row: Row) -> bool:
        if (row.kind == "created") != (self.rows == 0):
            return False
        body = row.body
        if row.kind == "created":
            self.terms = LedgerTerms.from_json(body["terms"])
            self.ledger_id = body["ledger_id"]
            self.losses = Losses(parallel=self.terms.parallel)
            return bool(body["format_version"] == FORMAT_VERSION)
        if row.kind == "intent":
            if self.pending is not None or body["intent"] != self.generation + 1:
                return False
            cohort = Cohort.from_json(body)
            names = ("mu_squared", "set_aside", "config_hash", "description", "replay", "at")
            intent = Intent(
                number=body["intent"],
                ledger_id=self.ledger_id,
                cohort=cohort,
                event=from_json(body["event"]),
                **{name: body[name] for name in names},
            )
            self.losses.add(cohort, Loss.of(intent.mu_squared, intent.set_aside))
            self.known.add(cohort)
            self.generation += 1
            self.last = self.pending = intent
            return intent.mu_squared > 0
        if self.pending is None or body["intent"] != self.pending.number:
            return False
        if row.kind == "written":
            known = self.written is not None
            self.written = body
            return not known
        allowed = row.kind == "lost" or (row.kind == "committed" and self.written is not None)
        self.pending = self.written = None
        return allowed


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


class ReportBuilder:
    """Gathers what `LedgerReader.report` says, row by row.

    The `first` oldest and the `last` newest releases are described. Time about 30 us a row, and at
    the end about 3 ms for each distinct figure of epsilon; memory O(releases described).
    """

    def __init__(self, first: int, last: int) -> None:
        self._state = LedgerState()
        self._prices: dict[int, Loss] = {}
        self._first = first
        self._oldest: list[dict[str, Any]] = []
        self._newest: deque[dict[str, Any]] = deque(maxlen=last)
        self._current: dict[str, Any] = {}
        self._lost: list[int] = []

    def add(self, row: Row) -> None:
        """Add one row, in their order; a `LedgerError` if it cannot follow those before it."""
        state = self._state
        state.apply(row)
        if row.kind == "intent":
            self._current = {
                **{name: value for name, value in row.body.items() if name != "fingerprints"},
                # Replaced by epsilon at the end, where it is known which releases are described.
                "epsilon_spent_after": state.losses.spent,
                "state": "pending",
                "artifact": None,
                "digest": None,
                "reason": None,
            }
            price = Loss.of(row.body["mu_squared"], row.body["set_aside"])
            self._prices[row.body["intent"]] = price
            kept = self._oldest if len(self._oldest) < self._first else self._newest
            kept.append(self._current)
        elif row.kind == "written":
            self._current["digest"] = row.body["digest"]
            self._current["artifact"] = row.body["final_path"]
        elif row.kind in ("committed", "lost"):
            self._current["state"] = row.kind
            self._current["reason"] = row.body.get("reason")
            if row.kind == "lost":
                self._lost.append(row.body["intent"])

    def finish(self, path: Path) -> dict[str, Any]:
        """Return the report as plain JSON values, with the documents that are kept in `path`."""
        state = self._state
        terms = state.terms
        return {
            "format_version": FORMAT_VERSION,
            "ledger_id": state.ledger_id,
            "budget": {
                **terms.to_json(),
                "mu": sqrt_down(terms.mu_squared()),
                "mu_squared": round_down(terms.mu_squared()),
            },
            "spent": describe_spent(state.losses.spent, terms),
            "documents": describe_documents(
                ReleasedDocuments(path, state.generation), self._prices, terms
            ),
            "left": describe_left(state.left(again=True), terms),
            "left_for_new_documents": describe_left(state.left(again=False), terms),
            "releases_left": state.releases_left,
            "generation": state.generation,
            "entries": state.rows,
            "pending": [] if state.pending is None else [state.pending.number],
            "lost": list(self._lost),
            "snapshots": [self._described(shot) for shot in (*self._oldest, *self._newest)],
        }

    def _described(self, shot: dict[str, Any]) -> dict[str, Any]:
        terms = self._state.terms
        alone = describe_spent([Loss.of(shot["mu_squared"], shot["set_aside"])], terms)
        total = describe_spent(shot["epsilon_spent_after"], terms)
        return {**shot, "epsilon": alone["epsilon"], "epsilon_spent_after": total["epsilon"]}


def build_event(rows: Iterable[Row]) -> Event:
    """Return all n releases as one event (`LedgerReader.to_event`); time O(n log n)."""
    state = LedgerState()
    intents: list[Intent] = []
    for row in rows:
        state.apply(row)
        if row.kind == "intent" and state.pending is not None:
            intents.append(state.pending)
    if not state.terms.parallel:
        return Composed(intent.event for intent in intents)
    groups: dict[int, list[Event]] = {}
    for intent, group in zip(intents, _overlapping(intents), strict=True):
        groups.setdefault(group, []).append(intent.event)
    return Parallel(
        events[0] if len(events) == 1 else Composed(events) for events in groups.values()
    )


def _overlapping(intents: list[Intent]) -> list[int]:
    """Return a group number for each release; those that share documents have the same."""
    leaders = list(range(len(intents)))

    def leader(i: int) -> int:
        while leaders[i] != i:
            leaders[i] = leaders[leaders[i]]
            i = leaders[i]
        return i

    parts = sorted(
        (part.stream, part.start, part.stop, i)
        for i, intent in enumerate(intents)
        for part in intent.cohort.documents
    )
    stream, reach, last = "", -1, 0
    for name, start, stop, i in parts:
        if name == stream and start < reach:
            leaders[leader(i)] = leader(last)
        if name != stream or stop > reach:
            stream, reach, last = name, stop, i
    return [leader(i) for i in range(len(intents))]


def _misplaced(row: Row) -> StreamLDAError:
    rule = "the rows of a ledger must follow its protocol"
    return failure(rule, row=row.seq, kind=row.kind, remedy=EXHAUSTED, error=LedgerError)
