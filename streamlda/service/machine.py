"""The daemon's brain: events in, instructions out, and nothing else.

It does no input or output, starts no thread and reads no clock: the time is what events say. The
loop carries instructions out, in their order, and reports back. At any moment at most one poll is
under way, and beside it at most one work: `Learn`, `Release` or `Checkpoint`.

A batch is learned once, in order, and a checkpoint names the last batch learned. No poll reaches
beyond the slot where the next release is due. No release is made beside a checkpoint, and after one
nothing is learned until a checkpoint is on the disk. After the first signal nothing is begun but
the checkpoint, and `Exit` comes by the end of the grace; a second signal ends it at once. What
cannot be reached or written is tried again, ever more slowly, and shown; a source that is there and
cannot be read, `Rules.attempts` times. ``tests/service/stepwise.py`` holds it to that.
"""

from collections import deque
from enum import Enum

from streamlda.service import messages as m
from streamlda.service.rules import Breaker, Retry, Rules, SourceRetry
from streamlda.utils import exit_codes

#: Batches that are learned from at a time, at most: after a signal these are waited for.
MOST_BATCHES = 16


class Phase(Enum):
    """Phase of the daemon."""

    #: Until `StartDone`, however long the source is away; a signal ends it at once.
    STARTING = "starting"
    #: Records are read and learned (`Status` calls it warm-up before topics are shown).
    LEARNING = "learning"
    #: The budget or the horizon is used up: nothing is read, snapshots are still served.
    EXHAUSTED = "exhausted"
    #: An end was asked for: work under way is waited for, then saved.
    DRAINING = "draining"
    #: `Exit` was given; no event has an effect any more.
    STOPPED = "stopped"


class Machine:
    """Decides what to do next; see the module. Time O(1) an event, memory O(batches that wait)."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.phase = Phase.STARTING
        #: Bytes of the batches that wait or are being learned from.
        self.queued_bytes = 0
        self._queue: deque[tuple[int, int, int]] = deque()
        self._batches = 0
        self._learned = 0
        # Slots to the next release that are not polled, and that are not learned.
        self._left_to_poll: int | None = None
        self._left_to_learn: int | None = None
        self._asked: int | None = None
        self._work: m.Learn | m.Release | m.Checkpoint | None = None
        # A checkpoint is copied and being written.
        self._writing = False
        self._paused = False
        self._source = SourceRetry()
        self._letters = Retry("dead-letters")
        self._saving = Retry("checkpoint")
        self._storing = Retry("output")
        # A release was made and is not published.
        self._unstored = False
        # Something was learned since the last checkpoint; one must come before anything else.
        self._dirty = self._owed = False
        # Records learned since the last release, and when a clock ends what they are of.
        self._since_release = 0
        # A last release would give better topics than the one before did.
        self._unfinished = False
        self._released_at = 0.0
        # A clock ends no window before the words are known.
        self._has_words = False
        self._saved_at = 0.0
        self._breaker = Breaker(rules)
        self._signals = 0
        self._code = exit_codes.OK
        self._drain = False
        self._deadline: float | None = None

    def handle(self, event: m.Event) -> list[m.Instruction]:
        """Take an event and return the instructions for now, in order."""
        if self.phase is Phase.STOPPED:
            return []
        out: list[m.Instruction] = []
        match event:
            case m.StartDone():
                self._on_started(event, out)
            case m.PollDone():
                self._on_polled(event, out)
            case m.LearnDone():
                self._on_learned(event, out)
            case m.ReleaseDone():
                self._on_release(event, out)
            case m.BudgetExhausted():
                self._end_work(m.Release)
                self._no_release_left(event.time, out)
            case m.CheckpointTaken():
                self._end_work(m.Checkpoint)
                out += self._letters.note_success(event.time)
                self._writing = True
                # What is learned from now on is not in it.
                self._dirty = False
            case m.CheckpointDone():
                assert self._writing, "a checkpoint is taken before it is done"
                self._writing, self._owed = False, False
                self._saved_at = event.time
                out += self._saving.note_success(event.time)
            case m.RebuildDone():
                # The new client fetches until it is paused.
                self._source.opening = self._paused = False
            case m.WorkFailed():
                self._on_failed(event, out)
            case m.SourceFailed():
                self._on_source_failed(event, out)
            case m.SignalReceived():
                self._on_signal(event, out)
            case m.Tick():
                self._on_tick(event, out)
        if self.phase not in (Phase.STARTING, Phase.STOPPED):
            self._next(event.time, out)
        return out

    # Events.

    def _on_started(self, event: m.StartDone, out: list[m.Instruction]) -> None:
        assert self.phase is Phase.STARTING, "a start comes once"
        self._source.opening = False
        self._saved_at = event.time
        self._unstored = event.unsaved
        self._since_release, self._has_words = event.since_release, event.has_words
        self._unfinished = event.unfinished
        self._released_at = event.time
        self.phase = Phase.LEARNING
        if event.unsaved:
            return  # What is left, its `ReleaseDone` will say.
        self._left_to_poll = self._left_to_learn = event.slots_left
        if event.slots_left is None:
            self._no_release_left(event.time, out)

    def _on_polled(self, event: m.PollDone, out: list[m.Instruction]) -> None:
        asked, self._asked = self._asked, None
        assert asked is not None, "a poll was asked for"
        assert event.rejects <= event.records <= asked, "a poll brings no more than was asked"
        if asked:
            out += self._source.take_answer(event, self.rules.silent_seconds)
        if self.phase is not Phase.LEARNING:
            return  # It was asked for before the end was: its batch is read again next time.
        if event.records:
            self._batches += 1
            self._queue.append((self._batches, event.records, event.size_bytes))
            self.queued_bytes += event.size_bytes
            assert self._left_to_poll is not None
            self._left_to_poll -= event.records
            rejected = self._breaker.count(event.records, event.rejects)
            if rejected is not None:
                out.append(m.LogLine("error", "breaker", rejected))
                # Nothing is saved: with corrected settings these records are to be read again.
                self._exit(exit_codes.DATA, out)
                return
        if event.exhausted and self._code == exit_codes.OK:
            out.append(m.LogLine("info", "source-ended"))
            self._end(exit_codes.OK, None, drain=True)

    def _on_learned(self, event: m.LearnDone, out: list[m.Instruction]) -> None:
        work = self._work
        self._end_work(m.Learn)
        assert isinstance(work, m.Learn)
        assert self._left_to_learn is not None
        while self._queue and self._queue[0][0] <= work.batch:
            _, records, size = self._queue.popleft()
            self.queued_bytes -= size
            self._left_to_learn -= records
            self._since_release += records
        self._learned, self._dirty, self._has_words = work.batch, True, event.has_words

    def _on_release(self, event: m.ReleaseDone, out: list[m.Instruction]) -> None:
        self._end_work(m.Release)
        self._unstored = False
        out += self._storing.note_success(event.time)
        self._left_to_poll = self._left_to_learn = event.slots_left
        if event.slots_left is not None:
            # A clock may end what is running while records wait.
            self._left_to_poll = event.slots_left - sum(records for _, records, _ in self._queue)
        self._dirty = self._owed = True
        self._since_release = 0
        self._unfinished = event.unfinished
        self._released_at = event.time
        out.append(m.LogLine("info", "release", {"gave_topics": int(event.snapshot)}))
        if event.slots_left is None:
            self._no_release_left(event.time, out)

    def _no_release_left(self, time: float, out: list[m.Instruction]) -> None:
        out.append(m.LogLine("warning", "no-release-left"))
        self._left_to_poll = self._left_to_learn = None
        self._since_release = 0
        self._clear_queue()
        # Nothing is read any more, wherever it is.
        out += self._source.note_success(time)
        if self.phase is Phase.DRAINING:
            return
        self.phase = Phase.EXHAUSTED
        if self.rules.stop_when_exhausted:
            self._end(exit_codes.OK, time + self.rules.grace_seconds)

    def _on_failed(self, event: m.WorkFailed, out: list[m.Instruction]) -> None:
        if event.what == "output":
            self._end_work(m.Release)
            self._unstored = True
            out += self._storing.note_failure(event.time, event.reason)
            if self.phase is Phase.DRAINING and not self._drain:
                # Not saved: it is made again after the last checkpoint.
                self._exit(exit_codes.IO, out)
            return
        if event.what == "account":
            self._work = None
            if self._deadline is not None:
                self._exit(event.code, out)
                return
            # What is in memory cannot be trusted; the last checkpoint is whole.
            self.phase = Phase.STOPPED
            out.append(m.Reopen())
            return
        if event.what in ("learn", "release"):
            self._end_work(m.Learn if event.what == "learn" else m.Release)
            # What is in memory may be half done; the last checkpoint is whole.
            self._exit(event.code, out)
            return
        if self._writing:
            self._writing = False
        else:
            self._end_work(m.Checkpoint)
        self._dirty = True
        if event.what == "dead-letters":
            out += self._letters.note_failure(event.time, event.reason)
            self._saving.at = self._letters.at
            if self.phase is Phase.DRAINING and not self._drain:
                # The last checkpoint is before the oldest letter: all since is read again.
                out.append(m.LogLine("warning", "dead-letters-pending"))
                self._exit(self._code, out)
            return
        out += self._saving.note_failure(event.time, event.reason)
        if self.phase is Phase.DRAINING and not self._drain:
            # The last checkpoint is whole: all since is read again.
            self._exit(self._code or exit_codes.IO, out)

    def _on_source_failed(self, event: m.SourceFailed, out: list[m.Instruction]) -> None:
        self._asked = None
        out += self._source.take_failure(event)
        if event.what == "dead-letters":
            out += self._letters.note_stall(event.time, event.reason)
        if event.away:
            return
        damages = self._source.damages
        fatal = self.phase is Phase.STARTING or damages >= self.rules.attempts
        values = {"failures": damages, "fatal": int(fatal)}
        out.append(m.LogLine("error" if fatal else "warning", "source-failed", values))
        if self.phase is Phase.STARTING:
            self._exit(event.code, out)
        elif fatal and self.phase is not Phase.DRAINING:
            self._end(event.code, event.time + self.rules.grace_seconds)

    def _on_signal(self, event: m.SignalReceived, out: list[m.Instruction]) -> None:
        self._signals += 1
        out.append(m.LogLine("info", "signal", {"number": event.number, "count": self._signals}))
        if self._signals > 1:
            self._exit(128 + event.number, out)
        elif self.phase is Phase.STARTING:
            self._exit(exit_codes.OK, out)
        elif self.phase is Phase.DRAINING and not self._drain:
            assert self._deadline is not None
            self._deadline = min(self._deadline, event.time + self.rules.grace_seconds)
        else:
            self._end(exit_codes.OK, event.time + self.rules.grace_seconds)

    def _on_tick(self, event: m.Tick, out: list[m.Instruction]) -> None:
        if self._deadline is not None and event.time >= self._deadline:
            out.append(m.LogLine("error", "grace-over", {"work": type(self._work).__name__}))
            self._exit(exit_codes.UNFINISHED, out)
            return
        running = self.phase is Phase.LEARNING
        due = self._source.at is not None and not self._source.waits(event.time)
        if due and (running or self.phase is Phase.STARTING):
            self._source.opening = True
            out.append(m.Rebuild())
        if running and self._paused and self._asked is None and self._source.may_poll:
            self._asked = 0
            # The client looks after its connections only while it is polled.
            out.append(m.Poll(0))

    # What follows.

    def _next(self, time: float, out: list[m.Instruction]) -> None:
        if self._work is None:
            self._work = self._next_work(time)
            if self._work is not None:
                out.append(self._work)
            elif self.phase is Phase.DRAINING and not (
                self._saving.at is not None or self._writing or self._unstored
            ):
                self._exit(self._code, out)
                return
        self._pause_or_resume(out)
        left = self._left_to_poll
        if (
            self.phase is Phase.LEARNING
            and not self._paused
            and left
            and self._asked is None
            and self._source.may_poll
        ):
            self._asked = min(left, self.rules.poll_records)
            out.append(m.Poll(self._asked))

    def _next_work(self, time: float) -> m.Learn | m.Release | m.Checkpoint | None:
        checkpoint = m.Checkpoint(self._learned)
        if self._writing:
            # Only learning continues beside it, and not what is owed to it.
            going = self.phase is not Phase.DRAINING or self._drain
            if going and not self._owed and self._left_to_learn != 0 and self._queue:
                return self._learn_next()
            return None
        if self._unstored:
            return None if self._storing.waits(time) else m.Release()
        if self._saving.at is not None:
            return None if self._saving.waits(time) else checkpoint
        if self._owed:
            return checkpoint
        if self.phase is Phase.DRAINING and not self._drain:
            return checkpoint if self._dirty else None
        reading = self.phase is Phase.LEARNING
        window = self._has_words and self._since_release and self.rules.snapshot_seconds
        by_clock = window and time - self._released_at >= window
        if self._left_to_learn == 0 or (reading and by_clock):
            return m.Release()
        due = time - self._saved_at >= self.rules.checkpoint_seconds
        if self._dirty and (due or self.phase is Phase.EXHAUSTED):
            return checkpoint
        if self._queue:
            return self._learn_next()
        if self.phase is Phase.DRAINING:
            if self.rules.release_at_end and (self._since_release or self._unfinished):
                return m.Release(last=True)
            return checkpoint if self._dirty else None
        return None

    def _learn_next(self) -> m.Learn:
        """Take all that waits: one that learns slower than it is polled is not asked so often."""
        return m.Learn(self._queue[min(len(self._queue), MOST_BATCHES) - 1][0])

    def _pause_or_resume(self, out: list[m.Instruction]) -> None:
        limit = self.rules.queue_bytes
        full = self.queued_bytes >= (limit // 2 if self._paused else limit)
        reading = self.phase is Phase.LEARNING and bool(self._left_to_poll)
        pause = full or not reading
        if pause != self._paused:
            self._paused = pause
            out.append(m.Pause() if pause else m.Resume())

    def _end_work(self, kind: type[m.Learn] | type[m.Release] | type[m.Checkpoint]) -> None:
        assert isinstance(self._work, kind), "an answer belongs to the work under way"
        self._work = None

    def _end(self, code: int, deadline: float | None, *, drain: bool = False) -> None:
        """Begin to end; an end that is already under way keeps its code, and gets no longer."""
        if self.phase is not Phase.DRAINING:
            self._code = code
        self.phase, self._drain, self._deadline = Phase.DRAINING, drain, deadline
        if not drain:
            # A release that is not stored, or a checkpoint, is tried once more, at once.
            self._storing.at = self._saving.at = None
            self._clear_queue()

    def _clear_queue(self) -> None:
        """Forget batches that were not begun: they lie after the next checkpoint."""
        begun = self._work.batch if isinstance(self._work, m.Learn) else 0
        while self._queue and self._queue[-1][0] > begun:
            self.queued_bytes -= self._queue.pop()[2]

    def _exit(self, code: int, out: list[m.Instruction]) -> None:
        self.phase = Phase.STOPPED
        out.append(m.LogLine("info", "exit", {"code": code}))
        out.append(m.Exit(code))
