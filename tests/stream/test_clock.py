"""When a clock ends what is running: by time, and privately at steps of record slots alone."""

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.private.learner import PrivateLearner
from streamlda.private.release_manager import ReleaseManager
from streamlda.private.settings import PrivateSettings
from streamlda.stream.schedule import CLOCKED_SLOTS, SnapshotClock


def test_a_clock_ends_what_has_records_after_its_time():
    clock = SnapshotClock(100.0, counts_slots=False)
    assert not clock.is_over(1e9, 5)  # it has not begun
    clock.restart(7.0)
    assert [clock.is_over(time, 5) for time in (7.0, 106.9, 107.0)] == [False, False, True]
    assert clock.is_over(95.0, 5, fraction=0.88)
    assert not clock.is_over(94.9, 5, fraction=0.88)
    assert not clock.is_over(1e9, 0)  # nothing ends without a record
    clock.restart(107.0)
    assert not clock.is_over(206.9, 5)
    assert clock.count_to_step(5, 1000) == 1000
    for counts_slots in (False, True):
        never = SnapshotClock(None, counts_slots=counts_slots)
        never.restart(0.0)
        assert not never.is_over(1e9, CLOCKED_SLOTS)
        assert never.count_to_step(5, 1000) == 1000


def test_what_counts_slots_ends_at_steps_of_them():
    clock = SnapshotClock(1.0, counts_slots=True)
    clock.restart(0.0)
    over = [records for records in range(3 * CLOCKED_SLOTS) if clock.is_over(1e9, records)]
    assert over == [CLOCKED_SLOTS, 2 * CLOCKED_SLOTS]
    assert clock.count_to_step(0, 1000) == CLOCKED_SLOTS
    assert clock.count_to_step(CLOCKED_SLOTS + 5, 1000) == CLOCKED_SLOTS - 5
    assert clock.count_to_step(CLOCKED_SLOTS + 5, 3) == 3


@pytest.mark.parametrize("mean", [2.0, 9.0])
def test_private_stages_end_by_their_fractions_of_the_time_whatever_documents_say(mean):
    """One slot a second: pairs have 88 % of the time, and each end is a multiple of the step."""
    settings = PrivateSettings(
        n_components=2,
        n_features=6,
        epsilon=8.0,
        delta=1e-5,
        documents_per_snapshot=100_000,
        clipping="worst-case",
    )
    learner = PrivateLearner(settings, ReleaseManager(), vocabulary="public")
    clock, rng = SnapshotClock(1000.0, counts_slots=True), np.random.default_rng(0)
    counts = rng.poisson(mean, (4000, 6))
    batch, ends, slots = DocumentBatch.from_matrix(counts), [0], 0
    clock.restart(0)
    while slots < 4000:
        if clock.is_over(slots, slots - ends[-1], learner.private.fraction_of_window):
            learner.release()
            clock.restart(slots)
            ends.append(slots)
        n = clock.count_to_step(slots - ends[-1], int(rng.integers(1, 100)))
        slots += learner.add(batch.rows(slots, min(slots + n, 4000)))
    # 880 s and 120 s, rounded up to steps of 64 slots.
    assert np.diff(ends).tolist() == [896, 128, 896, 128, 896, 128, 896]
