"""Stages: how far two neighbouring streams are apart in what noise is added to.

Everything is taken from the real accumulators: documents in, sums on the grid out. Distances are
in the weighted coordinates of the mechanism, whose `l2_sensitivity` is the claim under test.
"""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from streamlda.errors import InvalidSettingError
from streamlda.privacy.events import NEIGHBORING_RELATIONS
from streamlda.privacy.mechanism import JointGaussian
from streamlda.privacy.noise import SeededNoise
from streamlda.private import contributions
from streamlda.private.contributions import FirstStatistic, PairStatistic, TripleStatistic
from streamlda.private.stage import (
    PrefixStage,
    groups_touched,
    joint_mechanism,
    prefix_mechanism,
    unit_blocks,
)
from streamlda.spectral.moments import BLOCK_DOCUMENTS
from tests.privacy.chance import ALARM
from tests.private.streams import (
    DOCUMENTS,
    KINDS,
    LONGEST,
    POOL,
    PROJECTION,
    D,
    apart,
    batch_of_counts,
    count_twice,
    filled,
    settings_of,
    stage_of,
    statistics_of,
)

#: Slots of a stage; also the most contributions in the largest group.
SLOTS = 24


def moved(kind, relation, *streams, bound=0.3, per_user=None, **options):
    """How far two streams are apart, over what the mechanism says at most."""
    config = settings_of(relation, per_user)
    return apart(lambda: statistics_of(kind, bound), config, streams, **options)


groups = st.sampled_from([1, 2, 3, 64])


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", KINDS)
@given(
    relation=st.sampled_from(NEIGHBORING_RELATIONS),
    stream=st.lists(DOCUMENTS, min_size=1, max_size=9),
    other=DOCUMENTS,
    slot=st.integers(0, 8),
    group=groups,
    bound=st.sampled_from([0.02, 0.3, 1.0]),
    cuts=st.sets(st.integers(0, 1), max_size=2),
)
def test_no_neighbours_are_farther_apart_than_the_sensitivity(
    kind, relation, stream, other, slot, group, bound, cuts
):
    changed = stream.copy()
    changed[slot % len(stream)] = {} if relation == "add-remove" else other
    assert moved(kind, relation, stream, changed, group=group, bound=bound, cuts=cuts) <= 1


@pytest.mark.fuzz
@pytest.mark.parametrize("kind", ["norms", "pairs dense", "all"])
@given(
    relation=st.sampled_from(NEIGHBORING_RELATIONS),
    stream=st.lists(st.tuples(DOCUMENTS, st.sampled_from("uuuab")), min_size=1, max_size=9),
    others=st.lists(st.tuples(DOCUMENTS, st.booleans()), min_size=9, max_size=9),
    g=st.integers(1, 3),
    group=groups,
)
def test_no_neighbours_by_user_are_farther_apart_than_the_sensitivity(
    kind, relation, stream, others, g, group
):
    here, names = map(list, zip(*stream, strict=True))
    there, changed = here.copy(), names.copy()
    for slot, (document, held) in enumerate(others[: len(stream)]):
        if names[slot] == "u":
            held &= relation == "replace-one"
            there[slot], changed[slot] = (document, "v") if held else ({}, None)
    users = names, changed
    assert moved(kind, relation, here, there, group=group, per_user=g, users=users) <= 1


#: Bounds at which one word of the longest row is at those of all blocks: below 1 it is clipped,
#: but then only one of the three moments that a triple part scales by one factor is at its own.
ATTAINED = [(kind, 1.0) for kind in KINDS] + [
    (kind, 0.3) for kind in KINDS if kind not in ("triples", "all")
]


@pytest.mark.parametrize(("kind", "bound"), ATTAINED)
def test_a_document_at_all_bounds_attains_the_sensitivity_of_add_remove(kind, bound):
    # One word: its norms are the largest there are.
    rest = [POOL["all words"], POOL["one word"], {}]
    streams = [POOL["longest row"], *rest], [{}, *rest]
    assert 0.99 < moved(kind, "add-remove", *streams, bound=bound) <= 1


def test_documents_at_all_bounds_attain_the_sensitivity_of_a_user():
    g = 3
    rest = [POOL["all words"], POOL["one word"], POOL["like another"]]
    own = [POOL["longest row"]] * (g + 2)
    here, there = [*own, *rest], [{}] * len(own) + rest
    users = ["u"] * len(own) + ["a", "a", "b"], [None] * len(own) + ["a", "a", "b"]
    for (kind, bound), group in itertools.product(ATTAINED, (1, 64)):
        options = {"bound": bound, "group": group, "per_user": g, "users": users}
        assert 0.99 < moved(kind, "add-remove", here, there, **options) <= 1


@pytest.mark.parametrize(
    ("kind", "one", "other", "least"),
    [
        ("norms", "longest row", "three words", 0.99),
        ("triple norms", "longest row", "shortest row", 0.99),
        ("pairs dense", "longest row", "one word", 0.99),
        # Documents with opposite pairs have the same words: their first frequencies, an eighth of
        # the squared bound with a factor of 2 to 4, are the same.
        ("pairs through a projection", "rows that cancel", "rows that cancel, reversed", 0.96),
        # At all bounds, as their rows have an eighth of the largest norm. Words with opposite rows
        # have the same W'P2 W, 0.15 of the square.
        ("triples", "one word", "its opposite", 0.99 * np.sqrt(0.85)),
    ],
)
def test_documents_at_all_bounds_attain_the_sensitivity_of_replace_one(kind, one, other, least):
    rest = [POOL["all words"], POOL["like another"]]
    streams, bound = (
        ([POOL[one], *rest], [POOL[other], *rest]),
        0.125 if kind == "triples" else 2e-3,
    )
    assert least < moved(kind, "replace-one", *streams, bound=bound) <= 1


def test_replacing_a_user_by_another_with_blanks_touches_groups_of_both():
    # Group by group: slots 0 and 1 against 2 and 3.
    one = POOL["longest row"]
    users = ["u"] * 4, [None, None, "v", "v"]
    streams = [one] * 4, [{}, {}, POOL["one word"], POOL["one word"]]
    assert moved("all", "replace-one", *streams, group=1, per_user=2, users=users) <= 1
    config = [settings_of(relation, g) for relation in NEIGHBORING_RELATIONS for g in (None, 2)]
    assert [groups_touched(each) for each in config] == [1, 2, 1, 4]
    # Where the grid is what limits the steps, each group touched makes them finer.
    for each in config:
        statistics, touched = statistics_of("all", 0.3), groups_touched(each)
        found = joint_mechanism(statistics, SLOTS, each, 1e6)
        blocks = unit_blocks(statistics, each)
        options = {"neighboring_relation": each.neighboring_relation, "n_max": SLOTS}
        one, same = (
            JointGaussian(blocks, 1e6, group_max=SLOTS, groups_touched=k, **options)
            for k in (1, touched)
        )
        assert found.steps == same.steps
        assert (found.steps == one.steps) == (touched == 1)


# Planted bugs: each must be seen by the same check on a few adversarial neighbours.

CASES = [
    ([POOL[name], *rest], [{}, *rest])
    for name in ("longest row", "huge", "one word")
    for rest in ([], [POOL["all words"]] * 9, [POOL["three words"], POOL["shortest row"]])
]

#: Rows that cancel out: hardly any bound on the tensor, but 2.9 times that on its pairs.
CANCEL = [([POOL["rows that cancel out"]], [{}])]

clip = contributions.clip_factors


def worst(kind, bound, cases):
    return max(moved(kind, "add-remove", *case, bound=bound) for case in cases)


def no_clipping(norms, bound):
    return np.ones(np.shape(norms))


def mean_clipping(norms, bound):
    return clip(np.full(np.shape(norms), np.mean(norms)), bound)


def twice(norms, bound):
    return 2 * clip(norms, bound)


def only(clipped):
    return lambda norms, bound: (clip if bound == clipped else no_clipping)(norms, bound)


@pytest.mark.parametrize(
    ("kind", "bound", "planted", "cases"),
    [
        *itertools.product(
            ["pairs dense", "pairs through a projection", "triples", "all"],
            [0.6],
            [no_clipping, mean_clipping, twice],
            [CASES],
        ),
        *(("all", 0.25, only(0.25 * LONGEST**power), CASES) for power in (0, 1, 3)),
        ("triples", 2 / (99 * 98) / 8, only(2 / (99 * 98) / 8 * LONGEST**3), CANCEL),
    ],
)
def test_wrong_clip_factors_are_seen(kind, bound, planted, cases, monkeypatch):
    assert worst(kind, bound, cases) <= 1
    monkeypatch.setattr(contributions, "clip_factors", planted)
    assert worst(kind, bound, cases) > 1.05


@pytest.mark.parametrize("statistic", [FirstStatistic, PairStatistic, TripleStatistic])
def test_a_document_that_counts_twice_is_seen(statistic, monkeypatch):
    assert worst("all", 0.3, CASES) <= 1
    count_twice(monkeypatch, statistic)
    assert worst("all", 0.3, CASES) > 1.05


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
                part.add(contributions.View(batch.rows(start, stop), everyone[start:stop]))
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
@given(cuts=st.sets(st.integers(0, 20), max_size=6), group=groups, skipped=st.booleans())
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


@pytest.mark.statistical
def test_a_sum_that_begins_with_noise_ends_with_twice_the_variance():
    """Blanks only; both sides of chi-squared at a false-alarm rate of 1e-5."""
    values, squares, noise = 0, {True: 0.0, False: 0.0}, SeededNoise(3)
    stddevs = {}
    for begun, _ in itertools.product(squares, range(60)):
        stage = stage_with()
        if begun:
            stage.begin_with(noise)
            assert all(array.any() for array in stage.aggregates.values())
        stage.skip(SLOTS)
        stddevs[begun] = stage.stddevs()
        for name, released in stage.release(noise).items():
            squares[begun] += float(np.sum((released / stddevs[begun][name]) ** 2))
            values += np.size(released) if begun else 0

    def accepted(square):
        return ALARM / 2 < stats.chi2.sf(square, values) < 1 - ALARM / 2

    assert accepted(squares[True])
    assert accepted(squares[False])
    # With a standard deviation of one draw only, or of two where there is one, it is refused.
    assert not accepted(2 * squares[True])
    assert not accepted(squares[False] / 2)
    expected = {name: np.sqrt(2) * stddev for name, stddev in stddevs[False].items()}
    assert stddevs[True] == pytest.approx(expected, rel=1e-15)


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
