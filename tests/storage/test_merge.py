"""Engines that share a projection: merged they equal one, and what positions name counts once."""

import shutil
import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import (
    InsufficientDataError,
    InvalidSettingError,
    ModelFileError,
    VocabularyError,
)
from streamlda.privacy.noise import SeededNoise
from streamlda.private.learner import PrivateLearner
from streamlda.private.release_manager import ReleaseManager, open_ledger
from streamlda.private.settings import PrivateSettings
from streamlda.simulate import PlantedLDA
from streamlda.spectral.moments import Moments
from streamlda.storage.checkpoint import Checkpoint, Checkpoints
from streamlda.storage.merge import merge_checkpoints, newest_of, overlap
from streamlda.storage.state import load_state, save_state
from streamlda.text.vocabulary import Vocabulary

ROWS, D = 3000, 30
WORDS = Vocabulary.given([f"w{i}" for i in range(D)])
SETTINGS = EngineSettings(
    n_components=3, n_features=D, warmup_documents=250, oversampling=5, refine=False
)


@pytest.fixture(scope="module")
def documents():
    return PlantedLDA(3, D, seed=4, mean_length=20, topic_concentration=0.1).documents(ROWS)


def make_projection():
    beginning = Engine(SETTINGS)
    beginning.add(PlantedLDA(3, D, seed=4, topic_concentration=0.1).documents(1000))
    return beginning.better_projection()


SHARED = make_projection()


def learned(documents, start=0, stop=ROWS, shared=SHARED, settings=SETTINGS):
    engine = Engine(settings, shared_projection=shared)
    engine.add(documents.rows(start, stop))
    return engine


def sums(engine):
    """Return the sums of an engine, halves joined, and those of cubes where they are kept."""
    arrays, _ = engine.state()
    found = {name: arrays[f"current.{name}"] for name in ("word_totals", "pair_cross")}
    found["triple_cross"] = arrays["current.triple_cross"]
    found["gram"] = arrays["current.gram"].sum(axis=0)
    i, j, k = np.indices(arrays["current.cube"].shape[1:])
    found["cube"] = arrays["current.cube"].sum(axis=0)[(i <= j) & (j <= k)]
    return found


def assert_equal_sums(one, other, tolerance=1e-10):
    theirs = sums(other)
    for name, mine in sums(one).items():
        scale = np.abs(theirs[name]).max(initial=1e-300)
        assert np.abs(mine - theirs[name]).max() <= tolerance * scale, name
    names = ("documents_seen", "documents_skipped", "tokens_seen", "rounds_finished")
    assert [getattr(one, name) for name in names] == [getattr(other, name) for name in names]


def assert_same_state(one, other):
    (mine, my_values), (theirs, their_values) = one.state(), other.state()
    assert my_values == their_values
    assert mine.keys() == theirs.keys()
    for name in mine:
        np.testing.assert_array_equal(mine[name], theirs[name], err_msg=name)


def test_two_halves_equal_one_engine_over_all(documents):
    merged, whole = learned(documents, 0, 1234), learned(documents)
    merged.merge(learned(documents, 1234))
    assert_equal_sums(merged, whole)
    one, other = merged.snapshot(WORDS), whole.snapshot(WORDS)
    for name in ("components", "alpha", "background"):
        np.testing.assert_allclose(getattr(one, name), getattr(other, name), rtol=1e-10, atol=1e-14)
    assert one.diagnostics["topic_supported"] == other.diagnostics["topic_supported"]
    # The bound is not empty: one document less is beyond it.
    with pytest.raises(AssertionError):
        assert_equal_sums(merged, learned(documents, 0, ROWS - 1))


def test_other_projections_would_not_give_the_moments_of_all(documents):
    """Why merge insists: the sums of two projections added up are far from those of either."""
    other = Engine(SETTINGS)
    other.add(documents.rows(0, 300))
    parts = learned(documents, 0, 1500), learned(documents, 1500, shared=other.better_projection())
    added = sum(part.state()[0]["current.pair_cross"] for part in parts)
    wanted = learned(documents).state()[0]["current.pair_cross"]
    assert np.abs(added - wanted).max() > 0.01 * np.abs(wanted).max()


@given(
    split=st.lists(st.integers(0, 4), min_size=1, max_size=60),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_split_in_any_order_equals_one_engine(split, seed):
    rng = np.random.default_rng(seed)
    # Every seventh is too short to be learned from.
    counts = rng.poisson(0.5, (len(split), D)) * (np.arange(len(split)) % 7 > 0)[:, None]
    batch = DocumentBatch.from_matrix(counts)
    whole = learned(batch, 0, len(split))
    engines = [Engine(SETTINGS, shared_projection=SHARED) for _ in range(5)]
    for n, part in enumerate(split):
        engines[part].add(batch.rows(n, n + 1))
    order = rng.permutation(5)
    merged = engines[order[0]]
    for part in order[1:]:
        merged.merge(engines[part])
    assert_equal_sums(merged, whole)
    assert merged.documents_seen + merged.documents_skipped == len(split)


def test_merging_again_and_the_other_way_round_is_equal_bit_for_bit(documents):
    def parts():
        return learned(documents, 0, 1001), learned(documents, 1001)

    (one, its_other), (again, again_other), (there, back) = parts(), parts(), parts()
    one.merge(its_other)
    again.merge(again_other)
    back.merge(there)
    assert_same_state(one, again)
    assert_same_state(one, back)
    assert_same_state(its_other, learned(documents, 1001))


def test_a_merged_engine_goes_on_and_is_saved_like_any_other(documents, tmp_path):
    merged = learned(documents, 0, 700)
    merged.merge(learned(documents, 700, 1500))
    save_state(tmp_path / "state", merged)
    again = load_state(tmp_path / "state")
    for engine in (merged, again):
        engine.add(documents.rows(1500, ROWS))
    assert_same_state(merged, again)
    assert_equal_sums(merged, learned(documents))
    # Restored engines have copies of the projection, which are as good.
    again.merge(learned(documents, 0, 10))


def accepted(variances, others):
    """Whether two sets of variances agree, at a false-alarm rate below 1e-3 over all entries.

    Each is estimated from 400 corpora: a log ratio has a deviation of about sqrt(4 / 400) = 0.1,
    so 0.45 is passed with probability 7e-6, over 16 entries.
    """
    return bool(np.all(np.abs(np.log(variances / others)) < 0.45))


@pytest.mark.statistical
def test_halves_of_merged_sums_have_the_variance_of_the_sampling_error():
    corpora = PlantedLDA(3, 12, mean_length=60, seed=6)
    W = np.random.default_rng(6).uniform(-1, 1, (12, 3))
    errors, halves, wrong = [], [], []
    upper = np.triu_indices(3)

    def upper_of(pairs, triples):
        return np.concatenate([pairs[upper], *(triples[i][upper] for i in range(3))])

    for _ in range(400):
        # Unequal, and odd, so that neither is split in halves exactly.
        batch, parts = corpora.documents(40), [Moments(W), Moments(W)]
        parts[0].add(batch.rows(0, 13))
        parts[1].add(batch.rows(13, 40))
        alone = parts[0].first_half
        parts[0].merge(parts[1])
        merged = parts[0]
        assert abs(merged.first_half - 20) <= 1
        errors.append(upper_of(W.T @ merged.pair_moment(), merged.triple_moment()))
        halves.append(upper_of(*merged.half_differences()))
        merged.first_half = alone
        wrong.append(upper_of(*merged.half_differences()))
    variances = np.var(errors, axis=0, ddof=1)
    assert accepted(np.mean(np.square(halves), axis=0), variances)
    # As it would be if the sums were added and the size of the half was not.
    assert not accepted(np.mean(np.square(wrong), axis=0), variances)


def test_what_cannot_be_merged_is_refused_and_nothing_added(documents):
    engine = learned(documents, 0, 500)
    before = {name: array.copy() for name, array in engine.state()[0].items()}
    own = Engine(SETTINGS)
    own.add(documents.rows(500, 1000))
    other_projection = SHARED.copy()
    other_projection[0, 0] += 1e-12
    other_seed = EngineSettings(n_components=3, n_features=D, oversampling=5, seed=7)
    for other, rule in [
        (engine, "the same engine twice; its documents would count twice"),
        (own, r"shared_projection=True,False; make a projection file \(`streamlda projection`\)"),
        (
            learned(documents, 500, shared=other_projection),
            r"share one projection.*projection=[0-9a-f]{16},[0-9a-f]{16};",
        ),
        (
            learned(documents, 500, settings=other_seed),
            "equal settings to be merged, got seed=0,7; run all",
        ),
    ]:
        with pytest.raises(InvalidSettingError, match=rule):
            engine.merge(other)
    with pytest.raises(InvalidSettingError, match="shared_projection=False,False"):
        own.merge(Engine(SETTINGS))
    assert engine.documents_seen == 500
    for name, array in engine.state()[0].items():
        np.testing.assert_array_equal(array, before[name])


@pytest.mark.parametrize("changes", [{"refine": False}, {"warmup_documents": 20_000}])
def test_settings_without_effect_on_sums_may_differ(documents, changes):
    one = learned(documents, 0, 500)
    one.merge(learned(documents, 500, settings=replace(SETTINGS, **changes)))
    assert one.documents_seen == len(documents)
    assert one.settings == SETTINGS


# Positions.


def kafka(offsets, **changes):
    log = {"cluster": "c", "topic": "news", "topic_id": "t", "partitions": "all", "lost": {}}
    return {**log, "offsets": offsets, **changes}


FILES = {"file": 0, "name": "/a", "record": 3, "offset": 9, "files": 2, "list": "ab"}


@pytest.mark.parametrize(
    ("one", "other", "wanted"),
    [
        (kafka({"0": 5, "2": 1}), kafka({"1": 5}), None),
        (kafka({"0": 5, "2": 1, "10": 3}), kafka({"10": 7, "2": 0}), "partitions=2,10"),
        (kafka({"0": 5}), kafka({"0": 5}, topic_id="u"), None),
        (kafka({"0": 5}), kafka({"0": 5}, cluster="d"), None),
        (kafka({"0": 5}), kafka({"0": 5}, topic="old"), None),
        (kafka({"0": 5}), FILES, None),
        (FILES, {**FILES, "file": 1}, "files=2 list='ab'"),
        (FILES, {**FILES, "list": "cd"}, None),
        ({"record": 5}, {"record": 5}, None),
    ],
)
def test_positions_tell_what_both_have_read(one, other, wanted):
    for found in (overlap(one, other), overlap(other, one)):
        assert found is None if wanted is None else wanted in found


def test_only_equal_positions_with_equal_sums_are_a_copy():
    assert overlap({"record": 5}, {"record": 5}, copied=True) == "equal positions and sums"
    assert overlap({"record": 5}, {"record": 6}, copied=True) is None
    # Other partitions are other documents, though they may say the same.
    assert overlap(kafka({"0": 5}), kafka({"1": 5}), copied=True) is None


# Folders of checkpoints.


def save(folder, engine, position, words=WORDS, rows=None):
    with Checkpoints.open(folder) as store:
        store.save(engine, position, words, rows=rows)
    return folder


@pytest.fixture
def folders(tmp_path, documents):
    """Three daemons with a third of the documents each."""
    made = []
    for n in range(3):
        engine = learned(documents, 1000 * n, 1000 * n + 1000)
        made.append(save(tmp_path / str(n), engine, kafka({str(n): 1000})))
    return made


def test_folders_of_daemons_that_run_are_joined(folders, documents):
    with Checkpoints.open(folders[0]), Checkpoints.open(folders[1]):
        merged = merge_checkpoints(folders)
    assert_equal_sums(merged.engine, learned(documents))
    assert merged.vocabulary == WORDS
    assert [found.position["offsets"] for found in merged.checkpoints] == [
        {str(n): 1000} for n in range(3)
    ]
    for folder in folders:
        assert newest_of(folder).engine.documents_seen == 1000


def test_documents_that_wait_for_their_block_are_in_it(tmp_path, documents):
    rows = documents.rows(1000, 1042)
    for n in range(2):
        engine = learned(documents, 500 * n, 500 * n + 500)
        save(tmp_path / str(n), engine, kafka({str(n): 500}), rows=rows if n else None)
    merged = merge_checkpoints([tmp_path / "0", tmp_path / "1"]).engine
    assert_equal_sums(merged, learned(documents, 0, 1042))


def test_one_folder_is_that_daemon_with_or_without_a_shared_projection(tmp_path, documents):
    engine = Engine(SETTINGS)
    engine.add(documents)
    save(tmp_path / "a", engine, {})
    assert_same_state(merge_checkpoints([tmp_path / "a"]).engine, engine)
    with pytest.raises(InvalidSettingError, match="must be at least one"):
        merge_checkpoints([])


def test_nothing_counts_twice_that_can_be_told(folders, tmp_path, documents):
    (tmp_path / "link").symlink_to(folders[0])
    with pytest.raises(InvalidSettingError, match=r"the same folder, got paths=.*/0', '.*/0'"):
        merge_checkpoints([folders[0], folders[1], tmp_path / "link"])
    both = save(tmp_path / "both", learned(documents, 0, 10), kafka({"2": 3, "7": 7}))
    with pytest.raises(InvalidSettingError, match=r"news' partitions=2, got .*disjoint part"):
        merge_checkpoints([*folders, both])
    save(tmp_path / "pipe", learned(documents, 0, 10), {"record": 10})
    shutil.copytree(tmp_path / "pipe", tmp_path / "copy")
    with pytest.raises(InvalidSettingError, match="not in both: equal positions and sums, got"):
        merge_checkpoints([tmp_path / "pipe", tmp_path / "copy"])
    other = save(tmp_path / "other", learned(documents, 10, 20), {"record": 10})
    assert merge_checkpoints([tmp_path / "pipe", other]).engine.documents_seen == 20


def test_what_does_not_fit_is_refused_with_its_folders(folders, tmp_path, documents):
    others = Vocabulary.given([f"v{i}" for i in range(D)])
    words = save(tmp_path / "w", learned(documents, 0, 10), kafka({"7": 10}), others)
    with pytest.raises(VocabularyError, match=r"the same words, got fingerprints=.*path='.*/w'"):
        merge_checkpoints([*folders, words])
    own = Engine(SETTINGS)
    own.add(documents.rows(0, 300))
    own = save(tmp_path / "own", own, kafka({"8": 300}))
    with pytest.raises(InvalidSettingError, match=r"_projection=True,False.*path='.*/0','.*/own'"):
        merge_checkpoints([*folders, own])


def test_a_private_state_is_never_read(tmp_path, documents):
    settings = PrivateSettings(
        n_components=3, n_features=D, epsilon=10.0, delta=1e-4, documents_per_snapshot=1000
    )
    ledger = open_ledger(tmp_path / "ledger", settings)
    learner = PrivateLearner(settings, ReleaseManager(SeededNoise(3), ledger), vocabulary="public")
    learner.add(documents.rows(0, 10))
    save(tmp_path / "a", learner, {})
    ledger.close()
    for read in (newest_of, lambda folder: merge_checkpoints([folder])):
        with pytest.raises(InvalidSettingError, match=r"not be private, got .*daemon publishes"):
            read(tmp_path / "a")


def test_folders_without_a_checkpoint_are_told_apart(tmp_path):
    with pytest.raises(ModelFileError, match="must have its index, got path"):
        newest_of(tmp_path / "gone")
    Checkpoints.open(tmp_path / "empty").close()
    with pytest.raises(InsufficientDataError, match=r"generations=0 .*let the daemon save first"):
        newest_of(tmp_path / "empty")


def damage(path):
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)


def test_a_damaged_generation_is_skipped_and_reported(tmp_path, documents):
    for stop in (100, 200):
        save(tmp_path / "a", learned(documents, 0, stop), {"record": stop})
    damage(tmp_path / "a" / "state-000002")
    found = newest_of(tmp_path / "a")
    assert (found.checkpoint.position, found.engine.documents_seen) == ({"record": 100}, 100)
    assert "generation 2" in found.checkpoint.skipped[0]
    damage(tmp_path / "a" / "state-000001")
    with pytest.raises(ModelFileError, match="one of 2 checkpoints must be whole"):
        newest_of(tmp_path / "a")


def test_files_that_vanish_meanwhile_are_looked_for_again(tmp_path, documents, monkeypatch):
    with Checkpoints.open(tmp_path / "a") as store:
        store.save(learned(documents, 0, 100), {"record": 100}, WORDS)
        restored = []

        def overtaken(self, restore=Checkpoint.restore):
            restored.append(self.generation)
            if len(restored) == 1:
                for stop in (200, 300):
                    store.save(learned(documents, 0, stop), {"record": stop}, WORDS)
            return restore(self)

        monkeypatch.setattr(Checkpoint, "restore", overtaken)
        found = newest_of(tmp_path / "a")
        assert restored == [1, 3]
        assert (found.checkpoint.position, found.engine.documents_seen) == ({"record": 300}, 300)
        # A file that is gone for good is damage, and no reason to wait.
        for path in (tmp_path / "a").glob("state-*"):
            path.unlink()
        with pytest.raises(ModelFileError, match="one of 2 checkpoints must be whole"):
            newest_of(tmp_path / "a")


def test_a_busy_daemon_is_read_and_not_disturbed(tmp_path, documents):
    engine, ended = Engine(SETTINGS, shared_projection=SHARED), threading.Event()
    problems, turn, saves = [], threading.Condition(), [0]

    def run():
        try:
            with Checkpoints.open(tmp_path / "a") as store:
                for stop in range(0, ROWS, 100):
                    with turn:
                        # Three may come in the way of a read, however slow the machine is.
                        turn.wait_for(lambda: saves[0] < 3)
                        saves[0] += 1
                    store.save(engine, {"record": stop}, WORDS)
                    engine.add(documents.rows(stop, stop + 100))
        except BaseException as error:
            problems.append(error)
        ended.set()

    daemon = threading.Thread(target=run)
    save(tmp_path / "a", engine, {"record": 0})
    daemon.start()
    seen = []
    while not ended.is_set():
        found = newest_of(tmp_path / "a")
        seen.append(found.engine.documents_seen)
        assert found.checkpoint.position == {"record": seen[-1]}
        assert found.checkpoint.skipped == ()
        with turn:
            saves[0] = 0
            turn.notify()
    daemon.join()
    assert problems == []
    assert seen == sorted(seen)
    assert len(set(seen)) > 5
