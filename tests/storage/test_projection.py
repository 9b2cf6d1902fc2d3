"""Files of projections: they come back with their words, and what is no projection is refused."""

import stat

import numpy as np
import pytest

from streamlda.container import read_arrays, write_arrays
from streamlda.engine.engine import Engine
from streamlda.engine.settings import EngineSettings
from streamlda.errors import (
    InsufficientDataError,
    InvalidSettingError,
    ModelFileError,
    NewerFormatError,
    VocabularyError,
)
from streamlda.simulate import PlantedLDA
from streamlda.storage.projection import FORMAT, load_projection, save_projection
from streamlda.text.vocabulary import Vocabulary
from tests.storage.test_merge import SETTINGS, WORDS, D, learned


@pytest.fixture(scope="module")
def documents():
    return PlantedLDA(3, D, seed=4, mean_length=20, topic_concentration=0.1).documents(1000)


def test_a_projection_comes_back_with_its_words(tmp_path, documents):
    path = tmp_path / "map"
    own = Engine(SETTINGS)
    own.add(documents.rows(0, 1000))
    saved = save_projection(path, own, WORDS)
    np.testing.assert_array_equal(saved.whitening, own.better_projection())
    found = load_projection(path, WORDS)
    np.testing.assert_array_equal(found.whitening, saved.whitening)
    assert (found.vocabulary, found.digest) == (WORDS, saved.digest)
    assert EngineSettings(**found.settings) == SETTINGS
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # An engine that shares it gives it on, byte for byte, and a better one only with `renew`.
    data = path.read_bytes()
    sharing = learned(documents, stop=1000, shared=found.whitening)
    save_projection(path, sharing, WORDS)
    assert path.read_bytes() == data
    better = save_projection(path, sharing, WORDS, renew=True)
    assert better.digest != saved.digest
    np.testing.assert_array_equal(better.whitening, sharing.better_projection())
    hashed = Vocabulary.hashed(5)
    engine = Engine(EngineSettings(n_components=2, n_features=32, oversampling=2))
    engine.add(PlantedLDA(2, 32, seed=1).documents(50))
    save_projection(path, engine, hashed)
    assert load_projection(path).vocabulary == hashed


def test_a_projection_of_other_words_is_refused(tmp_path, documents):
    engine = learned(documents, 0, 100)
    save_projection(tmp_path / "map", engine, WORDS)
    others = Vocabulary.given([f"v{i}" for i in range(D)])
    with pytest.raises(VocabularyError, match=r"read by the same words, got fingerprints=.*path="):
        load_projection(tmp_path / "map", others)
    with pytest.raises(InvalidSettingError, match="words=31 n_features=30; pass that one"):
        save_projection(tmp_path / "map", engine, Vocabulary.given([f"w{i}" for i in range(31)]))
    with pytest.raises(InsufficientDataError, match="documents_seen=0"):
        save_projection(tmp_path / "new", Engine(SETTINGS), WORDS)
    assert [path.name for path in tmp_path.iterdir()] == ["map"]


@pytest.mark.parametrize(
    ("change", "rule"),
    [
        (lambda a, m: a.update(whitening=a["whitening"][1:]), "29 rows for 30 words"),
        (lambda a, m: a["whitening"].fill(np.inf), "no finite projection"),
        (lambda a, m: m.update(fingerprint="0" * 64), "fingerprint"),
        (lambda a, m: a.pop("vocabulary"), "KeyError"),
    ],
)
def test_a_made_up_projection_is_refused(tmp_path, documents, change, rule):
    path = tmp_path / "map"
    save_projection(path, learned(documents, 0, 10), WORDS)
    file = read_arrays(path, FORMAT, 1)
    change(file.arrays, file.metadata)
    write_arrays(path, FORMAT, 1, file.arrays, file.metadata)
    with pytest.raises(ModelFileError, match=rf"must hold a valid projection.*{rule}.*again"):
        load_projection(path)
    write_arrays(path, FORMAT, 2, file.arrays, file.metadata)
    with pytest.raises(NewerFormatError, match="format_version=2"):
        load_projection(path)
