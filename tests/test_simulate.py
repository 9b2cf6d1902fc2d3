"""Planted corpora: tokens against a slow twin, seeking, moments against theory."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from streamlda.simulate import PlantedLDA, _running_sums, draw_tokens
from tests import oracle, oracle_text


@given(st.lists(st.integers(0, 80), max_size=7), st.sampled_from([1, 7, 200]))
@example([100_000], 200)
def test_draw_tokens_equals_oracle(lengths, n_features):
    rng, offsets = np.random.default_rng(0), np.cumsum([0, *lengths], dtype=np.int64)
    uniforms = rng.random((offsets[-1], 2))
    # The ends of the buckets, where rounding could skip a word.
    uniforms[::3, 1] = np.floor(uniforms[::3, 1] * n_features) / n_features
    topics = rng.dirichlet(np.full(n_features, 0.05), size=3)
    topics[1, 0] = topics[2, -1] = 0.0
    topics[1:, n_features // 2] += 1e-3
    topic_cdf = _running_sums(rng.dirichlet([0.2, 0.3, 0.4], size=len(lengths)))
    word_cdf = _running_sums(topics)
    expected = oracle_text.draw_tokens(
        uniforms.tolist(), topic_cdf.tolist(), word_cdf.tolist(), offsets.tolist()
    )
    assert draw_tokens(uniforms, topic_cdf, word_cdf, offsets).tolist() == expected


def planted(**change):
    return PlantedLDA(**{"n_components": 3, "n_features": 40, "seed": 10} | change)


def test_documents_and_texts_and_draws_are_the_same_documents_and_of_the_seed():
    (drawn, _), texts, batch = planted().draw(50), planted().texts(50), planted().documents(50)
    words = planted().words
    assert words[17] == "w00017"
    rows = batch.to_csr().toarray()
    for d, (text, tokens) in enumerate(zip(texts, drawn, strict=True)):
        assert text == " ".join(words[token] for token in tokens)
        assert np.array_equal(rows[d], np.bincount(tokens, minlength=40))
    assert planted().texts(50) == texts != planted(seed=5).texts(50)
    assert not np.array_equal(planted().components, planted(seed=5).components)


@pytest.mark.parametrize("mean_length", [1, 80, 500])
def test_document_is_the_same_whatever_the_batches(mean_length):
    whole, source = (planted(mean_length=mean_length) for _ in range(2))
    batch = whole.documents(2200)
    rows = batch.to_csr()
    assert batch.lengths.min() >= 3
    stop = 0
    for size in (1, 0, 99, 1024, 1, 1075):
        start, stop = stop, stop + size
        assert (source.documents(size).to_csr() != rows[start:stop]).nnz == 0
    assert source.position == 2200
    for start in (1500, 3):
        source.seek(start)
        assert (source.documents(10).to_csr() != rows[start : start + 10]).nnz == 0


@pytest.mark.statistical
def test_pairs_and_proportions_and_topics_agree_with_theory():
    """Chi-square of pairs of words, Kolmogorov-Smirnov of Dirichlets; false-alarm rate 1e-4.

    Each of them refuses parameters that are 1.2 times (pairs: twice) as large.
    """
    alpha = np.array([0.2, 0.5, 0.9])
    planted = PlantedLDA(3, 5, alpha=alpha, topic_concentration=0.2, seed=3)
    drawn, proportions = planted.draw(20_000)
    first, last = np.array([(tokens[0], tokens[-1]) for tokens in drawn]).T
    seen = np.bincount(5 * first + last, minlength=25)
    for factor, right in ((1.0, True), (2.0, False)):
        _, pairs, _ = oracle.expected_moments(planted.components, factor * alpha)
        assert (stats.chisquare(seen, 20_000 * pairs.ravel()).pvalue > 1e-4 / 3) == right
    topics = PlantedLDA(5000, 6, topic_concentration=0.3, seed=8).components
    for rows, concentrations in ((proportions, alpha), (topics, np.full(6, 0.3))):
        for factor, right in ((1.0, True), (1.2, False)):
            # The first of all, the second of what is left, and so on: of a Dirichlet, each is Beta.
            left = rows
            for k, own in enumerate(concentrations[:-1]):
                law = stats.beta(factor * own, factor * concentrations[k + 1 :].sum())
                part = left[:, 0] / left.sum(axis=1)
                pvalue = stats.kstest(part, law.cdf).pvalue
                assert (pvalue > 1e-4 / 3 / len(concentrations)) == right
                left = left[:, 1:]
