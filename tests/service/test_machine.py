"""The daemon's brain: each rule by itself."""

import pytest

from streamlda.errors import InvalidSettingError
from streamlda.service.machine import Machine, Phase
from streamlda.service.messages import (
    BudgetExhausted,
    Checkpoint,
    CheckpointDone,
    CheckpointTaken,
    Exit,
    Failed,
    FlushDeadLetters,
    Learn,
    Learned,
    LogLine,
    MemoryPressure,
    Pause,
    Poll,
    Polled,
    Publish,
    Rebuild,
    Release,
    ReleaseDone,
    Resume,
    SignalReceived,
    SourceFailed,
    Started,
    Tick,
)
from streamlda.service.rules import Rules


def told(machine, event):
    """Return what the machine says to an event, without the log."""
    return [i for i in machine.handle(event) if not isinstance(i, LogLine)]


def saved(machine, time):
    """Return what the machine says to a checkpoint that is copied and written at once."""
    return told(machine, CheckpointTaken(time)) + told(machine, CheckpointDone(time))


def started(slots_left=1000, **rules):
    machine = Machine(Rules(poll_records=10, queue_bytes=100, **rules))
    assert told(machine, Started(0.0, slots_left)) == [Poll(10)]
    return machine


def learned_one(machine):
    assert told(machine, Polled(1.0, 10, 10)) == [Learn(1), Poll(10)]
    told(machine, Learned(1.5))


def test_it_learns_in_order_while_it_reads_on():
    machine = started()
    assert machine.phase is Phase.WARMUP
    assert told(machine, Polled(1.0, 10, 10)) == [Learn(1), Poll(10)]
    assert told(machine, Polled(2.0, 7, 10)) == [Poll(10)]
    assert told(machine, Learned(3.0, rounds=0)) == [Learn(2)]
    assert machine.phase is Phase.WARMUP
    out = machine.handle(Learned(4.0, rounds=1))
    assert out == [LogLine("info", "round", {"rounds": 1})]
    assert machine.phase is Phase.ROUNDS
    assert machine.queued_bytes == 0


def test_an_empty_poll_is_asked_again():
    assert told(started(), Polled(1.0, 0, 0)) == [Poll(10)]


def test_a_queue_that_is_full_pauses_and_resumes_at_half():
    machine = started()
    assert told(machine, Polled(1.0, 10, 60)) == [Learn(1), Poll(10)]
    assert told(machine, Polled(1.0, 10, 45)) == [Pause()]
    assert told(machine, Tick(2.0)) == [Poll(0)]
    assert told(machine, Polled(2.0, 0, 0)) == []
    # 45 of 100 bytes are left: less than half.
    assert told(machine, Learned(3.0)) == [Learn(2), Resume(), Poll(10)]


def test_no_poll_reaches_beyond_the_next_release():
    machine = started(slots_left=15)
    assert told(machine, Polled(1.0, 10, 1)) == [Learn(1), Poll(5)]
    assert told(machine, Polled(1.0, 5, 1)) == [Pause()]
    assert told(machine, Learned(2.0)) == [Learn(2)]
    assert told(machine, Learned(3.0)) == [Release()]
    assert told(machine, Tick(3.5)) == [Poll(0)]
    assert told(machine, ReleaseDone(4.0, True, 20)) == [
        Publish(),
        Checkpoint(2),
        Resume(),
    ]
    assert told(machine, Polled(4.5, 0, 0)) == [Poll(10)]
    # Nothing is learned before the checkpoint is on the disk.
    assert told(machine, Polled(5.0, 10, 1)) == [Poll(10)]
    assert saved(machine, 6.0) == [Learn(3)]


def test_a_release_that_was_due_when_the_process_died_is_made_first():
    machine = Machine(Rules())
    assert told(machine, Started(0.0, 0, snapshot=True)) == [Publish(), Release(), Pause()]


def test_checkpoints_come_by_time_and_only_if_something_was_learned():
    machine = started(checkpoint_seconds=60)
    assert told(machine, Tick(100.0)) == []
    assert told(machine, Polled(100.0, 10, 10)) == [Learn(1), Poll(10)]
    assert told(machine, Learned(100.5)) == [Checkpoint(1)]
    assert saved(machine, 101.0) == []
    assert told(machine, Polled(102.0, 10, 1)) == [Learn(2), Poll(10)]
    assert told(machine, Learned(110.0)) == []
    assert told(machine, Tick(160.9)) == []
    assert told(machine, Tick(161.0)) == [Checkpoint(2)]


def test_learning_goes_on_while_a_checkpoint_is_written_and_a_release_does_not():
    machine = started(slots_left=20, checkpoint_seconds=60)
    assert told(machine, Polled(1.0, 10, 10)) == [Learn(1), Poll(10)]
    assert told(machine, Polled(2.0, 10, 10)) == [Pause()]
    assert told(machine, Learned(61.0)) == [Checkpoint(1)]
    assert told(machine, CheckpointTaken(61.1)) == [Learn(2)]
    assert told(machine, Learned(61.2)) == []
    assert told(machine, CheckpointDone(61.3)) == [Release()]


def test_a_checkpoint_that_fails_in_writing_is_made_again():
    machine = started(checkpoint_seconds=60)
    learned_one(machine)
    assert told(machine, Tick(61.5)) == [Checkpoint(1)]
    assert told(machine, CheckpointTaken(62.0)) == []
    assert told(machine, Failed(62.5, "checkpoint")) == []
    assert told(machine, Tick(63.5)) == [Checkpoint(1)]
    assert saved(machine, 64.0) == []


def test_a_state_that_is_behind_an_unknown_release_is_saved_first():
    machine = Machine(Rules(poll_records=10))
    assert told(machine, Started(0.0, 10, unsaved=True)) == [Checkpoint(0), Poll(10)]
    assert told(machine, Polled(0.5, 10, 10)) == [Pause()]
    assert saved(machine, 1.0) == [Learn(1)]


def test_dead_letters_are_flushed_before_the_checkpoint_that_passes_them():
    machine = started(checkpoint_seconds=60)
    assert told(machine, Polled(1.0, 10, 10, rejects=3)) == [Learn(1), Poll(10)]
    assert told(machine, Learned(60.0)) == [FlushDeadLetters(), Checkpoint(1)]
    assert told(machine, Failed(61.0, "dead-letters")) == []
    assert told(machine, Tick(62.0)) == [FlushDeadLetters(), Checkpoint(1)]
    assert saved(machine, 63.0) == []
    assert told(machine, Polled(64.0, 10, 10)) == [Learn(2), Poll(10)]
    assert told(machine, Learned(130.0)) == [Checkpoint(2)]


def test_a_signal_finishes_the_batch_saves_and_exits_0():
    machine = started()
    told(machine, Polled(1.0, 10, 10))
    told(machine, Polled(1.0, 10, 10))
    assert told(machine, SignalReceived(2.0)) == [Pause()]
    assert machine.phase is Phase.DRAINING
    # The poll under way and the batch that waited are read again next time.
    assert told(machine, Polled(2.5, 10, 10)) == []
    assert told(machine, Learned(3.0)) == [Checkpoint(1)]
    assert saved(machine, 4.0) == [Exit(0)]
    assert machine.phase is Phase.STOPPED
    assert machine.handle(Tick(5.0)) == []


def test_a_signal_with_nothing_to_save_exits_at_once():
    assert told(started(), SignalReceived(1.0)) == [Exit(0)]
    machine = Machine(Rules())
    assert told(machine, Tick(0.0)) == []
    assert told(machine, SignalReceived(1.0)) == [Exit(0)]


@pytest.mark.parametrize(("number", "code"), [(15, 143), (2, 130)])
def test_a_second_signal_exits_at_once(number, code):
    machine = started()
    told(machine, Polled(1.0, 10, 10))
    told(machine, SignalReceived(2.0))
    assert told(machine, SignalReceived(2.0, number)) == [Exit(code)]


def test_the_grace_ends_what_does_not_answer():
    machine = started(grace_seconds=9)
    told(machine, Polled(1.0, 10, 10))
    told(machine, SignalReceived(2.0))
    assert told(machine, Tick(10.9)) == []
    assert told(machine, Tick(11.0)) == [Exit(75)]


def test_a_signal_during_a_release_waits_for_it_and_its_checkpoint():
    machine = started(slots_left=10)
    told(machine, Polled(1.0, 10, 10))
    assert told(machine, Learned(2.0)) == [Release()]
    assert told(machine, SignalReceived(3.0)) == []
    assert told(machine, ReleaseDone(4.0, True, 10)) == [Publish(), Checkpoint(1)]
    assert saved(machine, 5.0) == [Exit(0)]


def test_no_release_is_begun_after_a_signal():
    machine = started(slots_left=10)
    told(machine, Polled(1.0, 10, 10))
    told(machine, SignalReceived(1.0))
    assert told(machine, Learned(2.0)) == [Checkpoint(1)]
    assert saved(machine, 5.0) == [Exit(0)]


@pytest.mark.parametrize("refused", [True, False])
@pytest.mark.parametrize("stop", [True, False])
def test_with_no_release_left_it_saves_and_idles_or_stops(refused, stop):
    machine = started(slots_left=10, stop_when_exhausted=stop)
    told(machine, Polled(1.0, 10, 10))
    assert told(machine, Learned(2.0)) == [Release()]
    answer = BudgetExhausted(3.0) if refused else ReleaseDone(3.0, False, None)
    assert told(machine, answer) == [Checkpoint(1)]
    assert machine.phase is (Phase.DRAINING if stop else Phase.EXHAUSTED)
    if stop:
        assert saved(machine, 4.0) == [Exit(0)]
    else:
        assert saved(machine, 4.0) == []
        assert told(machine, Tick(9999.0)) == []
        assert told(machine, SignalReceived(10_000.0)) == [Exit(0)]


def test_a_start_without_a_release_left_reads_nothing():
    machine = Machine(Rules())
    assert told(machine, Started(0.0, None)) == [Pause()]
    machine = Machine(Rules(stop_when_exhausted=True))
    assert told(machine, Started(0.0, None))[-1] == Exit(0)


def test_a_source_that_ends_is_learned_to_its_end():
    machine = started()
    told(machine, Polled(1.0, 10, 10))
    assert told(machine, Polled(1.0, 10, 10, exhausted=True)) == [Pause()]
    assert told(machine, Learned(2.0)) == [Learn(2)]
    assert told(machine, Learned(3.0)) == [Checkpoint(2)]
    assert saved(machine, 4.0) == [Exit(0)]


def test_a_source_that_ends_is_released_once_more_if_asked_for():
    machine = started(release_at_end=True)
    told(machine, Polled(1.0, 10, 10, exhausted=True))
    assert told(machine, Learned(2.0)) == [Release()]
    assert told(machine, ReleaseDone(4.0, True, 1000)) == [Publish(), Checkpoint(1)]
    assert saved(machine, 4.0) == [Exit(0)]


def test_a_signal_cuts_the_end_of_a_source_short():
    machine = started()
    told(machine, Polled(1.0, 10, 10))
    told(machine, Polled(1.0, 10, 10, exhausted=True))
    assert told(machine, SignalReceived(2.0)) == []
    assert told(machine, Learned(2.0)) == [Checkpoint(1)]


def test_a_failed_source_is_rebuilt_ever_more_slowly_and_then_given_up():
    machine = started(attempts=3)
    assert told(machine, SourceFailed(10.0)) == []
    assert told(machine, Tick(10.9)) == []
    assert told(machine, Tick(11.0)) == [Rebuild(), Poll(10)]
    assert told(machine, SourceFailed(11.0)) == []
    assert told(machine, Tick(12.9)) == []
    assert told(machine, Tick(13.0)) == [Rebuild(), Poll(10)]
    assert told(machine, SourceFailed(14.0)) == [Exit(74)]


def test_a_source_that_brings_something_again_starts_counting_again():
    machine = started(attempts=2)
    for time in (10.0, 20.0, 30.0):
        told(machine, SourceFailed(time))
        assert told(machine, Tick(time + 1)) == [Rebuild(), Poll(10)]
        told(machine, Polled(time + 2, 1, 1))
    assert machine.phase is Phase.WARMUP


def test_a_fatal_failure_saves_what_was_learned():
    machine = started()
    learned_one(machine)
    assert told(machine, SourceFailed(2.0, fatal=True)) == [Checkpoint(1), Pause()]
    assert saved(machine, 3.0) == [Exit(74)]


def test_a_rebuilt_source_is_paused_again():
    machine = started()
    assert told(machine, Polled(1.0, 10, 200)) == [Learn(1), Pause()]
    assert told(machine, Tick(2.0)) == [Poll(0)]
    assert told(machine, SourceFailed(3.0)) == []
    assert told(machine, Tick(4.0)) == [Rebuild(), Pause()]


def test_the_breaker_trips_above_its_share_and_does_not_pass_the_bad_records():
    machine = started(breaker_records=20, breaker_share=0.5)
    told(machine, Polled(1.0, 10, 1, rejects=10))
    told(machine, Polled(1.0, 10, 1, rejects=0))
    assert machine.phase is Phase.WARMUP
    assert told(machine, Polled(1.0, 10, 1, rejects=6)) == [Pause()]  # 11 of 20
    assert machine.phase is Phase.DRAINING
    assert told(machine, Learned(2.0)) == [Exit(65)]


def test_short_memory_pauses_and_in_the_end_stops():
    machine = started(memory_patience_seconds=30)
    assert told(machine, MemoryPressure(1.0)) == [Pause()]
    assert told(machine, Polled(2.0, 10, 10)) == [Learn(1)]
    assert told(machine, MemoryPressure(3.0, short=False)) == [Resume(), Poll(10)]
    assert told(machine, MemoryPressure(4.0)) == [Pause()]
    told(machine, Learned(5.0))
    assert told(machine, Tick(33.9)) == []
    assert told(machine, Tick(34.0)) == [Checkpoint(1)]
    assert saved(machine, 35.0) == [Exit(71)]


@pytest.mark.parametrize(("outside", "code"), [(False, 70), (True, 74)])
@pytest.mark.parametrize("what", ["learn", "release"])
def test_work_that_fails_half_way_ends_without_saving(what, outside, code):
    machine = started(slots_left=10)
    told(machine, Polled(1.0, 10, 10))
    if what == "release":
        told(machine, Learned(2.0))
    assert told(machine, Failed(3.0, what, outside)) == [Exit(code)]


def test_nothing_is_learned_while_the_checkpoint_of_a_release_fails():
    machine = started(slots_left=10, attempts=3)
    told(machine, Polled(1.0, 10, 10))
    told(machine, Learned(2.0))
    assert Checkpoint(1) in told(machine, ReleaseDone(3.0, False, 10))
    assert told(machine, Failed(4.0, "checkpoint")) == []
    assert told(machine, Tick(4.9)) == []
    assert told(machine, Polled(4.9, 10, 10)) == [Pause()]
    assert told(machine, Tick(5.0)) == [Poll(0), Checkpoint(1)]
    assert told(machine, Polled(5.5, 0, 0)) == []
    assert told(machine, Failed(6.0, "checkpoint")) == []
    assert told(machine, Tick(8.0)) == [Poll(0), Checkpoint(1)]
    assert told(machine, Failed(9.0, "checkpoint")) == [Exit(74)]


def test_a_failed_publication_is_tried_again():
    machine = started(slots_left=10)
    told(machine, Polled(1.0, 10, 10))
    told(machine, Learned(2.0))
    told(machine, ReleaseDone(3.0, True, 10))
    assert Publish() not in told(machine, Failed(3.0, "publish"))
    assert Publish() in told(machine, Tick(4.0))
    assert Publish() not in told(machine, Tick(9.0))


@pytest.mark.parametrize(
    "event",
    [
        Learned(1.0),
        ReleaseDone(1.0, True, 5),
        BudgetExhausted(1.0),
        CheckpointTaken(1.0),
        CheckpointDone(1.0),
        Polled(1.0, 11, 5),
        Polled(1.0, 5, 5, rejects=6),
        Started(1.0, 5),
    ],
)
def test_answers_to_nothing_are_refused(event):
    with pytest.raises(InvalidSettingError, match="correct the shell"):
        started().handle(event)


@pytest.mark.parametrize(
    "wrong",
    [{"queue_bytes": 0}, {"poll_records": 0}, {"breaker_share": 1.5}, {"grace_seconds": -1.0}],
)
def test_rules_out_of_range_are_refused(wrong):
    with pytest.raises(InvalidSettingError, match=next(iter(wrong))):
        Rules(**wrong)
