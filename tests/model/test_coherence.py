"""NPMI coherence: its kernel against loops, its numbers against gensim."""

import itertools
import math
import warnings

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, InvalidDocumentsError, InvalidSettingError
from streamlda.kernels.cooccurrence import count_windows
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


@pytest.mark.parametrize(
    ("kind", "window"),
    [
        *((kind, 10) for kind in DOCUMENTS),
        *((kind, n) for kind in ("random", "repeated word") for n in (1, 2, 2**62)),
    ],
)
def test_count_windows_equals_oracle(kind, window):
    documents = DOCUMENTS[kind]
    occurrences, pairs, windows = oracle_text.count_windows(documents, TOPICS, window)
    slot_of_word = np.array([0, 1, 2, 3, -1, 4], dtype=np.int32)
    slot_of_entry = np.array([0, 1, 2, 2, 3, 4], dtype=np.int32)
    tables = slot_of_word, slot_of_entry, np.array([0, 1, 2, 4, 5, 6]), np.arange(6)
    since, counted = np.full(5, -1), np.zeros(5, dtype=np.int64)
    halves = np.zeros((6, 3), dtype=np.int64)
    assert count_windows(*packed(documents), window, *tables, since, counted, halves) == windows
    assert counted.tolist() == [occurrences[word] for word in (0, 1, 2, 3, 5)]
    assert np.all(since == -1)
    for k, i, j in itertools.product(range(2), range(3), range(3)):
        both = halves[3 * k + i, j] + halves[3 * k + j, i]
        assert both == (pairs[k, max(i, j), min(i, j)] if i != j else 0)


def gensim_npmi(documents, top, window):
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
        window_size=window,
        topn=top.shape[1],
        processes=1,
    )
    return model.get_coherence_per_topic(), model.get_coherence()


def test_npmi_equals_gensim():
    # With repeats, an empty and short documents; top words that occur.
    planted = PlantedLDA(6, 120, mean_length=35, seed=1)
    drawn, top = planted.draw(250), top_words(planted.components, 10)
    documents = [part.tolist() for part in np.split(drawn.token_ids, drawn.offsets[1:-1])]
    documents += [[], documents[0][:4], documents[1][:10], documents[2][:11]]
    topics, mean = gensim_npmi(documents, top, None)
    # At once, in parts, and with most words outside the vocabulary.
    whole, parts, outside = NpmiCounter(top), NpmiCounter(top), NpmiCounter(top)
    tokens, offsets = packed(documents)
    whole.add(tokens, offsets)
    for start in range(0, len(documents), 37):
        parts.add(*packed(documents[start : start + 37]))
    outside.add(np.where(np.isin(tokens, top), tokens, -1), offsets)
    for found in (whole.result(), parts.result(), outside.result()):
        np.testing.assert_allclose(found.per_topic, topics, rtol=0, atol=1e-9)
        assert found.mean == pytest.approx(mean, abs=1e-9)
        assert found.windows == whole.result().windows
    assert np.ptp(topics) > 0.01
    # Whole documents are windows without an end, and need no order.
    topics, _ = gensim_npmi(documents, top, 10_000)
    rows = [np.bincount(np.array(document, dtype=int), minlength=120) for document in documents]
    ordered, counted = NpmiCounter(top, window=None), NpmiCounter(top, window=None)
    ordered.add(tokens, offsets)
    counted.add_batch(DocumentBatch.from_matrix(np.array(rows)))
    for counter in (ordered, counted):
        assert counter.result().windows == len(documents)
        np.testing.assert_allclose(counter.result().per_topic, topics, rtol=0, atol=1e-9)


def test_npmi_matches_values_worked_out_by_hand():
    # Windows {0, 1}, {0}, {1}, {}: p(0) = p(1) = 1/2, p(0, 1) = 1/4, so PMI is 0; 2 is unseen.
    counter, unseen = NpmiCounter([[0, 1]]), NpmiCounter([[0, 1, 2]])
    for each in (counter, unseen):
        each.add(*packed([[0, 1], [0], [1], [5]]))
    assert counter.result().mean == pytest.approx(0.0, abs=1e-9)
    assert unseen.result().per_topic[0] == pytest.approx(-2 / 3, abs=1e-9)
    counter.add(*packed([[0, 1], [0, 1]]))
    # Now p(0) = p(1) = 4/6 and p(0, 1) = 3/6.
    assert counter.result().mean == pytest.approx(math.log(9 / 8) / math.log(2), abs=1e-9)


def test_npmi_refuses():
    for top in ([0, 1], [[0]], [[0.5, 1.0]], [[0, 0]], [[-1, 0]]):
        with pytest.raises(InvalidSettingError, match="got"):
            NpmiCounter(top)
    with pytest.raises(InvalidSettingError, match="got"):
        NpmiCounter([[0, 1]], window=0)
    counter = NpmiCounter([[0, 1]])
    with pytest.raises(InsufficientDataError, match="windows=0"):
        counter.result()
    for offsets in ([], [0, 2], [1, 3], [0, 3, 2, 3]):
        with pytest.raises(InvalidDocumentsError, match="offsets must rise"):
            counter.add(np.zeros(3, dtype=np.int32), np.array(offsets, dtype=np.int64))
    with pytest.raises(InvalidSettingError, match="window=None"):
        counter.add_batch(DocumentBatch.from_matrix(np.ones((2, 3))))
