"""A private run that was cut short, taken up by the same command, without checkpoints.

All that such a run knows of the documents of stages that are over is what it released: noisy sums,
paid for and stored beside the ledger. So it is made again of these:

1. The learner accepts the stored sums in their order, as when they were drawn.
2. The records of their slots are read to see that they are the documents of the releases, each of
   them and in their order (`Provenance.is_of`), and are given to no sum. Others are refused.
3. The stage that was cut short had released nothing. It is summed from its first slot, and paid
   for once, as the stages behind it.

Privacy: 1 reads what was published, which costs nothing, and 2 decides only whether there will be
a run. Stages have the slots that they had in the run that was cut short, so each document is in
one release, whose noise was drawn once, behind its payment: the mechanism is that of a run that was
not cut short, whatever the moment. A release that was paid and never stored is lost, with its
window; its noise is not drawn again.

Taken up is the newest run of the ledger, if source, reading and settings are its own, its noise was
from the secure source, and no model of its whole last window is out. Prefix sums are not: their
noise is correlated with noise that went with the process.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from streamlda.checks import require
from streamlda.errors import LedgerError
from streamlda.privacy.ledger import Intent, Ledger
from streamlda.private.release_manager import stored_release
from streamlda.run.parts import published_name, reading_of, skip_records, spelled_source
from streamlda.run.private_terms import PrivateTerms
from streamlda.run.run_record import RunRecord
from streamlda.settings.rules import source_of
from streamlda.settings.run_settings import RunSettings
from streamlda.storage.publishing import Publisher
from streamlda.stream.pipeline import Pipeline
from streamlda.stream.source import Source
from streamlda.stream.vocabulary_choice import WORDS


class PaidRun(NamedTuple):
    """A run that was cut short, and all that it has paid for, oldest first."""

    record: RunRecord
    releases: tuple[Intent, ...]


def run_cut_short(settings: RunSettings, ledger: Ledger, publisher: Publisher) -> PaidRun | None:
    """Return the run that these settings take up; None if they begin a new one.

    Time as to read its releases, and the newest models of the `publisher`; memory of one of them.
    """
    terms = PrivateTerms.of(settings)
    if source_of(settings) != "files" or terms.settings.mode != "window":
        return None
    releases = ledger.last_run()
    own = spelled_source(settings), str(reading_of(settings))
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
    out = publisher.evidence(published_name(settings))
    if (no_words and not terms.besides) or any(
        found.whole and found.generation >= ledger.generation for found in out
    ):
        # Nothing comes behind it.
        return None
    name, began = releases[0].cohort.run, releases[0].number - 1
    assert name is not None
    return PaidRun(RunRecord(name, ledger.ledger_id, began), tuple(releases))


def skip_paid(source: Source, releases: tuple[Intent, ...], pipeline: Pipeline[Any]) -> None:
    """Take a source behind the records of releases, or raise `LedgerError` if they are others."""
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
