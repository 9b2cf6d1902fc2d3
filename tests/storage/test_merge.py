"""Engines that share a projection or a start, in a file or not: merged they equal one, once."""

import stat
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamlda.documents import DocumentBatch
from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import InvalidSettingError, ModelFileError, VocabularyError
from streamlda.guarantee.noise import SeededNoise
from streamlda.private.learner import PrivateLearner
from streamlda.private.release_manager import ReleaseManager, open_ledger
from streamlda.private.settings import PrivateSettings
from streamlda.simulate import PlantedLDA
from streamlda.storage.checkpoint import Checkpoint, load_state
from streamlda.storage.merge import (
    check_same_words,
    load_projection,
    merge_checkpoints,
    overlap,
    read_newest_engine,
    save_projection,
)
from streamlda.storage.store import Store
from streamlda.text.vocabulary import Vocabulary
from tests.engine.kinds import KINDS, assert_same_state, fed, save_state, text_documents

ROWS, D = 3000, 30
WORDS, OTHERS = (Vocabulary.given([f"{letter}{i}" for i in range(D)]) for letter in "wv")
SETTINGS = EngineSettings(
    n_components=3, n_features=D, warmup_documents=250, oversampling=5, refine=False
)


@pytest.fixture(scope="module")
def documents():
    return PlantedLDA(3, D, seed=4, mean_length=20, topic_concentration=0.1).documents(ROWS)


BEGINNING = Engine(SETTINGS)
BEGINNING.add(PlantedLDA(3, D, seed=4, topic_concentration=0.1).documents(1000))
SHARED = BEGINNING.new_beginning()


def learn(documents, start=0, stop=ROWS, shared=SHARED, settings=SETTINGS):
    settings = replace(settings, n_features=documents.n_features)
    engine = Engine(settings, shared_projection=shared)
    engine.add(documents.rows(start, stop))
    return engine


def sums(engine):
    """Return the sums of an engine, halves joined, and those of cubes where they are kept."""
    arrays, _ = engine.state()
    names = ("word_totals", "pair_cross", "triple_cross")
    found = {name: arrays[f"current.{name}"] for name in names}
    found["gram"] = arrays["current.gram"].sum(axis=0)
    i, j, k = np.indices(arrays["current.cube"].shape[1:])
    found["cube"] = arrays["current.cube"].sum(axis=0)[(i <= j) & (j <= k)]
    return found


def assert_equal_sums(one, other):
    theirs = sums(other)
    for name, mine in sums(one).items():
        scale = np.abs(theirs[name]).max(initial=1e-300)
        assert np.abs(mine - theirs[name]).max() <= 1e-10 * scale, name
    assert one.counters == other.counters


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(0, 2**32 - 1))
def test_any_split_in_any_order_equals_one_engine(split, seed):
    rng = np.random.default_rng(seed)
    counts = rng.poisson(0.5, (len(split), D)) * (np.arange(len(split)) % 7 > 0)[:, None]
    batch = DocumentBatch.from_matrix(counts)
    whole = learn(batch, 0, len(split))
    engines = [Engine(SETTINGS, shared_projection=SHARED) for _ in range(5)]
    for n, part in enumerate(split):
        engines[part].add(batch.rows(n, n + 1))
    order = rng.permutation(5)
    merged = engines[order[0]]
    for part in order[1:]:
        merged.merge(engines[part])
    assert_equal_sums(merged, whole)
    assert merged.documents_seen + merged.counters.documents_skipped == len(split)


def test_what_cannot_be_merged_is_refused_and_nothing_added(documents):
    engine = learn(documents, 0, 500)
    before = {name: array.copy() for name, array in engine.state()[0].items()}
    own = learn(documents, 500, 1000, None)
    other_projection = SHARED.copy()
    other_projection[0, 0] += 1e-12
    for one, other, rule in [
        (engine, own, r"start=[0-9a-f]{16},None; make one"),
        (engine, learn(documents, 500, shared=other_projection), "no common start.*start="),
        (own, Engine(SETTINGS), "start=None,None"),
    ]:
        with pytest.raises(InvalidSettingError, match=rule):
            one.merge(other)
    for name, array in engine.state()[0].items():
        np.testing.assert_array_equal(array, before[name])
    # Settings without effect on sums may differ.
    settings = replace(SETTINGS, warmup_documents=20_000)
    engine.merge(learn(documents, 500, settings=settings))
    assert (engine.documents_seen, engine.settings) == (ROWS, SETTINGS)


def kafka(offsets, **changes):
    log = {"cluster": "c", "topic": "news", "topic_id": "t", "partitions": "all", "lost": {}}
    return {**log, "offsets": offsets, **changes}


FILES = {"file": 0, "name": "/a", "record": 3, "offset": 9, "files": 2, "list": "ab"}


def test_positions_say_what_both_have_read():
    for one, other, wanted in (
        # Other partitions are other documents, though they may say the same.
        (kafka({"0": 5, "2": 1}), kafka({"1": 5}), None),
        (kafka({"0": 5, "10": 3}), kafka({"10": 7, "0": 0}), "partitions=0,10"),
        (kafka({"0": 5}), kafka({"0": 5}, topic_id="u"), None),
        (kafka({"0": 5}), kafka({"0": 5}, cluster="d"), None),
        (kafka({"0": 5}), kafka({"0": 5}, topic="old"), None),
        (kafka({"0": 5}), FILES, None),
        (FILES, {**FILES, "file": 1}, "files=2 list='ab'"),
        (FILES, {**FILES, "list": "cd"}, None),
        ({"record": 5}, {"record": 5}, None),
    ):
        for found in (overlap(one, other), overlap(other, one)):
            assert found is None if wanted is None else wanted in found


def save(folder, engine, position, words=WORDS, rows=None):
    with Store.open(folder) as store:
        store.write(store.capture(engine, position, words, rows=rows))
    return folder


@pytest.fixture
def folders(tmp_path, documents):
    """Three daemons with a third of the documents each; of the last one some wait for a block."""
    made = []
    for n in range(3):
        start, stop = 1000 * n, 1000 * n + 1000
        learned_to, rows = (stop - 42, documents.rows(stop - 42, stop)) if n == 2 else (stop, None)
        engine = learn(documents, start, learned_to)
        made.append(save(tmp_path / str(n), engine, kafka({str(n): 1000}), rows=rows))
    return made


def test_folders_of_daemons_that_run_are_joined(folders, documents):
    with Store.open(folders[0]), Store.open(folders[1]):
        merged = merge_checkpoints(folders)
    assert_equal_sums(merged.engine, learn(documents))
    assert merged.vocabulary == WORDS
    offsets = [found.position["offsets"] for found in merged.checkpoints]
    assert offsets == [{str(n): 1000} for n in range(3)]
    assert [read_newest_engine(folder)[1].documents_seen for folder in folders] == [1000] * 3


def test_no_document_counts_twice_as_far_as_positions_say(folders, tmp_path, documents):
    (tmp_path / "link").symlink_to(folders[0])
    with pytest.raises(InvalidSettingError, match=r"states to merge, got paths=.*/0', '.*/0'"):
        merge_checkpoints([folders[0], folders[1], tmp_path / "link"])
    both = save(tmp_path / "both", learn(documents, 0, 10), kafka({"2": 3, "7": 7}))
    with pytest.raises(InvalidSettingError, match=r"news' partitions=2.*disjoint part"):
        merge_checkpoints([*folders, both])
    pipes = [
        save(tmp_path / f"pipe-{n}", learn(documents, n, n + 10), {"record": 10}) for n in (0, 10)
    ]
    assert merge_checkpoints(pipes).engine.documents_seen == 20


def test_a_private_state_is_never_read(tmp_path, documents):
    settings = PrivateSettings(
        n_components=3, n_features=D, epsilon=10.0, delta=1e-4, documents_per_snapshot=1000
    )
    ledger = open_ledger(tmp_path / "ledger", settings)
    learner = PrivateLearner(settings, ReleaseManager(SeededNoise(3), ledger), vocabulary="public")
    learner.add(documents.rows(0, 10))
    save(tmp_path / "a", learner, {})
    ledger.close()
    rule = r"cannot leave its daemon, got .*daemon publishes"
    for read in (read_newest_engine, lambda folder: merge_checkpoints([folder])):
        with pytest.raises(InvalidSettingError, match=rule):
            read(tmp_path / "a")


def test_files_that_vanish_meanwhile_are_looked_for_again(tmp_path, documents, monkeypatch):
    with Store.open(tmp_path / "a") as store:
        store.write(store.capture(learn(documents, 0, 100), {"record": 100}, WORDS))
        restored = []

        def overtaken(self, restore=Checkpoint.restore):
            restored.append(self.generation)
            if len(restored) == 1:
                for stop in (200, 300):
                    store.write(store.capture(learn(documents, 0, stop), {"record": stop}, WORDS))
            return restore(self)

        monkeypatch.setattr(Checkpoint, "restore", overtaken)
        checkpoint, engine = read_newest_engine(tmp_path / "a")
        assert restored == [1, 3]
        assert (checkpoint.position, engine.documents_seen) == ({"record": 300}, 300)
        # What is damaged is skipped and reported; what is gone for good is no reason to wait.
        newest = tmp_path / "a" / "state-000003"
        newest.write_bytes(newest.read_bytes()[:-1] + b"?")
        checkpoint, engine = read_newest_engine(tmp_path / "a")
        assert (checkpoint.position, engine.documents_seen) == ({"record": 200}, 200)
        assert "generation 3" in checkpoint.skipped[0]
        for path in (tmp_path / "a").glob("state-*"):
            path.unlink()
        with pytest.raises(ModelFileError, match="none of 2 checkpoints is whole"):
            read_newest_engine(tmp_path / "a")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "projection"


def test_a_projection_comes_back_with_its_words(path, documents):
    own = learn(documents, 0, 1000, None)
    saved = save_projection(path, own, WORDS)
    np.testing.assert_array_equal(saved.beginning, own.new_beginning())
    found = load_projection(path)
    np.testing.assert_array_equal(found.beginning, saved.beginning)
    assert (found.vocabulary, found.digest) == (WORDS, saved.digest)
    assert EngineSettings(**found.settings) == SETTINGS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(VocabularyError, match=r"by different words, got kinds=.*path="):
        check_same_words(found.vocabulary, OTHERS, str(path))
    hashed = Vocabulary.hashed(5)
    batch = PlantedLDA(2, 32, seed=1).documents(50)
    settings = EngineSettings(n_components=2, n_features=32, oversampling=2)
    save_projection(path, learn(batch, 0, 50, None, settings), hashed)
    assert load_projection(path).vocabulary == hashed


@pytest.fixture(scope="module")
def start_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("start") / "start"
    engine = fed(KINDS["refining"].engine(), text_documents(), 0, 600)
    save_projection(path, engine, Vocabulary.given([f"w{i}" for i in range(300)]))
    return path, engine


def test_a_start_comes_back_bit_for_bit_and_is_given_on(start_file, path):
    saved, engine = start_file
    shared = load_projection(saved)
    assert shared.refines
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600
    begun = fed(shared.engine(engine.settings), text_documents(), 600, 700)
    straight = Engine(engine.settings, shared_start=engine.new_beginning())
    assert_same_state(begun, fed(straight, text_documents(), 600, 700))
    save_projection(path, begun, shared.vocabulary)
    assert path.read_bytes() == saved.read_bytes()
    assert save_projection(path, begun, shared.vocabulary, renew=True).digest != shared.digest


def test_daemons_that_refine_are_merged_in_any_order(start_file, tmp_path):
    saved, engine = start_file
    shared, folders = load_projection(saved), []
    words = shared.vocabulary
    for number, (begin, end) in enumerate([(600, 1100), (1100, 1130), (1130, 1131)]):
        learner = fed(shared.engine(engine.settings), text_documents(), begin, end)
        folders.append(save(tmp_path / str(number), learner, kafka({str(number): 1}), words))
    # Those of a block that is not full yet are learned too.
    waiting = text_documents().rows(1131, 1140)
    begun = shared.engine(engine.settings)
    folders.append(save(tmp_path / "3", begun, kafka({"3": 1}), words, rows=waiting))
    one, other = (merge_checkpoints(each).engine for each in (folders, folders[::-1]))
    assert one.documents_seen == 540
    np.testing.assert_allclose(one.snapshot().components, other.snapshot().components, rtol=1e-9)
    np.testing.assert_array_equal(one.snapshot().alpha, other.snapshot().alpha)
    assert_same_state(merge_checkpoints(folders[:1]).engine, read_newest_engine(folders[0])[1])
    save_state(tmp_path / "state", one)
    assert_same_state(load_state(tmp_path / "state"), one)
