"""When a clock ends what is running."""

from streamlda.stream.schedule import SnapshotClock


def test_a_clock_ends_what_has_records_after_its_time():
    clock = SnapshotClock(100.0)
    assert not clock.is_over(1e9, 5)  # it has not begun
    clock.restart(7.0)
    assert [clock.is_over(time, 5) for time in (7.0, 106.9, 107.0)] == [False, False, True]
    assert not clock.is_over(1e9, 0)  # nothing ends without a record
    clock.restart(107.0)
    assert not clock.is_over(206.9, 5)
    never = SnapshotClock(None)
    never.restart(0.0)
    assert not never.is_over(1e9, 5)
