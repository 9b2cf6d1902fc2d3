"""Resumption of private runs: from checkpoints that lack a release, or from the ledger alone."""

from __future__ import annotations

import json
import secrets
from typing import Any, NamedTuple

from streamlda.checks import failure, require
from streamlda.container import sync_folder, whole_file
from streamlda.errors import InsufficientDataError, LedgerError, ModelFileError
from streamlda.privacy.ledger import Intent, Ledger
from streamlda.private.learner import PrivateLearner
from streamlda.private.release_manager import ReleaseManager, stored_release
from streamlda.run.parts import (
    get_reading,
    name_published_stream,
    skip_records,
    spell_source,
)
from streamlda.run.private_terms import PrivateTerms
from streamlda.settings.rules import get_source_kind
from streamlda.settings.run_settings import RunSettings
from streamlda.storage.index import OWNER_ONLY
from streamlda.storage.store import Store
from streamlda.stream.pipeline import Pipeline
from streamlda.stream.schedule import Released
from streamlda.stream.source import Source
from streamlda.stream.vocabulary_choice import (
    WORDS,
    PrivateVocabularySelection,
)

#: File in a folder of checkpoints that names the private run of that folder. The name stands in
#: each release of the run, so that one that no checkpoint knows of is known as its own.
RUN_FILE = "run"


class RunRecord(NamedTuple):
    """A run, the ledger that pays for it, and how many releases that had when it began."""

    name: str
    ledger_id: str
    began: int


def find_run(store: Store | None, ledger: Ledger, *, saved: bool) -> tuple[RunRecord, int]:
    """Return the run that goes on in a folder, or a new one, and how many releases it has made.

    With a checkpoint (`saved`) it goes on in any case, and its releases are not counted.
    """
    fresh = RunRecord(secrets.token_hex(8), ledger.ledger_id, ledger.generation)
    if store is None or store.folder is None:
        return fresh, 0
    path = store.folder / RUN_FILE
    if path.exists():
        try:
            found = RunRecord(**json.loads(path.read_bytes()))
        except (ValueError, TypeError) as error:
            raise failure(
                "the file that names the run of checkpoints must be whole",
                path=str(path),
                remedy="restore it from a copy, or begin in an empty folder",
                error=ModelFileError,
            ) from error
        releases = [] if saved else ledger.report()["snapshots"]
        made = sum(each["run"] == found.name for each in releases)
        if found.ledger_id == ledger.ledger_id and (saved or made):
            return found, made
    with whole_file(path, OWNER_ONLY) as file:
        file.write(json.dumps(fresh._asdict()).encode("ascii"))
    sync_folder(store.folder)
    return fresh, 0


class PaidRun(NamedTuple):
    """An interrupted run, and all that it has paid for, oldest first."""

    record: RunRecord
    releases: tuple[Intent, ...]


def find_cut_short(settings: RunSettings, ledger: Ledger, store: Store) -> PaidRun | None:
    """Return the interrupted run that the settings resume; None if they begin a new one.

    A private run over files without checkpoints is made again of what it released:

    1. The learner accepts the stored noisy sums in their order, as when they were drawn.
    2. The records of their slots are read to see that they are the documents of the releases, each
       of them and in their order (`skip_paid`), and are given to no sum.
    3. The stage that was cut short had released nothing. It is summed from its first slot, and paid
       for once, as the stages after it.

    Privacy: 1 reads what was published, which costs nothing, and 2 decides only whether there is a
    run. Stages have the slots that they had in the interrupted run, so each document is in one
    release, whose noise was drawn once, after its payment: the mechanism is that of a run that was
    not interrupted, whatever the moment. A release that was paid and never stored is lost, with its
    window; its noise is not drawn again.

    Only the newest run of the ledger resumes, if source, reading and settings are its own, its
    noise was from the secure source, and no model of its whole last window is out. Prefix sums do
    not: their noise is correlated with noise that went with the process. Time as to read the
    releases, and the newest models of the `store`; memory of one release.
    """
    terms = PrivateTerms.of(settings)
    if get_source_kind(settings) != "files" or terms.settings.mode != "window":
        return None
    releases = ledger.last_run()
    own = spell_source(settings), str(get_reading(settings))
    known = [release.cohort.fingerprints for release in releases]
    if any(found is None or (found.source, found.reading) != own for found in known):
        return None
    asked, last = terms.digest(settings), None
    for release in releases:
        stored = stored_release(ledger, release)
        if stored is None:
            continue
        last, about = stored, stored.metadata
        if about["asked"] != asked or not about["secure"]:
            return None
    if last is None:
        return None
    no_words = last.metadata["stage"] == WORDS and not last.arrays["words"].size
    out = store.evidence(name_published_stream(settings))
    if (no_words and not terms.besides) or any(
        found.whole and found.generation >= ledger.generation for found in out
    ):
        # Nothing comes after it.
        return None
    name, began = releases[0].cohort.run, releases[0].number - 1
    assert name is not None
    return PaidRun(RunRecord(name, ledger.ledger_id, began), tuple(releases))


def skip_paid(source: Source, releases: tuple[Intent, ...], pipeline: Pipeline[Any]) -> None:
    """Take a source past the records of releases; `LedgerError` unless they are the same."""
    provenance, at = pipeline.provenance, 0
    assert provenance is not None
    for release in releases:
        _, last = release.cohort.slots_of_run
        skip_records(source, last - at, pipeline, released=False)
        require(
            provenance.is_of(release.cohort),
            "a run that was cut short must be taken up over the records of its releases, as they "
            "were",
            release=release.number,
            description=release.description,
            slots=last - at,
            remedy="bring the files back in their order; or begin a new run with what is unspent, "
            "under another source.stream",
            error=LedgerError,
        )
        provenance.clear()
        at = last


def catch_up(
    pipeline: Pipeline[PrivateLearner], manager: ReleaseManager, intent: Intent
) -> tuple[int, Released]:
    """Go on after a release that no checkpoint knows of; return the records to skip."""
    if intent.description == WORDS:
        return _catch_up_with_words(pipeline, manager, intent)
    learner = pipeline.learner
    if learner is None:
        raise failure(
            "a release of topics must come after that of the words",
            error=LedgerError,
            release=intent.number,
            description=intent.description,
            remedy="begin with other documents and a ledger of their own",
        )
    before = learner.engine.snapshot
    skipped = learner.catch_up(intent)
    new = learner.engine.snapshot is not before
    model = learner.snapshot(pipeline.vocabulary, pipeline.facts(skipped)) if new else None
    return skipped, pipeline.resume_after(skipped, model)


def _catch_up_with_words(
    pipeline: Pipeline[PrivateLearner], manager: ReleaseManager, intent: Intent
) -> tuple[int, Released]:
    words, (first, last) = pipeline.words, intent.cohort.slots_of_run
    if (
        not isinstance(words, PrivateVocabularySelection)
        or pipeline.records
        or not manager.made(intent)
    ):
        raise failure(
            "a release of words must be that of this run",
            error=LedgerError,
            release=intent.number,
            first=first,
            remedy="use the settings that it was made with, or begin with other documents",
        )
    skipped = last - words.first_slot
    found = manager.stored(intent)
    if found is None:
        # Paid for and never drawn: the next records vote.
        words.first_slot = last
        pipeline.skip(skipped)
        return skipped, Released(None, "a choice of words was lost in a crash")
    try:
        chosen = words.read_words(found.arrays, found.metadata["selection"])
    except InsufficientDataError as error:
        raise InsufficientDataError(
            f"{error}; its record slots up to {last} are spent: begin after them, in another "
            "checkpoint.folder"
        ) from error
    pipeline.begin(chosen, last)
    pipeline.skip(skipped)
    return skipped, Released(None)
