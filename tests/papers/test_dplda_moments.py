"""The moments of DP-LDA are unbiased, and those of their definition."""

import itertools

import numpy as np
import pytest

from streamlda.papers.dplda.moments import LDAMoments, coefficients
from tests import oracle
from tests.corpora import batch_of
from tests.papers.corpora import random_documents, sym3


def by_definition(documents, d, alpha_0):
    """Return M1, M2, M3 by going through all tuples of different documents."""
    N, (squared, mixed, cubed) = len(documents), coefficients(alpha_0)
    first, pairs, triples = (
        [
            oracle.statistic(tokens, d, order) if len(tokens) >= 3 else np.zeros((d,) * order)
            for tokens in documents
        ]
        for order in (1, 2, 3)
    )
    two = list(itertools.permutations(range(N), 2))
    three = list(itertools.permutations(range(N), 3))
    M2 = sum(pairs) / N - squared * sum(np.outer(first[m], first[n]) for m, n in two) / len(two)
    M3 = sum(triples) / N + mixed * sum(sym3(pairs[m], first[n]) for m, n in two) / len(two)
    cubes = sum(np.einsum("i,j,k->ijk", *(first[n] for n in picked)) for picked in three)
    return sum(first) / N, M2, M3 + cubed * cubes / len(three)


@pytest.mark.parametrize("alpha_0", [0.01, 1.7, 300.0])
def test_moments_equal_their_definition_dense_and_through_a_projection(alpha_0):
    rng = np.random.default_rng(1)
    d = 5
    documents = random_documents(9, d, rng)
    assert any(len(tokens) < 3 for tokens in documents)
    moments, W = LDAMoments(batch_of(documents, d), alpha_0), rng.standard_normal((d, 3))
    M1, M2, M3 = by_definition(documents, d, alpha_0)
    np.testing.assert_allclose(moments.first(), M1, atol=1e-15)
    np.testing.assert_allclose(moments.pairs(), M2, atol=1e-15)
    np.testing.assert_allclose(moments.triples(), M3, atol=1e-15)
    np.testing.assert_allclose(moments.pairs_times(W), M2 @ W, atol=1e-14)
    np.testing.assert_allclose(moments.pairs_times(W[:, 0]), M2 @ W[:, 0], atol=1e-14)
    expected = np.einsum("abc,ai,bj,ck->ijk", M3, W, W, W)
    np.testing.assert_allclose(moments.triples_through(W), expected, atol=1e-13)


def test_pairs_of_many_words_are_symmetric_to_the_last_bit():
    rng = np.random.default_rng(2)
    documents = random_documents(300, 2500, rng, longest=40)
    moments = LDAMoments(batch_of(documents, 2500), 1.0)
    M2 = moments.pairs()
    np.testing.assert_array_equal(M2, M2.T)
    columns = rng.standard_normal((2500, 2))
    np.testing.assert_allclose(moments.pairs_times(columns), M2 @ columns, atol=1e-14)


def test_moments_are_unbiased_and_products_of_means_are_not():
    """The exact expectation: all corpora of three documents of three tokens over two words.

    An LDA model draws three tokens in order with the probabilities of E P3.
    """
    components, alpha = np.array([[0.7, 0.3], [0.1, 0.9]]), np.array([0.2, 0.6])
    first, pairs, triples = oracle.expected_moments(components, alpha)
    squared, mixed, cubed = coefficients(alpha.sum())
    M2 = pairs - squared * np.outer(first, first)
    cube = np.einsum("i,j,k->ijk", first, first, first)
    M3 = triples + mixed * sym3(pairs, first) + cubed * cube
    by_count = [([0] * (3 - n) + [1] * n, 0.0) for n in range(4)]
    for tokens, probability in np.ndenumerate(triples):
        document, before = by_count[sum(tokens)]
        by_count[sum(tokens)] = document, before + probability
    expected = [np.zeros((2, 2)), np.zeros((2, 2, 2)), np.zeros((2, 2))]
    for corpus in itertools.product(by_count, repeat=3):
        probability = np.prod([p for _, p in corpus])
        documents = batch_of([document for document, _ in corpus], 2)
        moments = LDAMoments(documents, alpha.sum())
        raw = sum(oracle.statistic(document, 2, 2) for document, _ in corpus) / 3
        naive = raw - squared * np.outer(moments.first(), moments.first())
        for total, value in zip(expected, (moments.pairs(), moments.triples(), naive), strict=True):
            total += probability * value
    np.testing.assert_allclose(expected[0], M2, atol=1e-14)
    np.testing.assert_allclose(expected[1], M3, atol=1e-14)
    assert np.abs(expected[2] - M2).max() > 0.01
