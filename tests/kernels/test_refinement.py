"""Refinement kernels against their slow twins; and what they draw from."""

import itertools

import numpy as np
import pytest
from scipy.stats import chi2

from streamlda.kernels.refinement import (
    NO_SCORES,
    add_few_responsibilities,
    add_responsibilities,
    collapse_topics,
    expect_few_topics,
    expect_topics,
    move_tokens,
    resample_topics,
)
from streamlda.refinement.gibbs import tally
from streamlda.refinement.stepwise_em import entries_by_word
from tests import oracle_refinement as twin
from tests.corpora import batch_of, corpus

#: Corpora of the shared kinds that are small enough for plain loops.
SMALL = ["random", "no documents", "empty", "one token", "repeated word", "three tokens"]

#: Rounding in single precision, after a few hundred additions and some iterations.
SINGLE = 2e-5


def topics_of(d, K, seed=0):
    """Return random topics word by word, alpha, and what a token takes out of its own topic."""
    rng = np.random.default_rng(seed)
    words = np.ascontiguousarray(rng.dirichlet(np.full(d, 0.5), K).T, dtype=np.float32)
    words += np.float32(0.05)
    alpha = rng.uniform(0.05, 1.0, K).astype(np.float32)
    return words, alpha, rng.uniform(0.0, 0.05, K).astype(np.float32)


def token_pointers(batch):
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(batch.counts).astype(np.int64)])


def expected(batch, words, alpha, inner_iterations):
    # NaN: a cell that the kernel leaves alone is seen.
    responsibilities = np.full((len(batch.counts), len(alpha)), np.nan, dtype=np.float32)
    entries = batch.counts, batch.word_ids, batch.row_pointers
    expect_topics(*entries, words, alpha, inner_iterations, responsibilities, NO_SCORES)
    scored, nats = responsibilities.copy(), np.full(batch.n_documents, np.nan)
    expect_topics(*entries, words, alpha, inner_iterations, scored, nats)
    np.testing.assert_array_equal(scored, responsibilities)
    return responsibilities, nats


def draw_topics(batch, words, own, alpha, *, seed=3, first=0, sweep=0, topics=None):
    """Return the topics after a sweep: the first one, if there are none yet."""
    pointers = token_pointers(batch)
    topics = np.full(pointers[-1], -1, dtype=np.int16) if topics is None else topics.copy()
    running = np.cumsum(words * alpha, axis=1, dtype=np.float32)
    resample_topics(
        *(batch.word_ids, batch.row_pointers, pointers, words, running, own, alpha),
        *(seed, first, sweep, topics),
    )
    return topics


@pytest.mark.parametrize("K", [1, 3, 8, 19])
@pytest.mark.parametrize("kind", SMALL)
def test_expect_topics_equals_oracle(kind, K):
    batch = batch_of(corpus(kind), 9)
    words, alpha, _ = topics_of(9, K)
    for iterations, factor in ((1, 1), (2, 1), (4, 1), (3, 0.3)):  # fractional counts at last
        batch.counts = batch.counts * factor
        found, nats = expected(batch, words, alpha, iterations)
        slow, wanted = twin.expect_and_score(batch, words, alpha, iterations)
        np.testing.assert_allclose(found, slow, rtol=0, atol=SINGLE)
        np.testing.assert_allclose(nats, wanted, rtol=1e-5, atol=1e-12)


@pytest.mark.parametrize("most", [1, 4, 18, 19])
@pytest.mark.parametrize("kind", SMALL)
def test_a_document_has_responsibilities_of_the_topics_that_it_shows_most_of(kind, most):
    """Counts of words are added by the topics that each document has."""
    batch, K = batch_of(corpus(kind), 9), 19
    words, alpha, _ = topics_of(9, K)
    rows, masses = (batch.counts, batch.word_ids, batch.row_pointers), words @ alpha
    topics = np.full((len(batch), most), -1, dtype=np.int16)
    found = np.full((batch.n_entries, most), np.nan, dtype=np.float32)
    nats = np.full(len(batch), np.nan)
    expect_few_topics(*rows, words, masses, alpha, 3, topics, found, nats)
    totals, slow = np.zeros((2, 9, K))
    for d, own in enumerate(topics):
        shown = alpha * (batch.to_csr()[[d]] @ (words / masses[:, None]))[0]
        assert len({*own}) == most
        assert shown[own].min() >= np.sort(shown)[-most] - SINGLE
        one = batch.rows(d, d + 1)
        wanted, nat = twin.expect_and_score(one, words[:, own], alpha[own], 3)
        part = slice(*batch.row_pointers[d : d + 2])
        np.testing.assert_allclose(found[part], wanted, rtol=0, atol=SINGLE)
        np.testing.assert_allclose(nats[d], nat[0], rtol=1e-5, atol=1e-12)
        np.add.at(slow, (one.word_ids[:, None], own), one.counts[:, None] * found[part])
    by_word = entries_by_word(batch.word_ids, batch.counts, 9)
    numbers = np.repeat(np.arange(len(batch), dtype=np.int32), np.diff(batch.row_pointers))
    add_few_responsibilities(*by_word, numbers, topics, found, totals)
    np.testing.assert_allclose(totals, slow, rtol=1e-12)


@pytest.mark.parametrize("K", [1, 3, 8, 19])
@pytest.mark.parametrize("kind", SMALL)
@pytest.mark.parametrize("relaxation", [1.0, 1.5])
def test_collapse_topics_equals_oracle(kind, K, relaxation):
    batch = batch_of(corpus(kind), 9)
    words, alpha, _ = topics_of(9, K)
    gamma, _ = expected(batch, words, alpha, 2)
    totals = np.zeros((9, K), dtype=np.float32)
    np.add.at(totals, batch.word_ids, batch.counts[:, None].astype(np.float32) * gamma)
    masses = totals.sum(axis=0)
    slow = twin.collapse_topics(batch, alpha, 0.1, relaxation, masses, gamma, totals)
    collapse_topics(
        *(batch.counts, batch.word_ids, batch.row_pointers, alpha, 0.1, relaxation),
        *(masses, gamma, totals),
    )
    np.testing.assert_allclose(gamma, slow[0], rtol=0, atol=SINGLE)
    np.testing.assert_allclose(totals, slow[1], rtol=SINGLE, atol=SINGLE)


@pytest.mark.parametrize("K", [1, 3, 8, 19])
@pytest.mark.parametrize("kind", SMALL)
def test_resample_topics_equals_oracle(kind, K):
    batch = batch_of(corpus(kind), 9)
    words, alpha, own = topics_of(9, K)
    pointers = token_pointers(batch)
    topics = np.full(pointers[-1], -1, dtype=np.int16)
    for sweep in range(3):
        found = draw_topics(batch, words, own, alpha, seed=11, first=5, sweep=sweep, topics=topics)
        slow = twin.resample_topics(batch, pointers, words, own, alpha, 11, 5, sweep, topics)
        assert found.tolist() == slow
        topics = found


@pytest.mark.parametrize("kind", SMALL)
def test_sums_by_word_equal_numpy(kind):
    batch = batch_of(corpus(kind), 9)
    words, alpha, own = topics_of(9, 5)
    responsibilities, _ = expected(batch, words, alpha, 2)
    topics = draw_topics(batch, words, own, alpha)
    weights = np.random.default_rng(1).uniform(0.1, 2.0, len(batch.counts))
    word_weights, entries, pointers = entries_by_word(batch.word_ids, weights, 9)
    order = np.argsort(batch.word_ids, kind="stable")
    assert entries.tolist() == order.tolist()
    assert word_weights.tolist() == weights[order].tolist()
    assert np.diff(pointers).tolist() == np.bincount(batch.word_ids, minlength=9).tolist()

    found, slow = np.ones((2, 9, 5))
    add_responsibilities(word_weights, entries, pointers, responsibilities, found)
    np.add.at(slow, batch.word_ids, weights[:, None] * responsibilities)
    np.testing.assert_allclose(found, slow, rtol=1e-12)

    pointers, counts = token_pointers(batch), np.zeros((9, 5), dtype=np.int32)
    before = np.full(len(topics), -1, dtype=np.int16)
    for then in (topics, draw_topics(batch, words, own, alpha, sweep=1, topics=topics)):
        move_tokens(batch.word_ids, pointers, before, then, counts)
        found = np.zeros((9, 5), dtype=int)
        np.add.at(found, (np.repeat(batch.word_ids, batch.counts.astype(int)), then), 1)
        assert counts.tolist() == found.tolist()
        before = then

    found, _ = tally(batch.row_pointers, pointers, topics, 5)
    slow = np.zeros_like(found)
    for begin, end in itertools.pairwise(pointers[batch.row_pointers]):
        for k in range(5):
            slow[k, : (topics[begin:end] == k).sum()] += 1
    assert found.tolist() == slow.tolist()


@pytest.mark.statistical
def test_resampling_draws_from_the_posterior_and_not_from_a_wrong_one():
    """Frequencies of all 27 assignments of one document; chi-squared, false-alarm rate 1e-4.

    Documents are copies of one, each with a chain of its own, so that draws are independent; 15
    sweeps are far more than three tokens need to mix. No token takes anything out of its topic.
    """
    n, tokens = 6000, [0, 1, 2]
    batch = batch_of([tokens] * n, 3)
    words = np.array([[0.5, 0.2, 0.3], [0.2, 0.4, 0.3], [0.3, 0.4, 0.4]], dtype=np.float32)
    alpha = np.array([0.8, 0.5, 0.6], dtype=np.float32)
    topics = None
    for sweep in range(16):
        own = np.zeros(3, dtype=np.float32)
        topics = draw_topics(batch, words, own, alpha, sweep=sweep, topics=topics)
    cells = np.bincount(topics.reshape(n, 3) @ np.array([9, 3, 1]), minlength=27)

    def statistic(prior):
        mean = n * twin.posterior(tokens, words, prior).ravel()
        assert mean.min() > 20
        return float(((cells - mean) ** 2 / mean).sum())

    bar = chi2.isf(1e-4, 26)
    assert statistic(alpha) < bar
    assert statistic(1.3 * alpha) > bar
