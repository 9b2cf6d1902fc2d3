"""The daemon's threads: one that works on the engine, one that writes what was copied from it.

Tests carry out step by step what `Threads` does in threads.
"""

import time
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from streamlda.errors import AccountError, BudgetExceededError
from streamlda.privacy.ledger import Evidence, Ledger
from streamlda.run.opening import capture
from streamlda.service import messages as m
from streamlda.service.logs import log, log_failure, name_reason
from streamlda.service.status import Status
from streamlda.storage.checkpoint import PendingCheckpoint
from streamlda.storage.store import Store
from streamlda.stream.pipeline import Pipeline, ReleaseResult
from streamlda.stream.source import RecordBatch
from streamlda.utils.exit_codes import exit_code

_T = TypeVar("_T")


class Lane:
    """A thread that carries out tasks, one after the other; these must not raise."""

    def __init__(self, name: str) -> None:
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self.put = self._tasks.put
        self._thread = Thread(target=self._work, name=f"streamlda-{name}", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            task()

    def join(self, seconds: float) -> bool:
        """Take no more tasks, and wait until all are done; return whether they are."""
        self.put(None)
        self._thread.join(seconds)
        return not self._thread.is_alive()


class Threads:
    """Real threads, and the monotonic clock."""

    def now(self) -> float:
        """Return the time in seconds, by a clock that never goes back."""
        return time.monotonic()

    def lane(self, name: str) -> Lane:
        """Return a new thread for tasks."""
        return Lane(name)

    def start(self, work: Callable[[], None], name: str) -> None:
        """Carry out one task in a thread of its own."""
        Thread(target=work, name=name, daemon=True).start()

    def wait(self, queue: SimpleQueue[_T], seconds: float) -> _T:
        """Return what comes next in a queue; raise `queue.Empty` after some seconds."""
        return queue.get(timeout=seconds)


class Worker:
    """Carries out what the machine asks of the engine, one thing at a time, in two threads.

    Nobody else uses the pipeline from now on. `tell` takes what each answers, from any thread. The
    `ledger` of a private run shows what was spent. `unstored` is a release of before, for the first
    `release`.
    """

    def __init__(
        self,
        pipeline: Pipeline[Any],
        store: Store,
        status: Status,
        tell: Callable[[m.Event], None],
        ledger: Ledger | None = None,
        unstored: ReleaseResult | None = None,
        threads: Threads | None = None,
    ) -> None:
        self._threads = threads or Threads()
        self._ledger, self._unstored = ledger, unstored
        self._pipeline, self._store = pipeline, store
        self._status, self._tell = status, tell
        #: Of each partition, when the last record that was learned was made.
        self._newest: dict[int, float] = {}
        self._show()
        self._show_budget()
        self._tasks, self._writes = map(self._threads.lane, ("engine", "writer"))

    def stop(self, timeout_seconds: float) -> bool:
        """End both threads after what they do now; return whether they ended in time."""
        until = self._threads.now() + timeout_seconds
        lanes = self._tasks, self._writes
        ended = [lane.join(max(0.0, until - self._threads.now())) for lane in lanes]
        return all(ended)

    def learn(self, batches: Sequence[RecordBatch]) -> None:
        """Learn from batches in their order."""
        self._tasks.put(self._guard("learn", self._learn, batches))

    def release(self, *, last: bool = False) -> None:
        """Make a release, or publish the one that could not be."""
        self._tasks.put(self._guard("release", self._release, last))

    def checkpoint(self) -> None:
        """Copy the state, and then write it."""
        self._tasks.put(self._guard("checkpoint", self._take))

    def _guard(self, what: str, do: Callable[..., None], *values: Any) -> Callable[[], None]:
        def work() -> None:
            try:
                do(*values)
            except Exception as error:
                self._report_failure(what, error)

        return work

    def _report_failure(self, what: str, error: Exception) -> None:
        what = "account" if isinstance(error, AccountError) else what
        log_failure(f"{what}-failed", error)
        reason = name_reason(error)
        self._status.count_failure(what, reason)
        self._tell(m.WorkFailed(self._threads.now(), what, exit_code(error), reason))  # type: ignore[arg-type]

    def _learn(self, batches: Sequence[RecordBatch]) -> None:
        for batch in batches:
            self._pipeline.add(batch)
            encoded = (text.encode("utf-8", "surrogatepass") for text in batch.documents)
            self._status.count("bytes", "", sum(map(len, encoded)))
            self._newest |= batch.newest
            self._show()
        self._tell(m.LearnDone(self._threads.now(), self._pipeline.has_words))

    def _show(self) -> None:
        self._status.note(**self._pipeline.figures(), newest=dict(self._newest))

    def _show_budget(self) -> None:
        if self._ledger is not None:
            ledger, terms = self._ledger, self._ledger.terms
            budget = {
                "epsilon_spent": ledger.epsilon_spent,
                "epsilon_left": ledger.epsilon_left,
                "epsilon_total": terms.epsilon,
                "delta": terms.delta,
            }
            self._status.note(budget=budget)

    def _release(self, last: bool) -> None:
        try:
            released = self._unstored or self._pipeline.release(last=last)
        except BudgetExceededError as error:
            log("warning", "budget-exhausted", message=str(error))
            self._tell(m.BudgetExhausted(self._threads.now()))
            return
        self._unstored = released
        if released.missed:
            log("warning", "no-snapshot", message=released.missed)
        if released.model is not None:
            try:
                number = self._store.publish(released.model)
            except OSError as error:
                self._report_failure("output", error)
                return
            log("info", "snapshot", number=number, topics=released.model.n_components)
            self._status.note_snapshot(self._store.newest_summary())
        self._unstored = None
        self._show()
        self._show_budget()
        pipeline = self._pipeline
        left = pipeline.due, pipeline.progress.unfinished
        self._tell(m.ReleaseDone(self._threads.now(), released.model is not None, *left))

    def _take(self) -> None:
        start = self._threads.now()
        captured = self._capture()
        stalled = self._threads.now() - start
        self._tell(m.CheckpointTaken(self._threads.now()))
        if captured is None:
            # Nothing but records to read again: where the last checkpoint stands is right.
            self._tell(m.CheckpointDone(self._threads.now()))
            return
        self._writes.put(self._guard("checkpoint", self._write, captured, stalled))

    def _capture(self) -> PendingCheckpoint | None:
        return capture(self._pipeline, self._store)

    def _write(self, checkpoint: PendingCheckpoint, stalled: float) -> None:
        start = self._threads.now()
        generation = self._store.write(checkpoint)
        seconds = self._threads.now() - start
        self._status.note_checkpoint(seconds, checkpoint.size_bytes)
        took = {"seconds": round(seconds, 3), "stalled_seconds": round(stalled, 3)}
        log("debug", "checkpoint", generation=generation, bytes=checkpoint.size_bytes, **took)
        run = checkpoint.metadata["run"]
        note = "" if self._ledger is None else Evidence("", run["ledger_id"], run["epoch"]).note
        position = checkpoint.metadata["position"]
        self._tell(m.CheckpointDone(self._threads.now(), position, note))
