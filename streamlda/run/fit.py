"""A run over a source that ends: polls it, makes what is due, and returns the newest model.

A topic, which has no end, ends for a fit where nothing more is there yet. With a folder of
checkpoints a fit that was cut short resumes as the daemon does.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from streamlda.errors import SourceError
from streamlda.model.topic_model import TopicModel
from streamlda.run.opening import CUT_SHORT, capture, open_ledger, open_pipeline, open_store
from streamlda.run.parts import RejectsFile
from streamlda.settings.run_settings import RunSettings
from streamlda.stream.counts import RecordCounts
from streamlda.stream.pipeline import Pipeline, Released
from streamlda.stream.source import Source, poll
from streamlda.text.vocabulary import Vocabulary

#: Most records asked for at once, and the longest wait for one, in seconds.
POLL_RECORDS, POLL_SECONDS = 4096, 0.5

#: Message of a run that must pay before it knows that its slots suffice.
UNCOUNTED = (
    "record slots cannot be counted before they are paid for: that takes files that are read "
    "once; if the source ends before a window is full, what was spent gives no model, or one of an "
    "incomplete window"
)

#: Reason of a private run that has no model, since no record came after its checkpoint.
NOTHING_LEFT = (
    "the run has nothing left to release; its models are where it wrote them, and streamlda budget "
    "--publish writes each once more"
)

Progress = Callable[[Source, RecordCounts], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class FitResult:
    """Result of a fit: the newest model, counts of the records, and how the source ended."""

    model: TopicModel
    counts: RecordCounts
    vocabulary: Vocabulary
    vocabulary_documents: int
    seconds: float
    stopped: bool = False
    failure: SourceError | None = None
    stored_bytes: int | None = None

    @classmethod
    def of(cls, model: TopicModel, pipeline: Pipeline[Any], began: float, **end: Any) -> FitResult:
        """Return the result of a pipeline that began at a time; `end` says how it ended."""
        names = "counts", "vocabulary", "vocabulary_documents"
        own = {name: getattr(pipeline, name) for name in names}
        return cls(model=model, seconds=time.monotonic() - began, **own, **end)


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
        loop = FitLoop(settings, opened, should_stop, warn)
        on_opened()
        try:
            return loop.turn(on_progress)
        except BaseException:
            if message := loop.run.spending:
                warn(message)
            raise


class FitLoop:
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
        self._missed, self._shows_nothing = "", False
        self._store = opened.enter_context(open_store(settings))
        ledger = open_ledger(settings, opened, self._store, lambda ended: warn(CUT_SHORT + ended))
        path, rejects = settings.source.rejects, None
        if path is not None:
            rejects = opened.enter_context(RejectsFile(path, append=True))
        on_reject = None if rejects is None else rejects.write
        self.run = run = open_pipeline(settings, self._store, ledger, on_reject, warn=warn)
        self._pipeline = run.pipeline
        if ledger is not None and run.census is None:
            warn(UNCOUNTED)
        for problem in () if run.checkpoint is None else run.checkpoint.skipped:
            warn(f"a checkpoint was skipped: {problem}")
        self._source = run.begin_source(settings)
        opened.callback(self._source.close)
        if rejects is not None and self._store.is_empty:
            # After the source: a name that is wrong must not empty the file of an earlier run.
            rejects.clear()
        if run.released is not None:
            self._publish(run.released)
            # A second release without a checkpoint between could not be resumed after.
            self._save()

    def turn(self, on_progress: Progress) -> FitResult:
        """Read to the end, and return what came of it."""
        pipeline = self._pipeline
        while not (self._ended or self._failure or self._should_stop()):
            if pipeline.due == 0:
                self._publish(pipeline.release())
                self._save()
            if pipeline.due is None:
                break
            if self._shows_nothing or self._too_few_are_left():
                self._ended = True
                break
            self._poll(pipeline.due)
            on_progress(self._source, pipeline.counts)
            if time.monotonic() - self._saved_at >= self._settings.checkpoint.interval:
                self._save()
        stopped = not (self._ended or self._failure or pipeline.due is None)
        cut_short = stopped or self._failure is not None
        if cut_short:
            # From here it resumes, and not after a snapshot of a part.
            self._save()
        # Where a signal or a failure ends a private stream may depend on what documents say.
        may_end = self._ended or not pipeline.counts_slots
        due = self._ended and (pipeline.due == 0 or pipeline.progress.unfinished)
        if due or (may_end and pipeline.ends_well):
            self._publish(pipeline.release(last=True))
        if not cut_short:
            self._save()
        progress = self._source.progress()
        stored = progress.total if progress.unit == "B" else None
        return FitResult.of(
            *(self._get_model(), pipeline, self._start),
            stopped=stopped,
            failure=self._failure,
            stored_bytes=stored,
        )

    def _too_few_are_left(self) -> bool:
        """Return whether the rest of the source cannot give a snapshot: it is not paid for."""
        learner, census = self._pipeline.learner, self.run.census
        if census is None or learner is None:
            return False
        return bool(learner.private.least_missing > census.slots - self._pipeline.records)

    def _poll(self, n: int) -> None:
        """Take what is there; note whether it was the last."""
        pipeline, counts = self._pipeline, self._pipeline.counts
        most = self._settings.source.max_documents
        if most is not None:
            n = min(n, most - (counts.records if self._settings.private else counts.documents))
        if n <= 0:
            self._ended = True
            return
        try:
            batch = poll(self._source, min(n, POLL_RECORDS), POLL_SECONDS)
        except SourceError as error:
            self._failure = error
            return
        pipeline.add(batch)
        # A topic has no end; behind the present one may be an open transaction.
        at_end = getattr(self._source, "at_end", None)
        self._ended = batch.exhausted or bool(at_end and not batch.n_records and at_end())

    def _publish(self, released: Released) -> None:
        self._missed = released.missed or self._missed
        # The field is not the one that holds the text: no further slots are paid for.
        self._shows_nothing = released.shows_nothing
        if released.model is not None:
            self._newest = released.model
            self._store.publish(released.model)

    def _save(self) -> None:
        if self._store.folder is not None:
            captured = capture(self._pipeline, self._store)
            if captured is not None:
                self._store.write(captured)
        self._saved_at = time.monotonic()

    def _get_model(self) -> TopicModel:
        """Return the newest model; or raise, with what came instead."""
        if self._newest is None and self.run.checkpoint is not None:
            # Nothing came after the checkpoint that would give another model.
            if not self._settings.private:
                self._publish(self._pipeline.release(last=True))
            elif self._pipeline.snapshots and not self._missed:
                self._missed = NOTHING_LEFT
        if self._newest is not None:
            return self._newest
        reason = self._pipeline.make_shortage_error(self._missed)
        if self._failure is not None:
            self._warn(f"no snapshot was made: {reason}")
            raise self._failure
        raise reason
