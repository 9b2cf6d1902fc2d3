"""The shell around the machine: polls, threads, signals and time; it decides nothing itself.

One loop, in the main thread, polls the source and hands events to the machine; what the machine
says is done here if it is short, and by the `Worker` if it is long. The loop going round is what
``/livez`` and the watchdog of systemd stand for.
"""

import gc
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

from streamlda.errors import SinkAwayError, SourceAccessError, SourceAwayError, StreamLDAError
from streamlda.service import messages as m
from streamlda.service.logs import log, log_failure, name_reason
from streamlda.service.machine import Machine, Phase
from streamlda.service.rules import Rules
from streamlda.service.signals import leave, watch_signals
from streamlda.service.status import Status
from streamlda.service.worker import Threads, Worker
from streamlda.stream.source import Position, RecordBatch, Source, poll
from streamlda.utils import exit_codes
from streamlda.utils.process import resident_bytes

#: How soon a thread that waits for Python's lock is given it.
SWITCH_SECONDS = 0.00005

#: How many objects are made before Python looks for cycles of garbage among them.
OBJECTS_BETWEEN_COLLECTIONS = 50_000

#: Longest wait for records, or for an event where nothing is polled, in seconds.
WAIT_SECONDS = 0.1

#: How often memory and lag are looked at, and a `Tick` is sent.
TICK_SECONDS = 0.5

#: How long a poll under way holds up the end: a client may connect in it, or ask for offsets.
LAST_POLL_SECONDS = 3.0

#: Longest wait for brokers to take the offsets of the last checkpoint, in seconds.
LAST_COMMIT_SECONDS = 2.0

#: How long a thread may take to end before the run is opened again, in seconds.
STOP_SECONDS = 20.0


class PollEndedError(BaseException):
    """A poll was cut off by the end; no handler of errors in a client is meant."""


class Run(NamedTuple):
    """A run where its last checkpoint stands.

    `open_source` opens the source at a position, or, with None, after the state; the machine is
    told `started` when it is open.
    """

    open_source: Callable[[Position | None], Source]
    make_worker: Callable[[Callable[[m.Event], None]], Worker]
    started: m.StartDone


class Daemon:
    """Runs a machine until it says `Exit`.

    `open_run` opens the run again; `flush` makes dead letters durable, or returns why it cannot.
    """

    def __init__(
        self,
        rules: Rules,
        open_run: Callable[[], Run],
        status: Status,
        *,
        flush: Callable[[], str],
        threads: Threads | None = None,
    ) -> None:
        self._rules, self._status = rules, status
        self._open_run, self._flush_letters = open_run, flush
        self._threads = threads or Threads()
        self._events: SimpleQueue[m.Event] = SimpleQueue()
        #: None from a failure until it is open again; the one that failed is still to be closed.
        self._source: Source | None = None
        self._failed: Source | None = None
        #: A poll is under way; one was cut off by the end, and the source is polled no more.
        self._polling = self._cut_off = False
        #: Exit code, once the machine has said it.
        self.code: int | None = None
        self._refusal: Exception | None = None
        self._told_at = 0.0
        # How often the account was refused since a checkpoint was made.
        self._refused = 0

    def begin(self, run: Run) -> None:
        """Begin with a run where its last checkpoint stands, and a machine that knows nothing."""
        self._machine = Machine(self._rules)
        self._open_source, make_worker, started = run
        #: What the machine is told when the source is open; None since then.
        self._started: m.StartDone | None = started
        self._worker = make_worker(self._events.put)
        # Of this machine alone: one before it may still have a source opened.
        self._opened: SimpleQueue[Source | Exception] = SimpleQueue()
        #: Behind the last batch that was polled.
        self._polled_to: Position | None = None
        self._batches: dict[int, RecordBatch] = {}
        self._newest_batch = 0
        self._asked: int | None = None
        self._to_commit: tuple[Position, str] | None = None
        self._reopens = False
        self._open()

    def _signal(self, number: int) -> None:
        """Take a signal, in the thread of signals."""
        self._events.put(m.SignalReceived(self._threads.now(), number))
        # More than once: an alarm just before a wait begins does not end it.
        signal.setitimer(signal.ITIMER_REAL, LAST_POLL_SECONDS, LAST_POLL_SECONDS)

    def _end_poll(self, number: int, frame: object) -> None:
        if self._polling:
            self._polling = False
            raise PollEndedError

    def run(self, first: Run) -> int:
        """Loop until the machine says `Exit`; return its code, or raise the error of the start.

        The source is closed on return; the caller ends the process, for a thread may still work.
        """
        signal.signal(signal.SIGALRM, self._end_poll)
        # Should the loop itself be stuck, in a client say, the end comes all the same. Behind
        # `Exit` only connections are left to close, and brokers that are away hold that up.
        late = exit_codes.UNFINISHED
        watch_signals(self._signal, lambda: leave(late if self.code is None else self.code))
        # The worker asks for Python's lock again after each kernel; at the default it would wait
        # 5 ms each time for a loop that is busy polling.
        sys.setswitchinterval(SWITCH_SECONDS)
        # Records are many small objects without cycles. By default Python would look through all
        # that there is again and again, and hold up the worker.
        gc.freeze()
        gc.set_threshold(OBJECTS_BETWEEN_COLLECTIONS)
        try:
            self.begin(first)
            while self.code is None:
                self.turn()
            if not self._cut_off:
                self._commit(LAST_COMMIT_SECONDS)
        finally:
            self._status.note(not_ready="the daemon is ending")
            for source in (self._source, self._failed):
                if source is not None:
                    source.close()
        if self._refusal is not None:
            raise self._refusal
        if self._worker.stop(1.0):
            log("debug", "threads-ended")
        return self.code

    def turn(self) -> None:
        """Go round once: tell the machine what happened, poll, and wait if nothing is polled."""
        self._status.beat()
        with suppress(Empty):
            while self.code is None:
                self._tell(self._events.get_nowait())
        if self.code is None and self._reopens:
            self._reopen()
        if self.code is not None:
            return
        with suppress(Empty):
            self._take(self._opened.get_nowait())
        self._commit()
        if self._asked is not None:
            self._poll()
        elif self.code is None:
            with suppress(Empty):
                self._tell(self._threads.wait(self._events, WAIT_SECONDS))
        now = self._threads.now()
        if now - self._told_at >= TICK_SECONDS and self.code is None:
            self._told_at = now
            self._look(now)
            self._tell(m.Tick(now))

    def _ask(self, name: str, *values: Any) -> Any:
        """Call a method that only some sources have; return its answer, or None."""
        method = getattr(self._source, name, None)
        return None if method is None else method(*values)

    def _look(self, now: float) -> None:
        """Look at memory, lag and losses."""
        queued = self._machine.queued_bytes
        self._status.note(resident_bytes=resident_bytes(), queue_bytes=queued)
        if self._source is None:
            self._status.forget_lag()
        if (lag := self._ask("lag")) is not None:
            unit = getattr(self._source, "lag_unit", "records")
            self._status.note(lag=lag, lag_unit=unit, waits_for=self._ask("waits_for"))
        if (at := self._ask("last_answer")) is not None:
            self._status.note(last_answer=time.time() - (now - at))
        if (lost := self._ask("lost")) is not None:
            self._status.note(lost=lost)

    def _commit(self, seconds: float = 0.0) -> None:
        """Show offsets in the consumer group; none is ever read back from there."""
        if self._source is not None and self._to_commit is not None:
            shown, self._to_commit = self._to_commit, None
            try:
                self._ask("commit", *shown, seconds)
            except StreamLDAError as error:
                log_failure("commit-failed", error)

    def _reopen(self) -> None:
        """Resume where the last checkpoint stands: the state in memory is not that of its place."""
        if self._refused > self._rules.attempts or not self._worker.stop(STOP_SECONDS):
            self.code = exit_codes.INTERNAL
            return
        log("error", "restart-from-checkpoint", refused=self._refused)
        kept = []
        with suppress(Empty):
            while True:
                # All others are answers to a machine that is gone.
                if isinstance(event := self._events.get_nowait(), m.SignalReceived):
                    kept.append(event)
        for each in kept:
            self._events.put(each)
        self.begin(self._open_run())

    def _tell(self, event: m.Event) -> None:
        if isinstance(event, m.CheckpointDone):
            self._refused = 0
            if event.position is not None:
                self._to_commit = event.position, event.note
        instructions = self._machine.handle(event)
        for instruction in instructions:
            self._carry_out(instruction)
        phase = self._machine.phase
        self._status.note(phase=phase.value)
        if phase is Phase.EXHAUSTED:
            self._batches.clear()
            self._status.note(not_ready="")

    def _carry_out(self, instruction: m.Instruction) -> None:
        match instruction:
            case m.Poll(n):
                self._asked = n
            case m.Learn(number):
                numbers = [n for n in self._batches if n <= number]
                self._worker.learn([self._batches.pop(n) for n in numbers])
            case m.Release(last):
                self._worker.release(last=last)
            case m.Checkpoint():
                if why := self._flush_letters():
                    self._events.put(m.WorkFailed(self._threads.now(), "dead-letters", reason=why))
                else:
                    self._worker.checkpoint()
            case m.Pause():
                self._ask("pause")
            case m.Resume():
                self._ask("resume")
            case m.Rebuild():
                self._open()
            case m.ShowStall() | m.ShowRecovery():
                self._status.show([instruction])
            case m.LogLine(level, event, values):
                log(level, event, **values)
            case m.Reopen():
                self._refused += 1
                self._reopens = True
            case m.Exit(code):
                self.code = code

    def _poll(self) -> None:
        asked, self._asked = self._asked, None
        if self._cut_off:
            self._tell(m.PollDone(self._threads.now(), 0, 0, silent=None))
            return
        source = self._source
        assert asked is not None
        assert source is not None
        batch = RecordBatch()
        try:
            try:
                self._polling = True
                # Handovers of partitions are answered by polls, also while it is paused.
                if asked or hasattr(source, "pause"):
                    batch = poll(source, asked, WAIT_SECONDS if asked else 0.0)
            finally:
                self._polling = False
        except PollEndedError:
            # The source may stand behind records that it did not hand out.
            self._cut_off = True
            self._tell(m.PollDone(self._threads.now(), 0, 0, silent=None))
            return
        except StreamLDAError as error:
            self._source_failed("poll-failed", error)
            return
        # Of a source that does not say it, a poll is an answer.
        silent = source.silent() if hasattr(source, "silent") else 0.0
        reason = source.reason() if silent and hasattr(source, "reason") else ""
        if silent == 0:
            self._status.note(not_ready="")
        if not hasattr(source, "last_answer"):
            self._status.note(last_answer=time.time())
        for note in batch.notes:
            log("warning", "source-note", message=note)
        if batch.n_records:
            assert batch.behind is not None
            self._newest_batch += 1
            self._batches[self._newest_batch] = batch
            self._polled_to = batch.behind.position
        now, n_rejects = self._threads.now(), len(batch.rejects)
        records, size = batch.n_records, batch.size_bytes
        self._tell(m.PollDone(now, records, size, n_rejects, batch.exhausted, silent, reason))

    def _open(self) -> None:
        """Open the source, again too, in a thread: the loop goes round however long it takes."""
        old = self._source or self._failed
        self._source = self._failed = None
        position, opened, open_source = self._polled_to, self._opened, self._open_source

        def work() -> None:
            try:
                if old is not None:
                    old.close()
                opened.put(open_source(position))
            except Exception as error:
                opened.put(error)

        self._threads.start(work, "streamlda-opening")

    def _take(self, found: Source | Exception) -> None:
        """Take the opened source, or its error."""
        if isinstance(found, Exception):
            self._source_failed("open-failed", found)
            return
        self._source = found
        now, started = self._threads.now(), self._started
        if started is None:
            self._tell(m.RebuildDone(now))
            return
        self._started = None
        self._polled_to = found.position()
        self._tell(replace(started, time=now))

    def _source_failed(self, event: str, error: Exception) -> None:
        """Tell that the source failed; an error of the program, or at the start, ends the run."""
        if not isinstance(error, StreamLDAError):
            raise error
        self._failed, self._source = self._source or self._failed, None
        starting = self._started is not None
        # Rights that were there once may come back.
        kinds = SourceAwayError if starting else (SourceAwayError, SourceAccessError)
        away, reason = isinstance(error, kinds), name_reason(error)
        if starting and not away:
            self._refusal = error
        else:
            log_failure(event, error)
        what: m.Away = "dead-letters" if isinstance(error, SinkAwayError) else "source"
        self._status.count_failure(what, reason)
        code = exit_codes.exit_code(error)
        self._tell(m.SourceFailed(self._threads.now(), away, reason, code, what))
