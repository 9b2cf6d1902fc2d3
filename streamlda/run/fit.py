"""A run over a source that ends: polls it, makes what is due, and returns the newest model.

A topic, which has no end, ends for a fit where nothing more is there yet. With a folder of
checkpoints a fit that was cut short resumes as the daemon does.
"""

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from streamlda.errors import SourceError
from streamlda.model.topic_model import TopicModel
from streamlda.run.opening import CUT_SHORT, capture, open_ledger, open_pipeline, open_store
from streamlda.settings.table import RunSettings
from streamlda.stream.counts import RecordCounts
from streamlda.stream.pipeline import Pipeline, ReleaseResult
from streamlda.stream.source import Source, poll

#: Most records asked for at once, and the longest wait for one, in seconds.
POLL_RECORDS, POLL_SECONDS = 4096, 0.5

Progress = Callable[[Source, RecordCounts], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitResult:
    """Result of a fit: the newest model, the pipeline, and how the source ended."""

    model: TopicModel
    pipeline: Pipeline[Any]
    seconds: float
    stopped: bool = False
    failure: SourceError | None = None
    stored_bytes: int | None = None

    @property
    def counts(self) -> RecordCounts:
        """Counts of the records."""
        return self.pipeline.counts


def fit(
    settings: RunSettings,
    *,
    should_stop: Callable[[], bool] = lambda: False,
    on_progress: Progress = lambda source, counts: None,
    warn: Callable[[str], None] = lambda message: None,
    on_opened: Callable[[], None] = lambda: None,
) -> FitResult:
    """Learn topics as the settings say; models are written as they come.

    `on_opened` is called when nothing more can refuse the run, before anything is paid for. Raises
    `InsufficientDataError` if no model could be made, `SourceError` if nothing was learned.
    """
    with ExitStack() as opened:
        loop = FitLoop(settings, opened, warn)
        on_opened()
        try:
            return loop.turn(should_stop, on_progress)
        except BaseException:
            if message := loop.run.spending:
                warn(message)
            raise


class FitLoop:
    """The loop of a fit."""

    def __init__(
        self, settings: RunSettings, stack: ExitStack, warn: Callable[[str], None]
    ) -> None:
        self._settings, self._warn = settings, warn
        self._start = self._saved_at = time.monotonic()
        self._newest: TopicModel | None = None
        #: Of the last release.
        self._last = ReleaseResult(None)
        self._store = store = stack.enter_context(open_store(settings))
        ledger = open_ledger(settings, stack, store, lambda ended: warn(CUT_SHORT + ended))
        self.run = run = open_pipeline(settings, store, ledger, warn=warn)
        self._pipeline = run.pipeline
        if ledger is not None and run.census is None:
            warn(
                "record slots cannot be counted before they are paid for: that takes files that "
                "are read once; if the source ends before a window is full, what was spent gives "
                "no model, or one of an incomplete window"
            )
        for problem in () if run.checkpoint is None else run.checkpoint.skipped:
            warn(f"a checkpoint was skipped: {problem}")
        self._source = run.begin_source()
        stack.callback(self._source.close)
        if run.released is not None:
            self._publish(run.released)
            # A second release without a checkpoint between could not be resumed after.
            self._save()

    def turn(self, should_stop: Callable[[], bool], on_progress: Progress) -> FitResult:
        """Read to the end, and return the result."""
        pipeline, source, failure = self._pipeline, self._source, None
        ended = stopped = False
        while not ended:
            if stopped := pipeline.due is not None and should_stop():
                break
            if pipeline.due == 0:
                self._publish(pipeline.release())
                self._save()
            if pipeline.due is None:
                break
            # The field is not the one that holds the text: no further slots are paid for.
            if ended := self._last.shows_nothing or self._too_few_are_left():
                break
            try:
                batch = poll(source, min(pipeline.due, POLL_RECORDS), POLL_SECONDS)
            except SourceError as error:
                failure = error
                break
            pipeline.add(batch)
            # A topic has no end; behind the present one may be an open transaction.
            at_end = getattr(source, "at_end", None)
            ended = batch.exhausted or bool(at_end and not batch.n_records and at_end())
            on_progress(source, pipeline.counts)
            if time.monotonic() - self._saved_at >= self._settings.checkpoint.interval:
                self._save()
        if stopped or failure:
            # From here it resumes, and not after a snapshot of a part.
            self._save()
        # Where a signal or a failure ends a private stream may depend on what documents say.
        may_end = ended or not pipeline.counts_slots
        due = ended and (pipeline.due == 0 or pipeline.progress.unfinished)
        if due or (may_end and pipeline.ends_well):
            self._publish(pipeline.release(last=True))
        if not (stopped or failure):
            self._save()
        progress = source.progress()
        return FitResult(
            model=self._get_model(failure),
            pipeline=pipeline,
            seconds=time.monotonic() - self._start,
            stopped=stopped,
            failure=failure,
            stored_bytes=progress.total if progress.unit == "B" else None,
        )

    def _too_few_are_left(self) -> bool:
        """Return whether the rest of the source cannot give a snapshot: it is not paid for."""
        learner, census = self._pipeline.learner, self.run.census
        if census is None or learner is None:
            return False
        return bool(learner.private.least_missing > census.slots - self._pipeline.records)

    def _publish(self, result: ReleaseResult) -> None:
        self._last = result._replace(missed=result.missed or self._last.missed)
        if result.model is not None:
            self._newest = result.model
            self._store.publish(result.model)

    def _save(self) -> None:
        if self._store.folder and (captured := capture(self._pipeline, self._store)) is not None:
            self._store.write(captured)
        self._saved_at = time.monotonic()

    def _get_model(self, failure: SourceError | None) -> TopicModel:
        """Return the newest model; or raise an error that says what came instead."""
        pipeline = self._pipeline
        if self._newest is None and self.run.checkpoint is not None:
            # Nothing came after the checkpoint that would give another model.
            if not self._settings.private:
                self._publish(pipeline.release(last=True))
            elif pipeline.snapshots:
                nothing = (
                    "the run has nothing left to release; its models are where it wrote them, and "
                    "streamlda budget --publish writes each once more"
                )
                self._last = ReleaseResult(None, self._last.missed or nothing)
        if self._newest is not None:
            return self._newest
        reason = pipeline.make_shortage_error(self._last.missed)
        if failure is not None:
            self._warn(f"no snapshot was made: {reason}")
            raise failure
        raise reason
