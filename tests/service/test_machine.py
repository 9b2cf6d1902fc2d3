"""The daemon's brain: each rule by itself."""

import numpy as np
import pytest

from streamlda.service import messages as m
from streamlda.service.machine import Machine, Phase
from streamlda.service.messages import Learn, LearnDone, Pause, Poll, PollDone, Tick
from streamlda.service.rules import Rules
from streamlda.service.running import make_rules
from streamlda.settings.load import load_settings

TEN = PollDone(1.0, 10, 10)


SHOWN = m.LogLine | m.ShowStall | m.ShowRecovery


def tell(machine, event):
    return [i for i in machine.handle(event) if not isinstance(i, SHOWN)]


def show(machine, event):
    return [i for i in machine.handle(event) if isinstance(i, m.ShowStall | m.ShowRecovery)]


def save(machine, time):
    """Return what the machine says to a checkpoint that is copied and written at once."""
    return tell(machine, m.CheckpointTaken(time)) + tell(machine, m.CheckpointDone(time))


def start_polling(slots_left=1000, batches=0, **rules):
    """Return a machine that polls; of the batches polled before, the first is being learned."""
    machine = Machine(Rules(poll_records=10, queue_bytes=100, **rules))
    assert tell(machine, m.StartDone(0.0, slots_left)) == [Poll(10)]
    for _ in range(batches):
        tell(machine, TEN)
    return machine


def test_checkpoints_come_by_time_and_only_if_something_was_learned():
    machine = start_polling(checkpoint_seconds=60)
    assert tell(machine, Tick(100.0)) == []
    assert tell(machine, PollDone(100.0, 10, 10)) == [Learn(1), Poll(10)]
    assert tell(machine, LearnDone(100.5)) == [m.Checkpoint(1)]
    assert save(machine, 101.0) == []
    assert tell(machine, PollDone(102.0, 10, 1)) == [Learn(2), Poll(10)]
    assert tell(machine, LearnDone(110.0)) == []
    assert tell(machine, Tick(160.9)) == []
    assert tell(machine, Tick(161.0)) == [m.Checkpoint(2)]
    assert tell(machine, m.CheckpointTaken(162.0)) == []
    assert tell(machine, m.WorkFailed(162.5, "checkpoint")) == []
    assert tell(machine, Tick(163.5)) == [m.Checkpoint(2)]
    assert save(machine, 164.0) == []


def test_a_start_continues_where_the_last_run_ended():
    for stop, start, instructions in (
        # A release was due when the process died.
        (False, m.StartDone(0.0, 0), [m.Release(), Pause()]),
        # The state is behind a release that no checkpoint knows of: its model is published first.
        (False, m.StartDone(0.0, 10, unsaved=True), [m.Release(), Pause()]),
        (True, m.StartDone(0.0, None, unsaved=True), [m.Release(), Pause()]),
        (False, m.StartDone(0.0, None), [Pause()]),
        (True, m.StartDone(0.0, None), [m.Exit(0)]),
    ):
        assert tell(Machine(Rules(stop_when_exhausted=stop)), start) == instructions


def test_a_clock_ends_a_window_once_the_words_are_known():
    machine = start_polling(snapshot_seconds=60, checkpoint_seconds=1e9, batches=2)
    assert tell(machine, LearnDone(61.0, has_words=False)) == [Learn(2)]
    assert tell(machine, LearnDone(62.0)) == [m.Release()]
    assert tell(machine, m.ReleaseDone(63.0, True, 1000)) == [m.Checkpoint(2)]
    assert save(machine, 64.0) == []
    assert tell(machine, Tick(500.0)) == []
    assert tell(machine, PollDone(501.0, 10, 10)) == [Learn(3), Poll(10)]
    assert tell(machine, LearnDone(501.5)) == [m.Release()]

    # No more is polled than the next window has room for.
    machine = start_polling(slots_left=25, snapshot_seconds=60, checkpoint_seconds=1e9, batches=2)
    assert tell(machine, LearnDone(61.0)) == [m.Release()]
    assert tell(machine, m.ReleaseDone(62.0, True, 15)) == [m.Checkpoint(1)]
    # Ten records wait and five were asked for before: the window has no room for others.
    assert tell(machine, PollDone(63.0, 5, 5)) == [Pause()]


def test_a_client_that_is_replaced_while_the_queue_is_full_is_paused_again():
    machine = start_polling()
    assert tell(machine, PollDone(1.0, 10, 100)) == [Learn(1), Pause()]
    assert tell(machine, Tick(2.0)) == [Poll(0)]
    assert tell(machine, m.SourceFailed(3.0, away=True)) == []
    assert tell(machine, Tick(4.0)) == [m.Rebuild()]
    assert tell(machine, m.RebuildDone(5.0)) == [Pause()]


@pytest.mark.parametrize("answer", [m.BudgetExhausted(3.0), m.ReleaseDone(3.0, False, None)])
@pytest.mark.parametrize("stop", [True, False])
def test_with_no_release_left_it_saves_and_idles_or_stops(answer, stop):
    machine = start_polling(slots_left=10, stop_when_exhausted=stop, batches=1)
    assert tell(machine, LearnDone(2.0)) == [m.Release()]
    assert tell(machine, answer) == [m.Checkpoint(1)]
    assert machine.phase is (Phase.DRAINING if stop else Phase.EXHAUSTED)
    if stop:
        assert save(machine, 4.0) == [m.Exit(0)]
    else:
        assert save(machine, 4.0) == []
        assert tell(machine, Tick(9999.0)) == []
        assert tell(machine, m.SignalReceived(10_000.0)) == [m.Exit(0)]


@pytest.mark.parametrize("after", ["end", "release", "signal"])
def test_a_source_that_ends_is_learned_to_its_end_unless_a_signal_comes(after):
    machine = start_polling(release_at_end=after == "release", batches=1)
    assert tell(machine, PollDone(1.0, 10, 10, exhausted=True)) == [Pause()]
    if after == "signal":
        assert tell(machine, m.SignalReceived(2.0)) == []
        assert tell(machine, LearnDone(2.0)) == [m.Checkpoint(1)]
        return
    assert tell(machine, LearnDone(2.0)) == [Learn(2)]
    if after == "release":
        assert tell(machine, LearnDone(3.0)) == [m.Release(last=True)]
        assert tell(machine, m.ReleaseDone(4.0, True, 1000)) == [m.Checkpoint(2)]
    else:
        assert tell(machine, LearnDone(3.0)) == [m.Checkpoint(2)]
    assert save(machine, 4.0) == [m.Exit(0)]


def test_a_source_that_is_there_and_fails_is_rebuilt_ever_more_slowly_and_then_given_up():
    assert tell(Machine(Rules()), m.SourceFailed(1.0, code=78)) == [m.Exit(78)], "at the start"
    machine = start_polling(attempts=3)
    for failed, pause in ((5.0, 1.0), (6.0, 2.0)):
        assert tell(machine, m.SourceFailed(failed)) == []
        assert tell(machine, Tick(failed + pause - 0.1)) == []
        assert tell(machine, Tick(failed + pause)) == [m.Rebuild()]
        assert tell(machine, m.RebuildDone(failed + pause)) == [Poll(10)]
    assert tell(machine, PollDone(9.0, 1, 1)) == [Learn(1), Poll(10)]
    for failed in (10.0, 30.0):
        # That it is away in between counts for nothing.
        assert tell(machine, m.SourceFailed(failed)) == []
        assert tell(machine, Tick(failed + 5)) == [m.Rebuild()]
        assert tell(machine, m.SourceFailed(failed + 5, away=True)) == []
        assert tell(machine, Tick(failed + 15)) == [m.Rebuild()]
        assert tell(machine, m.RebuildDone(failed + 15)) == [Poll(10)]
    assert tell(machine, LearnDone(50.0)) == []
    assert tell(machine, m.SourceFailed(50.0, code=78)) == [m.Checkpoint(1), Pause()]
    assert save(machine, 51.0) == [m.Exit(78)]


def test_a_source_that_is_away_is_waited_for_however_long_at_the_start_and_later():
    """Ten minutes, and then two hours: the clock is that of the events."""
    machine = Machine(Rules(poll_records=10, attempts=3))
    time = outlast(machine, 0.0, 600.0)
    assert machine.phase is Phase.STARTING
    assert tell(machine, m.StartDone(time, 1000)) == [Poll(10)]
    # The first poll that is answered ends it, not one of which that is not known yet.
    assert show(machine, PollDone(time, 0, 0, silent=None)) == []
    assert show(machine, PollDone(time, 0, 0)) == [m.ShowRecovery("source", time)]
    time = outlast(machine, time, 7200.0)
    assert tell(machine, m.RebuildDone(time)) == [Poll(10)]
    assert tell(machine, PollDone(time, 5, 5)) == [Learn(1), Poll(10)]


def outlast(machine, begun, seconds):
    """Let the source fail whenever it is opened; return the time of the last opening."""
    rebuilt, time = [], begun
    assert show(machine, m.SourceFailed(begun, True, "Gone")) == [m.ShowStall("source", "Gone")]
    while True:
        time += 1.0
        if tell(machine, Tick(time)) == [m.Rebuild()]:
            rebuilt.append(time)
            if time >= begun + seconds:
                break
            assert show(machine, m.SourceFailed(time, True, "Gone")) == []
    waits = np.diff([begun, *rebuilt])
    assert waits[:5].tolist() == [1.0, 2.0, 4.0, 8.0, 10.0]
    assert set(waits[5:]) == {10.0}
    return time


def test_a_source_that_falls_silent_is_shown_and_in_the_end_opened_again():
    machine = start_polling(silent_seconds=60)
    assert show(machine, PollDone(5.0, 0, 0)) == []
    stalled = m.ShowStall("source", "no-answer", 11.0)
    assert show(machine, PollDone(20.0, 0, 0, silent=11.0)) == [stalled]
    assert machine.handle(PollDone(60.0, 0, 0, silent=50.0)) == [Poll(10)]
    # Its records still count: of several partitions another one may be silent.
    assert tell(machine, PollDone(61.0, 5, 5, silent=51.0)) == [Learn(1), Poll(10)]
    assert tell(machine, PollDone(70.0, 0, 0, silent=60.5)) == []
    assert tell(machine, Tick(71.0)) == [m.Rebuild()]
    assert tell(machine, m.RebuildDone(72.0)) == [Poll(10)]
    assert show(machine, PollDone(73.0, 0, 0, silent=None)) == []
    assert show(machine, PollDone(74.0, 0, 0)) == [m.ShowRecovery("source", 65.0)]


def test_dead_letters_that_cannot_be_written_hold_up_the_checkpoint_and_never_end_it():
    machine = start_polling(checkpoint_seconds=60, attempts=3)
    tell(machine, PollDone(1.0, 10, 10, rejects=3))
    assert tell(machine, LearnDone(60.0)) == [m.Checkpoint(1)]
    failed = m.WorkFailed(61.0, "dead-letters", reason="Refused")
    assert show(machine, failed) == [m.ShowStall("dead-letters", "Refused")]
    time = 61.0
    while time < 4000.0:
        time += 1.0
        if tell(machine, Tick(time)):
            assert show(machine, m.WorkFailed(time, "dead-letters", reason="Refused")) == []
    while not (out := tell(machine, Tick(time))):
        time += 1.0
    assert out == [m.Checkpoint(1)]
    assert show(machine, m.CheckpointTaken(time)) == [m.ShowRecovery("dead-letters", time - 61.0)]
    assert tell(machine, m.CheckpointDone(time)) == []
    # Where too many wait, a poll fails for them: it is not the source that is shown.
    full = m.SourceFailed(time, True, "Refused", what="dead-letters")
    assert show(machine, full) == [m.ShowStall("dead-letters", "Refused")]
    assert tell(machine, Tick(time + 1)) == [m.Rebuild()]


def test_a_release_that_cannot_be_published_is_made_once_and_holds_up_all_else():
    machine = start_polling(slots_left=10, batches=1)
    assert tell(machine, LearnDone(2.0)) == [m.Release()]
    failed = m.WorkFailed(3.0, "output", reason="ENOSPC")
    assert show(machine, failed) == [m.ShowStall("output", "ENOSPC")]
    assert tell(machine, Tick(3.9)) == [Poll(0)]
    for time in range(10, 10_000, 30):
        # A tending poll comes once, as it is not answered.
        assert tell(machine, Tick(float(time))) == [m.Release()]
        tell(machine, m.WorkFailed(float(time), "output", reason="ENOSPC"))
    tell(machine, Tick(10_000.0))
    out = machine.handle(m.ReleaseDone(10_000.0, True, 10))
    assert m.ShowRecovery("output", 9997.0) in out
    assert [i for i in out if isinstance(i, m.Checkpoint)] == [m.Checkpoint(1)]


def test_the_breaker_trips_above_its_share_and_does_not_pass_the_bad_records():
    machine = start_polling(breaker_records=20, breaker_share=0.5)
    tell(machine, PollDone(1.0, 10, 1, rejects=10))
    tell(machine, PollDone(1.0, 10, 1, rejects=0))
    assert machine.phase is Phase.LEARNING
    # 11 of 20; what is under way would not be saved.
    assert tell(machine, PollDone(1.0, 10, 1, rejects=6)) == [m.Exit(65)]


def test_a_private_daemon_does_not_stop_for_one_more_rejected_record():
    given = {"kafka.bootstrap": "b", "kafka.topic": "t"}
    private = {"privacy.epsilon": 1.0, "privacy.delta": 1e-6, "privacy.ledger": "ledger"}
    private |= {"kafka.partitions": "3", "vocabulary.kind": "hashed"}
    for flags, phase in ((given, Phase.STOPPED), (given | private, Phase.LEARNING)):
        machine = Machine(make_rules(load_settings(None, {}, flags)))
        tell(machine, m.StartDone(0.0, 10**6))
        for rejects in [500] * 10 + [1000] * 5:
            tell(machine, PollDone(1.0, 1_000, 1, rejects=rejects))
        assert machine.phase is phase


@pytest.mark.parametrize("what", ["learn", "release"])
def test_work_that_fails_half_way_ends_with_its_code_and_without_saving(what):
    machine = start_polling(slots_left=10, batches=1)
    if what == "release":
        tell(machine, LearnDone(2.0))
    assert tell(machine, m.WorkFailed(3.0, what, 78)) == [m.Exit(78)]


@pytest.mark.parametrize("writing", [False, True])
def test_a_signal_while_checkpoints_cannot_be_written_ends_with_74_after_one_more_try(writing):
    machine = start_polling(checkpoint_seconds=60, batches=1)
    tell(machine, LearnDone(2.0))
    assert m.Checkpoint(1) in tell(machine, Tick(61.0))
    tell(machine, m.WorkFailed(62.0, "checkpoint"))
    assert tell(machine, m.SignalReceived(62.5)) == [m.Checkpoint(1), Pause()]
    if writing:
        tell(machine, m.CheckpointTaken(62.6))
    assert tell(machine, m.WorkFailed(63.0, "checkpoint")) == [m.Exit(74)]


def test_an_end_that_takes_too_long_is_cut_off_by_the_clock_or_a_second_signal():
    for last, code in ((Tick(11.1), 75), (m.SignalReceived(3.0, 2), 130)):
        machine = start_polling(batches=1)
        assert tell(machine, m.SignalReceived(2.0)) == [Pause()]
        assert tell(machine, Tick(10.9)) == []
        assert tell(machine, last) == [m.Exit(code)]
        assert machine.handle(LearnDone(12.0)) == []


def test_a_signal_while_letters_are_pending_ends_with_0_before_the_oldest_of_them():
    machine = start_polling(checkpoint_seconds=60, batches=1)
    tell(machine, LearnDone(2.0))
    tell(machine, PollDone(3.0, 10, 10, rejects=1))
    tell(machine, LearnDone(60.0))
    for time in range(61, 250, 31):
        tell(machine, m.WorkFailed(float(time), "dead-letters"))
        tell(machine, Tick(time + 30.0))
    tell(machine, m.WorkFailed(260.0, "dead-letters"))
    # The next attempt, of ten seconds later, is not waited for.
    out = tell(machine, m.SignalReceived(261.0))
    assert out == [m.Checkpoint(2), Pause()]
    assert tell(machine, m.WorkFailed(266.0, "dead-letters")) == [m.Exit(0)]
