"""Held-out likelihood, coherence against gensim, diversity and matching."""

import itertools
import math
import warnings

import numpy as np
import pytest

from streamlda.documents import DocumentBatch
from streamlda.errors import InsufficientDataError, InvalidDocumentsError, InvalidSettingError
from streamlda.evaluation import (
    DocumentCompletion,
    NpmiCounter,
    document_completion,
    matched_l1_error,
    top_words,
    topic_diversity,
)
from streamlda.kernels.cooccurrence import count_windows
from streamlda.simulate import PlantedLDA
from tests import oracle_text

TOPICS = [[0, 1, 2], [2, 3, 5]]


def documents_of(kind):
    rng = np.random.default_rng(0)
    return {
        "random": [rng.integers(-1, 9, n).tolist() for n in rng.integers(0, 40, 60)],
        "no documents": [],
        "empty": [[], []],
        "one word": [[2]],
        "repeated word": [[2] * 30, [0, 2] * 20],
        "three tokens": [[0, 1, 2]],
        "unwatched": [[7, -1, 8, 2**31 - 1, -5] * 5],
        "100,000 tokens": [rng.integers(-1, 9, 100_000).tolist()],
    }[kind]


KINDS = [
    "random",
    "no documents",
    "empty",
    "one word",
    "repeated word",
    "three tokens",
    "unwatched",
    "100,000 tokens",
]


def packed(documents):
    tokens = np.array(list(itertools.chain(*documents)), dtype=np.int32)
    return tokens, np.cumsum([0, *map(len, documents)])


@pytest.mark.parametrize("window", [1, 2, 10, 2**62])
@pytest.mark.parametrize("kind", KINDS)
def test_count_windows_equals_oracle(kind, window):
    documents = documents_of(kind)
    occurrences, pairs, windows = oracle_text.count_windows(documents, TOPICS, window)
    slot_of_word = np.array([0, 1, 2, 3, -1, 4], dtype=np.int32)
    slot_of_place = np.array([0, 1, 2, 2, 3, 4], dtype=np.int32)
    pointers, places = np.array([0, 1, 2, 4, 5, 6]), np.arange(6)
    for function in (count_windows, getattr(count_windows, "py_func", count_windows)):
        since, counted = np.full(5, -1), np.zeros(5, dtype=np.int64)
        halves = np.zeros((6, 3), dtype=np.int64)
        found = function(
            *packed(documents),
            window,
            slot_of_word,
            slot_of_place,
            pointers,
            places,
            since,
            counted,
            halves,
        )
        assert found == windows
        assert counted.tolist() == [occurrences[word] for word in (0, 1, 2, 3, 5)]
        assert np.all(since == -1)
        for k, i, j in itertools.product(range(2), range(3), range(3)):
            both = halves[3 * k + i, j] + halves[3 * k + j, i]
            assert both == (pairs[k, max(i, j), min(i, j)] if i != j else 0)


@pytest.fixture(scope="module")
def gensim():
    """Return gensim, whose own modules may warn while they are imported."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import gensim.corpora
        import gensim.models
    return gensim


def gensim_npmi(gensim, documents, top, window=None):
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


def simulated(n_documents=250, mean_length=35):
    """Return documents with repeats, an empty and a short one, and top words that occur."""
    planted = PlantedLDA(6, 120, mean_length=mean_length, seed=1)
    drawn = planted.draw(n_documents)
    documents = [part.tolist() for part in np.split(drawn.token_ids, drawn.offsets[1:-1])]
    documents += [[], documents[0][:4], documents[1][:10], documents[2][:11]]
    return documents, top_words(planted.components, 10)


def test_npmi_equals_gensim(gensim):
    documents, top = simulated()
    topics, mean = gensim_npmi(gensim, documents, top)
    counter = NpmiCounter(top)
    counter.add(*packed(documents))
    found = counter.result()
    np.testing.assert_allclose(found.per_topic, topics, rtol=0, atol=1e-9)
    assert found.mean == pytest.approx(mean, abs=1e-9)
    assert np.ptp(found.per_topic) > 0.01


def test_npmi_equals_gensim_when_most_words_are_outside_the_vocabulary(gensim):
    documents, top = simulated()
    topics, _ = gensim_npmi(gensim, documents, top)
    counter = NpmiCounter(top)
    tokens, offsets = packed(documents)
    counter.add(np.where(np.isin(tokens, top), tokens, -1), offsets)
    np.testing.assert_allclose(counter.result().per_topic, topics, rtol=0, atol=1e-9)


def test_npmi_of_whole_documents_equals_gensim_with_an_endless_window(gensim):
    documents, top = simulated()
    topics, _ = gensim_npmi(gensim, documents, top, window=10_000)
    rows = [np.bincount(np.array(document, dtype=int), minlength=120) for document in documents]
    ordered, counted = NpmiCounter(top, window=None), NpmiCounter(top, window=None)
    ordered.add(*packed(documents))
    counted.add_batch(DocumentBatch.from_matrix(np.array(rows)))
    assert counted.result().windows == len(documents)
    for counter in (ordered, counted):
        np.testing.assert_allclose(counter.result().per_topic, topics, rtol=0, atol=1e-9)


def test_stream_equals_batch_of_npmi():
    documents, top = simulated()
    whole, parts = NpmiCounter(top), NpmiCounter(top)
    whole.add(*packed(documents))
    for start in range(0, len(documents), 37):
        parts.add(*packed(documents[start : start + 37]))
    assert parts.result().mean == whole.result().mean
    assert parts.result().windows == whole.result().windows


def test_gensim_windows_lose_a_repeated_word_and_plain_windows_do_not():
    document = [0, 4, 0, 4, 4, 4]
    kept = oracle_text.plain_windows([document], [0], 3)[0]
    counted = oracle_text.count_windows([document], [[0, 1]], 3)[0][0]
    assert (kept, counted) == (3, 1)


def test_npmi_matches_a_value_worked_out_by_hand():
    # Windows {0, 1}, {0}, {1}, {}: p(0) = p(1) = 1/2, p(0, 1) = 1/4, so PMI is 0.
    counter = NpmiCounter([[0, 1]])
    counter.add(*packed([[0, 1], [0], [1], [5]]))
    assert counter.result().mean == pytest.approx(0.0, abs=1e-9)
    counter.add(*packed([[0, 1], [0, 1]]))
    # Now p(0) = p(1) = 4/6 and p(0, 1) = 3/6.
    assert counter.result().mean == pytest.approx(math.log(9 / 8) / math.log(2), abs=1e-9)


def test_npmi_of_an_unseen_word_is_the_lowest():
    counter = NpmiCounter([[0, 1, 2]])
    counter.add(*packed([[0, 1], [0], [1], [5]]))
    assert counter.result().per_topic[0] == pytest.approx(-2 / 3, abs=1e-9)


@pytest.mark.parametrize(
    ("top", "window"),
    [([0, 1], 10), ([[0]], 10), ([[0.5, 1.0]], 10), ([[0, 0]], 10), ([[-1, 0]], 10), ([[0, 1]], 0)],
)
def test_npmi_refuses_settings(top, window):
    with pytest.raises(InvalidSettingError, match="got"):
        NpmiCounter(top, window=window)


def test_npmi_refuses_input():
    counter = NpmiCounter([[0, 1]])
    with pytest.raises(InsufficientDataError, match="windows=0"):
        counter.result()
    for offsets in ([], [0, 2], [1, 3], [0, 3, 2, 3]):
        with pytest.raises(InvalidDocumentsError, match="offsets must rise"):
            counter.add(np.zeros(3, dtype=np.int32), np.array(offsets, dtype=np.int64))
    with pytest.raises(InvalidSettingError, match="window=None"):
        counter.add_batch(DocumentBatch.from_matrix(np.ones((2, 3))))


def planted_corpus(n_documents=300):
    planted = PlantedLDA(5, 80, alpha_0=0.5, seed=2)
    background = planted.alpha @ planted.components / planted.alpha.sum()
    return planted.documents(n_documents), planted.components, planted.alpha, background


def test_completion_prefers_the_planted_topics():
    batch, components, alpha, background = planted_corpus()
    right = document_completion(batch, components, alpha, background)
    assert right.perplexity < 0.75 * right.unigram_perplexity
    assert right.documents == 300
    assert right.unscored_tokens == 0
    assert abs(right.held_out_tokens - batch.lengths.sum() / 2) < 5 * math.sqrt(
        batch.lengths.sum() / 4
    )
    wrong = document_completion(batch, np.roll(components, 1, axis=1), alpha, background)
    assert wrong.perplexity > wrong.unigram_perplexity
    assert wrong.unigram_log_likelihood_nats == right.unigram_log_likelihood_nats


def test_completion_of_one_background_topic_is_the_baseline():
    batch, _, _, background = planted_corpus(50)
    result = document_completion(batch, background[None], np.ones(1), background)
    assert result.perplexity == pytest.approx(result.unigram_perplexity, rel=1e-12)


def test_completion_equals_a_computation_by_hand():
    """The split is repeated here; fold-in and score are computed with dense arrays."""
    batch, components, alpha, background = planted_corpus(40)
    observed = np.random.default_rng(7).binomial(batch.counts.astype(np.int64), 0.5)
    held_out = batch.counts - observed
    mixed = 0.9 * components + 0.1 * background
    nats, unigram, documents = 0.0, 0.0, 0
    for first, last in itertools.pairwise(batch.row_pointers):
        seen, left, ids = observed[first:last], held_out[first:last], batch.word_ids[first:last]
        if not seen.any() or not left.any():
            continue
        gamma = np.ones(5)
        for _ in range(3000):
            share = gamma[:, None] * mixed[:, ids]
            gamma = alpha + (share / share.sum(axis=0)) @ seen
        nats += left @ np.log(gamma / gamma.sum() @ mixed[:, ids])
        unigram += left @ np.log(background[ids])
        documents += 1
    result = document_completion(
        batch,
        components,
        alpha,
        background,
        seed=7,
        smoothing=0.1,
        max_iterations=3000,
        tolerance=0.0,
    )
    assert result.documents == documents
    assert result.held_out_tokens == held_out.sum()
    assert result.log_likelihood_nats == pytest.approx(nats, rel=1e-9)
    assert result.unigram_log_likelihood_nats == pytest.approx(unigram, rel=1e-12)
    assert result.perplexity == pytest.approx(math.exp(-nats / held_out.sum()), rel=1e-9)


def test_stream_equals_batch_of_completion():
    batch, components, alpha, background = planted_corpus(100)
    whole = document_completion(batch, components, alpha, background, seed=3)
    parts = DocumentCompletion(components, alpha, background, seed=3)
    for start, stop in ((0, 1), (1, 1), (1, 60), (60, 100)):
        parts.add(batch.rows(start, stop))
    streamed = parts.result()
    assert streamed.held_out_tokens == whole.held_out_tokens
    assert streamed.documents == whole.documents
    assert streamed.log_likelihood_nats == pytest.approx(whole.log_likelihood_nats, rel=1e-13)
    other = document_completion(batch, components, alpha, background, seed=4)
    assert other.held_out_tokens != whole.held_out_tokens


def test_completion_leaves_out_documents_with_an_empty_half():
    rows = np.zeros((2001, 3), dtype=int)
    rows[:1000, 0] = 1
    rows[1000:2000, 1] = 2
    components, background = np.full((2, 3), 1 / 3), np.full(3, 1 / 3)
    result = document_completion(
        DocumentBatch.from_matrix(rows), components, np.ones(2), background
    )
    # Only a pair of tokens can fall on both sides, with probability 1/2: 500 +- 5 sigma.
    assert 420 < result.documents == result.held_out_tokens < 580
    with pytest.raises(InsufficientDataError, match="held_out_tokens=0"):
        document_completion(
            DocumentBatch.from_matrix(rows[:1000]), components, np.ones(2), background
        )


def test_completion_without_smoothing_is_infinite_for_a_word_outside_all_topics():
    batch = DocumentBatch.from_matrix(np.full((5, 3), 20))
    components = np.array([[0.5, 0.5, 0.0]])
    background = np.full(3, 1 / 3)
    bare = document_completion(batch, components, np.ones(1), background, smoothing=0.0)
    mixed = document_completion(batch, components, np.ones(1), background)
    assert bare.perplexity == math.inf
    assert mixed.perplexity < 100
    assert bare.unigram_perplexity == mixed.unigram_perplexity == pytest.approx(3.0)


def test_completion_reports_tokens_that_no_baseline_can_score():
    batch = DocumentBatch.from_matrix(np.full((5, 3), 20))
    background = np.array([0.5, 0.5, 0.0])
    result = document_completion(batch, np.full((2, 3), 1 / 3), np.ones(2), background)
    assert result.unscored_tokens > 0
    assert result.unigram_perplexity == pytest.approx(2.0)
    assert abs(result.held_out_tokens + result.unscored_tokens - 150) < 45


def test_completion_refuses():
    topics, background = np.full((2, 3), 1 / 3), np.full(3, 1 / 3)
    for bad in ([-1.0, 1.0, 1.0], [np.nan, 0.5, 0.5]):
        with pytest.raises(InvalidSettingError, match="background"):
            DocumentCompletion(topics, np.ones(2), np.array(bad))
    with pytest.raises(InvalidSettingError, match=r"weight=1\.5"):
        DocumentCompletion(topics, np.ones(2), background, smoothing=1.5)
    completion = DocumentCompletion(topics, np.ones(2), background)
    with pytest.raises(InvalidSettingError, match="n_features=4"):
        completion.add(DocumentBatch.from_matrix(np.ones((2, 4))))
    weights = DocumentBatch.from_matrix(np.full((2, 3), 0.5), integral=False)
    with pytest.raises(InvalidDocumentsError, match="whole numbers"):
        completion.add(weights)


@pytest.mark.parametrize("n", [1, 4, 12])
def test_top_words_come_in_order_with_ties_by_id(n):
    components = np.random.default_rng(0).integers(0, 4, (20, 12)).astype(float)
    expected = [sorted(range(12), key=lambda w, row=row: (-row[w], w))[:n] for row in components]
    assert top_words(components, n).tolist() == expected


@pytest.mark.parametrize(("n", "value"), [(0, 1.0), (4, 1.0), (2, np.nan)])
def test_top_words_refuses(n, value):
    with pytest.raises(InvalidSettingError, match="n_features=3"):
        top_words(np.full((2, 3), value), n)


def test_topic_diversity_counts_distinct_words():
    assert topic_diversity([[0, 1], [2, 3]]) == 1.0
    assert topic_diversity([[0, 1], [1, 0]]) == 0.5
    assert topic_diversity([["a", "b"], ["b", "c"]]) == 0.75
    with pytest.raises(InvalidSettingError, match="shape"):
        topic_diversity([])


def test_matched_error_finds_the_best_of_all_permutations():
    rng = np.random.default_rng(5)
    true, estimated = rng.dirichlet(np.ones(8), size=(2, 4))
    best = min(
        itertools.permutations(range(4)),
        key=lambda order: np.abs(true - estimated[list(order)]).sum(),
    )
    found = matched_l1_error(true, estimated)
    assert found.permutation.tolist() == list(best)
    np.testing.assert_allclose(
        found.per_topic, np.abs(true - estimated[found.permutation]).sum(axis=1)
    )
    assert found.mean == pytest.approx(found.per_topic.mean())
    order = [2, 0, 3, 1]
    exact = matched_l1_error(true, true[order])
    assert exact.mean == 0.0
    assert [order[column] for column in exact.permutation] == [0, 1, 2, 3]
    with pytest.raises(InvalidSettingError, match="same shape"):
        matched_l1_error(true, true[:3])
