"""The private learner: slots, stages and windows; nothing but noisy sums reaches a snapshot."""

from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, InvalidDocumentsError, InvalidSettingError
from streamlda.guarantee.noise import SeededNoise
from streamlda.privacy.clipping import ClipBounds, norm_edges
from streamlda.private.learner import PrivateLearner
from streamlda.private.window import TELLING_SLOTS, Window
from tests.corpora import batch_of
from tests.private.streams import (
    Run,
    assert_same_runs,
    assert_same_sums,
    batch_of_counts,
    run,
    settings_of,
)

D = 6
#: Slots of a window: a small one that noise of epsilon 20 leaves readable.
N = 600


config_of = partial(settings_of, n_features=D, documents_per_snapshot=N)
user_settings = partial(config_of, per_user=2, snapshots=2, delta=1e-2, epsilon=25.0)


def planted(n, seed=0):
    rng = np.random.default_rng(seed)
    topics = np.full((2, D), 0.02)
    topics[0, : D // 2] = topics[1, D // 2 :] = 1.02
    topics /= topics.sum(axis=1, keepdims=True)
    return [rng.choice(D, 12, p=topics[int(rng.integers(2))]).tolist() for _ in range(n)]


ROWS = batch_of(planted(2 * N), D)

#: Released pairs of a window that is lost in noise.
LOST = {"first": np.ones(D), "pair": np.zeros(21), "pair_kept": np.array(-1.0)}


@settings(max_examples=15)
@given(cuts=st.sets(st.integers(0, 2 * N), max_size=12))
def test_the_cut_into_batches_changes_nothing(cuts):
    one, other = run(config_of(), ROWS), run(config_of(), ROWS, cuts=cuts)
    assert_same_runs(one, other)


def test_stages_end_at_the_slots_of_the_settings_and_windows_follow_each_other():
    config = config_of()
    ends = [("norms", 9), ("pairs", 519), ("triple norms", 528), ("triples", 600)]
    assert [(name, last) for name, _, last in config.stage_slots()] == ends
    own = run(config, ROWS, first_slot=1000)
    shifts = (1000, 1000 + N)
    moved = [(n, a + shift, b + shift) for shift in shifts for n, a, b in config.stage_slots()]
    assert own.stages == moved
    assert own.learner.slots == 1000 + 2 * N
    assert [s.number for s in own.snapshots] == [1, 2]
    for window, snapshot in enumerate(own.snapshots):
        kept = [(s.name, s.first, s.last + 1) for s in snapshot.stages]
        assert kept == moved[4 * window : 4 * window + 4]
        multipliers = {s.noise_multiplier for s in snapshot.stages}
        assert multipliers == {config.noise_multiplier}
    # Topics are found at all: what the other tests compare is no accident of noise.
    halves = own.snapshots[0].topics.components[:, : D // 2].sum(axis=1)
    assert len(halves) == 2
    assert min(halves) < 0.2
    assert max(halves) > 0.8


def test_blanks_take_slots_and_add_nothing():
    # Every third row is blank: an empty row, a short one, or a skipped slot.
    documents = planted(N)
    blanks = [[] if n % 3 == 0 else t for n, t in enumerate(documents)]
    short = [[0, 1] if n % 3 == 0 else t for n, t in enumerate(documents)]
    skipped = Run(config_of())
    for n, tokens in enumerate(documents):
        if n % 3 == 0:
            assert skipped.learner.skip(1) == 1
            skipped.settle()
        else:
            skipped.add(batch_of([tokens], D))
    one = run(config_of(), batch_of(blanks, D))
    for other in (run(config_of(), batch_of(short, D)), skipped):
        assert_same_runs(one, other)


def test_nothing_is_taken_while_a_release_is_due():
    learner = PrivateLearner(config_of())
    assert learner.add(ROWS.rows(0, 5)) == 5
    assert learner.due_stage is None
    assert learner.skip(100) == 4
    for call in (lambda: learner.add(ROWS), lambda: learner.skip(1), learner.end_stage):
        with pytest.raises(InvalidSettingError, match="a release is due"):
            call()
    due = learner.due_stage
    assert (learner.slots, due.name, due.first, due.last) == (9, "norms", 0, 9)
    released = due.release(SeededNoise(1))
    with pytest.raises(InvalidSettingError, match="noise of a release was drawn"):
        learner.due_stage.release(SeededNoise(2))
    learner.accept(released)
    assert learner.due_stage is None
    assert learner.stage.name == "pairs"
    with pytest.raises(InvalidSettingError, match="no release is due"):
        learner.accept({})


def test_a_stage_can_end_before_its_last_slot():
    own = Run(config_of())
    with pytest.raises(InsufficientDataError, match="slots=0"):
        own.learner.end_stage()
    own.add(ROWS.rows(0, 300))
    own.learner.end_stage()
    own.save(and_restore=True)
    due = own.learner.due_stage
    assert (due.name, due.first, due.last) == ("pairs", 9, 300)
    own.settle()
    # The next stage has its own number of slots, from there.
    own.add(ROWS.rows(300, 2 * N))
    assert own.stages[2:4] == [("triple norms", 300, 309), ("triples", 309, 381)]
    assert own.snapshots[0].stages[1].last == 299


def test_no_more_than_g_documents_of_a_user_count_in_a_stage():
    users = [f"u{n % 7}" if n % 2 else f"own{n}" for n in range(2 * N)]
    own = run(user_settings(), ROWS, users)
    # What counts, by hand: the first two of each user from the slot where a stage begins; under a
    # name of its own, so that nothing else can keep it out.
    counted = []
    for _, first, last in own.stages:
        for slot in range(first, last):
            earlier = users[first:slot].count(users[slot])
            counted.append(f"own{slot}" if earlier < 2 else None)
    assert 0 < counted.count(None) < N
    assert_same_sums(own, run(user_settings(), ROWS, counted))
    # A restart forgets no user of the running stage.
    resumed = Run(user_settings()).add(ROWS, users, stop=300)
    resumed.save(and_restore=True)
    assert_same_runs(own, resumed.add(ROWS, users, start=300))
    for nobody in (None, [None] * N, [""] * N):
        blank = run(user_settings(clipping="worst-case"), ROWS.rows(0, N), nobody)
        assert not any(array.any() for array in blank.raw[0].values())
    # Had all counted, the sums would be others.
    free = run(user_settings(), ROWS, [f"own{n}" for n in range(2 * N)])
    assert free.raw[1]["pair_kept"] > own.raw[1]["pair_kept"]


def test_rounds_of_prefix_sums_count_users_again_and_are_added_as_they_are():
    config = user_settings(mode="prefix", snapshots=3, clipping="worst-case")
    users = [f"own{n}" for n in range(N)] + ["one"] * (2 * N)
    own = run(config, batch_of(planted(3 * N), D), users)
    assert [name for name, *_ in own.stages] == ["pairs", "triples", "prefix", "prefix"]
    kept = [float(raw["pair_kept"]) for raw in own.raw[2:]]
    assert kept[0] == kept[1] > 0
    step = own.learner._prefix.mechanism.steps["pair_kept"]
    assert kept[0] * step == pytest.approx(config.documents_per_user, rel=1e-6)
    prefix = own.learner._prefix
    for name, stddev in prefix.mechanism.stddevs.items():
        found = [prefix.stddevs(t)[name] / stddev for t in (1, 2)]
        assert found == pytest.approx([1, np.sqrt(2)])


def test_bounds_are_known_or_come_from_the_released_histograms():
    worst = run(config_of(clipping="worst-case"), ROWS)
    assert worst.stages[:2] == [("pairs", 0, 528), ("triples", 528, 600)]
    bounds = worst.snapshots[0].bounds
    assert (bounds.first, bounds.pair) == (1.0, pytest.approx(1.0))
    assert worst.snapshots[1].bounds.triple != bounds.triple
    public = ClipBounds(0.6, 0.4, 5.0, "fixed")
    own = run(config_of(clipping=public), ROWS.rows(0, N))
    assert (own.stages, own.snapshots[0].bounds) == (worst.stages[:2], public)
    own = run(config_of(), ROWS.rows(0, N))
    assert own.snapshots[0].bounds.first < 1.0
    # The same sums again, with all norms in the lowest bin: bounds stay where stages can be made.
    learner = PrivateLearner(config_of())
    learner.add(ROWS)
    fed = {name: np.zeros(array.shape) for name, array in own.released[0].items()}
    for counts in fed.values():
        counts[0] = 1e9
    learner.accept(fed)
    block = learner.stage.mechanism.blocks[0]
    assert 0 < block.l2_clip_norm <= norm_edges(1.0)[0]


def test_prefix_rounds_follow_the_first_window_and_end_at_the_horizon():
    batch = batch_of(planted(4 * N), D)
    own = run(config_of(mode="prefix", snapshots=3), batch)
    assert own.stages[3:] == [("triples", 528, 600), ("prefix", 600, 1200), ("prefix", 1200, 1800)]
    assert [s.number for s in own.snapshots] == [1, 2, 3]
    assert (own.learner.stage, own.learner.due, own.learner.slots) == (None, None, 3 * N)
    for call in (lambda: own.learner.add(batch), lambda: own.learner.skip(1)):
        with pytest.raises(InvalidSettingError, match="come after the last snapshot"):
            call()
    # All in the basis of the first window; the sums of the rounds add up, within their noise.
    assert own.snapshots[1].bounds == own.snapshots[2].bounds == own.snapshots[0].bounds
    first, second = (float(released["pair_kept"]) for released in own.released[4:])
    assert second > 1.5 * first


def test_prefix_sums_continue_without_a_horizon_and_a_document_pays_once_for_all():
    own = Run(config_of(mode="prefix"))
    batch = batch_of(planted(2 * N), D)
    for _ in range(12):
        own.add(batch.rows(0, N))
    own.save(and_restore=True)
    own.add(batch)
    assert [s.number for s in own.snapshots] == list(range(1, 15))
    first, *_, last = own.snapshots[-1].stages
    assert (first.first, last.name, last.first, last.last) == (0, "prefix", N, 14 * N - 1)
    assert len(own.snapshots[-1].stages) == len(own.snapshots[0].stages) + 1
    assert own.learner.stage.first == 14 * N
    # All rounds stay below the sensitivity that is paid for: the noise of a row is the same.
    noise = [own.learner._prefix.stddevs(t)["pair"] for t in (1, 12, 100, 1000)]
    assert noise == sorted(noise)
    assert noise[-1] < 3.2 * noise[0]


def test_a_round_that_is_lost_is_one_of_the_horizon():
    own = Run(config_of(mode="prefix", snapshots=3))
    own.add(ROWS.rows(0, N + 1))
    stage = own.learner.stage
    own.add(ROWS.rows(N + 1, 2 * N - 1))
    own.learner.skip(1)
    released = own.learner.due_stage.release(own.noise)
    own.learner.accept({**released, "triple_kept": np.array(-1.0)})
    assert "more documents than its noise hides" in own.learner.private.missed
    assert own.learner.stage is not stage
    own.add(ROWS.rows(0, N))
    assert own.learner.stage is None
    assert [s.number for s in own.snapshots] == [1, 2]


@pytest.mark.parametrize("of", ["config_of", "user_settings"])
@pytest.mark.parametrize(("snapshots", "made"), [(4, 3), (2, 1), (1, 0)])
def test_releases_of_a_lost_first_window_are_of_the_horizon(snapshots, made, of):
    config = globals()[of](mode="prefix", snapshots=snapshots, clipping="worst-case")
    own = Run(config)
    own.learner.skip(N)
    own.settle(LOST)
    own.save(and_restore=True)
    own.add(batch_of(planted(4 * N), D), [f"own{n}" for n in range(4 * N)])
    assert own.learner.stage is None
    assert (own.lost, len(own.snapshots)) == (1, made)
    most = config.n_stages + snapshots - 1
    assert len(own.stages) == most or (made == 0 and len(own.stages) < most)


def test_a_lost_window_is_followed_by_the_next_and_only_users_pay_for_it():
    for config in (user_settings, config_of):
        own = Run(config(snapshots=2, clipping="worst-case"))
        for lost in (1, 2):
            own.learner.skip(N)
            own.settle(LOST)
            own.save(and_restore=True)
            stage = own.learner.stage
            assert (own.lost, own.learner.slots) == (lost, 528 * lost)
            if lost == 1 or config is config_of:
                assert (stage.name, stage.first, stage.slots_filled) == ("pairs", 528 * lost, 0)
                assert not any(array.any() for array in stage.sums.aggregates.values())
        assert (stage is None) == (config is user_settings)


def test_what_does_not_fit_is_refused_and_takes_no_slot():
    learner = PrivateLearner(config_of())
    weights = DocumentBatch(
        np.array([1.5, 3.0]), np.array([0, 1], np.int32), np.array([0, 2]), D, integral=False
    )
    for batch, rule in ((weights, "are not whole"), (batch_of_counts([{0: 3}], 7), "n_features=7")):
        with pytest.raises(InvalidDocumentsError, match=rule):
            learner.add(batch)
    assert learner.slots == learner.stage.slots_filled == 0


@pytest.mark.parametrize(
    ("documents", "slots", "passes"), [(0, 1000, False), (500, 1000, True), (0, 990, True)]
)
def test_norms_that_show_no_document_end_a_window_where_they_would_show_half(
    documents, slots, passes
):
    """Noise alone passes once in 1,000 draws; documents in half of the slots, over ten bins, do."""
    stddevs = {"first_norms": 1.3 * 1000 / TELLING_SLOTS, "pair_norms": 1000 / TELLING_SLOTS}
    rng, refused = np.random.default_rng(8), 0
    for _ in range(300):
        released = {name: rng.normal(0, stddev, 49) for name, stddev in stddevs.items()}
        for counts in released.values():
            counts[20:30] += rng.multinomial(documents, np.full(10, 0.1))
        try:
            Window(config_of()).accept("norms", released, stddevs, slots)
        except InsufficientDataError:
            refused += 1
    assert refused <= 2 if passes else refused >= 296
