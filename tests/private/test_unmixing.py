"""Released sums in which tokens are mixed among topics, and what they were before."""

import numpy as np
import pytest

from streamlda.model.evaluation import matched_l1_error
from streamlda.private import unmixing
from streamlda.private.contributions import View
from streamlda.private.responsibilities import RefinementStatistic, get_divisors
from streamlda.private.unmixing import (
    drawn_documents,
    responsibilities_of_topics,
    unmixed,
    unmixed_tokens,
)
from streamlda.simulate import PlantedLDA
from tests.private.streams import sums_of

K, V, N = 4, 300, 4000
WEIGHT = 1.5


@pytest.fixture(scope="module")
def round_():
    """Return what a round begins with, its sums of tokens, and the planted topics."""
    corpus = PlantedLDA(K, V, topic_concentration=0.05, mean_length=60, seed=3)
    rows = corpus.documents(N)
    background = np.bincount(rows.word_ids, rows.counts, V) + 1e-3
    background /= background.sum()
    # A sixth of the words is known, as after pairs of common words.
    topics = np.tile(background, (K, 1))
    known = np.argsort(-background)[: V // 6]
    topics[:, known] = corpus.components[:, known]
    topics /= topics.sum(axis=1, keepdims=True)
    prior = np.full(K, 1 / K)
    begun = topics, prior, background
    statistic = RefinementStatistic(*begun, np.ones(V), background_prior=WEIGHT)
    return begun, sums_of(statistic, View(rows))["shares"], corpus.components


def found_by(begun, sums, stddev):
    rough = np.maximum(sums[:, :K], 1e-12)
    rough = (rough / rough.sum(axis=0)).T
    given = sums, np.full(V, stddev), begun[2], rough, begun[1], 1.0
    tokens = unmixed_tokens(*given, *get_divisors(*begun, WEIGHT), 0.7, 0)
    return rough, (tokens / tokens.sum(axis=0)).T


@pytest.mark.parametrize("stddev", [0.5, 2.0])
def test_topics_are_much_nearer_than_the_sums_show_them(round_, stddev):
    begun, sums, truth = round_
    noisy = sums + stddev * np.random.default_rng(0).standard_normal(sums.shape)
    rough, found = found_by(begun, noisy, stddev)
    before, after = (matched_l1_error(truth, each).mean for each in (rough, found))
    assert after < 0.75 * before


def test_it_is_the_responsibilities_that_do_it(round_, monkeypatch):
    """As if a round had known the topics: the error of the sums stays."""
    begun, sums, truth = round_

    def none(words, prior, documents):
        return np.eye(K + 1, dtype=np.float32)[None], np.zeros(V, dtype=np.int64)

    monkeypatch.setattr(unmixing, "responsibilities_of_topics", none)
    rough, found = found_by(begun, sums, 0.5)
    before, after = (matched_l1_error(truth, each).mean for each in (rough, found))
    assert after > 0.9 * before


def test_responsibilities_sum_to_one_and_words_alike_share_them(round_):
    begun, _, truth = round_
    topics = np.vstack([truth, begun[2]])
    documents = drawn_documents(topics, np.full(K + 1, 0.2), np.random.default_rng(1))
    assert documents.n_documents == (K + 1) * unmixing.DRAWN
    mixing, kind = responsibilities_of_topics(*get_divisors(*begun, WEIGHT), documents)
    np.testing.assert_allclose(mixing.sum(axis=2), 1.0, rtol=1e-4)
    # Words that topics do not tell apart are one kind.
    assert len(mixing) == V // 6 + 1
    assert len(kind) == V
    # A token of a topic is more often given to it than one of another topic is.
    alike = mixing[kind[int(np.argmin(begun[2]))]]
    assert np.all(np.argmax(alike[:K, :K], axis=0) == np.arange(K))


def test_what_is_not_mixed_stays_where_there_is_no_noise(round_):
    rng = np.random.default_rng(2)
    tokens = rng.gamma(0.5, 100, (V, K + 1))
    background = tokens.sum(axis=1) / tokens.sum()
    expected = np.outer(background, tokens.sum(axis=0))
    eye, kind = np.eye(K + 1, dtype=np.float32)[None], np.zeros(V, dtype=np.int64)
    found = unmixed(tokens, np.full(V, 1e-3), background, expected, eye, kind, 0.7)
    clear = tokens > 0.01
    np.testing.assert_allclose(found[clear], tokens[clear], rtol=1e-6)
