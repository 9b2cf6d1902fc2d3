"""The newest of the models that come, one after the other."""

import logging
from dataclasses import replace

import pytest

from streamlda.errors import ModelFileError, VocabularyError
from streamlda.storage.snapshots import NewestModel, Snapshots, fingerprint
from tests.service.planted import model, topics


def test_a_folder_has_the_snapshot_that_came_last(tmp_path):
    snapshots = Snapshots(tmp_path)
    newest = NewestModel(tmp_path)
    assert newest.find() is None
    for number in (1, 3):
        snapshots.publish(number, model(topics(seed=number)))
        found = newest.find()
        assert (found.number, found.digest) == (number, fingerprint(snapshots.path(number)))
        assert (found.model.components == topics(seed=number)).all()
    assert newest.find() is found


def test_a_file_is_read_again_once_it_was_replaced(tmp_path):
    path = tmp_path / "model"
    with pytest.raises(FileNotFoundError):
        NewestModel(path).find()
    digests = set()
    newest = NewestModel(path)
    for seed in (1, 2):
        model(topics(seed=seed)).save(path)
        found = newest.find()
        assert (found.model.components == topics(seed=seed)).all()
        assert found.number is None
        digests.add(found.digest)
    assert len(digests) == 2


def test_a_damaged_model_is_left_out_while_there_is_another(tmp_path, caplog):
    path = tmp_path / "model"
    path.write_bytes(b"no model")
    newest = NewestModel(path)
    with pytest.raises(ModelFileError):
        newest.find()
    model(topics()).save(path)
    first = newest.find()
    path.write_bytes(b"no model either")
    with caplog.at_level(logging.WARNING):
        assert newest.find() is newest.find() is first
    assert len(caplog.records) == 1
    path.unlink()
    assert newest.find() is first
    model(topics(seed=2)).save(path)
    assert newest.find().digest != first.digest


def test_other_words_are_refused_and_the_same_under_other_topics_are_not(tmp_path):
    snapshots = Snapshots(tmp_path)
    newest = NewestModel(tmp_path)
    snapshots.publish(1, model(topics(4)))
    newest.find()
    snapshots.publish(2, model(topics(5)))
    assert newest.find().number == 2
    snapshots.publish(3, model(topics(4, n_features=61)))
    with pytest.raises(VocabularyError, match="the words of the one before"):
        newest.find()
    # A vocabulary that grows may have others.
    growing = {"vocabulary_changes": {"entered": 1, "left": 0}}
    snapshots.publish(4, replace(model(topics(4, n_features=61)), settings=growing))
    assert newest.find().model.n_features == 61
