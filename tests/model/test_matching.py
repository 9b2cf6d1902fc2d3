"""Distances of topics, by their definition and over other words."""

import numpy as np
from scipy.spatial.distance import cdist

from streamlda.model.matching import distances
from streamlda.text.vocabulary import Vocabulary
from tests.service.planted import model, topics, words


def hellinger(one, other):
    return cdist(np.sqrt(one), np.sqrt(other)) / np.sqrt(2)


def test_distances_equal_the_definition_where_words_differ_too(monkeypatch):
    names = words(30)
    one, other = topics(3, 20, seed=1), topics(5, 20, seed=2)
    before = model(one, vocabulary=Vocabulary.given(names[:20]))
    after = model(other, vocabulary=Vocabulary.given(names[29:9:-1]))
    wide_one, wide_other = np.zeros((3, 30)), np.zeros((5, 30))
    wide_one[:, :20], wide_other[:, 10:] = one, other[:, ::-1]
    for _ in range(2):
        np.testing.assert_allclose(
            distances(before, after), hellinger(wide_one, wide_other), atol=1e-12
        )
        found = distances(model(one), model(other))
        np.testing.assert_allclose(found, hellinger(one, other), atol=1e-12)
        assert np.diagonal(distances(before, before)).tolist() == [0, 0, 0]
        monkeypatch.setattr("streamlda.model.diagnostics._BLOCK_COLUMNS", 7)


def test_columns_that_mean_different_things_have_nothing_in_common():
    table, hashed, given = topics(2, 64), Vocabulary.hashed(6), Vocabulary.given(words(64))
    narrow = {kind: model(table, vocabulary=kind) for kind in (hashed, given, None)}
    wider = model(topics(2, 128), vocabulary=Vocabulary.hashed(7))
    for one, other in [
        (narrow[hashed], narrow[given]),
        (narrow[None], narrow[given]),
        (narrow[hashed], narrow[None]),
        (narrow[hashed], wider),
        (narrow[None], model(topics(2, 65), vocabulary=None)),
    ]:
        assert distances(one, other).tolist() == [[1, 1], [1, 1]]
    again = model(table, vocabulary=Vocabulary.hashed(6))
    assert np.diagonal(distances(narrow[hashed], again)).tolist() == [0, 0]
