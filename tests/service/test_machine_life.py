"""The daemon's brain under whatever may come, in any order: what it promises holds."""

import pytest
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from streamlda.service import messages as m
from streamlda.service.machine import Machine, Phase
from streamlda.service.messages import Checkpoint, Exit, Learn, Poll, Release, SignalReceived, Tick
from streamlda.service.rules import Rules

LIMIT, MOST_BYTES = 1000, 400
RULES = {"queue_bytes": LIMIT, "poll_records": 16, "checkpoint_seconds": 5}
RULES |= {"breaker_records": 50, "attempts": 3}


def rarely(n):
    """Return a choice that is True once in n times, and False when shrunk."""
    return st.sampled_from([False] * (n - 1) + [True])


class Life(RuleBasedStateMachine):
    """A daemon to which anything may happen in any order; the shell is an honest one.

    Each list of instructions is checked against what the module promises.
    """

    @initialize(slots=st.integers(0, 60), stop=st.booleans(), at_end=st.booleans())
    def start(self, slots, stop, at_end):
        rules = Rules(**RULES, stop_when_exhausted=stop, release_at_end=at_end)
        self.machine, self.at_end, self.time = Machine(rules), at_end, 0.0
        self.polled, self.learned, self.saved = 0, 0, 0
        self.lost_letters = False
        self.writing, self.records = None, {}
        self.left = self.left_to_poll = slots
        self.poll = self.work = self.code = self.signalled_at = None
        self.owed = self.paused = self.ended = self.opening = self.unstored = False
        self.tell(m.Started(0.0, slots))

    def tell(self, event):
        before, signalled = self.code, self.signalled_at
        out = self.machine.handle(event)
        if before is not None:
            assert out == []
        for instruction in out:
            assert self.code is None, "nothing comes after Exit"
            self.carry_out(instruction, event)
        if signalled is not None and self.code is None:
            assert not isinstance(event, SignalReceived), "a second signal exits at once"
            assert not (isinstance(event, Tick) and self.time >= signalled + 9.0)

    def carry_out(self, instruction, event):
        match instruction:
            case Poll(n):
                assert self.poll is None
                assert not self.opening
                assert self.signalled_at is None
                assert n <= min(16, 0 if self.paused else self.left_to_poll)
                self.poll = n
            case Learn(n):
                self.begin(instruction)
                assert self.learned < n <= self.polled
                assert not self.owed, "a checkpoint comes after a release before further learning"
            case Release():
                self.begin(instruction, after_signal=self.unstored)
                assert self.left == 0 or (self.ended and self.at_end) or self.unstored
                assert not self.owed, "never two releases without a checkpoint between"
                assert self.writing is None, "a release is not made beside a checkpoint"
            case Checkpoint(n):
                self.begin(instruction, after_signal=True)
                assert n == self.learned
                assert not self.unstored, "what is released is stored before a state behind it is"
                assert self.writing is None
            case m.Pause():
                assert not self.paused
                self.paused = True
            case m.Resume():
                assert self.paused
                self.paused = False
            case m.Rebuild():
                assert self.poll is None
                assert not self.opening
                self.opening = True
            case Exit(code):
                self.code = code
                if isinstance(event, SignalReceived) and self.signalled_at is not None:
                    assert code == 143
                elif code == 0:
                    assert self.work is None
                    assert self.writing is None
                    if not self.lost_letters:
                        assert not self.owed
                        assert self.saved == self.learned, "what was learned is on the disk"

    def begin(self, work, after_signal=False):
        assert self.work is None
        assert after_signal or self.signalled_at is None
        self.work = work

    @precondition(lambda self: self.poll is not None)
    @rule(
        share=st.floats(0.2, 1),
        size=st.integers(0, MOST_BYTES),
        bad=st.sampled_from([0.0, 0.0, 0.0, 0.1, 0.5, 1.0]),
        last=rarely(40),
    )
    def answer_poll(self, share, size, bad, last):
        n, self.poll = round(share * self.poll), None
        rejects = round(bad * n)
        waiting = self.machine.phase is Phase.LEARNING
        if n and waiting:
            self.polled += 1
            self.records[self.polled] = n
            self.left_to_poll -= n
        self.ended = self.ended or (last and waiting)
        self.tell(m.Polled(self.time, n, size, rejects, exhausted=last))

    @precondition(lambda self: self.work is not None)
    @rule(
        fails=rarely(30),
        slots=st.sampled_from([60, 40, 20, 5, 1, None]),
        refused=rarely(12),
        full=rarely(4),
        pending=rarely(3),
    )
    def answer_work(self, fails, slots, refused, full, pending):
        self.answer(fails, slots, refused and not self.unstored, full, pending)

    def answer(self, fails=False, slots=10, refused=False, full=False, pending=False):
        work, self.work = self.work, None
        names = {Learn: "learn", Release: "release", Checkpoint: "checkpoint"}
        if pending and isinstance(work, Checkpoint):
            self.lost_letters = True
            self.tell(m.Failed(self.time, "dead-letters"))
        elif full and isinstance(work, Release):
            self.unstored = True
            self.tell(m.Failed(self.time, "output"))
        elif fails:
            self.tell(m.Failed(self.time, names[type(work)]))
        elif isinstance(work, Learn):
            self.left -= sum(self.records[n] for n in range(self.learned + 1, work.batch + 1))
            self.learned = work.batch
            self.tell(m.Learned(self.time))
        elif isinstance(work, Checkpoint):
            self.writing = work.batch
            self.tell(m.CheckpointTaken(self.time))
        elif refused:
            self.left = self.left_to_poll = 0
            self.tell(m.BudgetExhausted(self.time))
        else:
            self.left = self.left_to_poll = slots or 0
            self.owed, self.unstored = True, False
            self.tell(m.ReleaseDone(self.time, True, slots))

    @precondition(lambda self: self.writing is not None)
    @rule(fails=rarely(10))
    def answer_writing(self, fails):
        self.end_writing(fails)

    def end_writing(self, fails=False):
        written, self.writing = self.writing, None
        if fails:
            self.tell(m.Failed(self.time, "checkpoint"))
        else:
            self.saved, self.owed = written, False
            self.tell(m.CheckpointDone(self.time))

    @precondition(lambda self: self.poll is not None)
    @rule(happens=rarely(3), away=st.booleans())
    def fail_poll(self, happens, away):
        if happens:
            self.poll = None
            self.tell(m.SourceFailed(self.time, away))

    @precondition(lambda self: self.opening)
    @rule(fails=rarely(3), away=st.booleans())
    def answer_opening(self, fails, away):
        self.opening = False
        if fails:
            self.tell(m.SourceFailed(self.time, away))
        else:
            # The new client fetches until it is paused.
            self.paused = False
            self.tell(m.Opened(self.time))

    @rule(seconds=st.sampled_from([0.1, 1.0, 1.0, 3.0, 20.0]))
    def tick(self, seconds):
        self.time += seconds
        self.tell(Tick(self.time))

    @precondition(lambda self: self.learned > 2 or self.time > 20)
    @rule(happens=rarely(12))
    def signal(self, happens):
        if happens and self.signalled_at is None:
            self.tell_signal()
        elif happens:
            self.tell(SignalReceived(self.time))
            assert self.code is not None

    def tell_signal(self):
        """Send the first signal; from its own instructions on, nothing new may be begun."""
        running, self.signalled_at = self.code is None, self.time
        out = self.machine.handle(SignalReceived(self.time))
        assert running or out == []
        for instruction in out:
            self.carry_out(instruction, Tick(self.time))

    @invariant()
    def the_queue_is_bounded(self):
        if hasattr(self, "machine"):
            assert self.machine.queued_bytes < LIMIT + MOST_BYTES

    def teardown(self):
        """Whatever happened: a signal, all work answered, and it ends well within the grace."""
        if not hasattr(self, "machine") or self.code is not None:
            return
        ending = self.machine.phase is Phase.DRAINING and not self.ended
        if self.signalled_at is None:
            self.tell_signal()
        turns = iter(range(100))
        while self.code is None and next(turns, None) is not None:
            self.time += 0.05
            if self.work is not None:
                self.answer()
            elif self.writing is not None:
                self.end_writing()
            else:
                self.tell(Tick(self.time))
        late = self.code == 75 and self.time >= self.signalled_at + 9.0
        assert self.code == 0 or (ending and self.code in (65, 71, 74)) or late


Life.TestCase.settings = hypothesis_settings(stateful_step_count=100)
TestLife = pytest.mark.fuzz(Life.TestCase)
