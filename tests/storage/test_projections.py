"""Files of shared projections and starts, and daemons that are merged with them."""

import stat

import numpy as np
import pytest

from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import VocabularyError
from streamlda.simulate import PlantedLDA
from streamlda.storage.checkpoint import load_state
from streamlda.storage.merge import (
    check_same_words,
    load_projection,
    merge_checkpoints,
    read_newest_engine,
    save_projection,
)
from streamlda.text.vocabulary import Vocabulary
from tests.engine.kinds import KINDS, assert_same_state, fed, save_state, text_documents
from tests.storage.test_merge import (
    OTHERS,
    SETTINGS,
    WORDS,
    documents,
    kafka,
    learned,
    save,
)

__all__ = ["documents"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "projection"


def test_a_projection_comes_back_with_its_words(path, documents):
    own = learned(documents, 0, 1000, None)
    saved = save_projection(path, own, WORDS)
    np.testing.assert_array_equal(saved.beginning, own.new_beginning())
    found = load_projection(path)
    np.testing.assert_array_equal(found.beginning, saved.beginning)
    assert (found.vocabulary, found.digest) == (WORDS, saved.digest)
    assert EngineSettings(**found.settings) == SETTINGS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    hashed = Vocabulary.hashed(5)
    batch = PlantedLDA(2, 32, seed=1).documents(50)
    settings = EngineSettings(n_components=2, n_features=32, oversampling=2)
    save_projection(path, learned(batch, 0, 50, None, settings), hashed)
    assert load_projection(path).vocabulary == hashed


@pytest.fixture(scope="module")
def start_file(tmp_path_factory):
    """A file of an engine whose topics are refined, and the engine."""
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
    # What was merged can be saved, and continues.
    save_state(tmp_path / "state", one)
    assert_same_state(load_state(tmp_path / "state"), one)


def test_a_projection_of_other_words_is_refused(path, documents):
    engine = learned(documents, 0, 100)
    save_projection(path, engine, WORDS)
    with pytest.raises(VocabularyError, match=r"read by the same words, got kinds=.*path="):
        check_same_words(load_projection(path).vocabulary, OTHERS, str(path))
