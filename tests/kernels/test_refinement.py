"""Refinement kernels against their slow twins; and what they draw from."""

import itertools

import numpy as np
import pytest
from scipy.stats import chi2

from streamlda.kernels.refinement import (
    NO_SCORES,
    add_responsibilities,
    add_tokens,
    collapse_topics,
    draw_topics,
    expect_topics,
    resample_topics,
    tally_topics,
)
from streamlda.refinement.stepwise_em import entries_by_word
from tests import oracle_refinement as twin
from tests.corpora import batch_of, corpus

#: Corpora of the shared kinds that are small enough for plain loops.
SMALL = ["random", "no documents", "empty", "one token", "repeated word", "three tokens"]

#: Rounding in single precision, after a few hundred additions and some iterations.
SINGLE = 2e-5


def topics_of(d, K, seed=0):
    """Return random topics word by word, alpha, and the running sums of their product."""
    rng = np.random.default_rng(seed)
    words = np.ascontiguousarray(rng.dirichlet(np.full(d, 0.5), K).T, dtype=np.float32)
    words += np.float32(1e-6)
    alpha = rng.uniform(0.05, 1.0, K).astype(np.float32)
    return words, alpha, np.cumsum(words * alpha, axis=1, dtype=np.float32)


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


def drawn(batch, words, alpha, seed=3, first=0):
    pointers = token_pointers(batch)
    topics = np.full(pointers[-1], -1, dtype=np.int16)
    responsibilities, _ = expected(batch, words, alpha, 2)
    draw_topics(responsibilities, batch.row_pointers, pointers, seed, first, topics)
    return responsibilities, topics


def resampled(batch, words, running, topics, *, seed=3, first=0, sweep=1):
    topics = topics.copy()
    resample_topics(
        *(batch.word_ids, batch.row_pointers, token_pointers(batch), words, running),
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
def test_draw_and_resample_topics_equal_oracle(kind, K):
    batch = batch_of(corpus(kind), 9)
    words, alpha, running = topics_of(9, K)
    pointers = token_pointers(batch)
    responsibilities, topics = drawn(batch, words, alpha, seed=11, first=5)
    assert topics.tolist() == twin.draw_topics(batch, responsibilities, pointers, 11, 5)
    found = resampled(batch, words, running, topics, seed=11, first=5, sweep=4)
    slow = twin.resample_topics(batch, pointers, words, alpha, 11, 5, 4, topics)
    assert found.tolist() == slow


def test_documents_draw_the_same_wherever_the_stream_is_cut():
    batch = batch_of(corpus("random"), 9)
    words, alpha, running = topics_of(9, 6)
    responsibilities, topics = drawn(batch, words, alpha)
    whole = resampled(batch, words, running, topics)
    pointers = token_pointers(batch)
    for cut in (1, 17, 39):
        for start, stop in ((0, cut), (cut, len(batch))):
            part = batch.rows(start, stop)
            entries = slice(batch.row_pointers[start], batch.row_pointers[stop])
            tokens = slice(pointers[entries.start], pointers[entries.stop])
            part_responsibilities, part_topics = drawn(part, words, alpha, first=start)
            assert part_responsibilities.tobytes() == responsibilities[entries].tobytes()
            assert part_topics.tolist() == topics[tokens].tolist()
            again = resampled(part, words, running, part_topics, first=start)
            assert again.tolist() == whole[tokens].tolist()


@pytest.mark.parametrize("kind", SMALL)
def test_sums_by_word_equal_numpy(kind):
    batch = batch_of(corpus(kind), 9)
    words, alpha, _ = topics_of(9, 5)
    responsibilities, topics = drawn(batch, words, alpha)
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

    found, slow = np.ones((2, 9, 5))
    add_tokens(batch.word_ids, token_pointers(batch), topics, 0.3, found)
    tokens = batch.counts.astype(np.int64)
    words_of_tokens = np.repeat(batch.word_ids, tokens)
    np.add.at(slow, (words_of_tokens, topics), 0.3)
    np.testing.assert_allclose(found, slow, rtol=1e-12)

    found, slow = np.zeros((2, 5, 51), dtype=np.int64)
    pointers = token_pointers(batch)
    tally_topics(batch.row_pointers, pointers, topics, found)
    for begin, end in itertools.pairwise(pointers[batch.row_pointers]):
        for k in range(5):
            slow[k, : (topics[begin:end] == k).sum()] += 1
    assert found.tolist() == slow.tolist()


@pytest.mark.statistical
def test_resampling_draws_from_the_posterior_and_not_from_a_wrong_one():
    """Frequencies of all 27 assignments of one document; chi-squared, false-alarm rate 1e-4.

    Documents are copies of one, each with a chain of its own, so that draws are independent; 15
    sweeps from the mean-field answer are far more than three tokens need to mix.
    """
    n, tokens = 6000, [0, 1, 2]
    batch = batch_of([tokens] * n, 3)
    words = np.array([[0.5, 0.2, 0.3], [0.2, 0.4, 0.3], [0.3, 0.4, 0.4]], dtype=np.float32)
    alpha = np.array([0.8, 0.5, 0.6], dtype=np.float32)
    running = np.cumsum(words * alpha, axis=1, dtype=np.float32)
    _, topics = drawn(batch, words, alpha)
    for sweep in range(1, 16):
        topics = resampled(batch, words, running, topics, sweep=sweep)
    cells = np.bincount(topics.reshape(n, 3) @ np.array([9, 3, 1]), minlength=27)

    def statistic(prior):
        mean = n * twin.posterior(tokens, words, prior).ravel()
        assert mean.min() > 20
        return float(((cells - mean) ** 2 / mean).sum())

    bar = chi2.isf(1e-4, 26)
    assert statistic(alpha) < bar
    assert statistic(1.3 * alpha) > bar
