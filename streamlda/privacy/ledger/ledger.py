"""The privacy ledger: what has been spent, durable before any noise is drawn.

A release goes through three steps, each on the disk before the next begins:

1. `Ledger.begin` records the cohort and its price. From here on the price is spent, for good.
2. The caller draws the noise and writes the artefact under a temporary name (`unpublished_path`).
3. `Ledger.publish` records the digest of that file, gives it its final name, and commits.

After a crash, `Ledger.recover` finishes step 3 with the stored bytes, or marks the release as lost.
Nothing is ever computed again: fresh noise on the same documents is another release, which `begin`
refuses. The ledger holds record slots of documents, never their words, and seals of files that say
nothing without its key. Slots may be private all the same, so its files are its owner's only.
"""

import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from streamlda.container import sync_folder
from streamlda.errors import BudgetExceededError, Faults, LedgerError
from streamlda.privacy.costs import cost
from streamlda.privacy.events import Event, to_json
from streamlda.privacy.ledger import state
from streamlda.privacy.ledger.documents import KEY_BYTES, WARNED_OF, ReleasedDocuments
from streamlda.privacy.ledger.file import (
    EXHAUSTED,
    FORMAT_VERSION,
    LedgerFile,
    OnStep,
    Row,
    translate_errors,
)
from streamlda.privacy.ledger.records import Cohort, ReleasedRecords
from streamlda.privacy.ledger.terms import NOTHING, LedgerTerms, Loss, cap, round_down, round_up

#: Ends the name of an artefact, and after that of one that is not on record yet.
SUFFIX, UNPUBLISHED = ".safetensors", ".new"

FAULTS = Faults(
    {
        LedgerError: {
            "terms": "a ledger was made with other terms; use those terms, or another ledger for "
            "other documents",
            "before": "a state is from before a release, and its documents would take part "
            "twice; restore the newest checkpoint, or drop the state and continue after the last "
            "cohort",
            "another": "what a run adds to is of another ledger; open the ledger that it was made "
            "with, or give other documents outputs (file, folder, topic, consumer group) of other "
            "names",
            "older": f"a ledger is older than what was made with it; {EXHAUSTED}",
            "documents": "a ledger lacks its own .documents file, which has the key of its "
            f"documents; {EXHAUSTED}",
            "left": "a new ledger would begin beside what another one left; if its documents "
            f"are among those of this run, {EXHAUSTED}; else give other documents a ledger and "
            "outputs (file, folder, topic, consumer group) of other names",
            "place": "where an artefact goes is one that this ledger did not publish, or that "
            "was changed; if it is newer than the ledger, the ledger is an old copy, else choose "
            "another place",
            "pending": "the release before has not ended; publish it, or call recover() if its "
            "process has ended",
            "twice": "documents would be in two releases; use new documents",
            "rate": "what is released of users again sets more of delta aside for each mu^2 than "
            "their first release did; take fewer words, topics or rounds, or documents of "
            "others",
            "artefact": "an artefact is not of the release that is pending; publish what begin() "
            "returned last, once, or recover()",
        },
    }
)


def unpublished_path(artifact: Path) -> Path:
    """Return where an artefact is written before it is on record."""
    return artifact.with_name(artifact.name + UNPUBLISHED)


def read_report(path: str | os.PathLike[str]) -> dict[str, Any]:
    """Check a ledger and report on it (`LedgerReader.report`), also while it is being written."""
    return LedgerReader(path).report()


class Evidence(NamedTuple):
    """Something that was made when a ledger had begun `generation` releases, and where it is.

    What was published lies elsewhere than a ledger, which can be lost or put back: models in files,
    folders and topics, notes beside offsets of consumer groups.
    """

    where: str
    ledger_id: str
    generation: int

    @classmethod
    def of(cls, statement: Mapping[str, Any], where: str) -> Self | None:
        """Return the evidence of a privacy statement; None if it names no ledger.

        Statements of 0.1.0 have no generation: they show the ledger alone.
        """
        begun = statement.get("generation") or 0
        return cls.of_note(f"streamlda {statement.get('ledger')} {begun}", where)

    @property
    def note(self) -> str:
        """Ledger and generation as text; `of_note` reads it."""
        return f"streamlda {self.ledger_id} {self.generation}"

    @classmethod
    def of_note(cls, note: str, where: str) -> Self | None:
        """Return the evidence of a note; None if it is none of ours."""
        found = re.fullmatch(r"streamlda ([0-9a-f]{32}) ([0-9]{1,18})", note)
        return found and cls(where, found[1], int(found[2]))


class LedgerReader:
    """A ledger opened to look at it, with the terms it must have been made with; None takes any.

    Nothing is locked or written. Opening checks the whole chain: time O(rows), memory O(releases).
    """

    #: Terms that the ledger was made with.
    terms: LedgerTerms
    #: Random name of the ledger; checkpoints and artefacts have it, and the generation.
    ledger_id: str

    def __init__(
        self,
        path: str | os.PathLike[str],
        terms: LedgerTerms | None = None,
        *,
        _file: LedgerFile | None = None,
    ) -> None:
        self.releases: list[state.Release] = []
        #: The records of its releases by names and numbers.
        self.records = ReleasedRecords()
        self._file = _file or LedgerFile(path)
        #: The file, symbolic links resolved, and the folder of all that is released through it.
        self.path, self.folder = self._file.path, self._file.releases
        with translate_errors(self.path):
            #: The documents of its releases, for advice to their owner. They are looked at before
            #: the rows, which a writer adds first.
            self.documents = ReleasedDocuments(self._file.documents)
        self._file.load(self._apply)
        key, newest = self.documents.key, self.documents.newest
        known = {"releases": newest, "known": self.generation}
        self._check(newest <= self.generation, "older", where=str(self.documents.path), **known)
        own = key is not None and key.name == self._key_name
        self._check(own, "documents", documents=str(self.documents.path))
        assert key is not None
        #: Key of the fingerprints of documents.
        self.key = key
        here, wanted = asdict(self.terms), asdict(terms or self.terms)
        differing = [
            f"{name}={value!r} (ledger: {here[name]!r})"
            for name, value in wanted.items()
            if here[name] != value
        ]
        self._check(not differing, "terms", terms=" ".join(differing))

    def _apply(self, row: Row) -> None:
        """Add one row; the chain of checksums says that it is as it was written."""
        kind, body = row.kind, row.body
        if kind == "created":
            self.terms, self.ledger_id = LedgerTerms(**body["terms"]), body["ledger_id"]
            self._key_name = body["key"]
        elif kind == "intent":
            release = state.Release.from_json(body)
            loss = self.before.plus(release.price)
            if self.terms.parallel:
                both = self.loss, loss
                loss = max(both, key=lambda each: state.describe_spent(each, self.terms)["epsilon"])
            self.records.add(release.cohort)
            self.releases.append(replace(release, loss=loss))
        else:
            found = body if kind == "written" else {"state": kind}
            self.releases[-1] = replace(self.releases[-1], **found)

    @property
    def generation(self) -> int:
        """Number of releases begun."""
        return len(self.releases)

    @property
    def last_release(self) -> state.Release | None:
        """The newest release; after its cohort the stream continues."""
        return self.releases[-1] if self.releases else None

    @property
    def pending(self) -> state.Release | None:
        """The release that is neither committed nor lost, if there is one."""
        return next((each for each in self.releases[-1:] if each.state == "pending"), None)

    @property
    def loss(self) -> Loss:
        """The loss of the unit that has spent most."""
        return self.releases[-1].loss if self.releases else NOTHING

    @property
    def before(self) -> Loss:
        """The loss of the units that a release may take."""
        return NOTHING if self.terms.parallel else self.loss

    @property
    def remaining(self) -> Fraction:
        """The mu^2 that one more release may cost."""
        return max(cap(self.terms, self.before.rate) - self.before.mu_squared, Fraction(0))

    @property
    def epsilon_spent(self) -> float:
        """`loss` as epsilon at the ledger's delta, rounded up. Some 3 ms for a new figure."""
        return state.describe_spent(self.loss, self.terms)["epsilon"]

    @property
    def epsilon_left(self) -> float:
        """Epsilon that is left for new documents at the ledger's delta, rounded down."""
        return state.describe_left(self.remaining, self.terms)["epsilon"]

    def releases_of(self, run: str) -> tuple[int, ReleasedRecords]:
        """Return the number of releases of a run, and the records of those before its first."""
        cohorts = [release.cohort for release in self.releases]
        own = [number for number, cohort in enumerate(cohorts) if cohort.run == run]
        return len(own), ReleasedRecords(cohorts[: own[0] if own else None])

    def report(self) -> dict[str, Any]:
        """Return budget, spending and releases as plain JSON values, described in `releases.md`.

        Spent is rounded up, left is rounded down. Time about 3 ms for each distinct epsilon.
        """
        terms, releases = self.terms, self.releases
        prices = {release.number: release.price for release in releases}
        return {
            "format_version": FORMAT_VERSION,
            "ledger_id": self.ledger_id,
            "budget": {**asdict(terms), "mu_squared": round_down(terms.mu_squared())},
            "spent": dict(state.describe_spent(self.loss, terms)),
            "documents": state.describe_documents(self.documents, prices, terms),
            "left_for_new_documents": state.describe_left(self.remaining, terms),
            "generation": len(releases),
            "pending": [r.number for r in releases if r.state == "pending"],
            "lost": [r.number for r in releases if r.state == "lost"],
            "snapshots": [release.describe(terms) for release in releases],
        }

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
        with translate_errors(target):
            digest = known.get(self._relative(target))
            same = not os.path.lexists(target) or holds(target, digest)
        FAULTS.check(same, "place", path=str(target))

    def check(self, event: Event, cohort: Cohort | None = None) -> None:
        """Raise the errors of `Ledger.begin`, and spend nothing.

        Without a cohort it is about documents that were in no release. `BudgetExceededError` says
        that the budget does not cover the release.
        """
        price, loss, terms = self.terms.price(cost(event)), self.before, self.terms
        self._check(self.pending is None, "pending", release=self.generation)
        if cohort is not None:
            known, stream = self.records.touches(cohort), cohort.documents[0].stream
            self._check(not known, "twice", stream=stream, slots=cohort.slots)
        if not terms.covers(loss.plus(price)):
            left, spent = round_down(self.remaining), round_up(loss.mu_squared)
            raise BudgetExceededError(
                "a release costs more than the privacy budget left for its documents, got "
                f"mu_squared={float(price.mu_squared)!r} set_aside={round_up(price.set_aside)!r} "
                f"remaining={left!r} spent={spent!r} epsilon={terms.epsilon} delta={terms.delta}; "
                "use more noise, take other documents, or stop: a budget cannot be raised "
                "afterwards",
                **{"spent": spent, "remaining": left, "requested": float(price.mu_squared)},
            )
        rates = {"first": float(loss.rate), "this": float(price.rate)}
        self._check(loss.allows(price), "rate", **rates)

    def _check(self, holds: object, fault: str, **values: Any) -> None:
        FAULTS.check(holds, fault, **values, path=str(self.path))

    def _relative(self, path: Path) -> str:
        # So that a folder can be moved with all that is in it.
        return os.path.relpath(path, self.path.parent)


class Ledger(LedgerReader, AbstractContextManager["Ledger"]):
    """A ledger opened by its only writer, who holds its lock until it is closed.

    Made by `Ledger.open`. Each step of a release is a few forced writes.
    """

    def __init__(self, terms: LedgerTerms | None, *, _file: LedgerFile) -> None:
        super().__init__(_file.path, terms, _file=_file)
        _file.open_to_write()
        published = max((each.number for each in self.releases if each.digest), default=0)
        whole = self.documents.newest >= published
        self._check(whole, "documents", documents=str(self.documents.path))
        #: Gets the advice that repeats make, once.
        self.warn: Callable[[str], None] = lambda message: None

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str],
        terms: LedgerTerms | None = None,
        *,
        create: bool = False,
        evidence: Sequence[Evidence] = (),
        on_step: OnStep | None = None,
    ) -> Self:
        """Open a ledger for writing, or with `create` make it, of `terms`, if there never was one.

        `terms` are what it must have been made with; None takes any. `on_step` gets the name of
        each step, for tests. A ledger that another process has open for writing is refused; so is
        one that does not know of its artefacts or of the `evidence`: an older copy, or a new one.
        """
        file = LedgerFile(path, on_step)
        file.lock()
        try:
            if create and terms is not None and not os.path.lexists(file.path):
                _check_unused(file, evidence)
                with translate_errors(file.path):
                    key = ReleasedDocuments(file.documents).make()
                file.create({"terms": asdict(terms), "key": key.name})
            ledger = cls(terms, _file=file)
            ledger.check_evidence(evidence)
            # Artefacts are not read.
            found = {ledger._relative(path) for path in ledger.folder.resolve().glob(f"*{SUFFIX}")}
            unknown = found - {release.artifact for release in ledger.releases}
            known = {"where": min(unknown, default=None), "known": ledger.generation}
            ledger._check(not unknown, "older", **known)
            return ledger
        except BaseException:
            file.unlock()
            raise

    def close(self) -> None:
        """Let another writer in. Closing twice is allowed."""
        self._file.unlock()

    def __exit__(self, *error: object) -> None:
        self.close()

    def begin(
        self, cohort: Cohort, event: Event, *, config_hash: str = "", description: str = ""
    ) -> state.Release:
        """Spend the price of a release; only after the return may its noise be drawn.

        Refuses what `check` refuses. After an error of writing the price may be spent all the same.
        """
        self._file.check_writable()
        self.check(event, cohort)
        price, values = self.terms.price(cost(event)), cohort.values
        row = {
            "intent": self.generation + 1,
            **cohort.to_json(),
            "event": to_json(event),
            "mu_squared": float(price.mu_squared),
            "set_aside": round_up(price.set_aside),
            "config_hash": config_hash,
            "description": description,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        # Repeats advise alone. To count them needs disk: a full one must cost no release.
        repeated = len(values) - len(own := np.unique(values)) + self.documents.count_repeats(own)
        release = self._append("intent", row)
        with translate_errors(self._file.documents):
            self.documents.add(release.number, values)
        self._file.step("documents:kept")
        if repeated and WARNED_OF * repeated >= len(values):
            warn, self.warn = self.warn, lambda message: None
            warn(
                "documents are in a release again, or twice, and are charged for each: "
                f"repeated={repeated} documents={len(values)} release={release.number}; "
                f"streamlda budget {self.path.name} shows what they have spent; equal texts of "
                "several people need nothing"
            )
        return release

    def publish(self, release: state.Release, final_path: str | os.PathLike[str]) -> None:
        """Give a finished artefact (`unpublished_path`) its name, and commit the release; O(bytes).

        Nothing is replaced. After an error `recover` ends the release.
        """
        self._file.check_writable()
        pending = self.pending
        own = pending is not None and pending == release and not pending.digest
        self._check(own, "artefact", release=release.number, pending=pending and pending.number)
        target = Path(os.path.realpath(final_path))
        with translate_errors(target):
            digest = digest_file(unpublished_path(target), sync=True)
            sync_folder(target.parent)
        FAULTS.check(not os.path.lexists(target), "place", path=str(target))
        self._file.step("publish:checked")
        self._append("written", {"artifact": self._relative(target), "digest": digest})
        self._finish(target)

    def recover(self) -> state.Release | None:
        """End the release that a crash or an error cut short, without drawing any noise.

        Its state is ``"committed"`` if all bytes that `publish` recorded are there, else
        ``"lost"``.
        """
        self._file.check_writable()
        release = self.pending
        if release is None:
            return None
        if release.artifact is None:
            return self._append("lost", {})
        target = self.path.parent / release.artifact
        with translate_errors(target):
            if holds(target, release.digest):
                return self._commit(target)
            if holds(unpublished_path(target), release.digest) and not os.path.lexists(target):
                return self._finish(target)
        # It is gone, or its place is taken.
        return self._append("lost", {})

    def _finish(self, target: Path) -> state.Release:
        with translate_errors(target):
            unpublished_path(target).replace(target)
        self._file.step("publish:renamed")
        return self._commit(target)

    def _commit(self, target: Path) -> state.Release:
        with translate_errors(target):
            sync_folder(target.parent)
        self._file.step("publish:synced")
        return self._append("committed", {})

    def _append(self, kind: str, body: dict[str, Any]) -> state.Release:
        self._apply(self._file.append(kind, body))
        return self.releases[-1]


def digest_file(path: Path, *, sync: bool = False) -> str:
    """Return BLAKE2b of 32 bytes, in hex; optionally force the file to the disk first."""
    with path.open("rb") as file:
        if sync:
            os.fsync(file.fileno())
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32)).hexdigest()


def holds(path: Path, digest: str | None) -> bool:
    """Tell whether a file is there and has that digest. Time O(bytes), memory O(1)."""
    return path.is_file() and digest_file(path) == digest


def _check_unused(file: LedgerFile, evidence: Sequence[Evidence]) -> None:
    """Refuse to make a ledger where another one was, or where another's releases are published."""
    left = [found.where for found in evidence]
    left += [str(file.releases)] if any(file.releases.glob("*")) else []
    # A key alone is of a ledger whose creation was cut short.
    used = file.documents.exists() and file.documents.stat().st_size != KEY_BYTES
    left += [str(file.documents)] if used else []
    FAULTS.check(not left, "left", path=str(file.path), left=", ".join(left))
