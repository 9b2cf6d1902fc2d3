"""Stages: groups, blocks and slots of a sum, and what comes out. See also `test_sensitivity`."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlda.errors import InvalidSettingError
from streamlda.guarantee.noise import SeededNoise
from streamlda.private.contributions import TripleStatistic, View
from streamlda.private.stage import PrefixStage, joint_mechanism, prefix_mechanism
from streamlda.spectral.moments import BLOCK_DOCUMENTS
from tests.private.streams import (
    POOL,
    PROJECTION,
    D,
    batch_of_counts,
    filled,
    settings_of,
    stage_of,
    statistics_of,
)

#: Slots of a stage; also the most contributions in the largest group.
SLOTS = 24


# Groups, blocks, slots.


def random_documents(n, seed=0):
    rng = np.random.default_rng(seed)
    return [
        {int(w): int(rng.integers(1, 20)) for w in rng.permutation(D)[: rng.integers(0, D + 1)]}
        for _ in range(n)
    ]


#: With so little noise the steps of the grid are finer than the roundings of a sum.
FINE = 1e-3


def stage_with(config=None, kind="all", slots=SLOTS, group=None, multiplier=1.0):
    statistics = statistics_of(kind, 0.3)
    return stage_of(statistics, config or settings_of(), slots, group, multiplier)


def assert_same(sums, others):
    for name, array in sums.items():
        np.testing.assert_array_equal(array, others[name])


def test_sums_are_made_in_blocks_that_end_at_slots():
    """Other blocks give other doubles, which a fine grid shows; other batches must not."""
    n, config = BLOCK_DOCUMENTS + 900, settings_of()
    rows = random_documents(n, seed=3)
    batch, everyone = batch_of_counts(rows), np.ones(n, dtype=bool)

    def in_blocks(ends):
        statistics = statistics_of("all", 0.3)
        for start, stop in itertools.pairwise([0, *ends, n]):
            for part in statistics:
                part.add(View(batch.rows(start, stop), everyone[start:stop]))
        return {name: sums for part in statistics for name, sums in part.take().items()}

    stages = [
        filled(stage_with(slots=n, group=n, multiplier=FINE), rows, config, cuts=cuts)
        for cuts in ([], [1, 700, 4500], [BLOCK_DOCUMENTS - 1], range(400, n, 400))
    ]
    right, wrong = (
        stages[0].mechanism.to_grid(in_blocks(ends)) for ends in ([BLOCK_DOCUMENTS], [700])
    )
    assert any(np.any(right[name] != wrong[name]) for name in right)
    for stage in stages:
        assert_same(stage.aggregates, right)


@pytest.mark.parametrize("kind", ["norms", "pairs dense", "all"])
@settings(max_examples=12)
@given(
    cuts=st.sets(st.integers(0, 20), max_size=6),
    group=st.sampled_from([1, 2, 3, 64]),
    skipped=st.booleans(),
)
def test_sums_do_not_depend_on_the_cut_into_batches(kind, cuts, group, skipped):
    config, rows = settings_of(), random_documents(20)
    rows[5] = rows[6] = rows[19] = {}
    one, other = (stage_with(kind=kind, group=group, multiplier=FINE) for _ in range(2))
    filled(one, rows, config)
    if skipped:
        other.add(batch_of_counts(rows[:5]), np.ones(5, dtype=bool))
        other.skip(2)
        other.add(batch_of_counts(rows[7:19]), np.ones(12, dtype=bool))
        other.skip(1)
        other.flush()
    else:
        filled(other, rows, config, cuts=cuts)
    assert one.slots_filled == other.slots_filled == 20
    assert_same(one.aggregates, other.aggregates)


def test_documents_of_other_groups_keep_their_sums_to_the_last_bit():
    """What a long document does to the cut into batches does nothing to later groups."""
    config = settings_of()
    n = 3 * BLOCK_DOCUMENTS // 2
    rows = random_documents(n, seed=2)
    longest = [POOL["huge and mixed"], *rows[1:]]
    sums = []
    for documents, cuts in ((rows, [4096]), (longest, [1, 700, 4500]), (rows, [9, 5000])):
        stage = stage_with(slots=n, group=BLOCK_DOCUMENTS, multiplier=FINE)
        end = BLOCK_DOCUMENTS
        filled(stage, documents[:end], config, cuts=[c for c in cuts if c < end])
        before = {name: array.copy() for name, array in stage.aggregates.items()}
        filled(stage, documents[end:], config, cuts=[c - end for c in cuts if c > end])
        sums.append({name: stage.aggregates[name] - before[name] for name in before})
    for other in sums[1:]:
        assert_same(sums[0], other)


def test_rows_may_be_overwritten_once_they_were_added():
    rows = random_documents(12)
    expected, stage = filled(stage_with(group=8), rows, settings_of()), stage_with(group=8)
    for start in range(0, 12, 3):
        batch = batch_of_counts(rows[start : start + 3])
        counts = batch.counts.copy()
        owned = type(batch)(counts, batch.word_ids, batch.row_pointers, D)
        active = np.ones(3, dtype=bool)
        stage.add(owned, active)
        counts.setflags(write=True)
        counts[:] = 7.0
        active[:] = False
    stage.flush()
    assert_same(expected.aggregates, stage.aggregates)


def test_groups_get_smaller_where_terms_are_far_larger_than_the_bound():
    statistics = [TripleStatistic(PROJECTION, 8 * 2.0**-16, 0.12)]
    usual = joint_mechanism(statistics_of("triples", 0.3), 10**6, settings_of(), 1.0)

    def wide(d):
        return settings_of(n_features=d, epsilon=1.0, delta=1e-3)

    small = joint_mechanism(statistics, 10**6, wide(2**17), 1.0)
    assert small.group_max < usual.group_max == 4 * BLOCK_DOCUMENTS
    with pytest.raises(InvalidSettingError, match="rounding must cost"):
        joint_mechanism(statistics, 10**6, wide(2**22), 1.0)


# What comes out.


@pytest.mark.parametrize("kind", ["norms", "triple norms", "pairs dense", "all"])
def test_released_values_are_whole_steps_of_one_public_grid(kind):
    rows, found = random_documents(9), []
    for documents in (rows, [{}, *rows[1:]]):
        stage = filled(stage_with(kind=kind, group=2), documents, settings_of())
        released = stage.release(SeededNoise(1))
        shapes = {name: np.shape(array) for name, array in released.items()}
        assert shapes == {block.name: block.shape for block in stage.mechanism.blocks}
        for name, values in released.items():
            whole = values / stage.mechanism.steps[name]
            np.testing.assert_array_equal(whole, np.rint(whole))
        found.append((stage, released))
    (one, first), (other, second) = found
    assert one.mechanism.steps == other.mechanism.steps
    # With the same noise, the releases differ by the integers alone: any value that the one can
    # take the other can, too.
    for name, step in one.mechanism.steps.items():
        difference = one.aggregates[name] - other.aggregates[name]
        np.testing.assert_array_equal(first[name] - second[name], difference * step)


def test_rounds_release_the_sums_of_all_rounds_so_far():
    config = settings_of(mode="prefix", snapshots=3)
    rows = random_documents(12)

    def rounds(rows):
        """The mechanism of rounds of four rows each, and what each released with one seed."""
        statistics = [statistics_of("all", 0.3) for _ in range(3)]
        prefix = prefix_mechanism(statistics[0], 12, config, 1.0)
        noise, released = SeededNoise(4), []
        for first, own in zip((0, 4, 8), statistics, strict=True):
            stage = PrefixStage("prefix", first, first + 4, own, prefix)
            stddevs = stage.stddevs()
            released.append(filled(stage, rows[first : first + 4], config).release(noise))
            # The same before and after: it is the noise of this round's sum.
            assert stage.stddevs() == stddevs == prefix.stddevs(len(released))
        return prefix.mechanism, released

    (mechanism, released), (_, blank) = rounds(rows), rounds([{}] * 12)
    for t in range(3):
        stage = filled(stage_with(config, slots=12), rows[: 4 * (t + 1)], config)
        for name, values in stage.mechanism.from_grid(stage.aggregates).items():
            # Rounded to two grids, and noise of up to 10^4 steps taken off again.
            tolerance = 1e-6 * mechanism.stddevs[name]
            difference = released[t][name] - blank[t][name]
            np.testing.assert_allclose(difference, values, rtol=0, atol=tolerance)
