"""A run over a source that ends: polls it, makes what is due, and returns the newest model.

A source that has no end (a topic, files that grow) ends for a fit where nothing more is there yet.
With a checkpoint folder a fit that was cut short goes on, as the daemon does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from streamlda.errors import InsufficientDataError, SourceError
from streamlda.model.topic_model import TopicModel
from streamlda.run.opening import OpenedRun, open_ledger, open_pipeline
from streamlda.run.outputs import Outputs, RejectsFile
from streamlda.run.parts import open_stream, skip_records
from streamlda.settings.table import RunSettings
from streamlda.storage.checkpoint import Checkpoints
from streamlda.stream.pipeline import Pipeline, RecordCounts, Released
from streamlda.stream.source import Source

#: Records asked for at once, and the longest wait for one, in seconds.
POLL_RECORDS, POLL_SECONDS = 4096, 0.5


@dataclass(frozen=True, slots=True)
class FitResult:
    """What a fit learned: the newest model, and what was met on the way.

    `stopped` if it was asked to stop before the source ended; `failure` is what ended the source
    before its time: everything read before has been learned from.
    """

    model: TopicModel
    pipeline: Pipeline[Any]
    seconds: float
    stopped: bool
    failure: SourceError | None

    @property
    def counts(self) -> RecordCounts:
        """What was met."""
        return self.pipeline.counts


def fit(
    settings: RunSettings,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    on_progress: Callable[[Source, RecordCounts], None] = lambda source, counts: None,
    warn: Callable[[str], None] = lambda message: None,
) -> FitResult:
    """Learn topics as the settings say; models are written as they come.

    Raises
    ------
    BudgetExceededError, LedgerError
        Before any document is read if the ledger does not allow the first window.
    InsufficientDataError
        If no model could be made; the message counts what came instead, privately record slots.
    SourceError
        If the source fails before anything was learned; later failures are returned.
    """
    with ExitStack() as opened:
        crank = _Crank(settings, opened, should_stop, warn)
        return crank.turn(on_progress)


class _Crank:
    """The loop of a fit."""

    def __init__(
        self,
        settings: RunSettings,
        opened: ExitStack,
        should_stop: Callable[[], bool],
        warn: Callable[[str], None],
    ) -> None:
        self._settings, self._should_stop, self._warn = settings, should_stop, warn
        self._start = self._saved_at = time.monotonic()
        self._failure: SourceError | None = None
        self._ended = False
        self._newest: TopicModel | None = None
        self._missed = ""
        rejects = settings.source.rejects
        on_reject = None if rejects is None else opened.enter_context(RejectsFile(rejects)).write
        ledger, ended = open_ledger(settings, opened)
        if ended:
            warn(f"{ended}, and paid: it was cut short before")
        folder = settings.checkpoint.folder
        self._store = None if folder is None else opened.enter_context(Checkpoints.open(folder))
        self._outputs = Outputs(settings.output.file, settings.output.folder)
        run = open_pipeline(settings, self._store, ledger, on_reject)
        self._pipeline = run.pipeline
        self._source = open_stream(settings)
        opened.callback(self._source.close)
        self._go_on(run)

    def _go_on(self, run: OpenedRun) -> None:
        if run.checkpoint is not None:
            for problem in run.checkpoint.skipped:
                self._warn(f"a checkpoint was skipped: {problem}")
            self._source.seek(run.checkpoint.position)
        skip_records(self._source, run.slots_to_skip)
        if run.released is not None:
            self._publish(run.released)

    def turn(self, on_progress: Callable[[Source, RecordCounts], None]) -> FitResult:
        pipeline = self._pipeline
        while not (self._ended or self._failure or self._should_stop()):
            if pipeline.due == 0:
                self._publish(pipeline.release())
                self._save()
            if pipeline.due is None:
                break
            self._poll()
            on_progress(self._source, pipeline.counts)
            if pipeline.tick(time.monotonic()):
                self._publish(pipeline.release())
                self._save()
            self._save_if_time()
        stopped = not (self._ended or self._failure or pipeline.due is None)
        # Where a signal or a failure ends the stream may depend on what documents say.
        if not pipeline.counts_slots or self._ended:
            if pipeline.end():
                self._publish(pipeline.release())
        self._save()
        return FitResult(
            self._model(), pipeline, time.monotonic() - self._start, stopped, self._failure
        )

    def _poll(self) -> None:
        """Take what is there; note whether it was the last."""
        n = self._pipeline.poll_records(POLL_RECORDS)
        most, counts = self._settings.source.max_documents, self._pipeline.counts
        if most is not None:
            n = min(n, most - (counts.records if self._settings.private else counts.documents))
        if n <= 0:
            self._ended = True
            return
        try:
            batch = self._source.poll(n, POLL_SECONDS)
            batch.check(n)
        except SourceError as error:
            self._failure = error
            return
        self._pipeline.add(batch)
        # A source without an end says how far behind it is.
        lag = getattr(self._source, "lag", None)
        caught_up = lag is not None and not batch.n_records and lag() == 0
        self._ended = batch.exhausted or caught_up

    def _publish(self, released: Released) -> None:
        if released.missed:
            self._missed = released.missed
        if released.model is not None:
            self._newest = released.model
            self._outputs.publish(released.model)

    def _save_if_time(self) -> None:
        if time.monotonic() - self._saved_at >= self._settings.checkpoint.interval:
            self._save()

    def _save(self) -> None:
        if self._store is not None:
            self._store.save(self._pipeline, self._source.position())
        self._saved_at = time.monotonic()

    def _model(self) -> TopicModel:
        """Return the newest model; or raise, with what came instead."""
        learner = self._pipeline.learner
        if self._newest is None and learner is not None and self._pipeline.snapshots:
            # Nothing came since the checkpoint.
            self._newest = learner.snapshot(self._pipeline.vocabulary, self._pipeline.facts())
            self._outputs.publish(self._newest)
        if self._newest is not None:
            return self._newest
        if self._failure is not None:
            raise self._failure
        raise InsufficientDataError(self._pipeline.insufficient(self._missed))
