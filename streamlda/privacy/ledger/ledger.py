"""The privacy ledger: what has been spent, durable before any noise is drawn.

A release goes through three steps, each on the disk before the next begins:

1. `Ledger.begin` records the cohort and its price. From here on the price is spent, for good.
2. The caller draws the noise and writes the artefact to a temporary file.
3. `Ledger.publish` records the digest of that file, gives it its final name, and commits.

After a crash, `Ledger.recover` finishes step 3 with the stored bytes, or marks the release as lost.
Nothing is ever computed again: fresh noise on the same documents is another release, which `begin`
refuses unless the caller asks for it with ``replay=True`` and pays again.

The ledger holds record slots of documents, never their words, and fingerprints of files that say
nothing without its key. Under the zero-out relation their number is private all the same, so the
files are readable by their owner only.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np

from streamlda.checks import require
from streamlda.container import sync_folder
from streamlda.errors import LedgerError
from streamlda.privacy.costs import cost
from streamlda.privacy.events import Event
from streamlda.privacy.ledger.artifact import check_placed, digest_file, holds
from streamlda.privacy.ledger.documents import WARNED_OF, ReleasedDocuments
from streamlda.privacy.ledger.evidence import Evidence
from streamlda.privacy.ledger.file import EXHAUSTED, LedgerFile, OnStep, reported
from streamlda.privacy.ledger.fingerprints import FingerprintKey, values_of
from streamlda.privacy.ledger.reader import LedgerReader
from streamlda.privacy.ledger.state import Intent
from streamlda.privacy.ledger.terms import Cohort, LedgerTerms, round_up


@dataclass(frozen=True, slots=True)
class Recovery:
    """What became of a release that a crash cut short; its price stays spent in any case."""

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
        self.key = self.known.key = self._opened_key()
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

    def _opened_key(self) -> FingerprintKey:
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
        self,
        cohort: Cohort,
        event: Event,
        *,
        config_hash: str = "",
        description: str = "",
        replay: bool = False,
    ) -> Intent:
        """Spend the price of a release; only after the return may its noise be drawn.

        Refuses what `check` refuses. After an error of writing the price may be spent all the
        same. `config_hash` and `description` are kept with the release: never document text.
        `replay` allows documents that were in a release before, and spends on them again.
        """
        self._file.check_writable()
        with self._thread:
            self.check(event, cohort, replay=replay)
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
                replay=bool(replay),
                at=_now(),
            )
            self._keep_documents(intent)
            self._append("intent", cohort.cohort_id, intent.to_json())
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
            written: dict[str, Any] = {
                "intent": intent.number,
                "digest": digest,
                "size_bytes": size_bytes,
                "temp_path": self._relative(source),
                "final_path": self._relative(target),
            }
            self._append("written", written["final_path"], written)
            self._finish(source, target, written)

    def recover(self) -> Recovery | None:
        """End the release that a crash or an error cut short, without drawing any noise.

        Call it after opening, and after an error between `begin` and `publish`; never while the
        caller still works on a release. The outcome is ``"committed"`` if the bytes recorded by
        `publish` were all there, ``"lost"`` if not; None if no release was pending.
        """
        self._file.check_writable()
        with self._thread:
            intent, written = self._state.pending, self._state.written
            if intent is None:
                return None
            if written is None:
                return self._lose(intent, "no artefact was completed")
            source = self.path.parent / written["temp_path"]
            target = self.path.parent / written["final_path"]
            with reported(source, "artefacts must be readable to be recovered"):
                published = holds(target, written["digest"])
                whole = published or holds(source, written["digest"])
            if not whole:
                return self._lose(intent, "the artefact is gone or not as it was recorded")
            if published:
                self._commit(target, written)
            else:
                try:
                    self.check_target(target)
                except LedgerError:
                    return self._lose(intent, "something else has taken the artefact's place")
                self._finish(source, target, written)
            return Recovery(intent, "committed", target)

    def _finish(self, source: Path, target: Path, written: dict[str, Any]) -> None:
        with reported(target, "an artefact must be renamed to its final place"):
            source.replace(target)
        self._file.step("publish:renamed")
        self._commit(target, written)

    def _commit(self, target: Path, written: dict[str, Any]) -> None:
        with reported(target, "the folder of an artefact must be forced to the disk"):
            sync_folder(target.parent)
        self._file.step("publish:synced")
        body = {"intent": written["intent"], "digest": written["digest"], "at": _now()}
        self._append("committed", written["final_path"], body)

    def _lose(self, intent: Intent, reason: str) -> Recovery:
        self._append("lost", "", {"intent": intent.number, "reason": reason, "at": _now()})
        return Recovery(intent, "lost", None)

    def _append(self, kind: str, subject: str, body: dict[str, Any]) -> None:
        self._state.apply(self._file.append(kind, subject, body))

    def _check_pending(self, intent: Intent) -> None:
        pending = self._state.pending
        known = pending is not None and (intent.ledger_id, intent.number) == (
            self.ledger_id,
            pending.number,
        )
        require(
            known and self._state.written is None,
            "an artefact must belong to the release that is pending, and each release has one",
            intent=intent.number,
            pending=pending and pending.number,
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
