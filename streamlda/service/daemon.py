"""The shell around the machine: polls, threads, signals and time; it decides nothing itself.

One loop, in the main thread, polls the source and hands events to the machine; what the machine
says is done here if it is short, and by the `Worker` if it is long. The loop going round is what
``/livez`` and the watchdog of systemd stand for.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from threading import Timer
from typing import NoReturn

from streamlda import exit_codes
from streamlda.errors import StreamLDAError
from streamlda.process import resident_bytes
from streamlda.service import messages as m
from streamlda.service.logs import log, log_failure, log_from_signal
from streamlda.service.machine import Machine, Phase
from streamlda.service.status import Status
from streamlda.service.supervisor import Supervisor
from streamlda.service.worker import Committed, Worker
from streamlda.stream.sink import DeadLetterSink
from streamlda.stream.source import Position, RecordBatch, Source

SIGNALS = (signal.SIGTERM, signal.SIGINT)

#: How soon a thread that waits for Python's lock is given it.
SWITCH_SECONDS = 0.00005

#: Longest wait for records, or for an event where nothing is polled, in seconds.
WAIT_SECONDS = 0.1

#: How often memory and lag are looked at, and a `Tick` is sent.
TICK_SECONDS = 0.5

#: How long dead letters may take to become durable before a checkpoint is put off.
FLUSH_SECONDS = 5.0

#: From the first signal to the end of the process, at most.
LATEST_EXIT_SECONDS = 9.7

#: Memory is short above this share of its limit, and no longer below the other.
SHORT, RELIEVED = 0.97, 0.93


class Daemon:
    """Runs a machine until it says `Exit`.

    `source` stands at `position`, behind which the state stands; `reopen` opens it again, at its
    beginning.
    """

    def __init__(
        self,
        machine: Machine,
        source: Source,
        position: Position,
        reopen: Callable[[], Source],
        worker_of: Callable[[Callable[[m.Event], None], Committed], Worker],
        status: Status,
        supervisor: Supervisor,
        *,
        dead_letters: DeadLetterSink | None = None,
        memory_limit_bytes: int | None = None,
    ) -> None:
        self._machine, self._status, self._supervisor = machine, status, supervisor
        self._source, self._reopen = source, reopen
        self._dead_letters, self._limit = dead_letters, memory_limit_bytes
        self._events: SimpleQueue[m.Event] = SimpleQueue()
        self._worker = worker_of(self._events.put, self._commit_later)
        # Behind the last batch that was polled, and that is being learned or was.
        self._polled_to = self._learned_to = position
        self._batches: dict[int, tuple[RecordBatch, Position]] = {}
        self._newest_batch = 0
        self._asked: int | None = None
        self._to_commit: tuple[Position, str] | None = None
        # Of the instructions at hand: those behind a failed one are left out.
        self._letters_failed = self._rebuild_failed = False
        self._code: int | None = None
        self._short = False
        self._told_at = 0.0
        self._signals = 0

    def _commit_later(self, position: Position, note: str) -> None:
        # The source belongs to the loop's thread.
        self._to_commit = position, note

    def signal(self, number: int, frame: object = None) -> None:
        """Take a signal; a second one ends the process at once."""
        self._signals += 1
        if self._signals > 1:
            os._exit(128 + number)
        # Should the loop itself be stuck, in a client say, the end comes all the same.
        timer = Timer(LATEST_EXIT_SECONDS, leave, (exit_codes.UNFINISHED,))
        timer.daemon = True
        timer.start()
        self._events.put(m.SignalReceived(time.monotonic(), number))

    def run(self, started: m.Started) -> int:
        """Loop until the machine says `Exit`; return its code.

        The source is closed on return; the caller ends the process, for a thread may still work.
        Signals stay with the daemon: one more, while all is closed, still ends it at once.
        """
        for number in SIGNALS:
            signal.signal(number, self.signal)
        # The worker asks for Python's lock again after each kernel; at the default it would wait
        # 5 ms each time for a loop that is busy polling.
        sys.setswitchinterval(SWITCH_SECONDS)
        self._status.set_ready(True)
        self._supervisor.ready()
        try:
            self._tell(started)
            while self._code is None:
                self._round()
        finally:
            self._status.set_ready(False, "the daemon is ending")
            self._source.close()
        if self._worker.stop(1.0):
            log("debug", "threads-ended")
        return self._code

    def _round(self) -> None:
        self._status.beat()
        with suppress(Empty):
            while self._code is None:
                self._tell(self._events.get_nowait())
        if self._code is not None:
            return
        if self._to_commit is not None:
            self._commit()
        if self._asked is not None:
            self._poll()
        else:
            with suppress(Empty):
                self._tell(self._events.get(timeout=WAIT_SECONDS))
        now = time.monotonic()
        if now - self._told_at >= TICK_SECONDS and self._code is None:
            self._told_at = now
            self._supervisor.alive()
            self._look(now)
            self._tell(m.Tick(now))

    def _look(self, now: float) -> None:
        """Look at memory, lag and losses."""
        resident = resident_bytes()
        self._status.set_memory(resident)
        self._status.set_queue(self._machine.queued_bytes)
        lag = getattr(self._source, "lag", None)
        if lag is not None:
            self._status.set_lag(lag(), getattr(self._source, "lag_unit", "records"))
        lost = getattr(self._source, "lost", None)
        if lost is not None:
            self._status.set_lost(lost())
        if self._limit is not None:
            share = resident / self._limit
            short = share > (RELIEVED if self._short else SHORT)
            if short != self._short:
                self._short = short
                self._tell(m.MemoryPressure(now, short))

    def _commit(self) -> None:
        """Show offsets in the consumer group; none is ever read back from there."""
        shown, self._to_commit = self._to_commit, None
        commit = getattr(self._source, "commit", None)
        if commit is not None and shown is not None:
            try:
                commit(*shown)
            except StreamLDAError as error:
                log_failure("commit-failed", error)

    def _tell(self, event: m.Event) -> None:
        instructions = self._machine.handle(event)
        self._letters_failed = self._rebuild_failed = False
        for instruction in instructions:
            self._carry_out(instruction)
        phase = self._machine.phase
        self._status.set_phase(phase.value)
        if phase is Phase.EXHAUSTED:
            self._batches.clear()

    def _carry_out(self, instruction: m.Instruction) -> None:
        match instruction:
            case m.Poll(n):
                # Behind a rebuild that failed, that is the answer.
                if not self._rebuild_failed:
                    self._asked = n
            case m.Learn(number):
                numbers = [n for n in self._batches if n <= number]
                batches = [self._batches.pop(n) for n in numbers]
                self._learned_to = batches[-1][1]
                self._worker.learn([batch for batch, _ in batches])
            case m.Release():
                self._worker.release()
            case m.FlushDeadLetters():
                self._flush()
            case m.Checkpoint():
                # Behind the last batch given to the engine: learning is over before it is copied.
                if self._letters_failed:
                    self._events.put(m.Failed(time.monotonic(), "dead-letters"))
                else:
                    self._worker.checkpoint(self._learned_to)
            case m.Publish():
                self._worker.publish()
            case m.Pause():
                self._call("pause")
            case m.Resume():
                self._call("resume")
            case m.Rebuild():
                self._rebuild()
            case m.LogLine(level, event, values):
                log(level, event, **values)
            case m.Exit(code):
                self._supervisor.stopping()
                self._code = code

    def _call(self, name: str) -> None:
        # Sources without a client that fetches ahead have nothing to pause.
        method = getattr(self._source, name, None)
        if method is not None:
            method()

    def _flush(self) -> None:
        if self._dead_letters is None:
            return
        try:
            self._dead_letters.flush(FLUSH_SECONDS)
        except StreamLDAError as error:
            log_failure("dead-letters-failed", error)
            self._status.count_failure("dead-letters")
            self._letters_failed = True

    def _poll(self) -> None:
        asked, self._asked = self._asked, None
        assert asked is not None
        try:
            if asked == 0:
                self._tend()
                self._tell(m.Polled(time.monotonic(), 0, 0))
                return
            batch = self._source.poll(asked, WAIT_SECONDS)
            batch.check(asked)
            position = self._source.position()
        except StreamLDAError as error:
            log_failure("poll-failed", error)
            self._tell(m.SourceFailed(time.monotonic()))
            return
        self._status.polled()
        if batch.n_records:
            self._newest_batch += 1
            self._batches[self._newest_batch] = batch, position
            self._polled_to = position
        now, n_rejects = time.monotonic(), len(batch.rejects)
        self._tell(m.Polled(now, batch.n_records, batch.size_bytes, n_rejects, batch.exhausted))

    def _tend(self) -> None:
        """Let a paused client look after its connections."""
        if getattr(self._source, "pause", None) is not None:
            # While it is paused it brings nothing.
            self._source.poll(1, 0.0)

    def _rebuild(self) -> None:
        self._source.close()
        try:
            self._source = self._reopen()
            self._source.seek(self._polled_to)
        except StreamLDAError as error:
            log_failure("rebuild-failed", error)
            self._rebuild_failed = True
            self._events.put(m.SourceFailed(time.monotonic()))


def end_at_signals() -> None:
    """Let a signal end the process at once with code 0: nothing was begun that must be finished."""
    for number in SIGNALS:
        signal.signal(number, _end_at_once)


def _end_at_once(number: int, frame: object) -> None:
    log_from_signal("info", "signal", number=number, phase="starting")
    os._exit(exit_codes.OK)


def leave(code: int) -> NoReturn:
    """End the process at once, whatever threads still do: all that counts is on the disk."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
