"""The privacy ledger: what has been spent, durable before any noise is drawn.

A release goes through three steps, each on the disk before the next begins:

1. `Ledger.begin` records the cohort and its price. From here on the price is spent, for good.
2. The caller draws the noise and writes the artefact to a temporary file.
3. `Ledger.publish` records the digest of that file, gives it its final name, and commits.

After a crash, `Ledger.recover` finishes step 3 with the stored bytes, or marks the release as lost.
Nothing is ever computed again: fresh noise on the same documents is another release, which `begin`
refuses. The ledger holds record slots of documents, never their words, and marks of files that say
nothing without its key. Slots may be private all the same, so its files are its owner's only.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from streamlda.container import sync_folder
from streamlda.errors import BudgetExceededError, LedgerError, require
from streamlda.privacy.costs import cost
from streamlda.privacy.events import Event
from streamlda.privacy.ledger.artifact import SUFFIX, check_placed, digest_file, holds
from streamlda.privacy.ledger.documents import WARNED_OF, ReleasedDocuments, values_of
from streamlda.privacy.ledger.evidence import Evidence
from streamlda.privacy.ledger.file import EXHAUSTED, NAME_LEDGER, LedgerFile, OnStep, reported
from streamlda.privacy.ledger.fingerprints import FingerprintKey
from streamlda.privacy.ledger.known import KnownRecords
from streamlda.privacy.ledger.state import (
    Intent,
    LedgerState,
    Release,
    describe_ledger,
    describe_left,
    describe_spent,
)
from streamlda.privacy.ledger.terms import Cohort, LedgerTerms, round_down, round_up


def read_report(
    path: str | os.PathLike[str], *, first: int = 0, last: int = sys.maxsize
) -> dict[str, Any]:
    """Check a ledger and report on it (`LedgerReader.report`), also while it is being written.

    Only the `first` oldest and the `last` newest releases are described.
    """
    file = LedgerFile(path)
    require(
        file.exists(),
        "there must be a ledger of that name",
        path=str(file.path),
        remedy=NAME_LEDGER,
        error=LedgerError,
    )
    return LedgerReader(path).report(first=first, last=last)


class LedgerReader:
    """A ledger opened to look at it; nothing is locked or written.

    Opening checks the whole chain, and the terms it must have been made with (None takes any):
    time O(rows), memory O(releases). A `LedgerError` says that it is missing, damaged, foreign, of
    another format, older than its marker, or of other terms.
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
        """The newest release; after its cohort the stream continues."""
        return self._state.releases[-1].intent if self._state.releases else None

    @property
    def pending(self) -> Intent | None:
        """The release that is neither committed nor lost, if there is one."""
        pending = self._state.pending
        return None if pending is None else pending.intent

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
        """What is left for new documents as epsilon at the ledger's delta, rounded down."""
        return describe_left(self._state.left, self.terms)["epsilon"]

    @property
    def known(self) -> KnownRecords:
        """The records of its releases by names and numbers: grows with each release."""
        return self._state.known

    def releases_of(self, run: str) -> tuple[int, KnownRecords]:
        """Return the number of releases of a run, and the records of those before its first."""
        cohorts = [release.intent.cohort for release in self._state.releases]
        own = [number for number, cohort in enumerate(cohorts) if cohort.run == run]
        return len(own), KnownRecords(cohorts[: own[0] if own else None])

    def report(self, *, first: int = 0, last: int = sys.maxsize) -> dict[str, Any]:
        """Return budget, spending and releases as plain JSON values (`describe_ledger`).

        Spent is rounded up, left is rounded down. The README of the package describes the keys.
        """
        return describe_ledger(self._state, self._file.documents, first, last)

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
            remedy="restore the newest checkpoint, or drop the state and continue after the last "
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
        unknown = found - self._state.artifacts.keys()
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
        known = self._state.artifacts.get(self._relative(target))
        with reported(target, "a place for an artefact must be readable"):
            same = known is not None and digest_file(target)[0] == known
        require(
            same,
            "an artefact may replace only the one that this ledger published there, unchanged",
            path=str(target),
            remedy="if it is newer than the ledger, the ledger is an old copy; else choose another "
            "place",
            error=LedgerError,
        )

    def check(self, event: Event, cohort: Cohort | None = None) -> None:
        """Raise what `Ledger.begin` would raise, and spend nothing.

        Call it before any document is read. Without a cohort it is about documents that were in
        no release yet. `BudgetExceededError`: the budget does not cover the release, or the
        horizon is reached. `LedgerError`: a release is pending, or the cohort is from before a
        release, or was in one, or the release sets more of delta aside for each mu^2 than the
        first release of its user did.
        """
        state, price = self._state, self.terms.price(cost(event))
        requested = float(price.mu_squared)
        rule, remedy = "a release must cost something", "describe all its noise by privacy.events"
        require(requested > 0, rule, mu_squared=requested, remedy=remedy)
        self._require(
            state.pending is None,
            "one release must end before the next begins",
            pending_intent=state.pending and state.pending.intent.number,
            remedy="publish it, or call recover() if its process has ended",
        )
        if cohort is not None:
            self.check_epoch(cohort.generation)
            self._require(
                not state.losses.touches(cohort),
                "documents must not be in two releases",
                cohort_id=cohort.cohort_id,
                remedy="use new documents",
            )
        loss, terms, releases = state.losses.before, self.terms, self.generation
        if state.releases_left == 0 or not terms.covers(loss.plus(price)):
            left = round_down(max(terms.cap(loss.rate) - loss.mu_squared, Fraction(0)))
            spent = round_up(loss.mu_squared)
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
            "what is released of users again must set no more of delta aside for each mu^2 than "
            "their first release did",
            first=float(loss.rate),
            this=float(price.rate),
            remedy="take fewer words, topics or rounds, or documents of others",
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


@dataclass(frozen=True, slots=True)
class Recovery:
    """The outcome of a release that a crash cut short; its price stays spent in any case."""

    intent: Intent
    outcome: Literal["committed", "lost"]  # Whether the stored bytes are published now.
    path: Path | None  # The published artefact.


class Ledger(LedgerReader):
    """A ledger opened by its only writer. Make one with `Ledger.open`.

    Holds a lock until it is closed. Each step of a release is a few forced writes, tens of
    milliseconds on common disks. A forked child cannot write; it must open the ledger itself.
    """

    def __init__(self, terms: LedgerTerms | None, *, _file: LedgerFile) -> None:
        super().__init__(_file.path, terms, _file=_file)
        self._thread = threading.RLock()
        _file.mark()
        #: What fingerprints of documents are made with.
        self.key = self._open_key()
        #: The documents of its releases, for advice to their owner, who gets it by `warn`, once.
        self.documents = ReleasedDocuments(_file.documents, self.generation)
        self.warn: Callable[[str], None] = lambda message: None
        self._has_warned = False

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        terms: LedgerTerms | None = None,
        *,
        create: bool = False,
        artifacts: str = "releases",
        evidence: Sequence[Evidence] = (),
        on_step: OnStep | None = None,
    ) -> Self:
        """Open a ledger for writing, or with `create` make it if there never was one.

        ``PATH.marker``, ``PATH.key`` and ``PATH.lock`` lie beside it and belong to it. `terms` are
        what it must have been made with, or will be; None takes any. Leave `create` False where a
        checkpoint says that there is a ledger. `artifacts` ends the name of the folder beside it
        where they lie; `on_step` is called with the name of each step, for tests of crashes.

        A ledger that another process has open for writing is refused; so is one that does not know
        of its artefacts or of the `evidence`: it is an older copy, or a new one.
        """
        file = LedgerFile(path, on_step)
        file.lock()
        try:
            folder = file.path.with_name(f"{file.path.name}.{artifacts}")
            if create and not file.exists():
                _check_unused(file, folder, evidence)
                require(
                    terms, "a new ledger must have terms", terms=None, remedy="pass LedgerTerms"
                )
                assert terms is not None
                file.create({"terms": terms.to_json(), "at": _now()})
            ledger = cls(terms, _file=file)
            ledger.check_evidence(evidence)
            ledger.check_artifacts(folder)
            return ledger
        except BaseException:
            file.unlock()
            raise

    def _open_key(self) -> FingerprintKey:
        """Read the key, or make that of a ledger that has no use for one yet."""
        path, made_with = self._file.key, self.known.keys
        with reported(self.path, "a ledger must have a readable .key file"):
            if not made_with and not path.exists():
                FingerprintKey.make(path)
            found = FingerprintKey.read(path) if path.exists() else None
        self._require(
            found is not None and made_with <= {found.name},
            "a ledger must have its .key file, by which it knows documents again",
            key=str(path),
            found=None if found is None else "another key",
            remedy="bring it back from where the ledger was copied",
        )
        assert found is not None
        return found

    def close(self) -> None:
        """Let another writer in. Closing twice is allowed."""
        self._file.unlock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def begin(
        self, cohort: Cohort, event: Event, *, config_hash: str = "", description: str = ""
    ) -> Intent:
        """Spend the price of a release; only after the return may its noise be drawn.

        Refuses what `check` refuses. After an error of writing the price may be spent all the
        same. `config_hash` and `description` are kept with the release: never document text.
        """
        self._file.check_writable()
        with self._thread:
            self.check(event, cohort)
            price = self.terms.price(cost(event))
            intent = Intent(
                number=self.generation + 1,
                ledger_id=self.ledger_id,
                cohort=cohort,
                event=event,
                mu_squared=float(price.mu_squared),
                set_aside=round_up(price.set_aside),
                config_hash=str(config_hash),
                description=str(description),
                at=_now(),
            )
            self._keep_documents(intent)
            self._append("intent", intent.to_json())
            return intent

    def _keep_documents(self, intent: Intent) -> None:
        """Keep the documents of a release that is about to be on record; warn of repeats."""
        found = intent.cohort.fingerprints
        if found is None or not found.documents:
            return
        values = values_of(found.documents)
        known, own = self.documents.count_repeats(values), len(values) - len(np.unique(values))
        repeated = known.repeated + own
        with reported(self._file.documents, "the documents of a ledger must be kept"):
            self.documents.add(intent.number, values)
        if WARNED_OF * repeated >= len(values) and not self._has_warned:
            self._has_warned = True
            self.warn(
                "documents are in a release again, or twice, and are charged for each: "
                f"repeated={repeated} documents={len(values)} release={intent.number}; "
                f"streamlda budget {self.path.name} shows what they have spent; equal texts of "
                "several people need nothing"
            )

    def publish(
        self, intent: Intent, temp_path: str | os.PathLike[str], final_path: str | os.PathLike[str]
    ) -> None:
        """Give a finished artefact its final name, and commit the release; time O(bytes).

        The artefact is complete in `temp_path`, on the same file system, and is forced to the disk
        here. Only the artefact that this ledger last published under `final_path` is replaced.
        After an error `recover` ends the release.
        """
        self._file.check_writable()
        with self._thread:
            self._check_pending(intent)
            source = Path(temp_path)
            target = Path(os.path.realpath(final_path))
            with reported(source, "an artefact must be a whole file beside its final place"):
                source = Path(os.path.realpath(source.parent)) / source.name
                check_placed(source, target)
                digest, size_bytes = digest_file(source, sync=True)
                sync_folder(source.parent)
            self.check_target(target)
            self._file.step("publish:checked")
            written = {
                "intent": intent.number,
                "digest": digest,
                "size_bytes": size_bytes,
                "temp_path": self._relative(source),
                "final_path": self._relative(target),
            }
            self._append("written", written)
            self._finish(intent, source, target, digest)

    def recover(self) -> Recovery | None:
        """End the release that a crash or an error cut short, without drawing any noise.

        Call it after opening, and after an error between `begin` and `publish`; never while the
        caller still works on a release. The outcome is ``"committed"`` if the bytes recorded by
        `publish` were all there, ``"lost"`` if not; None if no release was pending.
        """
        self._file.check_writable()
        with self._thread:
            release = self._state.pending
            return None if release is None else self._recover(release)

    def _recover(self, release: Release) -> Recovery:
        intent, digest = release.intent, release.digest
        if digest is None or release.temporary is None or release.artifact is None:
            return self._lose(intent, "no artefact was completed")
        source = self.path.parent / release.temporary
        target = self.path.parent / release.artifact
        with reported(source, "artefacts must be readable to be recovered"):
            published = holds(target, digest)
            whole = published or holds(source, digest)
        if not whole:
            return self._lose(intent, "the artefact is gone or not as it was recorded")
        if published:
            self._commit(intent, target, digest)
        else:
            try:
                self.check_target(target)
            except LedgerError:
                return self._lose(intent, "something else has taken the artefact's place")
            self._finish(intent, source, target, digest)
        return Recovery(intent, "committed", target)

    def _finish(self, intent: Intent, source: Path, target: Path, digest: str) -> None:
        with reported(target, "an artefact must be renamed to its final place"):
            source.replace(target)
        self._file.step("publish:renamed")
        self._commit(intent, target, digest)

    def _commit(self, intent: Intent, target: Path, digest: str) -> None:
        with reported(target, "the folder of an artefact must be forced to the disk"):
            sync_folder(target.parent)
        self._file.step("publish:synced")
        self._append("committed", {"intent": intent.number, "digest": digest, "at": _now()})

    def _lose(self, intent: Intent, reason: str) -> Recovery:
        self._append("lost", {"intent": intent.number, "reason": reason, "at": _now()})
        return Recovery(intent, "lost", None)

    def _append(self, kind: str, body: dict[str, Any]) -> None:
        self._state.apply(self._file.append(kind, body))

    def _check_pending(self, intent: Intent) -> None:
        pending = self._state.pending
        known = pending is not None and (intent.ledger_id, intent.number) == (
            self.ledger_id,
            pending.intent.number,
        )
        require(
            known and pending is not None and pending.digest is None,
            "an artefact must belong to the release that is pending, and each release has one",
            intent=intent.number,
            pending=pending and pending.intent.number,
            path=str(self.path),
            remedy="publish what begin() returned last, once, or recover()",
            error=LedgerError,
        )


def _check_unused(file: LedgerFile, folder: Path, evidence: Sequence[Evidence]) -> None:
    """Refuse to make a ledger where another one was, or where another's releases are published."""
    left = [found.where for found in evidence]
    left += [str(folder)] if folder.is_dir() and any(folder.iterdir()) else []
    left += [str(file.key)] if file.key.exists() else []
    require(
        not left,
        "a new ledger must not begin beside what another one left",
        path=str(file.path),
        left=", ".join(left),
        remedy=f"if its documents are among those of this run, {EXHAUSTED}; else give other "
        "documents a ledger and outputs (file, folder, topic, consumer group) of other names",
        error=LedgerError,
    )


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
