"""What a privacy ledger counts: its terms, cohorts of documents, and their exact losses.

Pure arithmetic without files. Losses are numbers of mu^2, the squared parameter of Gaussian
differential privacy: releases on the same documents add up in it, whatever noise was chosen on the
way [1]_. They are summed as fractions, so nothing is lost to rounding.

References
----------
.. [1] Smith, Thakurta: "Fully adaptive composition for Gaussian differential privacy",
   arXiv 2210.17520 (2022).
"""

from __future__ import annotations

import json
import math
from bisect import bisect_left, bisect_right
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from typing import Any

from streamlda.checks import above, at_least, between, failure, one_of, require
from streamlda.privacy.accounting import mu_of
from streamlda.privacy.events import check_relation
from streamlda.privacy.ledger.fingerprints import Fingerprints

_mu_of = lru_cache(maxsize=64)(mu_of)

UNITS = ("document", "user")
MODES = ("window", "prefix")

#: Record slots are counted up to here, so that they fit every 64-bit format.
MAX_SLOT = 2**63 - 1


@dataclass(frozen=True, slots=True)
class LedgerTerms:
    """What is fixed for the whole life of a ledger; epsilon and delta are for one privacy unit.

    Documents are each in one cohort, so cohorts compose in parallel. A user may have documents in
    all of them, so cohorts add up.
    """

    epsilon: float
    delta: float
    privacy_unit: str = "document"
    neighboring_relation: str = "add-remove"
    #: Snapshots of disjoint windows, or of sums since the start under one matrix mechanism.
    mode: str = "window"
    #: Largest number of snapshots of ``"prefix"``, which is calibrated for it; None otherwise.
    horizon: int | None = None
    config_hash: str = ""  # Names the configuration that the budget is for.

    def __post_init__(self) -> None:
        above(0, epsilon=self.epsilon)
        between(0, 1, ends=False, delta=self.delta)
        for name in ("epsilon", "delta"):
            object.__setattr__(self, name, float(getattr(self, name)))
        one_of(UNITS, privacy_unit=self.privacy_unit)
        check_relation(self.neighboring_relation)
        one_of(MODES, mode=self.mode)
        if self.mode == "prefix":
            require(type(self.horizon) is int, "horizon must be an int", horizon=self.horizon)
            at_least(1, horizon=self.horizon)
            # Sums of a user have correlated noise: their mu, not mu^2, add up.
            one_of(("document",), privacy_unit=self.privacy_unit, remedy="use mode='window'")
        else:
            rule = "horizon must be None in window mode"
            require(self.horizon is None, rule, horizon=self.horizon)
        held = isinstance(self.config_hash, str)
        require(held, "config_hash must be a str", config_hash=self.config_hash)

    def mu_squared(self) -> Fraction:
        """Return the budget as mu^2, rounded down."""
        return Fraction(_mu_of(self.epsilon, self.delta)) ** 2

    def to_json(self) -> dict[str, Any]:
        """Return the terms as plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class DocumentRange:
    """Record slots of a stream, from `start` up to but not including `stop`.

    A slot is a public number: it must not depend on whether other documents are there. Count
    every record, those rejected or too short as well; a neighbouring stream has the same slots,
    one of them empty. If only usable documents were counted, one document less would move all
    later ones across window boundaries, and parallel composition would not hold. `stream` names
    the stream, or the file or partition, in which the slots count.
    """

    stream: str
    start: int
    stop: int

    def __post_init__(self) -> None:
        whole = type(self.start) is int and type(self.stop) is int
        require(
            whole and 0 <= self.start < self.stop <= MAX_SLOT,
            "a range must hold at least one slot, counted from 0 in Python integers",
            start=self.start,
            stop=self.stop,
        )
        named = isinstance(self.stream, str)
        require(named, "a stream must be named by a str", stream=self.stream)


@dataclass(frozen=True, slots=True)
class Cohort:
    """The documents that one release reads."""

    cohort_id: str
    documents: tuple[DocumentRange, ...]  # Ranges that do not overlap.
    #: Generation of the ledger when the cohort was gathered. It guards against a state that was
    #: restored from before a release.
    generation: int
    #: Where the source goes on after the cohort (`streamlda.stream.source.Position`), so that a
    #: state whose cohort was released can be dropped and the stream picked up behind it.
    position: Mapping[str, Any] | None = None
    #: Record slots of the run, first and last + 1, and the run's random name; None where they are
    #: those of the one range.
    slots: tuple[int, int] | None = None
    run: str | None = None
    #: What its documents are known by; None in releases of before they were.
    fingerprints: Fingerprints | None = None

    def __post_init__(self) -> None:
        named = isinstance(self.cohort_id, str)
        require(named, "cohort_id must be a str", cohort_id=self.cohort_id)
        require(len(self.documents) > 0, "a cohort must have documents", documents=self.documents)
        ordered = sorted(self.documents, key=lambda part: (part.stream, part.start))
        for part, after in pairwise(ordered):
            apart = part.stream != after.stream or part.stop <= after.start
            require(apart, "ranges of a cohort must not overlap", range=part, next=after)
        counted = type(self.generation) is int
        require(counted, "generation must be an int", generation=self.generation)
        try:
            json.dumps(self.position, allow_nan=False)
        except (TypeError, ValueError) as error:
            raise failure(
                "position must be plain JSON values",
                type=type(self.position).__name__,
                cause=str(error),
                remedy="pass what Source.position() returned",
            ) from error

    def to_json(self) -> dict[str, Any]:
        """Return the cohort as plain JSON values."""
        return {
            "cohort_id": self.cohort_id,
            "documents": [[part.stream, part.start, part.stop] for part in self.documents],
            "generation": self.generation,
            "position": self.position,
            "slots": self.slots,
            "run": self.run,
            "fingerprints": None if self.fingerprints is None else self.fingerprints.to_json(),
        }

    @property
    def slots_of_run(self) -> tuple[int, int]:
        """The record slots of the run that made the release, first and last + 1."""
        return self.slots or (self.documents[0].start, self.documents[0].stop)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Cohort:
        """Return the cohort that `to_json` described."""
        documents = tuple(DocumentRange(*part) for part in values["documents"])
        slots, found = values.get("slots"), values.get("fingerprints")
        return cls(
            *(values["cohort_id"], documents, values["generation"], values["position"]),
            slots=None if slots is None else (slots[0], slots[1]),
            run=values.get("run"),
            fingerprints=None if found is None else Fingerprints.from_json(found),
        )


class Losses:
    """The exact mu^2 of every document, and the largest of them.

    Neighbouring slots of equal loss are kept as one, so a stream cut into windows of one price
    takes O(1) memory. `add` takes O(s) time and memory for s slots where the loss changes. With
    `parallel`, disjoint documents do not share a budget.
    """

    def __init__(self, *, parallel: bool) -> None:
        self._parallel = parallel
        #: Per stream: sorted slots where the loss changes, and the loss from each of them on.
        self._steps: dict[str, tuple[list[int], list[Fraction]]] = {}
        self._total = Fraction(0)
        self._largest = Fraction(0)

    @property
    def spent(self) -> Fraction:
        """The largest loss of any privacy unit."""
        return self._largest if self._parallel else self._total

    def touches(self, cohort: Cohort) -> bool:
        """Tell whether some document of the cohort was in a release before."""
        return self._largest_in(cohort) > 0

    def of(self, cohort: Cohort | None) -> Fraction:
        """Return the largest loss among the units of a cohort; None stands for new documents."""
        if not self._parallel:
            return self._total
        return Fraction(0) if cohort is None else self._largest_in(cohort)

    def add(self, cohort: Cohort, mu_squared: float) -> None:
        """Charge every document of the cohort."""
        charge = Fraction(mu_squared)
        for part in cohort.documents:
            slots, losses = self._steps.setdefault(part.stream, ([0], [Fraction(0)]))
            first = _split(slots, losses, part.start)
            last = _split(slots, losses, part.stop)
            for i in range(first, last):
                losses[i] += charge
                self._largest = max(self._largest, losses[i])
            # From right to left: what is merged stands behind what is still to be looked at.
            for i in range(last, max(first, 1) - 1, -1):
                if losses[i] == losses[i - 1]:
                    del slots[i], losses[i]
        self._total += charge

    def _largest_in(self, cohort: Cohort) -> Fraction:
        largest = Fraction(0)
        for part in cohort.documents:
            slots, losses = self._steps.get(part.stream, ([0], [Fraction(0)]))
            inside = slice(bisect_right(slots, part.start) - 1, bisect_left(slots, part.stop))
            largest = max(largest, *losses[inside])
        return largest


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
    root = math.sqrt(round_down(value))
    while Fraction(root) ** 2 > value:
        root = math.nextafter(root, 0.0)
    return root


def _split(slots: list[int], losses: list[Fraction], slot: int) -> int:
    """Let the loss change at a slot, if by nothing, and return its index."""
    i = bisect_left(slots, slot)
    if i == len(slots) or slots[i] != slot:
        slots.insert(i, slot)
        losses.insert(i, losses[i - 1])
    return i
