"""The private engine: places, stages and windows; nothing but noisy sums reaches a snapshot."""

import itertools
import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, InvalidDocumentsError, InvalidSettingError
from streamlda.privacy.clipping import ClipBounds, NormHistogram
from streamlda.privacy.noise import SeededNoise
from streamlda.private.engine import PrivateEngine
from streamlda.private.window import LEAST_BOUND
from streamlda.private.settings import PrivateSettings, clip_quantile_for
from tests.corpora import batch_of
from tests.private.streams import batch_of_counts

D = 6
#: Places of a window: a small one that noise of epsilon 20 leaves readable.
N = 600

#: False-alarm rate of a statistical test; seeds are fixed, so it does not vary from run to run.
ALARM = 1e-5


def asked_of(**options):
    values = {
        "n_components": 2,
        "n_features": D,
        "epsilon": 20.0,
        "delta": 1e-4,
        "documents_per_snapshot": N,
    }
    return PrivateSettings(**{**values, **options})


def planted(n, seed=0, d=D):
    """Return documents of two topics over halves of the words."""
    rng = np.random.default_rng(seed)
    topics = np.full((2, d), 0.02)
    topics[0, : d // 2] += 1
    topics[1, d // 2 :] += 1
    topics /= topics.sum(axis=1, keepdims=True)
    return [rng.choice(d, 12, p=topics[int(rng.integers(2))]).tolist() for _ in range(n)]


ROWS = batch_of(planted(2 * N), D)


class Run:
    """An engine, what it released and what it published."""

    def __init__(self, asked, seed=1, first_place=0):
        self.noise = SeededNoise(seed)
        state_noise = self.noise if asked.noise_in_state else None
        self.engine = PrivateEngine(asked, state_noise, first_place)
        self.stages, self.released, self.raw, self.snapshots, self.lost = [], [], [], [], 0

    def add(self, batch, users=None):
        start = 0
        while start < batch.n_documents and self.engine.stage is not None:
            rest = batch.rows(start, batch.n_documents)
            start += self.engine.add(rest, None if users is None else users[start:])
            self.settle()
        return start

    def settle(self, fed=None):
        due, stage = self.engine.due, self.engine.stage
        if due is None:
            return
        released = due.release(self.noise) if fed is None else fed
        self.stages.append((due.stage, due.first, due.last))
        self.released.append(released)
        self.raw.append({name: array.copy() for name, array in stage.aggregates.items()})
        before = self.engine.snapshot
        try:
            self.engine.accept(released)
        except InsufficientDataError:
            self.lost += 1
        if self.engine.snapshot is not before:
            self.snapshots.append(self.engine.snapshot)


def run(asked, batch=ROWS, users=None, seed=1, cuts=(), first_place=0):
    """Feed a batch cut at `cuts`, making all releases on the way."""
    own = Run(asked, seed, first_place)
    ends = [0, *sorted(cuts), batch.n_documents]
    for start, stop in itertools.pairwise(ends):
        own.add(batch.rows(start, stop), None if users is None else users[start:stop])
    return own


def assert_same_snapshots(one, other):
    assert len(one) == len(other) > 0
    for mine, theirs in zip(one, other, strict=True):
        assert (mine.number, mine.stages, mine.bounds) == (
            theirs.number,
            theirs.stages,
            theirs.bounds,
        )
        for name in ("components", "alpha", "background", "mixed"):
            found, expected = (getattr(each.topics, name) for each in (mine, theirs))
            np.testing.assert_array_equal(found, expected)
        found, expected = mine.topics.spectral, theirs.topics.spectral
        np.testing.assert_array_equal(found.topics, expected.topics)
        np.testing.assert_array_equal(found.eigenvalues, expected.eigenvalues)


def assert_same_sums(one, other):
    assert one.stages == other.stages
    for mine, theirs in zip(one.raw, other.raw, strict=True):
        assert mine.keys() == theirs.keys()
        for name in mine:
            np.testing.assert_array_equal(mine[name], theirs[name])


# Places.


@pytest.mark.parametrize(
    ("options", "share"),
    [
        # Noise of 30.8 documents, 18 documents each.
        ({"epsilon": 0.1, "delta": 1e-5, "documents_per_snapshot": 10_000}, 0.0553),
        ({"epsilon": 0.1, "delta": 1e-5, "documents_per_snapshot": 1000}, 0.1),
        ({"documents_per_snapshot": 10_000}, 0.015),
        ({"documents_per_snapshot": 10**6}, 0.001),
    ],
)
def test_norms_have_as_many_documents_as_their_noise_needs(options, share):
    asked = asked_of(**options)
    assert asked.stages["norms"] == asked.stages["triple norms"] == pytest.approx(share, rel=2e-3)
    assert sum(asked.stages.values()) == pytest.approx(1)


def test_bounds_are_found_in_a_small_window_with_much_noise():
    asked = asked_of(epsilon=0.1, delta=1e-5, documents_per_snapshot=10_000)
    batch = batch_of(planted(10_000), D)
    runs = [run(asked, batch, seed=seed) for seed in range(3)]
    # Norms of p1 lie near 0.5. What is not found is 1, as with a share of 0.015.
    assert [snapshot.bounds.first < 0.7 for one in runs for snapshot in one.snapshots] == [True] * 3


@settings(max_examples=15)
@given(cuts=st.sets(st.integers(0, 2 * N), max_size=12))
def test_the_cut_into_batches_changes_nothing(cuts):
    one, other = run(asked_of()), run(asked_of(), cuts=cuts)
    assert_same_sums(one, other)
    assert_same_snapshots(one.snapshots, other.snapshots)


def test_every_row_on_its_own_changes_nothing_either():
    batch = ROWS.rows(0, N)
    one, other = run(asked_of(), batch), run(asked_of(), batch, cuts=range(1, N))
    assert_same_sums(one, other)
    assert_same_snapshots(one.snapshots, other.snapshots)


def test_stages_end_at_the_places_of_the_settings_and_windows_follow_each_other():
    asked = asked_of()
    names, places = zip(*[(n, (a, b)) for n, a, b in asked.stage_slots()], strict=True)
    assert names == ("norms", "pairs", "triple norms", "triples")
    assert [b for _, b in places] == [9, 519, 528, 600]
    own = run(asked, first_place=1000)
    expected = [(name, a, b) for name, (a, b) in zip(names, places, strict=True)]
    moved = [(n, a + 1000 + w * N, b + 1000 + w * N) for w in range(2) for n, a, b in expected]
    assert own.stages == moved
    assert own.engine.places == 1000 + 2 * N
    assert [s.number for s in own.snapshots] == [1, 2]
    for window, snapshot in enumerate(own.snapshots):
        kept = [(s.name, s.first, s.last + 1) for s in snapshot.stages]
        assert kept == moved[4 * window : 4 * window + 4]
        multipliers = {s.noise_multiplier for s in snapshot.stages}
        assert multipliers == {asked.noise_multiplier}


def test_topics_are_found_at_all():
    """So that what the other tests compare is no accident of noise."""
    (snapshot, _) = run(asked_of()).snapshots
    assert snapshot.topics.components.shape == (2, D)
    halves = snapshot.topics.components[:, : D // 2].sum(axis=1)
    assert min(halves) < 0.2
    assert max(halves) > 0.8


def test_blanks_take_places_and_add_nothing():
    # Every third row is blank: an empty row, a short one, or a skipped place.
    documents = planted(N)
    blanks = [[] if n % 3 == 0 else t for n, t in enumerate(documents)]
    short = [[0, 1] if n % 3 == 0 else t for n, t in enumerate(documents)]
    one, other = run(asked_of(), batch_of(blanks, D)), run(asked_of(), batch_of(short, D))
    assert_same_sums(one, other)
    assert_same_snapshots(one.snapshots, other.snapshots)
    skipped = Run(asked_of())
    for n, tokens in enumerate(documents):
        if n % 3 == 0:
            assert skipped.engine.skip(1) == 1
            skipped.settle()
        else:
            skipped.add(batch_of([tokens], D))
    assert_same_sums(one, skipped)
    assert_same_snapshots(one.snapshots, skipped.snapshots)


def test_skipping_stops_at_the_end_of_the_stage():
    engine = PrivateEngine(asked_of())
    assert engine.skip(5) == 5
    assert engine.skip(100) == 4
    assert (engine.places, engine.due.stage, engine.due.first, engine.due.last) == (
        9,
        "norms",
        0,
        9,
    )


def test_nothing_is_taken_while_a_release_is_due():
    engine = PrivateEngine(asked_of())
    assert engine.due is None
    assert engine.add(ROWS) == 9
    for call in (lambda: engine.add(ROWS), lambda: engine.skip(1), engine.end_stage):
        with pytest.raises(InvalidSettingError, match="a release that is due must be made"):
            call()
    assert engine.places == 9
    assert engine.due.event == engine.settings.event
    engine.accept(engine.due.release(SeededNoise(1)))
    assert engine.due is None
    assert engine.stage.name == "pairs"
    with pytest.raises(InvalidSettingError, match="none due"):
        engine.accept({})


def test_a_stage_can_end_before_its_last_place():
    own = Run(asked_of())
    with pytest.raises(InsufficientDataError, match="places=0"):
        own.engine.end_stage()
    own.add(ROWS.rows(0, 300))
    own.engine.end_stage()
    assert (own.engine.due.stage, own.engine.due.first, own.engine.due.last) == ("pairs", 9, 300)
    own.settle()
    # The next stage has its own number of places, from there.
    own.add(ROWS.rows(300, 2 * N))
    assert own.stages[:4] == [
        ("norms", 0, 9),
        ("pairs", 9, 300),
        ("triple norms", 300, 309),
        ("triples", 309, 381),
    ]
    assert own.snapshots[0].stages[1].last == 299


# Users.


def user_settings(g=2, **options):
    values = {"privacy_unit": "user", "documents_per_user": g, "snapshots": 2}
    return asked_of(**{**values, "delta": 1e-2, "epsilon": 25.0, **options})


def test_no_more_than_g_documents_of_a_user_count_in_a_stage():
    users = [f"u{n % 7}" if n % 2 else f"own{n}" for n in range(2 * N)]
    own = run(user_settings(), users=users)
    # What counts, by hand: the first two of each user from the place where a stage begins.
    counted, seen, starts = [], {}, {first for _, first, _ in own.stages}
    for place, user in enumerate(users):
        if place in starts:
            seen = {}
        seen[user] = seen.get(user, 0) + 1
        # A name of its own, so that nothing else can keep it out.
        counted.append(f"own{place}" if seen[user] <= 2 else None)
    assert 0 < counted.count(None) < N
    other = run(user_settings(), users=counted)
    assert_same_sums(own, other)
    # Had all counted, the sums would be others.
    free = run(user_settings(), users=[f"own{n}" for n in range(2 * N)])
    assert free.raw[1]["pair_kept"] > own.raw[1]["pair_kept"]


@pytest.mark.parametrize("users", [None, [None] * N, [""] * N])
def test_rows_of_nobody_add_nothing(users):
    own = Run(user_settings(clipping="worst-case"))
    own.add(ROWS.rows(0, N), users)
    assert own.stages[0] == ("pairs", 0, 528)
    assert not any(array.any() for array in own.raw[0].values())


# Modes and bounds.


@pytest.mark.parametrize("clipping", ["worst-case", ClipBounds(0.6, 0.4, 5.0, "fixed")])
def test_known_bounds_need_no_stages_of_norms(clipping):
    own = run(asked_of(clipping=clipping))
    assert own.stages[:2] == [("pairs", 0, 528), ("triples", 528, 600)]
    bounds = own.snapshots[0].bounds
    if clipping == "worst-case":
        assert (bounds.first, bounds.source) == (1.0, "worst-case")
        assert bounds.pair == pytest.approx(1.0)
        assert own.snapshots[1].bounds.triple != bounds.triple
    else:
        assert bounds == clipping


def test_quantile_bounds_come_from_the_released_histograms():
    own = run(asked_of())
    assert own.snapshots[0].bounds.source == "private-quantile"
    assert own.snapshots[0].bounds.first < 1.0
    # The same sums again, with all norms in the lowest bin: bounds stay where stages can be made.
    engine = PrivateEngine(asked_of())
    engine.add(ROWS)
    fed = {name: np.zeros(array.shape) for name, array in own.released[0].items()}
    for counts in fed.values():
        counts[0] = 1e9
    engine.accept(fed)
    block = engine.stage.mechanism.blocks[0]
    assert block.l2_clip_norm == LEAST_BOUND > NormHistogram(1.0).edges[0]


def test_prefix_rounds_follow_the_first_window_and_end_at_the_horizon():
    batch = batch_of(planted(4 * N), D)
    own = run(asked_of(mode="prefix", snapshots=3), batch)
    assert own.stages[3:] == [("triples", 528, 600), ("prefix", 600, 1200), ("prefix", 1200, 1800)]
    assert [s.number for s in own.snapshots] == [1, 2, 3]
    assert own.engine.stage is None
    assert own.engine.due is None
    assert own.engine.places == 3 * N
    for call in (lambda: own.engine.add(batch), lambda: own.engine.skip(1)):
        with pytest.raises(InvalidSettingError, match="must not come after the last snapshot"):
            call()
    # All in the basis of the first window; the sums of the rounds add up, within their noise.
    assert own.snapshots[1].bounds == own.snapshots[2].bounds == own.snapshots[0].bounds
    first, second = (float(released["pair_kept"]) for released in own.released[4:])
    assert second > 1.5 * first


def test_a_round_that_is_lost_is_one_of_the_horizon():
    own = Run(asked_of(mode="prefix", snapshots=3))
    own.add(ROWS.rows(0, N + 1))
    stage = own.engine.stage
    own.add(ROWS.rows(N + 1, 2 * N - 1))
    own.engine.skip(1)
    released = own.engine.due.release(own.noise)
    with pytest.raises(InsufficientDataError, match="more documents than its noise hides"):
        own.engine.accept({**released, "triple_kept": np.array(-1.0)})
    assert own.engine.stage is not stage
    own.add(ROWS.rows(0, N))
    assert own.engine.stage is None
    assert [s.number for s in own.snapshots] == [1, 2]


def test_a_lost_window_is_followed_by_the_next():
    """Blanks only: what the sums hold is noise alone, so about half of the windows are lost.

    That none of 30 windows is lost, or all are, has a probability below 1e-8 for random seeds.
    """
    asked = asked_of(documents_per_snapshot=100, epsilon=0.1, clipping="worst-case")
    own = Run(asked)
    for _ in range(30):
        before, places = own.lost, own.engine.places
        own.engine.skip(88)
        own.settle()
        assert own.stages[-1] == ("pairs", places, places + 88)
        if own.lost == before:
            own.engine.skip(12)
            own.settle()
            assert own.stages[-1] == ("triples", places + 88, places + 100)
        # Lost or not, the next window begins behind it, with nothing in its sums.
        stage = own.engine.stage
        if stage.name == "pairs":
            assert (stage.first, stage.places) == (own.engine.places, 0)
            assert not any(array.any() for array in stage.aggregates.values())
    assert 0 < own.lost < 30
    assert len(own.snapshots) + own.lost == 30


def test_a_lost_window_is_told_to_whoever_accepts_it():
    engine = PrivateEngine(asked_of(clipping="worst-case"))
    engine.add(ROWS)
    released = engine.due.release(SeededNoise(1))
    with pytest.raises(InsufficientDataError, match="noisy number of documents=-7;"):
        engine.accept({**released, "pair_kept": np.array(-7.0)})
    assert (engine.stage.name, engine.stage.first) == ("pairs", 528)
    assert engine.snapshot is None


def test_noise_is_drawn_once_for_a_release():
    engine = PrivateEngine(asked_of(clipping="worst-case"))
    engine.add(ROWS)
    released = engine.due.release(SeededNoise(1))
    with pytest.raises(InvalidSettingError, match="noise must be drawn once"):
        engine.due.release(SeededNoise(2))
    engine.accept(released)


def test_users_pay_for_lost_windows_and_documents_do_not():
    fed = {"first": np.ones(D), "pair": np.zeros(21), "pair_kept": np.array(-1.0)}
    for asked in (
        user_settings(clipping="worst-case"),
        asked_of(snapshots=2, clipping="worst-case"),
    ):
        own = Run(asked)
        for _ in range(2):
            own.engine.skip(N)
            own.settle(fed)
        assert own.lost == 2
        assert (own.engine.stage is None) == (asked.privacy_unit == "user")


# Nothing but released sums.


@pytest.mark.parametrize("options", [{}, {"alpha_0": None}, {"clipping": "worst-case"}])
def test_snapshots_are_made_of_released_sums_alone(options):
    """Another stream, with the released sums of the first fed in: the same snapshots."""
    asked = asked_of(**options)
    own = run(asked)
    other = Run(asked, seed=99)
    rows = batch_of(planted(2 * N, seed=5)[::-1], D)
    start, released = 0, iter(own.released)
    while start < 2 * N:
        start += other.engine.add(rows.rows(start, 2 * N))
        other.settle(next(released))
    assert any(
        np.any(a["pair"] != b["pair"])
        for a, b in zip(own.raw, other.raw, strict=True)
        if "pair" in a
    )
    assert_same_snapshots(own.snapshots, other.snapshots)


def test_releases_depend_on_the_stream():
    """What the test above would miss if releases did not."""
    one, other = run(asked_of()), run(asked_of(), batch_of(planted(2 * N, seed=5), D))
    assert np.any(one.snapshots[0].topics.components != other.snapshots[0].topics.components)


# Noise.


def blank_sums(asked, seed, windows):
    """Return the noise of all releases of blanks; windows go on with sums that were fed."""
    fed = iter(
        run(asked, batch_of(planted(N * windows, d=asked.n_features), asked.n_features)).released
    )
    own = Run(asked, seed)
    drawn = []
    for released in fed:
        begun = {name: array.any() for name, array in own.engine.stage.aggregates.items()}
        own.engine.skip(own.engine.stage.open_places)
        due = own.engine.due
        noise = due.release(own.noise)
        drawn.append({name: np.ravel(noise[name]) / due.stddevs[name] for name in noise})
        assert all(begun.values()) == any(begun.values()) == asked.noise_in_state
        own.engine.accept(released)
    return drawn


def largest_correlation(rows):
    """Return the largest correlation of two rows, in standard errors."""
    found = []
    for i, one in enumerate(rows):
        for other in rows[:i]:
            n = min(len(one), len(other))
            found.append(abs(np.sum(one[:n] * other[:n])) / np.sqrt(n))
    return max(found)


@pytest.mark.statistical
@pytest.mark.parametrize("in_state", [False, True])
def test_noise_is_independent_of_blocks_stages_and_windows(in_state):
    """A correlation beyond 5.5 standard errors: 4e-8 for each of at most 66 pairs, below 1e-5."""
    asked = asked_of(n_features=30, noise_in_state=in_state)
    drawn = blank_sums(asked, 2, windows=2)
    rows = [array for stage in drawn for array in stage.values() if array.size >= 20]
    assert len(rows) == 10
    assert largest_correlation(rows) < 5.5
    # A stage that draws the noise of another is seen.
    again = blank_sums(asked, 2, windows=1)
    assert largest_correlation([drawn[1]["pair"], again[1]["pair"]]) > 5.5


@pytest.mark.statistical
@pytest.mark.parametrize("in_state", [False, True])
def test_noise_has_the_stated_standard_deviation(in_state):
    """Chi-squared on both sides, at a false-alarm rate of 1e-5."""
    asked = asked_of(n_features=30, noise_in_state=in_state)
    drawn = blank_sums(asked, 3, windows=2)
    values = np.concatenate([array for stage in drawn for array in stage.values()])

    def accepted(scale):
        return (
            ALARM / 2 < stats.chi2.cdf(np.sum((values * scale) ** 2), len(values)) < 1 - ALARM / 2
        )

    assert accepted(1.0)
    assert not accepted(np.sqrt(2))
    assert not accepted(np.sqrt(0.5))


def test_noise_in_the_state_is_there_before_the_first_document_and_costs_a_factor():
    noise = SeededNoise(5)
    noisy = PrivateEngine(asked_of(noise_in_state=True), noise)
    plain = PrivateEngine(asked_of())
    assert all(array.any() for array in noisy.stage.aggregates.values())
    assert not any(array.any() for array in plain.stage.aggregates.values())
    for engine in (noisy, plain):
        engine.skip(9)
    for name, stddev in plain.due.stddevs.items():
        # Up to what delta is left: more cells of noise, a little more of it.
        assert noisy.due.stddevs[name] == pytest.approx(np.sqrt(2) * stddev, rel=1e-3)
    # The next stage begins with noise of its own.
    noisy.accept(run(asked_of()).released[0])
    assert all(array.any() for array in noisy.stage.aggregates.values())


FORK = """
import hashlib, os, sys
from streamlda.privacy.noise import SecureNoise
from streamlda.private.engine import PrivateEngine
from streamlda.private.settings import PrivateSettings

engine = PrivateEngine(PrivateSettings(
    n_components=2, n_features=6, epsilon=1.0, delta=1e-6, documents_per_snapshot=100,
    clipping="worst-case"))
engine.skip(88)
noise = SecureNoise()

def digest():
    values = engine.due.release(noise)["pair"]
    return hashlib.sha256(values.tobytes()).hexdigest()

children = []
for _ in range(2):
    read, write = os.pipe()
    if os.fork() == 0:
        os.write(write, digest().encode())
        os._exit(0)
    os.wait()
    children.append(os.read(read, 64).decode())
print(digest(), *children)
"""


def test_forked_processes_draw_other_noise():
    finished = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FORK], capture_output=True, text=True, check=False
    )
    assert finished.returncode == 0, finished.stderr
    digests = finished.stdout.split()
    assert len(set(digests)) == len(digests) == 3
    assert all(len(digest) == 64 for digest in digests)


# What is refused.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_components": 0}, "n_components must be >= 1, got n_components=0"),
        ({"n_features": 0}, "n_features must be >= 1"),
        ({"documents_per_snapshot": 99}, "documents_per_snapshot must be >= 100"),
        ({"oversampling": -1}, "oversampling must be >= 0"),
        ({"alpha_0": 0.0}, "alpha_0 must be > 0 and finite"),
        ({"alpha_0": float("nan")}, "alpha_0 must be > 0 and finite"),
        ({"privacy_unit": "household"}, "privacy_unit must be document or user"),
        ({"mode": "binary tree"}, "mode window or prefix"),
        ({"documents_per_user": 3}, "None for documents"),
        ({"privacy_unit": "user", "snapshots": 2}, "documents_per_user must be at least 1"),
        (
            {"privacy_unit": "user", "snapshots": 2, "documents_per_user": 0},
            "documents_per_user must be at least 1",
        ),
        ({"privacy_unit": "user", "documents_per_user": 3}, "snapshots must be a number"),
        ({"mode": "prefix"}, "snapshots must be a number"),
        ({"mode": "prefix", "snapshots": 0}, "snapshots must be a number"),
        ({"mode": "prefix", "snapshots": 2, "noise_in_state": True}, "prefix mode must have"),
        (
            {"mode": "prefix", "snapshots": 2, "privacy_unit": "user", "documents_per_user": 1},
            "prefix mode must have",
        ),
        ({"clipping": "none"}, "clipping must be quantile, worst-case or ClipBounds"),
        ({"clip_quantile": 1.0}, "clip_quantile must lie between 0 and 1"),
        ({"delta": 1e-15}, "delta must be at least ten times"),
        ({"neighboring_relation": "swap"}, "relation"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"snapshots": 0}, "snapshots must be at least 1 or None, got snapshots=0"),
    ],
)
def test_settings_that_cannot_be_are_refused(options, message):
    with pytest.raises(InvalidSettingError, match=message):
        PrivateEngine(asked_of(**options))


def test_documents_that_do_not_fit_are_refused_and_take_no_place():
    engine = PrivateEngine(asked_of())
    weights = DocumentBatch(
        np.array([1.5, 3.0]),
        np.array([0, 1], np.int32),
        np.array([0, 2]),
        D,
        integral=False,
    )
    with pytest.raises(InvalidDocumentsError, match="whole counts"):
        engine.add(weights)
    with pytest.raises(InvalidDocumentsError, match="n_features=7 expected=6"):
        engine.add(batch_of_counts([{0: 3}], 7))
    assert engine.places == 0
    assert engine.stage.places == 0


def test_state_noise_is_for_a_state_with_noise_alone():
    with pytest.raises(InvalidSettingError, match="needs a source of it"):
        PrivateEngine(asked_of(), SeededNoise(1))
    with pytest.raises(InvalidSettingError, match="needs a source of it"):
        PrivateEngine(asked_of(noise_in_state=True))


@pytest.mark.parametrize(
    "options",
    [{}, {"d": 6}, {"clipping": "worst-case"}, {"mode": "prefix", "snapshots": 3}],
    ids=["quantile", "few words", "worst case", "prefix"],
)
def test_delta_pays_for_the_distance_of_the_noise_in_all_blocks_of_a_stage(options):
    d = options.get("d", 30)
    others = {name: value for name, value in options.items() if name != "d"}
    asked = asked_of(n_features=d, n_components=min(8, d // 3), **others)
    paid = asked.delta - asked.delta_left
    own, batch = Run(asked), batch_of(planted(2 * N, d=d), d)
    start, needed = 0, {}
    while start < batch.n_documents:
        stage = own.engine.stage
        needed[stage.name] = (1 + math.exp(asked.epsilon)) * stage.mechanism.tv_distance_bound
        start += own.engine.add(batch.rows(start, batch.n_documents))
        own.settle()
    assert {"pairs", "triples"} <= needed.keys()
    assert max(needed.values()) <= paid
    assert ("prefix" in needed) == (asked.mode == "prefix")


def test_the_quantile_to_clip_at_falls_with_the_noise():
    found = [clip_quantile_for(1000, n, 4.0) for n in (10**9, 10**6, 120_000, 80_000, 100)]
    assert found == sorted(found, reverse=True)
    assert (found[0], found[-1]) == (0.95, 0.5)
    assert 0.5 < found[2] < 0.95
