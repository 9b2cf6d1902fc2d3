"""NPMI coherence: its numbers against gensim, and by hand."""

import math
import warnings

import numpy as np
import pytest

from streamlda.model.coherence import NpmiCounter
from streamlda.model.evaluation import top_words
from streamlda.simulate import PlantedLDA
from tests.corpora import batch_of


def gensim_npmi(documents, top):
    with warnings.catch_warnings():
        # Its own modules may warn while they are imported.
        warnings.simplefilter("ignore", DeprecationWarning)
        import gensim.corpora
        import gensim.models
    texts = [[f"w{token}" for token in document] for document in documents]
    model = gensim.models.CoherenceModel(
        topics=[[f"w{word}" for word in row] for row in top],
        texts=texts,
        dictionary=gensim.corpora.Dictionary(texts),
        coherence="c_npmi",
        window_size=10_000,
        topn=top.shape[1],
        processes=1,
    )
    return model.get_coherence_per_topic(), model.get_coherence()


def test_npmi_equals_gensim_with_a_window_of_all_the_document():
    # With repeats and short documents; top words that occur.
    planted = PlantedLDA(6, 120, mean_length=35, seed=1)
    top = top_words(planted.components, 10)
    documents = [tokens.tolist() for tokens in planted.draw(250)[0]]
    documents += [documents[0][:4], documents[1][:10], documents[2][:11]]
    topics, mean = gensim_npmi(documents, top)
    batch = batch_of(documents, 120)
    # At once, in parts, and among documents without a word, which are none.
    whole, parts, blank = NpmiCounter(top), NpmiCounter(top), NpmiCounter(top)
    whole.add(batch)
    for start in range(0, len(documents), 37):
        parts.add(batch.rows(start, min(start + 37, len(documents))))
    blank.add(batch_of([[], *documents, []], 120))
    for found in (whole.result(), parts.result(), blank.result()):
        np.testing.assert_allclose(found.per_topic, topics, rtol=0, atol=1e-9)
        assert found.mean == pytest.approx(mean, abs=1e-9)
        assert found.documents == len(documents)
    assert np.ptp(topics) > 0.01


def test_npmi_matches_values_worked_out_by_hand():
    # {0, 1}, {0}, {1}, {5}: p(0) = p(1) = 1/2, p(0, 1) = 1/4, so PMI is 0; 2 is unseen.
    counter, unseen = NpmiCounter([[0, 1]]), NpmiCounter([[0, 1, 2]])
    for each in (counter, unseen):
        each.add(batch_of([[0, 1], [0], [1], [5]], 6))
    assert counter.result().mean == pytest.approx(0.0, abs=1e-9)
    assert unseen.result().per_topic[0] == pytest.approx(-2 / 3, abs=1e-9)
    counter.add(batch_of([[0, 1], [0, 1]], 6))
    # Now p(0) = p(1) = 4/6 and p(0, 1) = 3/6.
    assert counter.result().mean == pytest.approx(math.log(9 / 8) / math.log(2), abs=1e-9)
