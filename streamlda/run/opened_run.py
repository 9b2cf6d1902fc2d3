"""A run that was opened: its pipeline, and the source where it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from streamlda.checks import require
from streamlda.errors import LedgerError
from streamlda.privacy.ledger import Intent, Ledger
from streamlda.privacy.ledger.evidence import Evidence
from streamlda.run.census import Census
from streamlda.run.parts import OnRejected, open_stream, skip_records
from streamlda.run.taking_up import skip_paid
from streamlda.settings.run_settings import RunSettings
from streamlda.storage.checkpoint import Checkpoint
from streamlda.stream.pipeline import Pipeline
from streamlda.stream.schedule import Released
from streamlda.stream.source import Log, Source


@dataclass(slots=True)
class OpenedRun:
    """A pipeline, and where its stream goes on.

    `checkpoint` is None at the beginning; `slots_to_skip` are records after it that a release has
    used, and `released` is what that release gave; `paid` are those of a run that is taken up
    without a checkpoint, whose records are skipped. `census` is what a private run has found in
    files that are read to their end, and `ledger` pays for it.
    """

    pipeline: Pipeline[Any]
    checkpoint: Checkpoint | None = None
    slots_to_skip: int = 0
    released: Released | None = None
    census: Census | None = None
    ledger: Ledger | None = None
    paid: tuple[Intent, ...] = ()

    def open_source(self, settings: RunSettings, on_rejected: OnRejected | None = None) -> Source:
        """Open the source, without what was spent before the run began."""
        source = open_stream(settings, on_rejected)
        if self.pipeline.provenance is not None:
            self.pipeline.provenance.names = {
                location: found.name for location, found in _logs(source).items()
            }
        return source if self.census is None else self.census.unspent(source)

    def go_on(self, source: Source, settings: RunSettings) -> None:
        """Take the source to where the run goes on, before the slots to skip.

        Raises `LedgerError`, before a document is read, if documents of a log from there on were in
        a release, or its consumer group shows that the ledger was further; `SourceError` if the
        source does not hold what comes next.
        """
        if self.ledger is not None:
            where = f"the offsets of kafka.group={settings.kafka.group!r}"
            shown = (Evidence.of_note(note, where) for note in getattr(source, "notes", list)())
            self.ledger.check_evidence(each for each in shown if each is not None)
        if self.checkpoint is not None:
            source.seek(self.checkpoint.position)
        if self.ledger is not None:
            self._check_unspent(source, self.ledger)

    def skip(self, source: Source) -> None:
        """Take the source behind the records that releases have used.

        Raises `SourceError` where it does not hold them; errors as `skip_paid`.
        """
        skip_records(source, self.slots_to_skip, self.pipeline)
        if self.paid:
            skip_paid(source, self.paid, self.pipeline)

    def _check_unspent(self, source: Source, ledger: Ledger) -> None:
        """Refuse logs that go on before what was in a release, or too far after it."""
        behind = _logs(source, self.slots_to_skip)
        for location, log in _logs(source).items():
            spent = ledger.known.reach.get(log.name, 0)
            goes_on = behind[location].next
            require(
                goes_on == spent if goes_on > log.next else goes_on >= spent,
                "a run must begin after all releases of its log, and skip none but its own",
                error=LedgerError,
                source=location,
                begins=log.next,
                spent=spent,
                remedy="bring the folder of checkpoints back, or take later records: use an empty "
                "folder and kafka.start=latest",
            )


def _logs(source: Source, ahead: int = 0) -> Mapping[str, Log]:
    """Return the logs of a source by location, `ahead` records on; none without logs."""
    logs = getattr(source, "logs", None)
    found: Mapping[str, Log] = {} if logs is None else logs(ahead)
    return found
