"""The privacy ledger: what has been spent, durable before any noise is drawn.

A release goes through three steps, each on the disk before the next begins:

1. `Ledger.begin` records the cohort and its price. From here on the price is spent, for good.
2. The caller draws the noise and writes the artefact to a temporary file.
3. `Ledger.publish` records the digest of that file, gives it its final name, and commits.

After a crash, `Ledger.recover` finishes step 3 with the stored bytes, or marks the release as lost.
Nothing is ever computed again: fresh noise on the same documents is another release, which `begin`
refuses. The ledger holds record slots of documents, never their words, and seals of files that say
nothing without its key. Slots may be private all the same, so its files are its owner's only.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, Self

import numpy as np

from streamlda.container import sync_folder
from streamlda.errors import BudgetExceededError, Faults, InvalidSettingError, LedgerError
from streamlda.privacy.costs import cost
from streamlda.privacy.events import Event
from streamlda.privacy.ledger.documents import WARNED_OF, ReleasedDocuments, Values
from streamlda.privacy.ledger.evidence import Evidence
from streamlda.privacy.ledger.file import EXHAUSTED, LedgerFile, OnStep, reported
from streamlda.privacy.ledger.records import Cohort
from streamlda.privacy.ledger.state import LedgerState, Release, describe_ledger
from streamlda.privacy.ledger.terms import LedgerTerms, round_down, round_up

#: Ends the name of an artefact, and after that of one that is not on record yet.
SUFFIX, UNPUBLISHED = ".safetensors", ".new"


FAULTS = Faults(
    {
        InvalidSettingError: {
            "free": "a release must cost something; describe all its noise by privacy.events"
        },
        LedgerError: {
            "terms": "a ledger keeps the terms it was made with; use those terms, or another "
            "ledger for other documents",
            "before": "a state from before a release must not be used again, since its documents "
            "would take part twice; restore the newest checkpoint, or drop the state and continue "
            "after the last cohort",
            "another": "what a run adds to must be of its own ledger; open the ledger that it was "
            "made with, or give other documents outputs (file, folder, topic, consumer group) of "
            "other names",
            "older": f"a ledger must not be older than what was made with it; {EXHAUSTED}",
            "documents": "a ledger must have its own .documents file, which has the key of its "
            f"documents; {EXHAUSTED}",
            "left": "a new ledger must not begin beside what another one left; if its documents "
            f"are among those of this run, {EXHAUSTED}; else give other documents a ledger and "
            "outputs (file, folder, topic, consumer group) of other names",
            "place": "where an artefact goes there must be none but that of this ledger, "
            "unchanged; if it is newer than the ledger, the ledger is an old copy, else choose "
            "another place",
            "pending": "one release must end before the next begins; publish it, or call recover() "
            "if its process has ended",
            "twice": "documents must not be in two releases; use new documents",
            "rate": "what is released of users again must set no more of delta aside for each mu^2 "
            "than their first release did; take fewer words, topics or rounds, or documents of "
            "others",
            "artefact": "an artefact must belong to the release that is pending, and each release "
            "has one; publish what begin() returned last, once, or recover()",
        },
    }
)


def read_report(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Check a ledger and report on it (`LedgerReader.report`), also while it is being written."""
    return LedgerReader(path).report()


class LedgerReader(LedgerState):
    """A ledger opened to look at it; nothing is locked or written.

    Opening checks the whole chain, and the terms it must have been made with (None takes any):
    time O(rows), memory O(releases).
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        terms: LedgerTerms | None = None,
        *,
        _file: LedgerFile | None = None,
    ) -> None:
        super().__init__()
        self._file = _file or LedgerFile(path)
        #: The file, symbolic links resolved.
        self.path = self._file.path
        with reported(self.path):
            #: The documents of its releases, for advice to their owner. They are looked at before
            #: the rows, which a writer adds first.
            self.documents = ReleasedDocuments(self._file.documents)
            key, newest = self.documents.key, self.documents.newest
        self._file.load(self.apply)
        known = {"releases": newest, "known": self.generation}
        self._check(newest <= self.generation, "older", where=str(self.documents.path), **known)
        if self.releases:
            own = key is not None and key.name == self.releases[-1].key
            self._check(own, "documents", documents=str(self.documents.path))
        here, wanted = asdict(self.terms), asdict(terms or self.terms)
        differing = [
            f"{name}={value!r} (ledger: {here[name]!r})"
            for name, value in wanted.items()
            if here[name] != value
        ]
        self._check(not differing, "terms", terms=" ".join(differing))

    def report(self) -> dict[str, Any]:
        """Return budget, spending and releases as plain JSON values, described in `releases.md`.

        Spent is rounded up, left is rounded down.
        """
        return describe_ledger(self, self.documents)

    def check_epoch(self, epoch: int, ledger_id: str) -> None:
        """Refuse a stored state, of the generation `epoch`, that does not go with this ledger."""
        self.check_evidence([Evidence("a saved state", ledger_id, epoch)])
        self._check(epoch >= self.generation, "before", epoch=epoch, generation=self.generation)

    def check_evidence(self, evidence: Iterable[Evidence]) -> None:
        """Refuse a ledger that is not the one of this evidence, or an older copy of it."""
        for found in evidence:
            names = {"ledger_id": found.ledger_id, "id_of_this": self.ledger_id}
            self._check(found.ledger_id == self.ledger_id, "another", where=found.where, **names)
            known = {"releases": found.generation, "known": self.generation}
            is_known = found.generation <= self.generation
            self._check(is_known, "older", where=found.where, **known)

    def check_target(self, final_path: str | os.PathLike[str]) -> None:
        """Refuse a place where something lies that this ledger did not publish, unchanged."""
        target = Path(os.path.realpath(final_path))
        known = {r.artifact: r.digest for r in self.releases if r.state == "committed"}
        with reported(target):
            digest = known.get(self._relative(target), "")
            same = not os.path.lexists(target) or holds(target, digest)
        FAULTS.check(same, "place", path=str(target))

    def check(self, event: Event, cohort: Cohort | None = None) -> None:
        """Raise what `Ledger.begin` would raise, and spend nothing.

        Call it before any document is read. Without a cohort it is about documents that were in
        no release yet. `BudgetExceededError` says that the budget, or the horizon, does not cover
        the release.
        """
        price = self.terms.price(cost(event))
        requested = float(price.mu_squared)
        FAULTS.check(requested > 0, "free", mu_squared=requested)
        self._check(self.pending is None, "pending", release=self.generation)
        if cohort is not None:
            known, stream = self.records.touches(cohort), cohort.documents[0].stream
            self._check(not known, "twice", stream=stream, slots=cohort.slots)
        loss, terms = self.before, self.terms
        if self.releases_left == 0 or not terms.covers(loss.plus(price)):
            left = round_down(max(terms.cap(loss.rate) - loss.mu_squared, Fraction(0)))
            spent = round_up(loss.mu_squared)
            raise BudgetExceededError(
                "a release must fit into the privacy budget left for its documents, got "
                f"mu_squared={requested!r} set_aside={round_up(price.set_aside)!r} "
                f"remaining={left!r} spent={spent!r} epsilon={terms.epsilon} delta={terms.delta} "
                f"horizon={terms.horizon}; use more noise, take other documents, or stop: a budget "
                "cannot be raised afterwards",
                spent=spent,
                remaining=left,
                requested=requested,
            )
        rates = {"first": float(loss.rate), "this": float(price.rate)}
        self._check(loss.allows(price), "rate", **rates)

    def _check(self, holds: object, fault: str, **values: Any) -> None:
        FAULTS.check(holds, fault, **values, path=str(self.path))

    def _relative(self, path: Path) -> str:
        # So that a folder can be moved with all that is in it.
        return os.path.relpath(path, self.path.parent)


class Ledger(LedgerReader):
    """A ledger opened by its only writer, who holds its lock until it is closed.

    Make one with `Ledger.open`. Each step of a release is a few forced writes, tens of milliseconds
    on common disks.
    """

    def __init__(self, terms: LedgerTerms | None, *, _file: LedgerFile) -> None:
        super().__init__(_file.path, terms, _file=_file)
        _file.open_to_write()
        published = max((each.number for each in self.releases if each.digest), default=0)
        whole = self.documents.newest >= published
        self._check(whole, "documents", documents=str(self.documents.path))
        with reported(self.path):
            #: Key of the fingerprints of documents.
            self.key = self.documents.key or self.documents.make()
        #: Gets the advice that repeats make, once.
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
        """Open a ledger for writing, or with `create` make it, of `terms`, if there never was one.

        ``PATH.documents`` and ``PATH.lock`` lie beside it and belong to it.
        `terms` are what it must have been made with; None takes any. `artifacts` ends the name of
        the folder beside it where they lie; `on_step` gets the name of each step, for tests.

        A ledger that another process has open for writing is refused; so is one that does not know
        of its artefacts or of the `evidence`: it is an older copy, or a new one.
        """
        file = LedgerFile(path, on_step)
        file.lock()
        try:
            folder = file.path.with_name(f"{file.path.name}.{artifacts}")
            if create and terms is not None and not os.path.lexists(file.path):
                _check_unused(file, folder, evidence)
                file.create({"terms": asdict(terms), "at": _now()})
            ledger = cls(terms, _file=file)
            ledger.check_evidence(evidence)
            ledger._check_artifacts(folder)
            return ledger
        except BaseException:
            file.unlock()
            raise

    def _check_artifacts(self, folder: Path) -> None:
        """Refuse a ledger without a record of an artefact in a folder; those are not read."""
        found = {self._relative(path) for path in folder.resolve().glob(f"*{SUFFIX}")}
        unknown = found - {release.artifact for release in self.releases}
        self._check(not unknown, "older", where=min(unknown, default=None), known=self.generation)

    def close(self) -> None:
        """Let another writer in. Closing twice is allowed."""
        self._file.unlock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def begin(
        self, cohort: Cohort, event: Event, *, config_hash: str = "", description: str = ""
    ) -> Release:
        """Spend the price of a release; only after the return may its noise be drawn.

        Refuses what `check` refuses. After an error of writing the price may be spent all the same.
        """
        self._file.check_writable()
        self.check(event, cohort)
        price = self.terms.price(cost(event))
        release = Release(
            number=self.generation + 1,
            cohort=cohort,
            event=event,
            mu_squared=float(price.mu_squared),
            set_aside=round_up(price.set_aside),
            config_hash=config_hash,
            description=description,
            at=_now(),
            key=self.key.name,
        )
        release = self._append("intent", release.to_json())
        self._keep_documents(release, cohort.values)
        return release

    def _keep_documents(self, release: Release, values: Values) -> None:
        """Keep the documents of a release, and warn of repeats."""
        known, own = self.documents.count_repeats(values), len(values) - len(np.unique(values))
        repeated = known.repeated + own
        with reported(self._file.documents):
            self.documents.add(release.number, values)
        self._file.step("documents:kept")
        if repeated and WARNED_OF * repeated >= len(values) and not self._has_warned:
            self._has_warned = True
            self.warn(
                "documents are in a release again, or twice, and are charged for each: "
                f"repeated={repeated} documents={len(values)} release={release.number}; "
                f"streamlda budget {self.path.name} shows what they have spent; equal texts of "
                "several people need nothing"
            )

    def publish(
        self,
        release: Release,
        temp_path: str | os.PathLike[str],
        final_path: str | os.PathLike[str],
    ) -> None:
        """Give a finished artefact its final name, and commit the release; time O(bytes).

        Nothing is replaced. After an error `recover` ends the release.
        """
        self._file.check_writable()
        pending = self.pending
        own = pending is not None and pending == release and not pending.digest
        self._check(own, "artefact", release=release.number, pending=pending and pending.number)
        target = Path(os.path.realpath(final_path))
        with reported(target):
            source = Path(temp_path).resolve(strict=True)
            digest = digest_file(source, sync=True)
            sync_folder(source.parent)
        FAULTS.check(not os.path.lexists(target), "place", path=str(target))
        self._file.step("publish:checked")
        paths = {"temporary": self._relative(source), "artifact": self._relative(target)}
        self._append("written", {**paths, "digest": digest})
        self._finish(source, target)

    def recover(self) -> Release | None:
        """End the release that a crash or an error cut short, without drawing any noise.

        Its state is ``"committed"`` if the bytes recorded by `publish` were all there, ``"lost"``
        if not; None if no release was pending.
        """
        self._file.check_writable()
        release = self.pending
        if release is None:
            return None
        if release.artifact is None:
            return self._append("lost", {"reason": "no artefact was completed"})
        source, target = (self.path.parent / p for p in (release.temporary, release.artifact))
        with reported(source):
            if holds(target, release.digest):
                return self._commit(target)
            if holds(source, release.digest) and not os.path.lexists(target):
                return self._finish(source, target)
        return self._append("lost", {"reason": "the artefact is gone, or its place is taken"})

    def _finish(self, source: Path, target: Path) -> Release:
        with reported(target):
            source.replace(target)
        self._file.step("publish:renamed")
        return self._commit(target)

    def _commit(self, target: Path) -> Release:
        with reported(target):
            sync_folder(target.parent)
        self._file.step("publish:synced")
        return self._append("committed", {})

    def _append(self, kind: str, body: dict[str, Any]) -> Release:
        self.apply(self._file.append(kind, body))
        return self.releases[-1]


def digest_file(path: Path, *, sync: bool = False) -> str:
    """Return BLAKE2b of 32 bytes, in hex; optionally force the file to the disk first."""
    with path.open("rb") as file:
        if sync:
            os.fsync(file.fileno())
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()


def holds(path: Path, digest: str) -> bool:
    """Tell whether a file is there and has that digest. Time O(bytes), memory O(1)."""
    return path.is_file() and digest_file(path) == digest


def _check_unused(file: LedgerFile, folder: Path, evidence: Sequence[Evidence]) -> None:
    """Refuse to make a ledger where another one was, or where another's releases are published."""
    left = [found.where for found in evidence]
    left += [str(folder)] if folder.is_dir() and any(folder.iterdir()) else []
    left += [str(file.documents)] if file.documents.exists() else []
    FAULTS.check(not left, "left", path=str(file.path), left=", ".join(left))


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
