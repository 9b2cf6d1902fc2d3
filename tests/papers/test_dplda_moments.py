"""The moments of DP-LDA: those of their definition, unbiased, of attained sensitivities."""

import itertools
import math

import numpy as np
import pytest

from streamlda.papers.dplda.moments import LDAMoments, coefficients
from streamlda.papers.dplda.sensitivity import Facts, pairs_l1, pairs_l2, triples_l1, triples_l2
from tests import oracle
from tests.corpora import batch_of
from tests.papers.corpora import random_documents, sym3, vector_partitions


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
    expected = np.einsum("abc,ai,bj,ck->ijk", M3, W, W, W)
    np.testing.assert_allclose(moments.triples_through(W), expected, atol=1e-13)


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
    chances = np.zeros(4)
    for tokens, probability in np.ndenumerate(triples):
        chances[sum(tokens)] += probability
    means = [np.zeros((2, 2)), np.zeros((2, 2, 2)), np.zeros((2, 2))]
    for ones in itertools.product(range(4), repeat=3):
        corpus = [[0] * (3 - n) + [1] * n for n in ones]
        moments = LDAMoments(batch_of(corpus, 2), alpha.sum())
        raw = sum(oracle.statistic(document, 2, 2) for document in corpus) / 3
        naive = raw - squared * np.outer(moments.first(), moments.first())
        for mean, value in zip(means, (moments.pairs(), moments.triples(), naive), strict=True):
            mean += np.prod(chances[list(ones)]) * value
    np.testing.assert_allclose(means[0], M2, atol=1e-14)
    np.testing.assert_allclose(means[1], M3, atol=1e-14)
    assert np.abs(means[2] - M2).max() > 0.01


SENSITIVITIES = {"pairs": (pairs_l1, pairs_l2), "triples": (triples_l1, triples_l2)}


def norms_of(differences):
    rows = differences.reshape(len(differences), -1)
    return np.abs(rows).sum(axis=1), np.linalg.norm(rows, axis=1)


def statistics(counts, document, d=10):
    """Return p1, P2, P3 of one document of a pattern, zeros for a blank or beyond its length."""
    tokens = [word for word, part in enumerate(counts) for _ in range(part[document])]
    return [
        oracle.drawn(tokens, d, order) if len(tokens) >= order else np.zeros((d,) * order)
        for order in (1, 2, 3)
    ]


@pytest.fixture(scope="module")
def patterns():
    """Terms of N times the differences of M2 and of M3, by coefficient, for every pattern."""
    pairs, triples = [], []
    for sizes in itertools.product((3,), (3, 0), (2, 0), (2, 0)):
        for pattern in vector_partitions(sizes):
            one, other = (statistics(pattern, document) for document in (0, 1))
            u1, u2, u3 = (a - b for a, b in zip(one, other, strict=True))
            (pm, Pm, _), (pn, Pn, _) = (statistics(pattern, document) for document in (2, 3))
            pairs.append([u2, np.outer(u1, pm) + np.outer(pm, u1)])
            mixed = sym3(u2, (pm + pn) / 2) + sym3((Pm + Pn) / 2, u1)
            both = (np.outer(pm, pn) + np.outer(pn, pm)) / 2
            triples.append([u3, mixed, sym3(both, u1)])
    assert len(triples) > 2000
    return {"pairs": np.array(pairs), "triples": np.array(triples)}


@pytest.mark.parametrize("alpha_0", [0.01, 0.3, 0.5, 1.0, 2.0, 3.4, 3.6, 10.0, 1e4])
def test_sensitivities_are_the_largest_over_all_patterns(patterns, alpha_0):
    squared, mixed, cubed = coefficients(alpha_0)
    weights = {"pairs": [1, -squared], "triples": [1, mixed, cubed]}
    for name, bounds in SENSITIVITIES.items():
        found = norms_of(np.einsum("nt...,t->n...", patterns[name], weights[name]))
        stated = [3 * bound(Facts(3, 1, alpha_0)) for bound in bounds]
        assert [norm.max() for norm in found] == pytest.approx(stated, rel=1e-12)


OTHERS = {"one word": [[2] * 3, [2] * 4], "two": [[2] * 3, [3] * 3], "same": [[0] * 3, [1] * 5]}


def moved_by(one, other, others, alpha_0, d=4):
    here, there = (LDAMoments(batch_of([first, *others], d), alpha_0) for first in (one, other))
    changes = here.pairs() - there.pairs(), here.triples() - there.triples()
    return {
        name: [float(norm[0]) for norm in norms_of(change[None])]
        for name, change in zip(SENSITIVITIES, changes, strict=True)
    }


@pytest.mark.parametrize(("others", "alpha_0"), [("one word", 0.2), ("two", 1.0), ("same", 8.0)])
def test_documents_attain_the_sensitivities(others, alpha_0):
    found = {name: moved_by([0] * 6, [1] * 6, OTHERS[name], alpha_0) for name in OTHERS}
    facts = Facts(3, 1, alpha_0)
    assert found[others]["triples"][1] == pytest.approx(triples_l2(facts), rel=1e-12)
    assert found["two"]["triples"][0] == pytest.approx(triples_l1(facts), rel=1e-12)
    assert found["two"]["pairs"][0] == pytest.approx(pairs_l1(facts), rel=1e-12)
    assert found["one word"]["pairs"][1] == pytest.approx(pairs_l2(facts), rel=1e-12)


@pytest.mark.parametrize("n", [3, 6, 20])
def test_no_random_neighbours_exceed_the_sensitivities(n):
    rng = np.random.default_rng(n)
    for alpha_0 in (0.05, 1.0, 20.0):
        for _ in range(30):
            one, other, *others = random_documents(n + 1, 4, rng)
            found = moved_by(one, other, others, alpha_0)
            for name, bounds in SENSITIVITIES.items():
                stated = [bound(Facts(n, 1, alpha_0)) * (1 + 1e-12) for bound in bounds]
                assert (np.array(found[name]) <= stated).all()


def test_planted_bugs_are_exceeded():
    """As printed, the mixed term counts once; others forget the cube, or keep the raw moment."""
    _, mixed, cubed = coefficients(1.0)
    l1, l2 = moved_by([0] * 6, [1] * 6, OTHERS["two"], 1.0)["triples"]
    assert 3 * l1 > 2 + 4 * abs(mixed) + 6 * cubed + 1
    assert 3 * l1 > 2 + 12 * abs(mixed) + 1
    assert 3 * l2 > math.sqrt(2) + 0.3  # raw moments only


def test_theorem_5_is_wrong_by_first_order():
    """Its cube of W - W' omits a first order: the tensor moves as a small change of W does."""
    rng = np.random.default_rng(5)
    moments = LDAMoments(batch_of(random_documents(40, 4, rng, longest=12), 4), 1.0)
    W, change = rng.standard_normal((4, 2)), rng.standard_normal((4, 2))
    moved = [
        np.linalg.norm(moments.triples_through(W + h * change) - moments.triples_through(W))
        for h in (1e-3, 1e-4)
    ]
    assert moved[0] / moved[1] == pytest.approx(10, rel=0.02)  # the third order: 1000
