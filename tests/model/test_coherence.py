"""NPMI coherence: its kernel against loops, its numbers against gensim."""

import itertools
import math
import warnings

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, InvalidSettingError
from streamlda.kernels.cooccurrence import count_documents
from streamlda.model.coherence import NpmiCounter
from streamlda.model.evaluation import top_words
from streamlda.simulate import PlantedLDA
from tests import oracle_text

pytestmark = pytest.mark.kernels

TOPICS = [[0, 1, 2], [2, 3, 5]]


rng = np.random.default_rng(0)
DOCUMENTS = {
    "random": [rng.integers(-1, 9, n).tolist() for n in rng.integers(0, 40, 60)],
    "no documents": [],
    "empty": [[], []],
    "one word": [[2]],
    "repeated word": [[2] * 30, [0, 2] * 20],
    "three tokens": [[0, 1, 2]],
    "unwatched": [[7, -1, 8, 2**31 - 1, -5] * 5],
    "two blocks": [rng.integers(-1, 9, n).tolist() for n in rng.integers(0, 4, 4200)],
    "many tokens": [rng.integers(-1, 9, 20_000).tolist()],
}


def packed(documents):
    tokens = np.array(list(itertools.chain(*documents)), dtype=np.int32)
    return tokens, np.cumsum([0, *map(len, documents)])


@pytest.mark.parametrize("kind", DOCUMENTS)
def test_count_documents_equals_oracle(kind):
    documents = DOCUMENTS[kind]
    occurrences, pairs = oracle_text.count_documents(documents, TOPICS)
    slot_of_word = np.array([0, 1, 2, 3, -1, 4], dtype=np.int32)
    slot_of_place = np.array([0, 1, 2, 2, 3, 4], dtype=np.int32)
    counted, halves = np.zeros(5, dtype=np.int64), np.zeros((6, 3), dtype=np.int64)
    count_documents(*packed(documents), slot_of_word, slot_of_place, counted, halves)
    assert counted.tolist() == [occurrences[word] for word in (0, 1, 2, 3, 5)]
    for k, i, j in itertools.product(range(2), range(3), range(3)):
        both = halves[3 * k + i, j] + halves[3 * k + j, i]
        assert both == (pairs[k, max(i, j), min(i, j)] if i != j else 0)


def counts_of(documents, n_words):
    rows = [np.bincount(np.array(document, dtype=int), minlength=n_words) for document in documents]
    return DocumentBatch.from_matrix(np.array(rows))


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
    batch = counts_of(documents, 120)
    # At once, in parts, and among documents without a word, which are none.
    whole, parts, blank = NpmiCounter(top), NpmiCounter(top), NpmiCounter(top)
    whole.add(batch)
    for start in range(0, len(documents), 37):
        parts.add(batch.rows(start, min(start + 37, len(documents))))
    blank.add(counts_of([[], *documents, []], 120))
    for found in (whole.result(), parts.result(), blank.result()):
        np.testing.assert_allclose(found.per_topic, topics, rtol=0, atol=1e-9)
        assert found.mean == pytest.approx(mean, abs=1e-9)
        assert found.documents == len(documents)
    assert np.ptp(topics) > 0.01


def test_npmi_matches_values_worked_out_by_hand():
    # {0, 1}, {0}, {1}, {5}: p(0) = p(1) = 1/2, p(0, 1) = 1/4, so PMI is 0; 2 is unseen.
    counter, unseen = NpmiCounter([[0, 1]]), NpmiCounter([[0, 1, 2]])
    for each in (counter, unseen):
        each.add(counts_of([[0, 1], [0], [1], [5]], 6))
    assert counter.result().mean == pytest.approx(0.0, abs=1e-9)
    assert unseen.result().per_topic[0] == pytest.approx(-2 / 3, abs=1e-9)
    counter.add(counts_of([[0, 1], [0, 1]], 6))
    # Now p(0) = p(1) = 4/6 and p(0, 1) = 3/6.
    assert counter.result().mean == pytest.approx(math.log(9 / 8) / math.log(2), abs=1e-9)


def test_npmi_refuses():
    for top in ([0, 1], [[0]]):
        with pytest.raises(InvalidSettingError, match="got"):
            NpmiCounter(top)
    with pytest.raises(InsufficientDataError, match="documents=0"):
        NpmiCounter([[0, 1]]).result()
