"""Reading a privacy ledger: what it says, and whether a release or a stored state goes with it."""

from __future__ import annotations

import os
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

from streamlda.errors import BudgetExceededError, InvalidSettingError, LedgerError
from streamlda.privacy.accounting import cost
from streamlda.privacy.events import Event
from streamlda.privacy.ledger.artifact import digest_file
from streamlda.privacy.ledger.file import EXHAUSTED, LedgerFile, reported
from streamlda.privacy.ledger.state import (
    Intent,
    LedgerState,
    ReportBuilder,
    build_event,
    describe,
)
from streamlda.privacy.ledger.terms import Cohort, LedgerTerms, round_down, round_up


def read_report(
    path: str | os.PathLike[str], *, first: int = 0, last: int = sys.maxsize
) -> dict[str, Any]:
    """Check a ledger and report on it in one reading, also while it is being written.

    Time O(rows); memory O(releases described).

    Parameters
    ----------
    path : str or path-like
        The ledger.
    first, last : int
        Describe only so many of the oldest and of the newest releases; all by default.

    Returns
    -------
    dict
        As `LedgerReader.report`.

    Raises
    ------
    LedgerError
        As for `LedgerReader`.
    """
    builder = ReportBuilder(first, last)
    LedgerFile(path).load(builder.add)
    return builder.finish()


class LedgerReader:
    """A ledger opened to look at it; nothing is locked or written.

    Opening checks the whole chain: time O(rows), memory O(1) rows.

    Parameters
    ----------
    path : str or path-like
        The ledger.
    terms : LedgerTerms or None
        What it must have been made with; None takes any.

    Raises
    ------
    LedgerError
        If the ledger is missing, damaged, foreign, of a later format, older than its marker, or
        has other terms.
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
        """The newest release; behind its cohort the stream goes on."""
        return self._state.last

    @property
    def pending(self) -> Intent | None:
        """The release that is neither committed nor lost, if there is one."""
        return self._state.pending

    @property
    def spent(self) -> float:
        """The largest mu^2 spent on any privacy unit, rounded up."""
        return round_up(self._state.losses.spent)

    @property
    def epsilon_spent(self) -> float:
        """`spent` as epsilon at the ledger's delta, rounded up. Some 3 ms for a new figure."""
        return describe(self._state.losses.spent, self.terms, upward=True)["epsilon"]

    @property
    def remaining(self) -> float:
        """The mu^2 left for documents that were in no release yet, rounded down.

        0 once the horizon is reached.
        """
        return round_down(self._state.left(again=False))

    def check_epoch(self, epoch: int, ledger_id: str | None = None) -> None:
        """Refuse a stored state that does not go with this ledger.

        Parameters
        ----------
        epoch : int
            The generation that was stored with the state.
        ledger_id : str or None
            The ledger that was stored with it, if it was.

        Raises
        ------
        LedgerError
            If the state is from before a release, from after one that this ledger does not know
            (then the ledger is an older copy), or belongs to another ledger.
        """
        if ledger_id is not None and ledger_id != self.ledger_id:
            raise LedgerError(
                "a state must be restored with its own ledger, got "
                f"ledger_id={ledger_id!r} and path={str(self.path)!r} of {self.ledger_id!r}; "
                "open the ledger that the state was made with"
            )
        if epoch > self.generation:
            raise LedgerError(
                "a ledger must not be older than the state beside it, got "
                f"epoch={epoch} generation={self.generation} path={str(self.path)!r}; {EXHAUSTED}: "
                "bring the newest copy back, together with its .marker file"
            )
        if epoch < self.generation:
            raise LedgerError(
                "a state from before a release must not be used again, since its documents would "
                f"take part twice, got epoch={epoch} generation={self.generation} "
                f"path={str(self.path)!r}; restore the newest checkpoint, or drop the state and go "
                "on behind the last cohort (last_intent.cohort)"
            )

    def check_target(self, final_path: str | os.PathLike[str]) -> None:
        """Refuse a place where something lies that this ledger did not publish last.

        Such a file may be newer than the ledger: then the ledger is an older copy.

        Raises
        ------
        LedgerError
            If the file is there and is not the artefact last committed under that name.
        """
        target = Path(os.path.realpath(final_path))
        if not os.path.lexists(target):
            return
        known = self._file.latest("committed", self._relative(target))
        with reported(target, "a place for an artefact must be readable"):
            same = known is not None and digest_file(target)[0] == known["digest"]
        if not same:
            raise LedgerError(
                "an artefact may replace only the one that this ledger published there, got "
                f"path={str(target)!r} with other content; if it is newer than the ledger, the "
                "ledger is an old copy; else choose another place"
            )

    def check(self, event: Event, cohort: Cohort | None = None, *, replay: bool = False) -> None:
        """Raise what `Ledger.begin` would raise, and spend nothing.

        Call it before any document is read.

        Parameters
        ----------
        event : event
            What is to be released.
        cohort : Cohort or None
            Its documents; None stands for documents that were in no release yet.
        replay : bool, default False
            Allow documents that were in a release before.

        Raises
        ------
        BudgetExceededError
            If the budget does not cover the release, or the horizon is reached.
        LedgerError
            If a release is pending, the cohort is from before a release, or its documents were in
            one and `replay` is False.
        InvalidSettingError
            If the event costs nothing.
        """
        state = self._state
        requested = cost(event).mu_squared
        if requested <= 0:
            raise InvalidSettingError(
                f"a release must cost something, got mu_squared={requested!r}; "
                "describe all its noise by streamlda.privacy.events"
            )
        if state.pending is not None:
            raise LedgerError(
                "one release must end before the next begins, got "
                f"pending intent={state.pending.number} path={str(self.path)!r}; publish it, or "
                "call recover() if its process has ended"
            )
        if cohort is not None:
            self._check_cohort(cohort, replay)
        spent = state.losses.of(cohort)
        terms = state.terms
        used_up = terms.horizon is not None and state.generation >= terms.horizon
        if used_up or spent + Fraction(requested) > state.budget:
            left = round_down(max(state.budget - spent, Fraction(0)))
            raise BudgetExceededError(
                "a release must fit into the privacy budget left for its documents, got "
                f"mu_squared={requested!r} remaining={left!r} spent={round_up(spent)!r} "
                f"epsilon={terms.epsilon} delta={terms.delta} releases={state.generation} "
                f"horizon={terms.horizon}; use more noise, take other documents, or stop: "
                "a budget cannot be raised afterwards",
                spent=round_up(spent),
                remaining=left,
                requested=requested,
            )

    def report(self) -> dict[str, Any]:
        """Return budget, spending and every release as plain JSON values.

        Time O(rows), and about 3 ms for each distinct figure of epsilon; memory O(rows).

        Returns
        -------
        dict
            ``budget`` (the terms, and their mu and mu_squared), ``spent``, ``left`` and
            ``left_for_new_documents`` (each in ``mu_squared``, ``mu`` and ``epsilon`` at the
            ledger's delta; spent is rounded up, left is what one more release alone may cost, on
            the documents that have spent most and on new ones, rounded down), ``releases_left``
            (by the horizon, None without one), ``generation``, ``ledger_id``,
            ``format_version``, ``entries`` (rows), ``pending`` and ``lost`` (numbers of intents),
            ``snapshots`` (one per intent: its row, its own ``epsilon``, the
            ``epsilon_spent_after`` it, its ``state``, and the ``artifact`` with its ``digest``).
        """
        builder = ReportBuilder(0, sys.maxsize)
        for row in self._file.rows():
            builder.add(row)
        return builder.finish()

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
        if namesake is not None and namesake["documents"] != documents:
            raise LedgerError(
                "a cohort must keep its documents, got "
                f"cohort_id={cohort.cohort_id!r} that named others; choose a new name"
            )
        if not self._state.losses.touches(cohort):
            return
        if self.terms.mode == "prefix":
            raise LedgerError(
                "documents may take part only once in prefix sums, whose noise is correlated, got "
                f"cohort_id={cohort.cohort_id!r} replay={replay}; use new documents"
            )
        if not replay:
            raise LedgerError(
                "documents must not be in two releases unless that is asked for, got "
                f"cohort_id={cohort.cohort_id!r}; use new documents, or pass replay=True to "
                "spend on them again"
            )

    def _check_terms(self, wanted: LedgerTerms) -> None:
        here, there = self.terms.to_json(), wanted.to_json()
        differing = [
            f"{name}={there[name]!r} (ledger: {here[name]!r})"
            for name in here
            if here[name] != there[name]
        ]
        if differing:
            raise LedgerError(
                f"a ledger keeps the terms it was made with, got {', '.join(differing)} "
                f"path={str(self.path)!r}; use those terms, or another ledger for other documents"
            )

    def _relative(self, path: Path) -> str:
        # So that a folder can be moved with all that is in it.
        return os.path.relpath(path, self.path.parent)
