"""Reading a privacy ledger: what it says, and whether a release or a stored state goes with it."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterable
from fractions import Fraction
from pathlib import Path
from typing import Any

from streamlda.checks import require
from streamlda.errors import BudgetExceededError, LedgerError
from streamlda.privacy.costs import cost
from streamlda.privacy.events import Event
from streamlda.privacy.ledger.artifact import SUFFIX, digest_file
from streamlda.privacy.ledger.evidence import Evidence
from streamlda.privacy.ledger.file import EXHAUSTED, NAME_LEDGER, LedgerFile, reported
from streamlda.privacy.ledger.known import KnownRecords
from streamlda.privacy.ledger.state import (
    Intent,
    LedgerState,
    ReportBuilder,
    build_event,
    describe_left,
    describe_spent,
)
from streamlda.privacy.ledger.terms import Cohort, LedgerTerms, Loss, round_down, round_up


def read_report(
    path: str | os.PathLike[str], *, first: int = 0, last: int = sys.maxsize
) -> dict[str, Any]:
    """Check a ledger and report on it (`LedgerReader.report`), also while it is being written.

    Only the `first` oldest and the `last` newest releases are described. Where a writer was killed
    within a row, that is undone, as its next start would. Time O(rows); memory O(releases
    described).
    """
    file, builder = LedgerFile(path), ReportBuilder(first, last)
    require(
        file.exists(),
        "there must be a ledger of that name",
        path=str(file.path),
        remedy=NAME_LEDGER,
        error=LedgerError,
    )
    try:
        file.load(builder.add)
    except LedgerError as error:
        if not _is_half_written(error.__cause__):
            raise
        # No writer can be at work: the lock is free, or this raises.
        file.lock()
        try:
            builder = ReportBuilder(first, last)
            file.load(builder.add)
        finally:
            file.unlock()
    return builder.finish(file.documents)


def _is_half_written(cause: BaseException | None) -> bool:
    return (
        isinstance(cause, sqlite3.OperationalError)
        and cause.sqlite_errorcode == sqlite3.SQLITE_READONLY_ROLLBACK
    )


class LedgerReader:
    """A ledger opened to look at it; nothing is locked or written.

    Opening checks the whole chain, and the terms it must have been made with (None takes any):
    time O(rows), memory O(1) rows. A `LedgerError` says that it is missing, damaged, foreign, of a
    later format, older than its marker, or of other terms.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        terms: LedgerTerms | None = None,
        *,
        _file: LedgerFile | None = None,
    ) -> None:
        self._file = _file or LedgerFile(path)
        self._state = LedgerState()
        self._file.load(self._state.apply)
        if terms is not None:
            self._check_terms(terms)

    @property
    def path(self) -> Path:
        """The file, symbolic links resolved."""
        return self._file.path

    @property
    def terms(self) -> LedgerTerms:
        """What the ledger was made with."""
        return self._state.terms

    @property
    def ledger_id(self) -> str:
        """Random name of this ledger; store it in checkpoints and artefacts."""
        return self._state.ledger_id

    @property
    def generation(self) -> int:
        """Number of releases begun; store it in checkpoints and artefacts."""
        return self._state.generation

    @property
    def last_intent(self) -> Intent | None:
        """The newest release; after its cohort the stream goes on."""
        return self._state.last

    @property
    def pending(self) -> Intent | None:
        """The release that is neither committed nor lost, if there is one."""
        return self._state.pending

    @property
    def spent(self) -> float:
        """The mu^2 spent on the privacy unit that has spent most, rounded up."""
        return describe_spent(self._state.losses.spent, self.terms)["mu_squared"]

    @property
    def epsilon_spent(self) -> float:
        """`spent` as epsilon at the ledger's delta, rounded up. Some 3 ms for a new figure."""
        return describe_spent(self._state.losses.spent, self.terms)["epsilon"]

    @property
    def epsilon_left(self) -> float:
        """`remaining` as epsilon at the ledger's delta, rounded down."""
        return describe_left(self._state.left(again=False), self.terms)["epsilon"]

    @property
    def remaining(self) -> float:
        """The mu^2 left for documents that were in no release yet, rounded down.

        0 once the horizon is reached.
        """
        return round_down(self._state.left(again=False))

    @property
    def known(self) -> KnownRecords:
        """The records of its releases by names and numbers: grows with each release."""
        return self._state.known

    def known_at(self, generation: int) -> KnownRecords:
        """Return the records of the first releases. Time O(rows) for some."""
        if generation == self.generation:
            return self.known
        known = KnownRecords()
        known.key = self.known.key
        for row in self._file.rows():
            if row.kind == "intent" and row.body["intent"] <= generation:
                known.add(Cohort.from_json(row.body))
        return known

    def check_epoch(self, epoch: int, ledger_id: str | None = None) -> None:
        """Refuse a stored state that does not go with this ledger.

        `epoch` is the generation that was stored with it: the state must be neither from before a
        release, nor from after one that this ledger does not know (an older copy).
        """
        self._require(
            ledger_id in (None, self.ledger_id),
            "a state must be restored with its own ledger",
            ledger_id=ledger_id,
            id_of_this=self.ledger_id,
            remedy="open the ledger that the state was made with",
        )
        self._require(
            epoch <= self.generation,
            "a ledger must not be older than the state beside it",
            epoch=epoch,
            generation=self.generation,
            remedy=EXHAUSTED,
        )
        self._require(
            epoch >= self.generation,
            "a state from before a release must not be used again, since its documents would take "
            "part twice",
            epoch=epoch,
            generation=self.generation,
            remedy="restore the newest checkpoint, or drop the state and go on after the last "
            "cohort (last_intent.cohort)",
        )

    def check_evidence(self, evidence: Iterable[Evidence]) -> None:
        """Refuse a ledger that is not the one of this evidence, or an older copy of it."""
        for found in evidence:
            self._require(
                found.ledger_id == self.ledger_id,
                "what a run adds to must be of its own ledger",
                where=found.where,
                ledger_id=found.ledger_id,
                id_of_this=self.ledger_id,
                remedy="open the ledger that it was made with; other documents need outputs (file, "
                "folder, topic, consumer group) of other names",
            )
            self._require(
                found.generation <= self.generation,
                "a ledger must not be older than what was made with it",
                where=found.where,
                releases=found.generation,
                known=self.generation,
                remedy=EXHAUSTED,
            )

    def check_artifacts(self, folder: Path) -> None:
        """Refuse a ledger without a record of an artefact in a folder; those are not read."""
        found = {self._relative(path) for path in folder.resolve().glob(f"*{SUFFIX}")}
        unknown = found - self._file.subjects("written")
        self._require(
            not unknown,
            "a ledger must not be older than its artefacts",
            folder=str(folder),
            unknown=min(unknown, default=None),
            known=self.generation,
            remedy=EXHAUSTED,
        )

    def check_target(self, final_path: str | os.PathLike[str]) -> None:
        """Refuse a place where something lies that this ledger did not publish last.

        That file may be newer than the ledger: then the ledger is an older copy.
        """
        target = Path(os.path.realpath(final_path))
        if not os.path.lexists(target):
            return
        known = self._file.latest("committed", self._relative(target))
        with reported(target, "a place for an artefact must be readable"):
            same = known is not None and digest_file(target)[0] == known["digest"]
        require(
            same,
            "an artefact may replace only the one that this ledger published there, unchanged",
            path=str(target),
            remedy="if it is newer than the ledger, the ledger is an old copy; else choose another "
            "place",
            error=LedgerError,
        )

    def check(self, event: Event, cohort: Cohort | None = None, *, replay: bool = False) -> None:
        """Raise what `Ledger.begin` would raise, and spend nothing.

        Call it before any document is read. Without a cohort it is about documents that were in
        no release yet. `BudgetExceededError`: the budget does not cover the release, or the
        horizon is reached. `LedgerError`: a release is pending, or the cohort is from before a
        release, or was in one and `replay` is False, or sets more of delta aside for each mu^2 than
        the first release of its units did.
        """
        state = self._state
        price = self.terms.price(cost(event))
        requested = float(price.mu_squared)
        rule, remedy = "a release must cost something", "describe all its noise by privacy.events"
        require(requested > 0, rule, mu_squared=requested, remedy=remedy)
        self._require(
            state.pending is None,
            "one release must end before the next begins",
            pending_intent=state.pending and state.pending.number,
            remedy="publish it, or call recover() if its process has ended",
        )
        if cohort is not None:
            self._check_cohort(cohort, replay)
        for loss in state.losses.of(cohort):
            self._check_price(loss, price)

    def _check_price(self, loss: Loss, price: Loss) -> None:
        """Refuse a release that is not covered by what its units have left."""
        terms, releases = self.terms, self.generation
        used_up = terms.horizon is not None and releases >= terms.horizon
        if used_up or not terms.covers(loss.plus(price)):
            left = round_down(max(terms.cap(loss.rate) - loss.mu_squared, Fraction(0)))
            requested, spent = float(price.mu_squared), round_up(loss.mu_squared)
            raise BudgetExceededError(
                "a release must fit into the privacy budget left for its documents, got "
                f"mu_squared={requested!r} set_aside={round_up(price.set_aside)!r} "
                f"remaining={left!r} spent={spent!r} epsilon={terms.epsilon} delta={terms.delta} "
                f"releases={releases} horizon={terms.horizon}; use more noise, take other "
                "documents, or stop: a budget cannot be raised afterwards",
                spent=spent,
                remaining=left,
                requested=requested,
            )
        self._require(
            loss.allows(price),
            "what is released of units again must set no more of delta aside for each mu^2 than "
            "their first release did",
            first=float(loss.rate),
            this=float(price.rate),
            remedy="take fewer words, topics or rounds, or documents of others",
        )

    def report(self) -> dict[str, Any]:
        """Return budget, spending and every release as plain JSON values: `ReportBuilder.finish`.

        Spent is rounded up. Left is what one more release alone may cost, of the documents that
        have spent most and of new ones, rounded down; `streamlda budget --help` describes the keys.
        Time O(rows), and about 3 ms for each distinct figure of epsilon.
        """
        builder = ReportBuilder(0, sys.maxsize)
        for row in self._file.rows():
            builder.add(row)
        return builder.finish(self._file.documents)

    def to_event(self) -> Event:
        """Return all releases as one event, for another accountant.

        Cohorts that share documents are composed, the others parallel; for users, all are
        composed. It costs what was spent or, where cohorts overlap in part, a little more.
        """
        return build_event(self._file.rows())

    def _check_cohort(self, cohort: Cohort, replay: bool) -> None:
        self.check_epoch(cohort.generation)
        namesake = self._file.latest("intent", cohort.cohort_id)
        documents = cohort.to_json()["documents"]
        self._require(
            namesake is None or namesake["documents"] == documents,
            "a cohort must keep its documents: a name that named others is taken",
            cohort_id=cohort.cohort_id,
            remedy="choose a new name",
        )
        if not self._state.losses.touches(cohort):
            return
        self._require(
            self.terms.mode != "prefix",
            "documents may take part only once in prefix sums, whose noise is correlated",
            cohort_id=cohort.cohort_id,
            remedy="use new documents",
        )
        self._require(
            replay,
            "documents must not be in two releases by accident",
            cohort_id=cohort.cohort_id,
            remedy="use new documents; `Ledger.begin` spends again on old ones with replay=True",
        )

    def _check_terms(self, wanted: LedgerTerms) -> None:
        here, there = self.terms.to_json(), wanted.to_json()
        differing = [
            f"{name}={there[name]!r} (ledger: {here[name]!r})"
            for name in here
            if here[name] != there[name]
        ]
        self._require(
            not differing,
            f"a ledger keeps the terms it was made with, not {', '.join(differing)}",
            remedy="use those terms, or another ledger for other documents",
        )

    def _require(self, holds: object, rule: str, *, remedy: str, **values: Any) -> None:
        require(holds, rule, **values, path=str(self.path), remedy=remedy, error=LedgerError)

    def _relative(self, path: Path) -> str:
        # So that a folder can be moved with all that is in it.
        return os.path.relpath(path, self.path.parent)
